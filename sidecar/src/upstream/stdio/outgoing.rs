//! What is written to a process.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use super::Failure;
use super::call::Caller;

/// How many of the sidecar's own messages wait: a process that asks and never reads is not answered for ever.
const MAX_OWN: usize = 64;

/// Lines on their way.
#[derive(Default)]
pub(super) struct Outgoing(VecDeque<Line>);

struct Line {
    /// What is left of it.
    rest: Bytes,
    /// Nothing of it has been written.
    whole: bool,
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
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn call(&mut self, line: Bytes, number: u64) {
        self.push(line, From::Call(number));
    }

    pub(super) fn told(&mut self, line: Bytes, caller: Caller) {
        self.push(line, From::Caller(caller));
    }

    /// A message of the sidecar's own. Says whether there was room for it.
    pub(super) fn own(&mut self, line: Bytes) -> bool {
        let room = self.0.len() < MAX_OWN;
        if room {
            self.push(line, From::Own);
        }
        room
    }

    fn push(&mut self, rest: Bytes, from: From) {
        self.0.push_back(Line { rest, whole: true, from });
    }

    /// Writes some of it, and tells those who waited. Nothing is lost when this is not awaited to its end.
    pub(super) async fn write(&mut self, stdin: &mut pipe::Sender) -> io::Result<()> {
        let Some(line) = self.0.front_mut() else { return Ok(()) };
        if stdin.write_buf(&mut line.rest).await? > 0 {
            line.whole = false;
        }
        if line.rest.is_empty()
            && let Some(Line { from: From::Caller(caller), .. }) = self.0.pop_front()
        {
            caller.end(Ok(None));
        }
        Ok(())
    }

    /// Gives all of it up. A call of which nothing was written is given back: it can go to another process.
    pub(super) fn give_up(&mut self, failure: &Failure) -> Option<(u64, Bytes)> {
        let mut unwritten = None;
        for line in self.0.drain(..) {
            match line.from {
                From::Call(number) if line.whole => unwritten = Some((number, line.rest)),
                From::Caller(caller) => caller.end(Err(failure.clone())),
                From::Call(_) | From::Own => {}
            }
        }
        unwritten
    }
}
