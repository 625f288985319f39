//! A stranger's words, cut to size while they are read. What is left out takes no memory any more.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

/// The first `N` of a list, and how many there are.
pub(super) struct First<T, const N: usize> {
    pub(super) kept: Vec<T>,
    pub(super) count: u32,
}

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for First<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Items<T, N> {
            type Value = First<T, N>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<First<T, N>, A::Error> {
                let mut first = First { kept: Vec::new(), count: 0 };
                while first.kept.len() < N {
                    let Some(item) = items.next_element()? else { return Ok(first) };
                    first.kept.push(item);
                    first.count += 1;
                }
                while items.next_element::<IgnoredAny>()?.is_some() {
                    first.count = first.count.saturating_add(1);
                }
                Ok(first)
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// A text of at most `N` bytes.
pub(super) struct Text<const N: usize>(pub(super) String);

impl<'de, const N: usize> Deserialize<'de> for Text<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(deserializer)?;
        cut(&mut text, N);
        Ok(Self(text))
    }
}

/// Cuts a text after so many bytes, between two characters.
pub(super) fn cut(text: &mut String, longest: usize) {
    text.truncate(text.floor_char_boundary(longest));
    // What was cut off would be held as long as the rest.
    text.shrink_to_fit();
}
