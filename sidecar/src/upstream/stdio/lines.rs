//! What a process writes, as lines.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

/// The longest line. It is held several times on its way, in a container whose memory is small.
pub(super) const MAX_LINE: usize = 8 * 1024 * 1024;
/// How much may be written without one message.
pub(super) const MAX_NOISE: usize = 16 * 1024 * 1024;
/// How much of a line is shown.
const EXCERPT: usize = 200;
/// How much is read at once, at least.
const READ: usize = 16 * 1024;
/// How many bytes are copied at most so that a long line takes its room along, for each byte of the line.
const COPIED: usize = 4;

/// Lines in the making.
pub(super) struct Lines {
    buffer: BytesMut,
    /// How much of it is known to hold no line feed.
    seen: usize,
    limit: usize,
    /// How many empty lines were passed over, in bytes.
    blank: usize,
}

/// A line is longer than it may be.
#[derive(Debug)]
pub(super) struct TooLong;

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), seen: 0, limit, blank: 0 }
    }

    /// Where to read to.
    pub(super) fn space(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ);
        &mut self.buffer
    }

    /// The next line that is complete, without white space around it.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        if self.seen == 0 {
            // All at once: millions of them must not cost more than as many bytes.
            let blank = self.buffer.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            self.buffer.advance(blank);
            self.blank += blank;
        }
        let Some(end) = memchr(b'\n', &self.buffer[self.seen..]) else {
            self.seen = self.buffer.len();
            return if self.seen > self.limit { Err(TooLong) } else { Ok(None) };
        };
        let line = self.buffer.split_to(self.seen + end + 1).freeze();
        self.seen = 0;
        if line.len() > READ && self.buffer.len() <= COPIED * line.len() {
            // The room that was made for it goes with it. What is behind it, which is one read at most, would keep all of
            // that for as long as the process is never silent.
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        if line.len() > self.limit + 1 { Err(TooLong) } else { Ok(Some(trimmed(&line))) }
    }

    /// How much of lines there is that were not taken yet.
    pub(super) fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// Gives room back that holds nothing: a process that is silent costs nothing, however much it has said.
    pub(super) fn shrink(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// How many bytes of empty lines there were since this was asked.
    pub(super) fn take_blank(&mut self) -> usize {
        std::mem::take(&mut self.blank)
    }

    /// What is left when nothing more will come: a line without its end.
    pub(super) fn last(&mut self) -> Bytes {
        self.seen = 0;
        trimmed(&std::mem::take(&mut self.buffer).freeze())
    }
}

/// A line without white space around it, and without the mark that some systems begin a text with.
fn trimmed(line: &Bytes) -> Bytes {
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    line.slice_ref(text)
}

/// The beginning of a line of a stranger, for people.
pub(super) fn excerpt(line: &[u8]) -> String {
    let start = &line[..line.len().min(4 * EXCERPT)];
    let mut text = String::new();
    let mut left = EXCERPT;
    for char in String::from_utf8_lossy(start).chars() {
        let escaped: String =
            if char.is_control() { char.escape_default().collect() } else { char.to_string() };
        let length = escaped.chars().count();
        if length > left {
            break;
        }
        left -= length;
        text.push_str(&escaped);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::new(1000);
        let mut read = Vec::new();
        for chunk in chunks {
            lines.space().extend_from_slice(chunk);
            while let Some(line) = lines.next().unwrap() {
                read.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        read.push(String::from_utf8(lines.last().to_vec()).unwrap());
        read
    }

    #[test]
    fn any_cut_gives_the_same_lines() {
        let stream: &[u8] = b"\xef\xbb\xbf{\"a\":1}\r\n\n  \nbanner \n{}\nlast";
        let expected = ["{\"a\":1}", "", "banner", "{}", "last"];
        assert_eq!(read(&[stream]), expected);
        for cut in 0..stream.len() {
            assert_eq!(read(&[&stream[..cut], &stream[cut..]]), expected, "{cut}");
        }
        assert_eq!(read(&stream.chunks(1).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn long_lines_are_refused_with_and_without_an_end() {
        for (text, taken) in [("1234\n", true), ("12345\n", false), ("1234", true), ("12345", false)] {
            let mut lines = Lines::new(4);
            lines.space().extend_from_slice(text.as_bytes());
            assert_eq!(lines.next().is_ok(), taken, "{text:?}");
        }
    }

    #[test]
    fn the_room_of_a_long_line_goes_with_it() {
        let mut lines = Lines::new(MAX_LINE);
        for piece in vec![b'x'; 4 << 20].chunks(64 * 1024) {
            lines.space().extend_from_slice(piece);
            assert!(lines.next().unwrap().is_none());
        }
        lines.space().extend_from_slice(b"\n{}\nhalf");
        let line = lines.next().unwrap().unwrap();
        assert!(line.len() == 4 << 20 && line.is_unique(), "nothing else holds it");
        assert_eq!(lines.next().unwrap().unwrap(), "{}");
        lines.space().extend_from_slice(b" of it\n");
        assert_eq!(lines.next().unwrap().unwrap(), "half of it");
        assert!(lines.space().capacity() < 1 << 20, "{}", lines.space().capacity());
    }

    #[test]
    fn an_excerpt_is_one_short_line() {
        assert_eq!(excerpt(b"a\x1b[31m\tb\0"), "a\\u{1b}[31m\\tb\\u{0}");
        assert_eq!(excerpt(&[0xff; 3]), "\u{fffd}\u{fffd}\u{fffd}");
        for long in ["x".repeat(1000), "\u{e9}".repeat(1000), "\0".repeat(1000)] {
            let count = excerpt(long.as_bytes()).chars().count();
            assert!((EXCERPT - 6..=EXCERPT).contains(&count), "{count}");
        }
    }
}
