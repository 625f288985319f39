//! How such a server answers what a test does not ask of it.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::Gate;

/// How a server greets.
#[derive(Clone)]
pub(super) struct Manners {
    pub(super) capabilities: Value,
    /// Who it says that it is.
    pub(super) info: Value,
    /// The revision that it speaks; without one, whatever it is asked for.
    pub(super) revision: Option<&'static str>,
    /// It serves requests that stand alone too.
    pub(super) modern: bool,
    /// How it answers a handshake that is not the sidecar's own, if not at once.
    pub(super) greets: Option<Greeting>,
    /// What is waited for before it takes `notifications/roots/list_changed`.
    pub(super) hears: Option<Gate>,
    /// What is waited for before it ends a session.
    pub(super) ends: Option<Gate>,
    /// It refuses handshakes for other revisions than its own, and says which that is.
    pub(super) strict: bool,
    /// Or does not say which, but this.
    pub(super) says: Option<&'static str>,
    /// It gives sessions no names.
    pub(super) nameless: bool,
    /// Nor the sidecar's own.
    pub(super) knows_nobody: bool,
    /// It gives clients' sessions this name.
    pub(super) name: Option<String>,
    /// What it does with answers is for the test to say.
    pub(super) answered: bool,
    /// And what it does with notifications and the ends of sessions.
    pub(super) told: bool,
    /// And with pings.
    pub(super) pinged: bool,
    /// How it answers the pings of the sidecar's own, one after the other, by status and error; those that follow well.
    pub(super) pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    /// How it answers a handshake of the sidecar's own in this revision, if not as any other.
    pub(super) greets_again: Option<(&'static str, Greeting)>,
    /// Such a handshake in this revision begins a client's session again, which has a name of its own.
    pub(super) begins_again: Option<&'static str>,
    /// How many sessions it has given to clients, each of which has a name of its own.
    pub(super) counts: Option<Arc<AtomicUsize>>,
}

/// How a handshake is answered.
#[derive(Clone)]
pub(crate) enum Greeting {
    /// When the gate is open.
    At(Gate),
    /// The answer begins, and does not go on.
    Half,
    /// And then there is nobody any more.
    BrokenOff,
    /// With a result that is none.
    Nonsense,
    /// With an error.
    Refusal,
    /// The same when the gate is open.
    RefusalAt(Gate),
    /// As an event, after these.
    After(Vec<Value>),
}

impl Manners {
    pub(super) fn of(capabilities: Value) -> Self {
        Self {
            capabilities,
            info: json!({"name": "scripted", "version": "1"}),
            revision: None,
            modern: false,
            greets: None,
            hears: None,
            ends: None,
            strict: false,
            says: None,
            nameless: false,
            knows_nobody: false,
            name: None,
            answered: false,
            told: false,
            pinged: false,
            pings: Arc::default(),
            greets_again: None,
            begins_again: None,
            counts: None,
        }
    }
}
