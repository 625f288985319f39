//! Which subscriptions a server takes, and what becomes of those that it does not.

use std::time::Duration;

use serde_json::json;

use super::{acknowledge, telling, wanted};
use crate::harness::{Events, Request, Sidecar, config, eventually};
use crate::modern_as_legacy::{able, sidecar};

/// 73: what the server does not take is no success.
#[test]
fn r073_a_subscription_that_the_server_does_not_take_is_an_error() {
    let (server, streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    for (uri, taken) in [
        ("test://refused", false),
        ("test://a", true),
        ("test://refused", false),
        ("test://mute", false),
        ("test://b", true),
    ] {
        let answer = client.ask("resources/subscribe", json!({"uri": uri}));
        assert_eq!(answer.get("result").is_some(), taken, "{uri}: {answer}");
        assert_eq!(answer.get("error").is_some(), !taken, "{uri}: {answer}");
    }
    eventually("it is not asked for any more", || {
        let last = wanted(&streams).last().unwrap()["resourceSubscriptions"].clone();
        last == json!(["test://a", "test://b"])
    });
}

/// One that is never answered fails no other.
#[test]
fn subscriptions_are_asked_for_one_after_the_other() {
    let (server, _) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    let subscribed = ["test://mute", "test://b"].map(|uri| {
        let (mcp, message) = (sidecar.mcp, client.message("resources/subscribe", &json!({"uri": uri})));
        let request = client.request(message);
        std::thread::spawn(move || request.send(mcp).message())
    });
    let [mute, other] = subscribed.map(|answer| answer.join().unwrap());
    assert!(mute["error"].is_object(), "{mute}");
    assert!(other["result"].is_object(), "{other}");
}

/// Nor does one whose client does not wait for so long.
#[test]
fn a_subscription_that_nobody_waits_for_any_more_is_not_asked_for_either() {
    let (server, streams) = telling();
    let mut hasty = config(server.port);
    hasty.limits.request_timeout_ms = 4_000;
    let sidecar = Sidecar::start(&hasty).ready();
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    client.ask("resources/subscribe", json!({"uri": "test://a"}));
    let answer = client.ask("resources/subscribe", json!({"uri": "test://mute"}));
    assert_eq!(answer["error"]["message"], "the MCP server did not answer within 4 seconds", "{answer}");
    let answer = client.ask("resources/subscribe", json!({"uri": "test://b"}));
    assert_eq!(answer["result"], json!({}), "{answer}");
    let last = wanted(&streams).last().unwrap()["resourceSubscriptions"].clone();
    assert_eq!(last, json!(["test://a", "test://b"]));
}

/// Who has waited in vain takes back what it has asked for, and not what was asked for since.
#[test]
fn a_subscription_that_is_refused_late_takes_no_newer_one_back() {
    let (server, streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let _events = Events::open(&client.get(), sidecar.mcp);
    let subscribe = || client.request(client.message("resources/subscribe", &json!({"uri": "test://mute"})));
    let begin = |request: Request| {
        let mcp = sidecar.mcp;
        std::thread::spawn(move || request.send(mcp).message())
    };
    let first = begin(subscribe());
    std::thread::sleep(Duration::from_secs(3));
    let second = begin(subscribe());
    let refused = first.join().unwrap();
    assert!(refused["error"].is_object(), "{refused}");
    // The server may just have been asked anew.
    eventually("the second is answered", || {
        let mut streams = streams.lock().unwrap();
        let (id, wanted, stream) = streams.last_mut().unwrap();
        acknowledge(stream, id, wanted);
        second.is_finished()
    });
    let taken = second.join().unwrap();
    assert_eq!(taken["result"], json!({}), "{taken}");
}

#[test]
fn subscriptions_are_bounded() {
    let (server, _) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let long = client.ask("resources/subscribe", json!({"uri": format!("test://{}", "x".repeat(1_018))}));
    let words = "invalid parameters: a subscription may name a resource by a URI of 1024 bytes at most";
    assert_eq!(long["error"], json!({"code": -32602, "message": words}));
    let whole = client.ask("resources/subscribe", json!({"uri": format!("test://{}", "x".repeat(1_017))}));
    assert_eq!(whole["result"], json!({}), "{whole}");
    for number in 1..64 {
        client.ask("resources/subscribe", json!({"uri": format!("test://{number}")}));
    }
    assert_eq!(client.send("resources/subscribe", json!({"uri": "test://more"})).status, 503);
    client.ask("resources/subscribe", json!({"uri": "test://7"}));
    client.ask("resources/unsubscribe", json!({"uri": "test://7"}));
    client.ask("resources/subscribe", json!({"uri": "test://more"}));
}
