//! The ids of events: `<epoch>-<stream>-<number>`. They are told to the client, and mean nothing outside of their
//! session.

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

impl EventId {
    /// The number of an event that is all there is of its stream.
    pub(super) const ONLY: u64 = 0;

    /// The id as it is written. There is one for every event, and to format numbers by a pattern takes five times as long.
    pub(crate) fn text(self) -> String {
        const LONGEST: usize = 8 + 2 * (1 + 20);
        let mut text = String::with_capacity(LONGEST);
        let digits = (0..8).rev().filter_map(|at| char::from_digit(self.epoch >> (4 * at) & 0xf, 16));
        text.extend(digits);
        for number in [self.stream, self.number] {
            text.push('-');
            text.push_str(itoa::Buffer::new().format(number));
        }
        text
    }

    /// Reads an id as it was written here.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (epoch, stream, number) = (parts.next()?, parts.next()?, parts.next()?);
        let id = Self {
            epoch: u32::from_str_radix(epoch, 16).ok()?,
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        };
        // Numbers can be written in more than one way.
        (id.text() == text).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_were_written() {
        let id = EventId { epoch: 0x5f, stream: 12, number: 3 };
        assert_eq!(id.text(), "0000005f-12-3");
        assert_eq!(EventId::read("0000005f-12-3"), Some(id));
        for text in [
            "",
            "-",
            "0000005f-12",
            "5f-12-3",
            "0000005F-12-3",
            "0000005f-12-+3",
            "0000005f-12-3-4",
            "0000005f-12-03",
        ] {
            assert_eq!(EventId::read(text), None, "{text}");
        }
    }
}
