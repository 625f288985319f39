//! The tour of the protocol's crate, `mcp/examples/translate.rs`, between clients of each revision and this server of each
//! other one.

use std::io::{self, BufRead as _, BufReader, PipeWriter, Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use longshore_mcp::revision::{Era, Revision, Structured};
use longshore_mcp::translate::Pair;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, initialize, request};
use crate::schema;

#[path = "../../../mcp/examples/translate.rs"]
#[expect(dead_code, reason = "a test has no arguments")]
mod translate;

/// Serves a server of this revision to a client, in a proxy that is told that it is of the revision of the pair.
fn serve(
    server: Revision,
    pair: Pair,
    client: impl Read + Send + 'static,
    answers: impl Write,
) -> Result<(), String> {
    let mut server = Command::new(env!("CARGO_BIN_EXE_longshore-example-server"))
        .args(["--revision", server.as_str(), "--transport", "stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let served = translate::serve(pair, &mut server, client, answers);
    server.wait().unwrap();
    served.map_err(|why| why.to_string())
}

/// A client in front of a server of another revision.
struct Client {
    revision: Revision,
    input: PipeWriter,
    messages: Receiver<Value>,
    proxy: JoinHandle<Result<(), String>>,
    asked: u64,
}

/// What comes of a request: what is said before the answer, and that.
type Heard = (Vec<Value>, Value);

impl Client {
    fn of(pair: Pair) -> Self {
        let (requests, input) = io::pipe().unwrap();
        let (output, answers) = io::pipe().unwrap();
        let proxy = thread::spawn(move || serve(pair.server, pair, requests, answers));
        let (told, messages) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                drop(told.send(serde_json::from_str(&line).unwrap()));
            }
        });
        Self { revision: pair.client, input, messages, proxy, asked: 0 }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Heard {
        self.asked += 1;
        if self.revision.era() == Era::Modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.revision.as_str().into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.say(&request(self.asked, method, params));
        self.answered(self.asked)
    }

    fn answered(&self, id: u64) -> Heard {
        let mut told = Vec::new();
        loop {
            let message = self.messages.recv_timeout(PATIENCE).unwrap();
            schema::check_message(self.revision, &message);
            if message["id"] == id {
                return (told, message);
            }
            told.push(message);
        }
    }

    /// The result of what is asked.
    fn result(&mut self, definition: &str, method: &str, params: Value) -> Value {
        let (_, answer) = self.ask(method, params);
        schema::check(self.revision, definition, &answer["result"]);
        answer["result"].clone()
    }

    /// What it hears of the server.
    fn hello(&mut self) -> Value {
        if self.revision.era() == Era::Modern {
            return self.result("DiscoverResult", "server/discover", json!({}));
        }
        self.say(&initialize(self.revision, json!({"roots": {}, "sampling": {}})));
        let (_, answer) = self.answered(0);
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        schema::check(self.revision, "InitializeResult", &answer["result"]);
        answer["result"].clone()
    }

    /// Goes, and waits until the proxy has noticed.
    fn end(self) {
        drop(self.input);
        assert_eq!(self.proxy.join().unwrap(), Ok(()));
    }
}

#[test]
fn each_revision_is_served_to_each_other() {
    for client in Revision::ALL {
        for server in Revision::ALL.into_iter().filter(|server| *server != client) {
            let mut asks = Client::of(Pair { client, server });
            let hello = asks.hello();
            assert_eq!(hello["capabilities"]["tools"], json!({}), "{client} {server}: {hello}");

            let tools = asks.result("ListToolsResult", "tools/list", json!({}));
            assert_eq!(tools["tools"][0]["name"], "echo", "{client} {server}");
            let echo = json!({"name": "echo", "arguments": {"message": "\u{e9}\n"}});
            let said = asks.result("CallToolResult", "tools/call", echo);
            assert_eq!(said["content"][0]["text"], "\u{e9}\n", "{client} {server}");

            let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "t"}});
            let (told, answer) = asks.ask("tools/call", params);
            assert!(answer["result"]["content"].is_array(), "{client} {server}: {answer}");
            let tokens: Vec<_> = told.iter().map(|progress| &progress["params"]["progressToken"]).collect();
            assert_eq!(tokens, ["t"; 3], "{client} {server}");

            let (_, refused) = asks.ask("resources/read", json!({"uri": "test://nothing"}));
            let code = if client.features().resource_not_found { -32002 } else { -32602 };
            assert_eq!(refused["error"]["code"], code, "{client} {server}: {refused}");
            let (_, refused) = asks.ask("example/nothing", json!({}));
            assert_eq!(refused["error"]["code"], -32601, "{client} {server}: {refused}");
            if client.era() == Era::Legacy {
                asks.result("EmptyResult", "ping", json!({}));
            }
            if server.era() == Era::Modern {
                // Clients of two revisions know structured results, and those only as objects.
                let array = json!({"name": "test_structured_array"});
                let result = asks.result("CallToolResult", "tools/call", array);
                let numbers = json!([1, 2, 3]);
                let is_object = client.features().structured == Structured::Object;
                let expected = if is_object { json!({"result": numbers}) } else { numbers };
                assert_eq!(result["structuredContent"], expected, "{client}");
            }
            asks.end();
        }
    }
}

#[test]
fn a_server_of_another_revision_than_was_said_is_not_served() {
    let client = Revision::V2025_06_18;
    for (server, said) in [
        (Revision::V2025_11_25, Revision::V2024_11_05),
        (Revision::V2026_07_28, Revision::V2024_11_05),
        (Revision::V2025_11_25, Revision::V2026_07_28),
    ] {
        let why = serve(server, Pair { client, server: said }, io::empty(), io::sink()).unwrap_err();
        assert_eq!(why, format!("the server does not speak revision {said} of MCP"), "{server}");
    }
}
