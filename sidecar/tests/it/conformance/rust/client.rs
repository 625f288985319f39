//! Tries everything at servers with our fixtures, as the clients on other SDKs do.

mod http;
mod newest;
mod older;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::harness::own;

/// How long what belongs to an answer may come after it: it is handled beside it.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// Says for each feature `works`, `-` if it is not there, or what went wrong.
type Outcome = BTreeMap<&'static str, String>;
type Failure = Box<dyn Error + Send + Sync>;

/// A client of some release, once it is connected. Results are as they stand in messages.
trait Client {
    /// What the release does not have.
    const LACKS: &[&str] = &[];

    async fn tools(&self) -> Result<Vec<String>, Failure>;

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Failure>;

    /// Calls a tool, and gives the call up then. False if it was answered before.
    async fn give_up(&self, tool: &str, then: impl Future<Output = ()>) -> Result<bool, Failure>;

    async fn read(&self, uri: &str) -> Result<Value, Failure>;

    async fn prompt(&self, name: &str) -> Result<Value, Failure>;

    async fn close(self);
}

#[test]
#[ignore = "a client, which another test runs"]
fn explore() {
    let told = own::told();
    let [mode, urls @ ..] = &told[..] else { panic!("{told:?}") };
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tries = urls.iter().enumerate().map(|(number, url)| {
            let socket = directory.path().join(number.to_string());
            async move { (try_at(mode, url, socket).await, url) }
        });
        let mut all: FuturesUnordered<_> = tries.collect();
        while let Some((outcome, url)) = all.next().await {
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

impl Heard {
    fn sampled(&self) -> Value {
        self.sampling.fetch_add(1, Ordering::SeqCst);
        json!({"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "m"})
    }

    fn elicited(&self) -> Value {
        self.elicitation.fetch_add(1, Ordering::SeqCst);
        json!({"action": "accept", "content": {"username": "u", "email": "u@example.com"}})
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.stepped.notify_one();
    }
}

/// What a client says of itself.
fn introduction(revision: &str) -> Value {
    let capabilities = json!({"sampling": {}, "elicitation": {}});
    json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": {"name": "rust", "version": "1"}})
}

/// What stands in a message, in the words of a release.
fn of<T: serde::de::DeserializeOwned>(message: Value) -> T {
    serde_json::from_value(message).expect("the release knows it")
}

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
    let socket = socket.to_str().expect("text");
    let heard = Arc::new(Heard::default());
    let user = heard.clone();
    match mode {
        "rust-2025-11-25" => {
            outcome(older::before_2026_07_28::connect(url, socket, user).await, &heard).await
        }
        "rust-2025-06-18" => outcome(older::before_2025_11_25::connect(url, user).await, &heard).await,
        "rust-2024-11-05" => outcome(older::before_2025_06_18::connect(url, user).await, &heard).await,
        _ => outcome(newest::connect(mode, url, socket, user).await, &heard).await,
    }
}

async fn outcome<C: Client>(connected: Result<C, Failure>, heard: &Heard) -> Outcome {
    let mut outcome = Outcome::new();
    match connected {
        Ok(client) => {
            outcome.insert("connect", "works".to_owned());
            all(&client, heard, &mut outcome).await;
            client.close().await;
        }
        Err(error) => _ = outcome.insert("connect", error.to_string()),
    }
    outcome
}

/// Tries everything but to connect.
async fn all<C: Client>(client: &C, heard: &Heard, outcome: &mut Outcome) {
    let mut names = Vec::new();
    outcome.insert("tool", word(list_and_call(client, &mut names).await));
    outcome.insert("resource", word(read(client).await));
    outcome.insert("prompt", word(prompt(client).await));
    if !C::LACKS.contains(&"progress") {
        outcome.insert("progress", word(progress(client, heard).await));
    }
    outcome.insert("cancellation", word(cancel(client, heard).await));
    for (feature, tool, arguments, count) in [
        ("elicitation", "test_elicitation", json!({"message": "Who?"}), &heard.elicitation),
        ("sampling", "test_sampling", json!({"prompt": "Say"}), &heard.sampling),
    ] {
        if !C::LACKS.contains(&feature) && names.iter().any(|name| name == tool) {
            outcome.insert(feature, word(ask(client, tool, arguments, count).await));
        }
    }
    for absent in ["progress", "elicitation", "sampling"] {
        outcome.entry(absent).or_insert_with(|| "-".to_owned());
    }
}

fn word(tried: Result<bool, Failure>) -> String {
    match tried {
        Ok(true) => "works".to_owned(),
        Ok(false) => "wrong".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

async fn say(client: &impl Client) -> Result<bool, Failure> {
    let result = client.call("test_simple_text", json!({})).await?;
    Ok(said(&result).starts_with("This is"))
}

async fn list_and_call(client: &impl Client, names: &mut Vec<String>) -> Result<bool, Failure> {
    names.extend(client.tools().await?);
    say(client).await
}

async fn read(client: &impl Client) -> Result<bool, Failure> {
    let result = client.read("test://static-text").await?;
    let contents = result["contents"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(matches!(contents, [content] if content["text"].as_str().is_some_and(|text| !text.is_empty())))
}

async fn prompt(client: &impl Client) -> Result<bool, Failure> {
    let result = client.prompt("test_simple_prompt").await?;
    Ok(result["messages"].as_array().is_some_and(|messages| messages.len() == 1))
}

async fn progress(client: &impl Client, heard: &Heard) -> Result<bool, Failure> {
    client.call("test_tool_with_progress", json!({})).await?;
    let began = Instant::now();
    while heard.steps.load(Ordering::SeqCst) < 3 && began.elapsed() < AFTERWARDS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(heard.steps.load(Ordering::SeqCst) == 3)
}

/// Gives a call up at its first step, or at once where steps are not heard.
async fn cancel<C: Client>(client: &C, heard: &Heard) -> Result<bool, Failure> {
    // Of the call before.
    while tokio::time::timeout(Duration::ZERO, heard.stepped.notified()).await.is_ok() {}
    let then = async {
        if !C::LACKS.contains(&"progress") {
            heard.stepped.notified().await;
        }
    };
    // What is left goes on.
    Ok(client.give_up("test_tool_with_progress", then).await? && say(client).await?)
}

async fn ask(
    client: &impl Client,
    tool: &str,
    arguments: Value,
    count: &AtomicUsize,
) -> Result<bool, Failure> {
    let result = client.call(tool, arguments).await?;
    if result["isError"] == true {
        return Err(said(&result).into());
    }
    Ok(count.load(Ordering::SeqCst) == 1)
}
