//! One call: the request as the server reads it, what the server says meanwhile, and its result as the client reads it.
//! Where the server asks back, the client is asked on the stream of its call, and the call goes to the server again.

mod asking;
mod failure;

use std::collections::BTreeSet;
use std::pin::pin;

use bytes::Bytes;
use futures::TryFutureExt;
use http::StatusCode;
use longshore_mcp::envelope::{self, Id, Message, Outcome, Request};
use longshore_mcp::error::{self, Code, code_of};
use longshore_mcp::headers::argument::Marked;
use longshore_mcp::listing;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::{List, Method, Subject};
use longshore_mcp::rounds::{Mint, Rounds};
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests;
use longshore_mcp::translate::responses::{self, Answer as Translated, Asked};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, tools};
use tokio::time::{Instant, sleep};

use super::registry::{ALONE, ModernAsLegacy};
use super::session::{UnderWay, Word};
use super::source::{Source, answers};
use super::way::{Way, repeat};
use super::{Failure, local};
use crate::held::Share;
use crate::sessions::refuses_unread;
use crate::upstream::letter::Repeated;
use crate::upstream::made::{Made, Out};
use crate::upstream::waiting::Unread;
use crate::upstream::{AGAIN, Answer, Failure as Any, Opener, random};
use asking::ask;
use failure::{is_suspicious, once_answered, once_begun, unanswered};

/// How many tools are named that are not given.
const TOLD: usize = 10;

/// A call on its way.
struct Call {
    way: Way,
    under_way: UnderWay,
    /// What the client knows it by, as JSON.
    id: String,
    method: Method,
    /// The tool that is called.
    tool: Option<String>,
    /// The resource that is read.
    uri: Option<String>,
    wrapped: Option<bool>,
    repeated: Repeated,
}

/// Makes names for what a client is asked.
struct Names<'a> {
    modern_as_legacy: &'a ModernAsLegacy,
    /// There were no random numbers.
    failed: bool,
}

/// Answers a request, or has the server answer it.
pub(super) async fn call(way: Way, request: &Request<'_>, text: &str) -> Result<Answer, Any> {
    let pair = way.session.pair;
    match destination::of(pair, &request.method) {
        Destination::Server => {}
        Destination::Empty => return local::ping(&way, request).await,
        Destination::Level => return Ok(local::set_level(&way, request)),
        Destination::Subscription => return local::subscription(&way, request).await,
        Destination::Handshake => {
            let why = "this session has been initialized already";
            return Ok(local::refused(request, Code::InvalidRequest, why));
        }
        Destination::Listen | Destination::Unknown => return Ok(local::unknown(request)),
    }
    // What nobody knows has no headers that anybody could write.
    let Some(method) = Method::of(pair.server, &request.method) else { return Ok(local::unknown(request)) };
    let mut under_way = way.session.begin(request.id)?;
    let outline = match Outline::read(request.params) {
        Ok(outline) => outline,
        Err(error) => return Ok(local::refused(request, Code::InvalidParams, &error.to_string())),
    };
    let sent = match requests::request(pair, Some(method), text, &way.session.client()) {
        Ok(sent) => way.hold_beside(text, sent.into_owned().into())?,
        Err(error) => return Ok(local::refused(request, Code::InvalidParams, &error.to_string())),
    };
    let name =
        |subject| outline.name(subject).filter(|_| method.subject() == subject).map(|name| name.to_string());
    let (tool, uri) = (name(Subject::Tool), name(Subject::Resource));
    let mut known = tool.as_ref().and_then(|tool| way.modern_as_legacy.tools.find(tool));
    if let (Some(tool), None) = (&tool, &known) {
        // The server has to be asked. What is rarely needed is boxed, here and below: each call would be as large.
        known = under_way
            .during(Box::pin(async { Ok(way.modern_as_legacy.tools.get(&way, tool).await) }))
            .await?;
    }
    let marked = known.as_ref().and_then(|tool| tool.marked.as_deref());
    let repeated = repeat(method, &outline, marked);
    let wrapped = known.as_ref().map(|tool| tool.wrapped);
    let id = request.id.as_json().to_owned();
    let call = Call { way, under_way, id, method, tool, uri, wrapped, repeated };
    Made::new(|out| call.run(sent, out).map_ok(Some)).respond().await
}

impl Call {
    /// Gives the answer.
    async fn run(mut self, mut first: Bytes, out: Out) -> Result<Bytes, Any> {
        let mut asking: Option<(Rounds, Share)> = None;
        let (mut body, mut id, mut renewed) = (first.clone(), self.id.clone(), false);
        let mut has_answered = false;
        // The sidecar itself tells others what the server lists, and not what older clients get of that.
        let is_own = matches!(self.way.session.opener, Opener::Own);
        loop {
            let sent_at = Instant::now();
            let (status, answer) = if has_answered {
                Box::pin(self.send_on(&body, &id, &out)).await?
            } else {
                self.send(body.clone(), &id, &out).await?
            };
            has_answered = true;
            let Some(answer) = answer else {
                let Self { way, under_way, .. } = &mut self;
                let why = Box::pin(async { Ok(unanswered(way, status).await) });
                let why = under_way.during(why).await.unwrap_or_else(|failure| failure);
                return Err(if asking.is_some() { once_begun(why) } else { why });
            };
            let Ok(Message::Response(response)) = envelope::read_servers(answer.as_bytes()) else {
                return Err(Failure::Nonsense.into());
            };
            let mut unusable = BTreeSet::new();
            match response.outcome {
                Outcome::Error(error) => {
                    let code = code_of(error.get()).and_then(Code::of);
                    if code == Some(Code::HeaderMismatch) && !renewed {
                        let sent =
                            asking.as_ref().map_or(&first[..], |(rounds, _)| rounds.request().as_bytes());
                        if Box::pin(self.renew(sent, sent_at)).await? {
                            renewed = true;
                            continue;
                        }
                    }
                    let Self { way, under_way, .. } = &mut self;
                    if is_suspicious(status, code)
                        && !under_way.during(Box::pin(way.is_modern())).await.map_err(once_answered)?
                    {
                        let why = Failure::Forgotten.into();
                        return Err(if asking.is_some() { once_begun(why) } else { why });
                    }
                }
                Outcome::Result(result) if self.method == Method::ToolsList => {
                    unusable = self.way.modern_as_legacy.tools.note(result.get());
                    if !self.way.has_headers() {
                        unusable.clear();
                    }
                    if is_own {
                        tell_unusable(&unusable);
                        tell_unreadable(self.way.session.pair, result.get());
                    }
                }
                Outcome::Result(_) => {}
            }
            let asked = Asked { id: &self.id, method: Some(self.method), uri: self.uri.as_deref() };
            let hints = Hints { wrapped: self.wrapped, ..Hints::default() };
            match responses::response(self.way.session.pair, &asked, &response, &answer, &hints) {
                Ok(Translated::Message(text)) => {
                    let text = text.into_owned();
                    return Ok(without(&unusable, if is_own { answer } else { text }).into());
                }
                Ok(Translated::InputRequired(result)) => {
                    let (rounds, parked) = match &mut asking {
                        Some(asking) => asking,
                        None => asking.insert(self.park(&std::mem::take(&mut first))?),
                    };
                    let mut names = Names { modern_as_legacy: &self.way.modern_as_legacy, failed: false };
                    let next = rounds.input_required(result, &mut names);
                    if names.failed {
                        return Err(Failure::NoNumbers.into());
                    }
                    // People take their time. What is kept meanwhile is counted, and nothing else is kept.
                    let kept = rounds.kept();
                    parked.shrink(kept);
                    if !parked.reach_alone(kept, ALONE) {
                        return Err(Failure::TooManyQuestions.into());
                    }
                    drop((answer, std::mem::take(&mut body)));
                    let asked = ask(&self.way, &mut self.under_way, &self.id, rounds, parked, next, &out);
                    if let Some(answer) = Box::pin(asked).await? {
                        return Ok(answer.into());
                    }
                    id = self.way.modern_as_legacy.question();
                    body = rounds.again(&id).map_err(|_| Failure::Nonsense)?.into();
                }
                // Only clients of the newer era are told so.
                Ok(Translated::Visit(_)) => return Err(Failure::Nonsense.into()),
                Err(error) => {
                    let id = Some(Id::from_json(&self.id));
                    return Ok(error::response(id, Code::InternalError, &error.to_string(), None).into());
                }
            }
        }
    }

    /// Sends the request, passes on what comes before the answer, and gives that.
    async fn send(&mut self, body: Bytes, id: &str, out: &Out) -> Result<(StatusCode, Option<String>), Any> {
        let Self { way, under_way, repeated, .. } = self;
        let exchange = pin!(async {
            let mut source = way.call(body, repeated).await?;
            let answer = pass(way, &mut source, id, out).await?;
            let status = source.status;
            source.finish();
            Ok((status, answer))
        });
        under_way.during(exchange).await
    }

    /// The same once the server has answered the call. One that is away for a little is waited for here: the call would be
    /// another one if it was made again, and what its client was asked would be for nothing.
    async fn send_on(
        &mut self,
        body: &Bytes,
        id: &str,
        out: &Out,
    ) -> Result<(StatusCode, Option<String>), Any> {
        loop {
            match self.send(body.clone(), id, out).await {
                Err(failure) if failure.is_absence() && self.way.is_soon_back() => {
                    let pause = pin!(async {
                        sleep(AGAIN).await;
                        Ok(())
                    });
                    self.under_way.during(pause).await?;
                }
                sent => return sent.map_err(once_answered),
            }
        }
    }

    /// Reads the server's tools anew, since it misses in what was sent at that time what its schema marks. Says whether
    /// there is anything to be done better.
    async fn renew(&mut self, sent: &[u8], at: Instant) -> Result<bool, Any> {
        let Self { way, under_way, tool, .. } = self;
        let Some(tool) = tool else { return Ok(false) };
        let known = pin!(async { Ok(way.modern_as_legacy.tools.get_anew(way, tool, at).await) });
        let known = under_way.during(known).await?;
        let Some(known) = known else { return Ok(false) };
        self.wrapped = Some(known.wrapped);
        let Some(repeated) = repeated_of(self.method, sent, known.marked.as_deref()) else {
            return Ok(false);
        };
        let is_news = repeated != self.repeated;
        self.repeated = repeated;
        Ok(is_news)
    }

    /// Keeps the request for as long as the client is asked.
    fn park(&self, sent: &Bytes) -> Result<(Rounds, Share), Any> {
        let session = &self.way.session;
        let text = std::str::from_utf8(sent).map_err(|_| Failure::Nonsense)?;
        let parked =
            self.way.modern_as_legacy.park(&session.opener, text.len()).ok_or(Failure::TooManyQuestions)?;
        Ok((Rounds::new(session.pair, self.method, text, session.can.clone()), parked))
    }
}

/// A list without the tools that nobody could call.
fn without(unusable: &BTreeSet<String>, text: String) -> String {
    if unusable.is_empty() {
        return text;
    }
    let filtered = listing::filter(&text, List::Tools, |name| !unusable.contains(name));
    filtered.ok().and_then(|filtered| filtered.rewritten).unwrap_or(text)
}

/// Says which tools nobody gets, for whoever wrote them. Once for each list of the sidecar's own is enough.
fn tell_unusable(names: &BTreeSet<String>) {
    if !names.is_empty() {
        let first: Vec<_> = names.iter().take(TOLD).collect();
        tracing::warn!(
            tools = names.len(),
            ?first,
            "the server marks arguments of tools in a way that cannot be used: the tools are left out"
        );
    }
}

/// The same of those that older clients do not get.
fn tell_unreadable(pair: Pair, result: &str) {
    let names = tools::unreadable(pair.down(), result);
    if !names.is_empty() {
        let first = &names[..names.len().min(TOLD)];
        tracing::warn!(
            tools = names.len(),
            ?first,
            "definitions of tools cannot be read: older clients do not get those tools"
        );
    }
}

/// Passes on what comes before the answer, and gives that.
async fn pass(way: &Way, source: &mut Source, id: &str, out: &Out) -> Result<Option<String>, Any> {
    let pair = way.session.pair;
    while let Some(message) = source.next().await? {
        match envelope::read_servers(message.as_bytes()) {
            Ok(Message::Response(response))
                if answers(&response, id) || !source.streams && refuses_unread(&response) =>
            {
                return Ok(Some(message));
            }
            Ok(Message::Notification(notification)) if source.streams => {
                match notifications::to_client(pair, &notification.method, &message) {
                    Ok(Told::On(text) | Told::Log(text)) => out.aside(text.into_owned()).await?,
                    Ok(Told::Subscriptions | Told::Cancels | Told::Nowhere) => {}
                    Err(error) => tracing::debug!(%error, "a notification was not passed on"),
                }
            }
            // A server of that revision asks nothing this way, and answers nothing that nobody asked for.
            _ => tracing::debug!("the server said something during a call that has no place there"),
        }
    }
    Ok(None)
}

/// The headers of a request that was made already.
fn repeated_of(method: Method, sent: &[u8], marked: Option<&[Marked]>) -> Option<Repeated> {
    let Ok(Message::Request(request)) = envelope::read(sent) else { return None };
    Some(repeat(method, &Outline::read(request.params).ok()?, marked))
}

impl UnderWay {
    /// Does something for as long as the client wants the answer.
    async fn during<T>(&mut self, mut what: impl Future<Output = Result<T, Any>> + Unpin) -> Result<T, Any> {
        loop {
            tokio::select! {
                biased;
                word = self.words.recv() => match word {
                    Some(Word::Cancelled) => return Err(Failure::Cancelled.into()),
                    Some(Word::Ended) | None => return Err(Failure::Ended.into()),
                    // It was asked in a round that is over.
                    Some(Word::Answered(..)) => {}
                },
                done = &mut what => return done,
            }
        }
    }
}

impl Mint for Names<'_> {
    fn id(&mut self) -> String {
        self.modern_as_legacy.question()
    }

    fn visit(&mut self) -> String {
        let number = random();
        self.failed |= number.is_none();
        format!("{:032x}", number.unwrap_or(0))
    }
}

impl From<Unread> for Any {
    fn from(_: Unread) -> Self {
        Failure::Cancelled.into()
    }
}
