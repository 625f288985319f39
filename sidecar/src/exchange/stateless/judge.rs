//! What a message of the server is to a request that stands alone, and the little that is changed in it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use longshore_mcp::capabilities::TASKS_EXTENSION;
use longshore_mcp::envelope::{self, Id, Message, Outcome, Response};
use longshore_mcp::level::Level;
use longshore_mcp::method::{Method, ServerNotification};
use longshore_mcp::object::Object;
use longshore_mcp::revision::Revision;
use longshore_mcp::splice::replaced;
use longshore_mcp::{error, listing, logging, passing, sse, tasks};

use super::StatelessCall;
use super::passing::Passing;
use crate::SERVED;
use crate::access::Caller;
use crate::configuration::Snapshot;
use crate::exchange::answer::HOLD;
use crate::refusal::Refusal;
use crate::sessions::refuses_unread;
use crate::shared::Shared;
use crate::stack::standing;
use crate::tasks::Naming;
use crate::upstream::EDITABLE;
use crate::upstream::source::Source;
use crate::worker::Worker;

/// More than a server says of a task that a call has become.
const BEGUN: usize = 1 << 20;

/// Looks at what comes for one request.
pub(super) struct Judge {
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    caller: Caller,
    id: String,
    method: Method,
    revision: Revision,
    level: Option<Level>,
    naming: Option<Arc<Naming>>,
}

/// What a message is.
pub(super) enum Verdict {
    /// The answer: other text if it is edited, and the code if it is an error.
    Answer { edited: Option<String>, code: Option<i64> },
    /// Something for the client beside the answer: other text if it is edited.
    Passes(Option<String>),
    /// Nothing that may reach the client.
    Dropped,
}

impl Judge {
    pub(super) fn new(worker: &Worker, lone: &StatelessCall<'_>) -> Self {
        Self {
            shared: worker.shared.clone(),
            snapshot: lone.snapshot.clone(),
            caller: lone.caller.clone(),
            id: lone.modern.request.id.as_json().to_owned(),
            method: lone.modern.method,
            revision: lone.modern.revision,
            level: lone.modern.envelope.log_level,
            naming: lone.naming.clone(),
        }
    }

    /// The id of the request, as JSON.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whose request it is.
    pub(super) fn principal(&self) -> &Arc<str> {
        &self.caller.principal
    }

    /// Goes by another configuration from now on. Says whether lists may be others under it.
    pub(super) fn goes_by(&mut self, snapshot: &Arc<Snapshot>) -> bool {
        let before = std::mem::replace(&mut self.snapshot, snapshot.clone());
        !snapshot.shows_the_same(&before)
    }

    /// Whether an answer may be edited, and has to be whole for it.
    pub(super) fn edits(&self) -> bool {
        let is_about_task = self.naming.is_some() && self.method != Method::ToolsCall;
        is_about_task || self.method.list().is_some() || self.method == Method::ServerDiscover
    }

    /// How much of an answer is held before it goes on. What is larger passes as it comes, unless it is edited. Where a call
    /// may become a task, so much is held that the answer which says so is whole, and the task gets another id. Should one
    /// pass all the same, as where the server says that it has none, its client hears an id which opens nothing.
    pub(super) fn hold(&self) -> usize {
        if self.edits() {
            EDITABLE
        } else if self.naming.is_some() && self.may_begin_tasks() {
            BEGUN
        } else {
            HOLD
        }
    }

    /// Whether the server may answer a call with a task. Clients declare in every request that they know tasks, in front of
    /// servers without any too: one that says of this revision that it has none begins none, and of others nobody knows.
    fn may_begin_tasks(&self) -> bool {
        self.shared.view.borrow().server.as_ref().is_none_or(|server| {
            let is_of_another = server.protocol_version != self.revision.as_str();
            is_of_another || server.capabilities["extensions"].get(TASKS_EXTENSION).is_some()
        })
    }

    /// Whether what is answered is for nobody else, whatever the server thinks: it does not know who may call it.
    fn is_private(&self) -> bool {
        let is_kept_from_strangers = self.snapshot.authenticator.wants_keys();
        match self.method {
            // What it is depends on no rule.
            Method::ServerDiscover => is_kept_from_strangers,
            method if method.is_cacheable() => {
                is_kept_from_strangers || self.snapshot.access.tells_callers_apart()
            }
            _ => false,
        }
    }

    /// Takes events apart and adds those that may pass to `out`. At the answer: its code, if it is an error.
    pub(super) fn read(
        &self,
        source: &mut Source,
        data: &Bytes,
        out: &mut Vec<u8>,
    ) -> Result<Option<Option<i64>>, Refusal> {
        let mut ended = Ok(None);
        source.read(data, |event| {
            // Nothing follows the answer.
            let (Ok(None), Some(message)) = (&ended, event.message()) else { return };
            match self.look_at(message, false) {
                Ok(Verdict::Answer { edited, code }) => {
                    sse::write_message(out, edited.as_deref().map_or(message, str::as_bytes));
                    ended = Ok(Some(code));
                }
                Ok(Verdict::Passes(edited)) => {
                    sse::write_message(out, edited.as_deref().map_or(message, str::as_bytes));
                }
                Ok(Verdict::Dropped) => {}
                Err(refusal) => ended = Err(refusal),
            }
        })?;
        ended
    }

    /// Looks at the whole of what the server said.
    pub(super) fn look(&self, message: &[u8]) -> Result<Verdict, Refusal> {
        self.look_at(message, true)
    }

    fn look_at(&self, message: &[u8], is_whole: bool) -> Result<Verdict, Refusal> {
        Ok(match envelope::read_servers(message) {
            Ok(Message::Response(response)) => self.answer(&response, message, is_whole)?,
            Ok(Message::Notification(notification)) => {
                let is_log = notification.method.as_str() == ServerNotification::Message.as_str();
                let may_hear = standing::may_hear(&self.shared, &self.caller.principal, message);
                if !may_hear || is_log && !self.wants(message) {
                    Verdict::Dropped
                } else {
                    self.aside(message, &notification.method)
                }
            }
            // No server of this revision asks anything.
            Ok(Message::Request(_)) | Err(_) => Verdict::Dropped,
        })
    }

    /// What is said beside the answer, with the tasks as this client calls them.
    fn aside(&self, message: &[u8], method: &str) -> Verdict {
        let Some(naming) = &self.naming else {
            // Whoever asked for nothing of tasks hears nothing of them.
            return if tasks::is_told(method) { Verdict::Dropped } else { Verdict::Passes(None) };
        };
        match std::str::from_utf8(message).map(|text| naming.aside(text, method)) {
            Ok(Ok(Some(Cow::Owned(text)))) => Verdict::Passes(Some(text)),
            Ok(Ok(Some(Cow::Borrowed(_)))) => Verdict::Passes(None),
            Ok(Ok(None) | Err(_)) | Err(_) => Verdict::Dropped,
        }
    }

    fn wants(&self, log: &[u8]) -> bool {
        std::str::from_utf8(log).is_ok_and(|log| logging::is_wanted(log, self.level))
    }

    /// A response as the answer, if it is not another's.
    fn answer(&self, response: &Response<'_>, message: &[u8], is_whole: bool) -> Result<Verdict, Refusal> {
        let text = std::str::from_utf8(message).map_err(|_| Refusal::ServerNonsense)?;
        let asked = Id::from_json(&self.id);
        let respelled = match response.id {
            Some(id) if !(id.answers(&asked) || is_whole && refuses_unread(response)) => {
                return Ok(Verdict::Dropped);
            }
            // From here on under the id that its client knows.
            Some(id) if !id.is(&asked) => {
                Some(replaced(text, [Some((id.as_json(), &self.id))]).ok_or(Refusal::ServerNonsense)?)
            }
            _ => None,
        };
        let text = respelled.as_deref().unwrap_or(text);
        let (edited, code) = match (response.id, &response.outcome) {
            (Some(_), Outcome::Result(_)) => (self.edit(text)?, None),
            (Some(_), Outcome::Error(error)) => (None, error::code_of(error.get())),
            // It is about this request, since there is no other, and has to say so.
            (None, Outcome::Error(error)) => {
                let mut named = Object::read(text).map_err(|_| Refusal::ServerNonsense)?;
                named.set("id", self.id.clone());
                (Some(named.write()), error::code_of(error.get()))
            }
            (None, Outcome::Result(_)) => return Ok(Verdict::Dropped),
        };
        Ok(Verdict::Answer { edited: edited.or(respelled), code })
    }

    /// What looks at an answer that comes in pieces, as [`Self::look`] does.
    pub(super) fn passing(&self) -> Passing {
        Passing::of(&self.id, self.is_private())
    }

    /// The response with what policy and this address change in it; none if nothing does.
    fn edit(&self, message: &str) -> Result<Option<String>, Refusal> {
        let mut edited = None;
        // What cannot be read cannot be permitted.
        if let Some(list) = self.method.list() {
            let shows = |name: &str| self.snapshot.access.shows(&self.caller, list, name);
            let filtered = listing::filter(message, list, shows).map_err(|_| Refusal::ServerNonsense)?;
            edited = filtered.rewritten;
        }
        if self.method == Method::ServerDiscover {
            edited =
                passing::discovered(message, self.revision, &SERVED).map_err(|_| Refusal::ServerNonsense)?;
        }
        match &self.naming {
            Some(naming) => {
                if let Cow::Owned(text) = naming.answer(message).map_err(|_| Refusal::ServerNonsense)? {
                    edited = Some(text);
                }
            }
            // Its client could do nothing with it.
            None if self.method == Method::ToolsCall && tasks::is_begun(message) => {
                return Err(Refusal::BegunTask);
            }
            None => {}
        }
        if self.is_private() {
            let text = edited.as_deref().unwrap_or(message);
            edited = passing::private(text).map_err(|_| Refusal::ServerNonsense)?.or(edited);
        }
        Ok(edited)
    }
}
