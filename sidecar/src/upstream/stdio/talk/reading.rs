//! Takes a process's lines, and what of them is no message.

use std::io;

use futures::FutureExt;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use super::Talk;
use super::unwanted::PAUSE;
use crate::metrics::Dropped;
use crate::upstream::stdio::Why;
use crate::upstream::stdio::lines::{MAX_NOISE, excerpt};

impl Talk<'_> {
    pub(super) fn read(&mut self) {
        // Nothing is awaited. But where less comes than there is room for, this notes that nothing is left, and `try_read`
        // does not: it would be tried once more. Without a budget, since where that is used up this would say that there is
        // nothing, and whoever waits for something to read that there is: for ever, in one turn.
        match unconstrained(self.process.stdout.read_buf(self.lines.space())).now_or_never() {
            Some(Ok(length @ 1..)) => {
                self.turn += length;
                self.note_heard();
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Some(Ok(0) | Err(_)) => self.output_ended(),
            None => {}
        }
    }

    pub(super) fn output_ended(&mut self) {
        self.end_of_output = true;
        self.closed.get_or_insert_with(Instant::now);
    }

    /// Takes the lines that are complete, until one has to wait.
    pub(super) fn read_lines(&mut self) {
        while self.delivery.is_none() && self.end.is_none() {
            if let Some(message) = self.batch.pop_front() {
                self.came = if self.batch.is_empty() {
                    self.batch_came.take()
                } else {
                    self.batch_came.as_mut().map(|came| came.split(message.len()))
                };
                self.line(message);
                self.came = None;
                continue;
            }
            let next = self.lines.next();
            self.restrain();
            if let Ok(Some(line)) = &next {
                self.came = self.coming.hand_on(line.len());
            }
            self.coming.came(self.lines.pending());
            match next {
                Ok(Some(line)) => {
                    self.line(line);
                    self.came = None;
                }
                Ok(None) if self.end_of_output => {
                    let last = self.lines.last();
                    if last.is_empty() {
                        return;
                    }
                    // A process that dies in the middle of a message prints nothing that it should not.
                    self.half |= is_half(&last);
                    self.line(last);
                }
                Ok(None) => return,
                Err(_) => self.doom(Why::LineTooLong),
            }
        }
    }

    /// Sees to it that what is for nobody does not go on without end.
    fn restrain(&mut self) {
        let blank = self.lines.take_blank();
        self.noise += blank;
        self.unwanted.add(blank);
        if self.noise > MAX_NOISE {
            self.doom(Why::Noise);
        }
        let several = self.conversation.is_shared() || self.conversation.stands_alone();
        if self.unwanted.is_enough(several && self.routes.count() > 1) {
            self.pause = Some(Instant::now() + PAUSE);
        }
    }

    pub(super) fn not_message(&mut self, line: &[u8]) {
        if line.is_empty() {
            return;
        }
        let stdio = self.conversation.stdio();
        stdio.metrics.dropped(Dropped::Noise);
        if self.first_noise.is_none() {
            // What a client's process prints may be of that client, and the status is for everybody.
            let shown = if self.conversation.is_nobodys() {
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
}

/// Whether this is the beginning of a message, or of several, and not all of it. What a server says of why it ends may be
/// JSON too, or in brackets.
fn is_half(line: &[u8]) -> bool {
    let begins = matches!(line.first(), Some(b'{' | b'['));
    begins && serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_message_is_told_from_what_is_none() {
        for message in [r#"{"a": "\u00e9é", "b": [1, true, null]}"#, r#"[{"a": {}}, {"b": []}]"#] {
            let bytes = message.as_bytes();
            for length in 1..bytes.len() {
                assert!(is_half(&bytes[..length]), "{length} of {message}");
            }
            assert!(!is_half(bytes), "{message}");
        }
        for line in
            ["", "no key", "[ERROR] no key", "{no key", "{'error': 'no key'", r#"{"error": "no key"}"#]
        {
            assert!(!is_half(line.as_bytes()), "{line}");
        }
    }
}
