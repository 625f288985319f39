//! What belongs to no call: a GET of the client's becomes one `subscriptions/listen` for all that the session wants to
//! hear. When that changes the server is asked anew, and the old stream goes when the new one is there.
//!
//! A server may refuse all that it is asked for because of one resource that it does not know any more, and it need not say
//! which. Then it is asked for each by itself, while what it tells of already is heard.

mod stream;

use std::collections::BTreeSet;
use std::pin::pin;

use futures::TryFutureExt;
use http::StatusCode;
use longshore_mcp::listen::Offers;
use longshore_mcp::method::ServerNotification;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until, timeout_at};

use stream::{Told, UNDERSTOOD, is, is_for_good, open, says_no, untold};

use super::session::Listening;
use super::source::Source;
use super::way::Way;
use super::{Failure, empty};
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
        return Ok(empty(StatusCode::METHOD_NOT_ALLOWED));
    }
    let mut listening = Some(way.session.begin_listening());
    let wishes = way.session.wishes.subscribe();
    let mut hearing = Hearing {
        current: None,
        asked: BTreeSet::new(),
        granted: BTreeSet::new(),
        found: BTreeSet::new(),
        at_once: AT_ONCE,
        gap: Gap::default(),
        stream: Again::default(),
        whole: Again::default(),
        since: Instant::now(),
    };
    match hearing.begin(&way).await {
        Ok(_) => {}
        Err(Any::Lowered(Failure::Status(status))) => {
            tracing::debug!(status, "the server gives no stream");
            let status = StatusCode::from_u16(status).unwrap_or_default();
            // It may be another server by now, which knows no request without a session.
            if is_for_good(status) && !way.is_modern().await? {
                return Err(Failure::Forgotten.into());
            }
            // Whatever it has promised.
            if status == StatusCode::METHOD_NOT_ALLOWED {
                return Ok(empty(status));
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
    /// The resources that the server was asked for with the last stream that it has given.
    asked: BTreeSet<String>,
    /// Those of them that it says it tells of.
    granted: BTreeSet<String>,
    /// What it has taken by itself, and is in no stream yet.
    found: BTreeSet<String>,
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
        loop {
            tokio::select! {
                _ = over.wait_for(|over| *over) => return Ok(()),
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
                    // Some servers end the old one when they are asked for another, and that is what is waited for then. What is
                    // looked for is not.
                    let patience = if is_wish { UNDERSTOOD } else { AGAIN };
                    let (mut ended, mut is_wanted) = (None, is_wish);
                    let found = {
                        let ask = async {
                            if begins { self.begin(&way).await } else { self.find(&way, is_wish).await }
                        };
                        let mut ask = pin!(ask);
                        loop {
                            tokio::select! {
                                found = &mut ask => break Some(found),
                                // What it wants by now is not to wait for what is looked for. What was found is noted.
                                _ = wishes.changed(), if !begins => {
                                    is_wanted = true;
                                    break None;
                                }
                                message = next(&mut old), if ended.is_none() => match message {
                                    Ok(Some(message)) => drop(deliver(&way, &message, &out).await?),
                                    said @ (Ok(None) | Err(_)) => {
                                        ended = Some((is_of_process(&said), Instant::now() + patience));
                                    }
                                },
                                () = at(ended.map(|(_, until)| until)) => break None,
                            }
                        }
                    };
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
                        }
                        Some(Ok(false)) => {
                            self.current = old;
                            if ended.is_some() {
                                self.again();
                            }
                        }
                        Some(Err(failure)) => {
                            tracing::debug!(%failure, "the server's notifications cannot be heard");
                            if way.is_of_another() {
                                // The client hears that its session is over when it asks for another stream.
                                return Ok(());
                            }
                            self.current = old;
                            if ended.is_some() {
                                self.again();
                            } else if self.current.is_none() {
                                self.gap.was_absent();
                                self.stream.later();
                                listening = None;
                            }
                        }
                        None => {
                            self.current = old;
                            if is_wanted {
                                self.stream.due = Some(Instant::now());
                            } else {
                                self.again();
                            }
                        }
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

    /// There is no stream: asks for one of all that the server is not known to refuse, or else of its lists, so that these
    /// are heard while it is found out what else there is. Says that there is another one.
    async fn begin(&mut self, way: &Way) -> Result<bool, Any> {
        let session = &way.session;
        let wanted = *session.wishes.borrow();
        let (all, known) = session.subscribed();
        match open(way, &known).await {
            Ok(told) => {
                if known != all {
                    self.whole.due.get_or_insert_with(Instant::now);
                }
                self.hears(told, known);
                session.note_heard(wanted, &self.granted);
            }
            Err(failure) if says_no(&failure) && !known.is_empty() => {
                let lists = open(way, &BTreeSet::new()).await?;
                let resources = all.len();
                tracing::warn!(resources, "the server refuses to tell of what a client has subscribed to");
                // Nobody is refused yet what it may well take.
                self.hears(lists, BTreeSet::new());
                self.whole.due = Some(Instant::now());
            }
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    /// The client wants something else (`is_wish`), or something is in no stream: asks for all of it, or for a wish without
    /// what the server is known to refuse; and where it refuses that, for each by itself that is in doubt. Where that is ended
    /// before, the next time goes on from there. Says whether there is another stream.
    async fn find(&mut self, way: &Way, is_wish: bool) -> Result<bool, Any> {
        let session = &way.session;
        let wanted = *session.wishes.borrow();
        let (all, known) = session.subscribed();
        self.found = &self.found & &all;
        let looks_again = !is_wish || self.whole.due.is_none();
        if looks_again {
            self.whole.later();
        }
        // What it has once refused it may have refused for that moment.
        let mut uris = if is_wish { known.clone() } else { all };
        let mut refused = None;
        // Where it is in doubt what else it takes, it has refused all of it just now.
        if !is_wish || !session.has_promised(&(&(&uris - &self.asked) - &self.found)) {
            match open(way, &uris).await {
                Ok(told) => return Ok(self.takes(way, told, uris, wanted)),
                Err(failure) if !says_no(&failure) || uris.is_empty() => return Err(failure),
                Err(_) => refused = Some(uris.clone()),
            }
            // That it refuses each of those still is not found out each time.
            if self.whole.pause < AGAIN_AT_MOST {
                uris = known;
            }
        }
        // Those that it does not tell of yet; and if it refuses what is left, one that it tells of is gone by now.
        let new = &uris - &self.asked;
        for doubtful in [&new - &self.found, &(&uris - &new) - &self.found] {
            if doubtful.is_empty() && refused.as_ref() == Some(&uris) {
                continue;
            }
            let untold = untold(way, doubtful, self.at_once, &mut self.found).await;
            // One that bounds its streams may have room for one more.
            uris = &uris - &untold.inspect_err(|_| self.at_once = 1)?;
            if looks_again {
                // It may have taken longer than until then.
                self.whole.due = Some(Instant::now() + self.whole.pause);
            }
            // One that takes nothing any more may tell on nevertheless.
            if uris == self.asked || uris.is_empty() {
                break;
            }
            match open(way, &uris).await {
                Ok(told) => return Ok(self.takes(way, told, uris, wanted)),
                Err(failure) if !says_no(&failure) => return Err(failure),
                Err(_) => refused = Some(uris.clone()),
            }
        }
        // It takes none of it together: each is in doubt again.
        self.found.clear();
        session.note_heard(wanted, &self.granted);
        Ok(false)
    }

    /// The server has another stream, which tells of these.
    fn takes(&mut self, way: &Way, told: Option<Told>, uris: BTreeSet<String>, wanted: u64) -> bool {
        // What its client takes for subscribed to may have changed before there was this stream.
        if way.session.has_promised(&(&uris - &self.asked)) {
            self.gap.was_absent();
        }
        way.session.note_taken(&uris);
        let (all, known) = way.session.subscribed();
        if known == all {
            self.whole = Again::default();
        }
        self.hears(told, uris);
        way.session.note_heard(wanted, &self.granted);
        true
    }

    fn hears(&mut self, told: Option<Told>, uris: BTreeSet<String>) {
        let (source, granted) = told.unzip();
        // Whatever it says, it was asked for no others.
        self.granted = granted.flatten().map_or_else(|| uris.clone(), |granted| &granted & &uris);
        self.found = &self.found - &uris;
        self.at_once = AT_ONCE;
        (self.current, self.asked, self.since) = (source, uris, Instant::now());
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
        way.lowered.tools.forget();
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
