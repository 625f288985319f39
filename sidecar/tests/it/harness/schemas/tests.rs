//! That what is wrong is found, and only that. Benches use the harness too, and have no tests: what these use is named in
//! each of them.

#[test]
fn what_is_wrong_is_seen_and_who_began_with_it_is_told_apart() {
    use super::*;
    // A port that nothing can listen at, so that no other test has it.
    let port = 0;
    let at = SocketAddr::from(([127, 0, 0, 1], 0));
    let watch = Watch::over(port);
    known().paths.insert(at, port);
    let call = |params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        Request::post(message.to_string()).header("mcp-protocol-version", "2025-11-25")
    };
    let taken = || known().faults.remove(&port).unwrap_or_default();
    let wire = Wire { from: at, to: at };
    client_says(&call(json!({"name": "t"})), wire);
    server_reads(port, &call(json!({"name": "t"})));
    assert_eq!(taken(), Vec::<String>::new());
    server_reads(port, &call(json!({"name": 7})));
    assert!(!taken().is_empty(), "the server got what is not right");
    // Of a stranger it is the one message.
    let asks = json!({"name": "t", "arguments": 7, "_meta": {"x": 1}});
    server_reads(port, &call(asks.clone()));
    assert!(!taken().is_empty());
    stranger_says(&call(asks.clone()), at);
    server_reads(port, &call(asks));
    assert_eq!(taken(), Vec::<String>::new());
    server_reads(port, &call(json!({"name": "t", "arguments": 8})));
    assert!(!taken().is_empty());
    let read = |result: Value| {
        let text = json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string();
        std::panic::catch_unwind(|| client_reads(&call(json!({"name": "t"})), at, &text)).is_ok()
    };
    assert!(read(json!({"content": []})));
    assert!(!read(json!({"content": 7})), "the client got what is not right");
    // From here on it is the server's own fault.
    server_says(r#"{"jsonrpc":"2.0","id":1,"result":{"content":7}}"#);
    assert!(read(json!({"content": 7})));
    // And the other way round.
    client_says(&call(json!({})), wire);
    server_reads(port, &call(json!({})));
    assert_eq!(taken(), Vec::<String>::new());
    drop(watch);
}

#[test]
fn answers_are_found_again_and_judged_whoever_asked() {
    use super::*;
    let port = 2;
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let wire = Wire { from: SocketAddr::from(([127, 0, 0, 1], 3)), to: at };
    known().paths.insert(at, port);
    let request = |id: u64| {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}});
        Request::post(message.to_string()).header("mcp-protocol-version", "2025-11-25")
    };
    let answer = |id: u64| vec![json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}).to_string()];
    let found = |answers: &[String]| asked(wire, answers).map(|found| found.body);
    for id in [1, 2, 3] {
        client_says(&request(id), wire);
    }
    // The first was not read through here.
    assert_eq!(found(&answer(2)), Some(request(2).body));
    assert_eq!((found(&answer(1)), found(&answer(3))), (None, Some(request(3).body)));
    client_says(&request(4), wire);
    assert_eq!(found(&[]), Some(request(4).body), "an answer without a body");
    client_says(&request(5), wire);
    connected(wire);
    assert_eq!(found(&answer(5)), None, "the port was another client's");
    let read = |message: Value| {
        let text = message.to_string();
        std::panic::catch_unwind(|| somebody_reads(at, &text)).is_ok()
    };
    assert!(
        read(json!({"jsonrpc": "2.0", "id": 1, "result": {"content": 7}})),
        "nobody knows what it answers"
    );
    assert!(read(json!({"jsonrpc": "2.0", "error": {"code": -32700, "message": "m"}})));
    assert!(!read(json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "m"}})));
    assert!(!read(json!({"jsonrpc": "2.0", "error": {"code": "x", "message": "m"}})));
    assert!(!read(json!({"id": 1, "result": {}})));
    // A server that nobody watches.
    client_says(&request(6), wire);
    let wrong = json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": 7}});
    server_reads(port, &Request::post(wrong.to_string()).header("mcp-protocol-version", "2025-11-25"));
    assert!(std::panic::catch_unwind(|| sidecar_ended(at)).is_err());
    sidecar_ended(at);
}

#[test]
fn what_a_process_got_is_judged_by_what_was_said_to_it() {
    use super::*;
    let shim = PathBuf::from("/nowhere/at/all");
    let port = 1;
    known().shims.insert(shim.clone(), vec![port]);
    let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"n","version":"1"}}}"#;
    let faults = |lines: &[&str]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        process_heard(&shim, (text + r#"{"half"#).as_bytes(), b"").len()
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let wrong = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#;
    let alone = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    assert_eq!(faults(&[initialize, call]), 0);
    assert!(faults(&[initialize, wrong]) > 0 && faults(&[alone]) > 0);
    assert_eq!(faults(&["nonsense"]), 1);
    assert_eq!(
        faults(&[r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, wrong]),
        0,
        "nobody knows of which revision"
    );
    // What it asked, and what was agreed on, it has kept beside it.
    let heard = |line: &str, asked: &str| {
        process_heard(&shim, format!("{initialize}\n{line}\n").as_bytes(), format!("{asked}\n").as_bytes())
            .len()
    };
    let asks = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
    let asks_more = format!("{asks}\n{}", r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#);
    let answer = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":"q","result":{result}}}"#);
    assert_eq!((heard(&answer(r#"{"roots":[]}"#), asks), heard(&answer("{}"), "")), (0, 0));
    assert!(heard(&answer("{}"), asks) > 0);
    assert_eq!(heard(&answer("{}"), &asks_more), 0, "it answers the ping");
    assert!(heard(&answer(r#"{"roots":7}"#), "") > 0, "it is what it looks like");
    let agrees = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2024-11-05"}}"#;
    let sound = r#"{"role":"user","model":"m","content":{"type":"audio","data":"","mimeType":"audio/wav"}}"#;
    assert!(heard(&answer(sound), "") == 0 && heard(&answer(sound), agrees) > 0);
    known().is_nonsense(port, CLIENT, "tools/call");
    assert_eq!(faults(&[initialize, wrong]), 0, "a client has said it so");
}
