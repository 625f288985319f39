//! What is sent to the server.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use longshore_mcp::method::Method;
use longshore_mcp::revision::Revision;
use longshore_sessions::ServerSession;
use longshore_sidecar_config::Upstream;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{Call, Edit};
use crate::configuration::Snapshot;
use crate::sessions::{Session, integer};
use crate::shared::Shared;
use crate::upstream::Hold;
use crate::upstream::letter::Within;
use crate::upstream::{AGAIN, Answer, Failure, Letter, Opener, Pool, Post, modern_as_legacy, rest};
use crate::worker::Worker;

/// How long the small messages may take that the sidecar sends on its own account.
const ERRAND: Duration = Duration::from_secs(5);

/// Sends the call's message. What a handshake opens at the server is held.
pub(crate) async fn send(call: &Call) -> Result<(Answer, Option<Hold>), Failure> {
    patiently(&call.worker.shared, async || try_send(call).await).await
}

/// Tries to send something. A server that was there until now is waited for a little.
pub(super) async fn patiently<T>(
    shared: &Shared,
    attempt: impl AsyncFn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    loop {
        match attempt().await {
            Err(failure)
                if failure.is_absence()
                    && shared.view.borrow().ever_connected
                    && shared.absence.is_short(Instant::now()) =>
            {
                // Whoever watches the server is to know it too.
                shared.doubt.raise();
                sleep(AGAIN).await;
            }
            sent => return sent,
        }
    }
}

async fn try_send(call: &Call) -> Result<(Answer, Option<Hold>), Failure> {
    let (pool, config, pin) = (&call.worker.pool, &call.snapshot.config, call.snapshot.protocol);
    let post = Post { trace: call.trace.clone(), ..Post::of(call.body.clone()) };
    let Some(session) = call.session.as_deref() else {
        let opener = Opener::client(&call.caller.principal, config);
        let (answer, hold) = Box::pin(pool.open(&config.upstream, pin, opener, post)).await?;
        return Ok((answer, Some(hold)));
    };
    let within = within(session);
    // It was judged by the tasks that the server has in that one. To be judged once more it is as one that was lost.
    if call.naming.as_ref().is_some_and(|naming| naming.within != within.0) {
        return Err(modern_as_legacy::Failure::Forgotten.into());
    }
    call.within.replace(within.0.clone());
    Ok((pool.send(&config.upstream, pin, post.within(within), call.known.as_ref()).await?, None))
}

fn within(session: &Session) -> Within {
    (session.upstream(), session.server_revision)
}

/// The session that the call was sent in, if the server knows it and it was not begun again since: in no other can the rest
/// of a stream be asked for.
pub(super) fn within_still(call: &Call) -> Option<Within> {
    let within = call.session.as_deref().map(within)?;
    (within.0.is_some() && within.0 == *call.within.borrow()).then_some(within)
}

/// Asks for the rest of a stream of events. None: there is none to be had.
pub(crate) async fn resume(call: &Call, last: &str) -> Option<Answer> {
    rest(async || get(&call.worker.pool, &call.snapshot, within_still(call)?, Some(last)).await.ok()).await
}

/// Asks for a stream of events: for the rest of one, or for what belongs to no call.
pub(super) async fn get(
    pool: &Pool,
    snapshot: &Snapshot,
    within: Within,
    last: Option<&str>,
) -> Result<Answer, Failure> {
    pool.send(&snapshot.config.upstream, snapshot.protocol, Letter::stream(within, last), None).await
}

/// Tells the server that nobody waits for a call's answer any more, where that does not take it back by itself: over HTTP
/// the end of a connection says nothing in these revisions. A handshake cannot be cancelled, and what only sets something is
/// not taken back, over no transport (`About::sets`).
pub(crate) fn cancel(call: &Call) {
    let (Edit::Pass | Edit::Filter(_), Some(session), Some(id), Upstream::StreamableHttp { .. }) =
        (call.edit, &call.session, call.id_at_server(), &call.snapshot.config.upstream)
    else {
        return;
    };
    let sets = matches!(
        call.method,
        Some(Method::LoggingSetLevel | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe)
    );
    if sets || session.capsule.server == ServerSession::KeptHere {
        return;
    }
    // Another client's call may have the same id.
    if !session.is_known_to_server() && call.alias.is_none() {
        return;
    }
    let body = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\
         \"params\":{{\"requestId\":{id},\"reason\":\"nobody waits for it any more\"}}}}"
    );
    tell(&call.worker, &call.snapshot, session, body);
}

/// Tells the server something in a session, whether it hears it or not.
pub(super) fn tell(worker: &Worker, snapshot: &Arc<Snapshot>, session: &Session, body: String) {
    let letter = Post::of(body).within(within(session));
    let (pool, snapshot) = (worker.pool.clone(), snapshot.clone());
    let Ok(place) = worker.errands.clone().try_acquire_owned() else {
        tracing::debug!("the server is told too much at once");
        return;
    };
    tokio::task::spawn_local(async move {
        let _place = place;
        if errand(&pool, &snapshot, letter).await.is_none() {
            tracing::debug!("the server could not be told something");
        }
    });
}

/// Sends something that no client waits for, and gives the answer if one begins in time.
async fn errand(pool: &Pool, snapshot: &Snapshot, letter: Letter) -> Option<Answer> {
    let sent = pool.send(&snapshot.config.upstream, snapshot.protocol, letter, None);
    timeout(ERRAND, sent).await.ok()?.ok()
}

/// Pings the server in a session, to find out whether it knows that. None: there is no answer.
pub(super) async fn ping(pool: &Pool, snapshot: &Snapshot, session: &Session) -> Option<StatusCode> {
    // The client's ids live in the same session; this one cannot be one of them.
    let id = integer()?;
    let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}");
    errand(pool, snapshot, Post::of(body).within(within(session))).await.map(|answer| answer.status)
}

/// Tells the server that a session has ended.
pub(crate) async fn end_upstream(pool: &Pool, snapshot: &Snapshot, session: &Session) {
    if let Some(id) = session.upstream() {
        end_named(pool, snapshot, id, session.server_revision).await;
    }
}

/// The same of one that the server calls so, and that never was one here: which revision it speaks there is not known,
/// only which one it speaks at the most.
pub(super) fn end_unopened(call: &Call, id: HeaderValue) {
    let spoken = call.worker.pool.speaks().get().and_then(|spoken| spoken.legacy);
    let revision = spoken.map_or(call.revision, |spoken| spoken.min(call.revision));
    let (pool, snapshot) = (call.worker.pool.clone(), call.snapshot.clone());
    let Ok(place) = call.worker.errands.clone().try_acquire_owned() else {
        tracing::debug!("the server is told too much at once");
        return;
    };
    tokio::task::spawn_local(async move {
        let _place = place;
        end_named(&pool, &snapshot, id, revision).await;
    });
}

/// The same of a session that the server calls so.
pub(crate) async fn end_named(pool: &Pool, snapshot: &Snapshot, id: HeaderValue, revision: Revision) {
    // Whether it ends sessions on request is the server's business; many do not.
    if errand(pool, snapshot, Letter::End(id, revision)).await.is_none() {
        tracing::debug!("the server could not be told that a session has ended");
    }
}
