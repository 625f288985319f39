//! What the server says that belongs to no call. A client hears it by a GET; for that the sidecar asks the server for
//! the same, in the session of the client, and passes on what comes.

mod heard;
mod missed;
mod opened;

use std::collections::VecDeque;
use std::rc::Rc;

use http::Response;
use longshore_mcp::envelope;
use longshore_sidecar_config::Upstream;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::carry::{self, Aside};
use super::doubt;
use super::events::is_aside;
use super::request;
use crate::configuration::Snapshot;
use crate::headers::LAST_EVENT_ID;
use crate::refusal::Refusal;
use crate::sessions::{self, Session, Use};
use crate::stack::respond::{self, Body};
use crate::stack::{Authenticated, standing, tasks};
use crate::streams::{Reader, Refused, Rest, Streams, Terms, Writer};
use crate::upstream::missed::Told;
use crate::worker::Worker;
use heard::Heard;
pub(super) use missed::offers;
use opened::{Opened, ask};

/// How long a server may speak of a task before it answers the call that begins it.
const BEGUN: Duration = Duration::from_secs(5);

/// For how long, and how often, another request is looked after that has asked it. Whoever comes back is there before it is
/// known that its last connection was lost.
const OPENING: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// What holds for the streams of a session.
pub(super) fn terms(worker: &Worker, snapshot: &Snapshot, session: &Session) -> Terms {
    let resume = snapshot.config.sessions.resume;
    Terms {
        polls: polls(snapshot, session),
        max_bytes: usize::try_from(resume.max_bytes).unwrap_or(usize::MAX),
        ttl: Duration::from_millis(resume.ttl_ms),
        waits: true,
        store: worker.shared.streams.clone(),
    }
}

/// Whether the client of a session asks again for a stream that ended early, and there is something to ask for.
pub(super) fn polls(snapshot: &Snapshot, session: &Session) -> bool {
    session.revision.features().priming
        && snapshot.config.sessions.resume.max_bytes > 0
        && !session.streams.are_in_one()
}

/// Gives a client the stream that it asks for: the rest of one that it knows, or what belongs to no call.
pub(crate) async fn listen(
    worker: &Rc<Worker>,
    caller: Authenticated,
    session: Use,
) -> Result<Response<Body>, Refusal> {
    let limit = caller.snapshot.config.sessions.streams;
    let turn = match caller.header(LAST_EVENT_ID)? {
        None => once_opened(|| Streams::listen(&session, limit)).await?,
        Some(last) => {
            let told = missed::of_a_call(&session);
            let rest = once_opened(|| Streams::resume(&session, last, limit, told)).await?;
            worker.shared.metrics.resumption(!rest.is_gone());
            match rest {
                Rest::Reader(reader) => {
                    missed::tell(worker, &session, &reader);
                    return Ok(events(read_by(worker, &caller, reader)));
                }
                Rest::Nothing => return Ok(respond::nothing()),
                Rest::Unanswered { request, event } => {
                    return Err(Refusal::AnswerGone { request, event });
                }
                Rest::Gone => return Err(Refusal::EventsGone),
                // That is asked for anew, which takes a session as a call does.
                Rest::Quiet(_) if session.is_too_old(&caller.snapshot) => {
                    return Err(Refusal::UnknownSession);
                }
                Rest::Quiet(turn) => turn,
            }
        }
    };
    if let Some(reader) = turn.join() {
        missed::tell(worker, &session, &reader);
        return Ok(events(read_by(worker, &caller, reader)));
    }
    let snapshot = caller.snapshot.clone();
    let opened = ask(worker, &snapshot, turn.session(), None).await?;
    let mut terms = terms(worker, &snapshot, &session);
    // Elsewhere there is one way to say everything: whoever does not listen must not keep the server from answering
    // calls.
    terms.waits = matches!(snapshot.config.upstream, Upstream::StreamableHttp { .. });
    let (writer, reader) = turn.open(terms)?;
    missed::tell(worker, &session, &reader);
    // Of the stream, not of this request: a session that is only listened to may move. And nobody may listen any more.
    let (worker, session) = (worker.clone(), session.for_kept());
    let reader = read_by(&worker, &caller, reader);
    let caller = caller.caller_alone();
    writer.run(|writer| hear(worker, caller, session, writer, opened));
    Ok(events(reader))
}

/// Tries again while another request of the session asks the server for its stream: its client may have gone, and be who
/// comes back.
async fn once_opened<T>(attempt: impl Fn() -> Result<T, Refused>) -> Result<T, Refused> {
    let until = Instant::now() + OPENING;
    loop {
        match attempt() {
            Err(Refused::Opening) if Instant::now() < until => sleep(LOOK).await,
            result => return result,
        }
    }
}

/// What belongs to no call is read for as long as the key lives with which it is, whichever it was opened with.
fn read_by(worker: &Rc<Worker>, caller: &Authenticated, reader: Reader) -> Reader {
    if reader.is_own() {
        reader.until(standing::revoked(worker.clone(), caller.caller_alone()))
    } else {
        reader
    }
}

fn events(reader: Reader) -> Response<Body> {
    let is_own = reader.is_own();
    let response = respond::events(Body::Events(Box::new(reader)), None);
    if is_own { respond::of_no_call(response) } else { response }
}

/// Passes on what comes, until there is nothing more to be had or the client may not hear it any more.
async fn hear(worker: Rc<Worker>, caller: Authenticated, session: Use, writer: Writer, opened: Opened) {
    let principal = caller.principal().clone();
    let mut changed = worker.shared.config_changed.subscribe();
    // There may be another configuration since the stream was permitted.
    changed.mark_changed();
    let mut caller = caller;
    let share = worker.shared.held.nothing(&principal);
    let mut heard = Heard::new(opened, share, session.server_revision);
    if session.is_unset() {
        heard.note_missed();
    }
    // Has the server told what the client has set, in its turn, while it is read on.
    let mut setting = JoinSet::new();
    let mut late = VecDeque::new();
    loop {
        tokio::select! {
            // A server that always has something to say is no reason to go on.
            biased;
            // A key that was revoked opens nothing any more, and keeps nothing open.
            _ = changed.changed() => {
                let before = caller.snapshot.clone();
                match caller.once_more(&worker) {
                    Ok(again) if *again.principal() == principal => {
                        if !again.snapshot.shows_the_same(&before) {
                            missed::tell_lists(&worker, |message| writer.write(message));
                        }
                        caller = again;
                    }
                    Ok(_) | Err(_) => {
                        match worker.shared.snapshot.load_full() {
                            // Whoever reads with another key of the same caller comes back.
                            Some(now) if is_known(&now, &principal) => {
                                if !now.shows_the_same(&before) {
                                    missed::tell_lists(&worker, |message| writer.write(message));
                                }
                            }
                            _ => writer.dismiss(),
                        }
                        return;
                    }
                }
                if is_known(&before, &principal) && !is_known(&caller.snapshot, &principal) {
                    return writer.dismiss();
                }
            }
            going_on = pass(&worker, &caller, &session, &mut heard, &mut setting, &mut late, &writer) => {
                if !going_on {
                    return;
                }
            }
        }
    }
}

/// Whether a caller has a key at all. Which one it was only the replica knows that looked at it.
fn is_known(snapshot: &Snapshot, principal: &str) -> bool {
    snapshot.authenticator.caller(principal).is_some()
}

/// Passes on what comes until the server ends its stream, and opens that again. Says whether it could. What is about a task
/// that may be about to begin is `late`, and what comes after it.
async fn pass(
    worker: &Worker,
    caller: &Authenticated,
    session: &Use,
    heard: &mut Heard,
    setting: &mut JoinSet<bool>,
    late: &mut VecDeque<Vec<u8>>,
    writer: &Writer,
) -> bool {
    let snapshot = &caller.snapshot;
    loop {
        while let Some(message) = late.front() {
            if let Some((task, at)) = tasks::not_begun(worker, session, message) {
                let begun = worker.shared.tasks.begun_or_not(session.capsule.principal, &task, &at);
                // If no call has begun it by then, it is somebody else's.
                let _ = timeout(BEGUN, begun).await;
            }
            hand_on(worker, caller, session, writer, message);
            late.pop_front();
        }
        heard.source.settle();
        let waits = Instant::now();
        // Whoever has the turn holds others up, and is waited for no longer than a server would be.
        if heard.source.while_it_may(writer.room()).await.is_none() {
            heard.broke_off();
            break;
        }
        heard.source.held_up(waits.elapsed());
        let due = heard.due();
        let next = tokio::select! {
            // A server that always has something to say puts it off no further.
            biased;
            Some(set) = setting.join_next(), if heard.is_given() => {
                let is_set = set.unwrap_or(false);
                // Who was told that this was in vain need not hear it each time.
                if is_set || !heard.is_due_in_the_end() || !session.is_unset() {
                    tell_missed(worker, session, heard, writer, is_set);
                }
                continue;
            }
            () = due, if setting.is_empty() => {
                if heard.is_due_in_the_end() {
                    setting.spawn_local(sessions::set_in_the_end(session));
                    continue;
                }
                // What changes before the server knows that, nobody hears of.
                let lost = heard.lost_for_another();
                if lost.is_some() || session.is_unset() {
                    setting.spawn_local(sessions::set_one_again(session, lost));
                } else {
                    let is_set = session.is_set_since(heard.lost);
                    tell_missed(worker, session, heard, writer, is_set);
                }
                continue;
            }
            () = writer.is_unheard() => {
                missed::tell_all(worker, session, |message| writer.tell(message));
                continue;
            }
            next = heard.source.next() => next,
        };
        let data = match next {
            Ok(Some(data)) => data,
            // What it says before it is asked again nobody hears.
            Ok(None) => {
                heard.broke_off();
                break;
            }
            // Nothing else may tell that the server is another one by now.
            Err(unread) => {
                doubt(&worker.shared, &unread.into());
                heard.broke_off();
                break;
            }
        };
        let read = heard.source.read(&data, |event| {
            // An answer belongs to a call, whose answer is looked into; here it would pass unseen.
            let Some(message) = event.message() else { return };
            if !is_aside(message) {
                if let Some(refusal) = envelope::refusal_of_number(message) {
                    request::tell(worker, &caller.snapshot, session, refusal);
                }
                return;
            }
            if late.is_empty() && tasks::not_begun(worker, session, message).is_none() {
                hand_on(worker, caller, session, writer, message);
            } else {
                late.push_back(message.to_vec());
            }
        });
        if read.is_err() {
            return false;
        }
    }
    heard.source.ended().await;
    // In memory of its own, which nothing takes while the server is only listened to.
    let Ok(opened) = Box::pin(ask(worker, snapshot, session, heard.place())).await else { return false };
    if heard.go_on(opened) {
        *setting = JoinSet::new();
    }
    true
}

/// Tells the client that all may have changed.
fn tell_missed(worker: &Worker, session: &Session, heard: &mut Heard, writer: &Writer, is_set: bool) {
    let told = if !is_set {
        Told::Nothing
    } else if session.is_set_since(heard.lost) {
        Told::All
    } else {
        Told::InDoubt
    };
    heard.note_told(told, session.is_unset());
    missed::tell_all(worker, session, |message| writer.write(message));
}

/// Passes a message on, as far as it is for the client of this session.
fn hand_on(worker: &Worker, caller: &Authenticated, session: &Use, writer: &Writer, message: &[u8]) {
    let principal = caller.principal();
    if !standing::may_hear(&worker.shared, principal, message) {
        return;
    }
    let Some(pair) = carry::pair(session) else {
        if let Some(message) = tasks::aside(worker, principal, session, message)
            && let Some(message) = session.hears(&message)
        {
            writer.write(&message);
        }
        return;
    };
    match carry::aside(session, pair, message) {
        Aside::On(text) => {
            if let Some(message) = session.hears(text.as_bytes()) {
                writer.write(&message);
            }
        }
        Aside::Nowhere => {}
        Aside::Unasked(answer) => request::tell(worker, &caller.snapshot, session, answer),
    }
}
