//! A legacy server (with sessions) served to modern clients (whose requests stand alone).
//!
//! Such a client has no session, so the sidecar has one with the server for it ([`sessions`]), opens it when the first
//! request needs it, and ends it when none has for a while. What is a conversation on the server's side is put together
//! here:
//!
//! * [`mod@call`]: one request, under a number of its own in its session. What the server asks in it is put to the client
//!   in a result, and the call waits ([`parking`]) until the client asks again with the answers. What it brings back
//!   with them is sealed, and says which replica holds the call;
//! * [`hearing`]: what the server says that belongs to no call; [`early`]: what it asks there; [`habits`]: how it was seen to
//!   ask; [`listening`]: a client that wants to hear of it; [`missed`]: what nobody has heard of it;
//! * `server/discover` is answered from the handshake.
//!
//! What is translated in a message is the business of `longshore-mcp`.

mod asked;
mod call;
mod client;
mod early;
mod failure;
mod greeting;
mod habits;
mod hearing;
mod listening;
mod missed;
mod parking;
mod session;
mod sessions;
mod source;
mod state;
mod way;

use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use longshore_mcp::error::Code;
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, handshake};
use longshore_sessions::Peer;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::request_state::CallNumber;
use longshore_sidecar_config::Upstream;
use tokio::sync::watch;
use tokio::time::{Duration, sleep};

use super::{Absence, Answer, Failure, Opener, Transport};
use crate::SERVED;
use crate::calls::Calls;
use crate::configuration::Snapshot;
pub(super) use asked::Asked;
use client::Client;
pub(crate) use failure::Failure as Unusable;
use parking::Parking;
use sessions::{Bounds, Purpose, Sessions};
use state::{BadState, Bearer};
use way::Way;

/// What the threads of a process share of it: a client's next request may come to another thread.
pub(crate) struct LegacyAsModern {
    sessions: Arc<Sessions>,
    parking: Arc<Parking>,
    snapshot: ArcSwapOption<Snapshot>,
    /// Which replica holds the calls that wait here.
    me: Peer,
    /// How long a call waits for its client.
    patience: Duration,
    /// Of the servers of calls that go on.
    absence: Absence,
    /// Counts the servers that were configured: what is under way belongs to one of them.
    servers: watch::Sender<u64>,
    /// Whether those who listen are sent away, since the process ends.
    sent_away: watch::Receiver<bool>,
}

impl LegacyAsModern {
    /// None yet.
    pub(crate) fn new(me: Peer, patience: Duration, sent_away: watch::Receiver<bool>) -> Self {
        Self {
            sessions: Arc::default(),
            parking: Arc::default(),
            snapshot: ArcSwapOption::empty(),
            me,
            patience,
            absence: Absence::new(),
            servers: watch::Sender::new(0),
            sent_away,
        }
    }

    /// Takes a configuration, from now on.
    pub(crate) fn configure(&self, snapshot: Arc<Snapshot>) {
        self.snapshot.store(Some(snapshot));
    }

    /// Ends everything that is under way and all sessions: another server takes the place of theirs.
    pub(super) fn end_all(&self, transport: &Rc<Transport>) {
        self.servers.send_modify(|count| *count += 1);
        self.sessions.end_all(transport);
    }

    /// Leaves the sessions in which nothing tells that the server has forgotten them.
    pub(super) fn leave_unheard(&self) {
        self.sessions.leave_unheard();
    }

    /// Opens what may need a process, for which one of these sessions goes that nobody uses.
    pub(super) async fn open_with_room<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        transport: &Transport,
        upstream: &Upstream,
        opener: &Opener,
        open: impl Fn() -> F,
    ) -> Result<T, Failure> {
        self.sessions.open_with_room(transport, upstream, opener, false, || true, open).await
    }

    /// The calls that wait for their clients.
    pub(crate) fn waiting(&self) -> &Calls {
        self.parking.calls()
    }

    /// The other replica that holds the call that this state belongs to, if there is one.
    pub(crate) fn elsewhere(&self, state: &str) -> Option<Peer> {
        let opened = self.snapshot()?.keyring.open_request_state(state)?;
        (opened.owner.pod != self.me.pod).then_some(opened.owner)
    }

    /// Whether a call was parked here under this state. It may be over.
    pub(crate) fn holds(&self, state: &str) -> bool {
        let opened = self.snapshot().and_then(|snapshot| snapshot.keyring.open_request_state(state));
        opened.is_some_and(|opened| opened.owner == self.me)
    }

    /// Whether this principal was given that state with a question, here or at another replica.
    pub(crate) fn has_asked(&self, principal: &str, state: &str) -> bool {
        let opened = self.snapshot().and_then(|snapshot| snapshot.keyring.open_request_state(state));
        opened.is_some_and(|opened| opened.principal == PrincipalDigest::of(principal))
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.load_full()
    }

    fn bounds(&self) -> Option<Bounds> {
        self.snapshot().map(|snapshot| Bounds::of(&snapshot.config.sessions))
    }
}

/// Sends a request that stands alone to a server that speaks revisions up to this one, and waits for the head of the
/// answer. Who drops this, or the answer, cancels it.
pub(super) async fn call(
    legacy_as_modern: &Arc<LegacyAsModern>,
    transport: &Rc<Transport>,
    upstream: &Upstream,
    speaks: Revision,
    opener: &Opener,
    mut asked: Asked,
) -> Result<Answer, Failure> {
    let way = Way::new(legacy_as_modern, transport, upstream, speaks, opener);
    let pair = Pair { client: asked.revision, server: speaks };
    let destination = destination::of(pair, asked.method.as_str());
    // To what asks nobody it is a member that nobody knows.
    let state = asked.state.take().filter(|_| asked.method.may_need_input());
    let (mut client, mut reply) = Client::new(asked);
    match destination {
        Destination::Server => match state {
            Some(state) => {
                reply = reply.of_one_that_comes_back(&client);
                Box::pin(go_on(&way, client, &state)).await;
            }
            None => reply = reply.of(call::run(way, client)),
        },
        Destination::Listen => reply = reply.of(listening::run(way, client)),
        Destination::Handshake => Box::pin(discover(&way, client)).await,
        Destination::Empty | Destination::Level | Destination::Subscription | Destination::Unknown => {
            client.refuse(Code::MethodNotFound, "Method not found").await;
        }
    }
    Ok(reply.begun().await?.respond())
}

/// Gives a client to the call that waits for it. One that is over by then lets go of it.
async fn go_on(way: &Way, mut client: Client, state: &str) {
    let number = match judge(way, &client.asked, state) {
        Ok(number) => number,
        Err(bad) => return client.refuse(Code::InvalidParams, &bad.to_string()).await,
    };
    if let Some(call) = way.legacy_as_modern.parking.take(number, way.principal()) {
        let _ = call.send(client).await;
    }
}

/// The call that a request may go on with, if it brings the state for that.
fn judge(way: &Way, asked: &Asked, state: &str) -> Result<CallNumber, BadState> {
    let snapshot = way.legacy_as_modern.snapshot().ok_or(BadState::Foreign)?;
    let opened = snapshot.keyring.open_request_state(state).ok_or(BadState::Foreign)?;
    let bearer = Bearer { principal: way.principal(), request: asked.digest(), at: &way.legacy_as_modern.me };
    bearer.may_use(&opened, SystemTime::now())?;
    Ok(opened.call)
}

/// Says what the server is, from its handshake.
async fn discover(way: &Way, mut client: Client) {
    let lease = match way.lease(&client.asked, Purpose::Listen).await {
        Ok(lease) => lease,
        Err(failure) => return client.fail(failure).await,
    };
    let session = &lease.session;
    let down = Pair { client: client.asked.revision, server: session.revision }.down();
    match handshake::discovered(down, &session.greeting, &SERVED, &Hints::default()) {
        Ok(result) => client.result(&result).await,
        Err(error) => client.refuse(Code::InternalError, &error.to_string()).await,
    }
}

/// Ends sessions that nobody has used for a while, and what is asked in them for nobody, for as long as the process lives.
pub(super) async fn expire(legacy_as_modern: Arc<LegacyAsModern>, transport: Rc<Transport>) {
    loop {
        let idle = legacy_as_modern.bounds().map_or(Duration::from_secs(1), |bounds| bounds.idle);
        sleep((idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(10))).await;
        legacy_as_modern.sessions.expire(&transport, idle);
        legacy_as_modern.sessions.give_up_late(&transport, legacy_as_modern.patience);
    }
}
