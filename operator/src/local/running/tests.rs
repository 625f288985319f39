//! Events of a sidecar that runs no longer.

use std::net::TcpListener;
use std::path::PathBuf;

use longshore_crds::McpServer;
use longshore_sidecar::AuditLog;
use serde_json::json;

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

async fn running(server: FoundServer) -> Local {
    let documents = Documents { servers: vec![server], ..Documents::default() };
    let options = Options { paths: Vec::new(), port: None, json: true, key: None, audit: AuditLog::Off };
    let (mut local, _indexer) = Local::new(options, Report::Json).unwrap();
    local.start(&documents).await.unwrap().unwrap();
    local
}

#[tokio::test]
async fn what_was_said_of_the_process_before_is_not_taken_for_news_of_this_one() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let found = at(&taken, "a", &["*"]);
    let id = found.id.clone();
    let mut local = running(found).await;

    let this = local.servers[0].run;
    for (run, expected) in [(this - 1, (false, None)), (this, (true, Some("it ended".to_owned())))] {
        local.hear(Event::Started { id: id.clone(), run }).unwrap();
        local.hear(Event::Process { id: id.clone(), run, message: "it ended".to_owned() }).unwrap();
        let running = &local.servers[0];
        assert_eq!((running.introduced, running.ended.clone()), expected, "{run} of {this}");
    }
    local.end().await;
}

#[tokio::test]
async fn a_server_that_comes_later_does_not_take_the_port_of_one_that_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut local = running(at(&taken, "b", &["*"])).await;
    let before = local.servers[0].plan.clone();
    // It is first in the order of the files' names.
    let servers = vec![at(&taken, "a", &["*"]), at(&taken, "b", &["read"])];
    local.update(&Documents { servers, ..Documents::default() }).unwrap();
    let known: Vec<_> = local.known().map(|id| id.name.as_str()).collect();
    assert_eq!(known, ["b"]);
    assert_ne!(local.servers[0].plan.files, before.files, "what its manifest says now is taken up");
    local.end().await;
}
