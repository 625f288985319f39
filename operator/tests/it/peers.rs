//! Servers that others wrote, by their manifests.

use serde_json::{Value, json};

use crate::harness::{Folder, Local, compare, eventually, free_port, peer, post, python, typescript};

/// A manifest that permits everything to everybody.
pub(crate) fn open(name: &str, command: &[&str], transport: Value) -> Value {
    json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": name, "namespace": "tools"},
        "spec": {
            "source": {"image": format!("registry.example/{name}:1"), "command": command},
            "transport": transport,
            "auth": {"none": {}},
            "access": {"rules": [{"name": "all", "tools": ["*"], "prompts": ["*"], "resources": ["*"]}]},
        },
    })
}

#[test]
fn servers_of_others_are_the_same_through_local_as_directly() {
    let folder = Folder::new();
    let text = folder.write("text.txt", "some text\n");
    let git = folder.path().join("repository");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        // Nothing of whoever runs this, who may sign what they commit, or be git itself with a repository in hand.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder.path());
        command.env("GIT_CONFIG_NOSYSTEM", "1").arg("-C").arg(folder.path()).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["init", "--quiet", "repository"]);
    let who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    run(&[&["-C", "repository"][..], &who, &["commit", "--quiet", "--allow-empty", "-m", "the first"]]
        .concat());
    let (root, git) = (folder.path().to_str().unwrap(), git.to_str().unwrap());
    let (everything, filesystem, time, git_server) = (
        [&*peer("mcp-server-everything"), "stdio"],
        [&*peer("mcp-server-filesystem"), root],
        [&*peer("mcp-server-time"), "--local-timezone", "Europe/Berlin"],
        [&*peer("mcp-server-git"), "--repository", git],
    );
    let port = free_port();
    let (listen, go) = (format!("127.0.0.1:{port}"), peer("go-server"));
    let stdio = json!({"stdio": {}});
    let manifests = [
        open("everything", &everything, stdio.clone()),
        open("filesystem", &filesystem, stdio.clone()),
        open("time", &time, stdio.clone()),
        open("git", &git_server, stdio.clone()),
        open("go", &[&go, "-stdio"], stdio),
        open("go-http", &[&go, "-listen", &listen], json!({"streamableHttp": {"port": port}})),
    ];
    for manifest in &manifests {
        folder.write(
            &format!("{}.json", manifest["metadata"]["name"].as_str().unwrap()),
            &manifest.to_string(),
        );
    }
    let mut local = Local::json(&[root]);
    assert_eq!(local.announced()["servers"].as_array().unwrap().len(), manifests.len());

    let call = |name: &str, arguments: Value| json!({"act": "callTool", "params": {"name": name, "arguments": arguments}});
    let steps = json!([
        {"act": "listTools"}, {"act": "listResources"}, {"act": "listPrompts"},
        call("echo", json!({"message": "hi"})),
        {"act": "callTool", "watch": true, "params": {
            "name": "trigger-long-running-operation", "arguments": {"duration": 2, "steps": 4}}},
        {"act": "callTool", "cancel": true, "params": {
            "name": "trigger-long-running-operation", "arguments": {"duration": 40, "steps": 100}}},
        call("get-structured-content", json!({"location": "New York"})),
        {"act": "getPrompt", "params": {"name": "simple-prompt"}},
    ]);
    let seen = compare(&local.server("everything"), &everything, &steps);
    assert!(seen[2]["tools"].as_array().unwrap().len() > 5);
    assert_eq!((&seen[6]["progress"], &seen[7]["failed"]), (&json!([[1, 4], [2, 4], [3, 4]]), &json!(1)));

    let steps = json!([{"act": "listTools"}, call("read_text_file", json!({"path": text})), call("read_text_file", json!({"path": "/etc/passwd"}))]);
    let seen = compare(&local.server("filesystem"), &filesystem, &steps);
    assert_eq!(seen[3]["content"][0]["text"], "some text\n");

    let convert =
        json!({"source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let seen =
        compare(&local.server("time"), &time, &json!([{"act": "listTools"}, call("convert_time", convert)]));
    assert!(seen[3]["content"][0]["text"].as_str().unwrap().contains("Asia/Tokyo"), "{seen:#}");

    let steps = json!([{"act": "listTools"}, call("git_log", json!({"repo_path": git}))]);
    let seen = compare(&local.server("git"), &git_server, &steps);
    assert!(seen.to_string().contains("the first"), "{seen:#}");

    let slow = json!({"milliseconds": 1500, "steps": 3});
    let steps = json!([{"act": "listTools"}, {"act": "callTool", "watch": true, "params": {"name": "slow", "arguments": slow}}]);
    let seen = compare(&local.server("go"), &[&go, "-stdio"], &steps);
    assert_eq!(typescript(&local.server("go-http"), &steps), seen);
    let seen = python(&local.server("go-http"), "slow", &slow);
    assert_eq!(seen["progress"].as_array().unwrap().len(), 3, "{seen}");

    let found = local.catalog("/v1/tools?q=convert%20time");
    assert_eq!(found["items"][0]["server"]["name"], "time", "{found:#}");
    let servers = local.catalog("/v1/servers");
    assert!(
        servers["items"].as_array().unwrap().iter().all(|server| server["health"]["state"] == "Up"),
        "{servers:#}"
    );
}

#[test]
fn the_example_for_ones_own_machine_runs() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    // What npx would download is among the peers.
    let npx = folder
        .write("npx", &format!("#!/bin/sh\nshift 2\nexec '{}' \"$@\"\n", peer("mcp-server-filesystem")));
    std::fs::set_permissions(npx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/local");
    let mut local = Local::with_path(&path, &["--json", examples]);
    let served = local.server("filesystem");
    let list = json!({"act": "callTool", "params": {"name": "list_directory", "arguments": {"path": "."}}});
    let write = json!({"act": "callTool", "params": {"name": "write_file", "arguments": {"path": "x", "content": "y"}}});
    let seen = typescript(&served, &json!([list, write]));
    assert!(seen[2].to_string().contains("filesystem.yaml"), "{seen:#}");
    assert!(seen[3]["failed"].as_str().unwrap().contains("write_file"), "no rule permits it: {seen:#}");
    // Whoever tries it has several programs, and there is one key.
    let authorization = format!("Bearer {}", served.key.as_deref().unwrap());
    let clients = [(); 4]
        .map(|()| post(&served.url, &[("authorization", &authorization)], &initialize(), "\"result\""));
    drop(clients);
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
}

/// What the sidecar runs for itself takes nothing of what clients may have, and neither does what is asked beside it.
#[test]
fn clients_have_as_many_processes_as_the_manifest_says() {
    // It does not know the question that is put to another process of it, and says nothing.
    let script = "import json, sys\n\
                  for line in sys.stdin:\n    \
                      said = json.loads(line)\n    \
                      if said.get('method') == 'initialize':\n        \
                          info = {'name': 'silent', 'version': '1'}\n        \
                          result = {'protocolVersion': '2025-06-18', 'capabilities': {}, 'serverInfo': info}\n        \
                          print(json.dumps({'jsonrpc': '2.0', 'id': said['id'], 'result': result}), flush=True)";
    let folder = Folder::new();
    let stdio = json!({"stdio": {"maxProcesses": 1}});
    let manifest = open("silent", &["python3", "-c", script, "one-that-is-silent"], stdio);
    folder.write("silent.json", &manifest.to_string());
    let mut local = Local::json(&[folder.path().to_str().unwrap()]);
    let served = local.server("silent");
    eventually("it is asked what else it speaks", || {
        (local.running("one-that-is-silent").len() == 2).then_some(())
    });
    post(&served.url, &[], &initialize(), "\"result\"");
}
