//! Look-alike members: their names differ from those of known members in case alone.
//!
//! Some readers match the names of members without regard to case, Go's `encoding/json` among them, and take the last
//! of those that match. A server with such a reader would act on `Name` where everything here has looked at `name`.
//! So a member that could be taken for a known one, and is not spelled as it is, makes an object unreadable. Members
//! that resemble none pass.

use std::collections::HashSet;

use thiserror::Error;

use crate::Text;
use crate::object::occurs;
use crate::scan::{self, Fault, Raw};

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unreadable {
    /// It is none, or no JSON.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A member is there more than once.
    #[error("duplicate field `{0}`")]
    Twice(Box<str>),
    /// A member could be taken for this one.
    #[error("the member `{0}` has to be spelled so")]
    Misspelled(&'static str),
}

/// Reads members of an object in one pass, each as it was written. No member may be taken for one of `exact`, and none
/// may occur twice, whether it is read here or not: readers differ in which of the two they take.
pub(crate) fn read<'a, const N: usize>(
    text: &'a str,
    members: [&'static str; N],
    exact: &[&'static str],
) -> Result<[Option<Raw<'a>>; N], Unreadable> {
    let (mut values, mut wrong) = ([None; N], None);
    let (mut others, mut many) = (Vec::new(), HashSet::new());
    // All of it, also after a member that is wrong: that it is no JSON comes first.
    scan::members(text, |name, value| {
        if let Some(at) = members.iter().position(|member| *member == name.as_str()) {
            if values[at].replace(value).is_some() {
                wrong.get_or_insert_with(|| Unreadable::Twice(members[at].into()));
            }
        } else if let Some(meant) = misspelled(&name, exact) {
            wrong.get_or_insert(Unreadable::Misspelled(meant));
        } else if occurs(&name, others.iter(), &mut many) {
            wrong.get_or_insert_with(|| Unreadable::Twice(name.as_str().into()));
        } else {
            others.push(name);
        }
    })?;
    wrong.map_or(Ok(values), Err)
}

/// A member that is a string. One that is null is not there.
pub(crate) fn text(value: Option<Raw<'_>>) -> Result<Option<Text<'_>>, serde_json::Error> {
    let Some(value) = value.map(Raw::get) else { return Ok(None) };
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner.filter(|inner| memchr::memchr(b'\\', inner.as_bytes()).is_none()) {
        // It is JSON, so this is all of it.
        Some(inner) => Ok(Some(inner.into())),
        None => serde_json::from_str(value),
    }
}

/// The member that a name could be taken for without being it.
fn misspelled(name: &str, members: &[&'static str]) -> Option<&'static str> {
    // Nearly all names are either spelled as they should be or of other lengths, and no two members resemble another.
    if members.contains(&name) {
        return None;
    }
    let same = |member: &&&'static str| {
        if name.is_ascii() {
            name.eq_ignore_ascii_case(member)
        } else {
            name.chars().map(fold).eq(member.chars().map(fold))
        }
    };
    members.iter().find(same).copied()
}

/// A letter as readers without regard to case compare it. The four that are not ASCII are all that have an ASCII
/// letter as their upper or lower case.
fn fold(letter: char) -> char {
    match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_occurs_twice() {
        let many = (0..40).map(|number| format!(r#""{number}":1,"#)).collect::<String>();
        for (text, twice) in [
            (r#"{"a":1,"x":1,"y":2}"#.to_owned(), None),
            (r#"{"a":1,"x":1,"a":2}"#.to_owned(), Some("a")),
            (r#"{"a":1,"x":1,"x":2}"#.to_owned(), Some("x")),
            (r#"{"x":1,"\u0078":2}"#.to_owned(), Some("x")),
            (format!(r#"{{{many}"a":1}}"#), None),
            (format!(r#"{{{many}"39":1}}"#), Some("39")),
            (format!(r#"{{{many}"0":1}}"#), Some("0")),
        ] {
            let read = read(&text, ["a"], &["a"]).map(drop);
            assert_eq!(read, twice.map_or(Ok(()), |name| Err(Unreadable::Twice(name.into()))), "{text}");
        }
    }

    #[test]
    fn names_that_could_be_taken_for_others_are_found() {
        const MEMBERS: &[&str] = &["params", "protocolVersion", "_meta", "token"];
        for (name, meant) in [
            ("params", None),
            ("PARAMS", Some("params")),
            ("param\u{17f}", Some("params")),
            ("to\u{212a}en", Some("token")),
            ("protocolVersion", None),
            ("protocolversion", Some("protocolVersion")),
            ("protocolVers\u{131}on", Some("protocolVersion")),
            ("_Meta", Some("_meta")),
            ("meta", None),
            ("param", None),
            ("paramss", None),
            ("", None),
        ] {
            assert_eq!(misspelled(name, MEMBERS), meant, "{name}");
        }
    }
}
