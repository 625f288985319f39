//! A session with the server, from its first message to the end of its stream.
//!
//! Everything that can wait is waited for at once: while a slow reader holds up what the server says, messages to it are
//! sent, and the other way round. What bounds the waiting is that those who wait have deadlines.

use std::rc::Rc;

use http::Method;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep_until};

use super::begin::{Over, Stream};
use super::posts::{From, Posted, Posts};
use super::{Registered, Traced};
use crate::held::Came;
use crate::upstream::call::{Caller, Failure, Reader};
use crate::upstream::channel::{Control, Ends};
use crate::upstream::forgotten::{Says, says};
use crate::upstream::http::Connections;
use crate::upstream::message::{About, Asked, Command, Kind, UNAWAITED, with, write};
use crate::upstream::routes::{Call, Routes};

/// How much is read before others have their turn.
const TURN: usize = 256 * 1024;
/// How much may be dropped without a pause: a server that says what nobody wants must not keep the thread busy.
const DROPPED: usize = 256 * 1024;
/// How long the outcomes of POSTs are waited for in a session that the server has forgotten: of a call that it takes as
/// little as another one it has seen nothing.
const OUTCOMES: Duration = Duration::from_secs(1);
/// The pause.
const PAUSE: Duration = Duration::from_millis(10);

/// A session, and all that is under way in it.
pub(super) struct Talk {
    pub(super) registered: Registered,
    pub(super) stream: Box<Stream>,
    letters: mpsc::Receiver<Traced>,
    control: mpsc::UnboundedReceiver<Control>,
    pub(super) posts: Posts,
    pub(super) routes: Routes,
    /// The number of the next call.
    next: u64,
    /// Who hears what belongs to no call.
    pub(super) listener: Option<Caller>,
    /// What counts the message that is being taken.
    pub(super) came: Option<Came>,
    /// A message that waits for a slow reader. Nothing is read meanwhile.
    pub(super) delivery: Option<(Reader, bytes::Bytes)>,
    /// The handshake was sent.
    shaken: bool,
    /// The server has forgotten the session. Until then it is heard which calls it has not taken.
    forgotten: Option<Instant>,
    /// Why it is over.
    end: Option<Failure>,
    /// How much was dropped since something was not.
    pub(super) dropped: usize,
    pause: Option<Instant>,
}

impl Talk {
    pub(super) fn new(
        registered: Registered,
        http: Rc<Connections>,
        port: u16,
        stream: Box<Stream>,
        (letters, control): Ends<Traced>,
    ) -> Self {
        let posts = Posts::new(http, port, stream.endpoint.as_str().into());
        Self {
            registered,
            stream,
            letters,
            control,
            posts,
            routes: Routes::default(),
            next: 1,
            listener: None,
            came: None,
            delivery: None,
            shaken: false,
            forgotten: None,
            end: None,
            dropped: 0,
            pause: None,
        }
    }

    /// Talks until the stream is over, or the session is.
    pub(super) async fn run(mut self) {
        let mut turn = 0;
        let failure = loop {
            self.take_messages();
            let now = Instant::now();
            self.tick(now);
            if let Some(failure) = self.end.take() {
                break failure;
            }
            let due = [self.routes.due(), self.posts.due(), self.pause, self.forgotten];
            let due = due.into_iter().flatten().min();
            let reads = self.delivery.is_none() && self.pause.is_none();
            let ready = self.posts.has_room() && self.forgotten.is_none();
            tokio::select! {
                Some(control) = self.control.recv() => self.hear(control),
                Some(letter) = self.letters.recv(), if ready => self.take(letter),
                posted = self.posts.next() => self.posted(posted),
                read = self.stream.read(), if reads => match read {
                    Ok(length) => turn += length,
                    Err(Over) => self.end = Some(Failure::Cut),
                },
                () = room(&self.delivery), if self.delivery.is_some() => {
                    if let Some((to, message)) = self.delivery.take() {
                        to.offer(&message);
                    }
                    self.stream.put_off();
                }
                () = async { sleep_until(due.unwrap_or(now)).await }, if due.is_some() => {}
            }
            if turn >= TURN {
                turn = 0;
                yield_now().await;
            }
        };
        tracing::debug!(reason = %failure, "a session with the server ended");
        self.finish(&failure);
    }

    /// Tells everybody who waits. From here on nobody finds the session.
    fn finish(self, failure: &Failure) {
        let Self { registered, mut letters, mut routes, .. } = self;
        drop(registered);
        letters.close();
        while let Ok(Traced { command, .. }) = letters.try_recv() {
            command.caller.end(Err(Failure::Forgotten));
        }
        // The server has these, or may have them. Somebody would make others once more.
        routes.fail(if matches!(failure, Failure::Forgotten) { &Failure::Cut } else { failure });
    }

    fn tick(&mut self, now: Instant) {
        for number in self.routes.end_cancelled(now) {
            self.posts.over(number, now);
        }
        self.posts.end_late(now);
        if self.forgotten.is_some_and(|until| until <= now || !self.posts.have_calls()) {
            self.end.get_or_insert(Failure::Forgotten);
        }
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if self.dropped >= DROPPED {
            self.dropped = 0;
            self.pause = Some(now + PAUSE);
        }
    }

    /// Takes the messages that have come, until one has to wait.
    fn take_messages(&mut self) {
        while self.delivery.is_none() {
            let Some((message, came)) = self.stream.waiting.pop_front() else { return };
            self.came = came;
            self.incoming(&message);
            self.came = None;
        }
    }

    fn hear(&mut self, control: Control) {
        match control {
            Control::Gone(caller) => {
                if let Some((number, is_told)) = self.routes.gone(caller) {
                    if is_told {
                        self.posts.cancel(number, UNAWAITED);
                    }
                    self.posts.over(number, Instant::now());
                }
                self.listener.take_if(|listener| listener.number == caller);
            }
            Control::Listen(_, caller) => self.listener = Some(caller),
            Control::End(..) | Control::EndAll(_) => self.end = Some(Failure::Ended),
            // There is nothing to share, and nothing of this transport stands alone.
            Control::Join(_) | Control::Enter(..) | Control::GiveWay | Control::Limits(_) => {}
        }
    }

    // === Messages of the client ===

    fn take(&mut self, Traced { command, trace }: Traced) {
        if !command.counts() {
            return;
        }
        let Command { from, kind, body, caller } = command;
        match kind {
            Kind::Request(Asked { about: About::Handshake, .. }) if self.shaken => {
                caller.end(Err(Failure::NotMessage));
            }
            Kind::Request(asked) => {
                self.shaken = true;
                let number = self.next;
                self.next += 1;
                let edit = number.to_string();
                match self.routes.add(number, Call::of(from, asked, body, caller)) {
                    Ok(call) => {
                        let Asked { at, token, .. } = call.asked();
                        let edits = [Some((at, &*edit)), token.as_ref().map(|token| (token, &*edit))];
                        let mut message = bytes::BytesMut::with_capacity(call.body().len() + 32);
                        write(call.body(), edits, &mut message);
                        self.posts.send(From::Call(number), message.freeze(), trace);
                        self.routes.written(number);
                    }
                    Err(call) => call.end(Err(Failure::IdInUse)),
                }
            }
            Kind::Cancelled(Some((id, at))) => match self.routes.cancel(from, &id, Instant::now()) {
                Some(number) => {
                    let message = with(&body, &at, &number.to_string());
                    self.posts.send(From::Caller(caller), message, trace);
                }
                None => caller.end(Ok(None)),
            },
            // Nobody is meant.
            Kind::Cancelled(None) | Kind::Response(None) => caller.end(Ok(None)),
            Kind::Initialized
            | Kind::Progress(_)
            | Kind::RootsChanged
            | Kind::Response(Some(_))
            | Kind::Other => self.posts.send(From::Caller(caller), body, trace),
        }
    }

    /// A message was delivered, or was not.
    fn posted(&mut self, posted: Posted) {
        let Posted { from, outcome } = posted;
        // The server has forgotten the session, though it has not ended the stream.
        let gone = matches!(
            &outcome,
            Err(Failure::Status(status)) if says(&Method::POST, *status) == Says::Forgotten
        );
        match (from, outcome) {
            // The answer comes in the stream.
            (From::Call(_), Ok(())) | (From::Own | From::TakenBack, _) => {}
            (From::Call(number), Err(failure)) => {
                if let Some(call) = self.routes.answered(number) {
                    call.end(Err(failure));
                }
            }
            (From::Caller(caller), outcome) => caller.end(outcome.map(|()| None)),
        }
        if gone {
            self.forgotten.get_or_insert_with(|| Instant::now() + OUTCOMES);
        }
    }
}

async fn room(delivery: &Option<(Reader, bytes::Bytes)>) {
    match delivery {
        Some((to, _)) => to.room().await,
        None => std::future::pending().await,
    }
}
