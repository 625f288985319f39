//! What nobody has heard of what the server said in a session that belongs to no call.

use std::sync::Weak;

use futures::future::join_all;

use super::listening::give;
use super::session::Session;
use crate::upstream::gap::Gap;

/// Makes up for it, now that the server is heard again: those who listen are told that all that they asked for may have
/// changed. Says whether the session goes on.
pub(super) async fn make_up(session: &Weak<Session>, gap: &mut Gap) -> bool {
    let Some(session) = session.upgrade() else { return false };
    tell_all(&session).await;
    gap.note_told();
    true
}

/// Tells each stream what it may have missed, as fast as it is read.
async fn tell_all(session: &Session) {
    let missed: Vec<_> = session.with_streams(|streams, listeners| {
        let to = |(stream, messages)| Some((stream, listeners.get(&stream)?.clone(), messages));
        streams.missed().filter_map(to).collect()
    });
    let tell = missed.into_iter().map(|(stream, to, messages)| async move {
        for message in messages {
            if !give(session, stream, &to, message).await {
                return;
            }
        }
    });
    join_all(tell).await;
}
