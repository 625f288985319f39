//! The container's log: the shim's own stderr.
//!
//! Nobody promises that it is read. A write that blocked would stop the shim, and a non-blocking mode would be one of
//! everybody's who has this descriptor; so the shim writes only when poll says that there is room, and no more at a
//! time than a pipe takes whole then.

use std::os::fd::{AsFd as _, BorrowedFd};

use crate::stderr::write_line;

/// What a pipe that has any room takes (`PIPE_BUF`).
const WRITE: usize = 4096;
/// While so much waits, no process's stderr is read: it waits too.
const ROOM: usize = 64 << 10;
/// Past this, lines are lost. Only the last words of processes that end can come here.
const MOST: usize = 256 << 10;

pub(crate) struct Log {
    stderr: std::io::Stderr,
    waiting: Vec<u8>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { stderr: std::io::stderr(), waiting: Vec::new() }
    }

    /// Where lines are appended.
    pub(crate) fn lines(&mut self) -> &mut Vec<u8> {
        if self.waiting.len() > MOST {
            self.waiting.truncate(MOST);
        }
        &mut self.waiting
    }

    /// A line about the process of this number.
    pub(crate) fn about(&mut self, number: u32, words: &str) {
        write_line(number, format!("longshore: {words}").as_bytes(), self.lines());
    }

    /// A line about the shim itself.
    pub(crate) fn say(&mut self, words: &str) {
        let lines = self.lines();
        lines.extend_from_slice(b"longshore: ");
        lines.extend_from_slice(words.as_bytes());
        lines.push(b'\n');
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < ROOM
    }

    /// The descriptor that has to be writable before [`Self::write`], if anything waits.
    pub(crate) fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        (!self.waiting.is_empty()).then(|| self.stderr.as_fd())
    }

    pub(crate) fn write(&mut self) {
        let part = &self.waiting[..self.waiting.len().min(WRITE)];
        match rustix::io::write(&self.stderr, part) {
            Ok(written) => {
                self.waiting.drain(..written);
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // There is no log: nobody can be told.
            Err(_) => self.waiting.clear(),
        }
    }
}
