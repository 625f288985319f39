//! Splicing: a message with some of its parts replaced. What stands between them keeps its bytes, and nothing is parsed
//! again.

use std::ops::Range;

/// `message` with another text for each of these parts, which were read out of it and do not overlap. `None`: one of them
/// was not.
pub fn replaced<const N: usize>(message: &str, mut parts: [Option<(&str, &str)>; N]) -> Option<String> {
    parts.sort_unstable_by_key(|part| part.map(|(part, _)| part.as_ptr().addr()));
    let changed = parts.iter().flatten().map(|(part, other)| (part.len(), other.len()));
    let (gone, come) = changed.fold((0, 0), |(gone, come), (part, other)| (gone + part, come + other));
    // Exact: what has room to spare is moved when it is shared.
    let mut out = String::with_capacity((message.len() + come).checked_sub(gone)?);
    let mut from = 0;
    for (part, other) in parts.into_iter().flatten() {
        let at = place(message, part)?;
        out.push_str(message.get(from..at.start)?);
        out.push_str(other);
        from = at.end;
    }
    out.push_str(message.get(from..)?);
    Some(out)
}

/// Where a part stands in what it was read out of, without having been copied.
fn place(message: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(message.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= message.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_replaced_where_they_stand() {
        let message = String::from("one, two, three");
        let (one, two, three) = (&message[..3], &message[5..8], &message[10..]);
        for (parts, expected) in [
            ([None, None], "one, two, three"),
            ([Some((one, "1")), None], "1, two, three"),
            ([Some((three, "")), Some((one, "the first"))], "the first, two, "),
            ([Some((two, "2")), Some((three, "3"))], "one, 2, 3"),
        ] {
            let made = replaced(&message, parts).unwrap();
            assert_eq!((made.as_str(), made.capacity()), (expected, made.len()));
        }
    }

    #[test]
    fn parts_of_another_message_are_not_taken_for_its_own() {
        let (message, other) = (String::from("one, two"), String::from("one, two"));
        assert_eq!(replaced(&message, [Some((&other[..3], "1"))]), None);
        assert_eq!(replaced(&message[..2], [Some((&message[..3], "1"))]), None);
        // Two that overlap are not apart.
        assert_eq!(replaced(&message, [Some((&message[..3], "1")), Some((&message[2..], "2"))]), None);
    }
}
