//! Events of a sidecar that runs no longer.

use std::net::TcpListener;
use std::path::PathBuf;

use longshore_crds::McpServer;
use longshore_sidecar::AuditLog;
use serde_json::json;

use super::*;
use crate::local::manifests::FoundServer;

#[tokio::test]
async fn what_was_said_of_the_process_before_is_not_taken_for_news_of_this_one() {
    // Since its port is taken, nothing is started, and nobody but this test says so.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let manifest: McpServer = serde_json::from_value(json!({
        "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
        "metadata": {"namespace": "tools", "name": "a"},
        "spec": {
            "source": {"image": "x:1", "command": ["/bin/true"]},
            "transport": {"streamableHttp": {"port": taken.local_addr().unwrap().port()}},
            "auth": {"none": {}},
        },
    }))
    .unwrap();
    let id = ServerId::of(&manifest);
    let found = FoundServer { id: id.clone(), manifest: Box::new(manifest), folder: PathBuf::from("/") };
    let documents = Documents { servers: vec![found], ..Documents::default() };
    let options = Options { paths: Vec::new(), port: None, json: true, key: None, audit: AuditLog::Off };
    let (mut local, _indexer) = Local::new(options, Report::Json).unwrap();
    local.start(&documents).await.unwrap().unwrap();

    let this = local.servers[0].run;
    for (run, expected) in [(this - 1, (false, None)), (this, (true, Some("it ended".to_owned())))] {
        local.hear(Event::Started { id: id.clone(), run }).unwrap();
        local.hear(Event::Process { id: id.clone(), run, message: "it ended".to_owned() }).unwrap();
        let running = &local.servers[0];
        assert_eq!((running.introduced, running.ended.clone()), expected, "{run} of {this}");
    }
    local.end().await;
}
