//! How much sessions want to hear of their server's log, where the server does not want to say it.

use longshore_sidecar_config::Isolation;
use serde_json::json;

use super::{config, open, pid, shared, state};

#[test]
fn a_level_that_is_refused_leaves_the_one_before() {
    for isolation in [Isolation::Session, Isolation::Principal] {
        let (_shim, sidecar) = shared(&config(isolation, 2), &["discreet"], &[]);
        let client = open(&sidecar, 0);
        let set = |level: &str| client.ask("logging/setLevel", json!({"level": level}));
        assert_eq!(set("warning")["result"], json!({}));
        assert_eq!(set("debug")["error"]["code"], -32602);
        let params = json!({"level": "warning", "data": "d"});
        let say = json!({"method": "notifications/message", "params": params});
        let reply = client.send("tools/call", json!({"name": "say", "arguments": say}));
        let heard = reply.events().iter().filter(|event| event.contains("notifications/message")).count();
        assert_eq!(heard, 1, "{isolation:?}: {}", reply.text());
        // Another process is told the same.
        let before = pid(&client);
        client.call("kill", json!({}));
        assert_ne!(pid(&client), before);
        assert_eq!(state(&client)["level"], "warning", "{isolation:?}");
        // And what is asked for again is asked for.
        assert_eq!(set("debug")["error"]["code"], -32602, "{isolation:?}");
        assert_eq!(set("info")["result"], json!({}));
        assert_eq!(state(&client)["level"], "info", "{isolation:?}");
    }
}

/// The sidecar says again what the level was, and is refused as well: then nobody is told that it holds.
#[test]
fn a_level_that_is_not_taken_again_is_asked_for_again() {
    let (_shim, sidecar) = shared(&config(Isolation::Principal, 2), &["sulky"], &[]);
    let client = open(&sidecar, 0);
    let set = |level: &str| client.ask("logging/setLevel", json!({"level": level}));
    assert_eq!(set("warning")["result"], json!({}));
    assert_eq!(set("debug")["error"]["code"], -32602);
    assert!(state(&client)["level"].is_null());
    assert_eq!(set("warning")["result"], json!({}));
    assert_eq!(state(&client)["level"], "warning");
}
