//! The example for conformance, by the protocol's own suite: it scores as docs/conformance.md says.

#[path = "../../../sidecar/tests/it/conformance/rules.rs"]
mod rules;
#[path = "../../../sidecar/tests/it/conformance/suite.rs"]
#[expect(dead_code, clippy::print_stderr, reason = "the sidecar's tests need more of it")]
mod suite;

use std::path::Path;
use std::sync::Mutex;

use serde_json::json;

use crate::harness::{Folder, Local, free_ports, typescript};

/// The first of the ports that the example names as those of its servers.
const FIRST: u16 = 8380;
/// How many the suite judges at once.
const AT_ONCE: usize = 5;

#[test]
fn the_example_for_conformance_scores_as_the_page_says() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path| std::fs::read_to_string(checkout.join(path)).unwrap();
    // Another run may serve it too.
    let (folder, first) = (Folder::new(), free_ports(16));
    let mut text = read("examples/conformance.yaml");
    for server in 0..10 {
        let port = |first: u16| format!(":{}\"", first + server);
        assert!(text.contains(&port(FIRST)), "{server}");
        text = text.replace(&port(FIRST), &port(first));
    }
    folder.write("conformance.yaml", &text);
    let mut local = Local::json(&["--port", &first.to_string(), folder.path().to_str().unwrap()]);
    let servers = local.announced()["servers"].as_array().unwrap().clone();
    assert_eq!(servers.len(), 10);
    let mut left = Vec::new();
    for server in &servers {
        let name = server["name"].as_str().unwrap();
        let served = local.server(name);
        assert_eq!(served.key, None);
        left.extend(suite::REVISIONS.map(|suite| (suite, name, served.clone())));
    }
    let echo = json!([{"act": "callTool", "params": {"name": "echo", "arguments": {"message": "hi"}}}]);
    let seen = typescript(&left[0].2, &echo);
    assert_eq!(seen[2]["content"][0]["text"], "hi", "{seen:#}");

    let page = read("docs/conformance.md");
    let left = Mutex::new(left);
    let next = || left.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((suite, name, served)) = next() {
                    let (transport, revision) = name.split_once('-').unwrap();
                    let over = match transport {
                        "http" => "HTTP",
                        "sse" => "HTTP+SSE",
                        other => other,
                    };
                    let server = rules::Behind { revision, maker: "Longshore", over };
                    let results = rules::judged(&served.url, suite, server);
                    let passed = results.values().filter(|failures| failures.is_empty()).count();
                    let score = format!("{passed}/{}", results.len());
                    assert_eq!(score, said(&page, suite, server), "{suite} {name}: {results:?}");
                }
            });
        }
    });
}

/// How such a server scores through the sidecar.
fn said<'a>(page: &'a str, suite: &str, server: rules::Behind<'_>) -> &'a str {
    let begin = format!("| {suite} | {} | {} | {} |", server.revision, server.maker, server.over);
    let line = page.lines().find_map(|line| line.strip_prefix(&begin)).expect("a row of the page");
    line.split('|').nth(1).expect("a score").trim()
}
