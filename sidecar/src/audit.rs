//! The audit log: one JSON line on standard output for each request at the MCP port, whatever became of it. (What has a head
//! that is too large or no HTTP is none yet, and the debug log's.)
//!
//! ```json
//! {"time":"2026-11-20T09:30:00.123Z","audit":1,"server":"tools/github","principal":"team-a","method":"tools/call",
//!  "target":"get_issue","decision":"permit","rule":"readers","reason":null,"status":200,"code":null,"duration":0.0123}
//! ```
//!
//! `audit` is the version of the line. `rule` is given with a permit that a rule made, `reason` with a denial and with
//! a failure. `again` is true, and else left out, where a client of 2026-07-28 sends a call once more with what the server
//! asked for: it is decided on like any other, and is the same call. Where only the server can tell whether that is so, it
//! is `claims_again` that is true. `status` is HTTP's, null if the client had gone; `code` is that of a JSON-RPC error.
//! `duration` is in seconds. Never in it: arguments, results, keys, session ids.
//!
//! Lines are written by a thread of their own, in batches. If it cannot keep up (nobody reads the log), lines are
//! lost, counted, and the count is written as soon as anything can be written again: `{"audit":1,"lost":N}`. So are those that
//! cannot be written, as to a file on a disk that is full. Those of whom
//! nothing is known have half of the room at the most, so that they take it from nobody who is.

mod line;

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crate::metrics::{Metrics, Verdict};
use crate::options::AuditLog;
pub(crate) use line::{Again, bounded};
use line::{Line, Text, both_ends};
use parking_lot::{Condvar, Mutex};

/// How many lines wait at most. A thousand requests a second for eight seconds.
const QUEUE: usize = 8192;
/// How many wait at most when one comes that has no principal. Whoever reaches the port makes as many of them as
/// they like, and the lines that matter are those of who was let in.
const STRANGERS: usize = QUEUE / 2;
/// For how many lines there is always room.
const ROOM: usize = 512;
/// How long a batch is gathered.
const BATCH: Duration = Duration::from_millis(5);
/// How long the end of the process waits for its last lines to be written. They are a few megabytes at the most, which
/// whoever reads the log takes in a fraction of that; and of a pod's grace period little more is left for what comes last.
const LAST_LINES: Duration = Duration::from_secs(1);
/// The most of a name or URI that a line holds.
const MAX_TARGET: usize = 256;

/// Hands lines to the writer.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    lost: u64,
    closed: bool,
}

/// A line that is being filled in while its request goes on. It is written when it is dropped, so a request that is
/// given up is in the log too.
pub(crate) struct Entry {
    line: Option<Line>,
    began: Instant,
    audit: Audit,
}

/// The writer: waited for at the end, so that the last lines are written.
pub(crate) struct Writer {
    audit: Audit,
    thread: JoinHandle<()>,
    /// Closed when the thread has written all that it will.
    written: Receiver<()>,
}

// === impl Audit ===

impl Audit {
    /// Starts the writer.
    pub(crate) fn start(to: AuditLog, metrics: Arc<Metrics>) -> std::io::Result<(Self, Writer)> {
        let audit = Self(Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), metrics }));
        let queue = audit.0.clone();
        let (writes, written) = channel();
        let thread =
            std::thread::Builder::new().name("audit".to_owned()).stack_size(128 * 1024).spawn(move || {
                let _writes = writes;
                match to {
                    AuditLog::Stdout => queue.write(std::io::stdout()),
                    AuditLog::Stderr => queue.write(std::io::stderr()),
                    AuditLog::Off => queue.write(std::io::sink()),
                }
            })?;
        Ok((audit.clone(), Writer { audit, thread, written }))
    }

    /// Begins a line.
    pub(crate) fn begin(&self) -> Entry {
        let line = Line {
            time: SystemTime::now(),
            server: None,
            principal: None,
            method: None,
            target: None,
            decision: Verdict::Deny,
            rule: None,
            reason: None,
            again: None,
            status: None,
            code: None,
            duration: 0.0,
        };
        Entry { line: Some(line), began: Instant::now(), audit: self.clone() }
    }

    fn push(&self, line: Line) {
        let most = if line.principal.is_some() { QUEUE } else { STRANGERS };
        let mut state = self.0.state.lock();
        if state.lines.len() >= most {
            state.lost += 1;
            self.0.metrics.audit_lost(1);
            return;
        }
        state.lines.push(line);
        // The writer sleeps only while there is nothing: one wake-up for a batch.
        if state.lines.len() == 1 {
            drop(state);
            self.0.wake.notify_one();
        }
    }
}

impl Queue {
    fn write(&self, mut out: impl Write) {
        let mut text = Text::default();
        // The two take turns, so that neither grows anew for each batch.
        let mut lines = Vec::new();
        let (mut closed, mut fails) = (false, false);
        while !closed {
            let mut state = self.state.lock();
            while state.lines.is_empty() && !state.closed {
                self.wake.wait(&mut state);
            }
            if !state.closed {
                drop(state);
                std::thread::sleep(BATCH);
                state = self.state.lock();
            }
            closed = state.closed;
            std::mem::swap(&mut state.lines, &mut lines);
            let lost = std::mem::take(&mut state.lost);
            drop(state);
            text.bytes.clear();
            // Half a line may have been written, and is to be no part of another.
            if fails {
                text.bytes.push(b'\n');
            }
            let count = lines.len() as u64;
            for line in lines.drain(..) {
                text.line(&line);
            }
            // A batch that was large is seldom followed by another.
            lines.shrink_to(ROOM);
            if lost > 0 {
                let _ = writeln!(text.bytes, "{{\"audit\":1,\"lost\":{lost}}}");
            }
            let written = out.write_all(&text.bytes).and_then(|()| out.flush());
            let failed_before = std::mem::replace(&mut fails, written.is_err());
            if let Err(error) = written {
                // All of them, though some may have been written.
                self.state.lock().lost += lost + count;
                self.metrics.audit_lost(count);
                // Once, however often it is tried.
                if !failed_before {
                    tracing::error!(%error, "cannot write the audit log");
                }
            }
        }
    }
}

impl Writer {
    /// Whether the writer has ended, which it must not do by itself.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Writes what is left and ends the writer. One that hangs, since nobody reads what it writes, is left to the end of the
    /// process.
    pub(crate) fn close(self) {
        self.audit.0.state.lock().closed = true;
        self.audit.0.wake.notify_one();
        // Nothing is said of it: who does not read this is not likely to read that.
        let hangs = self.written.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout);
        if !hangs && self.thread.join().is_err() {
            tracing::error!("the audit log's thread panicked");
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Gives the line to somebody who will finish it; nothing is left here.
    pub(crate) fn hand_over(&mut self) -> Self {
        Self { line: self.line.take(), began: self.began, audit: self.audit.clone() }
    }

    /// Writes nothing: another replica writes the line of this request.
    pub(crate) fn leave(mut self) {
        self.line = None;
    }

    /// Whose server it is.
    pub(crate) fn server(&mut self, server: &Arc<str>) {
        self.set(|line| line.server = Some(server.clone()));
    }

    /// Who called.
    pub(crate) fn principal(&mut self, principal: &Arc<str>) {
        self.set(|line| line.principal = Some(principal.clone()));
    }

    /// What was asked for.
    pub(crate) fn method(&mut self, method: &str) {
        self.set(|line| line.method = Some(bounded(method, MAX_TARGET).into_owned()));
    }

    /// The tool, prompt or resource.
    pub(crate) fn target(&mut self, target: &str) {
        self.set(|line| line.target = Some(both_ends(target, MAX_TARGET).into_owned()));
    }

    /// It goes through; a rule says so where there is a target.
    pub(crate) fn permit(&mut self, rule: Option<Arc<str>>) {
        self.set(|line| {
            line.decision = Verdict::Permit;
            line.rule = rule;
        });
    }

    /// It does not go through.
    pub(crate) fn deny(&mut self, reason: &'static str) {
        self.set(|line| {
            line.decision = Verdict::Deny;
            line.rule = None;
            line.reason = Some(reason);
        });
    }

    /// It goes on with a call that has its line.
    pub(crate) fn again(&mut self, again: Again) {
        self.set(|line| line.again = Some(again));
    }

    /// It went through, and failed.
    pub(crate) fn reason(&mut self, reason: &'static str) {
        self.set(|line| line.reason = Some(reason));
    }

    /// What the client got.
    pub(crate) fn answered(&mut self, status: u16, code: Option<i64>) {
        self.set(|line| {
            line.status = Some(status);
            line.code = code;
        });
    }

    fn set(&mut self, edit: impl FnOnce(&mut Line)) {
        if let Some(line) = &mut self.line {
            edit(line);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(mut line) = self.line.take() {
            line.duration = (self.began.elapsed().as_secs_f64() * 1e6).round() / 1e6;
            self.audit.0.metrics.request(
                line.method.as_deref(),
                line.decision,
                line.status.is_none_or(|status| status >= 400)
                    || line.code.is_some()
                    || line.reason.is_some(),
                line.duration,
            );
            self.audit.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes of the first batch, as a disk does that is nearly full, and then all.
    struct NearlyFull<'a>(Option<usize>, &'a mut Vec<u8>);

    impl Write for NearlyFull<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let most = match self.0.take() {
                None => bytes.len(),
                Some(0) => return Err(std::io::ErrorKind::StorageFull.into()),
                Some(most) => {
                    self.0 = Some(0);
                    most
                }
            };
            self.1.extend_from_slice(&bytes[..most]);
            Ok(most)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_counted() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let queue =
            Arc::new(Queue { state: Mutex::default(), wake: Condvar::new(), metrics: metrics.clone() });
        let audit = Audit(queue.clone());
        // All of them are one batch.
        (0..3).for_each(|_| drop(audit.begin()));
        let (mut written, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        std::thread::scope(|scope| {
            scope.spawn(|| queue.write(NearlyFull(Some(9), &mut written)));
            let is_counted = || metrics.text().unwrap().contains("longshore_audit_lines_lost_total 3");
            while !is_counted() && Instant::now() < until {
                std::thread::yield_now();
            }
            drop(audit.begin());
            queue.state.lock().closed = true;
            queue.wake.notify_one();
        });
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[2]),
            (3, r#"{"time":""#, r#"{"audit":1,"lost":3}"#),
            "{text}"
        );
        assert!(lines[1].ends_with('}') && lines[1].starts_with('{'), "{text}");
    }
}
