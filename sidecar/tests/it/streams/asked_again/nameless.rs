//! Servers without session ids, each of which may be another one when it is asked again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::harness::{Client, Gate, Scripted, Sidecar, config, scripted};
use crate::streams::{CHANGED, event, note, open, said};

/// A server without session ids may be another one when it gives its stream again: it is told first what its client has set,
/// and asked for nothing that follows an event of the one before. Some wait for that for ever.
#[test]
fn a_server_without_session_ids_knows_what_its_client_wants_before_that_reads_all_anew() {
    let (end, asked) = (Gate::default(), AtomicUsize::new(0));
    let ends = end.clone();
    let offers = json!({"resources": {"subscribe": true}});
    let server = Scripted::nameless_offering(offers, move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
        }
        match asked.fetch_add(1, Ordering::SeqCst) {
            0 => {
                scripted::begin_events(stream);
                scripted::chunk(stream, &format!("retry: 50\nid: 17\n{}", event(&note(1))));
                ends.pass();
            }
            1 => {}
            _ => scripted::stays_open(stream),
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    client.ask("resources/subscribe", json!({"uri": "a:b"}));
    assert_eq!(said(&stream.next().unwrap()), "1");
    end.open();
    stream.patience(Duration::from_secs(30));
    let told = stream.next().unwrap().message();
    assert_eq!(told["params"]["uri"], "a:b", "{told}");
    assert_eq!(server.seen("resources/subscribe").len(), 2);
    let polls = server.seen("GET");
    let last: Vec<_> = polls.iter().map(|get| get.value("last-event-id")).collect();
    assert_eq!(last, [None, Some("17"), None]);
}

/// One that says nothing for long is no other one: it is asked for what follows its last event.
#[test]
fn a_server_without_session_ids_that_takes_its_time_to_begin_is_asked_for_what_follows_its_last_event() {
    let asked = AtomicUsize::new(0);
    let server = Scripted::nameless_offering(json!({}), move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({}));
        }
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if number != 1 {
            scripted::begin_events(stream);
            scripted::chunk(stream, &format!("retry: 50\nid: 17\n{}", event(&note(number))));
        }
        if number == 0 {
            return scripted::write(stream, "0\r\n\r\n");
        }
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    stream.patience(Duration::from_secs(60));
    assert_eq!([(); 2].map(|()| said(&stream.next().unwrap())), ["0", "2"]);
    let polls = server.seen("GET");
    let last: Vec<_> = polls.iter().map(|get| get.value("last-event-id")).collect();
    assert_eq!(last, [None, Some("17"), Some("17")]);
}

/// Or another one that waits for what follows an event which it does not know, and says nothing for ever.
#[test]
fn a_server_without_session_ids_that_waits_for_what_follows_an_event_it_does_not_know_is_heard_all_the_same()
{
    let asked = AtomicUsize::new(0);
    let server =
        Scripted::nameless_offering(json!({"tools": {"listChanged": true}}), move |request, stream| {
            if request.method == "POST" {
                return scripted::reply(stream, request, &json!({"tools": []}));
            }
            if request.value("last-event-id") != Some("17") {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                scripted::begin_events(stream);
                let id = if number == 0 { "retry: 50\nid: 17\n" } else { "" };
                scripted::chunk(stream, &(id.to_owned() + &event(&note(number))));
                if number == 0 {
                    return scripted::write(stream, "0\r\n\r\n");
                }
            }
            scripted::until_closed(stream);
        });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    stream.patience(Duration::from_secs(60));
    assert_eq!(said(&stream.next().unwrap()), "0");
    let mut heard = [(); 2].map(|()| stream.next().unwrap().message()["method"].clone());
    heard.sort_by_key(ToString::to_string);
    assert_eq!(heard, ["notifications/message", CHANGED]);
}

/// One that does not give its stream for now was there, and knows still what its client has set: it may refuse just because it
/// is asked for too much.
#[test]
fn a_server_that_refuses_its_stream_for_now_is_not_told_each_time_what_its_client_has_set() {
    let (cut, asked) = (Gate::default(), AtomicUsize::new(0));
    let cuts = cut.clone();
    let offers = json!({"resources": {"subscribe": true}});
    let server = Scripted::nameless_offering(offers, move |request, stream| {
        if request.method == "POST" {
            return scripted::reply(stream, request, &json!({"resources": [], "resourceTemplates": []}));
        }
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if !number.is_multiple_of(2) {
            return scripted::json_with(stream, 409, "", "{}");
        }
        scripted::begin_events(stream);
        scripted::chunk(stream, &("retry: 50\n".to_owned() + &event(&note(number))));
        cuts.pass();
        scripted::write(stream, "0\r\n\r\n");
    });
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let client = Client::open(&sidecar, None);
    let mut stream = open(&client);
    client.ask("resources/subscribe", json!({"uri": "a:b"}));
    assert_eq!(said(&stream.next().unwrap()), "0");
    cut.open();
    for number in ["2", "4", "6"] {
        // It is read on while its server is told what its client has set.
        let mut heard = [(); 2].map(|()| stream.next().unwrap().message()["params"].clone());
        heard.sort_by_key(|params| params["uri"].is_null());
        assert_eq!((&heard[0]["uri"], heard[1]["data"].to_string()), (&json!("a:b"), number.to_owned()));
    }
    assert_eq!(server.seen("resources/subscribe").len(), 2, "when its first stream had ended");
}
