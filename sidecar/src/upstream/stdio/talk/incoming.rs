//! What a process says, and to whom it goes.

use bytes::Bytes;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Id, Message, Notification, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::method::{Method, NotificationMethod};
use longshore_mcp::params::Params;
use longshore_mcp::revision::Revision;
use tokio::time::{Duration, Instant};

use super::stateless::listened;
use super::taking::INITIALIZED;
use super::{Delivery, Question, Talk};
use crate::held::Came;
use crate::metrics::Dropped;
use crate::upstream::stdio::call::{Caller, Matched, Offer, Reader};
use crate::upstream::stdio::conversation::Sharing;
use crate::upstream::stdio::handshake::FIRST;
use crate::upstream::stdio::message::{About, Key, Span, is_of_call, span, with};
use crate::upstream::stdio::routes::Call;
use crate::upstream::stdio::{Failure, Name};

/// How many of its questions may wait for clients.
const MAX_ASKED: usize = 256;
/// What a process is told that asked somebody who does not read.
const UNREAD: &str = "the client does not read";
/// And one that asked while nobody could be.
const NOBODY: &str = "no call is under way in which the client could be asked, and it does not listen";
/// A reader that may be waited for less is not: it would take longer to wake up.
const SHORTEST: Duration = Duration::from_millis(1);

/// Who is asked, and in which call, if it is in one.
type Whom = (Name, Option<u64>, Reader);

impl Talk<'_> {
    pub(super) fn line(&mut self, line: Bytes) {
        let length = line.len() + 1;
        let half = std::mem::take(&mut self.half);
        // Most noise is known by its first byte; there may be very many lines of it.
        let message = match line.first() {
            Some(b'{') => envelope::read_servers(&line).ok(),
            // Where the server has batches it may write them too: each message is a line like any other.
            Some(b'[') => {
                let version = self.conversation.handshake.version().and_then(Revision::parse);
                if let Some(parts) = batch::parts(&line, version) {
                    // Copies: one that waits for its reader does not hold all the others.
                    let copy = |part: &str| Bytes::copy_from_slice(part.as_bytes());
                    self.batch = parts.into_iter().map(copy).collect();
                    self.batch_came =
                        self.came.take().filter(|_| !self.batch.is_empty()).map(Came::without_turn);
                    // What is around them is of no message, and may be all that there is.
                    let around = length - self.batch.iter().map(Bytes::len).sum::<usize>();
                    self.noise += around;
                    self.unwanted.add(around);
                    return;
                }
                None
            }
            _ => None,
        };
        let wanted = match message {
            Some(message) => self.message(&message, &line),
            // The other half is another sidecar's, or was never written.
            None if half => false,
            None if self.refuse_number(&line) => true,
            None => {
                self.not_message(&line);
                self.noise += length;
                false
            }
        };
        if wanted { self.unwanted.interrupt() } else { self.unwanted.add(length) }
    }

    /// It has started: it has read something that it was told.
    pub(super) fn note_started(&mut self) {
        if let Some(turn) = self.conversation.turn.take() {
            turn.answered();
        }
    }

    /// Takes a message. Says whether it was for anybody.
    fn message(&mut self, message: &Message<'_>, line: &Bytes) -> bool {
        self.noise = 0;
        let wanted = match message {
            Message::Response(response) => self.response(response, line),
            Message::Notification(notification) => self.notification(notification, line),
            Message::Request(request) => self.request(request, line),
        };
        if !wanted {
            self.conversation.stdio().metrics.dropped(Dropped::Unasked);
        }
        wanted
    }

    /// Answers a question under a number that cannot be kept. Says whether it is one.
    fn refuse_number(&mut self, line: &Bytes) -> bool {
        let is_object = line.first() == Some(&b'{') && !self.conversation.stands_alone();
        let refusal = is_object.then(|| envelope::refusal_of_number(line)).flatten();
        refusal.is_some_and(|refusal| self.outgoing.own(refusal.as_bytes()))
    }

    // === Answers ===

    /// Says whether somebody wanted it, as the next two.
    fn response(&mut self, response: &Response<'_>, line: &Bytes) -> bool {
        // Whatever it answers.
        self.note_started();
        // An error without an id could be anybody's.
        let Some(id) = &response.id else { return false };
        let Some(number) = id.number() else { return false };
        let works = matches!(response.outcome, Outcome::Result(_));
        let at = span(line, id.as_json());
        if number == FIRST && self.shaking {
            self.shaken(line, &at, works);
            return true;
        }
        let Some(call) = self.routes.answered(number) else { return self.hangs.is_answered(number) };
        if let Outcome::Result(result) = &response.outcome {
            self.routes.note_task(number, &call, result.get());
        }
        self.routes.note_answered(&call);
        self.note_answered(&call, &response.outcome);
        let shared = self.conversation.is_shared();
        match (call.from, call.about()) {
            (Some(from), About::Subscribe(uri)) if works => {
                let uri = uri.clone();
                self.with_member(from, |member| member.subscribe(&uri));
            }
            (Some(_), About::TakenBack(uri)) if works => {
                let uri = uri.clone();
                self.subscribed_in_vain(&uri);
            }
            (Some(from), About::Level(level)) if works && !shared => {
                let level = *level;
                self.with_member(from, |member| member.level = level);
            }
            (Some(from), About::Level(level)) if works => {
                self.conversation.members.agreed(from, *level);
            }
            (Some(_), About::Level(level)) if shared => {
                self.conversation.members.refused(*level);
                self.tell_level();
            }
            // What it says by now nobody knows: whoever wants as much has it asked again.
            (None, About::Level(level)) if !works && *level == self.level => self.level = None,
            _ => {}
        }
        let answer = match call.about() {
            About::Listen => listened(response, line, &at, &call.id()),
            _ => with(line, &at, &call.id()),
        };
        call.answer(answer, Matched::of(&response.outcome), self.came.take());
        true
    }

    /// The process has answered the handshake.
    fn shaken(&mut self, line: &Bytes, at: &Span, works: bool) {
        self.shaking = false;
        if self.conversation.handshake.is_complete() {
            // Another process has done it before.
            if !works || !self.conversation.handshake.is_repeated_by(line) {
                // It is not the server that the client has shaken hands with.
                self.end.get_or_insert(Failure::Forgotten);
                return;
            }
            if self.conversation.handshake.initialized {
                self.outgoing.own(INITIALIZED);
            }
            self.restore();
            self.take_held();
            return;
        }
        let is_shared = self.conversation.is_shared();
        let handshake = &mut self.conversation.handshake;
        let complete = works && handshake.answered(line) && (!is_shared || handshake.keep_answer(line, at));
        for joining in self.conversation.joining.drain(..) {
            joining.caller.end(Ok(Some(with(line, at, &joining.id))));
        }
        if self.conversation.is_own() && complete {
            self.conversation.stdio().begin_noise(self.first_noise.clone());
        }
        if is_shared && complete {
            self.conversation.handshake.initialized = true;
            self.conversation.publish_version();
            self.outgoing.own(INITIALIZED);
        } else if is_shared {
            // Whoever comes next tries with another one.
            self.conversation.close();
        }
    }

    // === Notifications ===

    fn notification(&mut self, notification: &Notification<'_>, line: &Bytes) -> bool {
        let params = Params::read(notification.params).unwrap_or_default();
        let method = notification.method.as_str();
        if method == NotificationMethod::Progress.as_str() {
            return self.progress(&params, line);
        }
        if self.conversation.stands_alone() {
            return self.notification_alone(notification, &params, line);
        }
        if method == NotificationMethod::Cancelled.as_str() {
            return self.cancelled(&params, line);
        }
        let Sharing::Several { same, .. } = self.conversation.kind else {
            if is_of_call(method) && self.routes.count() == 1 {
                let call = self.routes.newest(None).and_then(Call::caller).map(Caller::reader);
                if call.is_some() {
                    return self.aside(call, line);
                }
            }
            let Some(name) = self.conversation.members.names().next() else { return false };
            return self.tell(name, line);
        };
        let to: Vec<Name> = match method {
            "notifications/resources/updated" => {
                params.uri().map(|uri| self.conversation.members.hearing_of(uri)).unwrap_or_default()
            }
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed" => self.conversation.members.names().collect(),
            "notifications/message" => self.hearing_messages(&params, same),
            // Nobody knows whom it is about.
            _ => Vec::new(),
        };
        let mut told = false;
        for name in to {
            told |= self.tell(name, line);
        }
        told
    }

    /// The sessions that hear a message of the server's log: those whose calls it can be about, if they want to.
    ///
    /// What it says while no call is under way, or calls of several principals, could be about any of these, and while
    /// it may still be busy with a call of others that is over, about that one; so nobody hears it then.
    fn hearing_messages(&self, params: &Params<'_>, same: bool) -> Vec<Name> {
        let mut calling: Vec<Name> = self.routes.sessions().collect();
        calling.sort_unstable();
        calling.dedup();
        let names = match calling[..] {
            [name] if !self.is_in_doubt(name) => calling,
            _ if same => self.conversation.members.names().collect(),
            _ => Vec::new(),
        };
        let level = params.level().and_then(|level| serde_json::from_str(level).ok());
        let hears =
            |name: &Name| self.conversation.members.get(*name).is_some_and(|member| member.hears(level));
        names.into_iter().filter(hears).collect()
    }

    /// Tells a session something that belongs to none of its calls: whoever listens, or its newest call.
    fn tell(&mut self, name: Name, line: &Bytes) -> bool {
        let member = self.conversation.members.get(name);
        if let Some(listener) = member.and_then(|member| member.listener.as_ref()) {
            // Whoever listens reads at once, or has gone.
            return self.aside(Some(listener.reader()), line);
        }
        let caller = self.routes.newest(Some(name)).and_then(|call| call.caller());
        let joining = || self.conversation.joining.iter().find(|joining| joining.name == name);
        let to = caller.or_else(|| joining().map(|joining| &joining.caller)).map(|caller| caller.reader());
        self.aside(to, line)
    }

    fn progress(&mut self, params: &Params<'_>, line: &Bytes) -> bool {
        let Some(token) = params.reported_token() else { return false };
        let Some(number) = Id::from_json(token).number() else { return false };
        if let Some((from, own)) = self.routes.task(number) {
            let message = with(line, &span(line, token), own);
            return self.tell(from, &message);
        }
        let Some(call) = self.routes.get(number) else { return false };
        let (Some(own), Some(caller)) = (call.token(), call.caller()) else { return false };
        let (to, message) = (caller.reader(), with(line, &span(line, token), &own));
        self.note_started();
        self.aside(Some(to), &message)
    }

    /// The process takes back what it asked a client.
    fn cancelled(&mut self, params: &Params<'_>, line: &Bytes) -> bool {
        let Some(id) = params.request_id() else { return false };
        let Some(key) = Key::read(id) else { return false };
        if self.take_back_early(&key) {
            return true;
        }
        let found = self.asked.iter().find(|(_, question)| Key::read(&question.id).as_ref() == Some(&key));
        let Some(number) = found.map(|(number, _)| *number) else { return false };
        let Some(question) = self.asked.remove(&number) else { return false };
        let message = with(line, &span(line, id), &self.conversation.stdio().id_of_question(number));
        // Behind the question itself, where the call is that it was asked in.
        let call = question.call.and_then(|call| self.routes.get(call)).and_then(Call::caller);
        match call.map(Caller::reader) {
            Some(to) => self.aside(Some(to), &message),
            None => self.tell(question.from, &message),
        }
    }

    // === Questions ===

    pub(super) fn request(&mut self, request: &Request<'_>, line: &Bytes) -> bool {
        if self.conversation.stands_alone() {
            const WORDS: &str =
                "a server of this revision asks nothing on its own: it answers that it needs input";
            let refusal = error::response(Some(request.id), Code::MethodNotFound, WORDS, None);
            return self.outgoing.own(refusal.as_bytes());
        }
        let id = request.id.as_json();
        let method = request.method.as_str();
        if method == Method::Ping.as_str() {
            return self
                .outgoing
                .own(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}").as_bytes());
        }
        let words = match self.whom(method, line) {
            Ok((from, call, to)) if self.may_ask() => {
                let (number, seen) = self.conversation.stdio().question();
                let message = with(line, &span(line, id), &seen);
                let params = Params::read(request.params).unwrap_or_default();
                let token = params.kept_token().and_then(Key::read);
                if self.aside(Some(to), &message) {
                    self.asked.insert(number, Question { from, id: id.to_owned(), token, call });
                    // It may still wait for its reader.
                    if let Some(delivery) = &mut self.delivery {
                        delivery.question = Some(number);
                    }
                    return true;
                }
                UNREAD
            }
            Ok(_) => "too many questions are open",
            Err(NOBODY) if self.keep_early(line) => return true,
            Err(words) => words,
        };
        let refusal = error::response(Some(request.id), Code::InternalError, words, None);
        self.outgoing.own(refusal.as_bytes())
    }

    /// Which client is asked, in which call.
    fn whom(&self, method: &str, line: &Bytes) -> Result<Whom, &'static str> {
        if !self.conversation.is_shared() {
            // In what only sets something it may be the sidecar that is asked: that may say it for its client.
            let found = self.in_newest(|call| !call.about().sets()).or_else(|| self.listening());
            let found = found.or_else(|| self.in_newest(|_| true).filter(|_| !self.may_wait(line)));
            return found.ok_or(NOBODY);
        }
        let (from, call, to) = self.in_newest(|_| true).ok_or(NOBODY)?;
        if self.routes.count() > 1 {
            return Err(
                "several calls are under way in a process that sessions share: nobody knows whose client is \
                        meant",
            );
        }
        if self.is_in_doubt(from) {
            return Err(
                "it may be about a call of somebody else that is over, in a process that all share: \
                        nobody knows whose client is meant",
            );
        }
        let member = self.conversation.members.get(from).ok_or(NOBODY)?;
        if !member.abilities.cover(method) {
            return Err("the client does not understand this request");
        }
        Ok((from, call, to))
    }

    /// Who waits for the newest call of those that something holds for.
    fn in_newest(&self, holds: impl Fn(&Call) -> bool) -> Option<Whom> {
        let (number, call) = self.routes.newest_where(holds)?;
        Some((call.from?, Some(number), call.caller()?.reader()))
    }

    /// Whoever listens in the session of a process that has one.
    fn listening(&self) -> Option<Whom> {
        let name = self.conversation.members.names().next()?;
        let listener = self.conversation.members.get(name)?.listener.as_ref()?;
        Some((name, None, listener.reader()))
    }

    /// Whether one more question can be open. Those of calls that are over make room, and then the oldest of no call: a
    /// server that asks for more has given it up, most likely.
    fn may_ask(&mut self) -> bool {
        if self.asked.len() >= MAX_ASKED {
            let routes = &self.routes;
            self.asked.retain(|_, question| question.call.is_none_or(|call| routes.get(call).is_some()));
        }
        if self.asked.len() >= MAX_ASKED {
            let of_no_call = self.asked.iter().filter(|(_, question)| question.call.is_none());
            if let Some(oldest) = of_no_call.map(|(number, _)| *number).min() {
                self.asked.remove(&oldest);
            }
        }
        self.asked.len() < MAX_ASKED
    }

    /// Gives a message to somebody who waits for something else.
    pub(super) fn aside(&mut self, to: Option<Reader>, line: &Bytes) -> bool {
        let Some(to) = to else { return false };
        let line = Came::keep(self.came.take(), line);
        match to.offer(&line) {
            Offer::Taken => true,
            Offer::Gone => false,
            Offer::Full => {
                let since = Instant::now();
                let mut until = None;
                if self.conversation.is_shared() {
                    let time = to.credit() + self.indulgence.left(since);
                    if time < SHORTEST || self.delivery.is_some() {
                        self.missed(&to, &line, since);
                        return false;
                    }
                    until = Some(since + time);
                } else if self.delivery.is_some() {
                    // Nothing is read while a message waits, so this is a question that was kept until now. It does not take
                    // the place of that message.
                    return false;
                }
                self.delivery = Some(Delivery { to, message: line, since, until, question: None });
                true
            }
        }
    }

    /// A question did not reach its client.
    pub(super) fn unread(&mut self, number: u64) {
        let Some(question) = self.asked.remove(&number) else { return };
        let refusal = error::response(Some(Id::from_json(&question.id)), Code::InternalError, UNREAD, None);
        self.outgoing.own(refusal.as_bytes());
    }

    /// Somebody has missed a message. A call whose client reads nothing is ended: in a process that sessions share, what
    /// is written for nobody is in the way of what is written for others.
    pub(super) fn missed(&mut self, who: &Reader, message: &Bytes, now: Instant) {
        if who.missed(message.len(), now)
            && let Some(number) = self.routes.unread(who.number)
        {
            self.outgoing.cancel(number, "its client does not read");
        }
    }
}
