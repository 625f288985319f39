//! The ids of events: `<epoch>-<stream>-<number>`, and before the number what the stream is of, where it can be said in
//! few bytes: `get`, or the id of the call's request. They are told to the client, and mean nothing outside of their
//! session. Who comes back with one that nobody knows any more is told by it what they have lost. They open nothing that the
//! id of the session does not, so they are not sealed, and there is no key for them.

use longshore_mcp::envelope::Id;

/// The longest id, in bytes. What the stream is of is left out where it would make a longer one.
const MAX_EVENT_ID: usize = 64;

/// The last event of a stream of which nothing is known here: whoever comes back with it has everything.
pub(crate) const LAST: &str = "00000000-0-0";

/// An id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    /// Which owner of the session gave it.
    pub(super) epoch: u32,
    /// Of which stream of the session it is.
    pub(super) stream: u64,
    /// Which event of the stream it is; the first one is 1.
    pub(super) number: u64,
}

/// What a stream is of, as far as the ids of its events say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of<'a> {
    /// They do not: the id of the request is long, or an earlier release has written them.
    Unsaid,
    /// No call.
    NoCall,
    /// The call of the request with this id, which is the client's own, as JSON.
    Call(&'a str),
}

impl EventId {
    /// The number of an event that is all there is of its stream, or its last one: whoever knows it has everything.
    pub(super) const ONLY: u64 = 0;

    /// The id as it is written. There is one for every event, and to format numbers by a pattern takes five times as long.
    pub(super) fn text(self, of: Of<'_>) -> String {
        let (mut stream, mut number) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (stream, number) = (stream.format(self.stream), number.format(self.number));
        let mut text = String::with_capacity(MAX_EVENT_ID);
        let digits = (0..8).rev().filter_map(|at| char::from_digit(self.epoch >> (4 * at) & 0xf, 16));
        text.extend(digits);
        let left = MAX_EVENT_ID.saturating_sub(text.len() + stream.len() + number.len() + 3);
        let of = of.written().filter(|of| of.len() <= left);
        for part in [Some(stream), of, Some(number)].into_iter().flatten() {
            text.push('-');
            text.push_str(part);
        }
        text
    }

    /// Reads an id as it was written here.
    pub(super) fn read(text: &str) -> Option<(Self, Of<'_>)> {
        let (rest, number) = text.rsplit_once('-')?;
        let mut parts = rest.splitn(3, '-');
        let (epoch, stream) = (parts.next()?, parts.next()?);
        let of = match parts.next() {
            None => Of::Unsaid,
            Some(Of::NO_CALL) => Of::NoCall,
            Some(id) => Of::call(Id::parse(id)?.as_json())?,
        };
        let id = Self {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        };
        // Numbers can be written in more than one way.
        (id.text(of) == text).then_some((id, of))
    }
}

impl<'a> Of<'a> {
    /// How it is written that it is no call. No id of a request is.
    const NO_CALL: &'static str = "get";

    /// The call of the request with this id, as JSON. `None`: it cannot be said in a line of its own, or in a header.
    pub(super) fn call(id: &'a str) -> Option<Self> {
        id.bytes().all(|byte| byte.is_ascii_graphic()).then_some(Self::Call(id))
    }

    fn written(self) -> Option<&'a str> {
        match self {
            Self::Unsaid => None,
            Self::NoCall => Some(Self::NO_CALL),
            Self::Call(id) => Some(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_written() {
        let id = EventId { epoch: 0x5f, stream: 12, number: 3 };
        for (of, text) in [
            (Of::Unsaid, "0000005f-12-3"),
            (Of::NoCall, "0000005f-12-get-3"),
            (Of::Call("7"), "0000005f-12-7-3"),
            (Of::Call("-7"), "0000005f-12--7-3"),
            (Of::Call(r#""a-1""#), r#"0000005f-12-"a-1"-3"#),
            (
                Of::Call(r#""7c9e6679-7425-40de-944b-e07fc1f90ae7""#),
                r#"0000005f-12-"7c9e6679-7425-40de-944b-e07fc1f90ae7"-3"#,
            ),
        ] {
            assert_eq!(id.text(of), text);
            assert_eq!(EventId::read(text), Some((id, of)));
        }
        for text in [
            "",
            "-",
            "0000005f-12",
            "5f-12-3",
            "0000005F-12-3",
            "0000005f-12-+3",
            "0000005f-12-03",
            "0000005f-12-3-04",
            "0000005f-12-03-4",
            "0000005f-12--3",
            "0000005f-12-get",
            "0000005f-12-Get-3",
            "0000005f-12-null-3",
            "0000005f-12-7.0-3",
            "0000005f-12-\"a-3",
            "0000005f-12-\"a\",\"b\"-3",
            "0000005f-12-\"a b\"-3",
            "0000005f-12-\"a\nb\"-3",
        ] {
            assert_eq!(EventId::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_event_of_any_stream_is_one() {
        let last = EventId { epoch: 0, stream: 0, number: EventId::ONLY };
        assert_eq!(EventId::read(LAST), Some((last, Of::Unsaid)));
    }

    #[test]
    fn ids_are_short_whatever_they_are_of() {
        let longest = EventId { epoch: u32::MAX, stream: u64::MAX, number: u64::MAX };
        let long = format!("\"{}\"", "x".repeat(200));
        for of in [Of::Unsaid, Of::NoCall, Of::Call("-9007199254740991"), Of::Call(&long)] {
            for id in [longest, EventId { epoch: 1, stream: 1, number: 1 }] {
                let text = id.text(of);
                assert!(text.len() <= MAX_EVENT_ID, "{text}");
                assert_eq!(EventId::read(&text).map(|(read, _)| read), Some(id));
            }
        }
        assert_eq!(longest.text(Of::Call(&long)), longest.text(Of::Unsaid));
        // What would break the line, or what no header may say.
        assert_eq!((Of::call("\"a b\""), Of::call("\"\u{e9}\"")), (None, None));
    }
}
