//! What the server says in a call.

use bytes::Bytes;
use longshore_mcp::envelope::{self, Id, Message, Notification, Request};
use longshore_mcp::error::{self, Code};
use longshore_mcp::logging;
use longshore_mcp::method::ServerRequest;
use longshore_mcp::parked::Asked as Kept;
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::{names, questions};
use longshore_sidecar_config::Upstream;
use tokio::time::{Duration, Instant};

use super::Call;
use super::stage::Stage;
use crate::upstream::legacy_as_modern::listening::deliver;
use crate::upstream::legacy_as_modern::source::Heard;

/// How long more questions are waited for after one, so that those that a server asks at once are put to the client at
/// once.
const GATHER: Duration = Duration::from_millis(100);

impl Call {
    pub(super) async fn heard(&mut self, heard: Heard, stage: Stage) {
        let (message, is_certain) = match heard {
            Heard::Answer(message) => return self.end(Ok(message), stage).await,
            Heard::Own(message) => (message, true),
            Heard::Aside(message) => (message, false),
            Heard::Over(ending) => return self.end(Err(ending.into_failure()), stage).await,
        };
        let text = std::str::from_utf8(&message).unwrap_or_default();
        match envelope::read(&message) {
            Ok(Message::Request(request)) => {
                Box::pin(self.asked(&request, &message, is_certain, stage)).await;
            }
            Ok(Message::Notification(notification)) => {
                self.stage = stage;
                Box::pin(self.told(&notification, text, is_certain)).await;
            }
            Ok(Message::Response(_)) => self.stage = stage,
            Err(_) => {
                self.stage = stage;
                if let Some(refusal) = envelope::refusal_of_number(&message) {
                    Box::pin(self.tell(&refusal)).await;
                }
            }
        }
    }

    /// Asks the client first what the server has asked before there was a call to ask it in.
    pub(super) async fn ask_first(&mut self) {
        for message in std::mem::take(&mut self.first) {
            if let Ok(Message::Request(request)) = envelope::read(&message) {
                let stage = std::mem::replace(&mut self.stage, Stage::Over);
                self.asked(&request, &message, false, stage).await;
            }
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Serving(client) | Stage::Gathering(client, _) => self.ask(client).await,
            stage => self.stage = stage,
        }
    }

    async fn asked(&mut self, request: &Request<'_>, message: &Bytes, is_certain: bool, stage: Stage) {
        let is_http = matches!(self.way.upstream, Upstream::StreamableHttp { .. });
        if !self.may_ask(&stage) {
            self.stage = stage;
            let is_of_this = is_certain && is_http;
            if is_of_this || !self.session.keep_early(request, message) {
                self.session.refuse(&self.way.transport, request).await;
            }
            return;
        }
        if let Some(lease) = self.lease.as_mut().filter(|_| !is_certain) {
            lease.take_alone();
        }
        let params = request.params.map(|params| params.get());
        let asks = ServerRequest::parse(&request.method);
        if let Some(asks) = asks {
            let need = questions::need(asks, params.unwrap_or("{}"));
            let can = match &stage {
                Stage::Serving(client) | Stage::Gathering(client, _) => Some(&client.asked.can),
                Stage::Waiting(_) | Stage::Over => None,
            };
            if let Some(need) = need
                && can.is_some_and(|can| !can.has(need))
                && self.is_ours(is_certain)
            {
                self.lacks = Some(need);
            }
        }
        // A server does not go on with a call before it has heard what it asks for in it.
        let is_waited_for = is_certain
            && is_http
            && matches!(stage, Stage::Serving(_) | Stage::Gathering(..))
            && asks != Some(ServerRequest::Ping);
        let mut asked = self.parked.asked(request.id, &request.method, params);
        if asked == Kept::Kept && !self.has_room(params.map_or(0, str::len)) {
            self.parked.withdrawn(request.id);
            let why = "large questions are open already: there is no room for this one";
            asked = Kept::Answered(error::response(Some(request.id), Code::InternalError, why, None));
        }
        self.stage = match (asked, stage) {
            (Kept::Answered(answer), stage) if is_waited_for => {
                match (self.hand_over(&answer).await, stage) {
                    (Err(failure), Stage::Serving(mut client) | Stage::Gathering(mut client, _)) => {
                        client.fail(failure).await;
                        Stage::Over
                    }
                    (_, stage) => stage,
                }
            }
            (Kept::Answered(answer), stage) => {
                self.tell(&answer).await;
                stage
            }
            // Each question has those wait for a moment more that came before it.
            (Kept::Kept, Stage::Serving(client) | Stage::Gathering(client, _)) => {
                Stage::Gathering(client, Instant::now() + GATHER)
            }
            // It is put to the client when that comes back.
            (Kept::Kept, stage) => stage,
        };
    }

    /// Counts a question that is kept until it is answered, if there is room for it.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.questions.as_mut().is_none_or(|share| share.add(bytes))
    }

    /// Whether the client can be asked anything in this call. Many servers ask on their own account, and that comes to the
    /// only request under way, whichever it is.
    fn may_ask(&self, stage: &Stage) -> bool {
        match stage {
            Stage::Serving(client) | Stage::Gathering(client, _) => client.asked.method.may_need_input(),
            Stage::Waiting(waiting) => waiting.ended.is_none() && !self.parked.has_ended(),
            Stage::Over => false,
        }
    }

    /// Whether what the server says is about this call for sure: what could be about several is about none.
    fn is_ours(&self, is_certain: bool) -> bool {
        is_certain && matches!(self.way.upstream, Upstream::StreamableHttp { .. })
            || self.session.has_one_call()
    }

    async fn told(&mut self, notification: &Notification<'_>, text: &str, is_certain: bool) {
        let told = notifications::to_client(self.pair, &notification.method, text);
        match told {
            Ok(Told::Subscriptions) => deliver(&self.session, text).await,
            Ok(Told::Cancels) => {
                if let Some(id) = names::cancelled_id(text)
                    && !self.parked.withdrawn(Id::from_json(id))
                {
                    self.session.early.withdraw(text.as_bytes());
                }
            }
            Ok(Told::Log(message)) => {
                let client = self.client();
                let level = client.as_ref().and_then(|client| client.asked.level);
                let is_ours = self.is_ours(is_certain);
                if let Some(client) = self.client()
                    && is_ours
                    && logging::is_wanted(&message, level)
                {
                    client.event(&message).await;
                }
            }
            Ok(Told::On(message)) if notification.method.as_str() == "notifications/progress" => {
                let token = names::reported_token(&message).map(Id::from_json);
                let ours = token.and_then(|token| token.number()) == Some(self.number.number);
                if let Some(client) = self.client()
                    && ours
                    && let Some(token) = client.asked.token.clone()
                    && let Ok(message) = names::with_reported_token(&message, &token)
                {
                    client.event(&message).await;
                }
            }
            // It may be about any of those that go one way to the server, and comes to the newest.
            Ok(Told::On(message)) if is_certain && self.is_ours(is_certain) => {
                if let Some(client) = self.client() {
                    client.event(&message).await;
                }
            }
            Ok(Told::On(_) | Told::Nowhere) | Err(_) => {}
        }
    }
}
