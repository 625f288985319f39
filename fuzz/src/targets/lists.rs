//! Lists, and what is told when they change.

use std::collections::BTreeSet;

use longshore_mcp::level::Level;
use longshore_mcp::listen::{Filter, Offers, Streams, Wishes};
use longshore_mcp::listing;
use longshore_mcp::logging::{self, Levels};
use longshore_mcp::meta;
use longshore_mcp::method::List;
use longshore_mcp::object;

use crate::input::{ABLE, CLIENT, Input, is_json, value};

/// A filtered list has nothing that was to be hidden, in any spelling; what stays is as it was.
pub(super) fn filter(bytes: &[u8]) {
    let Some(text) = Input::new(bytes).text() else { return };
    for list in List::ALL {
        // What is kept of them is written into inventories as it is.
        if let Ok(page) = listing::page(text, list) {
            page.entries.iter().for_each(|entry| is_json(entry));
        }
        let keep = |name: &str| name.len().is_multiple_of(2);
        let Ok(filtered) = listing::filter(text, list, keep) else { continue };
        let whole = filtered.rewritten.as_deref().unwrap_or(text);
        is_json(whole);
        assert!(whole.len() <= text.len() + 64);
        let (Some(before), Some(after)) = (value(text), value(whole)) else { continue };
        let entries = after["result"][list.member()].as_array().expect("a list");
        assert_eq!(entries.len(), filtered.kept);
        assert_eq!(
            before["result"][list.member()].as_array().map_or(0, Vec::len),
            filtered.kept + filtered.hidden
        );
        for entry in entries {
            let name = entry[list.key()].as_str().expect("what has no name does not stay");
            assert!(keep(name), "{name:?} was to be hidden");
        }
        let again = listing::filter(whole, list, keep).expect("it is a list");
        assert_eq!((again.hidden, again.rewritten), (0, None));
    }
}

/// Streams of modern clients over one session, and one session over a modern server's stream. Each line is an event: a
/// letter, and a text.
pub(super) fn subscriptions(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let offers = Offers::read(input.text_line().unwrap_or_default());
    let (mut streams, mut wishes) = (Streams::new(), Wishes::new(offers));
    let mut subscribed = BTreeSet::new();
    let mut open: Vec<u64> = Vec::new();
    for at in 0..200 {
        let Some(line) = input.text_line() else { break };
        let Some((event, text)) = line.split_at_checked(1) else { continue };
        match event {
            "o" => {
                let Some(wanted) = Filter::read(text) else { continue };
                let Ok(opened) = streams.open(&at.to_string(), wanted, offers) else { continue };
                let told = value(&opened.acknowledgement).expect("JSON");
                assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], at);
                for uri in opened.subscribe {
                    assert!(subscribed.insert(uri), "it is subscribed to already");
                }
                open.push(opened.stream);
            }
            "c" if !open.is_empty() => {
                let stream = open.remove(text.len() % open.len());
                assert!(streams.end(stream, None).is_some());
                for uri in streams.close(stream) {
                    assert!(subscribed.remove(&uri), "nobody had subscribed to it");
                }
                assert!(streams.end(stream, None).is_none() && streams.close(stream).is_empty());
            }
            "n" => {
                for (stream, message) in streams.deliver(text) {
                    assert!(open.contains(&stream), "it has ended");
                    is_json(&message);
                }
                if let Some(message) = wishes.deliver(text) {
                    let id = object::at(&message, &["params", "_meta", meta::SUBSCRIPTION_ID]);
                    assert_eq!(id, None, "the client has never heard of it");
                }
            }
            "s" => _ = wishes.subscribe(text),
            "u" => _ = wishes.unsubscribe(text),
            "r" => {
                let revision = longshore_mcp::revision::Revision::V2026_07_28;
                if let Some(message) = wishes.request("7", revision, &CLIENT) {
                    is_json(&message);
                    assert!(message.contains(ABLE));
                }
            }
            _ => {}
        }
        let kept: BTreeSet<String> = streams.subscribed().map(str::to_owned).collect();
        assert_eq!(kept, subscribed, "what is subscribed to is what somebody wants");
        assert_eq!(streams.streams().collect::<BTreeSet<_>>(), open.iter().copied().collect());
    }
}

/// A server sends at least what the requests under way have asked for. Each byte begins or ends one.
pub(super) fn levels(bytes: &[u8]) {
    let mut levels = Levels::new();
    let (mut told, mut under_way) = (None, Vec::new());
    for byte in bytes.iter().take(500) {
        let level = Level::ALL.get(usize::from(byte >> 1 & 15)).copied();
        if byte & 1 == 1 {
            told = levels.begin(level).or(told);
            under_way.push(level);
        } else if !under_way.is_empty() {
            levels.end(under_way.remove(usize::from(byte >> 1) % under_way.len()));
        }
        if byte & 0x80 != 0 {
            levels.untold();
            // Whoever begins next has it told for all.
            told = levels.begin(Some(Level::Error));
            levels.end(Some(Level::Error));
        }
        if let Some(lowest) = under_way.iter().flatten().min() {
            assert!(told.is_some_and(|told| told <= *lowest), "{told:?} hides {lowest:?}");
        }
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    if logging::is_wanted(text, Some(Level::Error)) {
        assert!(logging::is_wanted(text, Some(Level::Debug)), "a lower level wants more");
        assert!(!logging::is_wanted(text, None), "nobody asked");
    }
    _ = logging::level_of(text);
}
