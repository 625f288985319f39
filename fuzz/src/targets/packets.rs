//! What replicas and the shim say, and what session ids hold.

use longshore_sessions::Capsule;
use longshore_sessions::message::{Answer, Message, Question};
use longshore_shim::protocol::{self, Report, Request};

/// A capsule is what [`Capsule::plain`] wrote, and nothing else.
pub(super) fn capsule(bytes: &[u8]) {
    let Some(capsule) = Capsule::of_plain(bytes) else { return };
    let written = capsule.plain();
    let again = Capsule::of_plain(&written).expect("what is written can be read");
    assert_eq!(again.plain(), written);
    if written.len() == bytes.len() {
        assert_eq!(written, bytes, "two texts mean the same session");
        assert_eq!(again, capsule);
    }
}

/// What replicas say is read as it was written.
pub(super) fn replicas(bytes: &[u8]) {
    if let Ok(message) = serde_json::from_slice::<Message<Question>>(bytes) {
        let text = serde_json::to_vec(&message).expect("it can be written");
        assert_eq!(serde_json::from_slice::<Message<Question>>(&text).expect("it is read again"), message);
    }
    if let Ok(message) = serde_json::from_slice::<Message<Answer>>(bytes) {
        let text = serde_json::to_vec(&message).expect("it can be written");
        assert_eq!(serde_json::from_slice::<Message<Answer>>(&text).expect("it is read again"), message);
    }
}

/// What the shim and the sidecar say is read as it was written, and fits into a packet.
pub(super) fn shim(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        let packet = request.encode();
        assert!(packet.len() <= protocol::MAX_PACKET);
        assert_eq!(Request::decode(&packet).expect("it is read again"), request);
    }
    if let Ok(report) = Report::decode(bytes) {
        let packet = report.encode();
        assert!(packet.len() <= protocol::MAX_PACKET);
        let again = Report::decode(&packet).expect("it is read again");
        match (&again, &report) {
            // Words are for people, and only so many of them are sent on.
            (Report::Refused { words, .. }, Report::Refused { words: all, .. }) => {
                assert!(all.starts_with(words))
            }
            _ => assert_eq!(again, report),
        }
    }
}
