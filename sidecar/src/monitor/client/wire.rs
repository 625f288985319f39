//! Messages to the server and back.

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::headers::{self, EVENT_STREAM, JSON, SESSION_ID};
use longshore_mcp::method::Method as McpMethod;
use longshore_mcp::sse::Decoder;
use longshore_sidecar_config::Upstream;
use serde_json::Value;

use super::error::rpc;
use super::{CallError, MAX_ANSWER, Server};
use crate::exchange;
use crate::upstream::{Answer, Failure};

impl Server {
    /// Sends a request and gives the result.
    pub(super) async fn call(&self, method: McpMethod, params: Value) -> Result<String, CallError> {
        self.exchange(method, params).await.map(|(result, _)| result)
    }

    /// Sends a request and gives the result, and the session that the answer names.
    pub(super) async fn exchange(
        &self,
        method: McpMethod,
        params: Value,
    ) -> Result<(String, Option<HeaderValue>), CallError> {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let id = id.to_string();
        let name = method.as_str();
        let text = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{name}\",\"params\":{params}}}");
        let Answer { response, lease } = self.send(self.request(Method::POST, text.into())).await?;
        let (head, body) = response.into_parts();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let message = if !head.status.is_success() {
            let body = collect(body).await.unwrap_or_default();
            // An error in the body says more than the status, unless the status is that of a session that ended.
            return Err(error_in(&body, head.status).unwrap_or_else(|| self.status(head.status)));
        } else if headers::is_type(content_type, EVENT_STREAM) {
            self.first_answer(body, &id).await?
        } else if headers::is_type(content_type, JSON) {
            let message = collect(body).await?;
            lease.give_back();
            message
        } else {
            return Err(self.not_mcp("it is neither JSON nor events"));
        };
        let session = head.headers.get(SESSION_ID).filter(|id| id.to_str().is_ok_and(headers::is_session_id));
        match envelope::read(&message) {
            Ok(Message::Response(response)) if response.id.is_some_and(|got| got.is(&Id::from_json(&id))) => {
                match response.outcome {
                    Outcome::Result(result) => Ok((result.get().to_owned(), session.cloned())),
                    Outcome::Error(error) => Err(rpc(error.get(), head.status)),
                }
            }
            _ => Err(self.not_mcp("it is not the answer to the request")),
        }
    }

    /// Reads events until the answer, and answers what is asked in between.
    pub(super) async fn first_answer(&self, mut body: Incoming, id: &str) -> Result<Bytes, CallError> {
        let mut decoder = Decoder::new(MAX_ANSWER);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| CallError::Lost)?.into_data() else { continue };
            let mut messages = Vec::new();
            decoder.push(&data, |event| messages.extend(event.data)).map_err(|_| CallError::TooLarge)?;
            for message in messages {
                match envelope::read(&message) {
                    Ok(Message::Response(response))
                        if response.id.is_some_and(|got| got.is(&Id::from_json(id))) =>
                    {
                        return Ok(message.into());
                    }
                    Ok(Message::Request(request)) => self.reply(&request).await,
                    _ => {}
                }
            }
        }
        Err(CallError::Lost)
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(&self, text: String) -> Result<(), CallError> {
        let Answer { response, .. } = self.send(self.request(Method::POST, text.into())).await?;
        if response.status().is_success() { Ok(()) } else { Err(self.status(response.status())) }
    }

    pub(super) fn request(&self, method: Method, body: Bytes) -> http::Request<Full<Bytes>> {
        let session = self.revision.map(|revision| (self.session.as_ref(), revision));
        exchange::build(&self.upstream, method, session, body)
    }

    pub(super) async fn send(&self, request: http::Request<Full<Bytes>>) -> Result<Answer, CallError> {
        let port = match self.upstream {
            Upstream::StreamableHttp { port, .. } => port,
            Upstream::Stdio {} => 0,
        };
        self.pool.send(port, request).await.map_err(|failure| match failure {
            Failure::Refused { port, .. } => CallError::Refused { port },
            Failure::Lost(error) if error.is_parse() => CallError::NotHttp,
            Failure::Lost(_) => CallError::Lost,
        })
    }

    pub(super) fn path(&self) -> String {
        match &self.upstream {
            Upstream::StreamableHttp { path, .. } => path.clone(),
            Upstream::Stdio {} => String::new(),
        }
    }

    pub(super) fn status(&self, status: StatusCode) -> CallError {
        if status == StatusCode::NOT_FOUND && self.session.is_some() {
            return CallError::SessionGone;
        }
        CallError::Status { status: status.as_u16(), path: self.path() }
    }

    pub(super) fn not_mcp(&self, what: &'static str) -> CallError {
        CallError::NotMcp { path: self.path(), what }
    }
}

async fn collect(body: Incoming) -> Result<Bytes, CallError> {
    let mut body = Limited::new(body, MAX_ANSWER);
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() { CallError::TooLarge } else { CallError::Lost }
        })?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// The JSON-RPC error in a body, if there is one.
fn error_in(body: &[u8], status: StatusCode) -> Option<CallError> {
    match envelope::read(body) {
        Ok(Message::Response(response)) => match response.outcome {
            Outcome::Error(error) => Some(rpc(error.get(), status)),
            Outcome::Result(_) => None,
        },
        _ => None,
    }
}
