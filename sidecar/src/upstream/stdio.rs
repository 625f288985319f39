//! Servers that speak over stdin and stdout.
//!
//! Behind each session is a [`conversation::Conversation`]: a task that owns a process, and starts another when that has
//! died. It is the session's alone, or serves several that share the process. It lives on the thread on which it was
//! begun; others reach it by its [`Channel`].
//!
//! * From all of them down to one process at work: [`registry`], [`conversation`] with its [`members`], [`talk`];
//! * a [`process`]: its [`lines`], what is [`outgoing`], the [`handshake`] with it, and why it is [`gone`];
//! * where one comes from: [`mod@open`], one that is [`warm`], one of the [`former`] sidecar, one for [`stateless`]
//!   requests;
//! * how many, how many at once, and how often: [`limits`] and [`crowded`], [`turns`], [`restarts`]. Who waits does so in a
//!   [`queue`].

mod conversation;
mod crowded;
mod former;
mod gone;
mod handshake;
mod limits;
mod lines;
mod members;
mod open;
mod outgoing;
mod process;
mod queue;
mod registry;
mod restarts;
mod stateless;
mod talk;
mod turns;
mod warm;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, StatusCode};
use longshore_sidecar_config::{Config, Processes};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, timeout};

use super::starts::Starts;
use super::{
    Answer, Begins, Body, Former, Hold, Letter, Opener, Post, Recalled, call, channel, message, random,
    routes,
};
use crate::held::Shares;
use crate::metrics::Metrics;
use crate::sessions::Sessions;
use call::{Events, Failure, Patience};
use channel::{Channel, Control, Name, events, name_of, opened};
pub(super) use conversation::Joining;
pub(crate) use former::keep_former;
pub(crate) use gone::{Gone, Why};
use limits::Places;
use message::Known;
pub(super) use registry::Limits;
use registry::{Open, Registered};
use turns::Turns;
use warm::Warm;
pub(crate) use warm::keep as keep_warm;

/// How long a DELETE waits for the process to end. It ends all the same.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the end of all processes is waited for: longer than they are given.
const ALL_FAREWELLS: Duration = Duration::from_secs(8);

/// All sessions with a server over stdio.
pub(crate) struct Stdio {
    /// Where the shim listens.
    socket: PathBuf,
    metrics: Arc<Metrics>,
    /// How long a process may say nothing that was asked whether it is there.
    hang: Duration,
    places: Arc<Places>,
    /// What sessions are subscribed to that share a process.
    subscriptions: Arc<Shares>,
    /// The sessions of clients, some of which end for others.
    sessions: Arc<Sessions>,
    /// Where what processes write is counted.
    held: Arc<Shares>,
    warm: Warm,
    /// What its start takes.
    pub(super) starts: Arc<Starts>,
    /// Those that start.
    turns: Arc<Turns>,
    open: Mutex<Open>,
    /// How many conversations there are, those included that are ending.
    count: watch::Sender<usize>,
    /// Sessions are taken up again one after the other.
    recalls: tokio::sync::Mutex<()>,
    /// What the ids begin with under which clients are asked something. Another sidecar's are others.
    epoch: u64,
    questions: AtomicU64,
    /// The first line since the sidecar's own handshake that was no message.
    pub(crate) noise: watch::Sender<Option<String>>,
    /// Who the server says that it is, as JSON: what is said in its place says that too.
    pub(crate) info: ArcSwapOption<String>,
}

/// For whom a process is.
#[derive(Clone)]
struct Client {
    /// Nobody in particular, where it is for all.
    principal: Option<Arc<str>>,
    limits: Processes,
}

impl Stdio {
    pub(crate) fn new(
        socket: PathBuf,
        hang: Duration,
        metrics: Arc<Metrics>,
        sessions: Arc<Sessions>,
        held: Arc<Shares>,
    ) -> Self {
        let starts = Arc::<Starts>::default();
        Self {
            socket,
            metrics,
            hang,
            places: Arc::default(),
            subscriptions: sessions.subscriptions().clone(),
            sessions,
            held,
            warm: Warm::default(),
            turns: Turns::new(starts.clone()),
            starts,
            open: Mutex::default(),
            count: watch::Sender::new(0),
            recalls: tokio::sync::Mutex::default(),
            // Without random numbers no session is opened either.
            epoch: random().map_or(0, |number| u64::try_from(number >> 64).unwrap_or(0)),
            questions: AtomicU64::new(0),
            noise: watch::Sender::new(None),
            info: ArcSwapOption::empty(),
        }
    }

    /// Sends a message in a session.
    pub(super) async fn send(&self, letter: Letter, known: Option<&Known>) -> Result<Answer, Failure> {
        let name = letter.session().and_then(name_of);
        let found = name.and_then(|name| Some((name, self.open.lock().find(name)?)));
        let Some((name, channel)) = found else { return Ok(Answer::empty(StatusCode::NOT_FOUND)) };
        match letter {
            Letter::Post(_, Post { body, .. }) => channel.send(name, body, known, |command| command).await,
            Letter::Stream(..) => Ok(channel.listen(name)),
            Letter::End(..) => {
                let (told, over) = oneshot::channel();
                if channel.control.send(Control::End(name, Some(told))).is_ok() {
                    // Whether it has ended or takes longer.
                    let _ = timeout(FAREWELL, over).await;
                }
                Ok(Answer::empty(StatusCode::NO_CONTENT))
            }
        }
    }

    /// Which process serves a session, by a number that no other one has but what takes its place when it has died.
    pub(super) fn process_of(&self, session: &HeaderValue) -> Option<u64> {
        self.open.lock().host(name_of(session)?)
    }

    /// Takes the limits of a configuration. They are in force for whoever comes from now on, also in sessions that were
    /// begun under others.
    pub(crate) fn configure(&self, config: &Config) {
        let limits = warm::limits_of(config);
        self.places.limit(limits);
        // After that: who opens a conversation meanwhile is here, or finds the new ones.
        if let Some(limits) = limits {
            self.open.lock().limit(&limits);
        }
    }

    /// Ends all sessions for good, and waits until all processes have ended, those included that were ending already.
    pub(crate) async fn close(&self) {
        // The sidecar's own would be opened again at once.
        self.open.lock().close();
        self.tell_all_to_end();
        let mut count = self.count.subscribe();
        in_time(async move { drop(count.wait_for(|count| *count == 0).await) }).await;
    }

    /// Ends all sessions, and waits until their processes have ended. Clients may come back at once: those are not
    /// waited for.
    pub(crate) async fn end_all(&self) {
        let told = self.tell_all_to_end();
        in_time(async move {
            for over in told {
                // Told by the end of it.
                let _ = over.await;
            }
        })
        .await;
    }

    /// Gives what tells of the end of each conversation.
    fn tell_all_to_end(&self) -> Vec<oneshot::Receiver<()>> {
        self.warm.end_all();
        let tell = |control: &mpsc::UnboundedSender<Control>| {
            let (told, over) = oneshot::channel();
            // One that is over has dropped it.
            let _ = control.send(Control::EndAll(told));
            over
        };
        self.open.lock().controls().map(tell).collect()
    }

    /// How many processes wait for a session.
    pub(crate) fn warm(&self) -> usize {
        self.warm.count()
    }

    /// Whether all places are taken, where each session needs one, and by processes that are not to end for another.
    pub(crate) fn is_full(&self) -> bool {
        self.places.are_taken_by_sessions() && !self.warm.has_any() && !self.open.lock().has_empty(None)
    }

    /// How many wait for a place.
    pub(crate) fn queued(&self) -> usize {
        self.places.queued()
    }

    /// How many wait for their turn to start.
    pub(crate) fn unstarted(&self) -> usize {
        self.turns.waiting()
    }

    /// How many turns one more has to wait for, at most.
    pub(super) fn turns_ahead(&self) -> u32 {
        self.turns.ahead()
    }

    /// Whether there will be no more sessions.
    fn is_closed(&self) -> bool {
        self.open.lock().is_closed()
    }

    /// The number of a question to a client, and the id that the client sees, as JSON.
    fn question(&self) -> (u64, String) {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        (number, self.id_of_question(number))
    }

    /// The id of a question that the client sees, as JSON.
    fn id_of_question(&self, number: u64) -> String {
        format!("\"{:016x}-{number}\"", self.epoch)
    }

    /// The number of the question that an answer is for.
    fn question_of(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.split_once('-')?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then(|| number.parse().ok()).flatten()
    }

    /// Notes a line that is no message, if it is the first.
    fn note_noise(&self, line: &str) {
        self.noise.send_if_modified(|noise| {
            let first = noise.is_none();
            if first {
                *noise = Some(line.to_owned());
            }
            first
        });
    }

    /// The sidecar's own handshake is done; this was the first such line in it.
    fn begin_noise(&self, first: Option<String>) {
        self.noise.send_if_modified(|noise| {
            let changed = *noise != first;
            *noise = first;
            changed
        });
    }
}

/// Waits for the end of all processes, and not for ever.
async fn in_time(end: impl Future<Output = ()>) {
    if timeout(ALL_FAREWELLS, end).await.is_err() {
        tracing::warn!("processes of the server did not end in time");
    }
}
