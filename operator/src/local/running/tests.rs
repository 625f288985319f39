//! Events of a sidecar that runs no longer.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use longshore_catalog::model::State;
use longshore_crds::McpServer;
use longshore_sidecar::AuditLog;
use longshore_sidecar_config::paths;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::local::manifests::FoundServer;

/// A server that listens at this port, which is taken: nothing is started, and nobody but the test says so.
fn at(taken: &TcpListener, name: &str, tools: &[&str]) -> FoundServer {
    let manifest: McpServer = serde_json::from_value(json!({
        "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
        "metadata": {"namespace": "tools", "name": name},
        "spec": {
            "source": {"image": "x:1", "command": ["/bin/true"]},
            "transport": {"streamableHttp": {"port": taken.local_addr().unwrap().port()}},
            "auth": {"none": {}},
            "access": {"rules": [{"name": "some", "tools": tools}]},
        },
    }))
    .unwrap();
    FoundServer { id: ServerId::of(&manifest), manifest: Box::new(manifest), folder: PathBuf::from("/") }
}

/// The same server with a variable of a Secret that is nowhere: nothing can be started.
fn without_secret(mut found: FoundServer) -> FoundServer {
    let token = json!([{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "token"}}}]);
    found.manifest.spec.source.env = serde_json::from_value(token).unwrap();
    found
}

fn documents(servers: Vec<FoundServer>) -> Documents {
    Documents { servers, ..Documents::default() }
}

async fn running(servers: Vec<FoundServer>) -> Local {
    let options = Options { paths: Vec::new(), port: None, json: true, key: None, audit: AuditLog::Off };
    let (mut local, _indexer) = Local::new(options, Report::Json).unwrap();
    local.start(&documents(servers)).await.unwrap().unwrap();
    local
}

fn known(local: &Local) -> Vec<&str> {
    local.known().map(|id| id.name.as_str()).collect()
}

#[tokio::test]
async fn what_was_said_of_the_process_before_is_not_taken_for_news_of_this_one() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let found = at(&taken, "a", &["*"]);
    let id = found.id.clone();
    let mut local = running(vec![found]).await;

    let this = local.servers[0].run;
    for (run, expected) in [(this - 1, (false, None)), (this, (true, Some("it ended".to_owned())))] {
        local.hear(Event::Started { id: id.clone(), run }).unwrap();
        let message = "it ended".to_owned();
        local.hear(Event::Process { id: id.clone(), run, message, port_taken: false }).unwrap();
        let running = &local.servers[0];
        assert_eq!((running.introduced, running.ended.clone()), expected, "{run} of {this}");
    }
    local.end().await;
}

#[tokio::test]
async fn a_server_whose_sidecar_ends_is_not_up_before_the_next_one_has_begun() {
    let [first, second] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let mut local = running(vec![at(&first, "a", &["*"])]).await;
    let (id, run) = (local.servers[0].plan.id.clone(), local.servers[0].run);
    let connected: Inventory = serde_json::from_value(json!({
        "config": {"digest": "sha256:c", "generation": 1, "error": null},
        "phase": "Serving",
        "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
        "server": null, "tools": [], "hiddenTools": 0, "toolsDigest": "sha256:t",
        "prompts": [], "resources": [], "resourceTemplates": [], "exposed": [],
    }))
    .unwrap();
    local.hear(Event::Inventory { id: id.clone(), run, inventory: Box::new(connected) }).unwrap();
    assert_eq!(local.catalog.state(&id), Some(State::Up));
    local.update(&documents(vec![at(&second, "a", &["*"])])).unwrap();
    assert!(local.turns.waiting(&id).is_some(), "it waits for the end of the one before");
    assert_eq!(local.catalog.state(&id), Some(State::Unknown));
    local.end().await;
}

#[tokio::test]
async fn a_server_that_comes_later_does_not_take_the_port_of_one_that_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut local = running(vec![at(&taken, "b", &["*"])]).await;
    let before = local.servers[0].plan.clone();
    // It is first in the order of the files' names.
    let servers = vec![at(&taken, "a", &["*"]), at(&taken, "b", &["read"])];
    local.update(&documents(servers)).unwrap();
    assert_eq!(known(&local), ["b"]);
    assert_ne!(local.servers[0].plan.files, before.files, "what its manifest says now is taken up");
    local.end().await;
}

#[tokio::test]
async fn a_port_stays_with_a_server_that_goes_on_because_its_change_cannot_be_taken_up() {
    let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [first, second, third] = &ports;
    let invalid = |mut found: FoundServer| {
        found.manifest.spec.access = serde_json::from_value(json!({"rules": [{"name": ""}]})).unwrap();
        found
    };
    let [b, c] = [(first, "b"), (second, "c")].map(|(port, name)| move || at(port, name, &["*"]));
    let b_at = |port| at(port, "b", &["*"]);
    for (why, changed, beside) in [
        ("its new port is another's", b_at(second), c()),
        ("it is invalid", invalid(b()), c()),
        ("nothing could be started at its new port", without_secret(b_at(third)), c()),
        ("its new port stays another's", b_at(second), without_secret(at(third, "c", &["*"]))),
    ] {
        let mut local = running(vec![b(), c()]).await;
        let before = local.servers[0].plan.clone();
        local.update(&documents(vec![at(first, "a", &["*"]), changed, beside])).unwrap();
        assert_eq!((known(&local), &local.servers[0].plan), (vec!["b", "c"], &before), "{why}");
        let corrected = at(first, "b", &["read"]);
        local.update(&documents(vec![at(first, "a", &["*"]), corrected, c()])).unwrap();
        assert_eq!(known(&local), ["b", "c"], "{why}");
        assert_ne!(
            local.servers[0].plan.files, before.files,
            "{why}: what its manifest says now is taken up"
        );
        local.end().await;
    }
}

#[tokio::test]
async fn what_a_server_that_waits_for_its_turn_lacks_in_that_moment_does_not_replace_its_program() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut local = running(vec![at(&taken, "a", &["*"])]).await;
    let before = local.servers[0].plan.clone();
    local.leave(&before.id);
    local.turns.wait(before.clone(), false);
    local.update(&documents(vec![without_secret(at(&taken, "a", &["read"]))])).unwrap();
    let now = local.turns.waiting(&before.id).expect("it waits for the end of the one before");
    assert_eq!(now.program, before.program);
    assert_ne!(now.files, before.files, "what its manifest says now is taken up");
    local.end().await;
}

#[tokio::test]
async fn whoever_takes_a_servers_port_meanwhile_is_not_served_under_its_rules() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut local = running(vec![at(&taken, "a", &["*"])]).await;
    let (id, before) = (local.servers[0].plan.id.clone(), local.servers[0].run);
    // It was started once, and is to be again.
    local.hear(Event::Started { id, run: before }).unwrap();
    let another = async {
        while local.servers.iter().all(|running| running.run == before) {
            let event = local.next().await;
            local.hear(event).unwrap();
        }
    };
    timeout(Duration::from_secs(10), another).await.expect("its sidecar goes on with whoever has the port");
    let now = &local.servers[0];
    assert!(!now.introduced && !now.place.config().join(paths::CONFIG_FILE).exists());
    local.end().await;
}
