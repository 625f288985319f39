//! Listeners whose keys are revoked.

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;

use super::{answer, event, note, open, told};
use crate::harness::config::{callers, keys};
use crate::harness::{Client, Events, Gate, Scripted, Sidecar, config, eventually, scripted};

#[test]
fn a_key_that_is_revoked_hears_nothing_more() {
    let (server, tell) = told();
    let sidecar = Sidecar::keyed(&config(server.port), &callers());
    let clients = ["key-a", "key-b"].map(|key| Client::open(&sidecar, Some(key)));
    let mut streams = clients.each_ref().map(open);
    for stream in &mut streams {
        stream.any().unwrap();
    }
    let digest = sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    let [alice, bob] = &mut streams;
    assert!(alice.next().is_none(), "it is closed");
    // The scripted server says each thing to one of its streams.
    bob.patience(Duration::from_millis(100));
    eventually("the other goes on", || {
        tell.send(Some(event(&note(1)))).unwrap();
        bob.try_any().ok()?
    });
}

/// Also where another key has opened the stream, which lives on.
#[test]
fn a_key_that_is_revoked_hears_nothing_more_of_what_another_has_opened() {
    for resumes in [false, true] {
        let (server, _tell) = told();
        let both = [("alice", "key-a"), ("alice", "key-b")];
        let sidecar = Sidecar::keyed(&config(server.port), &keys(&both));
        let client = Client::open(&sidecar, Some("key-b"));
        let mut opened = open(&client);
        opened.any().unwrap();
        let last = opened.last.clone();
        drop(opened);
        let client = client.with_key("key-a");
        let request = if resumes { client.rest(&last) } else { client.get() };
        let joined = eventually("it takes the place", || {
            let events = Events::open(&request, sidecar.mcp);
            (events.status == 200).then_some(events)
        });
        assert_eq!(server.seen("GET").len(), 1, "the stream is the one from before");
        sidecar.runs(&sidecar.files.write_with_keys(&config(server.port), &keys(&both[1..])));
        assert!(joined.all().iter().all(|event| !event.has_messages()), "{resumes}");
        // The other goes on.
        let client = client.with_key("key-b");
        assert_eq!(client.send("ping", json!({})).status, 200);
    }
}

/// Nor does it keep anybody from hearing who has joined with a key that lives: some come back only to what breaks off.
#[test]
fn whoever_has_joined_what_a_revoked_key_has_opened_comes_back_with_a_key_that_lives() {
    for (revision, breaks) in [("2025-06-18", true), ("2025-11-25", false)] {
        let (server, _tell) = told();
        let both = [("alice", "key-a"), ("alice", "key-b")];
        let sidecar = Sidecar::keyed(&config(server.port), &keys(&both));
        let client = Client::of(&sidecar, Some("key-a"), revision);
        drop(open(&client));
        let client = client.with_key("key-b");
        let mut joined = eventually("it takes the place", || {
            let events = Events::open(&client.get(), sidecar.mcp);
            (events.status == 200).then_some(events)
        });
        assert_eq!(server.seen("GET").len(), 1, "the stream is the one from before");
        sidecar.runs(&sidecar.files.write_with_keys(&config(server.port), &keys(&both[1..])));
        let end = std::iter::repeat_with(|| joined.try_any()).find(|event| !matches!(event, Ok(Some(_))));
        match end {
            Some(Err(error)) => assert!(breaks && error.kind() == ErrorKind::UnexpectedEof, "{error}"),
            _ => assert!(!breaks, "it ends in order"),
        }
        assert_eq!(open(&client).status, 200);
        assert_eq!(server.seen("GET").len(), 2);
    }
}

/// Also one that is revoked while the server takes its time to open its stream.
#[test]
fn a_key_that_was_revoked_has_nothing_opened() {
    let gate = Gate::default();
    let opens = gate.clone();
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
            return;
        }
        opens.pass();
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(1)));
        scripted::until_closed(stream);
    });
    let sidecar = Sidecar::keyed(&config(server.port), &callers());
    let client = Client::open(&sidecar, Some("key-a"));
    let (get, mcp) = (client.get(), sidecar.mcp);
    let opened = std::thread::spawn(move || Events::open(&get, mcp));
    eventually("the server is asked", || !server.seen("GET").is_empty());
    let digest = sidecar.files.write_with_keys(&config(server.port), &keys(&[("bob", "key-b")]));
    sidecar.runs(&digest);
    gate.open();
    assert_eq!(opened.join().unwrap().next(), None);
}
