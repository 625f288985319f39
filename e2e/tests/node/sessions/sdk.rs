//! Clients on SDKs of others, who call without pause until they are told to stop, and begin anew where a session is
//! gone, as their users' programs do.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Pod;
use longshore_e2e::peers::Peers;
use longshore_e2e::testing::{Namespace, eventually};
use serde::Deserialize;

use super::row::{Row, form};
use super::served::{OPENED, Served, figure};
use super::way::Way;

/// How the SDKs tell of a JSON-RPC error that says that the server failed.
const FAILED: &str = "-32603 ";
/// What the SDKs say of a connection that was refused, so that nothing was sent.
const NOBODY_THERE: [&str; 3] = ["All connection attempts failed", "ECONNREFUSED", "EHOSTUNREACH"];

#[derive(Clone, Copy, Debug)]
pub(super) enum Sdk {
    TypeScript,
    Python,
}

/// A client on each SDK, that call one server.
pub(super) struct Callers(Vec<Caller>);

struct Caller {
    sdk: Sdk,
    child: Child,
    /// How it gets there, where that is not its own choice.
    _way: Option<Way>,
}

/// What a client has seen.
#[derive(Debug, Deserialize)]
pub(super) struct Seen {
    /// Calls that were answered.
    pub(super) calls: u64,
    /// What went wrong with the others, but for sessions that were gone.
    pub(super) errors: Vec<String>,
    /// How often its session was gone, as it was told or with its connection, and it began another.
    pub(super) renewed: u64,
    /// How often of these it was told, by a 404.
    pub(super) told: u64,
    /// Whether its last call was answered, which it made after it was told to stop.
    last: bool,
    /// The id of the session that it had then, if it could end that.
    pub(super) ended: Option<String>,
    #[serde(skip)]
    sdk: Option<Sdk>,
}

impl Callers {
    pub(super) fn start(namespace: &Namespace<'_>, url: &str) -> Self {
        let callers = Sdk::ALL.map(|sdk| Caller::start(namespace, sdk, url, None));
        Self(callers.into())
    }

    /// The same with sessions that all begin at this pod. Later connections lead through the Service.
    pub(super) async fn start_at(served: &Served<'_>, pod: &Pod) -> Self {
        let (first, service) = (served.pod(pod).address, &served.endpoint);
        let before = figure(pod, OPENED).await.expect("it is counted");
        let mut callers = Vec::new();
        for sdk in Sdk::ALL {
            let way = Way::to(&service.path, first, service.address).await;
            let url = way.url.clone();
            callers.push(Caller::start(served.namespace, sdk, &url, Some(way)));
        }
        // They take their time to start.
        let expected = before + callers.len() as u64;
        eventually("they have sessions there", async || match figure(pod, OPENED).await {
            Ok(count) if count >= expected => Ok(()),
            other => Err(format!("{other:?} of {expected}")),
        })
        .await;
        Self(callers)
    }

    /// Tells them to stop, and writes down what they saw.
    pub(super) fn stop(self, row: &Row, what: &str) -> Vec<Seen> {
        let stopped = self.0.into_iter().map(|caller| {
            let seen = caller.stop();
            row.says(format!("{what}: {seen}"));
            assert!(seen.calls > 10 && seen.last, "{what}: {seen}");
            seen
        });
        stopped.collect()
    }

    /// The same where no session may be lost, and no call.
    pub(super) fn stop_with_all(self, row: &Row, what: &str) {
        for seen in self.stop(row, what) {
            assert!(seen.told == 0 && seen.errors.is_empty(), "{what}: {seen}");
        }
    }

    /// The same where no session may be lost, and `errors` calls of each at most. Those count not that found nobody at the
    /// port: a client may try often until the Service leads elsewhere.
    pub(super) fn stop_with_their_sessions(self, row: &Row, what: &str, errors: usize) {
        for seen in self.stop(row, what) {
            let sent =
                seen.errors.iter().filter(|error| !NOBODY_THERE.iter().any(|text| error.contains(text)));
            assert!(seen.told == 0 && sent.count() <= errors, "{what}: {seen}");
        }
    }

    /// The same where a server was away for longer than calls wait for it: whatever came meanwhile was answered, each with an
    /// error that says so.
    pub(super) fn stop_with_answers(self, row: &Row, what: &str) {
        for seen in self.stop(row, what) {
            let answered = seen.errors.iter().all(|error| error.starts_with(FAILED));
            assert!(seen.told == 0 && seen.renewed == 0 && answered, "{what}: {seen}");
        }
    }
}

impl Sdk {
    pub(super) const ALL: [Self; 2] = [Self::TypeScript, Self::Python];

    /// The client of that name on this SDK.
    pub(super) fn client(self, namespace: &Namespace<'_>, name: &str, arguments: &[&str]) -> Command {
        let peers = Peers::install().expect("the clients can be installed");
        let script = format!("{}/tests/node/clients/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut command = match self {
            Self::Python => {
                let mut command = namespace.command(&peers.program("python").to_string_lossy());
                command.arg(format!("{script}.py"));
                command
            }
            Self::TypeScript => {
                // The SDK is found from the folder where the script runs, and standard input is for the end.
                let mut command = namespace.command("sh");
                let run = r#"cd "$0" && node=$1 script=$2 && shift 2 && exec "$node" --input-type=module --eval "$(cat "$script")" "$@""#;
                command.args(["-c", run]).arg(peers.typescript()).arg(peers.program("node"));
                command.arg(format!("{script}.mjs"));
                command
            }
        };
        command.args(arguments);
        command
    }
}

impl fmt::Display for Sdk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TypeScript => "TypeScript SDK 2",
            Self::Python => "Python SDK 2",
        })
    }
}

impl Caller {
    fn start(namespace: &Namespace<'_>, sdk: Sdk, url: &str, way: Option<Way>) -> Self {
        let pause = form("25", "5");
        Self { sdk, child: spawn(sdk.client(namespace, "ceaseless", &[url, pause])), _way: way }
    }

    /// Tells it to stop, and asks what it saw.
    fn stop(mut self) -> Seen {
        // The end of its input tells it; so does this line, where something else still holds the pipe.
        if let Some(mut input) = self.child.stdin.take() {
            let _ = input.write_all(b"stop\n");
        }
        let output = self.child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{:?}: {output:?}", self.sdk);
        let seen: Seen = serde_json::from_slice(&output.stdout).expect("it says what it saw");
        Seen { sdk: Some(self.sdk), ..seen }
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the client starts")
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, errors, renewed, told, last, ended: _, sdk } = self;
        let failed = errors.len();
        sdk.iter().try_for_each(|sdk| write!(f, "{sdk}: "))?;
        write!(f, "{calls} calls answered, {failed} failed, {renewed} sessions gone (404: {told})")?;
        if !last {
            write!(f, ", the last call lost")?;
        }
        let mut counts = BTreeMap::new();
        errors.iter().for_each(|error| *counts.entry(error).or_insert(0) += 1);
        counts.iter().try_for_each(|(error, count)| write!(f, "; {count}x {error}"))
    }
}
