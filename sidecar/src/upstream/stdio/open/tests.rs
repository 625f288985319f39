//! Sessions that go on when a sidecar has died, with the real shim and a server that does what it is asked for.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio as Pipes};

use http_body_util::BodyExt;
use longshore_mcp::revision::Revision;
use longshore_sessions::{Peer, PodId};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::{Builder, LocalOptions};

use super::*;
use crate::held::Shares;
use crate::memory::Amounts;
use crate::metrics::Metrics;
use crate::sessions::Sessions;
use crate::upstream::{Letter, Post};

const SOCKET: &str = "LONGSHORE_TEST_SOCKET";
/// Held while a program starts: until then it has a copy of every descriptor, also of a sidecar's that dies meanwhile.
static STARTING: Mutex<()> = Mutex::new(());

/// This program again, as the shim.
pub(in super::super) struct Shim {
    child: Child,
    folder: tempfile::TempDir,
}

impl Shim {
    pub(in super::super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let starting = STARTING.lock();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "upstream::stdio::open::tests::shim"])
            .env(SOCKET, &socket)
            .stdout(Pipes::null())
            .stderr(Pipes::null())
            .spawn()
            .unwrap();
        drop(starting);
        while !socket.exists() {
            std::thread::yield_now();
        }
        Self { child, folder }
    }

    /// Lives through one life of a sidecar; what is not ended is left as by one that was killed.
    pub(in super::super) fn life<T>(&self, life: impl AsyncFnOnce(Arc<Stdio>) -> T) -> T {
        let metrics = Arc::new(Metrics::new().unwrap());
        let (socket, hang) = (self.folder.path().join("socket"), Duration::from_secs(60));
        let me = Peer { pod: PodId::new("pod-1").unwrap(), address: [127, 0, 0, 1].into() };
        let amounts = Amounts::within(None);
        let subscriptions = Shares::new(amounts.subscriptions);
        let sessions = Sessions::new(me, true, None, metrics.clone(), subscriptions, amounts.copied);
        let held = Shares::new(amounts.held);
        let stdio = Arc::new(Stdio::new(socket, hang, metrics, Arc::new(sessions), held));
        stdio.places.limit(Some(limits(Isolation::Session)));
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        let lived = runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(20), life(stdio)).await.unwrap() });
        drop(runtime);
        drop(STARTING.lock());
        lived
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the shim, which another test runs"]
fn shim() {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stdio/server.py");
    let mut options = longshore_shim::Options::new("python3".into(), vec![server.into()]);
    options.socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    longshore_shim::serve::run(&options).unwrap();
}

fn opener(isolation: Isolation) -> Opener {
    Opener::Client { principal: "somebody".into(), limits: Some(limits(isolation)), begins: Begins::Anew }
}

pub(in super::super) fn limits(isolation: Isolation) -> Processes {
    Processes {
        isolation,
        total: 4,
        per_principal: 4,
        warm: 0,
        queue_ms: 0,
        idle_ms: 60_000,
        max_age_ms: None,
    }
}

fn former(capabilities: Option<&str>) -> Former {
    Former {
        set: longshore_sessions::message::Copy::default(),
        opener: opener(Isolation::Session),
        revision: Revision::V2025_11_25,
        capabilities: capabilities.map(str::to_owned),
    }
}

fn letter(session: &HeaderValue, body: &Value) -> Letter {
    Post::of(body.to_string()).within((Some(session.clone()), Revision::V2025_11_25))
}

async fn begin(stdio: &Arc<Stdio>, isolation: Isolation) -> HeaderValue {
    begin_as(stdio, opener(isolation)).await
}

async fn begin_as(stdio: &Arc<Stdio>, opener: Opener) -> HeaderValue {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let (answer, hold) = stdio.open(opener, body.to_string().into()).await.unwrap();
    hold.keep();
    let session = answer.also.session().unwrap();
    let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    stdio.send(letter(&session, &body), None).await.unwrap();
    session
}

async fn end(stdio: &Stdio, session: &HeaderValue) {
    stdio.send(Letter::End(session.clone(), Revision::V2025_11_25), None).await.unwrap();
}

fn call(id: u32, name: &str, arguments: &Value) -> Value {
    let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": id}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// What comes back for a call; its status, where that is no success.
async fn said(stdio: &Arc<Stdio>, session: &HeaderValue, call: &Value) -> Result<String, u16> {
    let answer = stdio.send(letter(session, call), None).await.unwrap();
    if !answer.status.is_success() {
        return Err(answer.status.as_u16());
    }
    let Ok(body) = answer.body.collect().await else { return Err(0) };
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

async fn pid(stdio: &Arc<Stdio>, session: &HeaderValue) -> Result<String, u16> {
    let answer = said(stdio, session, &call(1000, "pid", &json!({}))).await?;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    Ok(answer["result"]["content"][0]["text"].as_str().unwrap().to_owned())
}

#[test]
fn a_session_goes_on_and_late_answers_are_nobodys() {
    let shim = Shim::start();
    let who = |who: &str, seconds: f64| call(1, "who", &json!({"who": who, "steps": 3, "seconds": seconds}));
    let (session, first) = shim.life(async |stdio| {
        let session = begin(&stdio, Isolation::Session).await;
        let before = pid(&stdio, &session).await;
        // The process that was there first is found, and the one that replaced it.
        assert!(stdio.send(letter(&session, &call(7, "exit", &json!({"status": 1}))), None).await.is_err());
        let pid = pid(&stdio, &session).await;
        assert_ne!(pid, before);
        let (sender, session_of_call) = (stdio.clone(), session.clone());
        let call = who("the first life", 0.5);
        tokio::task::spawn_local(async move { said(&sender, &session_of_call, &call).await });
        // Taken before the next message, whose answer shows that the process has it.
        said(&stdio, &session, &super::tests::call(2, "count", &json!({}))).await.unwrap();
        (session, pid)
    });
    for life in 0..3 {
        shim.life(async |stdio| {
            let (one, two) = tokio::join!(
                stdio.recall(&session, former(Some("{}"))),
                stdio.recall(&session, former(Some("{}")))
            );
            assert_eq!((one.unwrap(), two.unwrap()), (Recalled::GoesOn, Recalled::GoesOn), "{life}");
            assert_eq!(pid(&stdio, &session).await, first, "{life}");
            // The same id and the same token as the call of the first life, whose answer comes meanwhile.
            let words = format!("life {life}");
            let answer = said(&stdio, &session, &who(&words, 1.0)).await.unwrap();
            assert_eq!(answer.matches(&words).count(), 4, "{answer}");
            assert!(!answer.contains("the first life"), "{answer}");
        });
    }
    // One that dies then is begun again with what is known of it, if that is enough.
    for (capabilities, again) in [(Some("{}"), true), (None, false)] {
        shim.life(async |stdio| {
            assert_eq!(stdio.recall(&session, former(capabilities)).await.unwrap(), Recalled::GoesOn);
            assert!(
                stdio.send(letter(&session, &call(7, "exit", &json!({"status": 1}))), None).await.is_err()
            );
            assert_eq!(pid(&stdio, &session).await.is_ok(), again);
        });
    }
}

#[test]
fn what_is_not_there_is_forgotten() {
    let shim = Shim::start();
    let shared = shim.life(async |stdio| {
        let shared = begin(&stdio, Isolation::Shared).await;
        let ended = begin(&stdio, Isolation::Session).await;
        end(&stdio, &ended).await;
        for (name, session) in [
            ("ended", ended),
            ("never there", HeaderValue::from_static("0123456789abcdef0123456789abcdef")),
            ("no id", HeaderValue::from_static("x")),
        ] {
            let recalled = stdio.recall(&session, former(Some("{}"))).await.unwrap();
            assert_eq!(recalled, Recalled::Forgotten, "{name}");
        }
        assert_eq!(stdio.recall(&shared, former(Some("{}"))).await.unwrap(), Recalled::GoesOn, "it is here");
        shared
    });
    shim.life(async |stdio| {
        let mut former = former(Some("{}"));
        former.opener = opener(Isolation::Shared);
        assert_eq!(stdio.recall(&shared, former).await.unwrap(), Recalled::Forgotten, "others had it too");
    });
}

/// As it is where the server has just refused its handshake.
#[test]
fn who_joins_a_conversation_that_closes_begins_another() {
    Shim::start().life(async |stdio| {
        let limits = limits(Isolation::Principal);
        let client = Client { principal: Some("somebody".into()), limits };
        let group = group_of(Some(&client), &limits, "2025-11-25".to_owned());
        let (channel, (_commands, mut events)) = Channel::new();
        let closing = stdio.open.lock().begin(&stdio, 1, channel, Some(group)).unwrap();
        let close = async {
            let Some(Control::Join(joining)) = events.recv().await else { panic!("nobody joins it") };
            drop(closing);
            joining.caller.end(Err(Failure::Forgotten));
        };
        let (session, ()) = tokio::join!(begin(&stdio, Isolation::Principal), close);
        assert!(pid(&stdio, &session).await.is_ok());
    });
}

/// A client of this principal, which may have one process of two.
fn one_of_two(principal: &str) -> Client {
    let limits = Processes { total: 2, per_principal: 1, ..limits(Isolation::Principal) };
    Client { principal: Some(principal.into()), limits }
}

/// Those who come at the same moment are not both given the same place.
#[test]
fn a_process_gives_way_for_one_session() {
    Shim::start().life(async |stdio| {
        let of = |principal: &str| {
            let Client { principal, limits } = one_of_two(principal);
            Opener::Client { principal: principal.unwrap(), limits: Some(limits), begins: Begins::Anew }
        };
        stdio.places.limit(Some(one_of_two("").limits));
        for principal in ["a", "b"] {
            let session = begin_as(&stdio, of(principal)).await;
            end(&stdio, &session).await;
        }
        assert!(!stdio.places.have_room(), "their processes wait for others");
        let (line, since) = (Bytes::new(), Instant::now());
        let (c, d) = (one_of_two("c"), one_of_two("d"));
        let (c, d) = tokio::join!(stdio.acquire(&c, &line, since), stdio.acquire(&d, &line, since));
        assert!(c.is_ok() && d.is_ok());
    });
}
