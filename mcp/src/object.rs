//! Editing an object without touching the bytes of what stays.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An object's members in the order in which they were written, values as they were written. A member that occurs
/// twice is refused.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    members: Vec<(String, Member<'a>)>,
}

#[derive(Clone, Debug)]
enum Member<'a> {
    Kept(&'a RawValue),
    Replaced(String),
}

impl<'a> Object<'a> {
    /// Reads an object's outermost layer.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The value of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value.as_str())
    }

    /// The value of a member as it was read.
    pub fn original(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|(member, _)| member == name).and_then(|(_, value)| match value {
            Member::Kept(raw) => Some(raw.get()),
            Member::Replaced(_) => None,
        })
    }

    /// Sets a member to a JSON text, where it stands or at the end.
    pub fn set(&mut self, name: &str, json: String) {
        match self.members.iter_mut().find(|(member, _)| member == name) {
            Some((_, value)) => *value = Member::Replaced(json),
            None => self.members.push((name.to_owned(), Member::Replaced(json))),
        }
    }

    /// Removes a member, and says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.members.len();
        self.members.retain(|(member, _)| member != name);
        self.members.len() != before
    }

    /// The object as JSON.
    pub fn write(&self) -> String {
        let mut text = String::from("{");
        for (at, (name, value)) in self.members.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&serde_json::Value::from(name.as_str()).to_string());
            text.push(':');
            text.push_str(value.as_str());
        }
        text.push('}');
        text
    }
}

impl Member<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Kept(raw) => raw.get(),
            Self::Replaced(json) => json,
        }
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members: Vec<(String, Member<'de>)> = Vec::new();
        // Whoever writes an object chooses how many members it has, so looking at all earlier ones costs too much.
        let mut names: HashSet<String> = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            members.push((name, Member::Kept(map.next_value()?)));
        }
        Ok(Object { members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_edited_keeps_its_bytes() {
        let mut object = Object::read(r#"{ "b" : 1.0e2 ,"a":{"x" : [ ]}, "c":"\u0041"}"#).unwrap();
        object.set("a", "2".to_owned());
        object.set("d\"", "null".to_owned());
        assert!(object.remove("b"));
        assert!(!object.remove("b"));
        assert_eq!(object.write(), r#"{"a":2,"c":"\u0041","d\"":null}"#);
        assert_eq!(object.original("c"), Some(r#""\u0041""#));
        assert_eq!(object.original("a"), None);
    }

    #[test]
    fn many_members_take_no_longer_each() {
        let members: Vec<String> = (0..400_000).map(|number| format!("\"{number}\":0")).collect();
        let begin = std::time::Instant::now();
        Object::read(&format!("{{{}}}", members.join(","))).unwrap();
        let twice = format!("{{{},\"7\":1}}", members.join(","));
        assert!(Object::read(&twice).is_err());
        // Seconds with the slowest of machines; the square of the number would take minutes with the fastest.
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }

    #[test]
    fn arrays_and_doubles_are_refused() {
        for text in ["[1]", "null", r#"{"a":1,"\u0061":2}"#] {
            assert!(Object::read(text).is_err(), "{text}");
        }
    }
}
