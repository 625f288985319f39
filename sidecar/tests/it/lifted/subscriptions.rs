use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{SUBSCRIPTION, call, request, text};
use crate::harness::peer::everything;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Events, Sidecar, config};

fn listen(id: &str, notifications: Value) -> crate::harness::Request {
    request(id, "subscriptions/listen", json!({"notifications": notifications}), &json!({}))
}

/// 73: subscriptions of clients without sessions at a server with sessions: acknowledged, marked, and only what was
/// asked for.
#[test]
fn r073_listening_subscribes_and_hears() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let uri = "demo://resource/dynamic/text/1";
    let mut one = Events::open(&listen("one", json!({"resourceSubscriptions": [uri]})), sidecar.mcp);
    one.patience(Duration::from_secs(20));
    let acknowledged = one.next().unwrap().message();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": [uri]}));
    assert_eq!(acknowledged["params"]["_meta"][SUBSCRIPTION], "one");
    let mut other = Events::open(&listen("other", json!({"toolsListChanged": true})), sidecar.mcp);
    assert_eq!(other.next().unwrap().message()["params"]["notifications"], json!({"toolsListChanged": true}));

    text(&call("toggle-subscriber-updates", json!({}), &json!({})).send(sidecar.mcp));
    let updated = one.next().unwrap().message();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(
        (&updated["params"]["uri"], &updated["params"]["_meta"][SUBSCRIPTION]),
        (&json!(uri), &json!("one"))
    );

    // The end, in order. Who has asked for something else has heard nothing.
    sidecar.signal(Signal::TERM);
    for (mut events, id) in [(one, "one"), (other, "other")] {
        let end = std::iter::from_fn(|| events.next()).last().unwrap().message();
        assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(id), &json!("complete")), "{end}");
        assert_eq!(end["result"]["_meta"][SUBSCRIPTION], id);
    }
}

#[test]
fn a_server_is_subscribed_for_as_long_as_somebody_listens() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let open = |id: &str| {
        let mut events = Events::open(
            &listen(id, json!({"resourceSubscriptions": ["a:b"], "promptsListChanged": true})),
            sidecar.mcp,
        );
        let acknowledged = events.next().unwrap().message();
        // It says nothing of prompts.
        assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["a:b"]}));
        events
    };
    let subscriptions = || {
        let state = text(&call("state", json!({}), &json!({})).send(sidecar.mcp));
        serde_json::from_str::<Value>(&state).unwrap()["subscriptions"].clone()
    };
    let (one, mut two) = (open("1"), open("2"));
    assert_eq!(subscriptions(), json!(["a:b"]), "once for both");
    drop(one);
    let say = json!({"method": "notifications/resources/updated", "params": {"uri": "a:b"}});
    text(&call("say", say, &json!({})).send(sidecar.mcp));
    assert_eq!(two.next().unwrap().message()["params"]["_meta"][SUBSCRIPTION], "2");
    assert_eq!(subscriptions(), json!(["a:b"]));
    drop(two);
    crate::harness::eventually("nobody listens", || (subscriptions() == json!([])).then_some(()));
}
