//! What the sidecar finds out of the revisions that a server speaks.

use std::time::Duration;

use longshore_sidecar_config::inventory::{ConnectionReason, ConnectionState};

use crate::harness::shim::{python, settled, stdio};
use serde_json::{Value, json};

use super::{said, text};
use crate::harness::{Client, Cluster, Files, Shim, Sidecar, eventually, modern, peer, within};

/// A server of these revisions, which answers in this manner what it does not know.
pub(super) fn server(legacy: &str, modern: &str, manner: &str) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stdio/era.py");
    python(&[script, legacy, modern, manner])
}

fn started(command: &[String]) -> (Shim, Sidecar, String) {
    pinned(command, None)
}

fn pinned(command: &[String], protocol: Option<&str>) -> (Shim, Sidecar, String) {
    let cluster = Cluster::new();
    let mut config = stdio();
    config.protocol = protocol.map(str::to_owned);
    cluster.trust(&mut config);
    let files = Files::new();
    files.write(&config);
    let shim = Shim::start(&files, command);
    (shim, Sidecar::with(files, &[]).loaded(), cluster.token(|_| {}))
}

#[test]
fn r065_a_server_is_found_to_speak_what_it_speaks_however_it_takes_the_question() {
    for (command, expected) in [
        (server("2024-11-05", "", "error"), &["2024-11-05"][..]),
        (server("2025-03-26", "", "silence"), &["2025-03-26"]),
        (server("2025-06-18", "", "banner"), &["2025-06-18"]),
        (server("", "2026-07-28", "banner"), &["2026-07-28"]),
        (server("2025-06-18", "", "die"), &["2025-06-18"]),
        (server("2025-11-25,2025-06-18", "2026-07-28", "error"), &["2026-07-28", "2025-11-25", "2025-06-18"]),
        (server("", "2026-07-28", "error"), &["2026-07-28"]),
        // What only it speaks is nothing to anybody here.
        (server("2025-11-25", "2099-01-01", "error"), &["2025-11-25"]),
    ] {
        let (shim, sidecar, token) = started(&command);
        let sidecar = sidecar.ready();
        let [.., legacy, _, _] = &command[..] else { panic!("{command:?}") };
        if legacy.is_empty() {
            // There is nothing that is found out later.
            assert_eq!(sidecar.inventory(&token).tools[0]["name"], "era");
        } else {
            settled(&shim, &sidecar, &stdio());
        }
        let described = sidecar.inventory(&token).server.unwrap();
        assert_eq!(described.protocol_versions, expected, "{command:?}");
        assert!(expected.contains(&&*described.protocol_version));
    }
}

#[test]
fn a_server_that_was_too_slow_to_say_what_it_speaks_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let late = format!("late {}", folder.path().join("asked").display());
    let (shim, sidecar, token) = started(&server("2025-11-25", "2026-07-28", &late));
    let sidecar = sidecar.ready();
    settled(&shim, &sidecar, &stdio());
    let versions = || sidecar.inventory(&token).server.unwrap().protocol_versions;
    assert_eq!(versions(), ["2025-11-25"], "clients are served meanwhile");
    let modern = || modern::request("x", "tools/call", json!({"name": "era"})).send(sidecar.mcp).message();
    assert_eq!(text(&modern()), "legacy", "translated");
    eventually("it is asked again", || versions() == ["2026-07-28", "2025-11-25"]);
    assert_eq!(text(&modern()), "modern");
}

#[test]
fn a_server_that_takes_long_to_start_is_reported_and_waited_for() {
    // Longer than one over HTTP is given for a handshake.
    let slow = ["sh", "-c", "sleep 31; exec \"$@\"", "slow"].map(str::to_owned);
    let (shim, sidecar, token) = started(&[&slow[..], &server("2025-11-25", "", "error")].concat());
    let process = eventually("it is started", || shim.processes().first().copied());
    let slow = eventually("it is reported", || {
        let connection = sidecar.inventory(&token).connection;
        (connection.state == ConnectionState::Failed).then_some(connection)
    });
    assert_eq!(slow.reason, Some(ConnectionReason::InitializeTimeout), "{}", slow.message);
    eventually("it is there", || sidecar.inventory(&token).connection.state == ConnectionState::Connected);
    assert!(shim.processes().contains(&process), "nobody has started it again");
}

#[test]
fn a_server_that_speaks_nothing_known_is_reported_with_what_it_speaks() {
    for command in [server("", "2099-01-01", "error"), server("2020-01-01", "", "error")] {
        let (_shim, sidecar, token) = started(&command);
        let failed = eventually("it is known", || {
            let connection = sidecar.inventory(&token).connection;
            (connection.state == ConnectionState::Failed).then_some(connection)
        });
        assert_eq!(failed.reason, Some(ConnectionReason::UnsupportedRevision), "{}", failed.message);
        let [.., legacy, modern, _] = &command[..] else { panic!("{command:?}") };
        for word in
            ["20-01-01", "99-01-01"].iter().filter(|word| format!("{legacy} {modern}").contains(**word))
        {
            assert!(failed.message.contains(word), "{}", failed.message);
        }
        assert!(
            failed.message.contains("2024-11-05") && failed.message.contains("2026-07-28"),
            "{}",
            failed.message
        );
    }
}

#[test]
fn a_server_of_both_eras_that_others_wrote_is_found_to_be_one() {
    let script = r#"
from mcp.server.mcpserver import MCPServer
server = MCPServer("both")
@server.tool()
def echo(text: str) -> str:
    return text
server.run("stdio")
"#;
    let python = peer::folder().join("bin/python");
    let command = [python.to_str().unwrap(), "-c", script].map(str::to_owned);
    let (_shim, sidecar, token) = started(&command);
    // Beside much else, its start may take longer than the first questions wait.
    let described = within(Duration::from_secs(300), "both are known", || {
        let described = sidecar.inventory(&token).server?;
        (described.protocol_versions.first().map(String::as_str) == Some("2026-07-28")).then_some(described)
    });
    assert_eq!(described.protocol_version, "2025-11-25");
    // Each kind of client is served in its own way, by the server itself.
    let client = Client::open(&sidecar, None);
    assert_eq!(said(&client, "echo", json!({"text": "in a session"})), "in a session");
    let call = json!({"name": "echo", "arguments": {"text": "alone"}});
    let reply = modern::request("x", "tools/call", call).send(sidecar.mcp).message();
    assert_eq!((text(&reply).as_str(), &reply["id"]), ("alone", &json!("x")));
    let info = &reply["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(info, "both", "the server has said so, and not the sidecar: {reply}");
}

#[test]
fn a_server_is_spoken_to_in_the_revision_that_is_said() {
    let both = || server("2025-11-25,2025-06-18", "2026-07-28", "die");
    for (pin, era) in [("2025-06-18", "legacy"), ("2026-07-28", "modern")] {
        let (shim, sidecar, token) = pinned(&both(), Some(pin));
        let sidecar = sidecar.ready();
        let described = sidecar.inventory(&token).server.unwrap();
        assert_eq!(
            (&*described.protocol_version, &described.protocol_versions),
            (pin, &vec![pin.to_owned()])
        );
        eventually("nobody asks for more", || shim.processes().len() == 1);
        // Each kind of client gets to it.
        let client = Client::open(&sidecar, None);
        assert_eq!(said(&client, "era", json!({})), era, "{pin}");
    }
}

#[test]
fn a_server_that_does_not_speak_what_is_said_is_reported_with_both() {
    for (command, pin, speaks) in [
        (server("2025-11-25", "", "error"), "2025-03-26", "2025-11-25"),
        (server("2025-11-25", "", "error"), "2026-07-28", "with a handshake"),
        (server("2025-06-18", "2099-01-01", "error"), "2026-07-28", "2099-01-01, 2025-06-18"),
        (server("", "2026-07-28", "error"), "2025-11-25", "2026-07-28"),
    ] {
        let (_shim, sidecar, token) = pinned(&command, Some(pin));
        let failed = eventually("it is known", || {
            let connection = sidecar.inventory(&token).connection;
            (connection.state == ConnectionState::Failed).then_some(connection)
        });
        assert_eq!(failed.reason, Some(ConnectionReason::UnsupportedRevision), "{}", failed.message);
        assert!(failed.message.contains(pin) && failed.message.contains(speaks), "{}", failed.message);
    }
}

#[test]
fn a_server_may_answer_in_batches_where_its_revision_lets_it() {
    for revision in ["2024-11-05", "2025-03-26"] {
        let (_shim, sidecar, _) = started(&server(revision, "", "batch"));
        let sidecar = sidecar.ready();
        let (one, other) = (Client::open(&sidecar, None), Client::of(&sidecar, None, "2025-06-18"));
        for client in [&one, &other] {
            std::thread::scope(|scope| {
                let calls = ["a", "b"].map(|tool| {
                    let request = client.request(format!(
                        r#"{{"jsonrpc":"2.0","id":"{tool}","method":"tools/call","params":{{"name":"{tool}"}}}}"#
                    ));
                    let to = sidecar.mcp;
                    scope.spawn(move || request.send(to).message())
                });
                for (call, tool) in calls.into_iter().zip(["a", "b"]) {
                    let answer = call.join().unwrap();
                    assert_eq!((&answer["id"], text(&answer)), (&json!(tool), tool.to_owned()), "{revision}");
                }
            });
        }
        for client in [&one, &other] {
            let reply = client.send("tools/call", json!({"name": "many"}));
            let said: Vec<Value> =
                reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            let (answer, lines) = said.split_last().unwrap();
            assert!(answer["result"]["content"].is_array(), "{answer}");
            let steps: Vec<_> = lines.iter().map(|line| line["params"]["data"].as_u64().unwrap()).collect();
            assert_eq!(steps, (0..64).collect::<Vec<_>>(), "nothing of a batch is lost");
        }
        eventually("answers that came twice are nobody's", || {
            sidecar.metric("longshore_dropped_lines_total{kind=\"unasked\"}") == 2.0
        });
    }
}
