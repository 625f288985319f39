//! One line, and how it is written.

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::metrics::Verdict;

/// Whether a request goes on with a call that has its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// It does: it brings what its client was given here for that.
    Known,
    /// Its client says so. What a server of 2026-07-28 gives for that only the server can read.
    Claimed,
}

/// One line.
pub(super) struct Line {
    pub(super) time: SystemTime,
    pub(super) server: Option<Arc<str>>,
    pub(super) principal: Option<Arc<str>>,
    pub(super) method: Option<String>,
    pub(super) target: Option<String>,
    pub(super) decision: Verdict,
    pub(super) rule: Option<Arc<str>>,
    pub(super) reason: Option<&'static str>,
    pub(super) again: Option<Again>,
    pub(super) status: Option<u16>,
    pub(super) code: Option<i64>,
    pub(super) duration: f64,
}

/// Lines as they are written. One is written for every request, so what is the same in all of them is not made anew.
#[derive(Default)]
pub(super) struct Text {
    pub(super) bytes: Vec<u8>,
    /// The last second since 1970 that a line was of, and how that is written.
    second: (u64, String),
}

impl Text {
    pub(super) fn line(&mut self, line: &Line) {
        self.bytes.extend_from_slice(b"{\"time\":\"");
        self.time(line.time);
        self.bytes.extend_from_slice(b"\",\"audit\":1");
        self.member("server", &line.server.as_deref());
        self.member("principal", &line.principal.as_deref());
        self.member("method", &line.method);
        self.member("target", &line.target);
        self.member("decision", &line.decision);
        self.member("rule", &line.rule.as_deref());
        self.member("reason", &line.reason);
        match line.again {
            None => {}
            Some(Again::Known) => self.member("again", &true),
            Some(Again::Claimed) => self.member("claims_again", &true),
        }
        self.member("status", &line.status);
        self.member("code", &line.code);
        self.member("duration", &line.duration);
        self.bytes.extend_from_slice(b"}\n");
    }

    fn member(&mut self, name: &'static str, value: &impl Serialize) {
        for part in [",\"", name, "\":"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        // None of them can fail, into memory.
        let _ = value.serialize(&mut Serializer::with_formatter(&mut self.bytes, Visible));
    }

    /// A time, in RFC 3339 with milliseconds.
    fn time(&mut self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.second.0 != since.as_secs() || self.second.1.is_empty() {
            let second = i64::try_from(since.as_secs()).ok();
            let second = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
            let text = second.unwrap_or_default().to_string();
            self.second = (since.as_secs(), text.trim_end_matches('Z').to_owned());
        }
        self.bytes.extend_from_slice(self.second.1.as_bytes());
        let digit = |part: u32| b'0' + (since.subsec_millis() / part % 10) as u8;
        self.bytes.extend_from_slice(&[b'.', digit(100), digit(10), digit(1), b'Z']);
    }
}

/// JSON in which nothing that a client has written can change how the rest of the line looks, whatever shows it: controls
/// beyond ASCII and directional marks are escaped, too.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        let is_hidden = |letter: char| {
            letter.is_control()
                || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}')
                || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        if fragment.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return to.write_all(fragment.as_bytes());
        }
        let mut written = 0;
        for (at, letter) in fragment.match_indices(is_hidden) {
            to.write_all(&fragment.as_bytes()[written..at])?;
            for letter in letter.chars() {
                write!(to, "\\u{:04x}", u32::from(letter))?;
            }
            written = at + letter.len();
        }
        to.write_all(&fragment.as_bytes()[written..])
    }
}

/// What a client has written, as far as it is repeated: so many bytes of it.
pub(crate) fn bounded(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    format!("{}…", &text[..text.floor_char_boundary(most)]).into()
}

/// The same of what is told by its end as much as by its beginning, as URIs are: half of it from either.
pub(super) fn both_ends(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let (head, tail) = (text.floor_char_boundary(most / 2), text.ceil_char_boundary(text.len() - most / 2));
    format!("{}…{}", &text[..head], &text[tail..]).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn targets_are_bounded() {
        assert_eq!(bounded("ab", 2), "ab");
        assert_eq!(bounded("éé", 3), "é…");
        assert_eq!(both_ends("abcd", 4), "abcd");
        assert_eq!(both_ends("abcde", 4), "ab…de");
        assert_eq!(both_ends("aéééb", 4), "a…b");
    }

    #[test]
    fn a_line_is_json_in_its_order() {
        let line = |millis| Line {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(millis),
            server: Some("tools/a".into()),
            principal: None,
            method: Some("tools/call".to_owned()),
            target: Some("a \"b\"\n\u{e9}\u{9b}\u{202e}\u{7f}".to_owned()),
            decision: Verdict::Permit,
            rule: Some("readers".into()),
            reason: None,
            again: None,
            status: Some(200),
            code: Some(-32602),
            duration: 0.0125,
        };
        let mut text = Text::default();
        for (millis, time) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_793_318_400_123, "2026-10-30T00:00:00.123Z"),
            (1_793_318_400_999, "2026-10-30T00:00:00.999Z"),
            (1_793_318_401_000, "2026-10-30T00:00:01.000Z"),
        ] {
            text.bytes.clear();
            text.line(&line(millis));
            let expected = format!(
                "{{\"time\":\"{time}\",\"audit\":1,\"server\":\"tools/a\",\"principal\":null,\
                 \"method\":\"tools/call\",\"target\":\"a \\\"b\\\"\\n\u{e9}\\u009b\\u202e\\u007f\",\"decision\":\"permit\",\
                 \"rule\":\"readers\",\"reason\":null,\"status\":200,\"code\":-32602,\"duration\":0.0125}}\n"
            );
            assert_eq!(String::from_utf8(text.bytes.clone()).unwrap(), expected);
        }
    }
}
