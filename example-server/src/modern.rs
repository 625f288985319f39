//! Requests of 2026-07-28, each of which stands alone.

use std::sync::Arc;

use longshore_mcp::Raw;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::detect::{self, Modern, Wrong};
use longshore_mcp::envelope::Request;
use longshore_mcp::listen::{Filter, Offers, Streams};
use longshore_mcp::meta::SERVER_INFO;
use longshore_mcp::method::Method;
use longshore_mcp::revision::Revision;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::answer;
use crate::call::{Call, Round, Side};
use crate::failure::Failure;
use crate::message;
use crate::server::{Change, Server};
use crate::stream::{Answer, Stream};

/// A request that is in order, on its own.
#[derive(Debug)]
pub(crate) struct Lone {
    /// Its id, as JSON.
    pub(crate) id: String,
    method: Method,
    params: Value,
    client: ClientCapabilities,
    token: Option<Value>,
    level: Option<longshore_mcp::level::Level>,
    state: Option<String>,
}

/// Judges a request that came without headers.
pub(crate) fn judge(request: &Request<'_>, served: Revision) -> Result<Lone, Wrong> {
    let judged = detect::without_headers(request.clone(), &[served]);
    Lone::of(&judged.map_err(|mistake| mistake.wrong)?)
}

impl Lone {
    /// A request that is in order, as far as that shows without knowing the server.
    pub(crate) fn of(modern: &Modern<'_>) -> Result<Self, Wrong> {
        use longshore_mcp::meta::{CLIENT_CAPABILITIES, Incomplete};
        let Modern { request, method, envelope, outline, .. } = modern;
        let client = ClientCapabilities::read(envelope.capabilities)
            .map_err(|_| Incomplete::Wrong(CLIENT_CAPABILITIES))?;
        Ok(Self {
            id: request.id.as_json().to_owned(),
            method: *method,
            params: request
                .params
                .map(Raw::get)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            client,
            token: envelope.progress_token.and_then(|token| serde_json::from_str(token).ok()),
            level: envelope.log_level,
            state: outline.request_state()?.map(longshore_mcp::Text::into_owned),
        })
    }

    /// The input schema of the tool that it calls.
    pub(crate) fn input_schema(&self, server: &Server) -> Option<Value> {
        let name = self.params["name"].as_str().filter(|_| self.method == Method::ToolsCall)?;
        crate::tools::input_schema(server, name)
    }

    /// Serves it. Everything goes into the stream, last the answer.
    pub(crate) async fn serve(self, server: Arc<Server>, stream: Arc<Stream>) {
        let id = self.id.clone();
        let result = if self.method == Method::SubscriptionsListen {
            self.listen(&server, &stream).await
        } else {
            self.answer(&server, &stream).await
        };
        let (text, answer) = match result {
            Ok(result) => (message::result(&id, &result), Answer::Result),
            Err(failure) => failure.answer(&id, server.revision),
        };
        stream.answer(text, answer);
    }

    async fn answer(mut self, server: &Arc<Server>, stream: &Arc<Stream>) -> Result<Value, Failure> {
        let responses = self.responses()?;
        // Whoever sends the same again may log otherwise, and reports progress elsewhere.
        let about =
            json!([self.method.as_str(), self.params["name"], self.params["uri"], self.params["arguments"]]);
        let about = about.to_string();
        let state = match self.state.take() {
            None => None,
            Some(_) if !self.method.may_need_input() => {
                return Err(Failure::params("this method never asks, so nothing can come back"));
            }
            Some(sealed) => Some(server.seal.open(&about, &sealed).ok_or_else(|| {
                Failure::params(
                    "this requestState is not one that this server gave for this request, or has ended",
                )
            })?),
        };
        let round = Round {
            level: self.level,
            responses,
            has_state: state.is_some(),
            answers: Mutex::new(state.map(|state| state.answers).unwrap_or_default()),
            about,
        };
        let call = Call {
            server: server.clone(),
            client: self.client,
            stream: stream.clone(),
            token: self.token,
            side: Side::Alone(round),
        };
        answer::answer(&call, self.method, self.params).await
    }

    fn responses(&mut self) -> Result<Map<String, Value>, Failure> {
        if self.method == Method::TasksUpdate {
            // These are for the task.
            return Ok(Map::new());
        }
        match self.params.get_mut("inputResponses").map(Value::take) {
            None => Ok(Map::new()),
            Some(Value::Object(responses)) if self.method.may_need_input() => Ok(responses),
            Some(_) => {
                Err(Failure::params("\"inputResponses\" has to be an object, on a method that may ask"))
            }
        }
    }

    async fn listen(self, server: &Arc<Server>, stream: &Arc<Stream>) -> Result<Value, Failure> {
        let wanted = Filter::read(&self.params.to_string())
            .ok_or_else(|| Failure::params("\"notifications\" has to say what to listen to"))?;
        let mut changes = server.changes();
        let offers = Offers { tools: true, prompts: true, resources: true, updates: true };
        let mut streams = Streams::new();
        let opened =
            streams.open(&self.id, wanted, offers).map_err(|full| Failure::params(full.to_string()))?;
        stream.send(opened.acknowledgement);
        loop {
            let change = match changes.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => break,
            };
            let (method, params) = match change {
                Change::Tools => ("notifications/tools/list_changed", json!({})),
                Change::Prompts => ("notifications/prompts/list_changed", json!({})),
                Change::Resources => ("notifications/resources/list_changed", json!({})),
                Change::Resource(uri) => ("notifications/resources/updated", json!({"uri": uri})),
                Change::End => break,
            };
            for (_, text) in streams.deliver(&message::notification(method, &params)) {
                stream.send(text);
            }
        }
        let id: Value = serde_json::from_str(&self.id).unwrap_or_default();
        let meta = json!({longshore_mcp::meta::SUBSCRIPTION_ID: id, SERVER_INFO: server.info()});
        Ok(json!({"resultType": "complete", "_meta": meta}))
    }
}
