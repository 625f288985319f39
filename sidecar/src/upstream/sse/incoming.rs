//! What a server says in its stream, and to whom it goes.

use bytes::Bytes;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Id, Malformed, Message, Notification, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::initialize;
use longshore_mcp::method::{Method, NotificationMethod};
use longshore_mcp::params::Params;
use tokio::time::Instant;

use super::talk::Talk;
use crate::held::Came;
use crate::metrics::Dropped;
use crate::upstream::call::{Matched, Offer, Reader};
use crate::upstream::message::{About, is_of_call, span, with};

impl Talk {
    pub(super) fn incoming(&mut self, message: &Bytes) {
        let (wanted, why) = match envelope::read_servers(message) {
            Ok(Message::Response(response)) => (self.response(&response, message), Dropped::Unasked),
            Ok(Message::Notification(notification)) => {
                (self.notification(&notification, message), Dropped::Unasked)
            }
            Ok(Message::Request(request)) => (self.request(&request, message), Dropped::Unasked),
            Err(Malformed::Batch) if self.unpack(message) => return,
            Err(_) => {
                let refusal = envelope::refusal_of_number(message);
                (refusal.is_some_and(|refusal| self.posts.own(refusal)), Dropped::Noise)
            }
        };
        if wanted {
            self.dropped = 0;
        } else {
            self.dropped += message.len();
            self.registered.sse.metrics.dropped(why);
        }
    }

    /// Has the messages of a batch come one after the other, where the server may write batches.
    fn unpack(&mut self, message: &Bytes) -> bool {
        let Some(parts) = batch::parts(message, self.posts.revision()) else { return false };
        let mut came = self.came.take().map(Came::without_turn);
        for part in parts.into_iter().rev() {
            // A copy, counted by itself: one that waits for its reader does not hold all the others.
            let came = came.as_mut().map(|came| came.split(part.len()));
            self.stream.waiting.push_front((Bytes::copy_from_slice(part.as_bytes()), came));
        }
        true
    }

    /// Says whether somebody wanted it, as the next two.
    fn response(&mut self, response: &Response<'_>, message: &Bytes) -> bool {
        // An error without an id could be anybody's.
        let Some(id) = &response.id else { return false };
        let Some(number) = id.number() else { return false };
        let Some(call) = self.routes.answered(number) else { return false };
        self.posts.over(number, Instant::now());
        if let Outcome::Result(result) = &response.outcome {
            self.routes.note_task(number, &call, result.get());
            if *call.about() == About::Handshake {
                self.posts.speak(initialize::chosen(result.get()));
            }
        }
        let answer = with(message, &span(message, id.as_json()), &call.id());
        call.answer(answer, Matched::of(&response.outcome), self.came.take());
        true
    }

    fn notification(&mut self, notification: &Notification<'_>, message: &Bytes) -> bool {
        let method = notification.method.as_str();
        if method == NotificationMethod::Progress.as_str() {
            let params = Params::read(notification.params).unwrap_or_default();
            return self.progress(&params, message);
        }
        // What it takes back of what it asked in a call is of that call too.
        let of_call = method == NotificationMethod::Cancelled.as_str() || is_of_call(method);
        let to = if of_call { self.of_call() } else { self.of_none() };
        self.pass(to, message)
    }

    fn progress(&mut self, params: &Params<'_>, message: &Bytes) -> bool {
        let Some(token) = params.reported_token() else { return false };
        let Some(number) = Id::from_json(token).number() else { return false };
        if let Some((_, own)) = self.routes.task(number) {
            let message = with(message, &span(message, token), own);
            return self.pass(self.of_none(), &message);
        }
        let Some(call) = self.routes.get(number) else { return false };
        let (Some(own), Some(caller)) = (call.token(), call.caller()) else { return false };
        let (to, message) = (caller.reader(), with(message, &span(message, token), &own));
        self.pass(Some(to), &message)
    }

    fn request(&mut self, request: &Request<'_>, message: &Bytes) -> bool {
        if request.method.as_str() == Method::Ping.as_str() {
            let id = request.id.as_json();
            return self.posts.own(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"));
        }
        let to = self.of_call();
        if self.pass(to, message) {
            return true;
        }
        const NOBODY: &str =
            "no call is under way in which the client could be asked, and it does not listen";
        self.posts.own(error::response(Some(request.id), Code::InternalError, NOBODY, None))
    }

    /// Who hears what is likely to be about a call: the one that is under way, if there is only one.
    fn of_call(&self) -> Option<Reader> {
        if self.routes.count() == 1
            && let Some(caller) = self.newest()
        {
            return Some(caller);
        }
        self.of_none()
    }

    /// Who hears what is about none: whoever listens, or else the newest call.
    fn of_none(&self) -> Option<Reader> {
        self.listener.as_ref().map(|listener| listener.reader()).or_else(|| self.newest())
    }

    fn newest(&self) -> Option<Reader> {
        self.routes.newest(None)?.caller().map(|caller| caller.reader())
    }

    /// Gives a message to somebody who waits for something else.
    fn pass(&mut self, to: Option<Reader>, message: &Bytes) -> bool {
        let Some(to) = to else { return false };
        let message = Came::keep(self.came.take(), message);
        match to.offer(&message) {
            Offer::Taken => true,
            Offer::Gone => false,
            Offer::Full => {
                self.delivery = Some((to, message));
                true
            }
        }
    }
}
