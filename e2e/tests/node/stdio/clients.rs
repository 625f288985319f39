//! Clients that others wrote, each against the sidecar and against the program itself.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use longshore_e2e::peers::Peers;
use longshore_e2e::testing::Namespace;
use serde_json::Value;
use tempfile::TempDir;

#[derive(Clone, Copy, Debug)]
pub(super) enum Client {
    /// The TypeScript SDK, in its first or second line.
    TypeScript(u8),
    Python,
}

/// All that can work through a plan.
pub(super) fn everyone() -> [Client; 3] {
    [Client::TypeScript(1), Client::TypeScript(2), Client::Python]
}

pub(super) struct Clients<'a> {
    namespace: &'a Namespace<'a>,
    peers: Peers,
    /// What they start.
    programs: TempDir,
}

impl<'a> Clients<'a> {
    pub(super) fn new(namespace: &'a Namespace<'a>) -> Self {
        let peers = Peers::install().expect("the clients can be installed");
        Self { namespace, peers, programs: TempDir::new().expect("a folder can be made") }
    }

    /// A program that is the server's own, in the server's own container: over stdio it is the server.
    pub(super) fn program(&self, server: &str, command: &[&str]) -> String {
        // Clients start programs with a few variables alone.
        let kubectl = self.namespace.command("kubectl");
        let variables = kubectl.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let exports: String = variables
            .map(|(name, value)| format!("export {}='{}'\n", name.display(), value.display()))
            .collect();
        let words: String = command.iter().map(|word| format!(" '{word}'")).collect();
        let script = format!(
            "#!/bin/sh\n{exports}exec kubectl --namespace {} exec -i deploy/{server} -c server --{words}\n",
            self.namespace.name()
        );
        let path = self.programs.path().join(server);
        fs::write(&path, script).expect("a script can be written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a script can be made executable");
        path.display().to_string()
    }

    /// What the client saw.
    pub(super) fn ask(&self, client: Client, target: &Value, plan: &Value) -> Value {
        let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/clients");
        let mut command = match client {
            Client::Python => {
                let mut command = self.command("python");
                command.arg(format!("{scripts}/stdio.py"));
                command
            }
            Client::TypeScript(line) => {
                // A command on the node starts in the folder of this process, and the SDK is found from where the
                // script runs.
                let mut command = self.namespace.command("sh");
                command.args(["-c", r#"cd "$0" && exec "$@""#]).arg(self.peers.typescript());
                command.arg(self.peers.program("node")).args(["--input-type=module", "-", &line.to_string()]);
                command.stdin(File::open(format!("{scripts}/stdio.mjs")).expect("the script is there"));
                command
            }
        };
        command.args([target.to_string(), plan.to_string()]);
        json(command)
    }

    /// The Inspector does one thing at a time.
    pub(super) fn inspect(&self, server: &str, url: &str, program: &str, plan: &Value) {
        let call = &plan["calls"][0];
        let mut asked = vec![vec!["--method".to_owned(), "tools/list".to_owned()], {
            let mut words = ["--method", "tools/call", "--tool-name"].map(str::to_owned).to_vec();
            words.push(call["name"].as_str().expect("a call has a name").to_owned());
            for (name, value) in call["arguments"].as_object().into_iter().flatten() {
                let value = value.as_str().expect("the first call's arguments are text");
                words.extend(["--tool-arg".to_owned(), format!("{name}={value}")]);
            }
            words
        }];
        if plan["prompt"].is_object() {
            let listed = self.inspector(&[program], &["--method".to_owned(), "resources/list".to_owned()]);
            let uri =
                listed["resources"][0]["uri"].as_str().expect("a server with prompts has resources here");
            asked.push(["--method", "resources/read", "--uri", uri].map(str::to_owned).to_vec());
        }
        for question in asked {
            let through = self.inspector(&[url, "--transport", "http"], &question);
            let directly = self.inspector(&[program], &question);
            assert_eq!(through, directly, "{server} by the Inspector: {question:?}");
        }
    }

    fn inspector(&self, target: &[&str], question: &[String]) -> Value {
        let mut command = self.command("mcp-inspector");
        // Its own limit is short for a program that is started anew on a busy node.
        command.arg("--cli").args(target).args(question).args(["--connect-timeout", "60000"]);
        json(command)
    }

    fn command(&self, program: &str) -> Command {
        self.namespace.command(&self.peers.program(program).to_string_lossy())
    }
}

fn json(mut command: Command) -> Value {
    let output = command.output().expect("the client runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}
