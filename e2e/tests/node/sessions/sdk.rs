//! Clients on SDKs of others, who call without pause until they are told to stop, and begin anew where a session is
//! gone, as their users' programs do.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use longshore_e2e::peers::Peers;
use longshore_e2e::testing::Namespace;
use serde::Deserialize;

use super::row::Row;

/// What the SDKs say of a connection that was refused, so that nothing was sent.
const NOBODY_THERE: [&str; 2] = ["All connection attempts failed", "ECONNREFUSED"];

#[derive(Clone, Copy, Debug)]
enum Sdk {
    TypeScript,
    Python,
}

/// A client on each SDK, that call one server.
pub(super) struct Callers([Caller; 2]);

struct Caller {
    sdk: Sdk,
    child: Child,
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
    #[serde(skip)]
    sdk: Option<Sdk>,
}

impl Callers {
    pub(super) fn start(namespace: &Namespace<'_>, url: &str) -> Self {
        Self([Sdk::TypeScript, Sdk::Python].map(|sdk| Caller::start(namespace, sdk, url)))
    }

    /// Tells them to stop, and writes down what they saw.
    pub(super) fn stop(self, row: &Row, what: &str) -> [Seen; 2] {
        self.0.map(|caller| {
            let seen = caller.stop();
            row.says(format!("{what}: {seen}"));
            assert!(seen.calls > 10, "{what}: {seen}");
            seen
        })
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
}

impl Caller {
    fn start(namespace: &Namespace<'_>, sdk: Sdk, url: &str) -> Self {
        let peers = Peers::install().expect("the clients can be installed");
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/clients");
        let mut command = match sdk {
            Sdk::Python => {
                let mut command = namespace.command(&peers.program("python").to_string_lossy());
                command.arg(format!("{scripts}/ceaseless.py"));
                command
            }
            Sdk::TypeScript => {
                // The SDK is found from the folder where the script runs, and standard input is for the end.
                let mut command = namespace.command("sh");
                command.args(["-c", r#"cd "$0" && exec "$1" --input-type=module --eval "$(cat "$2")" "$3""#]);
                command.arg(peers.typescript()).arg(peers.program("node"));
                command.arg(format!("{scripts}/ceaseless.mjs"));
                command
            }
        };
        command.arg(url);
        Self { sdk, child: spawn(command) }
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
        let Self { calls, errors, renewed, told, sdk } = self;
        let sdk = sdk.map_or("", |sdk| match sdk {
            Sdk::TypeScript => "TypeScript SDK 2",
            Sdk::Python => "Python SDK 2",
        });
        let failed = errors.len();
        write!(f, "{sdk}: {calls} calls answered, {failed} failed, {renewed} sessions gone (404: {told})")?;
        let mut counts = BTreeMap::new();
        errors.iter().for_each(|error| *counts.entry(error).or_insert(0) += 1);
        counts.iter().try_for_each(|(error, count)| write!(f, "; {count}x {error}"))
    }
}
