//! What a server may have told while nobody listened to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Streams, break_off, breaks_off, subscribes_at_once, tell, telling, telling_unless, wanted};
use crate::harness::{Events, eventually};
use crate::modern_as_legacy::{able, sidecar};

#[test]
fn r073_what_may_have_been_missed_is_said_when_the_stream_is_back() {
    let (server, streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://a"}));
    let mut events = Events::open(&client.get(), sidecar.mcp);
    breaks_off(&streams);
    let heard: Vec<_> = (0..3).map(|_| events.next().unwrap().message()["method"].clone()).collect();
    assert_eq!(
        heard,
        [
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated"
        ]
    );
    assert_eq!(wanted(&streams).len(), 1, "it is open again");
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://a"}));
    assert_eq!(events.next().unwrap().message()["params"]["uri"], "test://a");
}

/// Many servers cut off whatever takes long.
#[test]
fn r073_a_stream_that_breaks_off_soon_again_is_no_reason_to_read_everything_anew() {
    let (server, streams) = telling();
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    client.ask("resources/subscribe", json!({"uri": "test://a"}));
    let mut events = Events::open(&client.get(), sidecar.mcp);
    for _ in 0..2 {
        breaks_off(&streams);
    }
    eventually("it listens again", || wanted(&streams).len() == 1);
    tell(&streams, "notifications/resources/updated", json!({"uri": "test://a/part"}));
    let heard: Vec<_> = (0..4).map(|_| events.next().unwrap().message()["params"]["uri"].clone()).collect();
    assert_eq!(heard, [Value::Null, Value::Null, json!("test://a"), json!("test://a/part")]);
}

/// Where the old one goes before the new one is there.
#[test]
fn r073_what_may_have_been_missed_between_two_streams_is_said_as_well() {
    let open = Arc::<Mutex<Streams>>::default();
    let all = open.clone();
    let (server, streams) = telling_unless(move |wanted| {
        if wanted.get("resourceSubscriptions").is_some() {
            break_off(&all.lock().unwrap());
            // It is seen to have gone.
            std::thread::sleep(Duration::from_millis(700));
        }
        false
    });
    *open.lock().unwrap() = streams;
    let sidecar = sidecar(&server);
    let client = able(&sidecar, "2025-11-25");
    let mut events = Events::open(&client.get(), sidecar.mcp);
    let taken = client.ask("resources/subscribe", json!({"uri": "test://a"}));
    assert_eq!(taken["result"], json!({}), "{taken}");
    assert_eq!(events.next().unwrap().message()["method"], "notifications/tools/list_changed");
    // Nor is the next one later each time for that.
    for number in 0..6 {
        subscribes_at_once(&client, &format!("test://{number}"), true);
    }
}
