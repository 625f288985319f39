//! Server-sent events: taking a stream apart and writing events.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery>

mod decoder;

use std::borrow::Cow;

use bytes::Bytes;
pub use decoder::{Decoder, TooLarge};
use memchr::{memchr, memchr2};

/// One event. What it holds is borrowed from where the bytes are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its `data`, lines joined by line feeds. `None` if it had no `data` field: such an event is not dispatched.
    pub data: Option<Cow<'a, [u8]>>,
    /// Its type, if it is not `message`.
    pub event: Option<Cow<'a, str>>,
    /// Its id.
    pub id: Option<Cow<'a, str>>,
    /// How long to wait before the stream is asked for again, in milliseconds.
    pub retry: Option<u64>,
    /// Where it was read from, if that is memory of its own.
    memory: Option<&'a Bytes>,
}

impl<'a> Event<'a> {
    /// One that has this data and nothing else.
    pub fn of(data: &'a [u8]) -> Self {
        Self { data: Some(Cow::Borrowed(data)), ..Self::default() }
    }

    /// The message that it holds. Events of another type and those without data hold none: what is not known is ignored.
    pub fn message(&self) -> Option<&[u8]> {
        self.data.as_deref().filter(|data| self.event.is_none() && !data.is_empty())
    }

    /// The same, to be kept.
    pub fn into_message(self) -> Option<Vec<u8>> {
        self.message()?;
        self.data.map(Cow::into_owned)
    }

    /// Its data, as a reference into memory that the decoder put together for it, where it is a single line. Otherwise it is to
    /// be copied.
    pub fn shared_data(&self) -> Option<Bytes> {
        match (&self.data, self.memory) {
            (Some(Cow::Borrowed(data)), Some(memory)) => Some(memory.slice_ref(data)),
            _ => None,
        }
    }
}

/// The lines of a text.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = memchr2(b'\n', b'\r', text) else { return rest.take() };
        rest = Some(&text[end + 1..]);
        Some(&text[..end])
    })
}

fn parse(mut text: &[u8], first: bool) -> Event<'_> {
    let mut event = Event::default();
    if first {
        text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    }
    for line in lines(text) {
        let (field, value) = match memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut event.data {
                Some(data) => {
                    let data = data.to_mut();
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => event.data = Some(Cow::Borrowed(value)),
            },
            // An empty type is none, to every reader of such streams.
            b"event" if matches!(value, b"" | b"message") => event.event = None,
            b"event" => event.event = Some(String::from_utf8_lossy(value)),
            b"retry" => event.retry = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            b"id" if !value.contains(&0) => event.id = Some(String::from_utf8_lossy(value)),
            _ => {}
        }
    }
    event
}

/// An event with one message.
pub fn message(json: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    write_message(&mut text, json);
    text
}

/// Adds an event with one message, which is JSON, to others.
pub fn write_message(text: &mut Vec<u8>, json: &[u8]) {
    text.reserve(json.len() + 32);
    text.extend_from_slice(b"event: message\n");
    write_data(text, json);
}

/// An event with an id.
pub fn numbered(id: &str, data: &[u8]) -> Vec<u8> {
    // Exactly as much as data of one line needs: events are kept.
    let mut text = Vec::with_capacity("id: \ndata: \n\n".len() + id.len() + data.len());
    text.extend_from_slice(b"id: ");
    // A line end would begin another field.
    text.extend(id.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
    text.push(b'\n');
    write_data(&mut text, data);
    text
}

/// What stands around data of one line in [`numbered`], for data that is not to be copied. The id is written as it is, so it
/// may hold no line end either.
pub fn around(id: &str) -> (String, &'static str) {
    (format!("id: {id}\ndata: "), "\n\n")
}

/// How long a client is to wait before it asks for the rest of a stream.
pub fn retry(milliseconds: u64) -> String {
    format!("retry: {milliseconds}\n\n")
}

/// What ends an event that may have broken off after this byte, for who does not take the stream apart. Between two events
/// it does no harm, since an event without data is none.
pub fn abandon_after(last: u8) -> &'static str {
    if matches!(last, b'\n' | b'\r') { "event: abandoned\n\n" } else { "\nevent: abandoned\n\n" }
}

/// What keeps a silent stream alive: a comment.
pub const KEEP_ALIVE: &str = ": keep-alive\n\n";

fn write_data(text: &mut Vec<u8>, data: &[u8]) {
    // White space in JSON may hold line ends; each line of data has a field of its own.
    for line in lines(data) {
        text.extend_from_slice(b"data: ");
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data, type, id, retry.
    type Read = (Option<String>, Option<String>, Option<String>, Option<u64>);

    /// The events in a stream that comes in chunks.
    fn decode(chunks: &[&[u8]]) -> Vec<Read> {
        let mut decoder = Decoder::new(1 << 20);
        let mut events = Vec::new();
        for chunk in chunks {
            let text = |bytes: Cow<'_, [u8]>| String::from_utf8(bytes.into_owned()).unwrap();
            let keep = |event: Event<'_>| {
                let owned = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
                events.push((event.data.map(text), owned(event.event), owned(event.id), event.retry));
            };
            decoder.push(&Bytes::copy_from_slice(chunk), keep).unwrap();
        }
        events
    }

    #[test]
    fn any_cut_of_a_stream_gives_the_same_events() {
        let stream: &[u8] = b"\xef\xbb\xbf: hi\r\n\r\nevent: message\ndata: {\"a\":\ndata:1}\nid: 7\nretry: 250\n\ndata\r\rdata: x\r\nevent: other\r\n\r\n";
        let some = |text: &str| Some(text.to_owned());
        let dispatched = [
            (some("{\"a\":\n1}"), None, some("7"), Some(250)),
            (some(""), None, None, None),
            (some("x"), some("other"), None, None),
        ];
        let whole = decode(&[stream]);
        assert_eq!(whole[0], (None, None, None, None), "a comment");
        assert_eq!(whole[1..], dispatched);
        let seen = |chunks: &[&[u8]]| -> Vec<_> {
            decode(chunks).into_iter().filter(|(data, ..)| data.is_some()).collect()
        };
        for cut in 0..stream.len() {
            assert_eq!(seen(&[&stream[..cut], &stream[cut..]]), dispatched, "{cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(seen(&bytes), dispatched);
    }

    #[test]
    fn the_type_of_an_event_is_its_last_one() {
        for (types, expected) in [
            ("", None),
            ("event\n", None),
            ("event:\n", None),
            ("event: \n", None),
            ("event: message\n", None),
            ("event: other\nevent:\n", None),
            ("event:\nevent: other\n", Some("other")),
            ("event:  \n", Some(" ")),
        ] {
            let [(_, event, ..)] = &decode(&[format!("{types}data: x\n\n").as_bytes()])[..] else {
                panic!("{types:?}")
            };
            assert_eq!(event.as_deref(), expected, "{types:?}");
        }
    }

    #[test]
    fn only_events_without_a_type_of_their_own_and_with_data_hold_a_message() {
        for (text, expected) in [
            ("data: {}\n\n", Some("{}")),
            ("event: message\ndata: {}\n\n", Some("{}")),
            ("event: other\ndata: {}\n\n", None),
            ("id: 1\nretry: 5\ndata:\n\n", None),
            ("id: 1\n\n", None),
        ] {
            let mut found = Vec::new();
            let each =
                |event: Event<'_>| found.push((event.message().map(<[u8]>::to_vec), event.into_message()));
            Decoder::new(100).push(&text.into(), each).unwrap();
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(found, [(expected.clone(), expected)], "{text:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let json = "{\n\"a\": 1\r\n}";
        let read = Some("{\n\"a\": 1\n\n}".to_owned());
        assert_eq!(decode(&[&message(json.as_bytes())]), [(read.clone(), None, None, None)]);
        let text = numbered("5-1", json.as_bytes());
        assert_eq!(decode(&[&text]), [(read, None, Some("5-1".to_owned()), None)]);
        assert_eq!(numbered("5\ndata: b\r", b""), b"id: 5data: b\ndata: \n\n");
        let (before, after) = around("5-1");
        assert_eq!(format!("{before}7{after}").as_bytes(), numbered("5-1", b"7"));
        assert_eq!(decode(&[retry(30).as_bytes()]), [(None, None, None, Some(30))]);
    }

    #[test]
    fn an_event_that_broke_off_is_no_message() {
        for start in
            ["", "data: {\"a\"", "data: {\"a\"\n", "data: {\"a\"\r", "data: {\"a\"\r\n", "eve", ":\n\n"]
        {
            let abandon = abandon_after(start.bytes().last().unwrap_or(b'\n'));
            let stream = [start.as_bytes(), abandon.as_bytes(), &message(b"{}")].concat();
            let is_message =
                |event: &&(Option<String>, Option<String>, _, _)| event.1.is_none() && event.0.is_some();
            let messages: Vec<_> = decode(&[stream.as_slice()]);
            let messages: Vec<_> = messages.iter().filter(is_message).collect();
            assert_eq!(messages.len(), 1, "{start:?}");
            assert_eq!(messages[0].0.as_deref(), Some("{}"));
        }
    }
}
