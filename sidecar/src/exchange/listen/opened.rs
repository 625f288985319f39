//! What a server answers that is asked for its stream of what belongs to no call.

use std::sync::Arc;

use http::{HeaderValue, Method};
use tokio::time::{Duration, timeout};

use crate::configuration::Snapshot;
use crate::exchange::{is_absence, request};
use crate::metrics::SessionEnd;
use crate::refusal::Refusal;
use crate::sessions::{self, Session, Use};
use crate::upstream::Answer;
use crate::upstream::forgotten::{self, Says};
use crate::worker::Worker;

/// How long a server may take to open its stream. Nobody computes anything for it.
const OPEN: Duration = Duration::from_secs(10);

/// Whether it gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Stream,
    /// It has one, and does not give it now.
    NotNow,
    /// It has said nothing.
    NotInTime,
    /// It was not there.
    NotThere,
}

/// What it answers with.
pub(super) struct Opened {
    pub(super) answer: Answer,
    /// What it called the session by then.
    pub(super) within: Option<HeaderValue>,
    pub(super) given: Given,
}

impl Opened {
    /// None for now: as one that the server has ended at once.
    pub(super) fn nothing(within: Option<HeaderValue>, given: Given) -> Self {
        Self { answer: Answer::nothing(), within, given }
    }
}

/// Asks the server for its stream, from an event on that it has written in the session that it called so. One that is not
/// there now says nothing of the session: that is as if it had ended its stream at once, and it is asked again. Its client
/// need not know: many give up their sessions at whatever is no stream and no 405.
pub(super) async fn ask(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    session: &Use,
    last: Option<(&str, Option<HeaderValue>)>,
) -> Result<Opened, Refusal> {
    let within = session.upstream();
    match ask_or_begin_again(worker, snapshot, session, last).await {
        Err(refusal) if is_absence(&refusal) => {
            tracing::debug!(reason = refusal.reason(), "the server is not there to give its stream");
            let is_mute = matches!(refusal, Refusal::ServerTimedOut { .. });
            Ok(Opened::nothing(within, if is_mute { Given::NotInTime } else { Given::NotThere }))
        }
        opened => opened,
    }
}

/// The same where the server is there. A session that it has forgotten is begun again, as for a call, if it may be.
async fn ask_or_begin_again(
    worker: &Worker,
    snapshot: &Arc<Snapshot>,
    session: &Use,
    last: Option<(&str, Option<HeaderValue>)>,
) -> Result<Opened, Refusal> {
    let lost = session.upstream();
    // Where it was begun again its events are others: a server may wait for what follows one that it does not know.
    let last = last.and_then(|(last, within)| (within == lost).then_some(last));
    match ask_within(worker, snapshot, session, lost.clone(), last).await {
        Err(Refusal::SessionLost) => {}
        opened => return opened,
    }
    let opened = match sessions::begin_again(&worker.pool, snapshot, session, lost).await {
        Ok(true) => ask_within(worker, snapshot, session, session.upstream(), None).await,
        Ok(false) => Err(Refusal::SessionLost),
        // It lives, and there is another time.
        Err(refusal) => Err(refusal),
    };
    if matches!(opened, Err(Refusal::SessionLost)) {
        worker.shared.sessions.end(session, SessionEnd::Server);
    }
    opened
}

/// The same in the session that the server calls so.
async fn ask_within(
    worker: &Worker,
    snapshot: &Snapshot,
    session: &Session,
    within: Option<HeaderValue>,
    last: Option<&str>,
) -> Result<Opened, Refusal> {
    let pool = &worker.pool;
    let asked = request::get(pool, snapshot, (within.clone(), session.server_revision), last);
    let asked = timeout(OPEN, asked).await;
    let answer = asked.map_err(|_| Refusal::ServerTimedOut { seconds: OPEN.as_secs_f64() })??;
    if answer.is_stream() {
        return Ok(Opened { answer, within, given: Given::Stream });
    }
    let status = answer.status;
    // That is as if it were not there.
    if forgotten::is_not_now(status) {
        tracing::debug!(%status, "the server does not give its stream now");
        return Ok(Opened::nothing(within, Given::NotNow));
    }
    let is_lost = async {
        // A call may have begun the session again meanwhile.
        session.upstream() != within
            || forgotten::is_forgotten(
                &Method::GET,
                status,
                session.is_known_to_server(),
                request::ping(pool, snapshot, session),
            )
            .await
    };
    let may_be_unknown = within.is_some() || session.may_be_unknown();
    if may_be_unknown && forgotten::says(&Method::GET, status) != Says::Nothing && is_lost.await {
        return Err(Refusal::SessionLost);
    }
    Err(Refusal::NoServerStream)
}
