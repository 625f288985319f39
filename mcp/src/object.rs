//! Editing JSON without touching the bytes of what stays.
//!
//! [`Object`] is one layer of an object, [`edit_elements`] one layer of an array. Both give the text back as it was
//! read if nothing was changed: who passes a message on never writes it anew for nothing.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::de::Error;
use serde_json::Value;

use crate::envelope::is_object;
use crate::{Raw, Text, scan};

/// An object's members in the order in which they were written, values as they were written. A member that occurs
/// twice is refused.
#[derive(Clone, Debug)]
pub struct Object<'a> {
    /// What it was read from, if that is known and nothing has been changed since.
    unchanged: Option<&'a str>,
    members: Vec<(Text<'a>, Member<'a>)>,
}

#[derive(Clone, Debug)]
enum Member<'a> {
    Kept(Raw<'a>),
    Replaced(String),
}

/// Up to so many members, comparing each with all earlier ones is quicker than a set of them.
const FEW: usize = 16;

impl<'a> Object<'a> {
    /// Reads an object's outermost layer.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut members = Members::default();
        scan::members(text, |name, value| members.add(name, value)).map_err(serde_json::Error::custom)?;
        match members.twice {
            Some(name) => Err(serde_json::Error::custom(format_args!("duplicate field `{name}`"))),
            None => Ok(Self { unchanged: Some(text), members: members.all }),
        }
    }

    /// An object without members.
    pub fn empty() -> Self {
        Self { unchanged: None, members: Vec::new() }
    }

    /// The value of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(member, _)| member.as_str() == name).map(|(_, value)| value.as_str())
    }

    /// The value of a member as it was read.
    pub fn original(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|(member, _)| member.as_str() == name).and_then(|(_, value)| match value {
            Member::Kept(raw) => Some(raw.get()),
            Member::Replaced(_) => None,
        })
    }

    /// The same, where JSON's `null` is as good as no member: many programs write what they do not have so.
    pub fn present(&self, name: &str) -> Option<&'a str> {
        self.original(name).filter(|json| *json != "null")
    }

    /// The same of one that is an object. What is none is as good as no member: there are languages that write an empty map
    /// as they write an empty list.
    pub fn map(&self, name: &str) -> Option<&'a str> {
        self.original(name).filter(|json| is_object(json))
    }

    /// The value of a member that is a string.
    pub fn string(&self, name: &str) -> Option<Text<'_>> {
        self.get(name).and_then(string)
    }

    /// The names of the members, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sets a member to a JSON text, where it stands or at the end.
    pub fn set(&mut self, name: &str, json: String) {
        self.unchanged = None;
        match self.members.iter_mut().find(|(member, _)| member.as_str() == name) {
            Some((_, value)) => *value = Member::Replaced(json),
            None => self.members.push((Text::from(name.to_owned()), Member::Replaced(json))),
        }
    }

    /// Removes a member, and says whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.members.len();
        self.members.retain(|(member, _)| member.as_str() != name);
        let was_there = self.members.len() != before;
        if was_there {
            self.unchanged = None;
        }
        was_there
    }

    /// Puts the members into the order of their names.
    pub fn sort(&mut self) {
        self.members.sort_unstable_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        self.unchanged = None;
    }

    /// Removes a member that is written as `null`.
    pub fn remove_null(&mut self, name: &str) {
        if self.original(name) == Some("null") {
            self.remove(name);
        }
    }

    /// Changes a member that is there; one that comes back borrowed has not changed.
    pub fn edit<E>(
        &mut self,
        name: &str,
        change: impl FnOnce(&'a str) -> Result<Cow<'a, str>, E>,
    ) -> Result<(), E> {
        if let Some(value) = self.original(name)
            && let Cow::Owned(json) = change(value)?
        {
            self.set(name, json);
        }
        Ok(())
    }

    /// Changes all members that are as they were read, each by itself; one that comes back borrowed has not changed.
    pub(crate) fn edit_all<E>(
        &mut self,
        mut change: impl FnMut(&'a str) -> Result<Cow<'a, str>, E>,
    ) -> Result<(), E> {
        self.edit_each(|_, value| change(value))
    }

    /// The same by name.
    pub(crate) fn edit_each<E>(
        &mut self,
        mut change: impl FnMut(&str, &'a str) -> Result<Cow<'a, str>, E>,
    ) -> Result<(), E> {
        for (name, value) in &mut self.members {
            if let Member::Kept(raw) = value
                && let Cow::Owned(json) = change(name, raw.get())?
            {
                *value = Member::Replaced(json);
                self.unchanged = None;
            }
        }
        Ok(())
    }

    /// The object as JSON.
    pub fn write(&self) -> String {
        let length: usize =
            self.members.iter().map(|(name, value)| name.len() + value.as_str().len() + 4).sum();
        // Exact, but for names with escapes: what has room to spare is moved when it is shared. There are two quotes, a
        // colon and a comma to a member, but for the last one, and two braces.
        let mut text = String::with_capacity(length.max(1).saturating_add(1));
        text.push('{');
        for (at, (name, value)) in self.members.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            quote_into(&mut text, name);
            text.push(':');
            text.push_str(value.as_str());
        }
        text.push('}');
        text
    }

    /// The object as JSON: the very text that it was read from, if nothing was changed.
    pub fn into_text(self) -> Cow<'a, str> {
        self.unchanged.map_or_else(|| Cow::Owned(self.write()), Cow::Borrowed)
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

/// The members that were read so far.
#[derive(Default)]
struct Members<'a> {
    all: Vec<(Text<'a>, Member<'a>)>,
    many: HashSet<Text<'a>>,
    /// The first one that occurs again.
    twice: Option<Text<'a>>,
}

impl<'a> Members<'a> {
    fn add(&mut self, name: Text<'a>, value: Raw<'a>) {
        if occurs(&name, self.all.iter().map(|(earlier, _)| earlier), &mut self.many) {
            self.twice.get_or_insert(name);
        } else {
            self.all.push((name, Member::Kept(value)));
        }
    }
}

/// Whether a member's name is among those of the members before it. Whoever writes an object chooses how many it has, so
/// looking at all of them costs too much: `many` holds them as soon as they are more than a few.
pub(crate) fn occurs<'a, 'b>(
    name: &Text<'a>,
    earlier: impl ExactSizeIterator<Item = &'b Text<'a>>,
    many: &mut HashSet<Text<'a>>,
) -> bool
where
    'a: 'b,
{
    if earlier.len() < FEW {
        return { earlier }.any(|one| one == name);
    }
    if many.is_empty() {
        many.extend(earlier.cloned());
    }
    !many.insert(name.clone())
}

/// The value at a path of members, as it was written.
pub fn at<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(json, |json, name| Object::read(json).ok()?.original(name))
}

/// A JSON text that is a string, decoded.
pub fn string(json: &str) -> Option<Text<'_>> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        // What has neither quotes nor escapes is what it says.
        Some(inner) if scan::plain(inner.as_bytes()) == inner.len() => Some(inner.into()),
        _ if json.trim_ascii_start().starts_with('"') => serde_json::from_str(json).ok(),
        // To be told so by the reader takes a hundred times as long.
        _ => None,
    }
}

/// A string as JSON.
pub fn quote(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    quote_into(&mut json, text);
    json
}

fn quote_into(json: &mut String, text: &str) {
    if scan::plain(text.as_bytes()) == text.len() {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&Value::from(text).to_string());
    }
}

/// The most elements of an array that is taken apart: a place is kept for each, also for those that are two bytes long. There
/// are servers with tens of thousands of resources, and none with as many.
const MAX_ELEMENTS: usize = 256 * 1024;

/// The elements of an array, as they were written.
pub fn elements(json: &str) -> Result<Vec<&str>, serde_json::Error> {
    scan::elements(json, MAX_ELEMENTS).map_err(serde_json::Error::custom)
}

/// The elements of an array that a client has written, which has no more of them than an object may have members.
pub(crate) fn few_elements(json: &str) -> Result<Vec<&str>, serde_json::Error> {
    scan::elements(json, scan::MAX_MEMBERS).map_err(serde_json::Error::custom)
}

/// Texts as a JSON array.
pub fn array<'a>(elements: impl IntoIterator<Item = impl Into<Cow<'a, str>>>) -> String {
    let mut json = String::from("[");
    for (at, element) in elements.into_iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        json.push_str(&element.into());
    }
    json.push(']');
    json
}

/// Changes the elements of an array. Each becomes any number of elements; the text comes back borrowed if every one
/// came back alone and borrowed.
pub fn edit_elements<'a, E>(
    json: &'a str,
    no_array: impl FnOnce(serde_json::Error) -> E,
    mut change: impl FnMut(&'a str) -> Result<Vec<Cow<'a, str>>, E>,
) -> Result<Cow<'a, str>, E> {
    let (mut changed, mut all) = (false, Vec::new());
    for element in elements(json).map_err(no_array)? {
        let edited = change(element)?;
        changed |= !matches!(edited.as_slice(), [Cow::Borrowed(_)]);
        all.extend(edited);
    }
    Ok(if changed { Cow::Owned(array(all)) } else { Cow::Borrowed(json) })
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
    fn what_is_not_changed_is_not_written_anew() {
        let text = r#"{ "a" : [ 1, {"x":2} ], "\u0062":3 }"#;
        let mut object = Object::read(text).unwrap();
        object
            .edit("a", |list| edit_elements(list, |error| error, |element| Ok(vec![element.into()])))
            .unwrap();
        assert!(!object.remove("c"));
        assert!(matches!(object.clone().into_text(), Cow::Borrowed(same) if same == text));
        object.edit_all(|value| Ok::<_, serde_json::Error>(value.into())).unwrap();
        assert!(matches!(object.clone().into_text(), Cow::Borrowed(same) if same == text));
        let twice = |element: &'static str| Ok(vec![element.into(), element.into()]);
        object.edit("a", |list| edit_elements(list, |error| error, twice)).unwrap();
        assert_eq!(object.clone().into_text(), r#"{"a":[1,1,{"x":2},{"x":2}],"b":3}"#);
        // What has been changed already is left alone.
        let wrap = |value: &'static str| Ok::<_, serde_json::Error>(format!("[{value}]").into());
        object.edit_all(wrap).unwrap();
        assert_eq!(object.into_text(), r#"{"a":[1,1,{"x":2},{"x":2}],"b":[3]}"#);
        assert!(edit_elements("{}", |error| error, |_| Ok(vec![])).is_err());
    }

    #[test]
    fn strings_are_quoted_as_json_wants_it() {
        for text in ["", "plain", "q\"uote", "back\\slash", "line\nend", "\u{7f}\u{e9}\u{1f600}\u{2028}"] {
            assert_eq!(string(&quote(text)).as_deref(), Some(text));
            assert_eq!(string(&format!(" {}\n", quote(text))).as_deref(), Some(text));
        }
        for other in ["7", "null", "[\"s\"]", "", " ", "\"half", "\"\\u12\"", "\"one\"two\""] {
            assert_eq!(string(other), None, "{other}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test may know the time")]
    fn many_members_take_no_longer_each() {
        let members: Vec<String> = (1..scan::MAX_MEMBERS).map(|number| format!("\"{number}\":0")).collect();
        let all = members.join(",");
        let begin = std::time::Instant::now();
        for _ in 0..40 {
            Object::read(&format!("{{{all}}}")).unwrap();
            assert!(Object::read(&format!("{{{all},\"7\":1}}")).is_err());
        }
        // Seconds with the slowest of machines; the square of the number would take minutes with the fastest.
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }

    #[test]
    fn arrays_without_end_are_not_taken_apart() {
        let many = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(elements(&many(MAX_ELEMENTS)).unwrap().len(), MAX_ELEMENTS);
        let more = many(MAX_ELEMENTS + 1);
        assert!(elements(&more).is_err());
        assert!(edit_elements(&more, |error| error, |element| Ok(vec![element.into()])).is_err());
    }

    #[test]
    fn arrays_and_doubles_are_refused() {
        let late: Vec<String> = (0..40).map(|number| format!("\"{}\":0", number.min(38))).collect();
        let late = format!("{{{}}}", late.join(","));
        for text in ["[1]", "null", r#"{"a":1,"\u0061":2}"#, &late] {
            assert!(Object::read(text).is_err(), "{text}");
        }
    }
}
