//! The most rules that a server may have.

use longshore_sidecar_config::{AccessRule, Config};
use serde_json::json;

use crate::harness::config::keys;
use crate::harness::{Client, Scripted, Sidecar, config, scripted};

/// What they may take of the 256 MiB that a sidecar has by default, with those that are in force until then.
const MEMORY: u64 = 24 << 20;
const LONG: &str = "abcdefabcdefabcdefabcdefabcdefabcdefabcdefabcdef";

/// As many globs as there may be.
fn largest(port: u16, letter: char, filling: &str) -> Config {
    let rule = |number: u8| {
        let globs = |kind: char, count: u8| {
            let glob = |at: u8| format!("{letter}{kind}{number}*{at}_?{filling}*x");
            (0..count).map(glob).collect::<Vec<_>>()
        };
        let principals = globs('u', 63).into_iter().chain(["t?am-*".to_owned()]).collect();
        AccessRule {
            name: format!("rule-{number}"),
            principals: Some(principals),
            tools: globs('t', 64),
            prompts: globs('p', 64),
            resources: globs('r', 32),
        }
    };
    let mut config = config(port);
    config.access = (0..64).map(rule).collect();
    config
}

#[test]
fn as_many_rules_as_there_may_be_fit() {
    let server = Scripted::start(|request, stream| {
        let result = match scripted::method_of(request).as_str() {
            "tools/list" => {
                let tool = |number| json!({"name": format!("bt63{number}63_z{LONG}x"), "inputSchema": {"type": "object"}});
                json!({"tools": (0..50).map(tool).collect::<Vec<_>>()})
            }
            _ => json!({"content": []}),
        };
        scripted::reply(stream, request, &result);
    });
    let callers: Vec<_> = (0..4).map(|number| (format!("team-{number}"), format!("key-{number}"))).collect();
    let callers =
        callers.iter().map(|(principal, key)| (principal.as_str(), key.as_str())).collect::<Vec<_>>();
    // Short ones, and as long as a Secret takes them.
    let few = Sidecar::start(&config(server.port)).ready();
    for filling in ["", LONG] {
        let sidecar = Sidecar::keyed(&largest(server.port, 'a', filling), &keys(&callers)).ready();
        let next = largest(server.port, 'b', filling);
        sidecar.runs(&sidecar.files.write_with_keys(&next, &keys(&callers)));
        for (_, key) in &callers {
            let client = Client::open(&sidecar, Some(key));
            assert_eq!(client.names("tools/list", "tools", "name").len(), 50);
            for (method, name) in [("prompts/get", "name"), ("resources/read", "uri")] {
                assert!(client.send(method, json!({name: "bp63zx"})).message()["error"].is_object());
            }
        }
        let more = sidecar.peak().saturating_sub(few.peak());
        assert!(more < MEMORY, "{more} bytes");
    }
}
