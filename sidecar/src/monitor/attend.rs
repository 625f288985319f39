//! What is done for a server that is connected, until there is a reason to leave it.

use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::probe::Verdict;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::inventory::ConnectionReason;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::client::{Discovery, News, Server};
use super::era::{self, Question};
use super::lists::Partly;
use super::pings::{Heard, Pings};
use super::relisting::{Read, Relisting};
use super::settings::Settings;
use super::state::{Link, Problem};
use super::{is_replaced, now, show};
use crate::shared::Shared;
use crate::upstream::Spoken;

/// How often the server is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(5);
/// How long an answer to that may take. A server of one thread may be busy with a call.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Why a server is no longer attended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It does not know the session any more.
    SessionGone,
    /// It is to be greeted once more.
    Anew,
    /// It does not answer.
    Lost(Problem),
    /// Another server is to be watched.
    Reconfigured,
    /// The process ends.
    Ended,
}

/// What is known of a server however often it is connected anew.
#[derive(Default)]
pub(super) struct Lasting {
    pub(super) pings: Pings,
    pub(super) settings: Settings,
}

/// Looks after a server that is connected.
///
/// One that has shaken hands is asked what else it speaks, unless that is known.
pub(super) async fn attend(
    server: &Server,
    shared: &Arc<Shared>,
    config: &mut watch::Receiver<u64>,
    link: &mut Link,
    mut question: Option<Question>,
    lasting: &mut Lasting,
    partly: Partly,
) -> Left {
    let news = Rc::new(News::default());
    // Dropped, and so aborted, when the server is left.
    let _listening = server.listen(news.clone());
    let Lasting { pings, settings } = lasting;
    let mut next_ping = Instant::now() + PING_EVERY;
    let mut lists = Relisting::new(partly);
    let mut unbegun = 0;
    pings.begin();
    let ask = async |wait, patience| {
        sleep(wait).await;
        server.discover(patience).await
    };
    let (wait, patience) =
        question.as_ref().map(|question| (question.wait(), question.patience())).unwrap_or_default();
    let mut asking = Box::pin(ask(wait, patience));
    // What it has said before, and says again, is no news.
    let mut is_known = !wait.is_zero();
    let current = (server.upstream().clone(), server.pin());
    loop {
        tokio::select! {
            replaced = is_replaced(shared, config, Some(&current)) => {
                return if replaced.is_ok() { Left::Reconfigured } else { Left::Ended };
            }
            discovery = &mut asking, if question.is_some() => {
                let before = shared.speaks.get();
                let again = question.as_mut().and_then(|question| {
                    Some(ask(question.answered(&shared.speaks, &discovery)?, question.patience()))
                });
                if !is_known || before != shared.speaks.get() {
                    note(shared, &discovery);
                }
                is_known = true;
                match again {
                    Some(again) => asking.set(again),
                    None => question = None,
                }
            }
            () = shared.speaks.wanted() => {
                if era::ask_for_sessions(server, &shared.speaks, &mut unbegun).await {
                    // From now on it is spoken to as those clients do.
                    return Left::Anew;
                }
            }
            () = shared.doubt.raised() => next_ping = Instant::now(),
            // Or it says so of every GET: a ping tells.
            () = news.doubtful.notified() => next_ping = Instant::now(),
            // One that was restarted in no time answers pings like the one before.
            () = news.again.notified() => {
                if news.was_away.take() { settings.lost() } else { settings.doubted() }
            }
            () = settings.due() => settings.say(shared, server.pool()),
            () = sleep_until(next_ping) => {
                next_ping = Instant::now() + PING_EVERY;
                let ping = timeout(PING_TIMEOUT, server.ping()).await.ok();
                match pings.judge(ping, is_to_restart(shared)) {
                    Heard::Answer => {
                        if shared.speaks.get().is_none() {
                            // Somebody took it for another one, and nobody would be let to it until it is greeted.
                            return Left::Anew;
                        }
                        shared.speaks.confirm();
                        believe(shared, link);
                    }
                    Heard::Sign => believe(shared, link),
                    Heard::Nothing => {}
                    Heard::Leave(left) => return left,
                    Heard::Absence(message) => {
                        shared.doubt.confirm();
                        return Left::Lost(Problem::new(ConnectionReason::ConnectionLost, message));
                    }
                }
            }
            () = news.changed.notified() => lists.wanted(),
            () = shared.relist.wanted() => lists.wanted(),
            () = sleep_until(lists.due()) => match lists.read(server, shared).await {
                Read::Done => {}
                Read::Ping => next_ping = Instant::now(),
                Read::Lost(problem) => return Left::Lost(problem),
            },
        }
    }
}

/// The server has just answered. If it has stayed for long enough by now, it is believed.
fn believe(shared: &Shared, link: &mut Link) {
    if link.stays_at().is_some_and(|time| Instant::now() >= time) {
        link.stayed(now());
        show(shared, link);
    }
}

/// Whether the server's container is being restarted, and its pod goes on.
fn is_to_restart(shared: &Shared) -> bool {
    *shared.hooks.borrow() > 0 && !shared.is_draining()
}

/// Takes what a server says that it speaks into its description, if it is of more than one era.
fn note(shared: &Shared, discovery: &Discovery) {
    let spoken = shared.speaks.get();
    let revision = |era: fn(&Spoken) -> Option<Revision>| spoken.as_ref().and_then(era).map(Revision::as_str);
    tracing::info!(
        legacy = revision(|spoken| spoken.legacy),
        modern = revision(|spoken| spoken.modern),
        "detected which revisions the MCP server speaks"
    );
    if !matches!(discovery.verdict, Verdict::Modern(_)) {
        return;
    }
    shared.view.send_if_modified(|view| {
        let Some(description) = &mut view.server else { return false };
        let before = description.protocol_versions.len();
        discovery.known().into_iter().for_each(|revision| era::note(description, revision));
        description.protocol_versions.len() != before
    });
}
