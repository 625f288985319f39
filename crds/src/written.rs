//! What a manifest says in places without a schema of their own, kept as text.
//!
//! As a tree of values a hostile text would be a hundred times as large: each `{"a":1}` is a map that has room for
//! eleven. All manifests are in the operator's memory, so each costs what it weighs, and of one that weighs too much
//! only that is kept.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// JSON of any form. Equal if it was written in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written(Option<Arc<str>>);

impl Written {
    /// So many bytes of JSON may be written in one place.
    pub const MOST_BYTES: usize = 128 * 1024;
    /// So many values: objects, lists, and what is in them.
    pub const MOST_VALUES: usize = 8192;

    /// What was written, in the one way in which it is ever read. `None`: more than may be.
    pub fn value(&self) -> Option<serde_json::Result<Value>> {
        self.0.as_deref().map(serde_json::from_str)
    }
}

/// What the names of objects begin with that the JSON library reads as something else: as the value that is written in the
/// string beside it. Others who read the same text would see nothing of that value.
const NOT_AS_WRITTEN: &str = "$serde_json::private::";

impl Serialize for Written {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().transpose().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writer = Writer::default();
        writer.deserialize(deserializer)?;
        Ok(Self((!writer.is_full).then(|| writer.text.into())))
    }
}

/// Writes down what it is shown, until that is too much.
#[derive(Default)]
struct Writer {
    text: String,
    values: usize,
    is_full: bool,
}

impl Writer {
    fn write(&mut self, text: &str) {
        self.is_full |= self.text.len().saturating_add(text.len()) > Written::MOST_BYTES;
        if self.is_full {
            self.text = String::new();
        } else {
            self.text.push_str(text);
        }
    }

    fn write_value(&mut self, value: impl Serialize) {
        if !self.is_full {
            // No number and no text is without its JSON.
            self.write(&serde_json::to_string(&value).unwrap_or_default());
        }
    }

    fn write_text(&mut self, text: &str) {
        // Each character is at least a byte of JSON.
        if text.len() > Written::MOST_BYTES {
            self.is_full = true;
        }
        self.write_value(text);
    }
}

impl<'de> DeserializeSeed<'de> for &mut Writer {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.values += 1;
        self.is_full |= self.values > Written::MOST_VALUES;
        if self.is_full {
            self.text = String::new();
            // Not as what is ignored, which would be taken for a field that nobody knows.
            return deserializer.deserialize_any(IgnoredAny).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Writer {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.write("null");
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.write_value(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.write_value(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.write_value(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.write_value(value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.write_text(value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.write("[");
        let mut between = "";
        loop {
            let before = self.text.len();
            self.write(between);
            if seq.next_element_seed(&mut *self)?.is_none() {
                // Nothing came after the comma.
                self.text.truncate(before);
                break;
            }
            between = ",";
        }
        self.write("]");
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.write("{");
        let mut between = "";
        while let Some(key) = map.next_key::<String>()? {
            if key.starts_with(NOT_AS_WRITTEN) {
                return Err(A::Error::custom(format_args!("no field may be called {key:?}")));
            }
            self.write(between);
            self.write_text(&key);
            self.write(":");
            map.next_value_seed(&mut *self)?;
            between = ",";
        }
        self.write("}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_kept_word_for_word() {
        for value in [
            json!({"spec": {"containers": [{"name": "server", "env": [{"name": "A", "value": "\"\\\n\u{1}é"}]}]}}),
            json!({"a": [], "b": {}, "c": [[1, -2, 0.5], null, true], "\"": u64::MAX}),
            json!({}),
            json!([{"name": "a"}]),
        ] {
            let text = value.to_string();
            let written: Written = serde_json::from_str(&text).unwrap();
            assert_eq!(written.0.as_deref(), Some(&*text));
            assert_eq!(serde_json::to_value(&written).unwrap(), value);
            assert_eq!(serde_json::from_value::<Written>(value).unwrap(), written, "however it comes");
        }
    }

    #[test]
    fn what_would_be_read_as_something_else_is_refused() {
        let key = "$serde_json::private::RawValue";
        for (value, kept) in [
            (json!({"spec": {key: "{\"volumes\":[]}"}}), false),
            (json!([{"a": 1, key: 2}]), false),
            (json!({"$serde_json::private::Number": "1"}), false),
            (json!({"$patch": key}), true),
        ] {
            let text = value.to_string().replace(":private", "\\u003aprivate");
            assert_eq!(serde_json::from_str::<Written>(&text).is_ok(), kept, "{text}");
            assert_eq!(serde_json::from_value::<Written>(value).is_ok(), kept, "{text}");
        }
    }

    #[test]
    fn of_what_is_too_much_nothing_is_kept() {
        let longest = Written::MOST_BYTES - 2;
        for (value, kept) in [
            (json!("a".repeat(longest)), true),
            (json!("a".repeat(longest + 1)), false),
            (json!("\n".repeat(longest)), false),
            (json!(vec![1; Written::MOST_VALUES - 1]), true),
            (json!(vec![1; Written::MOST_VALUES]), false),
            (json!({"a": vec![json!({"a": 1}); 100_000], "b": {"c": []}}), false),
            (json!({"a": "a".repeat(longest), "b": [[{}]]}), false),
        ] {
            let text = value.to_string();
            let written: Written = serde_json::from_str(&text).unwrap();
            assert_eq!(written.value().is_some(), kept, "{} bytes: {}", text.len(), &text[..20]);
        }
    }
}
