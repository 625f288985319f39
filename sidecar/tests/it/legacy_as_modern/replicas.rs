//! Calls that wait for their clients, by way of any replica.

use rustix::process::Signal;
use serde_json::json;

use super::{again, asked, call, is_error, text};
use crate::harness::peer::everything;
use crate::harness::replicas::{Network, knows};
use crate::harness::{config, eventually};

/// 71, 44: the client's next request goes to the replica that holds the call, wherever it comes.
#[test]
fn r071_a_call_that_waits_is_found_from_every_replica() {
    let servers = [everything(), everything()];
    let network = Network::new();
    let mut replicas = network.in_front_of(&config(0), &servers);
    let can = json!({"elicitation": {}});
    let tool = "trigger-elicitation-request";
    let begin = || {
        let reply = call(tool, json!({}), &can).key("key-a").send(replicas[0].mcp);
        let (questions, state) = asked(&reply);
        let responses = json!({questions[0].0.clone(): {"action": "accept", "content": {"name": "Ada"}}});
        again(tool, json!({}), &can, &state, responses)
    };
    let reply = begin().key("key-a").send(replicas[1].mcp);
    text(&reply);
    assert_eq!(replicas[1].metric("longshore_forwarded_requests_total{result=\"answered\"}"), 1.0);
    // Still nobody else's.
    let retry = begin();
    is_error(&retry.clone().key("key-b").send(replicas[1].mcp), 200, -32602);
    // One that nobody hears may go on with it: it is not to be made again.
    replicas[0].signal(Signal::STOP);
    knows(&replicas[1], 0);
    let reply = retry.clone().key("key-a").send(replicas[1].mcp);
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{}", reply.text());
    replicas[0].signal(Signal::CONT);
    knows(&replicas[1], 1);
    text(&retry.clone().key("key-a").send(replicas[1].mcp));
    let retry = begin();
    // The replica is lost, and the call with it.
    drop(replicas.remove(0));
    let lost = eventually("the loss is noticed", || {
        let reply = retry.clone().key("key-a").send(replicas[0].mcp);
        (reply.message()["error"]["code"] == -32602).then_some(reply)
    });
    assert!(is_error(&lost, 200, -32602).contains("was lost"));
}

/// The holder of a call goes on serving; its client's requests come to a replica that does not.
#[test]
fn a_call_that_waits_is_found_from_a_replica_that_ends() {
    let servers = [everything(), everything(), everything()];
    let network = Network::ending_slowly();
    let replicas = network.in_front_of(&config(0), &servers);
    let can = json!({"elicitation": {}});
    let tool = "trigger-elicitation-request";
    let hook = replicas[0].hook();
    replicas[0].signal(Signal::TERM);
    replicas[0].log(|line| line["message"] == "draining");
    // Whoever takes what stands alone elsewhere takes each to another one.
    for _ in 0..2 {
        let (questions, state) = asked(&call(tool, json!({}), &can).key("key-a").send(replicas[2].mcp));
        let responses = json!({questions[0].0.clone(): {"action": "accept", "content": {"name": "Ada"}}});
        text(&again(tool, json!({}), &can, &state, responses).key("key-a").send(replicas[0].mcp));
    }
    drop(hook);
}
