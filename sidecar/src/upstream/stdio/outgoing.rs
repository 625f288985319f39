//! What is written to a process: lines one behind the other, so that many of them are one write.

use std::collections::VecDeque;
use std::io;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use super::Failure;
use super::call::Caller;
use super::message::{Span, cancelled, write_line};
use super::routes::FEW;

/// How many of the sidecar's own messages wait: a process that asks and never reads is not answered for ever.
const MAX_OWN: usize = 64;
/// With so many lines, or so many bytes, no more messages of clients are taken: those behind them know how long they
/// have waited.
const MAX_LINES: usize = 16;
const MAX_BYTES: usize = 256 * 1024;
/// How much room is kept for the next lines: a session that is silent costs no more, however much it has said.
const MAX_KEPT: usize = 2048;

/// Lines on their way.
#[derive(Default)]
pub(super) struct Outgoing {
    buffer: BytesMut,
    lines: VecDeque<Line>,
    own: usize,
    /// Large calls that were written since somebody asked.
    large: Vec<u64>,
    /// How much there ever was, and how much of it is written.
    pushed: u64,
    written: u64,
}

struct Line {
    /// Where it begins and ends.
    begin: u64,
    end: u64,
    from: From,
}

/// Where a line comes from.
enum From {
    /// A call, known by its number.
    Call(u64),
    /// Somebody who waits until it is written.
    Caller(Caller),
    /// The sidecar itself.
    Own,
    /// The sidecar, which takes back a call. There are no more of these than there were calls.
    TakenBack,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.lines.len() < MAX_LINES && self.buffer.len() < MAX_BYTES
    }

    /// A call, with other parts in it.
    pub(super) fn call(&mut self, message: &[u8], edits: [Option<(&Span, &str)>; 2], number: u64) {
        self.push(message, edits, From::Call(number));
    }

    /// A message that has no answer.
    pub(super) fn told(&mut self, message: &[u8], edit: Option<(&Span, &str)>, caller: Caller) {
        self.push(message, [edit, None], From::Caller(caller));
    }

    /// A message of the sidecar's own. Says whether there was room for it.
    pub(super) fn own(&mut self, message: &[u8]) -> bool {
        let room = self.own < MAX_OWN;
        if room {
            self.own += 1;
            self.push(message, [None, None], From::Own);
        }
        room
    }

    /// Says that nobody wants the answer to a call.
    pub(super) fn cancel(&mut self, number: u64, reason: &'static str) {
        self.push(cancelled(number, reason).as_bytes(), [None, None], From::TakenBack);
    }

    fn push(&mut self, message: &[u8], edits: [Option<(&Span, &str)>; 2], from: From) {
        let before = self.buffer.len();
        write_line(message, edits, &mut self.buffer);
        let begin = self.pushed;
        self.pushed += (self.buffer.len() - before) as u64;
        self.lines.push_back(Line { begin, end: self.pushed, from });
    }

    /// Writes some of it, and tells those who waited. Nothing is lost when this is not awaited to its end.
    pub(super) async fn write(&mut self, stdin: &mut pipe::Sender) -> io::Result<()> {
        self.written += stdin.write_buf(&mut self.buffer).await? as u64;
        while let Some(line) = self.lines.pop_front_if(|line| line.end <= self.written) {
            match line.from {
                From::Caller(caller) => caller.end(Ok(None)),
                From::Own => self.own -= 1,
                From::Call(number) if line.end - line.begin > FEW as u64 => self.large.push(number),
                From::Call(_) | From::TakenBack => {}
            }
        }
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_KEPT {
            self.buffer = BytesMut::new();
        }
        Ok(())
    }

    /// The large calls that were written since this was asked.
    pub(super) fn written(&mut self) -> impl Iterator<Item = u64> {
        self.large.drain(..)
    }

    /// Gives all of it up. Calls of which nothing was written are given back: they can go to another process.
    pub(super) fn give_up(&mut self, failure: &Failure) -> Vec<u64> {
        let mut unwritten = Vec::new();
        for line in self.lines.drain(..) {
            match line.from {
                From::Call(number) if line.begin >= self.written => unwritten.push(number),
                From::Caller(caller) => caller.end(Err(failure.clone())),
                From::Call(_) | From::Own | From::TakenBack => {}
            }
        }
        self.buffer = BytesMut::new();
        unwritten
    }
}
