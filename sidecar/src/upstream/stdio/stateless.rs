//! Requests that stand alone. There is no session that could have a process, so those of one principal share one, or
//! those of everybody.
//!
//! To the conversation each of them is a session of one call: that it ends before its answer is how it is cancelled.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::level::Level;
use longshore_mcp::meta::Outline;
use longshore_mcp::revision::Revision;
use longshore_mcp::status;
use longshore_shim::protocol::Session;
use longshore_sidecar_config::{Isolation, Processes};

use super::call::{self, First};
use super::conversation::{Conversation, Opening};
use super::handshake::Handshake;
use super::message::{Command, Kind, asked_alone};
use super::open::{group_of, kind_of};
use super::registry::Group;
use super::{
    Answer, Body, Channel, Client, Control, Events, Failure, Hold, Name, Opener, Patience, Stdio, events,
    random,
};

/// What the sidecar's own process is held to.
const OWN: Processes = Processes {
    isolation: Isolation::Principal,
    total: 1,
    per_principal: 1,
    warm: 0,
    queue_ms: 0,
    // Longer than it is between two questions whether the server is there.
    idle_ms: 60_000,
    max_age_ms: None,
};
/// How often a process is looked for that takes a call, or a session: one may have ended at this moment.
pub(super) const TRIES: usize = 3;
const REVISION: Revision = Revision::V2026_07_28;

impl Stdio {
    /// Sends a request that stands alone. Who drops this, or the answer, cancels it.
    pub(crate) async fn call(self: &Arc<Self>, opener: &Opener, body: Bytes) -> Result<Answer, Failure> {
        let (asked, level) = match envelope::read(&body).map_err(|_| Failure::NotMessage)? {
            Message::Request(request) => (asked_alone(&body, &request)?, level(&request)),
            // There is none that a server would have to hear: to cancel is to go away.
            Message::Notification(_) => return Ok(Answer::empty(StatusCode::ACCEPTED)),
            Message::Response(_) => return Err(Failure::NotMessage),
        };
        let client = self.client(opener)?;
        let share = || match opener {
            Opener::Client { principal, .. } => Some(self.subscriptions.nothing(principal)),
            Opener::Own => None,
        };
        for _ in 0..TRIES {
            let name = random().ok_or(Failure::NoNumbers)?;
            let channel = self.conversation_for(name, client.as_ref())?;
            let hold = channel.hold(name);
            let (caller, waiting) = call::pair(channel.control.clone());
            let command =
                Command { from: name, kind: Kind::Request(asked.clone()), body: body.clone(), caller };
            let entered = channel.control.send(Control::Enter(name, level, share())).is_ok();
            if entered && channel.letters.send(command).await.is_ok() {
                return answer(waiting, hold).await;
            }
        }
        Err(Failure::Ended)
    }

    /// For whom a process is. `None`: for the sidecar itself.
    fn client(&self, opener: &Opener) -> Result<Option<Client>, Failure> {
        let Opener::Client { principal, limits, .. } = opener else { return Ok(None) };
        // Never without limits in a configuration that was loaded.
        let limits = limits.ok_or(Failure::Unlimited)?;
        let principal = Some(principal.clone()).filter(|_| limits.isolation != Isolation::Shared);
        Ok(Some(Client { principal, limits }))
    }

    /// The conversation that a call goes to, which is known by this name in it.
    fn conversation_for(
        self: &Arc<Self>,
        name: Name,
        client: Option<&Client>,
    ) -> Result<Channel<Command>, Failure> {
        let mut open = self.open.lock();
        let limits = client.map_or(OWN, |client| self.places.in_force(client.limits));
        let group = Group { alone: true, ..group_of(client, &limits, REVISION.as_str().to_owned()) };
        if let Some(host) = self.host(&open, &group, client)? {
            return open.join(host, name).ok_or(Failure::Ended);
        }
        let kind = kind_of(&group, &limits);
        let (channel, ends) = Channel::new();
        let restarts = open.restarts_for(&group, &limits);
        let registered = open.begin(self, name, channel.clone(), Some(group))?;
        drop(open);
        let handshake = Handshake::none();
        let number = Session::of_nobody(name).0;
        let opening = Opening { registered, kind, number, place: None, ends, handshake };
        tokio::task::spawn_local(Conversation::new(opening).run_alone(client.cloned(), restarts));
        Ok(channel)
    }
}

/// What a request wants to hear of the server's log.
fn level(request: &envelope::Request<'_>) -> Option<Level> {
    Outline::read(request.params).ok()?.envelope().ok()?.log_level
}

async fn answer(mut waiting: call::Waiting, hold: Hold) -> Result<Answer, Failure> {
    match waiting.first(Patience::Short).await {
        Ok(First::Answer(message, matched, came)) => {
            let status = status(matched.and_then(|matched| matched.code));
            Ok(Answer { status, ..Answer::of(Body::counted(message, came)) })
        }
        Ok(First::Written) => Ok(Answer::empty(StatusCode::ACCEPTED)),
        Ok(First::Aside(message)) => Ok(events(Events::new(waiting, Some(message)).holding(hold))),
        Ok(First::Silence) => Ok(events(Events::new(waiting, None).holding(hold))),
        // Nothing is known here that could be looked for elsewhere.
        Err(Failure::Forgotten) => Err(Failure::Ended),
        Err(failure) => Err(failure),
    }
}

/// The status of an answer that comes alone, if it is an error with this code.
fn status(code: Option<i64>) -> StatusCode {
    let status = code.map_or(200, |code| status::of_error(code, REVISION));
    StatusCode::from_u16(status).unwrap_or(StatusCode::OK)
}
