//! What a process says that knows no sessions: it belongs to a call, or to nobody.

use bytes::{Bytes, BytesMut};
use longshore_mcp::envelope::{Id, Notification, Outcome, Response};
use longshore_mcp::listen;
use longshore_mcp::meta::SUBSCRIPTION_ID;
use longshore_mcp::method::NotificationMethod;
use longshore_mcp::object;
use longshore_mcp::params::Params;

use super::Talk;
use crate::upstream::stdio::message::{About, Span, is_of_call, span, with, write};
use crate::upstream::stdio::routes::Call;

impl Talk<'_> {
    /// Says whether somebody wanted it.
    pub(super) fn notification_alone(
        &mut self,
        notification: &Notification<'_>,
        params: &Params<'_>,
        line: &Bytes,
    ) -> bool {
        let method = notification.method.as_str();
        if method == NotificationMethod::Cancelled.as_str() {
            return self.listening_is_over(params);
        }
        if method == "notifications/message" {
            return self.logged(params, line);
        }
        // What else the protocol has belongs to a call that listens, and names it.
        let Some(id) = notification.params.and_then(|params| subscription(params.get())) else {
            return is_of_call(method) && self.unknown(line);
        };
        let Some(call) = Id::from_json(id).number().and_then(|number| self.routes.get(number)) else {
            return false;
        };
        let (About::Listen, Some(caller)) = (call.about(), call.caller()) else { return false };
        let (to, message) = (caller.reader(), with(line, &span(line, id), &call.id()));
        // Who listens may never be answered.
        self.note_started();
        self.aside(Some(to), &message)
    }

    /// What nobody knows goes to the only call that there is, if it can be about no other.
    fn unknown(&mut self, line: &Bytes) -> bool {
        let only = self.routes.only().filter(|call| call.from.is_some_and(|name| !self.is_in_doubt(name)));
        let to = only.and_then(Call::caller).map(|caller| caller.reader());
        self.aside(to, line)
    }

    /// A message of the server's log names no call. It goes to the newest that wants such messages, where all calls are
    /// one principal's; where they are everybody's, only while there is a single one that it can be about. Calls that
    /// only listen do not count.
    fn logged(&mut self, params: &Params<'_>, line: &Bytes) -> bool {
        let only = self.routes.only().and_then(|call| call.from);
        if self.conversation.is_of_many() && only.is_none_or(|name| self.is_in_doubt(name)) {
            return false;
        }
        let level = params.level().and_then(|level| serde_json::from_str(level).ok());
        let members = &self.conversation.members;
        let hears = |call: &Call| {
            let member = call.from.and_then(|name| members.get(name));
            !matches!(call.about(), About::Listen) && member.is_some_and(|member| member.hears(level))
        };
        let newest = self.routes.newest_where(hears).and_then(|(_, call)| call.caller());
        let to = newest.map(|caller| caller.reader());
        self.aside(to, line)
    }

    /// The server says no more to a call that listens. Its client hears that in the form that an answer has.
    fn listening_is_over(&mut self, params: &Params<'_>) -> bool {
        let Some(number) = params.request_id().and_then(|id| Id::from_json(id).number()) else {
            return false;
        };
        if !self.routes.get(number).is_some_and(|call| matches!(call.about(), About::Listen)) {
            return false;
        }
        let Some(call) = self.routes.answered(number) else { return false };
        let info = self.conversation.stdio().info.load();
        let answer = listen::ended(&call.id(), info.as_deref().map(String::as_str));
        call.end(Ok(Some(answer.into())));
        true
    }
}

/// The end of a subscription, with the client's own name for it.
pub(super) fn listened(response: &Response<'_>, line: &Bytes, at: &Span, id: &str) -> Bytes {
    let Outcome::Result(result) = response.outcome else { return with(line, at, id) };
    let named = subscription(result.get()).map(|name| span(line, name));
    let mut message = BytesMut::with_capacity(line.len() + 2 * id.len());
    write(line, [Some((at, id)), named.as_ref().map(|at| (at, id))], &mut message);
    message.freeze()
}

/// Which subscription something is of, as it was written.
fn subscription(json: &str) -> Option<&str> {
    object::at(json, &["_meta", SUBSCRIPTION_ID])
}
