//! What a process says of itself, on its way out. Nobody has to read it.
//!
//! Whoever writes to a pipe that is full, or to a terminal that is held, waits for as long as that is so, and meanwhile
//! nothing would be heard: no request, no signal, no server that ended. So all of it is written by threads that do nothing
//! else. If they cannot keep up, lines are lost, counted, and the count is written as soon as anything can be written again.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Standard output, or standard error.
pub struct Output {
    name: &'static str,
    /// While so many bytes wait, more is lost.
    room: usize,
    open: fn() -> Box<dyn Write>,
    /// The line that says how many are lost.
    lost: fn(u64) -> String,
    state: Mutex<State>,
    /// There is something to write.
    some: Condvar,
    /// There is nothing to write, and all of it has been.
    none: Condvar,
}

struct State {
    waiting: Vec<u8>,
    lost: u64,
    /// Whether there is a thread that writes, and whether it does.
    started: bool,
    writing: bool,
}

/// Writes what is written to it in one piece as lines.
pub struct Lines(&'static Output);

// === impl Output ===

impl Output {
    /// One that is opened when something is written, by a thread of this name. While `room` bytes wait, lines are lost, and
    /// told of by the line that `lost` makes.
    pub const fn new(
        name: &'static str,
        room: usize,
        open: fn() -> Box<dyn Write>,
        lost: fn(u64) -> String,
    ) -> Self {
        let state = State { waiting: Vec::new(), lost: 0, started: false, writing: false };
        Self { name, room, open, lost, state: Mutex::new(state), some: Condvar::new(), none: Condvar::new() }
    }

    /// A line, or several.
    pub fn line(&'static self, text: impl Display) {
        self.push(format!("{text}\n").as_bytes());
    }

    /// For what writes by itself.
    pub fn lines(&'static self) -> Lines {
        Lines(self)
    }

    fn push(&'static self, lines: &[u8]) {
        let mut state = self.state.lock();
        if !state.started {
            let thread = std::thread::Builder::new().name(self.name.to_owned()).stack_size(128 * 1024);
            // Without one it is tried again with the next line.
            state.started = thread.spawn(|| self.write()).is_ok();
        }
        if state.waiting.len() >= self.room {
            state.lost += 1;
            return;
        }
        state.waiting.extend_from_slice(lines);
        self.some.notify_one();
    }

    fn write(&self) {
        let mut out = (self.open)();
        loop {
            let mut state = self.state.lock();
            state.writing = false;
            while state.waiting.is_empty() {
                self.none.notify_all();
                self.some.wait(&mut state);
            }
            state.writing = true;
            let mut lines = std::mem::take(&mut state.waiting);
            let lost = std::mem::take(&mut state.lost);
            drop(state);
            if lost > 0 {
                let words = (self.lost)(lost);
                lines.extend_from_slice(words.as_bytes());
                lines.push(b'\n');
            }
            // Whoever read it may have gone; everything else goes on.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
        }
    }

    /// Waits until all is written, but no longer.
    pub fn flush(&self, until: Instant) {
        let mut state = self.state.lock();
        while state.started && (state.writing || !state.waiting.is_empty()) {
            if self.none.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

impl Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.0.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
