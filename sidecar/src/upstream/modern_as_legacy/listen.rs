//! What belongs to no call: a GET of the client's becomes one `subscriptions/listen` for all that the session wants to
//! hear. When that changes the server is asked anew, and the old stream goes when the new one is there.
//!
//! A server may refuse all that it is asked for because of one resource that it does not know any more, and it need not say
//! which. Then it is asked for each by itself, while what it tells of already is heard: see [`search`].

mod search;
mod stream;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::pin;

use futures::TryFutureExt;
use http::StatusCode;
use longshore_mcp::listen::Offers;
use longshore_mcp::method::ServerNotification;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use stream::{UNDERSTOOD, is, is_for_good};

use super::Failure;
use super::session::Listening;
use super::source::Source;
use super::way::Way;
use crate::upstream::gap::Gap;
use crate::upstream::made::{Made, Out};
use crate::upstream::{Answer, Failure as Any, call};

/// How long to wait before a server is asked again whose stream has ended, at first and at most: whoever listens may read
/// all its lists anew then. The wait doubles until a stream was of use, or has lasted for so long.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_MOST: Duration = Duration::from_secs(30);
const LASTS: Duration = Duration::from_secs(10);
/// For how many resources a server is asked at once, each by itself, until it says that it cannot answer now.
const AT_ONCE: usize = 4;
/// How long the old stream is read on when the new one is there: what was told just before may still come on it. Heard
/// twice does no harm, not at all does.
const OVERLAP: Duration = Duration::from_millis(100);

/// Answers a GET.
pub(super) async fn listen(way: Way) -> Result<Answer, Any> {
    if way.session.offers == Offers::default() {
        // There never will be anything to hear.
        return Ok(Answer::empty(StatusCode::METHOD_NOT_ALLOWED));
    }
    let mut listening = Some(way.session.begin_listening());
    let wishes = way.session.wishes.subscribe();
    let mut hearing = Hearing {
        current: None,
        told: BTreeSet::new(),
        had: BTreeSet::new(),
        found: BTreeSet::new(),
        refused: None,
        at_once: AT_ONCE,
        gap: Gap::default(),
        stream: Again::default(),
        whole: Again::default(),
        since: Instant::now(),
    };
    match hearing.begin(&way).await {
        // Nothing was promised in a stream before.
        Ok(_) => hearing.gap = Gap::default(),
        Err(Any::ModernAsLegacy(Failure::Status(status))) => {
            tracing::debug!(status, "the server gives no stream");
            let status = StatusCode::from_u16(status).unwrap_or_default();
            // It may be another server by now, which knows no request without a session.
            if is_for_good(status) && !way.is_modern().await? {
                return Err(Failure::Forgotten.into());
            }
            // Whatever it has promised.
            if status == StatusCode::METHOD_NOT_ALLOWED {
                return Ok(Answer::empty(status));
            }
            // It has one, and is asked again: many clients give up their sessions at whatever is no stream and no 405, and
            // after a 405 they never ask again.
            hearing.gap.was_absent();
            hearing.stream.later();
            listening = None;
        }
        // A server that does not answer is no stream that is silent.
        Err(failure) => return Err(failure),
    }
    Ok(Made::new(|out| hearing.go_on(way, listening, wishes, out).map_ok(|()| None)).events())
}

/// What a session hears.
struct Hearing {
    current: Option<Source>,
    /// The resources that the server tells of in it, or did in the last one that it has given.
    told: BTreeSet<String>,
    /// Those of the last one in which there were any.
    had: BTreeSet<String>,
    /// What it has taken by itself, and is in no stream yet.
    found: BTreeSet<String>,
    /// What it has refused just now, so that it tells of its lists alone.
    refused: Option<BTreeSet<String>>,
    /// For how many it is asked at once.
    at_once: usize,
    /// What may have been missed.
    gap: Gap,
    /// When to ask the server for a stream, or for what the client wants by now.
    stream: Again,
    /// When to ask it again for what is in no stream that it gives.
    whole: Again,
    /// Since when there is the current one.
    since: Instant,
}

/// When something is asked for again, and how long after that if it is in vain.
struct Again {
    due: Option<Instant>,
    pause: Duration,
}

impl Default for Again {
    fn default() -> Self {
        Self { due: None, pause: AGAIN }
    }
}

impl Again {
    fn later(&mut self) {
        self.due = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(AGAIN_AT_MOST);
    }

    /// What was asked for meanwhile may have taken longer than until then.
    fn put_off(&mut self) {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.due = Some(Instant::now() + self.pause);
        }
    }
}

impl Hearing {
    /// While the server gives no stream, its client is as one who does not listen yet: what it subscribes to is asked for
    /// with the next one.
    async fn go_on(
        mut self,
        way: Way,
        mut listening: Option<Listening>,
        mut wishes: watch::Receiver<u64>,
        out: Out,
    ) -> Result<(), Any> {
        let mut over = way.session.over.subscribe();
        let mut over = pin!(over.wait_for(|over| *over));
        loop {
            tokio::select! {
                _ = &mut over => return Ok(()),
                changed = wishes.changed() => match changed {
                    Ok(()) if listening.is_some() => self.stream.due = Some(Instant::now()),
                    // It is asked again in any case, and not sooner than it may be.
                    Ok(()) => {}
                    Err(_) => return Ok(()),
                },
                () = at(self.stream.due.or(self.whole.due)) => {
                    let mut old = self.current.take();
                    let is_wish = self.stream.due.take().is_some();
                    let begins = is_wish && old.is_none();
                    let (mut ended, mut is_wanted, sifts) = (None, is_wish, Cell::new(false));
                    let mut is_of_use = false;
                    let found = {
                        let ask = async {
                            match (begins, is_wish) {
                                (true, _) => self.begin(&way).await,
                                (false, true) => self.wish(&way).await,
                                (false, false) => self.look(&way, &sifts).await,
                            }
                        };
                        let mut ask = pin!(ask);
                        loop {
                            tokio::select! {
                                found = &mut ask => break Some(found),
                                // Another server may have taken its place.
                                _ = &mut over => return Ok(()),
                                // What it wants by now is not to wait for what is looked for. What was found is noted.
                                _ = wishes.changed(), if !begins => {
                                    is_wanted = true;
                                    break None;
                                }
                                message = next(&mut old), if ended.is_none() => match message {
                                    Ok(Some(message)) => is_of_use |= deliver(&way, &message, &out).await?,
                                    said @ (Ok(None) | Err(_)) => {
                                        // Some servers end the old one when they are asked for another, and that is what is waited
                                        // for then. What is looked for one by one is not.
                                        let patience = if sifts.get() { AGAIN } else { UNDERSTOOD };
                                        ended = Some((is_of_process(&said), Instant::now() + patience));
                                    }
                                },
                                () = at(ended.map(|(_, until)| until)) => break None,
                            }
                        }
                    };
                    if is_of_use {
                        self.stream.pause = AGAIN;
                    }
                    if let Some((is_of_process, _)) = ended {
                        old = None;
                        self.misses(is_of_process);
                    }
                    match found {
                        Some(Ok(true)) => {
                            listening.get_or_insert_with(|| way.session.begin_listening());
                            if let Some(old) = old {
                                deliver_last(&way, old, &out).await?;
                            }
                            if self.current.is_some() && self.gap.ends_at_once() {
                                tell_missed(&way, &out).await?;
                            }
                            continue;
                        }
                        Some(Err(failure)) => {
                            tracing::debug!(%failure, "the server's notifications cannot be heard");
                            if way.is_of_another() {
                                // The client hears that its session is over when it asks for another stream.
                                return Ok(());
                            }
                            if old.is_none() && ended.is_none() {
                                self.gap.was_absent();
                                self.stream.later();
                                listening = None;
                            }
                        }
                        None if is_wanted => self.stream.due = Some(Instant::now()),
                        Some(Ok(false)) | None => {}
                    }
                    self.current = old;
                    if ended.is_some() && self.stream.due.is_none() {
                        self.again();
                    }
                }
                () = self.gap.due(), if self.current.is_some() => {
                    self.gap.note_told();
                    tell_missed(&way, &out).await?;
                }
                message = next(&mut self.current) => match message {
                    Ok(Some(message)) => {
                        // The end that a server puts to its stream is none.
                        if deliver(&way, &message, &out).await? {
                            self.stream.pause = AGAIN;
                        }
                    }
                    ended @ (Ok(None) | Err(_)) => {
                        self.current = None;
                        self.misses(is_of_process(&ended));
                        self.again();
                    }
                },
            }
        }
    }

    /// A stream has ended. Nothing cuts off what a process says: another one goes on.
    fn misses(&mut self, is_of_process: bool) {
        if is_of_process {
            self.gap.was_absent();
        } else {
            self.gap.broke_off();
        }
    }

    /// There is none, and another one is asked for.
    fn again(&mut self) {
        if self.since.elapsed() >= LASTS {
            self.stream.pause = AGAIN;
        }
        self.stream.later();
    }
}

/// The next message, if there is a stream that has one.
async fn next(source: &mut Option<Source>) -> Result<Option<String>, Any> {
    match source {
        Some(source) => source.next().await,
        None => std::future::pending().await,
    }
}

/// Whether a stream has ended with the process that gave it.
fn is_of_process(ended: &Result<Option<String>, Any>) -> bool {
    matches!(ended, Err(Any::Call(call::Failure::Process(_))))
}

async fn at(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Tells the client what it wants to hear. Says whether this is something of it.
async fn deliver(way: &Way, message: &str, out: &Out) -> Result<bool, Any> {
    if is(message, ServerNotification::ToolsListChanged) {
        way.modern_as_legacy.tools.forget();
    }
    let Some(message) = way.session.deliver(message) else { return Ok(false) };
    out.aside(message).await?;
    Ok(true)
}

/// Tells it all that may have changed.
async fn tell_missed(way: &Way, out: &Out) -> Result<(), Any> {
    for message in way.session.missed() {
        out.aside(message).await?;
    }
    Ok(())
}

/// What the old stream holds still.
async fn deliver_last(way: &Way, mut old: Source, out: &Out) -> Result<(), Any> {
    let until = Instant::now() + OVERLAP;
    while let Ok(Ok(Some(message))) = timeout_at(until, old.next()).await {
        deliver(way, &message, out).await?;
    }
    Ok(())
}
