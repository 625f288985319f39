//! What comes from the sidecar's side, and how the process hears it.

use bytes::Bytes;
use longshore_mcp::envelope::Id;
use longshore_mcp::listen::MAX_URI;
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::handshake;
use longshore_mcp::translate::requests::Client;
use serde_json::json;
use tokio::time::Instant;

use super::{AT_ONCE, Talk};
use crate::upstream::letter::own_info;
use crate::upstream::stdio::call::Caller;
use crate::upstream::stdio::conversation::Left;
use crate::upstream::stdio::message::{About, Asked, Command, Key, Kind, Span, UNAWAITED, text};
use crate::upstream::stdio::routes::Call;
use crate::upstream::stdio::{Failure, Name};
use longshore_mcp::level::Level;

/// What a process hears after the handshake.
pub(super) const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";

impl Talk<'_> {
    /// Takes a message, and those that wait behind it: each of them is copied, so that many are one write, and nobody
    /// counts the copies. Where they are large, no more than one goes beyond the room that there is.
    pub(super) fn take_several(&mut self, first: Command) {
        self.take(first);
        for _ in 1..AT_ONCE {
            let next = self.outgoing.has_room().then(|| self.conversation.commands.try_recv().ok()).flatten();
            let Some(command) = next else { return };
            self.take(command);
        }
    }

    pub(super) fn take_held(&mut self) {
        for command in std::mem::take(&mut self.held) {
            self.take(command);
        }
    }

    fn take(&mut self, command: Command) {
        // A session may have ended while its message was on its way.
        let alone = self.conversation.stands_alone();
        if !command.counts() || !alone && self.conversation.members.get(command.from).is_none() {
            return;
        }
        let Command { from, kind, body, caller } = command;
        let shared = self.conversation.is_shared();
        match kind {
            Kind::Request(asked) => self.request_of(from, asked, body, caller),
            Kind::Cancelled(Some((id, at))) => match self.routes.cancel(from, &id, Instant::now()) {
                Some(number) => self.outgoing.told(&body, Some((&at, &number.to_string())), caller),
                None => caller.end(Ok(None)),
            },
            Kind::Response(Some((Key::Text(id), at))) => self.answer_of(from, &id, &at, &body, caller),
            // Others have said it, and the process has heard it.
            Kind::Initialized if shared => caller.end(Ok(None)),
            Kind::Initialized => {
                self.conversation.handshake.initialized = true;
                self.outgoing.told(&body, None, caller);
            }
            Kind::Progress(Some(token)) if self.awaits(from, &token) => {
                self.outgoing.told(&body, None, caller)
            }
            // Nobody has asked for these, or one session would speak for others.
            Kind::Cancelled(None) | Kind::Response(_) | Kind::Progress(_) => caller.end(Ok(None)),
            Kind::RootsChanged | Kind::Other if shared => caller.end(Ok(None)),
            Kind::RootsChanged | Kind::Other => self.outgoing.told(&body, None, caller),
        }
    }

    fn request_of(&mut self, from: Name, asked: Asked, body: Bytes, caller: Caller) {
        let sets = asked.about.sets();
        match &asked.about {
            // Once in a session, and that was before.
            About::Handshake => return caller.end(Err(Failure::NotMessage)),
            About::Subscribe(uri) => {
                let member = self.conversation.members.get(from);
                if self.conversation.is_shared() {
                    if uri.len() > MAX_URI {
                        return caller.end(Err(Failure::LongSubscription));
                    }
                    if !member.is_some_and(|member| member.may_subscribe(uri)) {
                        return caller.end(Err(Failure::TooManySubscriptions));
                    }
                    if self.conversation.members.is_subscribed(uri) {
                        let uri = uri.clone();
                        self.with_member(from, |member| member.subscribe(&uri));
                        return caller.end(Ok(Some(done(&body, &asked.at))));
                    }
                }
            }
            About::Unsubscribe(uri) => {
                let uri = uri.clone();
                self.with_member(from, |member| member.unsubscribe(&uri));
                self.routes.take_back(from, &uri);
                if self.conversation.is_shared() && self.is_wanted(&uri) {
                    return caller.end(Ok(Some(done(&body, &asked.at))));
                }
            }
            About::Level(level) if self.conversation.is_shared() => {
                let Some(level) = *level else { return caller.end(Err(Failure::UnknownLevel)) };
                return self.level_of(from, level, asked, body, caller);
            }
            About::Level(_)
            | About::TakenBack(_)
            | About::Listen
            | About::Task
            | About::Look
            | About::Other => {}
        }
        let number = self.number();
        let edit = number.to_string();
        match self.routes.add(number, Call::of(from, asked, body, caller)) {
            Ok(call) => {
                let Asked { at, token, .. } = call.asked();
                let edits = [Some((at, &*edit)), token.as_ref().map(|token| (token, &*edit))];
                self.outgoing.call(call.body(), edits, number);
            }
            Err(call) => return call.end(Err(Failure::IdInUse)),
        }
        if !sets {
            self.ask_early();
        }
    }

    /// A session wants to hear so much. The process is told what the most curious of them wants.
    fn level_of(&mut self, from: Name, level: Level, asked: Asked, body: Bytes, caller: Caller) {
        let before = self.conversation.members.get(from).and_then(|member| member.level);
        self.with_member(from, |member| member.level = Some(level));
        let wanted = self.conversation.members.level();
        if wanted == self.level {
            // Unless that is being asked: its answer will be for this one too.
            if !self.routes.sets_level() {
                self.conversation.members.agreed(from, Some(level));
            }
            return caller.end(Ok(Some(done(&body, &asked.at))));
        }
        let number = self.number();
        let message = set_level(number, wanted.unwrap_or(level));
        match self.routes.add(number, Call::of(from, asked, body, caller)) {
            Ok(_) => {
                self.level = wanted;
                self.outgoing.call(message.as_bytes(), [None, None], number);
            }
            Err(call) => {
                self.with_member(from, |member| member.level = before);
                call.end(Err(Failure::IdInUse));
            }
        }
    }

    fn answer_of(&mut self, from: Name, id: &str, at: &Span, body: &Bytes, caller: Caller) {
        let number = self.conversation.stdio().question_of(id);
        let question = number.filter(|number| self.asked.get(number).is_some_and(|asked| asked.from == from));
        match question.and_then(|number| self.asked.remove(&number)) {
            Some(question) => self.outgoing.told(body, Some((at, &question.id)), caller),
            // An answer to nobody, or to what a process before this one asked.
            None => caller.end(Ok(None)),
        }
    }

    /// Whether the process wants to hear of the progress of this session's client under this token.
    fn awaits(&self, from: Name, token: &Key) -> bool {
        self.asked.values().any(|question| question.from == from && question.token.as_ref() == Some(token))
    }

    /// What a session alone had asked for is taken back.
    pub(super) fn forget(&mut self, left: Left) {
        let alone = self.conversation.stands_alone();
        let reason = if alone { UNAWAITED } else { "the session was ended" };
        for number in self.routes.leave(left.name, &Failure::Ended) {
            self.outgoing.cancel(number, reason);
        }
        if alone {
            return;
        }
        self.asked.retain(|_, question| question.from != left.name);
        for uri in left.subscriptions {
            self.unsubscribe_unless_wanted(&uri);
        }
        let wanted = self.conversation.members.level();
        if wanted.is_some() && wanted != self.level {
            self.tell_level();
        }
    }

    /// The process has subscribed somebody to this resource who had taken that back. It may have heard the two the other
    /// way round: then nobody else tells it that nobody is subscribed.
    pub(super) fn subscribed_in_vain(&mut self, uri: &str) {
        if self.conversation.is_shared() && !self.routes.unsubscribes(uri) {
            self.unsubscribe_unless_wanted(uri);
        }
    }

    fn unsubscribe_unless_wanted(&mut self, uri: &str) {
        if !self.is_wanted(uri) {
            let about = About::Unsubscribe(uri.to_owned());
            self.ask("resources/unsubscribe", &json!({"uri": uri}), about);
        }
    }

    /// Whether any session is subscribed to this resource, or about to be.
    fn is_wanted(&self, uri: &str) -> bool {
        self.conversation.members.is_subscribed(uri) || self.routes.subscribes(uri)
    }

    /// Says again to another process what the sessions have asked for.
    pub(super) fn restore(&mut self) {
        self.tell_level();
        for uri in self.conversation.members.subscriptions() {
            self.ask("resources/subscribe", &json!({"uri": uri}), About::Other);
        }
    }

    /// Tells the process how much the sessions want to hear, whatever it was told before.
    pub(super) fn tell_level(&mut self) {
        self.level = self.conversation.members.level();
        if let Some(level) = self.level {
            self.ask("logging/setLevel", &json!({"level": level.as_str()}), About::Level(self.level));
        }
    }

    /// Says something that every server answers and that may be lost. Gives its number.
    pub(super) fn ping(&mut self) -> u64 {
        if !self.conversation.stands_alone() {
            return self.ask("ping", &json!({}), About::Other);
        }
        // This revision has no ping.
        let number = self.number();
        let info = own_info().to_string();
        let client = Client { capabilities: "{}", info: Some(&info), level: None };
        let question = handshake::discover(&number.to_string(), Revision::V2026_07_28, &client);
        self.ask_as(number, &question, About::Other);
        number
    }

    /// Asks something of the sidecar's own, whose answer nobody needs. Gives its number.
    fn ask(&mut self, method: &str, params: &serde_json::Value, about: About) -> u64 {
        let number = self.number();
        let message = json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).to_string();
        self.ask_as(number, &message, about);
        number
    }

    /// The same in these words, which have that number.
    fn ask_as(&mut self, number: u64, message: &str, about: About) {
        if self.routes.add(number, Call::own(about)).is_ok() {
            self.outgoing.call(message.as_bytes(), [None, None], number);
        }
    }

    pub(super) fn with_member(
        &mut self,
        name: Name,
        change: impl FnOnce(&mut crate::upstream::stdio::members::Member),
    ) {
        if let Some(member) = self.conversation.members.get_mut(name) {
            change(member);
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }
}

/// The answer to a request that the process need not hear of.
fn done(body: &Bytes, id: &Span) -> Bytes {
    let id = text(body, id);
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{}}}}", Id::from_json(&id).as_json()).into()
}

fn set_level(number: u64, level: Level) -> String {
    let params = json!({"level": level.as_str()});
    json!({"jsonrpc": "2.0", "id": number, "method": "logging/setLevel", "params": params}).to_string()
}
