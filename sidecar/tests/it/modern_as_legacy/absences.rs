//! Servers that go away in the middle of a call: they have seen it, so it is not made again.

use std::io::BufReader;
use std::net::TcpListener;
use std::time::Duration;

use serde_json::{Value, json};

use super::asking::{answer_to, asking_at, form, next, reply};
use super::{able, answer, echoing_at, everything, sidecar, tools};
use crate::harness::scripted::{self, message};
use crate::harness::{Gate, Sessionless, Sidecar, eventually};

/// Whether the server has been looked for in vain. Whoever calls it then waits for a little until it is back.
fn is_missed(sidecar: &Sidecar) -> bool {
    sidecar.metric("longshore_server_connected") == 0.0
}

#[test]
fn r072_a_call_goes_on_where_it_was_with_a_server_that_is_back() {
    let rounds = [vec![Value::Null], vec![json!({"who": form("who?")})]];
    for (rounds, asks) in rounds.into_iter().zip([false, true]) {
        let server = asking_at(0, rounds.clone());
        let (sidecar, left) = (&sidecar(&server), &Gate::default());
        let again = std::thread::scope(|scope| {
            let client = able(sidecar, "2025-11-25");
            let calling = scope.spawn(move || {
                let mut events = client.stream("echo", json!({}));
                if asks {
                    let question = next(&mut events);
                    left.pass();
                    // Only now is the server called again.
                    reply(&client, &question["id"], &answer_to(&question));
                }
                next(&mut events)
            });
            eventually("it was called", || server.seen("tools/call").len() == 1);
            server.leave();
            left.open();
            eventually("it is missed", || is_missed(sidecar));
            let again = asking_at(server.port, rounds);
            let end = calling.join().unwrap();
            assert!(end["result"]["content"].is_array(), "{end}");
            again
        });
        let seen: Vec<_> = again.seen("tools/call").iter().map(message).collect();
        assert_eq!(seen.len(), 1, "{seen:?}");
        assert_eq!(seen[0]["params"]["requestState"], "x", "the call was made anew");
    }
}

/// Nobody can tell what has become of it.
#[test]
fn a_call_is_not_made_again_with_a_server_that_stays_away() {
    let server = asking_at(0, vec![Value::Null]);
    let sidecar = &sidecar(&server);
    std::thread::scope(|scope| {
        let client = able(sidecar, "2025-11-25");
        let calling = scope.spawn(move || client.call("echo", json!({})));
        eventually("it was called", || server.seen("tools/call").len() == 1);
        server.leave();
        let end = calling.join().unwrap();
        assert!(end["error"]["message"].as_str().unwrap().contains("went away"), "{end}");
    });
}

/// Nor with one that is another for a moment: it has begun with the call.
#[test]
fn a_call_is_not_begun_again_with_a_server_that_was_lost_in_the_middle_of_it() {
    let server = asking_at(0, vec![Value::Null]);
    let sidecar = &sidecar(&server);
    std::thread::scope(|scope| {
        let client = able(sidecar, "2025-11-25");
        let calling = scope.spawn(move || client.call("echo", json!({})));
        eventually("it was called", || server.seen("tools/call").len() == 1);
        server.leave();
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", server.port)).ok());
        listener.set_nonblocking(true).unwrap();
        let mut called = false;
        // The call, and whoever asks then whether this is what it was.
        loop {
            let (mut stream, _) = eventually("somebody asks", || listener.accept().ok());
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let request = scripted::read(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
            scripted::json_with(&mut stream, 404, "connection: close\r\n", "{}");
            if called && message(&request)["method"] == "server/discover" {
                break;
            }
            called |= message(&request)["method"] == "tools/call";
        }
        drop(listener);
        let again = asking_at(server.port, vec![Value::Null]);
        let end = calling.join().unwrap();
        assert!(end["error"]["message"].as_str().unwrap().contains("went away"), "{end}");
        assert!(again.seen("tools/call").is_empty(), "the call was made anew");
    });
}

#[test]
fn what_a_server_says_before_it_goes_away_is_its_answer() {
    let (called, left) = (Gate::default(), Gate::default());
    let (calls, leaves) = (called.clone(), left.clone());
    let server = Sessionless::at(0, everything(), tools(), move |request, stream| {
        if message(request)["method"] != "tools/call" {
            return answer(request, stream, &json!({}));
        }
        calls.open();
        leaves.pass();
        let head = "HTTP/1.1 500 X\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 4";
        scripted::write(stream, &format!("{head}\r\n\r\nfull"));
    });
    let sidecar = &sidecar(&server);
    std::thread::scope(|scope| {
        let client = able(sidecar, "2025-11-25");
        let calling = scope.spawn(move || client.call("echo", json!({})));
        called.pass();
        server.leave();
        left.open();
        // Whoever has the answer does not miss the server.
        eventually("it is missed, or not", || calling.is_finished() || is_missed(sidecar));
        let again = echoing_at(server.port);
        let end = calling.join().unwrap();
        assert!(end["error"]["message"].as_str().unwrap().contains("500"), "{end}");
        assert!(again.seen("tools/call").is_empty());
    });
}
