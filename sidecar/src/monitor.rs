//! The watch over the server: the sidecar is a client of its own. It shakes hands, lists, hears of changes, asks now
//! and then whether the server is still there, and finds out around which sockets the sidecar could be passed by.

mod client;
mod era;
mod lists;
mod relist;
mod sockets;
mod state;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::probe::Verdict;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::{Connection, ConnectionReason, ConnectionState, ServerDescription};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::sessions;
use crate::shared::Shared;
use crate::upstream::{Pool, Spoken, starts};
use client::Discovery;
pub(crate) use client::{CallError, Server};
use era::{Greeted, Question};
use lists::{Listed, Partly, list_all};
pub(crate) use relist::Relist;
pub(crate) use sockets::watch_sockets;
use state::{Link, Problem};

/// How often the server is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(5);
/// How long an answer to that may take. A server of one thread may be busy with a call.
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How many pings have to fail for lack of time, or lists for whatever reason, in a row.
const PATIENCE: u32 = 3;
/// After which time it is reported that a handshake takes long.
const HANDSHAKE_SLOW: Duration = Duration::from_secs(3);
/// The same where the handshake begins with a process, which may have to load a runtime and a lot of modules.
const START_SLOW: Duration = Duration::from_secs(10);
/// How long a server may take to list what it offers.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may take to end a session that is of no use any more.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How often lists are read again though nobody said that they changed.
const RELIST_EVERY: Duration = Duration::from_secs(60);
/// How soon a session is gone that was hardly there, and how long to wait before the next one then.
const SHORT_LIVED: Duration = Duration::from_secs(10);
const BETWEEN_SHORT_LIVES: Duration = Duration::from_secs(1);
/// Lists that change in bursts are read once per burst, and not more often than this.
const RELIST_PAUSE: Duration = Duration::from_millis(250);
/// Who says all the time that long lists have changed has them read for a tenth of the time: so many times as long as it
/// took, they are left.
const RELIST_REST: u32 = 9;

/// What is known of the server.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Whether a handshake has ever succeeded.
    pub(crate) ever_connected: bool,
    /// Whether clients should be sent here.
    pub(crate) is_ready: bool,
    pub(crate) connection: Connection,
    pub(crate) server: Option<ServerDescription>,
    pub(crate) lists: Arc<Lists>,
}

/// What the server offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Lists {
    pub(crate) tools: Vec<Value>,
    pub(crate) prompts: Vec<Value>,
    pub(crate) resources: Vec<Value>,
    pub(crate) resource_templates: Vec<Value>,
}

impl View {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self {
            ever_connected: false,
            is_ready: false,
            connection: Link::new(Instant::now(), now()).connection(),
            server: None,
            lists: Arc::default(),
        }
    }
}

/// Watches the server for as long as the process lives.
pub(crate) async fn watch_server(shared: Arc<Shared>, pool: Rc<Pool>) -> Result<(), watch::error::RecvError> {
    let mut config = shared.config_changed.subscribe();
    let mut link = Link::new(Instant::now(), now());
    let mut before = None;
    // What a server has listed before.
    let mut known = None;
    let mut knows_no_pings = false;
    // It may have been restarted since it was greeted, and what is set again for clients then.
    let (mut was_lost, mut settings) = (false, JoinSet::new());
    loop {
        config.mark_unchanged();
        let Some((upstream, pin)) = wanted(&shared) else {
            config.changed().await?;
            continue;
        };
        // However it was noticed: whatever runs belongs to the server from before.
        if before.replace((upstream.clone(), pin)).is_some_and(|before| before != (upstream.clone(), pin)) {
            pool.end_all();
            shared.stdio.end_all().await;
            link = Link::new(Instant::now(), now());
            known = None;
        }
        let mut server = Server::new(upstream, pool.clone()).pinned(pin);
        let began = Instant::now();
        let connected = tokio::select! {
            connected = connect(&mut server, &shared, &mut link, known.as_deref()) => connected,
            replaced = is_replaced(&shared, &mut config, before.as_ref()) => {
                replaced?;
                continue;
            }
        };
        match connected {
            Ok((Greeted { description, is_unasked }, Listed { lists, unlisted })) => {
                let took = began.elapsed();
                server.started_within(took);
                let older = shared.options.bounds.older;
                let question = Question::to(&server, &shared.speaks, is_unasked, took, older);
                shared.metrics.handshake(true);
                link.succeeded(Instant::now(), now());
                tracing::info!(
                    revision = %description.protocol_version,
                    tools = lists.tools.len(),
                    "the MCP server is connected"
                );
                shared.view.send_modify(|view| {
                    view.ever_connected = true;
                    // Others take one that was connected and is not ready for one whose server dies.
                    view.is_ready = is_ready(view, &link);
                    view.server = Some(description);
                    view.lists = Arc::new(lists);
                });
                show(&shared, &link);
                if std::mem::take(&mut was_lost) {
                    settings.shutdown().await;
                    settings.spawn_local(sessions::set_all_again(shared.clone(), pool.clone()));
                }
                let connected = Instant::now();
                let mut partly = Partly::default();
                partly.note(unlisted);
                let attending =
                    attend(&server, &shared, &mut config, &mut link, question, &mut knows_no_pings, partly);
                let left = Box::pin(attending).await;
                known = Some(shared.view.borrow().lists.clone());
                was_lost = matches!(left, Left::SessionGone | Left::Lost(_));
                match left {
                    // It may simply have been restarted, or has to be spoken to in another way: the next handshake tells.
                    left @ (Left::SessionGone | Left::Anew) => {
                        // The session of a process goes with it alone.
                        let has_died =
                            matches!((left, server.upstream()), (Left::SessionGone, Upstream::Stdio {}));
                        if has_died && link.stays_at().is_some() {
                            link.failed(Problem::died_soon(), Instant::now(), now());
                            show(&shared, &link);
                        }
                        // One over HTTP may know it all the same, whatever it has said. That of a process goes with what
                        // is held of it.
                        if !matches!(server.upstream(), Upstream::Stdio {}) {
                            let _ = timeout(END_TIMEOUT, server.end()).await;
                        }
                        if connected.elapsed() < SHORT_LIVED {
                            // One that keeps forgetting, or dying, is not pressed.
                            sleep(BETWEEN_SHORT_LIVES).await;
                        }
                        continue;
                    }
                    Left::Reconfigured => continue,
                    Left::Ended => return Ok(()),
                    Left::Lost(problem) => link.failed(problem, Instant::now(), now()),
                }
            }
            Err(problem) => {
                shared.metrics.handshake(false);
                if problem.is_absence() {
                    shared.doubt.confirm();
                }
                link.failed(problem, Instant::now(), now());
            }
        }
        show(&shared, &link);
        // A server that is greeted again and again, and keeps what it was greeted for, would run full.
        let _ = timeout(END_TIMEOUT, server.end()).await;
        tokio::select! {
            () = sleep(link.retry_in(Instant::now())) => {}
            changed = config.changed() => changed?,
        }
    }
}

/// Which server is to be watched, and the one revision that it is to be spoken to in, if there is one.
fn wanted(shared: &Shared) -> Option<(Upstream, Option<Revision>)> {
    shared.config().as_ref().map(|snapshot| (snapshot.config.upstream.clone(), snapshot.protocol))
}

/// Returns when another server than this is to be watched.
async fn is_replaced(
    shared: &Shared,
    config: &mut watch::Receiver<u64>,
    current: Option<&(Upstream, Option<Revision>)>,
) -> Result<(), watch::error::RecvError> {
    while wanted(shared).as_ref() == current {
        config.changed().await?;
    }
    Ok(())
}

/// Whether the pod may take calls. Only an early death takes that away again: not that another revision is to be spoken,
/// say.
fn is_ready(view: &View, link: &Link) -> bool {
    !link.is_shaken() && (view.is_ready || link.is_ready())
}

/// Publishes how the link is, and logs it when it changed.
fn show(shared: &Shared, link: &Link) {
    let connection = link.connection();
    shared.metrics.connected.set(i64::from(connection.state == ConnectionState::Connected));
    let changed = shared.view.send_if_modified(|view| {
        let is_ready = is_ready(view, link);
        let changed = view.connection != connection || view.is_ready != is_ready;
        view.connection = connection.clone();
        view.is_ready = is_ready;
        // A description that came together with this is news too.
        changed || connection.state == ConnectionState::Connected
    });
    if changed && connection.state == ConnectionState::Failed {
        tracing::warn!(reason = ?connection.reason, detail = %connection.message, "the MCP server is not connected");
    }
}

/// A handshake and the first lists. That it takes long is reported while it goes on.
async fn connect(
    server: &mut Server,
    shared: &Shared,
    link: &mut Link,
    known: Option<&Lists>,
) -> Result<(Greeted, Listed), Problem> {
    let (patience, at_most) = match server.upstream() {
        Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => (HANDSHAKE_SLOW, starts::AT_LEAST),
        Upstream::Stdio {} => (START_SLOW, starts::AT_MOST),
    };
    // What is waited for: a server that shakes hands and does not list is another matter.
    let waits_for = Cell::new(ConnectionReason::InitializeTimeout);
    let work = async {
        let greeted = era::greet(server, &shared.speaks).await.map_err(|error| error.in_handshake())?;
        waits_for.set(ConnectionReason::ListFailed);
        let listed = list_all(server, &greeted.description.capabilities, known).await?;
        Ok((greeted, listed))
    };
    tokio::pin!(work);
    let slow = |time: Duration| {
        let (reason, seconds) = (waits_for.get(), time.as_secs());
        let message = match reason {
            ConnectionReason::ListFailed => {
                format!("the server has shaken hands and not listed what it offers within {seconds} seconds")
            }
            _ => format!("the server has not completed the handshake within {seconds} seconds"),
        };
        Problem::new(reason, message)
    };
    if let Ok(result) = timeout(patience, work.as_mut()).await {
        return result;
    }
    link.failed(slow(patience), Instant::now(), now());
    show(shared, link);
    match timeout(at_most - patience, work).await {
        Ok(result) => result,
        Err(_) => Err(slow(at_most)),
    }
}

/// Why a server is no longer attended.
enum Left {
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

/// Looks after a server that is connected.
///
/// One that has shaken hands is asked what else it speaks, unless that is known. One that knew no ping in the session
/// before, and knows none now, knows none.
async fn attend(
    server: &Server,
    shared: &Shared,
    config: &mut watch::Receiver<u64>,
    link: &mut Link,
    mut question: Option<Question>,
    knows_no_pings: &mut bool,
    mut partly: Partly,
) -> Left {
    let changed = Rc::new(Notify::new());
    // Dropped, and so aborted, when the server is left.
    let gone = Rc::new(Notify::new());
    let _listening = server.listen(changed.clone(), gone.clone());
    let mut next_ping = Instant::now() + PING_EVERY;
    let mut next_list = Instant::now() + partly.list_in();
    let mut rests_until = Instant::now();
    let (mut late, mut unlisted, mut unbegun, mut has_answered) = (0, 0, 0, false);
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
    let absent = |message: String| {
        shared.doubt.confirm();
        Left::Lost(Problem::new(ConnectionReason::ConnectionLost, message))
    };
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
            () = gone.notified() => next_ping = Instant::now(),
            () = sleep_until(next_ping) => {
                next_ping = Instant::now() + PING_EVERY;
                match timeout(PING_TIMEOUT, server.ping()).await {
                    Ok(Ok(())) => {
                        (late, has_answered, *knows_no_pings) = (0, true, false);
                        if shared.speaks.get().is_none() {
                            // Somebody took it for another one, and nobody would be let to it until it is greeted.
                            return Left::Anew;
                        }
                        shared.speaks.confirm();
                        believe(shared, link);
                    }
                    // It is there, and that is all that it says.
                    Ok(Err(error)) if error.is_busy() => {
                        late = 0;
                        believe(shared, link);
                    }
                    Ok(Err(CallError::Rpc { code: -32601, .. })) if *knows_no_pings && !has_answered => {
                        late = 0;
                        believe(shared, link);
                    }
                    Ok(Err(CallError::Rpc { code: -32601, .. })) => {
                        *knows_no_pings = !has_answered;
                        return Left::Anew;
                    }
                    Ok(Err(CallError::SessionGone)) => return Left::SessionGone,
                    // It is there, however it is: to be greeted anew, and not to be taken for gone.
                    Ok(Err(error)) if error.is_answer() => return Left::Lost(error.in_handshake()),
                    Ok(Err(error)) => return absent(error.to_string()),
                    // Its container waits for it to end.
                    Err(_) if is_to_restart(shared) => {
                        return absent("the server has not answered a ping, and is to be restarted".to_owned());
                    }
                    Err(_) => {
                        late += 1;
                        if late >= PATIENCE {
                            return absent(format!("the server has not answered {PATIENCE} pings in a row"));
                        }
                    }
                }
            }
            () = changed.notified() => next_list = next_list.min(at_next(rests_until)),
            () = shared.relist.wanted() => next_list = next_list.min(at_next(rests_until)),
            () = sleep_until(next_list) => {
                let began = Instant::now();
                next_list = began + RELIST_EVERY;
                let capabilities = shared.view.borrow().server.as_ref().map(|server| server.capabilities.clone());
                let capabilities = capabilities.unwrap_or_default();
                let known = shared.view.borrow().lists.clone();
                let listed = tokio::select! {
                    listed = timeout(LIST_TIMEOUT, list_all(server, &capabilities, Some(&known))) => listed,
                    // Whether it is there is more urgent then, and asked next.
                    () = hook_opens(shared) => {
                        (next_ping, next_list) = (Instant::now(), Instant::now() + RELIST_PAUSE * 4);
                        continue;
                    }
                };
                rests_until = Instant::now() + (began.elapsed() * RELIST_REST).min(RELIST_EVERY);
                match listed {
                    Ok(Ok(Listed { lists, unlisted: problem })) => {
                        unlisted = 0;
                        let is_busy = problem.as_ref().is_some_and(|problem| problem.is_busy);
                        partly.note(problem);
                        next_list = (began + partly.list_in()).max(rests_until);
                        if is_busy {
                            // It has no time for what is new either.
                            rests_until = next_list;
                        }
                        shared.view.send_if_modified(|view| {
                            let changed = *view.lists != lists;
                            if changed {
                                view.lists = Arc::new(lists);
                            }
                            changed
                        });
                        shared.relist.done();
                    }
                    // Perhaps there is no server any more, or not the one that was asked before: a ping tells.
                    Ok(Err(problem)) => {
                        unlisted += 1;
                        if unlisted >= PATIENCE {
                            return Left::Lost(problem);
                        }
                        (next_ping, next_list) = (Instant::now(), Instant::now() + RELIST_PAUSE * 4);
                    }
                    // Slow is not gone; the pings tell that too.
                    Err(_) => tracing::debug!("the server took too long to list"),
                }
            }
        }
    }
}

/// When lists that have changed are read.
fn at_next(rests_until: Instant) -> Instant {
    (Instant::now() + RELIST_PAUSE).max(rests_until)
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

/// Returns when a hook of the server opens, from now on.
async fn hook_opens(shared: &Shared) {
    let mut hooks = shared.hooks.subscribe();
    let before = *hooks.borrow_and_update();
    // The other end lives as long as this does.
    let _ = hooks.wait_for(|hooks| *hooks > before).await;
}

/// Takes what a server says that it speaks into its description, if it is of more than one era.
fn note(shared: &Shared, discovery: &Discovery) {
    let spoken = shared.speaks.get();
    let revision = |era: fn(&Spoken) -> Option<Revision>| spoken.as_ref().and_then(era).map(Revision::as_str);
    tracing::info!(
        legacy = revision(|spoken| spoken.legacy),
        modern = revision(|spoken| spoken.modern),
        "it is known what the MCP server speaks"
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

/// The time of day, in the form of the inventory.
fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}
