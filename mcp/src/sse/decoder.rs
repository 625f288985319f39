//! Takes a stream apart into events, however its bytes come.

use bytes::{Bytes, BytesMut};
use memchr::memchr2;
use thiserror::Error;

use super::{Event, parse};

/// A piece of so many bytes is kept as it came until its event is whole, in 64 KiB of memory at most as HTTP clients read.
/// Less is gathered.
const LARGE: usize = 16 * 1024;

/// An event is larger than the reader keeps.
#[derive(Debug, Error)]
#[error("an event is larger than {limit} bytes")]
pub struct TooLarge {
    limit: usize,
}

/// Takes a stream of bytes apart into events. Lines end with LF, CR or CRLF.
#[derive(Debug)]
pub struct Decoder {
    pending: Pending,
    scan: Scan,
    /// Whether nothing has been read yet.
    at_start: bool,
    limit: usize,
}

/// The bytes of the event that is not complete yet.
#[derive(Debug, Default)]
struct Pending {
    /// What came first, in large pieces.
    pieces: Vec<Bytes>,
    /// What follows it.
    last: BytesMut,
    len: usize,
}

/// What is known of the line that the bytes so far end in.
#[derive(Debug)]
struct Scan {
    is_blank: bool,
    /// It begins after a carriage return, of which a line feed may be part that has yet to come.
    may_feed: bool,
}

impl Decoder {
    /// A decoder that keeps at most `limit` bytes of one event.
    pub fn new(limit: usize) -> Self {
        let scan = Scan { is_blank: true, may_feed: false };
        Self { pending: Pending::default(), scan, at_start: true, limit }
    }

    /// Adds bytes, and calls `each` with every event that they complete. An event that comes whole is not copied, and one
    /// that comes in pieces is put together once. After an error the stream cannot be gone on with.
    pub fn push(&mut self, bytes: &Bytes, mut each: impl FnMut(Event<'_>)) -> Result<(), TooLarge> {
        let Self { pending, scan, at_start, limit } = self;
        let mut rest = &bytes[..];
        while let Some(end) = scan.next_boundary(rest) {
            let (event, after) = rest.split_at(end);
            rest = after;
            if pending.len == 0 {
                each(parse(event, std::mem::take(at_start)));
            } else {
                let memory = std::mem::take(pending).with(event);
                each(Event { memory: Some(&memory), ..parse(&memory, std::mem::take(at_start)) });
            }
        }
        pending.push(bytes, rest);
        if pending.len > *limit {
            return Err(TooLarge { limit: *limit });
        }
        Ok(())
    }

    /// How many bytes are kept of the event that is not complete yet.
    pub fn pending(&self) -> usize {
        self.pending.len
    }
}

impl Pending {
    /// Adds a part of a piece.
    fn push(&mut self, piece: &Bytes, part: &[u8]) {
        self.len += part.len();
        if part.len() >= LARGE {
            self.end_last();
            self.pieces.push(piece.slice_ref(part));
            return;
        }
        self.last.extend_from_slice(part);
        // What grows is copied again and again, and so has its end.
        if self.last.len() >= LARGE {
            self.end_last();
        }
    }

    /// Lets what was gathered be a piece like those before it.
    fn end_last(&mut self) {
        if !self.last.is_empty() {
            self.pieces.push(std::mem::take(&mut self.last).freeze());
        }
    }

    /// All of it, and its end.
    fn with(mut self, end: &[u8]) -> Bytes {
        if self.pieces.is_empty() {
            self.last.extend_from_slice(end);
            return self.last.freeze();
        }
        let mut all = BytesMut::with_capacity(self.len + end.len());
        // Each is let go of before the next takes up more memory.
        self.pieces.into_iter().for_each(|piece| all.extend_from_slice(&piece));
        all.extend_from_slice(&self.last);
        all.extend_from_slice(end);
        all.freeze()
    }
}

impl Scan {
    /// Where the event that `bytes` go on with ends: after its blank line. What follows is looked at from its beginning.
    fn next_boundary(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut line = 0;
        if self.may_feed && !bytes.is_empty() {
            self.may_feed = false;
            line = usize::from(bytes[0] == b'\n');
        }
        while let Some(length) = memchr2(b'\n', b'\r', &bytes[line..]) {
            let at = line + length;
            let is_blank = self.is_blank && length == 0;
            line = match (bytes[at], bytes.get(at + 1)) {
                (b'\r', Some(b'\n')) => at + 2,
                // A blank line ends an event at once all the same, so that nobody waits for the next one.
                (b'\r', None) => {
                    self.may_feed = !is_blank;
                    at + 1
                }
                _ => at + 1,
            };
            self.is_blank = true;
            if is_blank {
                return Some(line);
            }
        }
        self.is_blank &= line == bytes.len();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of the events in a stream, and what of it need not be copied.
    fn decode(decoder: &mut Decoder, stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Vec<Option<Bytes>>) {
        let (mut data, mut shared) = (Vec::new(), Vec::new());
        for chunk in stream.chunks(size) {
            let each = |event: Event<'_>| {
                shared.push(event.shared_data());
                data.extend(event.data.map(Vec::from));
            };
            decoder.push(&Bytes::copy_from_slice(chunk), each).unwrap();
        }
        (data, shared)
    }

    #[test]
    fn large_events_are_the_same_in_pieces_of_any_size() {
        let data: Vec<Vec<u8>> = [100_000, 1, 40_000, 20_000]
            .iter()
            .map(|size| (b'a'..=b'z').cycle().take(*size).collect())
            .collect();
        let stream: Vec<u8> = data.iter().flat_map(|data| super::super::message(data)).collect();
        for size in [1, 7, 1_000, LARGE - 1, LARGE, 30_000, 60_000, stream.len()] {
            let mut decoder = Decoder::new(stream.len());
            assert_eq!(decode(&mut decoder, &stream, size).0, data, "{size}");
            assert_eq!((decoder.pending(), decoder.pending.pieces.len()), (0, 0), "{size}");
        }
    }

    #[test]
    fn what_came_in_parts_need_not_be_copied_to_be_written() {
        let shared = |parts: &[&str]| {
            let mut decoder = Decoder::new(1 << 20);
            let parts = parts.iter().map(|part| decode(&mut decoder, part.as_bytes(), usize::MAX).1);
            parts.collect::<Vec<_>>().concat()
        };
        let some = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        assert_eq!(
            shared(&["data: {\"a\":", "1}\n\ndata:2\n\n"]),
            [some("{\"a\":1}"), None],
            "the second is whole"
        );
        assert_eq!(shared(&["data: 1\n\n", "data: 2\nda", "ta: 3\n\n"]), [None, None], "whole, or lines");
        let long = "x".repeat(2 * LARGE);
        let [Some(data), None] = &shared(&[&format!("data: {long}"), "\n\ndata:2\n\n"])[..] else { panic!() };
        assert_eq!(data, &long);
    }

    #[test]
    fn what_is_kept_is_no_larger_for_coming_in_many_parts() {
        let mut decoder = Decoder::new(usize::MAX);
        for size in [1, 100, LARGE - 1, LARGE, 1] {
            decode(&mut decoder, &vec![b'x'; 4 * LARGE], size);
        }
        let pieces = &decoder.pending.pieces;
        assert!(pieces.iter().all(|piece| piece.len() >= LARGE), "but for the one before the next large one");
        assert_eq!(
            pieces.iter().map(Bytes::len).sum::<usize>() + decoder.pending.last.len(),
            decoder.pending()
        );
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may know the time")]
    fn many_events_take_no_longer_each() {
        let events = 2_000_000;
        let mut decoder = Decoder::new(1 << 20);
        let stream = Bytes::from("\n".repeat(events) + "data: x");
        let (mut seen, begin) = (0, std::time::Instant::now());
        decoder.push(&stream, |_| seen += 1).unwrap();
        assert_eq!((seen, decoder.pending()), (events, b"data: x".len()));
        // Seconds with the slowest of machines; the square of the number would take minutes with the fastest.
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
        assert_eq!(decode(&mut decoder, b"\n\n", 1).0, [b"x"]);
        assert_eq!(decoder.pending(), 0);
    }

    #[test]
    fn large_events_are_refused() {
        let mut decoder = Decoder::new(8);
        assert!(decoder.push(&Bytes::from_static(b"data: 123"), |_| {}).is_err());
    }
}
