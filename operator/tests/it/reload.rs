//! Manifests that change while their servers run.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::{Child, Command};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Folder, LONGSHORE, Local, Served, eventually, free_port, gone, inspector, peer, post};
use crate::peers::open;

/// A server that nobody but the test looks after.
struct Server(Child);

impl Server {
    fn start(arguments: &[&str]) -> Self {
        Self(Command::new(peer("go-server")).args(arguments).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tools(of: &Served) -> String {
    inspector(of, &["--method", "tools/list"]).1
}

#[test]
fn changes_are_taken_up_and_nothing_more_than_they_need_is_started_anew() {
    let folder = Folder::new();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let go = [&*peer("go-server"), "-listen", &listen];
    let mut manifest = open("go", &go, json!({"streamableHttp": {"port": port}}));
    folder.write("go.json", &manifest.to_string());
    let mut local = Local::apart(folder.path());
    let served = local.server("go");
    let before = local.running("go-server");
    assert!(tools(&served).contains("\"slow\""));
    assert!(!local.said().contains("ERROR"), "{}", local.said());

    // Rules alone: the sidecar reloads, the server goes on.
    manifest["spec"]["access"]["rules"][0]["tools"] = json!(["echo"]);
    folder.write("go.json", &manifest.to_string());
    eventually("the rule is in force", || (!tools(&served).contains("\"slow\"")).then_some(()));
    assert!(tools(&served).contains("\"echo\""));
    assert_eq!(local.running("go-server"), before, "the server was started anew for a rule");

    // Another command: another process, at the same URL.
    manifest["spec"]["source"]["args"] = json!(["-json"]);
    folder.write("go.json", &manifest.to_string());
    let after = eventually("another process", || {
        Some(local.running("go-server")).filter(|now| !now.is_empty() && *now != before)
    });
    eventually("it answers", || tools(&served).contains("\"echo\"").then_some(()));

    // What is wrong changes nothing, and neither does a file that is empty for a moment.
    folder.write("go.json", "{}");
    local.says("there is no McpServer in");
    folder.write("go.json", "{\"apiVersion\": ");
    local.says("go.json is not JSON");
    manifest["spec"]["access"]["rules"][0]["tools"] = json!(["[echo"]);
    folder.write("go.json", &manifest.to_string());
    local.says("spec.access.rules[0].tools[0]");
    assert_eq!(local.running("go-server"), after);
    assert!(tools(&served).contains("\"echo\""));

    // What cannot be started does not end what runs. Rules reach that, if it can be reached as before.
    manifest["spec"]["access"]["rules"][0]["tools"] = json!(["slow"]);
    manifest["spec"]["transport"]["streamableHttp"]["path"] = json!("/elsewhere");
    manifest["spec"]["source"]["command"][0] = json!("no-such-program");
    folder.write("go.json", &manifest.to_string());
    let said = local.says("\"no-such-program\", which spec.source.command names");
    assert!(said.ends_with("; what was there before goes on"), "{said}");
    manifest["spec"]["access"]["rules"][0]["tools"] = json!(["echo", "add"]);
    manifest["spec"]["transport"]["streamableHttp"]["path"] = json!("/mcp");
    manifest["spec"]["source"]["env"] =
        json!([{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "a"}}}]);
    folder.write("go.json", &manifest.to_string());
    let said = local.says("Secret tools/no-such-secret");
    assert!(said.ends_with("; what was there before goes on"), "{said}");
    let now = eventually("the rule is in force", || Some(tools(&served)).filter(|it| it.contains("\"add\"")));
    assert!(now.contains("\"echo\"") && !now.contains("\"slow\""), "{now}");
    assert_eq!(local.running("go-server"), after);

    // A new file, and one that goes.
    let example =
        open("another", &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}));
    folder.write("another.yaml", &serde_saphyr::to_string(&example).unwrap());
    local.says("tools/another is ready: 4 tools");
    std::fs::remove_file(folder.path().join("go.json")).unwrap();
    local.says("tools/go: its manifest has gone");
    eventually("the process has gone", || local.running("go-server").is_empty().then_some(()));
    let listed = eventually("the catalog follows", || {
        let listed = local.catalog("/v1/servers");
        (listed["items"].as_array().unwrap().len() == 1).then_some(listed)
    });
    assert_eq!(listed["items"][0]["name"], "another");
    let at = served.url.split('/').nth(2).unwrap();
    eventually("nobody listens there any more", || {
        TcpStream::connect(at).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then_some(())
    });
}

#[test]
fn a_file_that_never_stays_as_it_is_does_not_hide_a_change_of_others() {
    let folder = Folder::new();
    let example = |name: &str| {
        open(name, &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}})).to_string()
    };
    folder.write("a.json", &example("a"));
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    local.announced();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // As a server does that keeps what it knows in its working directory.
        scope.spawn(|| {
            let mut length = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                length = length % 100 + 1;
                std::fs::write(folder.path().join("state.json"), format!("\"{}\"", "x".repeat(length)))
                    .unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            folder.write("b.json", &example("b"));
            local.says("tools/b is ready: 4 tools")
        }));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(seen.is_ok(), "{}", local.said());
    });
}

#[test]
fn a_call_without_end_does_not_keep_another_sidecar_from_the_url() {
    let folder = Folder::new();
    let http = |command: &[&str], port: u16| open("go", command, json!({"streamableHttp": {"port": port}}));
    let (before, after) = (free_port(), free_port());
    folder.write("go.json", &http(&["sleep", "1000"], before).to_string());
    let mut local = Local::apart(folder.path());
    eventually("it was started", || (!local.running("sleep").is_empty()).then_some(()));
    // Nobody ends this one, so the call goes on when the program of the manifest has ended.
    let _server = Server::start(&["-listen", &format!("127.0.0.1:{before}")]);
    let served = local.server("go");
    let answer = post(
        &served.url,
        &[],
        &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}}),
        "\"result\"",
    );
    let session = answer.head("mcp-session-id");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "slow", "arguments": {"milliseconds": 1_000_000, "steps": 10_000}, "_meta": {"progressToken": 1}}});
    let _under_way = post(&served.url, &[("mcp-session-id", &session)], &call, "notifications/progress");

    let listen = format!("127.0.0.1:{after}");
    folder.write("go.json", &http(&[&peer("go-server"), "-listen", &listen], after).to_string());
    eventually("the other server", || (!local.running("go-server").is_empty()).then_some(()));
    let listed = eventually("it is there", || {
        let server = local.catalog("/v1/servers")["items"][0].clone();
        (server["health"]["state"] == "Up").then_some(server)
    });
    assert_eq!(listed["url"], served.url, "{}", local.said());
    assert!(tools(&served).contains("\"echo\""));
}

#[test]
fn while_a_server_takes_its_time_to_end_the_catalog_answers_and_all_of_it_can_be_ended() {
    let folder = Folder::new();
    let stubborn = open(
        "stubborn",
        &["sh", "-c", "trap '' TERM; while :; do sleep 1; done"],
        json!({"streamableHttp": {"port": free_port()}}),
    );
    let example =
        open("example", &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}));
    folder.write("example.json", &example.to_string());
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    local.announced();
    let path = folder.write("stubborn.json", &stubborn.to_string());
    eventually("it runs", || (!local.running("trap").is_empty()).then_some(()));
    let family = local.descendants();
    std::fs::remove_file(path).unwrap();
    local.says("tools/stubborn: its manifest has gone");
    assert_eq!(local.catalog("/v1/servers")["items"].as_array().unwrap().len(), 1);
    assert!(!local.running("trap").is_empty(), "the catalog waited for the server's end");
    local.signal(Signal::INT);
    assert_eq!(local.code(), Some(0), "{}", local.said());
    gone(&family);
    assert_eq!(local.files(), Vec::<std::path::PathBuf>::new());
}
