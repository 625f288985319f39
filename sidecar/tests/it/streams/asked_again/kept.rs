//! What was kept of a stream for its client, where the server gives none when it is asked again.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::harness::{Client, Events, Gate, Scripted, Sidecar, config, eventually, scripted};
use crate::streams::{CHANGED, event, note, open, said};

/// A server whose first stream says one thing, and when the gate is open two more and no more. What it does when it is asked
/// again is for the test to say, by how often it was.
fn saying_more(again: impl Fn(usize, &mut TcpStream) + Send + Sync + 'static) -> (Scripted, Gate) {
    let (asked, gate) = (AtomicUsize::new(0), Gate::default());
    let opened = gate.clone();
    let offers = json!({"tools": {"listChanged": true}});
    let server = Scripted::offering(offers, move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"tools": []}));
        }
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => {
                scripted::begin_events(stream);
                scripted::chunk(stream, &event(&note(1)));
                opened.pass();
                scripted::chunk(stream, &(event(&note(2)) + &event(&note(3))));
                scripted::write(stream, "0\r\n\r\n");
            }
            times => again(times, stream),
        }
    });
    (server, gate)
}

/// Hears the first of that and goes away until the server is asked again. What has been heard last.
fn goes_away(client: &Client<'_>, server: &Scripted, gate: &Gate) -> String {
    let mut stream = open(client);
    assert_eq!(said(&stream.next().unwrap()), "1");
    let last = stream.last.clone();
    drop(stream);
    gate.open();
    eventually("it has been asked again", || server.seen("GET").len() > 1);
    last
}

/// What was kept is given, though the server has no stream now; how it goes on is heard after that.
#[test]
fn what_was_kept_is_given_while_the_server_has_no_stream() {
    let (server, gate) = saying_more(|_, stream| scripted::no_stream(stream));
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let last = goes_away(&client, &server, &gate);
    let last = eventually("what was kept is there", || {
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        // Until the answer to that has been heard its stream may end at any time.
        let [second, third] = [rest.next()?, rest.next()?];
        assert_eq!([said(&second), said(&third)], ["2", "3"]);
        Some(rest.last)
    });
    let reply = eventually("how it goes on is heard then", || {
        let reply = client.rest(&last).send(sidecar.mcp);
        (reply.status != 200).then_some(reply)
    });
    assert_eq!(reply.status, 405, "{}", reply.text());
}

/// Clients that come back only to a stream which breaks off do so once they have what was kept.
#[test]
fn what_was_kept_does_not_end_in_order_for_clients_that_would_not_come_back() {
    let (server, gate) = saying_more(|times, stream| {
        if times == 1 {
            return scripted::no_stream(stream);
        }
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(9)));
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::of(&sidecar, None, "2025-06-18");
    let last = goes_away(&client, &server, &gate);
    let (end, last) = eventually("what was kept is there", || {
        let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
        let mut heard = Vec::new();
        let end = loop {
            match rest.try_any() {
                Ok(Some(event)) => heard.push(said(&event)),
                end => break end,
            }
        };
        (heard == ["2", "3"]).then_some((end, rest.last))
    });
    assert_eq!(end.expect_err("it breaks off").kind(), std::io::ErrorKind::UnexpectedEof);
    let mut rest = Events::open(&client.rest(&last), sidecar.mcp);
    // Nobody has heard what the server said while it gave no stream.
    assert_eq!(rest.next().unwrap().message()["method"], CHANGED);
    assert_eq!(said(&rest.next().unwrap()), "9");
}
