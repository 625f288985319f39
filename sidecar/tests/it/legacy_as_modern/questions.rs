//! What a server asks in a call is asked of its client in a result.

use longshore_sidecar_config::Processes;
use serde_json::{Value, json};

use super::{again, asked, call, is_error, request, text};
use crate::harness::config::{keys, processes};
use crate::harness::http::connect;
use crate::harness::own::example_server;
use crate::harness::peer::everything;
use crate::harness::shim::{server, serving, serving_keyed, stdio};
use crate::harness::{Client, Events, Sidecar, config, eventually};

fn can() -> Value {
    json!({"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
}

/// The same but for roots, which many a server asks for on its own account, in the midst of whatever it is asked.
fn can_without_roots() -> Value {
    json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}})
}

fn answer_to(question: &Value) -> Value {
    match question["method"].as_str().unwrap() {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => {
            json!({"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///home", "name": "home"}]}),
        other => panic!("{other}"),
    }
}

fn answers(questions: &[(String, Value)]) -> Value {
    questions.iter().map(|(key, question)| (key.clone(), answer_to(question))).collect::<Value>()
}

/// 71: what a server of the old way asks in a call is a result, and its call goes on when the client asks again.
#[test]
fn r071_what_a_server_asks_is_asked_in_a_result() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    for (tool, arguments, method, said) in [
        ("trigger-sampling-request", json!({"prompt": "p"}), "sampling/createMessage", "Paris"),
        ("trigger-elicitation-request", json!({}), "elicitation/create", "Ada"),
        (
            "trigger-url-elicitation",
            json!({"url": "https://example.com/a", "message": "m"}),
            "elicitation/create",
            "accept",
        ),
        ("get-roots-list", json!({}), "roots/list", "file:///home"),
    ] {
        let can = if method == "roots/list" { can() } else { can_without_roots() };
        let reply = call(tool, arguments.clone(), &can).send(sidecar.mcp);
        let (questions, state) = asked(&reply);
        // For roots it asks twice, if it was greeted just now and is slow.
        assert!(questions.len() == 1 || method == "roots/list", "{tool}: {questions:?}");
        for (_, question) in &questions {
            assert_eq!(question["method"], method);
            // It is a part of a result, no message, and has no name of its own.
            assert!(question.get("id").is_none() && question.get("jsonrpc").is_none(), "{question}");
            assert!(question["params"].get("elicitationId").is_none(), "{question}");
        }
        let mut reply = again(tool, arguments.clone(), &can, &state, answers(&questions)).send(sidecar.mcp);
        while reply.message()["result"]["resultType"] == "input_required" {
            // It asks for roots once more, when it has been greeted a while ago.
            let (more, state) = asked(&reply);
            assert!(more.iter().all(|(_, question)| question["method"] == "roots/list"), "{more:?}");
            reply = again(tool, arguments.clone(), &can, &state, answers(&more)).send(sidecar.mcp);
        }
        assert_eq!(reply.message()["id"], 2);
        let whole = reply.message()["result"]["content"].to_string();
        assert!(text(&reply).contains(said) || whole.contains(said), "{tool}: {whole}");
    }
}

/// 38, 71: an error that names URLs is a question too; the call is made again when the user has been there.
#[test]
fn r038_a_url_that_has_to_be_visited_first_is_asked_for() {
    let server = everything();
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let tool = "trigger-url-elicitation";
    let arguments = json!({"url": "https://example.com/b", "message": "m", "errorPath": true});
    for action in ["accept", "decline"] {
        let (questions, state) =
            asked(&call(tool, arguments.clone(), &can_without_roots()).send(sidecar.mcp));
        assert_eq!(questions[0].1["params"]["mode"], "url");
        let responses = json!({questions[0].0.clone(): {"action": action}});
        let reply = again(tool, arguments.clone(), &can_without_roots(), &state, responses).send(sidecar.mcp);
        if action == "decline" {
            is_error(&reply, 200, -32602);
            continue;
        }
        // The server goes on where it stopped, and asks for the visit that the call is about.
        let (questions, state) = asked(&reply);
        assert_eq!(questions[0].1["params"]["url"], "https://example.com/b");
        let reply = again(tool, arguments.clone(), &can_without_roots(), &state, answers(&questions))
            .send(sidecar.mcp);
        text(&reply);
    }
}

/// 43: questions that come together are asked together, as often as the server wants; what is left out is asked again.
#[test]
fn r043_questions_that_come_together_are_asked_together() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let sampling = json!({"messages": [], "maxTokens": 5});
    let arguments = json!({
        "rounds": 2,
        "questions": [["elicitation/create", form], ["sampling/createMessage", sampling], ["roots/list", {}]],
    });
    let (questions, state) = asked(&call("ask-all", arguments.clone(), &can()).send(sidecar.mcp));
    assert_eq!(questions.len(), 3, "{questions:?}");
    // The first round, in two steps: what is left out is asked again, and what nobody asked does not matter.
    let mut some = answers(&questions[..1]);
    some["nobody-asked"] = json!({"action": "accept"});
    let (left, next) = asked(&again("ask-all", arguments.clone(), &can(), &state, some).send(sidecar.mcp));
    assert_eq!(
        left.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        questions[1..].iter().map(|(key, _)| key).collect::<Vec<_>>()
    );
    assert_ne!(state, next);
    // An answer that is none is refused, and another one may follow.
    let wrong = json!({left[0].0.clone(): {"no": "answer"}});
    is_error(&again("ask-all", arguments.clone(), &can(), &next, wrong).send(sidecar.mcp), 200, -32602);
    let (second, last) =
        asked(&again("ask-all", arguments.clone(), &can(), &next, answers(&left)).send(sidecar.mcp));
    assert_eq!(second.len(), 3);
    assert!(second.iter().all(|(key, _)| questions.iter().all(|(other, _)| other != key)), "{second:?}");
    let reply = again("ask-all", arguments, &can(), &last, answers(&second)).send(sidecar.mcp);
    let got: Value = serde_json::from_str(&text(&reply)).unwrap();
    assert_eq!(got[0]["content"]["name"], "Ada");
    assert_eq!(got[2]["roots"][0]["uri"], "file:///home");
}

/// 43: nor is anybody asked again for what the request that comes back does not declare any more.
#[test]
fn r043_what_is_asked_again_is_what_the_client_can_do_now() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let sampling = json!({"messages": [], "maxTokens": 5});
    let arguments = json!({"questions": [["sampling/createMessage", &sampling], ["roots/list", {}]]});
    let (questions, state) = asked(&call("ask-all", arguments.clone(), &can()).send(sidecar.mcp));
    assert_eq!(questions.len(), 2, "{questions:?}");
    let only_roots = json!({"roots": {}});
    let (left, next) =
        asked(&again("ask-all", arguments.clone(), &only_roots, &state, json!({})).send(sidecar.mcp));
    assert!(matches!(&left[..], [(_, left)] if left["method"] == "roots/list"), "{left:?}");
    let got = text(&again("ask-all", arguments, &only_roots, &next, answers(&left)).send(sidecar.mcp));
    let got: Value = serde_json::from_str(&got).unwrap();
    assert_eq!((&got[0]["code"], &got[1]["roots"][0]["name"]), (&json!(-32601), &json!("home")), "{got}");
    // What a call comes to nothing for that is lacking only now is said as if it had been so from the start.
    let need = json!({"method": "sampling/createMessage", "params": sampling});
    let (_, state) = asked(&call("need", need.clone(), &can()).send(sidecar.mcp));
    let reply = again("need", need, &only_roots, &state, json!({})).send(sidecar.mcp);
    is_error(&reply, 400, -32021);
    assert_eq!(reply.message()["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
}

/// What a model wants that may use tools, and what it says when it has what it wanted.
fn uses() -> [Value; 2] {
    let used = |id: &str, city: &str| json!({"type": "tool_use", "id": id, "name": "weather", "input": {"city": city}});
    let message = |content: Value| json!({"role": "assistant", "model": "m", "content": content});
    [
        message(json!([used("1", "Paris"), used("2", "Rome")])),
        message(json!({"type": "text", "text": "Take an umbrella"})),
    ]
}

/// 71: sampling with tools too, round by round.
#[test]
fn r071_a_model_uses_the_tools_of_a_server() {
    let server = example_server("2025-11-25", 0);
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let (tool, arguments) = ("test_sampling_with_tools", json!({"prompt": "Umbrella?"}));
    let can = json!({"sampling": {"tools": {}}});
    let mut reply = call(tool, arguments.clone(), &can).send(sidecar.mcp);
    let mut heard = Vec::new();
    for said in uses() {
        let (questions, state) = asked(&reply);
        let [(key, question)] = &questions[..] else { panic!("{questions:?}") };
        assert_eq!(question["method"], "sampling/createMessage");
        assert_eq!(question["params"]["tools"][0]["name"], "weather");
        heard.push(question["params"]["messages"].clone());
        reply = again(tool, arguments.clone(), &can, &state, json!({key.clone(): said})).send(sidecar.mcp);
    }
    assert_eq!(text(&reply), "after 2 uses of a tool: Take an umbrella");
    assert_eq!(heard[0].as_array().unwrap().len(), 1);
    assert_eq!(heard[1][1]["content"], uses()[0]["content"]);
    let results = &heard[1][2]["content"];
    assert_eq!((&results[0]["toolUseId"], &results[1]["toolUseId"]), (&json!("1"), &json!("2")));
    assert_eq!(results[1]["structuredContent"], json!({"city": "Rome", "rains": true}));
    // One that knows sampling and no tools is not asked.
    let reply = call(tool, arguments, &json!({"sampling": {}})).send(sidecar.mcp);
    assert!(reply.message().get("error").is_some() || reply.message()["result"]["isError"] == true);
}

/// 32: a client hears what it would have had to declare; a server that does without gets its answer through.
#[test]
fn r032_a_question_to_a_client_that_cannot_answer_it() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let roots = json!({"roots": {}});
    let need = json!({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}});
    let reply = call("need", need, &roots).send(sidecar.mcp);
    is_error(&reply, 400, -32021);
    assert_eq!(reply.message()["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
    // This one is content with the error.
    let reply = call("ask", json!({"method": "sampling/createMessage"}), &roots).send(sidecar.mcp);
    assert!(text(&reply).contains("-32601"), "{}", reply.text());
    // Nobody is asked where the protocol does not allow it.
    let (questions, _) = asked(&call("ask", json!({"method": "roots/list"}), &roots).send(sidecar.mcp));
    assert_eq!(questions[0].1["method"], "roots/list");
    // Nor does such a request go on with anything, whatever it says.
    let reply = request(5, "tools/list", json!({"requestState": "s"}), &roots).send(sidecar.mcp);
    assert!(reply.message()["result"]["tools"].is_array(), "{}", reply.text());
}

/// 32: what may be another call's question is not what a call has failed for.
#[test]
fn r032_a_call_that_fails_of_itself_says_why() {
    let (shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    std::thread::scope(|scope| {
        let asks = json!({"method": "roots/list", "after": 1, "seconds": 3, "text": "t", "times": 1});
        let asking = scope.spawn(|| call("ask-and-go", asks, &json!({})).send(sidecar.mcp));
        eventually("it is under way", || sidecar.metric("longshore_calls") >= 1.0);
        // It is the newest when the server asks.
        let failing = call("later", json!({"seconds": 2, "fails": true}), &json!({})).send(sidecar.mcp);
        assert_eq!(failing.message()["result"]["isError"], true, "{}", failing.text());
        assert_eq!(text(&failing), "later");
        assert_eq!(text(&asking.join().unwrap()), "t");
    });
    assert_eq!(shim.processes().len(), 2, "one for the sidecar itself, and one for both");
}

/// A question is never put to the client of another call: with those who can be asked, a process has one call.
#[test]
fn a_process_that_asks_has_one_call_at_a_time() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let first = asked(&call("ask", json!({"method": "roots/list"}), &can()).send(sidecar.mcp));
    let second = asked(&call("ask", json!({"method": "roots/list"}), &can()).send(sidecar.mcp));
    assert_eq!(_shim.processes().len(), 3, "one for the sidecar itself, and one for each");
    for (at, (questions, state)) in [&second, &first].into_iter().enumerate() {
        let uri = format!("file:///{at}");
        let responses = json!({questions[0].0.clone(): {"roots": [{"uri": uri}]}});
        let reply = again("ask", json!({"method": "roots/list"}), &can(), state, responses).send(sidecar.mcp);
        assert!(text(&reply).contains(&uri), "{}", reply.text());
    }
    // They are free for the next ones.
    asked(&call("ask", json!({"method": "roots/list"}), &can()).send(sidecar.mcp));
    assert_eq!(_shim.processes().len(), 3);
}

/// Calls that come faster than a process begins get it begun once.
#[test]
fn a_process_that_was_begun_for_a_call_which_found_another_one_is_the_next_calls() {
    let (shim, sidecar) = serving(&stdio(), &server(&["sluggish"]), &[]);
    let echo = || text(&call("echo", json!({"text": "t"}), &can()).send(sidecar.mcp));
    echo();
    assert_eq!(shim.processes().len(), 2, "one for the sidecar itself, and one for the call");
    std::thread::scope(|scope| {
        let long = call("later", json!({"seconds": 1}), &can());
        let long = scope.spawn(move || text(&long.send(sidecar.mcp)));
        eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
        // It would have to wait for another process, and finds the first one free before that.
        assert_eq!(echo(), "t");
        assert_eq!(long.join().unwrap(), "later");
    });
    let started = sidecar.metric("longshore_processes_started_total");
    // One that waits for its client is in use, so this is the other one, once it has begun.
    let (questions, state) = asked(&call("ask", json!({"method": "roots/list"}), &can()).send(sidecar.mcp));
    assert_eq!(echo(), "t");
    assert_eq!(sidecar.metric("longshore_processes_started_total"), started, "no other one is begun");
    let reply = again("ask", json!({"method": "roots/list"}), &can(), &state, answers(&questions));
    text(&reply.send(sidecar.mcp));
}

/// What a process asks late, in a call that was given up, is nobody else's to answer.
#[test]
fn a_question_of_a_call_that_was_cancelled_is_not_put_to_the_next_calls_client() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let arguments = json!({"method": "roots/list", "after": 1, "seconds": 1, "text": "done", "times": 1});
    let mut stream = connect(sidecar.mcp);
    call("ask-and-go", arguments, &can()).write(&mut stream);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    // The server has begun with it when it answers something that came later, in that process.
    eventually("the process is there", || _shim.processes().len() == 2);
    drop(stream);
    eventually("it is over", || sidecar.metric("longshore_calls") == 0.0);
    let next = call("later", json!({"seconds": 3}), &can()).send(sidecar.mcp);
    assert_eq!(text(&next), "later");
}

/// What the sidecar asks a process on its own account is not what the process asks about.
#[test]
fn a_question_that_comes_while_the_sidecar_subscribes_is_the_calls() {
    // It takes the first subscription when it is asked for something else.
    let (shim, sidecar) = serving(&stdio(), &server(&["tardy"]), &[]);
    text(&call("echo", json!({"text": "t"}), &can()).send(sidecar.mcp));
    std::thread::scope(|scope| {
        let arguments = json!({"method": "roots/list", "after": 2, "seconds": 4, "text": "done", "times": 1});
        let asking = call("ask-and-go", arguments, &can());
        let asking = scope.spawn(move || asking.send(sidecar.mcp));
        eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
        let wanted = json!({"notifications": {"resourceSubscriptions": ["a:b"]}});
        let _events = Events::open(&request("l", "subscriptions/listen", wanted, &can()), sidecar.mcp);
        let (questions, _) = asked(&asking.join().unwrap());
        assert_eq!(questions[0].1["method"], "roots/list");
        assert_eq!(shim.processes().len(), 2, "one for the sidecar itself, and one for both");
    });
}

/// A process that nobody uses just now makes room for one that is told other capabilities.
#[test]
fn one_process_serves_clients_that_can_do_different_things_one_after_the_other() {
    let mut config = stdio();
    config.limits.processes = Some(processes(1, 1));
    let (_shim, sidecar) = serving(&config, &server(&[]), &[]);
    for can in [json!({}), can(), json!({})] {
        assert_eq!(text(&call("echo", json!({"text": "t"}), &can).send(sidecar.mcp)), "t", "{can}");
    }
    // One that waits for its client is in use.
    let (questions, state) = asked(&call("ask", json!({"method": "roots/list"}), &can()).send(sidecar.mcp));
    let refused = call("echo", json!({"text": "t"}), &json!({})).send(sidecar.mcp);
    is_error(&refused, 503, -32603);
    let reply =
        again("ask", json!({"method": "roots/list"}), &can(), &state, answers(&questions)).send(sidecar.mcp);
    text(&reply);
}

/// What may go at once is not waited for as long as for a place that somebody has; that may be longer than a call.
#[test]
fn a_process_that_nobody_uses_goes_at_once_for_another_client() {
    let mut config = stdio();
    for (total, per_principal) in [(2, 1), (1, 1)] {
        config.limits.processes = Some(Processes { queue_ms: 60_000, ..processes(total, per_principal) });
        let keys = keys(&[("a", "key-a"), ("b", "key-b")]);
        let (_shim, sidecar) = serving_keyed(&config, &keys, &server(&[]), &[]);
        let pid = |key, can: &Value| text(&call("pid", json!({}), can).key(key).send(sidecar.mcp));
        let others = pid("key-b", &can());
        for can in [json!({}), can(), json!({})] {
            pid("key-a", &can);
        }
        // It is of no use to who has a full part that somebody else's goes.
        assert_eq!(pid("key-b", &can()) == others, total == 2);
        // One that somebody uses goes as soon as nobody does.
        let mut busy = connect(sidecar.mcp);
        call("later", json!({"seconds": 2}), &can()).key("key-b").write(&mut busy);
        eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
        pid("key-b", &json!({}));
        // An older client needs one that is its own.
        Client::open(&sidecar, Some("key-b")).end();
    }
}

/// It has gone for somebody, who would wait in vain if no longer than for any other place.
#[test]
fn a_process_that_takes_its_time_to_end_is_waited_for() {
    let mut config = stdio();
    config.limits.processes = Some(Processes { queue_ms: 3_000, ..processes(1, 1) });
    let (_shim, sidecar) = serving(&config, &server(&["lingering"]), &[]);
    let mut busy = connect(sidecar.mcp);
    call("later", json!({"seconds": 2}), &can()).write(&mut busy);
    eventually("it is under way", || sidecar.metric("longshore_calls") == 1.0);
    text(&call("pid", json!({}), &json!({})).send(sidecar.mcp));
}
