//! Clients that come back.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{answer, argument, event, is_told_of_loss, note, said};
use crate::harness::config::{callers, idle};
use crate::harness::shim::{self, serving, stdio};
use crate::harness::{Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// A server that says what it is told, one word at a time: a note, or nothing for the answer.
fn told() -> (Scripted, Sender<Option<usize>>) {
    let (tell, told) = channel();
    let told: Arc<Mutex<Receiver<Option<usize>>>> = Arc::new(Mutex::new(told));
    let server = Scripted::start(move |request, stream| {
        scripted::begin_events(stream);
        while let Ok(Some(number)) = told.lock().unwrap().recv() {
            scripted::chunk(stream, &event(&note(number)));
        }
        scripted::chunk(stream, &event(&answer(request)));
        scripted::write(stream, "0\r\n\r\n");
    });
    (server, tell)
}

#[test]
fn r056_the_rest_of_a_stream_is_its_rest() {
    let server = Scripted::start(|request, stream| {
        scripted::events(stream, &[&event(&note(1)), &event(&note(2)), &event(&answer(request))]);
    });
    let sidecar = Sidecar::start(&config(server.port));
    for revision in ["2025-06-18", "2025-11-25"] {
        let client = Client::of(&sidecar, None, revision);
        // Another stream of the session, of which nothing may come.
        client.stream("t", json!({})).all();
        let mut stream = client.stream("t", json!({}));
        let mut all = Vec::new();
        while let Some(event) = stream.any() {
            all.push(event);
        }
        for (seen, event) in all.iter().enumerate() {
            let rest = Events::open(&client.rest(&event.id), sidecar.mcp);
            if seen + 1 == all.len() {
                // Clients of events take this for: do not ask again.
                assert_eq!(rest.status, 204);
            } else {
                assert_eq!(rest.status, 200);
                assert_eq!(rest.all(), all[seen + 1..], "{revision} after {seen}");
            }
        }
        // An answer that was alone.
        let answer = &client.stream("t", json!({})).all()[0];
        let alone = answer.id.rsplit_once('-').unwrap().0.to_owned() + "-0";
        assert_eq!(client.rest(&alone).send(sidecar.mcp).status, 204);
    }
}

/// A call that is under way when its session reaches its age is answered, also to a client that has to come back for that.
#[test]
fn the_stream_of_a_call_outlives_the_age_of_its_session() {
    let (server, tell) = told();
    let mut config = config(server.port);
    let sidecar = Sidecar::start(&config).ready();
    for revision in ["2025-06-18", "2025-11-25"] {
        let young = config.sessions.max_age_ms;
        let client = Client::of(&sidecar, None, revision);
        tell.send(Some(1)).unwrap();
        let mut stream = client.stream("t", json!({}));
        let first = stream.next().unwrap();
        drop(stream);
        config.sessions.max_age_ms = 2_000;
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
        eventually("it is too old", || client.send("ping", json!({})).status == 404);
        let mut rest = Events::open(&client.rest(&first.id), sidecar.mcp);
        assert_eq!(rest.status, 200, "{revision}");
        assert_eq!(client.get().send(sidecar.mcp).status, 404, "{revision}: what is new is not begun");
        tell.send(Some(2)).unwrap();
        let second = rest.next().unwrap();
        assert_eq!(second.message(), serde_json::from_str::<Value>(&note(2)).unwrap());
        drop(rest);
        eventually("it has gone", || sidecar.metric("longshore_connections") == 0.0);
        tell.send(None).unwrap();
        eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
        // Sessions that are over end with a new configuration.
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
        let mut rest = Events::open(&client.rest(&second.id), sidecar.mcp);
        assert_eq!(rest.status, 200, "{revision}");
        assert!(rest.next().unwrap().message()["result"].is_object(), "{revision}");
        eventually("it is over", || sidecar.metric("longshore_sessions") == 0.0);
        config.sessions.max_age_ms = young;
        config.generation += 1;
        sidecar.runs(&sidecar.files.write(&config));
    }
}

#[test]
fn what_never_was_there_is_an_error() {
    let server = Scripted::start(|request, stream| {
        scripted::events(stream, &[&event(&note(1)), &event(&note(2)), &event(&answer(request))]);
    });
    let sidecar = Sidecar::keyed(&config(server.port), &callers());
    let alice = Client::open(&sidecar, Some("key-a"));
    let other = Client::open(&sidecar, Some("key-a"));
    let bob = Client::open(&sidecar, Some("key-b"));
    for client in [&alice, &other, &bob] {
        client.stream("t", json!({})).all();
    }
    let last = alice.stream("t", json!({})).all()[0].id.clone();
    let (epoch, number) = last.split_once('-').unwrap();
    let foreign = if epoch == "00000000" { "00000001" } else { "00000000" };
    for id in [
        // Of another owner of the session, of another session, and of an event that never was.
        format!("{foreign}-{number}"),
        other.stream("t", json!({})).all()[0].id.clone(),
        format!("{}-18446744073709551615", last.rsplit_once('-').unwrap().0),
    ] {
        is_told_of_loss(&alice, &id);
    }
    for (id, what) in [
        (format!("{epoch}-99-1"), "of a stream that never was"),
        (format!("{epoch}-2-5"), "of an event that never was"),
        ("x".to_owned(), "of somebody else"),
        (String::new(), "nothing"),
    ] {
        let reply = alice.rest(&id).send(sidecar.mcp);
        assert_eq!(reply.status, 400, "{what}");
        let message = reply.message();
        assert_eq!(message["error"]["code"], -32600, "{what}");
        assert!(message["error"]["message"].as_str().unwrap().contains("not kept any more"), "{message}");
    }
    sidecar.audit(|line| line["reason"] == "events not kept" && line["method"] == "GET");
    // Ids open nothing for anybody else.
    let theft = bob.rest(&last).with("mcp-session-id", &alice.session);
    assert_eq!(theft.send(sidecar.mcp).status, 404);
    is_told_of_loss(&bob, &last);
    assert_eq!(alice.rest(&last).without("authorization").send(sidecar.mcp).status, 401);
    // And the session goes on.
    assert_eq!(Events::open(&alice.rest(&last), sidecar.mcp).all().len(), 2);
    let text = sidecar.get("/metrics").text().to_owned();
    assert!(text.contains("longshore_resumptions_total{result=\"ok\"} 1\n"), "{text}");
    assert!(text.contains("longshore_resumptions_total{result=\"gone\"} 8\n"), "{text}");
    // With the session its streams are gone.
    assert_eq!(
        Request::new("DELETE", "/mcp").key("key-a").session(&alice.session).send(sidecar.mcp).status,
        204
    );
    assert_eq!(alice.rest(&last).send(sidecar.mcp).status, 404);
}

#[test]
fn a_stream_goes_on_with_another_connection() {
    let (server, tell) = told();
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    tell.send(Some(1)).unwrap();
    let mut first = client.stream("t", json!({}));
    assert_eq!(said(&first.next().unwrap()), "1");
    // The old connection is still there: nobody knows yet that it is dead.
    let mut second = Events::open(&client.rest(&first.last), sidecar.mcp);
    assert!(first.any().is_none(), "the old one is closed");
    tell.send(Some(2)).unwrap();
    assert_eq!(said(&second.next().unwrap()), "2");
    let last = second.last.clone();
    drop(second);
    tell.send(Some(3)).unwrap();
    tell.send(Some(4)).unwrap();
    tell.send(None).unwrap();
    eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
    let rest: Vec<_> = Events::open(&client.rest(&last), sidecar.mcp).all().iter().map(said).collect();
    assert_eq!(rest, ["3", "4", "answer"]);
    assert!(server.seen("notifications/cancelled").is_empty(), "a disconnect cancels nothing");
}

#[test]
fn r058_the_answer_of_a_client_that_went_away_is_kept() {
    let gates = [(); 2].map(|()| Gate::default());
    let waiting = gates.clone();
    let late = Scripted::start(move |request, stream| {
        let dies = argument(request, "dies") == json!(true);
        waiting[usize::from(dies)].pass();
        if dies {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        } else {
            scripted::json(stream, &answer(request));
        }
    });
    let http = Sidecar::start(&config(late.port));
    let (_shim, stdio) = serving(&stdio(), &shim::server(&[]), &[]);
    for (sidecar, tool, dies) in [(&http, "t", false), (&http, "t", true), (&stdio, "wait", false)] {
        let client = Client::open(sidecar, None);
        let mut stream = client.stream(tool, json!({"dies": dies}));
        let first = stream.any().unwrap();
        assert_eq!(
            (first.data.as_str(), first.id.ends_with("-1-1")),
            ("", true),
            "something to come back with"
        );
        drop(stream);
        gates[usize::from(dies)].open();
        if tool == "wait" {
            client.call("release", json!({}));
        }
        eventually("the call has ended", || sidecar.metric("longshore_calls") == 0.0);
        let rest = Events::open(&client.rest(&first.id), sidecar.mcp).all();
        assert_eq!(rest.len(), 1);
        let message = rest[0].message();
        assert_eq!(message["error"]["code"] == -32603, dies, "{message}");
    }
}

/// A server whose calls say so much before their answer.
fn noting() -> Scripted {
    Scripted::start(|request, stream| {
        let notes = argument(request, "notes").as_u64().unwrap();
        scripted::begin_events(stream);
        for number in 0..notes {
            scripted::chunk(stream, &event(&note(usize::try_from(number).unwrap())));
        }
        scripted::chunk(stream, &event(&answer(request)));
        scripted::write(stream, "0\r\n\r\n");
    })
}

#[test]
fn what_is_kept_is_bounded_in_size_and_number() {
    let server = noting();
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 2000;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);

    // Of many events the last ones.
    let all = client.stream("t", json!({"notes": 100})).all();
    assert_eq!(Events::open(&client.rest(&all[96].id), sidecar.mcp).all(), all[97..]);
    // The answer among them, which is all that the call was made for.
    let rest = Events::open(&client.rest(&all[50].id), sidecar.mcp).all();
    assert!(rest.len() < 49 && all.ends_with(&rest), "{rest:?}");
    assert_eq!(said(rest.last().unwrap()), "answer");

    // Of many streams the last ones.
    let first = client.stream("t", json!({"notes": 1})).all();
    for _ in 0..64 {
        client.stream("t", json!({"notes": 1})).all();
    }
    is_told_of_loss(&client, &all[96].id);
    is_told_of_loss(&client, &first[0].id);
    let last = client.stream("t", json!({"notes": 1})).all();
    assert_eq!(client.rest(&last[0].id).send(sidecar.mcp).status, 200);
}

/// Something is missing, and not silently, where the client hears of what is worth a warning.
#[test]
fn who_asks_for_log_messages_hears_that_not_all_of_a_call_was_kept() {
    let server = noting();
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 2000;
    let sidecar = Sidecar::start(&config);
    for (level, hears) in [("warning", true), ("error", false)] {
        let client = Client::open(&sidecar, None);
        client.ask("logging/setLevel", json!({"level": level, "arguments": {"notes": 0}}));
        let all = client.stream("t", json!({"notes": 100})).all();
        let mut rest = Events::open(&client.rest(&all[50].id), sidecar.mcp).all();
        if hears {
            let told = rest.remove(0);
            assert!(told.id.is_empty() && said(&told).contains("not kept any more"), "{told:?}");
        }
        assert!(rest.len() < 49 && all.ends_with(&rest), "{level}: {rest:?}");
        let rest = Events::open(&client.rest(&all[96].id), sidecar.mcp).all();
        assert_eq!(rest, all[97..], "{level}: nothing is missing");
    }
}

/// It goes on: an error would have its client make it twice.
#[test]
fn a_call_under_way_is_answered_also_where_not_all_was_kept() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 1000;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    tell.send(Some(1)).unwrap();
    let mut stream = client.stream("t", json!({}));
    let first = stream.next().unwrap();
    drop(stream);
    eventually("it has gone", || sidecar.metric("longshore_connections") == 0.0);
    (2..50).for_each(|number| tell.send(Some(number)).unwrap());
    let rest = eventually("the oldest is not kept", || {
        let mut rest = Events::open(&client.rest(&first.id), sidecar.mcp);
        (said(&rest.next()?) != "2").then_some(rest)
    });
    tell.send(None).unwrap();
    assert_eq!(rest.all().last().map(said).as_deref(), Some("answer"));
    assert!(sidecar.metric("longshore_resumptions_total{result=\"gone\"}") >= 1.0);
}

#[test]
fn what_is_kept_is_forgotten_after_a_while() {
    let server = noting();
    let mut config = config(server.port);
    config.sessions.resume.ttl_ms = 3000;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    let last = client.stream("t", json!({"notes": 1})).all();
    assert_eq!(sidecar.metric("longshore_streams"), 1.0);
    eventually("they are forgotten", || sidecar.metric("longshore_streams") == 0.0);
    assert_eq!(sidecar.metric("longshore_stream_bytes"), 0.0);
    is_told_of_loss(&client, &last[0].id);
}

#[test]
fn where_nothing_is_kept_nothing_is_promised() {
    let server = Scripted::start(|request, stream| {
        std::thread::sleep(Duration::from_millis(argument(request, "time").as_u64().unwrap()));
        scripted::events(stream, &[&event(&note(1)), &event(&answer(request))]);
    });
    let mut config = config(server.port);
    config.sessions.resume.max_bytes = 0;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    for time in [0, 1500] {
        let mut stream = client.stream("t", json!({"time": time}));
        let first = stream.any().unwrap();
        assert_eq!(said(&first), "1", "no event that is there only to come back with");
        assert_eq!(stream.all().len(), 1);
        is_told_of_loss(&client, &first.id);
    }
}

/// What is kept of them is no use of it, so the times do not add up.
#[test]
fn a_session_is_idle_from_when_its_streams_were_over() {
    const TIME: u64 = 8_000;
    let server = Scripted::listening(|request, stream| {
        if request.method == "POST" {
            return scripted::events(stream, &[&event(&note(1)), &event(&answer(request))]);
        }
        scripted::stays_open(stream);
    });
    let mut config = idle(config(server.port), TIME);
    config.sessions.resume.ttl_ms = TIME;
    let sidecar = Sidecar::start(&config);
    let (calls, listens) = (Client::open(&sidecar, None), Client::open(&sidecar, None));
    assert_eq!(calls.stream("t", json!({})).all().len(), 2);
    assert_eq!(Events::open(&listens.get(), sidecar.mcp).status, 200);
    let began = Instant::now();
    eventually("both of them end", || sidecar.metric("longshore_sessions") == 0.0);
    let time = began.elapsed();
    assert!(time < Duration::from_millis(TIME + TIME / 2), "{time:?}");
}

#[test]
fn a_session_with_something_kept_is_not_idle() {
    let (server, tell) = told();
    let mut config = config(server.port);
    config.sessions.resume.ttl_ms = 8_000;
    let sidecar = Sidecar::start(&config);
    let client = Client::open(&sidecar, None);
    tell.send(Some(1)).unwrap();
    tell.send(None).unwrap();
    let all = client.stream("t", json!({})).all();
    drop(Client::open(&sidecar, None));
    sidecar.runs(&sidecar.files.write(&idle(config, 300)));
    let idle = "longshore_sessions_ended_total{cause=\"idle\"}";
    eventually("another one with nothing kept ends", || sidecar.metric(idle) == 1.0);
    assert_eq!(Events::open(&client.rest(&all[0].id), sidecar.mcp).all().len(), 1);
    eventually("it ends then", || sidecar.metric("longshore_sessions") == 0.0);
    assert_eq!(sidecar.metric("longshore_streams"), 0.0);
}
