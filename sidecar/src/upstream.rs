//! The way to the MCP server: one letter there, one answer back. They are the same for everybody who talks to the server,
//! whatever the server itself speaks; heads of HTTP are only where it is reached over that.
//!
//! The server has two faces, whatever revision it is of. To clients with sessions it is a server with sessions
//! ([`Pool::open`], [`Pool::send`], [`Pool::recall`]), to those whose requests stand alone it is one of those
//! ([`Pool::call`]). Where the server is of the same era the face is the server itself ([`transport`]).
//!
//! * [`speaks`]: what the server speaks; [`legacy_as_modern`]: the face of one with sessions for requests that stand
//!   alone; [`modern_as_legacy`]: the face of one of 2026-07-28 for clients with sessions;
//! * [`transport`]: the way to the server as it is, over [`mod@http`], [`sse`] or [`stdio`];
//! * where many calls share one way: the [`channel`] to it, the two ends of a [`mod@call`], each [`message`] as it is
//!   written there, the [`routes`] from answers back to calls, and what is [`waiting`] for slow readers;
//! * what is sent: the [`letter`]; what comes: an [`answer`] with its [`body`], or one that is [`made`] here, the
//!   [`source`] of events that one is, the [`mod@rest`] of it where it broke off, and the [`tail`] of an answer that somebody has taken;
//! * sessions at the server: their [`opener`], how long one [`starts`], one that is on [`hold`] until its client has it,
//!   those that nobody waits for ([`abandoned_handshakes`]), and those that the server has [`forgotten`];
//! * when it is asked again: after its [`absence`], and for a stream that it has ended, after which [`pause`]; what may be
//!   [`missed`] there is a [`gap`], and the server may be another one by then.

mod abandoned_handshakes;
mod absence;
mod answer;
mod body;
pub(crate) mod call;
mod channel;
pub(crate) mod forgotten;
pub(crate) mod gap;
mod hold;
mod http;
mod legacy_as_modern;
pub(crate) mod letter;
mod made;
mod message;
pub(crate) mod missed;
pub(crate) mod modern_as_legacy;
mod opener;
mod pause;
mod rest;
mod routes;
pub(crate) mod source;
mod speaks;
pub(crate) mod sse;
pub(crate) mod starts;
pub(crate) mod stdio;
mod tail;
mod transport;
mod waiting;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::http::{HeaderValue, StatusCode};
use longshore_mcp::Text;
use longshore_mcp::detect::Modern;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::{Config, Upstream};
use thiserror::Error;
use tokio::time::{Duration, Instant};

use crate::shared::Shared;
pub(crate) use abandoned_handshakes::Unwanted;
pub(crate) use absence::{AGAIN, Absence};
pub(crate) use answer::{Also, Answer, Form};
pub(crate) use body::{Body, Broken};
use call::Events;
pub(crate) use hold::Hold;
pub(crate) use http::{Lease, RECEIVED, Unanswered};
use legacy_as_modern::Asked;
pub(crate) use legacy_as_modern::LegacyAsModern;
pub(crate) use letter::{Letter, Post};
pub(crate) use message::Known;
pub(crate) use modern_as_legacy::ModernAsLegacy;
use modern_as_legacy::Opened;
pub(crate) use opener::{Begins, Opener};
pub(crate) use pause::Pause;
pub(crate) use rest::rest;
pub(crate) use speaks::{Speaks, Spoken};
pub(crate) use tail::Tail;
pub(crate) use transport::{NoRoom, Transport};

/// The largest message of a server that is read as a whole, to be looked into or edited.
pub(crate) const EDITABLE: usize = 32 * 1024 * 1024;

/// The two faces of the server, for one thread.
pub(crate) struct Pool {
    transport: Rc<Transport>,
    speaks: Arc<Speaks>,
    modern_as_legacy: Arc<ModernAsLegacy>,
    legacy_as_modern: Arc<LegacyAsModern>,
}

/// A number for a request that the sidecar makes, or makes anew: never the same one twice in this process, since a
/// server that gives no session ids goes by them whoever asks.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A number that nobody guesses; none, if the system gives none.
pub(crate) fn random() -> Option<u128> {
    /// Drawn ahead, since to ask the system costs as much for many as for one. What is given is not kept: who once reads
    /// this memory must not find the numbers of those who are there.
    type Drawn = (usize, [[u8; 16]; 32]);
    thread_local!(static DRAWN: RefCell<Drawn> = const { RefCell::new((0, [[0; 16]; 32])) });
    DRAWN.with_borrow_mut(|(left, numbers)| {
        if *left == 0 {
            getrandom::fill(numbers.as_flattened_mut()).ok()?;
            *left = numbers.len();
        }
        *left -= 1;
        Some(u128::from_ne_bytes(std::mem::take(&mut numbers[*left])))
    })
}

/// How long a request waits until it is known what the server speaks: most containers that restart are back by then.
const KNOWN: Duration = Duration::from_secs(4);

/// What is known of a session that was begun before this sidecar was: its id holds it.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    /// Whose it is.
    pub(crate) opener: Opener,
    /// The revision that the server speaks in it.
    pub(crate) revision: Revision,
    /// What its client can do, as JSON; `None` if nobody knows any more.
    pub(crate) capabilities: Option<String>,
    /// What its client has set, as far as is known.
    pub(crate) set: longshore_sessions::message::Copy,
}

/// What became of a session that was begun before this sidecar was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It goes on, under the id that the server gave it.
    GoesOn,
    /// The server has forgotten it, so it has to be begun again or to end.
    Forgotten,
}

/// Why a request got no answer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// From a server over HTTP.
    #[error(transparent)]
    Http(#[from] Unanswered),
    /// From a process.
    #[error(transparent)]
    Call(#[from] call::Failure),
    /// In a session that is kept here.
    #[error(transparent)]
    ModernAsLegacy(modern_as_legacy::Failure),
    /// From a server over HTTP+SSE, where a session was to begin.
    #[error(transparent)]
    Sse(#[from] sse::Failure),
    /// From a server with sessions, for a request that stands alone.
    #[error(transparent)]
    LegacyAsModern(#[from] legacy_as_modern::Unusable),
    /// Nobody knows what the server speaks: it is not there, or says nothing that can be understood.
    #[error("it is not known what the server speaks")]
    Unknown,
}

impl Failure {
    /// Whether the server was not there at all, so that nothing of the request was seen.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::Http(Unanswered::Refused { .. }) => true,
            Self::Http(Unanswered::Lost(_)) => false,
            Self::Call(call::Failure::Process(gone)) => matches!(gone.why, stdio::Why::Unavailable(_)),
            Self::Call(call::Failure::Absent { .. }) => true,
            Self::Call(_)
            | Self::Sse(_)
            | Self::ModernAsLegacy(_)
            | Self::LegacyAsModern(_)
            | Self::Unknown => false,
        }
    }
}

impl Pool {
    /// The ways of one thread, with what the threads share.
    pub(crate) fn of(shared: &Shared) -> Self {
        Self {
            transport: Rc::new(Transport::new(
                shared.pace.clone(),
                shared.stdio.clone(),
                shared.sse.clone(),
                shared.held.clone(),
                shared.doubt.clone(),
            )),
            speaks: shared.speaks.clone(),
            modern_as_legacy: shared.modern_as_legacy.clone(),
            legacy_as_modern: shared.legacy_as_modern.clone(),
        }
    }

    /// Closes connections that are not used again, for as long as the process lives.
    pub(crate) async fn sweep(&self) {
        self.transport.sweep().await;
    }

    /// Sends a message in a session, and waits for the head of the answer. A server that is to be spoken to in one
    /// revision is of no other, before it has said anything too. What the message is may be `known`.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        pin: Option<Revision>,
        letter: Letter,
        known: Option<&Known>,
    ) -> Result<Answer, Failure> {
        let session = letter.session().and_then(|id| self.modern_as_legacy.find(id));
        if session.is_none() {
            // It may be one of the server's own, begun before anybody knew what else it speaks.
            self.speaks.asked_for_sessions(KNOWN).await;
        }
        match (session, self.spoken(pin)) {
            // The server has changed: it has sessions of its own now and nothing else, and this is none of them.
            (Some(session), Some(Spoken { legacy: Some(_), modern: None })) => {
                self.modern_as_legacy.end(session.name());
                Ok(Answer::empty(StatusCode::NOT_FOUND))
            }
            (Some(session), _) => {
                let (here, transport) = (&self.modern_as_legacy, &self.transport);
                Box::pin(modern_as_legacy::send(here, transport, &self.speaks, upstream, session, letter))
                    .await
            }
            (None, _) if letter.session().is_some_and(ModernAsLegacy::was_one) => {
                Ok(Answer::empty(StatusCode::NOT_FOUND))
            }
            (None, Some(Spoken { legacy: None, .. })) => {
                if letter.session().is_some() {
                    return Ok(Answer::empty(StatusCode::NOT_FOUND));
                }
                // A session that the server had no name for, when it was another one.
                Err(modern_as_legacy::Failure::Forgotten.into())
            }
            (None, _) => self.transport.send_known(upstream, letter, known).await,
        }
    }

    /// Sends the message that opens a session, and waits for the head of the answer. What the session costs is given
    /// back unless the hold is kept.
    pub(crate) async fn open(
        &self,
        upstream: &Upstream,
        pin: Option<Revision>,
        opener: Opener,
        post: Post,
    ) -> Result<(Answer, Hold), Failure> {
        if matches!(opener, Opener::Client { .. }) {
            self.speaks.asked_for_sessions(KNOWN).await;
        }
        let is_known = self.speaks.get().is_some();
        match self.spoken(pin) {
            Some(Spoken { legacy: None, modern: Some(revision) }) => {
                match self.lower(upstream, &opener, post.clone(), revision).await? {
                    Opened::Answered(answer, hold) => {
                        if !is_known && matches!(answer.also, Also::BeginsHere(_)) {
                            self.speaks.set(Some(Spoken::only(revision)));
                        }
                        Ok((*answer, hold))
                    }
                    Opened::Legacy(refusal) if pin.is_some() => Ok((*refusal, Hold::nothing())),
                    Opened::Legacy(_) => {
                        self.speaks.set(None);
                        // Whoever watches it finds out what it is.
                        self.transport.doubt.raise();
                        self.open_there(upstream, opener, post).await
                    }
                }
            }
            Some(_) => self.open_there(upstream, opener, post).await,
            None => {
                let (answer, hold) = self.open_there(upstream, opener.clone(), post.clone()).await?;
                if !modern_as_legacy::may_be_modern(&answer) {
                    return Ok((answer, hold));
                }
                // Nobody has found out yet what the server speaks, or what it speaks by now.
                let revision = Revision::V2026_07_28;
                match self.lower(upstream, &opener, post, revision).await {
                    Ok(Opened::Answered(begun, hold)) if matches!(begun.also, Also::BeginsHere(_)) => {
                        self.speaks.set(Some(Spoken::only(revision)));
                        Ok((*begun, hold))
                    }
                    Ok(_) | Err(_) => Ok((answer, hold)),
                }
            }
        }
    }

    /// Opens one of the server's own. Those that were opened for requests that stand alone make room for it.
    async fn open_there(
        &self,
        upstream: &Upstream,
        opener: Opener,
        post: Post,
    ) -> Result<(Answer, Hold), Failure> {
        let open = || self.transport.open(upstream, opener.clone(), post.clone());
        self.legacy_as_modern.open_with_room(&self.transport, upstream, &opener, open).await
    }

    async fn lower(
        &self,
        upstream: &Upstream,
        opener: &Opener,
        post: Post,
        revision: Revision,
    ) -> Result<Opened, Failure> {
        modern_as_legacy::open(
            &self.modern_as_legacy,
            &self.transport,
            &self.speaks,
            upstream,
            opener,
            post,
            revision,
        )
        .await
    }

    /// The same at the server itself, whatever it is known to speak.
    pub(crate) async fn open_itself(
        &self,
        upstream: &Upstream,
        opener: Opener,
        post: Post,
    ) -> Result<(Answer, Hold), Failure> {
        self.transport.open(upstream, opener, post).await
    }

    /// A session that came with an answer of the server itself to something else, under this id: it ends when this is
    /// dropped.
    pub(crate) fn unwanted(&self, upstream: &Upstream, id: HeaderValue) -> Option<Unwanted> {
        self.transport.unwanted(upstream, id)
    }

    /// A message in a session that was opened so.
    pub(crate) async fn send_itself(&self, upstream: &Upstream, letter: Letter) -> Result<Answer, Failure> {
        self.transport.send(upstream, letter).await
    }

    /// Takes a session up again that a sidecar before this one began in this pod: see [`Transport::recall`].
    pub(crate) async fn recall(
        &self,
        upstream: &Upstream,
        pin: Option<Revision>,
        session: &HeaderValue,
        former: Former,
    ) -> Result<Recalled, Failure> {
        self.speaks.asked_for_sessions(KNOWN).await;
        if self.keeps_sessions(pin) {
            // The server had sessions of its own then.
            return Ok(Recalled::Forgotten);
        }
        self.transport.recall(upstream, session, former).await
    }

    /// Why a session of this opener's would wait for its process.
    pub(crate) fn lacks_place_now(&self, upstream: &Upstream, opener: &Opener) -> Option<call::Failure> {
        self.transport.lacks_place_now(upstream, opener)
    }

    /// How long a handshake with a server may take that somebody waits for.
    pub(crate) fn handshake_patience(&self, upstream: &Upstream) -> Duration {
        self.transport.handshake_patience(upstream)
    }

    /// How long it may take to begin a session again.
    pub(crate) fn beginning_patience(&self, upstream: &Upstream) -> Duration {
        self.transport.beginning_patience(upstream)
    }

    /// How long the handshake of a client may take.
    pub(crate) fn opening_patience(&self, config: &Config) -> Duration {
        self.transport.opening_patience(config)
    }

    /// Notes that a server has answered for the first time within so long of its start.
    pub(crate) fn started_within(&self, upstream: &Upstream, took: Duration) {
        self.transport.started_within(upstream, took);
    }

    /// The number of the process that serves a session which the server calls so, where each has processes.
    pub(crate) fn process_of(&self, session: &HeaderValue) -> Option<u64> {
        self.transport.process_of(session)
    }

    /// Whether sessions are kept here, since the server has none.
    pub(crate) fn keeps_sessions(&self, pin: Option<Revision>) -> bool {
        matches!(self.spoken(pin), Some(Spoken { legacy: None, modern: Some(_) }))
    }

    /// What the server speaks: what was found out, or else what is said.
    fn spoken(&self, pin: Option<Revision>) -> Option<Spoken> {
        self.speaks.get().or(pin.map(Spoken::only))
    }

    /// What the server speaks, as far as it is known when there was time to find out. Nobody waits to hear what is said:
    /// that requests stand alone there.
    pub(crate) async fn known(&self, pin: Option<Revision>) -> Option<Spoken> {
        match self.spoken(pin) {
            Some(spoken @ Spoken { legacy: None, .. }) => Some(spoken),
            _ => self.speaks.known(Instant::now() + KNOWN).await,
        }
    }

    /// Sends a request that stands alone, read as what it says, and waits for the head of the answer. Who drops this, or the
    /// answer, cancels it.
    pub(crate) async fn call(
        &self,
        upstream: &Upstream,
        pin: Option<Revision>,
        opener: &Opener,
        post: Post,
        modern: &Modern<'_>,
    ) -> Result<Answer, Failure> {
        let older = match self.known(pin).await {
            // It may have been found to speak that since the call began to wait, and knows nothing of its state. The call
            // goes on in the revision that it has.
            Some(Spoken { modern: Some(_), legacy }) if self.is_waited_for(modern) => {
                Some(legacy.unwrap_or(Revision::NEWEST_WITH_INITIALIZE))
            }
            Some(Spoken { modern: Some(_), .. }) => None,
            Some(Spoken { legacy: Some(revision), modern: None }) => Some(revision),
            Some(Spoken { legacy: None, modern: None }) | None => return Err(Failure::Unknown),
        };
        match older {
            None => self.transport.call(upstream, opener, post).await,
            Some(revision) => {
                let asked = Asked::of(post, modern);
                Box::pin(legacy_as_modern::call(
                    &self.legacy_as_modern,
                    &self.transport,
                    upstream,
                    revision,
                    opener,
                    asked,
                ))
                .await
            }
        }
    }

    /// Whether a request goes on with a call that was parked here, as one of a server with sessions. That may be over.
    fn is_waited_for(&self, modern: &Modern<'_>) -> bool {
        asked_state(modern.method, &modern.outline).is_some_and(|state| self.legacy_as_modern.holds(&state))
    }

    /// Ends all that is kept here of the server from before, since another one is configured.
    pub(crate) fn end_all(&self) {
        self.modern_as_legacy.end_all();
        self.legacy_as_modern.end_all(&self.transport);
        self.speaks.set(None);
    }

    /// Leaves the sessions of [`Pool::call`] that a server which may have been restarted has forgotten, if it was, without
    /// anything else that would say so: whoever listens is told by the end of their streams.
    pub(crate) fn leave_unheard(&self) {
        self.legacy_as_modern.leave_unheard();
    }

    /// Ends, for as long as the process lives, the sessions of [`Pool::call`] that nobody has used for a while.
    pub(crate) async fn expire(&self) {
        legacy_as_modern::expire(self.legacy_as_modern.clone(), self.transport.clone()).await;
    }

    /// What the server speaks.
    pub(crate) fn speaks(&self) -> &Speaks {
        &self.speaks
    }
}

/// What a request brings back of a call in which its client was asked. In one that asks nobody anything it means nothing.
pub(crate) fn asked_state<'a>(method: Method, outline: &Outline<'a>) -> Option<Text<'a>> {
    method.may_need_input().then(|| outline.request_state().ok().flatten()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_a_number_that_another_has() {
        let draw = || (0..100).map(|_| random().unwrap()).collect::<Vec<_>>();
        let mut numbers = [std::thread::spawn(draw).join().unwrap(), draw()].concat();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == 200 && numbers[0] != 0, "{numbers:?}");
    }
}
