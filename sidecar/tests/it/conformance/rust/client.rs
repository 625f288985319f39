//! Tries everything at servers with our fixtures, as the clients on other SDKs do.

#![expect(deprecated, reason = "what later revisions advise against is what some servers ask")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData,
    GetPromptRequestParams, Implementation, ProgressNotificationParam, ProtocolVersion,
    ReadResourceRequestParams, ResourceContents, SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::harness::own;

/// How long what belongs to an answer may come after it: it is handled beside it.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Says for each feature `works`, `-` if the server does not have it, or what went wrong.
type Outcome = BTreeMap<&'static str, String>;
type Failure = Box<dyn Error + Send + Sync>;

#[test]
#[ignore = "a client, which another test runs"]
fn explore() {
    let told = own::told();
    let [mode, urls @ ..] = &told[..] else { panic!("{told:?}") };
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all = JoinSet::new();
        for (number, url) in urls.iter().enumerate() {
            let (mode, url) = (mode.clone(), url.clone());
            let socket = directory.path().join(number.to_string());
            all.spawn(async move { (try_at(&mode, &url, socket).await, url) });
        }
        while let Some(tried) = all.join_next().await {
            let (outcome, url) = tried.unwrap();
            // On a line of its own, whatever the test program has begun.
            writeln!(std::io::stdout(), "\n{}", json!([url, outcome])).unwrap();
        }
    });
}

/// The user of a client, and its model.
#[derive(Default)]
struct Heard {
    sampling: AtomicUsize,
    elicitation: AtomicUsize,
    steps: AtomicUsize,
    stepped: Notify,
}

#[derive(Clone)]
struct User(Arc<Heard>);

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_sampling().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rust", "1"))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.0.sampling.fetch_add(1, Ordering::SeqCst);
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("sampled"), "m".to_owned()))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.0.elicitation.fetch_add(1, Ordering::SeqCst);
        let content = json!({"username": "u", "email": "u@example.com"});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.steps.fetch_add(1, Ordering::SeqCst);
        self.0.stepped.notify_one();
    }
}

type Client = RunningService<RoleClient, User>;

/// The SDK speaks HTTP over sockets of Unix without a further library: what comes to this one goes to a port.
fn relay(socket: &Path, port: u16) -> JoinSet<()> {
    let listener = UnixListener::bind(socket).expect("a socket");
    let mut running = JoinSet::new();
    running.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut near, _)) = listener.accept().await {
            connections.spawn(async move {
                let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                let ((mut near_from, mut near_to), (mut far_from, mut far_to)) = (near.split(), far.split());
                // Whichever side goes first, the other is told by the end of its connection.
                tokio::select! {
                    _ = tokio::io::copy(&mut near_from, &mut far_to) => {}
                    _ = tokio::io::copy(&mut far_from, &mut near_to) => {}
                }
            });
        }
    });
    running
}

async fn try_at(mode: &str, url: &str, socket: PathBuf) -> Outcome {
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
    let _relay = relay(&socket, port.expect("a port"));
    let heard = Arc::new(Heard::default());
    let mut outcome = Outcome::new();
    match connect(mode, url, &socket, User(heard.clone())).await {
        Ok(client) => {
            outcome.insert("connect", "works".to_owned());
            all(&client, &heard, &mut outcome).await;
            let _ = client.cancel().await;
        }
        Err(error) => _ = outcome.insert("connect", error.to_string()),
    }
    outcome
}

async fn connect(mode: &str, url: &str, socket: &Path, user: User) -> Result<Client, Failure> {
    let http = UnixSocketHttpClient::new(socket.to_str().expect("text"), url);
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let transport = StreamableHttpClientTransport::with_client(http, config);
    Ok(match mode {
        "rust-modern" => {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            user.serve_with_lifecycle(transport, ClientLifecycleMode::Discover { preferred_versions }).await?
        }
        _ => user.serve(transport).await?,
    })
}

fn tool(name: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("no arguments: {arguments}") };
    CallToolRequestParams::new(name).with_arguments(arguments)
}

fn said(result: &CallToolResult) -> String {
    result
        .content
        .first()
        .and_then(|content| content.as_text())
        .map(|text| text.text.clone())
        .unwrap_or_default()
}

async fn say(client: &Client) -> Result<bool, Failure> {
    let result = client.call_tool(tool("test_simple_text", json!({}))).await?;
    Ok(said(&result).starts_with("This is"))
}

/// Tries everything but to connect.
async fn all(client: &Client, heard: &Heard, outcome: &mut Outcome) {
    let mut names = Vec::new();
    outcome.insert("tool", word(list_and_call(client, &mut names).await));
    outcome.insert("resource", word(read(client).await));
    outcome.insert("prompt", word(prompt(client).await));
    outcome.insert("progress", word(progress(client, heard).await));
    outcome.insert("cancellation", word(cancel(client, heard).await));
    for (feature, call, count) in [
        ("elicitation", tool("test_elicitation", json!({"message": "Who?"})), &heard.elicitation),
        ("sampling", tool("test_sampling", json!({"prompt": "Say"})), &heard.sampling),
    ] {
        let is_there = names.iter().any(|name| *name == call.name);
        let what = if is_there { word(ask(client, call, count).await) } else { "-".to_owned() };
        outcome.insert(feature, what);
    }
}

fn word(tried: Result<bool, Failure>) -> String {
    match tried {
        Ok(true) => "works".to_owned(),
        Ok(false) => "wrong".to_owned(),
        Err(error) => error.to_string(),
    }
}

async fn list_and_call(client: &Client, names: &mut Vec<String>) -> Result<bool, Failure> {
    names.extend(client.list_all_tools().await?.into_iter().map(|tool| tool.name.into_owned()));
    say(client).await
}

async fn read(client: &Client) -> Result<bool, Failure> {
    let result = client.read_resource(ReadResourceRequestParams::new("test://static-text")).await?;
    let [ResourceContents::TextResourceContents { text, .. }] = &result.contents[..] else {
        return Ok(false);
    };
    Ok(!text.is_empty())
}

async fn prompt(client: &Client) -> Result<bool, Failure> {
    let result = client.get_prompt(GetPromptRequestParams::new("test_simple_prompt")).await?;
    Ok(result.messages.len() == 1)
}

async fn progress(client: &Client, heard: &Heard) -> Result<bool, Failure> {
    client.call_tool(tool("test_tool_with_progress", json!({}))).await?;
    let began = Instant::now();
    while heard.steps.load(Ordering::SeqCst) < 3 && began.elapsed() < AFTERWARDS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(heard.steps.load(Ordering::SeqCst) == 3)
}

/// Gives a call up at its first step.
async fn cancel(client: &Client, heard: &Heard) -> Result<bool, Failure> {
    // Of the call before.
    while tokio::time::timeout(Duration::ZERO, heard.stepped.notified()).await.is_ok() {}
    tokio::select! {
        // Its step comes before its answer, and is looked for first.
        biased;
        () = heard.stepped.notified() => {}
        _ = client.call_tool(tool("test_tool_with_progress", json!({}))) => return Ok(false),
    }
    // What is left goes on.
    say(client).await
}

async fn ask(client: &Client, call: CallToolRequestParams, count: &AtomicUsize) -> Result<bool, Failure> {
    let result = client.call_tool(call).await?;
    if result.is_error == Some(true) {
        return Err(said(&result).into());
    }
    Ok(count.load(Ordering::SeqCst) == 1)
}
