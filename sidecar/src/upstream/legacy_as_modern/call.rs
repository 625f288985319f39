//! One call, from the client's request to the server's answer, with everything that the server asks in between.
//!
//! Its request carries it until the response begins. What is left then runs as a task of its own, on the thread on which
//! it began: while it waits for its client there is no request that it could belong to. A client that goes away cancels it,
//! unless it has been asked something: then it is waited for, but not for ever.
//!
//! [`stage`] is where it stands, [`heard`] what the server says, [`asking`] what its client is asked, [`end`] its end.

mod asking;
mod end;
mod heard;
mod stage;

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use longshore_mcp::capabilities::Need;
use longshore_mcp::parked::Parked;
use longshore_mcp::translate::{Pair, requests};
use longshore_sidecar_config::Upstream;
use tokio::time::{Duration, Instant, sleep};

use super::asked::Asked;
use super::client::Client;
use super::failure::Failure as Unusable;
use super::hearing;
use super::session::{Inbox, Number, Session};
use super::sessions::{Lease, Purpose};
use super::source::{Ending, Heard, read};
use super::way::Way;
use crate::held::Share;
use crate::upstream::{AGAIN, Failure, Post};
use stage::{Event, Stage};

/// After how long without a word from the server a response begins all the same: proxies give up on those that are
/// silent, and a stream can be kept alive.
const SILENCE: Duration = Duration::from_secs(5);

/// The request, while its answer is read.
type Reading = Pin<Box<dyn Future<Output = ()>>>;

/// The call.
struct Call {
    way: Rc<Way>,
    session: Arc<Session>,
    /// None once the server has done with it.
    lease: Option<Lease>,
    pair: Pair,
    number: Number,
    parked: Parked,
    /// What the questions take of the bounds that are open in it.
    questions: Option<Share>,
    /// Something that the server asked although its client did not declare that it can.
    lacks: Option<Need>,
    /// What the server is asked with: what came for it, and the request while its answer is read.
    inbox: Inbox,
    reading: Option<Reading>,
    /// The request is on its way, or was: nothing of it leaves before its answer is waited for.
    has_left: Rc<Cell<bool>>,
    /// What the server has asked before, and is to know the answer to when it hears of the call.
    first: Vec<Bytes>,
    /// The server has not heard of the call yet: its client is asked that first.
    is_unsent: bool,
    /// It was made again, since its user has been where the server wanted.
    is_again: bool,
    stage: Stage,
}

/// Makes a call for a client.
pub(super) async fn run(way: Way, mut client: Client) {
    let way = Rc::new(way);
    // Once more if the server has forgotten the session: then it has not seen the call.
    let (mut tries, mut is_again) = (2, false);
    while tries > 0 {
        tries -= 1;
        let asked = client.asked.clone();
        let begun = tokio::select! {
            begun = Call::begin(&way, &asked) => begun,
            () = client.gone() => return,
            () = way.left() => Err(Unusable::Left.into()),
        };
        let mut call = match begun {
            Ok(call) => call,
            Err(failure) if is_again && failure.is_absence() => {
                if !way.is_soon_back() {
                    return client.fail(Unusable::Gone.into()).await;
                }
                sleep(AGAIN).await;
                tries += 1;
                continue;
            }
            Err(failure) => return client.fail(failure).await,
        };
        // What its client sent is not kept while the call is parked.
        drop(asked);
        call.is_again = is_again;
        match call.serve(client).await {
            Some(unserved) => {
                // The server may have restarted meanwhile. What the client has brought back is good for one call, which has
                // its tries once more, but no more often.
                if call.is_again && !is_again {
                    (tries, is_again) = (2, true);
                }
                client = unserved;
            }
            None => return call.linger().await,
        }
    }
    client.fail(Unusable::Forgotten.into()).await;
}

impl Call {
    /// Finds it a session, and sends it.
    async fn begin(way: &Rc<Way>, asked: &Arc<Asked>) -> Result<Self, Failure> {
        let purpose = Purpose::of(asked, &way.upstream, &way.opener, way.parts_calls(asked));
        let lease = way.lease(asked, purpose).await?;
        let session = lease.session.clone();
        // Over HTTP a server may say all of it beside the call, and what its client cannot be asked has to be heard too, or
        // the server waits for an answer; otherwise it finds its call by itself.
        let is_http = matches!(way.upstream, Upstream::StreamableHttp { .. });
        let may_be_asked = asked.method.may_need_input();
        let is_asked = may_be_asked && asked.can_be_asked();
        let is_told = is_asked || asked.level.is_some() || is_http && asked.token.is_some();
        let is_refused = is_http && may_be_asked;
        let patience = if is_told { Some(hearing::OPEN) } else { is_refused.then_some(hearing::SOON) };
        if let Some(patience) = patience {
            Box::pin(hearing::begin(&session, &way.transport, patience)).await;
        }
        if may_be_asked {
            session.hear_early().await;
        }
        let pair = session.pair();
        let (mut number, inbox) = session.number(&asked.id)?;
        // Nothing is waited for with what is taken: it would be lost with a client that goes meanwhile.
        let first = if may_be_asked { session.early.take() } else { Vec::new() };
        let is_unsent = !first.is_empty();
        if !is_unsent {
            number.set_level(&way.transport, asked.level).await;
        }
        let parked = Parked::new(pair, &number.number.to_string(), asked.can.clone());
        let mut call = Self {
            way: way.clone(),
            session,
            lease: Some(lease),
            pair,
            number,
            parked,
            questions: way.transport.kept_for(&way.opener),
            lacks: None,
            inbox,
            reading: None,
            has_left: Rc::default(),
            first,
            is_unsent,
            is_again: false,
            stage: Stage::Over,
        };
        if !is_unsent {
            call.send(asked)?;
        }
        Ok(call)
    }

    /// Sends the request under the call's number.
    fn send(&mut self, asked: &Asked) -> Result<(), Failure> {
        let number = self.number.number.to_string();
        let request =
            requests::numbered(self.pair, Some(asked.method), asked.text(), &asked.client(), &number);
        let request = request.map_err(|_| Unusable::Internal)?.into_owned().into();
        // It is there beside what the client has sent, for as long as the server takes to read it.
        let held = self.way.transport.hold_beside(asked.text(), &self.way.opener, request);
        let request = held.map_err(Unusable::from)?;
        let letter = Post { trace: asked.trace.clone(), ..Post::of(request) }.within(self.session.within());
        let (session, transport, to) =
            (self.session.clone(), self.way.transport.clone(), self.inbox.0.clone());
        let may_be_asked = asked.method.may_need_input();
        let has_left = Rc::<Cell<bool>>::default();
        self.has_left = has_left.clone();
        self.reading = Some(Box::pin(async move {
            has_left.set(true);
            let reading = read(&session, &transport, letter, &number, to);
            // A call that may be asked something has begun with what waited.
            if may_be_asked {
                reading.await;
            } else {
                session.meanwhile(&transport, reading).await;
            }
        }));
        Ok(())
    }

    /// Goes on until it is answered or cancelled. Gives the client back if the server has not seen the call, since it
    /// has forgotten the session.
    async fn serve(&mut self, client: Client) -> Option<Client> {
        self.stage = Stage::Serving(client);
        if self.is_unsent {
            Box::pin(self.ask_first()).await;
        }
        let mut silence = Instant::now() + SILENCE;
        while !matches!(self.stage, Stage::Over) {
            let event = self.next(silence).await;
            match (event, std::mem::replace(&mut self.stage, Stage::Over)) {
                (Event::Heard(Heard::Over(Ending::Forgotten)), Stage::Serving(client))
                    if client.has_nothing() && !self.parked.is_waiting() =>
                {
                    self.session.end();
                    if let Some(lease) = &self.lease {
                        lease.leave_unused();
                    }
                    return Some(client);
                }
                // Its client could not make it once more: what it has brought back is good for one call.
                (Event::Heard(Heard::Over(Ending::Failed(failure))), Stage::Serving(client))
                    if self.is_again && failure.is_absence() && self.way.is_soon_back() =>
                {
                    sleep(AGAIN).await;
                    Box::pin(self.make_again(client)).await;
                }
                (Event::Heard(heard), stage) => self.heard(heard, stage).await,
                (Event::Gone, _) => Box::pin(self.abandon("the client has gone")).await,
                (Event::Silent, Stage::Serving(mut client)) => {
                    client.begin();
                    self.stage = Stage::Serving(client);
                }
                (Event::Gathered, Stage::Gathering(client, _)) => Box::pin(self.ask(client)).await,
                (Event::Back(client), Stage::Waiting(waiting)) => {
                    // It is another request, whose response may still become anything.
                    silence = Instant::now() + SILENCE;
                    Box::pin(self.back(client, waiting)).await;
                }
                (Event::Left, stage) => Box::pin(self.leave(stage)).await,
                (Event::Expired, stage) => {
                    // A client that comes while the server is told finds nobody any more.
                    drop(stage);
                    Box::pin(self.abandon("the client did not answer in time")).await;
                }
                // They only come in these stages.
                (Event::Silent | Event::Gathered | Event::Back(_), stage) => self.stage = stage,
            }
        }
        None
    }
}
