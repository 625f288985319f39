//! Manifests that change while their servers run.

use serde_json::json;

use crate::harness::{Folder, LONGSHORE, Local, Served, eventually, free_port, get, inspector, peer};
use crate::peers::open;

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
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    let served = local.server("go");
    let before = local.running("go-server");
    assert!(tools(&served).contains("\"slow\""));

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
    let url = served.url.clone();
    assert!(std::panic::catch_unwind(|| get(&url, &[])).is_err(), "nobody listens there any more");
}
