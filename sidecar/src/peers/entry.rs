//! The way in for a replica that DNS does not list yet: the Service that clients use leads to one that is ready,
//! whatever name servers keep. That one says whom it knows, and is told of this one.
//!
//! DNS may be behind by half a minute, and in two rollouts within that time all of those whom it lists have gone. And
//! where nobody is ready yet, as of a new server, it has nothing to say either: asked too early it would keep that.

use longshore_sessions::{Answer, Message, Question};
use tokio::time::{Duration, Instant};

use super::connection::Failure;
use super::names::Names;
use super::{News, ask};
use crate::shared::Shared;

/// After how long it is asked there again, at first: longer and longer, up to [`LONGEST`]. It leads to another one each time.
const FIRST: Duration = Duration::from_secs(1);
/// Of a new server nobody is ready yet, and DNS lists its pods soon.
const LONGEST: Duration = Duration::from_secs(8);

/// For how long DNS is asked nothing at the start, until it is known whether anybody is ready: where nobody is, the
/// address of a Service refuses connections, as soon as the proxies of its node know it. Readiness does not wait for
/// much longer, in clusters where it never does.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// For how long at most it is asked nothing where nobody is.
pub(super) const MOST: Duration = Duration::from_secs(20);
/// After how long the way in is tried again meanwhile.
pub(super) const AGAIN: Duration = Duration::from_millis(500);
/// For how long DNS is asked nothing once it leads somewhere, to a replica of which DNS may know nothing yet: proxies are
/// told of ready pods by the same watch as name servers are of all, but by another object, which may come seconds later.
pub(super) const LISTED: Duration = Duration::from_secs(3);

/// When to ask there, and where that is.
pub(super) struct Entry {
    name: String,
    next: Option<Instant>,
    pause: Duration,
}

impl Entry {
    pub(super) fn new(name: String) -> Self {
        Self { name, next: None, pause: FIRST }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether to ask there now. `overlooked`: DNS does not list this replica.
    pub(super) fn is_due(&mut self, overlooked: bool, now: Instant) -> bool {
        if !overlooked {
            (self.next, self.pause) = (None, FIRST);
            return false;
        }
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.next = Some(now + self.pause);
        self.pause = LONGEST.min(2 * self.pause);
        true
    }
}

/// Asks whoever is there, and notes what they say. Who it is, is not known before: it may be this replica itself. Gives
/// whether it is settled. The connection is refused where nobody is ready.
pub(super) async fn enter(shared: &Shared, names: &Names, name: &str) -> Result<bool, Failure> {
    let addresses = names.look_up(name).await.map_err(|_| Failure::TimedOut)?;
    let to = *addresses.first().ok_or(Failure::TimedOut)?;
    let local = &shared.peers.0.local;
    let question = Message { from: local.introduction(), body: Question::Heartbeat };
    let text = serde_json::to_vec(&question).map_err(|_| Failure::Broken)?;
    let answer = ask::once(shared, to, text.into()).await?;
    let answer: Message<Answer> = serde_json::from_slice(&answer).map_err(|_| Failure::Declined)?;
    local.note(News::Heard(&answer.from));
    Ok(answer.from.settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_less_and_less_often_until_dns_lists_this_replica() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut entry = Entry::new("entry".to_owned());
        let asked: Vec<_> = (0..32).filter(|second| entry.is_due(true, at(*second))).collect();
        assert_eq!(asked, [0, 1, 3, 7, 15, 23, 31]);
        assert!(!entry.is_due(false, at(32)));
        let asked: Vec<_> = (33..36).filter(|second| entry.is_due(true, at(*second))).collect();
        assert_eq!(asked, [33, 34]);
    }
}
