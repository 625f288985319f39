//! What nobody has heard of what the server said in a session that belongs to no call.

use std::rc::Rc;
use std::sync::Weak;

use futures::future::join_all;

use super::listening::{give, subscribe_again};
use super::session::Session;
use crate::upstream::Transport;
use crate::upstream::missed::{Missed, Told};

/// Makes up for it, now that the server is heard again: those who listen are told that all that they asked for may have
/// changed. Says whether the session goes on.
///
/// A server that gives no session ids may be another one by now, and is told first what the one before was: what changes
/// before it knows that, nobody hears of. Where it refuses any of it the session is left: those who listen are told by the end
/// of their streams, and hear what is promised when they ask again. One that has only no time for all of it may be asked for
/// too much, if it was there all the time: it is asked once more.
pub(super) async fn make_up(session: &Weak<Session>, transport: &Rc<Transport>, missed: &mut Missed) -> bool {
    let Some(session) = session.upgrade() else { return false };
    let mut told = Told::Nothing;
    if missed.may_be_anothers(session.is_named()) {
        session.forget_levels();
        match subscribe_again(&session, transport).await {
            Ok(()) => told = Told::All,
            Err(untaken) if untaken.is_refused || missed.is_doubtful() => {
                session.leave();
                return false;
            }
            Err(_) => missed.note_doubtful(),
        }
    }
    tell_all(&session).await;
    missed.note_told(told, session.is_named());
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
