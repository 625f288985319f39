//! A stateless request, one that stands alone: it goes to the server, and what comes back goes to the client.
//!
//! It is no task of its own: it goes on for as long as its client reads, and who goes away has cancelled it. All that
//! has to be done for that is to drop it.

mod judge;
mod live;
mod passing;

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use longshore_mcp::detect::Modern;
use longshore_mcp::error::Code;
use longshore_mcp::status;
use tokio::time::{Duration, Instant, timeout};

use super::answer::HOLD;
use super::deadline::Deadline;
use super::doubt;
use super::request::patiently;
use crate::access::Caller;
use crate::calls::CallGuard;
use crate::configuration::Snapshot;
use crate::held::{Coming, Share};
use crate::refusal::Refusal;
use crate::sessions::{Full, Place};
use crate::stack::Trail;
use crate::stack::respond::{self, Body};
use crate::stack::standing::Standing;
use crate::tasks::Naming;
use crate::upstream::source::Source;
use crate::upstream::{self, Also, Answer, EDITABLE, Failure, Form, Lease, Opener, Post};
use crate::whole_body::Gathered;
use crate::worker::Worker;
use judge::{Judge, Verdict};
use live::{Live, Rest, Until};
use passing::Passing;

/// How long the first event of an answer is waited for, so that it goes out in one piece with the head.
const MOMENT: Duration = Duration::from_secs(1);

/// How long a call that the server would not look at waits for whoever finds out what the server is by now. They take a
/// breath of a second where it was hardly there.
const LOOK: Duration = Duration::from_secs(2);

/// A request that stands alone, on its way to the server.
pub(crate) struct StatelessCall<'a> {
    /// What it says.
    pub(crate) modern: &'a Modern<'a>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
    /// If it has no end of its own: what it was permitted for.
    pub(crate) standing: Option<Standing>,
    /// How the tasks are called that it is about, or may begin.
    pub(crate) naming: Option<Arc<Naming>>,
    /// As the server is to have it.
    pub(crate) post: Post,
}

/// What a request takes of the limits, for as long as it goes on.
struct Held {
    /// A drain waits for it.
    _under_way: Option<CallGuard>,
    /// It is one of so many.
    _place: Place,
}

/// How far an answer has come when its response can begin.
enum Begun {
    /// All of it. A server that has no time says so with a status, and when to come again. One that is `strange` has not
    /// looked at the request, as one of another era would not.
    Whole { message: Bytes, code: Option<i64>, events: bool, strange: bool, later: Option<Later> },
    /// A message that is too large to be held, in which little is edited.
    Long { start: Bytes, passing: Box<Passing>, body: upstream::Body, lease: Lease },
    /// Events, of which these have come.
    Events { source: Box<Source>, start: Bytes },
}

/// The status of a server that has no time, and its `Retry-After`.
type Later = (StatusCode, HeaderValue);

/// Sends a request and gives the client what comes back. Whoever drops this, or the response, cancels the request.
pub(crate) async fn call_stateless(
    worker: &Rc<Worker>,
    mut lone: StatelessCall<'_>,
    trail: &mut Trail,
) -> Result<Response<Body>, Refusal> {
    let held = admit(worker, &lone)?;
    let limit = Duration::from_millis(lone.snapshot.config.limits.request_timeout_ms);
    let deadline = Deadline::after(Instant::now(), limit);
    let judge = Judge::new(worker, &lone);
    let begun = deadline.within(reach(worker, &lone, &judge)).await.flatten();
    let begun = begun.inspect_err(|refusal| doubt(&worker.shared, refusal))?;
    Ok(match begun {
        Begun::Whole { message, code, events, later, .. } => {
            let mut response = if events {
                respond::events(Body::whole(message), None)
            } else {
                respond::json(Body::whole(message), None)
            };
            // A stream of events is no error, whatever is said in it, and however much of it has come already.
            let error = code.filter(|_| !events);
            let status = error.map_or(200, |code| status::of_error(code, lone.modern.revision));
            *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
            if let Some((status, after)) = later {
                *response.status_mut() = status;
                response.headers_mut().insert(RETRY_AFTER, after);
            }
            trail.entry.answered(response.status().as_u16(), code);
            drop(trail.entry.hand_over());
            response
        }
        Begun::Long { start, passing, body, lease } => {
            let live = live::message(held, deadline, start, *passing, body, lease, trail.entry.hand_over());
            respond::json(Body::Live(live), None)
        }
        Begun::Events { source, start } => {
            let listens = lone.standing.is_some();
            let until = lone.standing.take().map_or(Until::Deadline(deadline), Until::Standing);
            let rest = Rest { worker: worker.clone(), until, held: Some(held) };
            let live = Live::new(rest, judge, *source, start, trail.entry.hand_over());
            let response = respond::events(Body::Live(live.stream()), None);
            if listens { respond::of_no_call(response) } else { response }
        }
    })
}

/// Takes what a request needs of the limits, before the server hears of it.
fn admit(worker: &Worker, lone: &StatelessCall<'_>) -> Result<Held, Refusal> {
    let shared = &worker.shared;
    if lone.standing.is_some() {
        // It has no end of its own, so a drain does not wait for it, and begins no other.
        if shared.is_draining() {
            return Err(Refusal::Draining);
        }
        let place = shared.listeners.take(&lone.caller.principal, &lone.snapshot.config.sessions);
        let place = place.map_err(|full| match full {
            Full::Total => Refusal::TooManyListeners,
            Full::Principal(limit) => Refusal::TooManyOwnListeners { limit },
        })?;
        return Ok(Held { _under_way: None, _place: place });
    }
    let place = shared.room(&shared.rooms.calls, &lone.caller.principal, &lone.snapshot.config)?;
    Ok(Held { _under_way: Some(shared.calls.begin()), _place: place })
}

async fn send(worker: &Worker, lone: &StatelessCall<'_>) -> Result<Answer, Failure> {
    let config = &lone.snapshot.config;
    let opener = Opener::client(&lone.caller.principal, config);
    worker.pool.call(&config.upstream, lone.snapshot.protocol, &opener, lone.post.clone(), lone.modern).await
}

/// Has the request answered: by a second try where the server has become one of another era. It may have restarted so,
/// and calls find that out before anybody else does.
async fn reach(worker: &Worker, lone: &StatelessCall<'_>, judge: &Judge) -> Result<Begun, Refusal> {
    // By which the first try went.
    let known = worker.pool.known(lone.snapshot.protocol).await;
    let first = attempt(worker, lone, judge).await;
    let Some(known) = known.filter(|_| is_strange(&first)) else { return first };
    let other = worker.pool.speaks().other_than(known, Instant::now() + LOOK);
    worker.shared.doubt.raise();
    if other.await {
        return attempt(worker, lone, judge).await;
    }
    first
}

async fn attempt(worker: &Worker, lone: &StatelessCall<'_>, judge: &Judge) -> Result<Begun, Refusal> {
    let answer = patiently(&worker.shared, async || send(worker, lone).await).await?;
    begin(answer, judge, worker.shared.held.nothing(&lone.caller.principal)).await
}

/// Whether a server may be of another era than it was: it would not begin a session, or knows no request without one.
fn is_strange(begun: &Result<Begun, Refusal>) -> bool {
    match begun {
        Ok(Begun::Whole { strange, .. }) => *strange,
        Ok(_) => false,
        Err(Refusal::ServerStatus { status }) => refuses_strangers(*status),
        Err(_) => false,
    }
}

/// Whether servers that do not know what they are asked answer with this status.
fn refuses_strangers(status: u16) -> bool {
    matches!(status, 400 | 404 | 405)
}

/// Whether an error is one of a server that knows requests which stand alone.
fn is_of_its_era(code: i64) -> bool {
    use Code::{HeaderMismatch, InvalidParams, MethodNotFound, MissingClientCapability};
    matches!(Code::of(code), Some(MethodNotFound | InvalidParams | HeaderMismatch | MissingClientCapability))
}

/// Reads an answer until the client's response can begin.
async fn begin(answer: Answer, judge: &Judge, mut share: Share) -> Result<Begun, Refusal> {
    let Answer { status, also, body, lease } = answer;
    let form = body.form();
    if !status.is_success() {
        return failed((status, also), body, lease, judge, share).await;
    }
    if form == Form::Events {
        return events(Source::new(body, lease, Coming::new(Some(share.split(0)))), judge, share).await;
    }
    if form == Form::Other {
        return Err(Refusal::ServerNonsense);
    }
    match collect(body, judge.hold(), &mut share).await? {
        Collected::Whole(message) => {
            lease.give_back();
            match judge.look(&message)? {
                Verdict::Answer { edited, code } => {
                    let message = share.keep(edited.map_or(message, Bytes::from));
                    Ok(Begun::Whole { message, code, events: false, strange: false, later: None })
                }
                Verdict::Passes(_) | Verdict::Dropped => Err(Refusal::ServerNonsense),
            }
        }
        Collected::Start(..) if judge.edits() => Err(Refusal::AnswerTooLarge { limit: EDITABLE }),
        Collected::Start(start, body) => {
            let mut passing = judge.passing();
            let start = passing.pass(start)?;
            Ok(Begun::Long { start: share.keep(start), passing: Box::new(passing), body, lease })
        }
    }
}

/// Reads events until the answer, or until some have come and the next ones are to be waited for.
async fn events(mut source: Source, judge: &Judge, mut share: Share) -> Result<Begun, Refusal> {
    let mut first = Vec::new();
    let read = async {
        while first.is_empty() {
            let data = source.next().await?.ok_or(Refusal::ServerLost)?;
            if let Some(code) = judge.read(&mut source, &data, &mut first)? {
                return Ok(Some(code));
            }
        }
        Ok::<_, Refusal>(None)
    };
    let code = timeout(MOMENT, read).await.unwrap_or(Ok(None))?;
    if !share.reach_in_time(first.len()).await {
        return Err(Refusal::AnswerNotHeld);
    }
    let first = share.keep(first.into());
    source.settle();
    Ok(match code {
        Some(code) => {
            source.into_tail().leave();
            Begun::Whole { message: first, code, events: true, strange: false, later: None }
        }
        None => Begun::Events { source: Box::new(source), start: first },
    })
}

/// Makes an error of an answer that is no success.
async fn failed(
    (status, also): (StatusCode, Also),
    body: upstream::Body,
    lease: Lease,
    judge: &Judge,
    mut share: Share,
) -> Result<Begun, Refusal> {
    if let Collected::Whole(message) = collect(body, HOLD, &mut share).await? {
        lease.give_back();
        if let Ok(Verdict::Answer { edited, code: Some(code) }) = judge.look(&message) {
            let message = share.keep(edited.map_or(message, Bytes::from));
            let strange = refuses_strangers(status.as_u16()) && !is_of_its_era(code);
            let later = match also {
                Also::HasNoTime(after) => Some((status, after)),
                _ => None,
            };
            return Ok(Begun::Whole { message, code: Some(code), events: false, strange, later });
        }
    }
    Err(Refusal::ServerStatus { status: status.as_u16() })
}

/// What was read of a body.
enum Collected {
    Whole(Bytes),
    /// More than was to be held, and the rest.
    Start(Bytes, upstream::Body),
}

async fn collect(mut body: upstream::Body, hold: usize, share: &mut Share) -> Result<Collected, Refusal> {
    let mut gathered = Gathered::of(&body, hold);
    // What counts it until now is not given back before it is counted here, nor the turn that it may have had.
    let _turn = body.take_came().map(|came| came.count_in(share));
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        gathered.push(data);
        // What is larger than all that there is waits for nothing.
        if gathered.len() <= EDITABLE && !share.reach_in_time(gathered.len()).await {
            return Err(Refusal::AnswerNotHeld);
        }
        if gathered.len() > hold {
            return Ok(Collected::Start(gathered.freeze(), body));
        }
    }
    Ok(Collected::Whole(gathered.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::{Bounds, Shares};

    #[tokio::test(start_paused = true)]
    async fn an_answer_keeps_its_turn_until_there_is_room_for_it() {
        const SIZE: usize = 100_000;
        let shares = Shares::new(Bounds { total: SIZE, per_principal: SIZE });
        let unread = shares.take(&"c".into(), SIZE).unwrap();
        let [mut first, mut second] = ["a", "b"].map(|who| Coming::new(Some(shares.nothing(&who.into()))));
        first.came(SIZE / 2);
        second.came(SIZE / 2);
        assert!(first.room().await && !second.room().await);
        let body = upstream::Body::counted(vec![b'x'; SIZE / 2].into(), first.hand_on(SIZE / 2));
        let mut share = shares.nothing(&"a".into());
        let another = async {
            let had_turn = timeout(Duration::from_secs(1), second.room()).await;
            drop(unread);
            had_turn
        };
        let (collected, had_turn) = tokio::join!(collect(body, EDITABLE, &mut share), another);
        assert!(had_turn.is_err(), "more would be held than there is room for");
        assert!(matches!(collected, Ok(Collected::Whole(message)) if message.len() == SIZE / 2));
        assert!(second.room().await);
    }
}
