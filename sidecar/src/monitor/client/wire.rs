//! Messages to the server and back.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Message, Outcome};
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::sse::Decoder;
use longshore_sidecar_config::Upstream;
use serde_json::Value;

use super::error::{quote, rpc};
use super::{CallError, Face, MAX_ANSWER, Server};
use crate::upstream::forgotten::{Says, says};
use crate::upstream::letter::Within;
use crate::upstream::{self, Also, Answer, Form, Letter, Post};
use crate::whole_body::{Gathered, NotWhole};

impl Server {
    /// Sends a request and gives the result.
    pub(super) async fn call(&self, method: McpMethod, params: Value) -> Result<String, CallError> {
        self.call_for(method, params, MAX_ANSWER).await
    }

    /// The same where no more than so much of the answer is read.
    pub(super) async fn call_for(
        &self,
        method: McpMethod,
        params: Value,
        most: usize,
    ) -> Result<String, CallError> {
        let (id, post) = ask(method, &params);
        let answer = self.send(self.letter(post)).await?;
        self.result(answer, &id, most).await
    }

    /// Opens the session with the first request, and gives the result.
    pub(super) async fn open(&mut self, face: Face, params: Value) -> Result<String, CallError> {
        let (id, post) = ask(McpMethod::Initialize, &params);
        let opener = self.opener.clone();
        self.face = face;
        let (answer, hold) = match face {
            Face::Itself => self.pool.open_itself(&self.upstream, opener, post).await?,
            Face::Sessions => self.pool.open(&self.upstream, self.pin, opener, post).await?,
        };
        self.hold = Some(hold);
        // It is open there, whatever the rest of the answer says.
        self.session = answer.also.session().filter(|_| answer.status.is_success());
        let has_stream = answer.status.is_success() || matches!(answer.also, Also::Begins(_));
        if let (Upstream::Sse { .. }, false) = (&self.upstream, has_stream) {
            return Err(self.no_stream(answer.status, answer.also));
        }
        self.result(answer, &id, MAX_ANSWER).await
    }

    /// The result in an answer.
    async fn result(&self, answer: Answer, id: &str, most: usize) -> Result<String, CallError> {
        let Answer { status, also, body, lease } = answer;
        let form = body.form();
        let message = if !status.is_success() {
            let body = collect(body, most).await.unwrap_or_default();
            // An error in the body says more than the status.
            return Err(error_in(&body, status).unwrap_or_else(|| self.status(status, also)));
        } else if form == Form::Events {
            self.first_answer(body, id, most).await?
        } else if form == Form::Json {
            let message = collect(body, most).await?;
            lease.give_back();
            message
        } else {
            return Err(self.not_mcp("it is neither JSON nor events"));
        };
        match envelope::read_servers(&message) {
            Ok(Message::Response(response)) if response.answers(id) => match response.outcome {
                Outcome::Result(result) => Ok(result.get().to_owned()),
                Outcome::Error(error) => Err(rpc(error.get(), status)),
            },
            _ => Err(self.not_mcp("it is not the answer to the request")),
        }
    }

    /// Reads events until the answer, and answers what is asked in between.
    pub(super) async fn first_answer(
        &self,
        mut body: upstream::Body,
        id: &str,
        most: usize,
    ) -> Result<Bytes, CallError> {
        let mut decoder = Decoder::new(most);
        while let Some(messages) = heard(&mut body, &mut decoder, |_| {}).await? {
            for message in messages.iter().flat_map(|said| self.parts(said)) {
                match envelope::read_servers(message) {
                    Ok(Message::Response(response)) if response.answers(id) => {
                        return Ok(Bytes::copy_from_slice(message));
                    }
                    Ok(Message::Request(request)) => self.reply(&request).await,
                    _ => {}
                }
            }
        }
        Err(CallError::Lost)
    }

    /// The messages that the server has written at once.
    pub(super) fn parts<'a>(&self, said: &'a [u8]) -> Vec<&'a [u8]> {
        match batch::parts(said, self.revision) {
            Some(parts) => parts.into_iter().map(str::as_bytes).collect(),
            None => vec![said],
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(&self, text: String) -> Result<(), CallError> {
        let Answer { status, also, .. } = self.send(self.letter(Post::of(text))).await?;
        if status.is_success() { Ok(()) } else { Err(self.status(status, also)) }
    }

    fn letter(&self, post: Post) -> Letter {
        match self.within() {
            Some(within) => post.within(within),
            // The server has not said yet what it speaks.
            None => Letter::Post(None, post),
        }
    }

    /// The session that its requests belong to.
    pub(super) fn within(&self) -> Option<Within> {
        self.revision.map(|revision| (self.session.clone(), revision))
    }

    pub(super) async fn send(&self, letter: Letter) -> Result<Answer, CallError> {
        Ok(match self.face {
            Face::Itself => self.pool.send_itself(&self.upstream, letter).await?,
            Face::Sessions => self.pool.send(&self.upstream, self.pin, letter, None).await?,
        })
    }

    /// Where the server answers, in words.
    pub(super) fn path(&self) -> String {
        match &self.upstream {
            Upstream::StreamableHttp { path, .. } | Upstream::Sse { path, .. } => path.clone(),
            Upstream::Stdio {} => "stdout".to_owned(),
        }
    }

    /// Why what was answered so is of no use.
    pub(super) fn status(&self, status: StatusCode, also: Also) -> CallError {
        if self.session.is_some() && says(&Method::POST, status) == Says::Forgotten {
            return CallError::SessionGone;
        }
        let location = match also {
            Also::Moved(to) => Some(quote(&String::from_utf8_lossy(to.as_bytes()))),
            Also::Nothing | Also::Begins(_) | Also::BeginsHere(_) | Also::HasNoTime(_) => None,
        };
        CallError::Status { status: status.as_u16(), path: self.path(), location }
    }

    /// The same of a stream that does not begin, in which a handshake would be answered.
    fn no_stream(&self, status: StatusCode, also: Also) -> CallError {
        match self.status(status, also) {
            CallError::Status { status: status @ (300..=400 | 404..=406 | 410), path, location } => {
                CallError::NoStream { status, path, location }
            }
            other => other,
        }
    }

    pub(super) fn not_mcp(&self, what: &'static str) -> CallError {
        CallError::NotMcp { path: self.path(), what }
    }
}

/// A request, and its id.
fn ask(method: McpMethod, params: &Value) -> (String, Post) {
    let (id, name) = (upstream::number(), method.as_str());
    let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{name}\",\"params\":{params}}}");
    (id.to_string(), Post::of(text))
}

/// What comes next in a stream of events: the messages that are complete then. None: it is over. `retry` is told after how
/// many milliseconds the server wants to be asked again for a stream.
pub(super) async fn heard(
    body: &mut upstream::Body,
    decoder: &mut Decoder,
    mut retry: impl FnMut(u64),
) -> Result<Option<Vec<Vec<u8>>>, CallError> {
    let Some(frame) = body.frame().await else { return Ok(None) };
    let mut messages = Vec::new();
    if let Ok(data) = frame?.into_data() {
        let read = decoder.push(&data, |event| {
            event.retry.into_iter().for_each(&mut retry);
            messages.extend(event.into_message());
        });
        read.map_err(|_| CallError::TooLarge)?;
    }
    Ok(Some(messages))
}

/// A whole body of no more than so much, or why not.
pub(super) async fn collect(body: upstream::Body, most: usize) -> Result<Bytes, CallError> {
    Gathered::whole(body, most).await.map_err(|not_whole| match not_whole {
        NotWhole::TooLarge => CallError::TooLarge,
        NotWhole::Broken(broken) => broken.into(),
    })
}

/// The JSON-RPC error in a body, if there is one.
fn error_in(body: &[u8], status: StatusCode) -> Option<CallError> {
    match envelope::read_servers(body) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Error(error) => Some(rpc(error.get(), status)),
            Outcome::Result(_) => None,
        },
        _ => None,
    }
}
