//! What becomes of what a process writes to stderr: lines of the container's log, the end of it for the report, and a
//! bound on both.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::{Duration, Instant};

use crate::protocol::MAX_STDERR;

/// Longer lines are split. With its number a line is then one write that a pipe takes whole.
const MAX_LINE: usize = 2048;

/// A process may write this much to the log at once, and this much a second after that; the rest is counted.
const LOGGED: Rate = Rate { burst: 1 << 20, second: 64 << 10 };
/// A process that writes more than this has lost its way, and costs others their share of the processor.
const TOLERATED: Rate = Rate { burst: 32 << 20, second: 1 << 20 };

/// The stderr of one process.
pub(crate) struct Stderr {
    number: u32,
    line: Vec<u8>,
    end: VecDeque<u8>,
    logged: Bucket,
    tolerated: Bucket,
    left_out: u64,
    /// When that was last said.
    confessed: Instant,
}

/// What a process's stderr has come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    Bearable,
    Flood,
}

impl Stderr {
    pub(crate) fn new(number: u32, now: Instant) -> Self {
        Self {
            number,
            line: Vec::new(),
            end: VecDeque::with_capacity(MAX_STDERR),
            logged: Bucket::new(LOGGED, now),
            tolerated: Bucket::new(TOLERATED, now),
            left_out: 0,
            confessed: now,
        }
    }

    /// Takes what the process wrote, and appends the lines that are complete to `log`.
    pub(crate) fn take(&mut self, mut bytes: &[u8], now: Instant, log: &mut Vec<u8>) -> Measure {
        let kept = &bytes[bytes.len().saturating_sub(MAX_STDERR)..];
        let excess = (self.end.len() + kept.len()).saturating_sub(MAX_STDERR);
        self.end.drain(..excess);
        self.end.extend(kept);

        let measure = if self.tolerated.take(bytes.len(), now) { Measure::Bearable } else { Measure::Flood };
        while let Some(feed) = bytes.iter().position(|byte| *byte == b'\n') {
            self.extend(&bytes[..feed], now, log);
            self.finish(now, log);
            bytes = &bytes[feed + 1..];
        }
        self.extend(bytes, now, log);
        measure
    }

    /// Appends a last line that has no line feed, and says what was left out.
    pub(crate) fn close(&mut self, now: Instant, log: &mut Vec<u8>) {
        if !self.line.is_empty() {
            self.finish(now, log);
        }
        self.confess(log);
    }

    /// The end of all that was written.
    pub(crate) fn end(&self) -> Vec<u8> {
        self.end.iter().copied().collect()
    }

    fn extend(&mut self, mut bytes: &[u8], now: Instant, log: &mut Vec<u8>) {
        while self.line.len() + bytes.len() > MAX_LINE {
            let (fits, rest) = bytes.split_at(MAX_LINE - self.line.len());
            self.line.extend_from_slice(fits);
            self.finish(now, log);
            bytes = rest;
        }
        self.line.extend_from_slice(bytes);
    }

    fn finish(&mut self, now: Instant, log: &mut Vec<u8>) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if self.logged.take(line.len() + 1, now) {
            // Lines come and go by the millisecond then; once a second is enough to know it.
            if now.saturating_duration_since(self.confessed) >= Duration::from_secs(1) {
                self.confess(log);
                self.confessed = now;
            }
            let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
            write_line(self.number, line, log);
        } else {
            self.left_out += line.len() as u64 + 1;
        }
        self.line.clear();
    }

    fn confess(&mut self, log: &mut Vec<u8>) {
        if self.left_out > 0 {
            let words = format!("longshore: {} bytes of stderr left out, it writes too much", self.left_out);
            write_line(self.number, words.as_bytes(), log);
            self.left_out = 0;
        }
    }
}

/// Appends a line about, or of, the process of this number.
pub(crate) fn write_line(number: u32, line: &[u8], log: &mut Vec<u8>) {
    // Writing to memory does not fail.
    _ = write!(log, "[{number}] ");
    log.extend_from_slice(line);
    log.push(b'\n');
}

#[derive(Clone, Copy)]
struct Rate {
    burst: u64,
    second: u64,
}

/// A token bucket.
struct Bucket {
    rate: Rate,
    left: u64,
    since: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst, since: now }
    }

    fn take(&mut self, amount: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since);
        // Below a millisecond nothing is added, and the time is not forgotten either.
        if passed >= Duration::from_millis(1) {
            let milliseconds = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
            let added = self.rate.second.saturating_mul(milliseconds) / 1000;
            self.left = self.left.saturating_add(added).min(self.rate.burst);
            self.since = now;
        }
        let amount = amount as u64;
        let enough = amount <= self.left;
        if enough {
            self.left -= amount;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_wherever_the_reads_fall() {
        let text = b"one\r\n\ntwo \xff\nhalf";
        let expected = b"[3] one\n[3] \n[3] two \xff\n[3] half\n";
        for size in 1..=text.len() {
            let now = Instant::now();
            let mut stderr = Stderr::new(3, now);
            let mut log = Vec::new();
            for part in text.chunks(size) {
                assert_eq!(stderr.take(part, now, &mut log), Measure::Bearable);
            }
            stderr.close(now, &mut log);
            assert_eq!(log, expected, "in parts of {size}");
            assert_eq!(stderr.end(), text);
        }
    }

    #[test]
    fn a_line_without_end_is_split_and_the_end_is_kept() {
        let now = Instant::now();
        let mut stderr = Stderr::new(1, now);
        let mut log = Vec::new();
        stderr.take(&vec![b'x'; 2 * MAX_LINE + 1], now, &mut log);
        assert_eq!(log.len(), 2 * (MAX_LINE + "[1] \n".len()));
        assert_eq!(stderr.end().len(), MAX_STDERR);
    }

    #[test]
    fn too_much_is_left_out_and_said_then_called_a_flood() {
        let start = Instant::now();
        let mut stderr = Stderr::new(1, start);
        let mut log = Vec::new();
        let megabyte = b"0123456789abcde\n".repeat(65536);
        assert_eq!(stderr.take(&megabyte, start, &mut log), Measure::Bearable);
        let first = log.len();
        assert_eq!(stderr.take(&megabyte, start, &mut log), Measure::Bearable);
        assert_eq!(log.len(), first, "past the burst nothing is logged");

        let later = start + Duration::from_secs(1);
        log.clear();
        stderr.take(b"again\n", later, &mut log);
        let said = String::from_utf8(log.clone()).unwrap();
        assert_eq!(said, "[1] longshore: 1048576 bytes of stderr left out, it writes too much\n[1] again\n");

        let floods = (0..40).filter(|_| stderr.take(&megabyte, later, &mut log) == Measure::Flood).count();
        assert_eq!(
            floods, 10,
            "of 32 MiB two were used, one second gave one back, and the word took a little of it"
        );
    }
}
