//! Messages on their way to a client, in order: what answers one `POST`, what a session hears of its own accord, or
//! all that goes to stdout.
//!
//! Whoever sends never waits. What has been read stays for a client that broke off and asks for the rest.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The most messages that are held. A client that does not read loses the oldest: nobody else waits for it.
const MAX_HELD: usize = 4096;

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its number in the stream, from 1.
    pub(crate) number: u64,
    /// The message, as JSON.
    pub(crate) message: String,
    /// Whether it answers a request, and if so with which error code.
    pub(crate) answer: Option<Answer>,
}

/// What kind of answer a message is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// A result.
    Result,
    /// An error with this HTTP status, if nothing has been sent before it.
    Error(u16),
}

/// What a reader finds next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A message.
    Entry(Entry),
    /// The server hangs up here; the rest comes to whoever asks for it.
    Broken,
    /// There will be nothing more for this reader.
    End,
}

/// The messages.
#[derive(Debug)]
pub(crate) struct Stream {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Entry>,
    last: u64,
    /// How many answers are still to come. A stream that answers nothing has none and stays until it is closed.
    expected: Option<usize>,
    /// Whether the client is to see that a stream has begun, before there is anything in it.
    open: bool,
    break_after: Option<u64>,
    closed: bool,
    /// Which of its readers is the current one: a later one ends the earlier.
    reader: u64,
    /// The last that any reader has got.
    read: u64,
}

/// Somebody who reads a stream.
#[derive(Debug)]
pub(crate) struct Reader {
    number: u64,
    after: u64,
    changed: watch::Receiver<()>,
}

// === impl Stream ===

impl Stream {
    /// A stream that ends with so many answers.
    pub(crate) fn answering(expected: usize) -> Self {
        Self::new(Some(expected))
    }

    /// A stream that ends when it is closed.
    pub(crate) fn endless() -> Self {
        Self::new(None)
    }

    fn new(expected: Option<usize>) -> Self {
        let state = State {
            entries: VecDeque::new(),
            last: 0,
            expected,
            open: false,
            break_after: None,
            closed: false,
            reader: 0,
            read: 0,
        };
        Self { state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Sends a notification or a request.
    pub(crate) fn send(&self, message: String) {
        self.push(message, None);
    }

    /// Sends an answer.
    pub(crate) fn answer(&self, message: String, answer: Answer) {
        self.push(message, Some(answer));
        self.finish_one();
    }

    /// One of the answers will not come: its request was cancelled.
    pub(crate) fn finish_one(&self) {
        let mut state = self.state.lock();
        if let Some(expected) = &mut state.expected {
            *expected = expected.saturating_sub(1);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Has a stream begin now, even if there is nothing to say yet.
    pub(crate) fn open(&self) {
        self.state.lock().open = true;
        self.changed.send_replace(());
    }

    /// Hangs up on the reader after what has been sent so far.
    pub(crate) fn hang_up(&self) {
        let mut state = self.state.lock();
        state.open = true;
        state.break_after = Some(state.last);
        drop(state);
        self.changed.send_replace(());
    }

    /// Ends the stream.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.send_replace(());
    }

    fn push(&self, message: String, answer: Option<Answer>) {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.entries.push_back(Entry { number, message, answer });
        if state.entries.len() > MAX_HELD {
            state.entries.pop_front();
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Begins to read after a message, or with what nobody has read yet. `None` if it is not known any more.
    pub(crate) fn read(&self, after: Option<u64>) -> Option<Reader> {
        let mut state = self.state.lock();
        let after = after.unwrap_or(state.read);
        let oldest = state.entries.front().map_or(state.last + 1, |entry| entry.number);
        if after > state.last || after + 1 < oldest {
            return None;
        }
        state.reader += 1;
        let reader = Reader { number: state.reader, after, changed: self.changed.subscribe() };
        drop(state);
        // The reader before this one is to notice.
        self.changed.send_replace(());
        Some(reader)
    }

    /// Whether somebody is reading it.
    pub(crate) fn is_read(&self) -> bool {
        self.changed.receiver_count() > 0
    }

    /// Waits until it is known how the stream begins, and says whether all that it holds is answers.
    pub(crate) async fn begins(&self) -> Option<Vec<Entry>> {
        let mut changed = self.changed.subscribe();
        loop {
            {
                let state = self.state.lock();
                if state.open || state.entries.iter().any(|entry| entry.answer.is_none()) {
                    return None;
                }
                if state.closed || state.expected == Some(0) {
                    return Some(state.entries.iter().cloned().collect());
                }
            }
            if changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// What comes next for a reader.
    pub(crate) async fn next(&self, reader: &mut Reader) -> Next {
        loop {
            reader.changed.mark_unchanged();
            if let Some(next) = self.now(reader) {
                return next;
            }
            if reader.changed.changed().await.is_err() {
                return Next::End;
            }
        }
    }

    fn now(&self, reader: &mut Reader) -> Option<Next> {
        let mut state = self.state.lock();
        if state.reader != reader.number {
            return Some(Next::End);
        }
        if state.break_after.take_if(|at| *at <= reader.after).is_some() {
            return Some(Next::Broken);
        }
        let entry = state.entries.iter().find(|entry| entry.number > reader.after).cloned();
        if let Some(entry) = entry {
            reader.after = entry.number;
            state.read = state.read.max(entry.number);
            return Some(Next::Entry(entry));
        }
        (state.closed || state.expected == Some(0)).then_some(Next::End)
    }

    /// Drops what has been read: for readers that never come back.
    pub(crate) fn forget_read(&self) {
        let mut state = self.state.lock();
        let read = state.read;
        state.entries.retain(|entry| entry.number > read);
    }
}

// === impl Reader ===

impl Reader {
    /// The last message that it has got.
    pub(crate) fn position(&self) -> u64 {
        self.after
    }
}
