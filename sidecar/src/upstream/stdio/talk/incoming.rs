//! What a process says, and to whom it goes.

use std::io;

use bytes::Bytes;
use longshore_mcp::envelope::{self, Message, Notification, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::method::{Method, NotificationMethod};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::Talk;
use crate::metrics::Dropped;
use crate::upstream::stdio::Why;
use crate::upstream::stdio::call::Caller;
use crate::upstream::stdio::lines::{MAX_NOISE, excerpt};
use crate::upstream::stdio::message::{Key, progress_of};

/// How much may be dropped without a pause: a process that writes what nobody wants must not keep the thread busy.
const DROPPED: usize = 256 * 1024;
/// How many of its questions may wait for the client.
const MAX_ASKED: usize = 256;
/// The pause.
const PAUSE: Duration = Duration::from_millis(10);

impl Talk<'_> {
    pub(super) fn read(&mut self) {
        match self.process.stdout.try_read_buf(self.lines.space()) {
            Ok(0) => self.output_ended(),
            Ok(length) => self.turn += length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.output_ended(),
        }
    }

    pub(super) fn output_ended(&mut self) {
        self.end_of_output = true;
        self.closed.get_or_insert_with(Instant::now);
    }

    /// Takes the lines that are complete, until one has to wait.
    pub(super) fn read_lines(&mut self) {
        while self.delivery.is_none() && self.doom.is_none() {
            let next = self.lines.next();
            self.restrain();
            match next {
                Ok(Some(line)) => self.line(line),
                Ok(None) if self.end_of_output => {
                    let last = self.lines.last();
                    if last.is_empty() {
                        return;
                    }
                    self.line(last);
                }
                Ok(None) => return,
                Err(_) => self.doom = Some(Why::LineTooLong),
            }
        }
    }

    fn line(&mut self, line: Bytes) {
        let length = line.len() + 1;
        // Most noise is known by its first byte; there may be very many lines of it.
        let message = line.starts_with(b"{").then(|| envelope::read(&line));
        let wanted = match message {
            Some(Ok(message)) => {
                self.noise = 0;
                let wanted = match message {
                    Message::Response(response) => self.response(&response, &line),
                    Message::Notification(notification) => self.notification(&notification, &line),
                    Message::Request(request) => self.request(&request, &line),
                };
                if !wanted {
                    self.conversation.stdio().metrics.dropped(Dropped::Unasked);
                }
                wanted
            }
            Some(Err(_)) | None => {
                self.not_message(&line);
                self.noise += length;
                false
            }
        };
        self.dropped = if wanted { 0 } else { self.dropped + length };
    }

    /// Sees to it that what is for nobody does not go on without end.
    fn restrain(&mut self) {
        let blank = self.lines.take_blank();
        self.noise += blank;
        self.dropped += blank;
        if self.noise > MAX_NOISE {
            self.doom.get_or_insert(Why::Noise);
        }
        if self.dropped >= DROPPED {
            self.dropped = 0;
            self.pause = Some(Instant::now() + PAUSE);
        }
    }

    fn not_message(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let stdio = self.conversation.stdio();
        stdio.metrics.dropped(Dropped::Noise);
        if self.first_noise.is_none() {
            // What a client's process prints may be of that client, and the status is for everybody.
            let shown = if self.conversation.is_own() {
                excerpt(line)
            } else {
                "(not shown: of a client's session)".to_owned()
            };
            // What the sidecar's own process says before the end of the handshake is shown with its end.
            if !self.conversation.is_own() || self.conversation.handshake.is_complete() {
                stdio.note_noise(&shown);
            }
            self.first_noise = Some(shown);
        }
    }

    /// Says whether somebody wanted it, as the next two.
    fn response(&mut self, response: &Response<'_>, line: &Bytes) -> bool {
        // An error without an id could be anybody's.
        let Some(id) = response.id.as_ref().map(Key::of) else { return false };
        if self.replay.is_some() && self.conversation.handshake.is(&id) {
            self.replayed(line);
            return true;
        }
        let Some(caller) = self.routes.answered(&id) else { return false };
        let opens = !self.conversation.handshake.is_complete() && self.conversation.handshake.is(&id);
        if opens
            && matches!(response.outcome, Outcome::Result(_))
            && self.conversation.handshake.answered(line)
            && self.conversation.is_own()
        {
            self.conversation.stdio().begin_noise(self.first_noise.clone());
        }
        caller.end(Ok(Some(line.clone())));
        true
    }

    /// The process has answered the handshake of its session, of which it is not the first.
    fn replayed(&mut self, line: &Bytes) {
        if !self.conversation.handshake.is_repeated_by(line) {
            self.stranger = true;
            return;
        }
        if self.conversation.handshake.initialized {
            const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
            self.outgoing.own(Bytes::from_static(INITIALIZED));
        }
        if let Some((command, _)) = self.replay.take() {
            self.take(command);
        }
    }

    fn notification(&mut self, notification: &Notification<'_>, line: &Bytes) -> bool {
        let to = if notification.method.as_str() == NotificationMethod::Progress.as_str() {
            progress_of(notification).and_then(|token| self.routes.progressing(&token))
        } else if let Some(listener) = &self.conversation.listener {
            // Whoever listens reads at once, or has gone.
            Some(listener)
        } else {
            self.routes.newest()
        };
        let to = to.map(Caller::asides).cloned();
        self.aside(to, line)
    }

    fn request(&mut self, request: &Request<'_>, line: &Bytes) -> bool {
        let is_ping = request.method.as_str() == Method::Ping.as_str();
        let to = self.routes.newest().or(self.conversation.listener.as_ref());
        let to = to.map(|caller| caller.asides().clone());
        if self.asked.len() < MAX_ASKED && self.aside(to, line) {
            self.asked.insert(Key::of(&request.id), !is_ping);
            return true;
        }
        let id = request.id.as_json();
        let mut answer = if is_ping {
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
        } else {
            const WORDS: &str =
                "no call is under way in which the client could be asked, and it does not listen";
            error::response(Some(request.id), Code::InternalError, WORDS, None)
        };
        answer.push('\n');
        self.outgoing.own(answer.into())
    }

    /// Gives a message to somebody who waits for something else.
    fn aside(&mut self, to: Option<mpsc::Sender<Bytes>>, line: &Bytes) -> bool {
        let Some(to) = to else { return false };
        match to.try_send(line.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(message)) => {
                self.delivery = Some((to, message));
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}
