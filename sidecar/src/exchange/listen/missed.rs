//! What a client is told that comes back after something that nobody knows any more: of what belongs to no call, that
//! everything may have changed which it would have heard of; of a call, that something is missing, if it hears of such.

use longshore_mcp::level::Level;
use longshore_mcp::listen::{Offers, Wishes};

use crate::sessions::Session;
use crate::shared::Shared;
use crate::stack::standing;
use crate::streams::Reader;
use crate::worker::Worker;

const INCOMPLETE: &str = concat!(
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"longshore","#,
    r#""data":"some of what the server said in this call before its answer is not kept any more"}}"#
);

/// Tells it so, if that is so.
pub(super) fn tell(worker: &Worker, session: &Session, reader: &Reader) {
    if !reader.has_missed() || !reader.is_own() {
        return;
    }
    tell_all(worker, session, |message| reader.tell(message));
}

/// What it is told that comes back to a call of which not all is kept. Its answer alone has to be heard, so who asks for no
/// log messages that are worth a warning is told nothing.
pub(super) fn of_a_call(session: &Session) -> Option<&'static str> {
    let hears = session.copy().log_level.is_some_and(|level| level <= Level::Warning);
    hears.then_some(INCOMPLETE)
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

/// Tells it that its lists may have changed, as they do with the rules by which it sees them.
pub(super) fn tell_lists(worker: &Worker, hear: impl Fn(&[u8])) {
    let lists = Wishes::new(Offers { updates: false, ..offers(&worker.shared) });
    lists.missed().iter().for_each(|message| hear(message.as_bytes()));
}

/// All that may have changed: the lists of which the server says that it tells, and what the client has subscribed to,
/// whatever the server says of that.
fn changed(worker: &Worker, session: &Session) -> Vec<String> {
    let mut wishes = Wishes::new(Offers { updates: true, ..offers(&worker.shared) });
    for uri in session.copy().subscriptions {
        // There are fewer than may be.
        let _ = wishes.subscribe(&uri);
    }
    wishes.missed()
}

/// What a server tells of which nothing is known yet.
const EVERYTHING: Offers = Offers { tools: true, prompts: true, resources: true, updates: true };

/// What the server says that it tells.
pub(in crate::exchange) fn offers(shared: &Shared) -> Offers {
    let view = shared.view.borrow();
    view.server.as_ref().map_or(EVERYTHING, |server| Offers::read(&server.capabilities.to_string()))
}
