//! The built-in example, by clients that others wrote.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{LONGSHORE, Local, compare, free_port, get, inspector, python, typescript};

/// Everything that the example can do, and what it does not let be done.
fn steps() -> Value {
    json!([
        {"act": "listTools"},
        {"act": "listResources"},
        {"act": "listResourceTemplates"},
        {"act": "listPrompts"},
        {"act": "callTool", "params": {"name": "echo", "arguments": {"message": "hi"}}},
        {"act": "callTool", "params": {"name": "add", "arguments": {"a": 1, "b": 2.5}}},
        {"act": "callTool", "params": {"name": "add", "arguments": {"a": 1}}},
        {"act": "callTool", "params": {"name": "countdown", "arguments": {"seconds": 0.7}}, "watch": true},
        {"act": "callTool", "params": {"name": "countdown", "arguments": {"seconds": 3000}}, "cancel": true},
        {"act": "callTool", "params": {"name": "countdown", "arguments": {"seconds": -1}}},
        {"act": "callTool", "params": {"name": "nothing"}},
        {"act": "callTool", "params": {"name": "echo", "arguments": {"message": "still here"}}},
        {"act": "readResource", "params": {"uri": "example://welcome"}},
        {"act": "readResource", "params": {"uri": "example://greeting/Ada"}},
        {"act": "readResource", "params": {"uri": "example://nothing"}},
        {"act": "getPrompt", "params": {"name": "greet", "arguments": {"name": "Ada"}}},
        {"act": "getPrompt", "params": {"name": "greet"}},
    ])
}

#[test]
fn the_example_is_the_same_through_local_as_directly() {
    let mut local = Local::json(&[]);
    let example = local.server("example");
    let seen = compare(&example, &[LONGSHORE, "example-server", "--transport", "stdio"], &steps());
    let names: Vec<_> = seen[2]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["echo", "add", "countdown", "now"]);
    assert_eq!(seen[7]["structuredContent"]["sum"], 3.5, "{seen:#}");
    assert_eq!(seen[9]["progress"], json!([[0.25, 0.7], [0.5, 0.7]]), "{seen:#}");
    assert_eq!(seen[10], json!({"failed": 1}), "the call was given up at its first news");

    let seen = python(&example, "countdown", &json!({"seconds": 0.45}));
    assert_eq!(seen["progress"], json!([[0.25, 0.45]]), "{seen}");
    let (worked, text) = inspector(&example, &["--method", "tools/call", "--tool-name", "now"]);
    assert!(worked && text.contains("\"isError\": false"), "{text}");
    let nobody = crate::harness::Served { key: None, ..example };
    let (worked, text) = inspector(&nobody, &["--method", "tools/list"]);
    assert!(!worked, "without the key: {text}");

    let found = local.catalog("/v1/tools?q=takes%20seconds%20cancelled");
    assert_eq!(found["items"][0]["name"], "countdown", "{found:#}");
    let base = local.announced()["catalog"].as_str().unwrap().to_owned();
    let (status, said) = get(&format!("{base}/v1/tools"), &[("host", "rebound.example")]);
    assert_eq!(status, 403, "a web page whose name points here");
    assert!(said.contains("ask for localhost"), "{said}");
}

#[test]
fn the_log_says_of_which_server_it_is() {
    let local = Local::json(&["--log-level", "info"]);
    local.says("sidecar{server=default/example}: longshore_sidecar::monitor: the MCP server is connected");
}

#[test]
fn the_example_server_speaks_http_too() {
    let port = free_port();
    let server = Command::new(LONGSHORE)
        .args(["example-server", "--transport", "http", "--port", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    crate::harness::eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let direct = crate::harness::Served { url: format!("http://127.0.0.1:{port}/mcp"), key: None };
    let seen = typescript(&direct, &steps());
    assert_eq!(seen[6]["content"][0]["text"], "hi", "{seen:#}");
    assert_eq!(seen[10], json!({"failed": 1}), "{seen:#}");
    assert_eq!(seen[13]["content"][0]["text"], "still here", "{seen:#}");
    let taken = Command::new(LONGSHORE)
        .args(["example-server", "--transport", "http", "--port", &port.to_string()])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(!taken.status.success() && errors.contains("choose another with --port"), "{errors}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM)
        .unwrap();
    let output = server.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.is_empty(), "standard output is the protocol's");
}

#[test]
fn the_example_server_speaks_one_revision_if_it_is_to() {
    let run = |arguments: &[&str], input: &str| {
        let mut command = Command::new(LONGSHORE);
        command.arg("example-server").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        std::io::Write::write_all(&mut server.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = server.wait_with_output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let (said, _) = run(&["--revision", revision, "--transport", "stdio"], &format!("{hello}\n"));
        let answer: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(answer["result"]["protocolVersion"], revision);
    }
    let (said, _) = run(&["--revision", "2026-07-28", "--transport", "stdio"], &format!("{hello}\n"));
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["error"]["data"]["supported"], json!(["2026-07-28"]));
    for (arguments, expected) in [
        (&["--revision", "2024-11-05", "--transport", "http"][..], "choose --transport sse or stdio"),
        (&["--revision", "2025-11-25", "--transport", "sse"], "choose --transport http or stdio"),
        (&["--transport", "sse"], "--transport sse is for --revision 2024-11-05"),
        (&["--revision", "2027-01-01", "--transport", "http"], "2026-07-28"),
        (&["--page", "5", "--transport", "stdio"], "--revision"),
    ] {
        let (_, errors) = run(arguments, "");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}
