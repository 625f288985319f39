//! What a client is told that comes back to what belongs to no call after something that nobody knows any more: that
//! everything may have changed which it would have heard of.

use longshore_mcp::listen::{Offers, Wishes};
use longshore_sidecar_config::inventory::ServerDescription;

use crate::sessions::Session;
use crate::stack::standing;
use crate::streams::Reader;
use crate::worker::Worker;

/// Tells it so, if that is so. Of a call its answer alone has to be heard.
pub(super) fn tell(worker: &Worker, session: &Session, reader: &Reader) {
    if !reader.has_missed() || !reader.is_own() {
        return;
    }
    tell_all(worker, session, |message| reader.tell(message));
}

/// Tells it what it may have missed, by whatever it is to `hear` it.
pub(super) fn tell_all(worker: &Worker, session: &Session, hear: impl Fn(&[u8])) {
    for message in changed(worker, session) {
        // A resource that it may not read any more is none of its business.
        if standing::may_hear(&worker.shared, session.principal(), message.as_bytes()) {
            hear(message.as_bytes());
        }
    }
}

/// All that may have changed: the lists of which the server says that it tells, and what the client has subscribed to,
/// whatever the server says of that.
fn changed(worker: &Worker, session: &Session) -> Vec<String> {
    let offers = worker.shared.view.borrow().server.as_ref().map_or(EVERYTHING, offers);
    let mut wishes = Wishes::new(Offers { updates: true, ..offers });
    for uri in session.copy().subscriptions {
        // There are fewer than may be.
        let _ = wishes.subscribe(&uri);
    }
    wishes.missed()
}

/// What a server tells of which nothing is known yet.
const EVERYTHING: Offers = Offers { tools: true, prompts: true, resources: true, updates: true };

fn offers(server: &ServerDescription) -> Offers {
    Offers::read(&server.capabilities.to_string())
}
