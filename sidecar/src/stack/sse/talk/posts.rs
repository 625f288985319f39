//! What the client posts.

use std::rc::Rc;

use bytes::Bytes;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::method::NotificationMethod;
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::names;

use super::{Done, Going, MAX_CALLS, Talk};
use crate::headers::SESSION_ID;
use crate::refusal::Refusal;
use crate::stack::sse::MARK;
use crate::stack::sse::open::{Letter, Reply, Room, Status};
use crate::stack::{Authenticated, body, pump, serve_one};
use crate::worker::{Reading, Worker};

impl Talk {
    pub(super) fn take(&mut self, letter: Letter) -> Going {
        let Some(id) = &letter.id else { return self.tell(letter) };
        if self.session.is_none() && body::shakes_hands(&letter.body) {
            let id = id.clone();
            self.shake_hands(letter, id);
            return Going::On;
        }
        self.waiting.push_back(letter);
        self.call_next();
        Going::On
    }

    /// Makes the calls that wait, as far as there is room for them.
    pub(super) fn call_next(&mut self) {
        while self.calls < MAX_CALLS
            && let Some(letter) = self.waiting.pop_front()
        {
            let Letter { caller, body, id, receipt, room: _room } = letter;
            let Some(id) = id else { continue };
            // It may have waited while keys or rules changed.
            let caller = match self.within(caller) {
                Ok(caller) => caller,
                Err(refusal) => {
                    receipt.refused(refusal);
                    continue;
                }
            };
            receipt.taken().send(Status::ACCEPTED);
            self.calls += 1;
            let (worker, messages) = (self.worker.clone(), self.messages.clone());
            self.tasks.spawn_local(async move {
                let response = serve_one(worker, caller, body, Reading::default()).await;
                let status = response.status();
                pump::answer(response, &id, Revision::V2024_11_05, &messages).await;
                Done::Call(status)
            });
        }
    }

    /// Delivers what has no answer. It waits for no call.
    fn tell(&mut self, letter: Letter) -> Going {
        let Letter { caller, body, receipt, room, .. } = letter;
        let caller = match self.within(caller) {
            Ok(caller) => caller,
            Err(refusal) => {
                receipt.refused(refusal);
                return Going::On;
            }
        };
        if let Some(call) = self.withdraw(&body) {
            // The server never heard of it.
            call.receipt.withdrawn(false);
            receipt.withdrawn(true);
            return Going::On;
        }
        let reply = receipt.taken();
        // Before the client says anything else.
        let is_initialized = is_initialized(&body);
        self.settling |= is_initialized;
        self.telling += 1;
        self.tasks.spawn_local(deliver(self.worker.clone(), caller, body, (reply, room), is_initialized));
        Going::On
    }

    /// The call that this cancels, if it waits still.
    fn withdraw(&mut self, body: &[u8]) -> Option<Letter> {
        let cancelled = cancels(body)?;
        let is_it = |letter: &Letter| {
            letter.id.as_deref().is_some_and(|id| Id::from_json(id).is(&Id::from_json(&cancelled)))
        };
        let at = self.waiting.iter().position(is_it)?;
        self.waiting.remove(at)
    }

    /// The same request as it would be at the MCP endpoint.
    pub(super) fn within(&self, caller: Authenticated) -> Result<Authenticated, Refusal> {
        let mut caller = caller.once_more(&self.worker)?.within();
        let headers = caller.request.headers_mut();
        headers.remove(MARK);
        headers.remove(SESSION_ID);
        if let Some(session) = &self.session {
            headers.insert(SESSION_ID, session.clone());
        }
        // Whose key it is by now, it is somebody else's stream.
        if caller.principal() == self.caller.principal() { Ok(caller) } else { Err(Refusal::UnknownSession) }
    }
}

/// Delivers a message that has no answer.
async fn deliver(
    worker: Rc<Worker>,
    caller: Authenticated,
    body: Bytes,
    (reply, _room): (Reply, Room),
    is_initialized: bool,
) -> Done {
    let response = serve_one(worker, caller, body, Reading::default()).await;
    let status = response.status();
    reply.send(Status::of(response).await);
    if is_initialized { Done::Settled(status) } else { Done::Told(status) }
}

/// The id of the request that a message cancels, as JSON.
fn cancels(body: &[u8]) -> Option<String> {
    let Ok(Message::Notification(notification)) = envelope::read(body) else { return None };
    let is_it = NotificationMethod::parse(&notification.method) == Some(NotificationMethod::Cancelled);
    let text = std::str::from_utf8(body).ok().filter(|_| is_it)?;
    names::cancelled_id(text).map(str::to_owned)
}

fn is_initialized(body: &[u8]) -> bool {
    matches!(
        envelope::read(body),
        Ok(Message::Notification(notification))
            if NotificationMethod::parse(&notification.method) == Some(NotificationMethod::Initialized)
    )
}
