//! Server-sent events: taking a stream apart and writing events.

use thiserror::Error;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its bytes, the blank line included.
    pub raw: Vec<u8>,
    /// Its `data`, lines joined by line feeds. `None` if it had no `data` field: such an event is not dispatched.
    pub data: Option<Vec<u8>>,
    /// Its type, if it is not `message`.
    pub event: Option<String>,
    /// Its id.
    pub id: Option<String>,
    /// How long to wait before the stream is asked for again, in milliseconds.
    pub retry: Option<u64>,
}

/// An event is larger than the reader keeps.
#[derive(Debug, Error)]
#[error("an event is larger than {limit} bytes")]
pub struct TooLarge {
    limit: usize,
}

/// Takes a stream of bytes apart into events. Lines end with LF, CR or CRLF.
#[derive(Debug)]
pub struct Decoder {
    /// The bytes of the event that is not complete yet.
    pending: Vec<u8>,
    /// How much of `pending` has been looked at, and where its current line begins.
    seen: usize,
    line: usize,
    limit: usize,
    at_start: bool,
}

impl Decoder {
    /// A decoder that keeps at most `limit` bytes of one event.
    pub fn new(limit: usize) -> Self {
        Self { pending: Vec::new(), seen: 0, line: 0, limit, at_start: true }
    }

    /// Adds bytes, and calls `each` with every event that they complete.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Event)) -> Result<(), TooLarge> {
        self.pending.extend_from_slice(bytes);
        // What is done with goes once, at the end: to move the rest for each event would take the square of its size.
        let mut done = 0;
        while let Some(end) = self.next_boundary() {
            let event = parse(self.pending[done..end].to_vec(), std::mem::take(&mut self.at_start));
            done = end;
            each(event);
        }
        self.pending.drain(..done);
        self.seen -= done;
        self.line -= done;
        if self.pending.len() > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        Ok(())
    }

    /// Whether the stream stands between two events.
    pub fn is_between_events(&self) -> bool {
        self.pending.is_empty()
    }

    /// What ends an event that broke off in the middle, so that no client takes it for a message: the last type given
    /// counts, and clients of MCP ignore types that they do not know.
    pub fn abandon(&self) -> &'static str {
        if self.pending.is_empty() {
            ""
        } else if self.line == self.pending.len() {
            "event: abandoned\n\n"
        } else {
            "\nevent: abandoned\n\n"
        }
    }

    /// Where the first event in `pending` ends: after its blank line.
    fn next_boundary(&mut self) -> Option<usize> {
        while self.seen < self.pending.len() {
            let at = self.seen;
            let end = match self.pending[at] {
                b'\n' => at + 1,
                b'\r' => match self.pending.get(at + 1) {
                    Some(b'\n') => at + 2,
                    Some(_) => at + 1,
                    // The line feed may still come: a lone carriage return is known only by what follows it. A blank
                    // line ends an event at once all the same, so that nobody waits for the next one.
                    None if at == self.line => at + 1,
                    None => return None,
                },
                _ => {
                    self.seen += 1;
                    continue;
                }
            };
            let blank = at == self.line;
            (self.seen, self.line) = (end, end);
            if blank {
                return Some(end);
            }
        }
        None
    }
}

fn parse(raw: Vec<u8>, first: bool) -> Event {
    let mut event = Event::default();
    let mut data: Option<Vec<u8>> = None;
    let mut text = raw.as_slice();
    if first {
        text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    }
    for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" => {
                event.event =
                    Some(String::from_utf8_lossy(value).into_owned()).filter(|name| name != "message")
            }
            b"retry" => event.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            b"id" if !value.contains(&0) => event.id = Some(String::from_utf8_lossy(value).into_owned()),
            _ => {}
        }
    }
    event.data = data;
    event.raw = raw;
    event
}

/// An event with one message.
pub fn message(json: &str) -> String {
    framed("event: message\n", json)
}

/// An event with other data than the one that it was read from; its id stays.
pub fn replace_data(event: &Event, json: &str) -> String {
    match &event.id {
        Some(id) if !id.contains(['\n', '\r']) => framed(&format!("event: message\nid: {id}\n"), json),
        _ => message(json),
    }
}

/// What ends an event that may have broken off after this byte: as [`Decoder::abandon`], for who does not take the
/// stream apart. Between two events it does no harm, since an event without data is none.
pub fn abandon_after(last: u8) -> &'static str {
    if matches!(last, b'\n' | b'\r') { "event: abandoned\n\n" } else { "\nevent: abandoned\n\n" }
}

/// What keeps a silent stream alive: a comment.
pub const KEEP_ALIVE: &str = ": keep-alive\n\n";

fn framed(head: &str, json: &str) -> String {
    let mut text = String::with_capacity(head.len() + json.len() + 16);
    text.push_str(head);
    // White space in JSON may hold line ends; each line of data has a field of its own.
    for line in json.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, |event| events.push(event)).unwrap();
        }
        events
    }

    fn data(events: &[Event]) -> Vec<Option<&str>> {
        events
            .iter()
            .map(|event| event.data.as_deref().map(|data| std::str::from_utf8(data).unwrap()))
            .collect()
    }

    #[test]
    fn any_cut_of_a_stream_gives_the_same_events() {
        let stream: &[u8] = b"\xef\xbb\xbf: hi\r\n\r\nevent: message\ndata: {\"a\":\ndata:1}\nid: 7\nretry: 250\n\ndata\r\rdata: x\r\nevent: other\r\n\r\n";
        let whole = decode(&[stream]);
        let expected = vec![None, Some("{\"a\":\n1}"), Some(""), Some("x")];
        assert_eq!(data(&whole), expected);
        assert_eq!((whole[1].id.as_deref(), whole[1].retry), (Some("7"), Some(250)));
        assert_eq!(whole[3].event.as_deref(), Some("other"));
        let joined: Vec<u8> = whole.iter().flat_map(|event| event.raw.clone()).collect();
        assert_eq!(joined, stream);
        for cut in 0..stream.len() {
            let events = decode(&[&stream[..cut], &stream[cut..]]);
            let seen: Vec<_> = data(&events).into_iter().flatten().collect();
            assert_eq!(seen, ["{\"a\":\n1}", "", "x"], "{cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        let seen = decode(&bytes);
        assert_eq!(data(&seen).into_iter().flatten().collect::<Vec<_>>(), ["{\"a\":\n1}", "", "x"]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = message("{\n\"a\": 1\r\n}");
        let events = decode(&[text.as_bytes()]);
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].data.as_deref(), Some(&b"{\n\"a\": 1\n\n}"[..]));
        let with_id = Event { id: Some("5".to_owned()), ..Event::default() };
        assert_eq!(replace_data(&with_id, "{}"), "event: message\nid: 5\ndata: {}\n\n");
    }

    #[test]
    fn an_event_that_broke_off_is_no_message() {
        for start in
            ["", "data: {\"a\"", "data: {\"a\"\n", "data: {\"a\"\r", "data: {\"a\"\r\n", "eve", ":\n\n"]
        {
            let mut decoder = Decoder::new(100);
            decoder.push(start.as_bytes(), |_| {}).unwrap();
            let after = abandon_after(start.bytes().last().unwrap_or(b'\n'));
            for abandon in [decoder.abandon(), after] {
                let stream = format!("{start}{abandon}{}", message("{}"));
                let events = decode(&[stream.as_bytes()]);
                let is_message = |event: &&Event| event.event.is_none() && event.data.is_some();
                let messages: Vec<_> = events.iter().filter(is_message).collect();
                assert_eq!(messages.len(), 1, "{start:?}");
                assert_eq!(messages[0].data.as_deref(), Some(&b"{}"[..]));
            }
        }
    }

    #[test]
    fn many_events_take_no_longer_each() {
        let events = 2_000_000;
        let mut decoder = Decoder::new(1 << 20);
        let stream = "\n".repeat(events) + "data: x";
        let (mut seen, begin) = (0, std::time::Instant::now());
        decoder.push(stream.as_bytes(), |_| seen += 1).unwrap();
        assert_eq!((seen, decoder.pending.as_slice()), (events, &b"data: x"[..]));
        // Seconds with the slowest of machines; the square of the number would take minutes with the fastest.
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
        decoder.push(b"\n\n", |event| assert_eq!(event.data.as_deref(), Some(&b"x"[..]))).unwrap();
        assert!(decoder.is_between_events());
    }

    #[test]
    fn large_events_are_refused() {
        let mut decoder = Decoder::new(8);
        assert!(decoder.push(b"data: 123", |_| {}).is_err());
    }
}
