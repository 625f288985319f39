//! What belongs to no call: a GET of the client's becomes one `subscriptions/listen` for all that the session wants to
//! hear. When that changes the server is asked anew, and the old stream goes when the new one is there.

mod part;

use std::collections::BTreeSet;
use std::pin::pin;

use futures::TryFutureExt;
use http::StatusCode;
use longshore_mcp::envelope::{self, Message, Outcome, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::listen::{Filter, Offers};
use longshore_mcp::meta::Outline;
use longshore_mcp::method::{Method, ServerNotification};
use longshore_mcp::object;
use tokio::time::{Duration, Instant, sleep_until, timeout, timeout_at};

use part::Part;

use super::session::{Heard, Listening};
use super::source::{Source, is_answer};
use super::way::{Way, repeat};
use super::{Failure, empty};
use crate::upstream::forgotten::is_not_now;
use crate::upstream::gap::Gap;
use crate::upstream::made::{Made, Out};
use crate::upstream::{Answer, Failure as Any, call};

/// How long a server may take to say that it has understood. Nobody computes anything for it.
const UNDERSTOOD: Duration = Duration::from_secs(5);
/// How long to wait before a server is asked again whose stream has ended, at first and at most: whoever listens may read
/// all its lists anew then. The wait doubles until a stream was of use, or has lasted for so long.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_MOST: Duration = Duration::from_secs(30);
const LASTS: Duration = Duration::from_secs(10);
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
    let mut hearing = Hearing {
        current: None,
        asked: BTreeSet::new(),
        refused: BTreeSet::new(),
        is_part: false,
        is_awaited: true,
        is_untold: false,
        lost: false,
        stream: Again::default(),
        whole: Again::default(),
        since: Instant::now(),
    };
    match hearing.open(&way, false).await {
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
            hearing.lost = true;
            listening = None;
        }
        // A server that does not answer is no stream that is silent.
        Err(failure) => return Err(failure),
    }
    Ok(Made::new(|out| hearing.go_on(way, listening, out).map_ok(|()| None)).events())
}

/// A stream, and the resources that it tells of, if it says.
type Told = (Source, Option<BTreeSet<String>>);
/// The same, if there is anything to ask for, and the resources that it was asked for.
type Asked = (Option<Told>, BTreeSet<String>);

/// What a session hears.
struct Hearing {
    current: Option<Source>,
    /// The resources that the server was asked for with the last stream that it has given.
    asked: BTreeSet<String>,
    /// All that there were when it last refused to tell of them.
    refused: BTreeSet<String>,
    /// They are not all.
    is_part: bool,
    /// The client's GET is not answered yet: whatever may take long comes later.
    is_awaited: bool,
    /// Which resources the server takes beside its lists is still to be found out.
    is_untold: bool,
    /// The last stream has broken, or none was to be had yet, and something may have been missed since.
    lost: bool,
    /// When to ask the server for a stream.
    stream: Again,
    /// When to ask it for what is in no stream that it gives.
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
    async fn go_on(mut self, way: Way, mut listening: Option<Listening>, out: Out) -> Result<(), Any> {
        let mut gap = Gap::default();
        self.is_awaited = false;
        if self.lost {
            gap.was_absent();
        }
        let mut over = way.session.over.subscribe();
        let mut wishes = way.session.wishes.subscribe();
        if way.session.heard.borrow().wishes < *wishes.borrow_and_update() {
            self.stream.due.get_or_insert_with(Instant::now);
        }
        loop {
            tokio::select! {
                _ = over.wait_for(|over| *over) => return Ok(()),
                changed = wishes.changed() => match changed {
                    Ok(()) if listening.is_some() => self.stream.due = Some(Instant::now()),
                    // It is asked again in any case, and not sooner than it may be.
                    Ok(()) => {}
                    Err(_) => return Ok(()),
                },
                () = at(self.due()) => {
                    let mut old = self.current.take();
                    let (was_part, was_untold) = (self.is_part, self.is_untold);
                    let opened = {
                        let tells = old.is_some();
                        let mut opened = pin!(self.open(&way, tells));
                        let mut is_whole = false;
                        loop {
                            tokio::select! {
                                opened = &mut opened => break opened,
                                message = next(&mut old), if !is_whole => match message {
                                    Ok(Some(message)) => drop(deliver(&way, &message, &out).await?),
                                    // It says so again to whoever reads on, if not why.
                                    ended @ (Ok(None) | Err(_)) => {
                                        is_whole = true;
                                        if is_of_process(&ended) {
                                            gap.was_absent();
                                        }
                                    }
                                },
                            }
                        }
                    };
                    match opened {
                        Ok(is_new) => {
                            if is_new {
                                if was_part && !self.is_part {
                                    self.lost = true;
                                    gap.broke_off();
                                }
                                listening.get_or_insert_with(|| way.session.begin_listening());
                                if let Some(old) = old {
                                    deliver_last(&way, old, &out).await?;
                                }
                            } else {
                                self.current = old;
                            }
                            // Nobody has heard of those that are found now since there is the stream.
                            let is_found = is_new && was_untold;
                            let is_missed = !self.is_untold && std::mem::take(&mut self.lost) && gap.ends_at_once();
                            if is_missed || is_found {
                                tell_missed(&way, &out).await?;
                            }
                        }
                        Err(failure) => {
                            tracing::debug!(%failure, "the server's notifications cannot be heard");
                            if way.is_of_another() {
                                // The client hears that its session is over when it asks for another stream.
                                return Ok(());
                            }
                            if self.lost {
                                gap.was_absent();
                            }
                            self.current = old;
                            if self.current.is_none() {
                                listening = None;
                            }
                        }
                    }
                }
                () = gap.due(), if self.current.is_some() => {
                    gap.note_told();
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
                        self.lost = true;
                        // Nothing cuts off what a process says: another one goes on.
                        if is_of_process(&ended) {
                            gap.was_absent();
                        } else {
                            gap.broke_off();
                        }
                        if self.since.elapsed() >= LASTS {
                            self.stream.pause = AGAIN;
                        }
                        self.stream.later();
                    }
                },
            }
        }
    }

    /// When the server is asked next.
    fn due(&self) -> Option<Instant> {
        let whole = self.whole.due.filter(|_| self.current.is_some());
        self.stream.due.into_iter().chain(whole).min()
    }

    /// Asks the server to tell what the session wants to hear. Says whether there is another stream than the one that `tells`
    /// already.
    async fn open(&mut self, way: &Way, tells: bool) -> Result<bool, Any> {
        let session = &way.session;
        let wanted = *session.wishes.borrow();
        self.stream.due = None;
        let (opened, is_refused) = self.ask(way, tells).await;
        let refused = if is_refused { wanted } else { 0 };
        let Some((told, uris)) = opened.inspect_err(|_| self.fails(tells))? else {
            // Who listens still need not wait to hear so.
            let is_untold = std::mem::take(&mut self.is_untold);
            session.heard.send_modify(|heard| {
                if is_untold {
                    *heard = Heard { wishes: wanted, granted: Some(self.asked.clone()), refused };
                }
                heard.refused = refused;
            });
            return Ok(false);
        };
        let (source, granted) = told.unzip();
        // Whatever it says, it was asked for no others.
        let granted = match granted.flatten() {
            Some(granted) if is_refused => Some(&granted & &uris),
            None if is_refused => Some(uris.clone()),
            granted => granted,
        };
        (self.current, self.asked, self.is_part) = (source, uris, is_refused);
        self.since = Instant::now();
        // Nobody is refused what it may well take.
        if self.is_untold {
            self.stream.due = Some(self.since);
            return Ok(true);
        }
        session.heard.send_if_modified(|heard| {
            let news = wanted >= heard.wishes;
            if news {
                *heard = Heard { wishes: wanted, granted, refused };
            }
            news
        });
        Ok(true)
    }

    /// The server's stream, with the resources that it was asked for; none where there is nothing else to ask for than what
    /// it tells of. And whether it refuses the rest: it may do so for one of them, and is asked for the others, and for all
    /// of them again later.
    async fn ask(&mut self, way: &Way, tells: bool) -> (Result<Option<Asked>, Any>, bool) {
        let session = &way.session;
        let (all, known) = session.subscribed();
        let is_due = self.whole.due.is_none_or(|due| due <= Instant::now());
        let is_asked = if known.len() == all.len() {
            !tells || is_due || all != self.refused
        } else {
            is_due && !self.is_awaited
        };
        // What it has once refused it may have refused for that moment.
        let mut looks_again = false;
        if is_asked {
            match open(way, &all).await {
                Ok(told) => {
                    session.note_refused(BTreeSet::new());
                    self.whole = Again::default();
                    self.is_untold = false;
                    return (Ok(Some((told, all))), false);
                }
                Err(failure) if !is_refused(&failure) || all.is_empty() => return (Err(failure), false),
                Err(_) => {
                    looks_again = self.whole.pause == AGAIN_AT_MOST;
                    self.whole.later();
                    self.refused.clone_from(&all);
                }
            }
        }
        if !tells {
            match part::begin(way, &known, &all).await {
                Ok((None, _)) if !self.is_awaited => {}
                // It has no lists.
                Ok((None, _)) => {
                    return (Err(Failure::Status(StatusCode::BAD_REQUEST.as_u16()).into()), true);
                }
                Ok((told, uris)) => {
                    self.is_untold = uris != known;
                    if self.is_untold {
                        let resources = all.len();
                        tracing::warn!(
                            resources,
                            "the server refuses to tell of what a client has subscribed to"
                        );
                    }
                    self.whole.due.get_or_insert_with(Instant::now);
                    return (Ok(Some((told, uris))), true);
                }
                Err(failure) => return (Err(failure), true),
            }
        }
        let known = if looks_again { all.clone() } else { known };
        let told_of = if tells { &self.asked & &all } else { BTreeSet::new() };
        if tells && known == self.asked {
            return (Ok(None), true);
        }
        let new = &known - &told_of;
        match part::find(way, (told_of, new), &all).await {
            Ok(Part { told, uris, refused }) => {
                session.note_refused(&(&all - &known) | &refused);
                match told {
                    Some(told) => {
                        self.is_untold = false;
                        (Ok(Some((Some(told), uris))), true)
                    }
                    None if tells => (Ok(None), true),
                    None => (Err(Failure::Status(StatusCode::BAD_REQUEST.as_u16()).into()), true),
                }
            }
            Err(failure) => (Err(failure), true),
        }
    }

    /// What was asked for is not to be had now.
    fn fails(&mut self, tells: bool) {
        if !tells {
            self.stream.later();
        } else if self.whole.due.is_none_or(|due| due <= Instant::now()) {
            self.whole.later();
        }
    }
}

/// The server's stream of its lists and these resources, understood in time, and those of them that it will tell of; none if
/// there is nothing to ask for.
async fn open(way: &Way, uris: &BTreeSet<String>) -> Result<Option<Told>, Any> {
    let id = way.lowered.question();
    let Some(request) = way.session.listen_to(&id, uris) else { return Ok(None) };
    let opened = timeout(UNDERSTOOD, ask(way, &id, request)).await;
    opened.unwrap_or(Err(Failure::BrokenOff.into())).map(Some)
}

async fn ask(way: &Way, id: &str, request: String) -> Result<Told, Any> {
    let repeated = repeat(Method::SubscriptionsListen, &Outline::default(), None);
    let mut source = way.call(request.into(), &repeated).await?;
    if !source.streams || !source.status.is_success() {
        let said = source.answer(id).await.ok().flatten();
        return Err(refused(source.status, said.as_deref()).into());
    }
    while let Some(message) = source.next().await? {
        if is_answer(&message, id) {
            // An end before the beginning is none.
            return Err(refused(source.status, Some(&message)).into());
        }
        if is(&message, ServerNotification::SubscriptionsAcknowledged) {
            let granted = object::at(&message, &["params"]).and_then(Filter::read).map(|filter| filter.uris);
            return Ok((source, granted));
        }
    }
    Err(Failure::BrokenOff.into())
}

/// Why there is no stream: with 405 if the server has none, whatever it says that with. What else it may answer it may
/// answer otherwise the next time.
fn refused(status: StatusCode, answer: Option<&str>) -> Failure {
    let has_none = match answer.map(|answer| envelope::read_servers(answer.as_bytes())) {
        Some(Ok(Message::Response(Response { outcome: Outcome::Error(error), .. }))) => {
            error::code_of(error.get()).and_then(Code::of) == Some(Code::MethodNotFound)
        }
        Some(_) => false,
        None => is_for_good(status),
    };
    let status = if has_none { StatusCode::METHOD_NOT_ALLOWED } else { status };
    Failure::Status(status.as_u16())
}

/// Whether the server has refused what it was asked for, and has a stream.
fn is_refused(failure: &Any) -> bool {
    let Any::Lowered(Failure::Status(status)) = failure else { return false };
    let status = StatusCode::from_u16(*status).unwrap_or_default();
    status != StatusCode::METHOD_NOT_ALLOWED && !is_not_now(status)
}

/// Whether a status refuses something once and for all.
fn is_for_good(status: StatusCode) -> bool {
    (status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED) && !is_not_now(status)
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

fn is(message: &str, method: ServerNotification) -> bool {
    matches!(
        envelope::read(message.as_bytes()),
        Ok(Message::Notification(notification)) if notification.method.as_str() == method.as_str()
    )
}
