//! Goes on with a session that this sidecar did not open: with what the server knows of it still, or anew.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;
use longshore_mcp::revision::Revision;
use longshore_sessions::message::Copy;
use longshore_sessions::routing::Take;
use longshore_sessions::{Capsule, ServerSession};
use tokio::time::{Duration, Instant, timeout};

use super::setting::SETTING;
use super::{Full, Place, Session, Sessions, Use};
use crate::configuration::Snapshot;
use crate::exchange;
use crate::metrics::SessionTaken;
use crate::monitor::{CallError, Server};
use crate::refusal::Refusal;
use crate::upstream::Hold;
use crate::upstream::{Former, Opener, Pool, Recalled};

/// How long to wait until it is known what the server speaks: who watches it finds out as soon as it is there.
const KNOWN: Duration = Duration::from_secs(5);

/// What became of a session that was to go on.
pub(super) enum Begun {
    /// It goes on here.
    Session(Box<Session>, SessionTaken),
    /// It cannot: what the server knew in it is gone.
    Lost,
}

/// One that was begun with the server once more.
struct Anew {
    /// What the server calls it.
    upstream: Option<HeaderValue>,
    hold: Hold,
}

/// Goes on with a session that was opened by a sidecar before this one, or by another replica. It may go on elsewhere if
/// there is no room for it here, or not.
pub(super) async fn begin(
    pool: &Rc<Pool>,
    sessions: &Arc<Sessions>,
    snapshot: &Snapshot,
    principal: &Arc<str>,
    capsule: &Capsule,
    (take, may_go_on): (Take, bool),
    copy: Copy,
) -> Result<Begun, Refusal> {
    let go_on = |place: Place, upstream: Option<HeaderValue>, copy: Copy| {
        let session = Session::new(capsule.clone(), place, upstream, sessions.now().0);
        session.with(copy, &sessions.subscriptions)
    };
    let may_begin_again = async || sessions.can_move(capsule) && is_as_it_was(pool, snapshot, capsule).await;
    let may_be_there =
        matches!((take, &capsule.server), (_, ServerSession::None) | (Take::Up, ServerSession::Id(_)));
    // A client whose session is lost begins another one. To hear that there is no room here would hold it up.
    if !may_be_there && !may_begin_again().await {
        return Ok(Begun::Lost);
    }
    let place = sessions.reserve(principal, snapshot)?;
    let how = match take {
        Take::Up => SessionTaken::Restarted,
        Take::Adopt => SessionTaken::Adopted,
    };
    let opener = Opener::client(principal, &snapshot.config);
    match (take, &capsule.server) {
        (Take::Up, ServerSession::None) => {
            return Ok(Begun::Session(Box::new(go_on(place, None, copy)), how));
        }
        // Its server is found to be of another kind by the first message that it refuses.
        (Take::Adopt, ServerSession::None) => {
            return Ok(Begun::Session(Box::new(go_on(place, None, copy).of_nameless()), how));
        }
        (Take::Up, ServerSession::Id(id)) => {
            let id = secret(id)?;
            let former = former(opener.clone(), capsule, copy.clone());
            if pool.recall(&snapshot.config.upstream, snapshot.protocol, &id, former).await?
                == Recalled::GoesOn
            {
                return Ok(Begun::Session(Box::new(go_on(place, Some(id), copy).of_before()), how));
            }
            if !may_begin_again().await {
                return Ok(Begun::Lost);
            }
        }
        (Take::Up, ServerSession::Unfit | ServerSession::KeptHere) | (Take::Adopt, _) => {}
    }
    match anew(pool, snapshot, opener.again(may_go_on), capsule).await? {
        Some(Anew { upstream, hold }) => {
            // From here on whoever ends the session tells the server.
            hold.keep();
            Ok(Begun::Session(Box::new(go_on(place, upstream, copy)), how))
        }
        None => Ok(Begun::Lost),
    }
}

/// Why a session of another replica would wait here for its process, or have one of somebody else's end that may come back.
pub(super) fn lacks_place(
    pool: &Pool,
    snapshot: &Snapshot,
    principal: &Arc<str>,
    capsule: &Capsule,
) -> Option<Refusal> {
    let needs_one = matches!(capsule.server, ServerSession::Id(_) | ServerSession::Unfit);
    let opener = Opener::client(principal, &snapshot.config);
    let lacking = needs_one.then(|| pool.lacks_place_now(&snapshot.config.upstream, &opener)).flatten();
    lacking.map(Refusal::from)
}

/// Tells the server that a session is over which a sidecar before this one opened, and which nobody has used since: the
/// server knows it still, unless it has gone with its pod.
pub(crate) async fn end_former(
    pool: &Pool,
    snapshot: &Snapshot,
    principal: &Arc<str>,
    capsule: &Capsule,
    take: Take,
) {
    let (Take::Up, ServerSession::Id(id)) = (take, &capsule.server) else { return };
    let Ok(id) = secret(id) else { return };
    let former = former(Opener::client(principal, &snapshot.config), capsule, Copy::default());
    match pool.recall(&snapshot.config.upstream, snapshot.protocol, &id, former).await {
        Ok(Recalled::GoesOn) => exchange::end_named(pool, snapshot, id, capsule.server_revision).await,
        Ok(Recalled::Forgotten) => {}
        Err(error) => tracing::debug!(%error, "the server could not be told that a session has ended"),
    }
}

fn former(opener: Opener, capsule: &Capsule, set: Copy) -> Former {
    let capabilities = capsule.capabilities.as_deref().map(str::to_owned);
    Former { opener, revision: capsule.server_revision, capabilities, set }
}

/// Begins a session again whose server has forgotten it, if it may be begun again. `lost` is what the server called it.
/// Says whether it is there again. A call that goes away meanwhile does not leave it half begun; one that goes away before
/// its turn begins nothing.
pub(crate) async fn begin_again(
    pool: &Rc<Pool>,
    snapshot: &Arc<Snapshot>,
    used: &Use,
    lost: Option<HeaderValue>,
) -> Result<bool, Refusal> {
    let session = &used.session;
    let capsule = &session.capsule;
    // One without a name at its server may go anywhere, but nobody may know by then what its client can do.
    let may_begin_again = used.sessions.can_move(capsule) && capsule.can_begin_again();
    if !may_begin_again || !is_as_it_was(pool, snapshot, capsule).await {
        return Ok(false);
    }
    // One at a time: calls that find out together begin it once.
    let alone = session.beginning.clone().lock_owned().await;
    let (pool, snapshot, used) = (pool.clone(), snapshot.clone(), used.for_request());
    let beginning = async move {
        let _alone = alone;
        begin_whole(&pool, &snapshot, &used, lost.as_ref()).await
    };
    tokio::task::spawn_local(beginning).await.map_err(|_| Refusal::Internal)?
}

/// One that has ended meanwhile is not begun: the server would have it for ever.
async fn begin_whole(
    pool: &Rc<Pool>,
    snapshot: &Arc<Snapshot>,
    used: &Use,
    lost: Option<&HeaderValue>,
) -> Result<bool, Refusal> {
    let session = &used.session;
    if !used.sessions.holds(session) {
        return Err(Refusal::UnknownSession);
    }
    if session.upstream().as_ref() != lost {
        return Ok(true);
    }
    // It is this replica's, and goes nowhere else.
    let opener = Opener::client(session.place.principal(), &snapshot.config).again(false);
    let sessions = &used.sessions;
    let Some(Anew { upstream, hold }) = anew(pool, snapshot, opener, &session.capsule).await? else {
        return Ok(false);
    };
    // First: whoever ends it from now on tells the server of this one.
    session.set_upstream(upstream.clone(), || sessions.set_again(session, Instant::now()));
    if !sessions.holds(session) {
        if let Some(id) = upstream {
            exchange::end_named(pool, snapshot, id, session.server_revision).await;
        }
        return Err(Refusal::UnknownSession);
    }
    hold.keep();
    sessions.until_set_or_late(session).await;
    if sessions.holds(session) { Ok(true) } else { Err(Refusal::UnknownSession) }
}

/// Whether the server may still be spoken to as it was when the session began: in the same revision, where one is said by
/// now, and without sessions, if it had none. Where that is not known in time, the handshake finds out.
async fn is_as_it_was(pool: &Pool, snapshot: &Snapshot, capsule: &Capsule) -> bool {
    let kept_here = capsule.server == ServerSession::KeptHere;
    // What is kept here stands before a server of that revision, whatever its client speaks.
    let spoken = if kept_here { Revision::V2026_07_28 } else { capsule.server_revision };
    if snapshot.protocol.is_some_and(|pin| pin != spoken) {
        return false;
    }
    if !kept_here || pool.keeps_sessions(snapshot.protocol) {
        return true;
    }
    pool.speaks().known(Instant::now() + KNOWN).await;
    pool.keeps_sessions(snapshot.protocol) || pool.speaks().get().is_none()
}

/// The handshake of the client's, once more. None: the server speaks another revision now.
async fn anew(
    pool: &Rc<Pool>,
    snapshot: &Snapshot,
    opener: Opener,
    capsule: &Capsule,
) -> Result<Option<Anew>, Refusal> {
    let capabilities = capsule.capabilities.as_deref().unwrap_or("{}");
    let pin = snapshot.protocol;
    let mut server = Server::of(snapshot.config.upstream.clone(), pool.clone(), opener).pinned(pin);
    let patience = pool.beginning_patience(&snapshot.config.upstream);
    let unfit = match timeout(patience, server.begin_again(capsule.server_revision, capabilities)).await {
        Ok(Ok(())) if capsule.server != ServerSession::KeptHere || pool.keeps_sessions(pin) => None,
        // A server that has sessions keeps what nobody has promised to keep.
        Ok(Ok(()) | Err(CallError::Revision(_))) => Some(Ok(None)),
        Ok(Err(error)) => Some(Err(refusal(error))),
        Err(_) => Some(Err(Refusal::ServerTimedOut { seconds: patience.as_secs_f64() })),
    };
    if let Some(unfit) = unfit {
        // It may be open at the server all the same. Whether that hears of it or not.
        let _ = timeout(SETTING, server.end()).await;
        return unfit;
    }
    let (upstream, hold) = server.into_session();
    Ok(Some(Anew { upstream, hold }))
}

fn refusal(error: CallError) -> Refusal {
    tracing::debug!(%error, "a session could not be begun again");
    match error {
        CallError::Refused { .. } => Refusal::ServerDown,
        CallError::Lost => Refusal::ServerLost,
        CallError::Process(gone) => Refusal::Process(gone),
        CallError::Call(failure) => failure.into(),
        _ => Refusal::ServerNonsense,
    }
}

fn secret(id: &str) -> Result<HeaderValue, Refusal> {
    let mut id = HeaderValue::try_from(id).map_err(|_| Refusal::UnknownSession)?;
    id.set_sensitive(true);
    Ok(id)
}

impl From<Full> for Refusal {
    fn from(full: Full) -> Self {
        match full {
            Full::Total => Self::TooManySessions,
            Full::Principal(limit) => Self::TooManyOwnSessions { limit },
        }
    }
}
