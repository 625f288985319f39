//! The watch over the server: the sidecar is a client of its own. It shakes hands, lists, hears of changes, asks now
//! and then whether the server is still there, and finds out around which sockets the sidecar could be passed by.
//!
//! * [`client`]: what the server is asked by; [`era`]: in which revision;
//! * [`mod@attend`]: what is done while it is connected: [`pings`], [`lists`], and whether these still hold
//!   ([`relist_requests`]);
//! * [`state`]: what is made of that; [`sockets`]: the ways around the sidecar.

mod attend;
mod client;
mod era;
mod lists;
mod pings;
mod relist_requests;
mod relisting;
mod settings;
mod sockets;
mod state;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::revision::Revision;
use longshore_mcp::translate::handshake::NOBODY;
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::{Connection, ConnectionReason, ConnectionState, ServerDescription};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::shared::Shared;
use crate::upstream::{Pool, starts};
use attend::{Lasting, Left, attend};
pub(crate) use client::{CallError, Server};
use era::{Greeted, Question};
use lists::{Listed, Partly, list_all};
pub(crate) use relist_requests::RelistRequests;
pub(crate) use sockets::{user_listening, watch_sockets};
use state::{Link, Problem};

/// After which time it is reported that a handshake takes long.
const HANDSHAKE_SLOW: Duration = Duration::from_secs(3);
/// The same where the handshake begins with a process, which may have to load a runtime and a lot of modules.
const START_SLOW: Duration = Duration::from_secs(10);
/// How long a server may take to end a session that is of no use any more.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// How often lists are read again though nobody said that they changed.
const RELIST_EVERY: Duration = Duration::from_secs(60);
/// How soon a session is gone that was hardly there, and how long to wait before the next one then.
const SHORT_LIVED: Duration = Duration::from_secs(10);
const BETWEEN_SHORT_LIVES: Duration = Duration::from_secs(1);
/// The longest wait, before yet another process of a server all of whose processes die soon.
const BETWEEN_MANY_SHORT_LIVES: Duration = Duration::from_secs(10);
/// Lists that change in bursts are read once per burst, and not more often than this.
const RELIST_PAUSE: Duration = Duration::from_millis(250);

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

/// What the server offers: each as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) tools: Vec<Box<str>>,
    pub(crate) prompts: Vec<Box<str>>,
    pub(crate) resources: Vec<Box<str>>,
    pub(crate) resource_templates: Vec<Box<str>>,
}

impl View {
    /// Who the server says that it is, as JSON, if it does.
    pub(crate) fn server_info(&self) -> Option<String> {
        let info = &self.server.as_ref()?.info;
        let is_whole = info["name"].is_string() && info["version"].is_string();
        Some(info.to_string()).filter(|info| is_whole && info != NOBODY)
    }

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
    let mut lasting = Lasting::default();
    // It may have been restarted since it was greeted.
    let mut was_lost = false;
    // How many of its processes in a row have died soon after they were greeted.
    let mut died_soon = 0_u32;
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
            died_soon = 0;
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
                    shared.stdio.info.store(view.server_info().map(Arc::new));
                });
                show(&shared, &link);
                if std::mem::take(&mut was_lost) {
                    lasting.settings.lost();
                }
                let connected = Instant::now();
                let mut partly = Partly::default();
                partly.note(unlisted);
                let attending =
                    attend(&server, &shared, &mut config, &mut link, question, &mut lasting, partly);
                let left = Box::pin(attending).await;
                known = Some(shared.view.borrow().lists.clone());
                was_lost = matches!(left, Left::SessionGone | Left::Anew | Left::Lost(_));
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
                        let is_short = connected.elapsed() < SHORT_LIVED;
                        died_soon = if has_died && is_short { died_soon.saturating_add(1) } else { 0 };
                        if is_short {
                            // One that keeps forgetting is not pressed, and one that keeps dying less and less.
                            tokio::select! {
                                () = sleep(between_short_lives(died_soon)) => {}
                                replaced = is_replaced(&shared, &mut config, before.as_ref()) => replaced?,
                            }
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
        let starts_anew = matches!(server.upstream(), Upstream::Stdio {});
        // A server that is greeted again and again, and keeps what it was greeted for, would run full.
        let _ = timeout(END_TIMEOUT, server.end()).await;
        tokio::select! {
            () = sleep(link.retry_in(Instant::now(), starts_anew)) => {}
            changed = config.changed() => changed?,
        }
    }
}

/// How long to wait after a session that was hardly there, by how many processes in a row have died so.
fn between_short_lives(died_soon: u32) -> Duration {
    let times = 1_u32 << died_soon.saturating_sub(1).min(4);
    (BETWEEN_SHORT_LIVES * times).min(BETWEEN_MANY_SHORT_LIVES)
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
        let reason = connection.reason.map(tracing::field::debug);
        tracing::warn!(reason, detail = %connection.message, "the MCP server is not connected");
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

/// The time of day, in the form of the inventory.
fn now() -> String {
    format!("{:.0}", jiff::Timestamp::now())
}
