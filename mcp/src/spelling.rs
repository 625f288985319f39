//! Members whose names are almost those of a structure.
//!
//! Some readers match the names of members without regard to case, Go's `encoding/json` among them, and take the last
//! of those that match. A server with such a reader would act on `Name` where everything here has looked at `name`.
//! So a member that could be taken for a known one, and is not spelled as it is, makes an object unreadable. Members
//! that resemble none pass.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};

use crate::Text;

/// A structure that knows the names of its members.
pub(crate) trait Known {
    /// The names: those that are read, and those that only must not be mistaken.
    const MEMBERS: &'static [&'static str];
}

/// Reads a structure in one pass, and refuses members that are misspelled.
pub(crate) struct Exact<T>(pub(crate) T);

impl<'de, T: Deserialize<'de> + Known> Deserialize<'de> for Exact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Whole(PhantomData))
    }
}

struct Whole<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Known> Visitor<'de> for Whole<T> {
    type Value = Exact<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Checked { map, members: T::MEMBERS })).map(Exact)
    }
}

/// Members of which each name is looked at before the structure sees it.
struct Checked<A> {
    map: A,
    members: &'static [&'static str],
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Checked<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.map.next_key::<Text<'de>>()? else { return Ok(None) };
        if let Some(meant) = misspelled(&name, self.members) {
            return Err(A::Error::custom(format_args!("the member `{meant}` has to be spelled so")));
        }
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
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
