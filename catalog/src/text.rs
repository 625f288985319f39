//! Text of strangers, made fit to be shown: bounded, and without characters that nobody sees or that show the others
//! in another order. It stays text: nothing in it is looked for, followed or rendered.

use unicode_normalization::char::is_combining_mark;

/// More marks on one letter than any language puts there.
const MARKS: usize = 4;

/// One line: line breaks and runs of spaces become one space.
pub(crate) fn line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    for character in visible(text) {
        if character.is_whitespace() {
            if !line.is_empty() && !line.ends_with(' ') {
                line.push(' ');
            }
        } else {
            line.push(character);
        }
        if line.len() > longest {
            return cut(line, longest);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Some lines: line breaks stay.
pub(crate) fn lines(text: &str, longest: usize) -> String {
    let mut lines = String::new();
    for character in visible(text.trim()) {
        lines.push(character);
        if lines.len() > longest {
            return cut(lines, longest);
        }
    }
    lines
}

/// What is seen of a text, as long as it is.
pub(crate) fn seen(text: &str) -> String {
    visible(text).collect()
}

/// Whether a name is shown as it is, so that what people read is what a server is asked for.
pub(crate) fn is_plain(name: &str, longest: usize) -> bool {
    !name.is_empty()
        && name.len() <= longest
        && name.trim() == name
        && !name.contains(['\n', '\t'])
        && visible(name).eq(name.chars())
}

/// Ends a text that is too long with an ellipsis, within its bound.
fn cut(mut text: String, longest: usize) -> String {
    const MORE: &str = "…";
    text.truncate(text.floor_char_boundary(longest.saturating_sub(MORE.len())));
    text.truncate(text.trim_end().len());
    text.push_str(MORE);
    text
}

/// The characters that are seen where they stand, with one kind of line break.
fn visible(text: &str) -> impl Iterator<Item = char> {
    let mut marks = 0;
    let shown = text
        .chars()
        .map(|character| match character {
            '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{b}' | '\u{c}' => '\n',
            other => other,
        })
        .filter(|&character| !is_hidden(character))
        .filter(move |&character| {
            marks = match character {
                joiner if is_joiner(joiner) => marks,
                mark if is_combining_mark(mark) => marks + 1,
                _ => 0,
            };
            marks <= MARKS
        });
    joined(shown)
}

/// Leaves joiners and selectors, which are not seen themselves, where they can change how others are.
fn joined(characters: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let mut characters = characters.peekable();
    let mut before = None;
    std::iter::from_fn(move || {
        loop {
            let character = characters.next()?;
            let stays = match character {
                joiner if is_joiner(joiner) => {
                    let after = characters.peek().copied().filter(|&after| !is_selector(after));
                    before.is_some_and(is_joined) && after.is_some_and(is_joined)
                }
                selector if is_selector(selector) => before.is_some_and(is_selected),
                _ => true,
            };
            if stays {
                before = Some(character);
                return Some(character);
            }
        }
    })
}

/// Scripts and emoji need them, between two others and one at a time.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// Which form of the character before is meant: emoji, and some letters, have several.
fn is_selector(character: char) -> bool {
    matches!(character, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}')
}

/// Whether joiners may stand beside it: the letters before Arabic's, ASCII among them, are never joined.
fn is_joined(character: char) -> bool {
    character >= '\u{600}' && !character.is_whitespace() && !is_joiner(character)
}

fn is_selected(character: char) -> bool {
    !character.is_ascii() && !character.is_whitespace() && !is_joiner(character) && !is_selector(character)
}

/// Control characters, and those that are invisible, change the direction of others, or can carry a message that only
/// programs read.
fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}' => {
            true
        }
        // Fillers, and vowels that are written for programs alone.
        '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff0}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_seen_goes_and_the_rest_stays() {
        for (given, expected) in [
            ("plain", "plain"),
            ("  two   words \r\n here\t", "two words here"),
            ("<script>alert(1)</script> & {{x}}", "<script>alert(1)</script> & {{x}}"),
            ("a\u{202e}gpj.exe\u{202c}", "agpj.exe"),
            ("\u{2066}x\u{2069}\u{200f}y\u{61c}", "xy"),
            ("\u{1b}[31mred\u{0}\u{7f}\u{9b}", "[31mred"),
            ("hid\u{e0068}\u{e0069}den\u{200b}\u{feff}", "hidden"),
            ("b\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}c", "b\u{301}\u{301}\u{301}\u{301}c"),
            ("family 👩\u{200d}👧, नमस्ते, 日本語", "family 👩\u{200d}👧, नमस्ते, 日本語"),
            (
                "❤\u{fe0f}\u{200d}🔥 می\u{200c}خواهم র\u{200d}\u{9cd}য",
                "❤\u{fe0f}\u{200d}🔥 می\u{200c}خواهم র\u{200d}\u{9cd}য",
            ),
            ("\u{200d}a\u{200d}b\u{200c} é\u{200d}é 👩\u{200d} 👩\u{200d}b\u{200d}", "ab éé 👩 👩b"),
            (&format!("x日{}本", "\u{200d}\u{200c}".repeat(650)), "x日\u{200c}本"),
            (
                &format!("b{}", "\u{301}\u{301}\u{301}\u{301}\u{200d}".repeat(9)),
                "b\u{301}\u{301}\u{301}\u{301}",
            ),
            ("a\u{fe0f}\u{fe00}b ©\u{fe0f}\u{fe0e}\u{fe01} \u{3164}\u{17b4}", "ab ©\u{fe0f}"),
            ("one\u{2028}two", "one two"),
        ] {
            assert_eq!(line(given, 100), expected, "{given:?}");
        }
        assert_eq!(lines(" a\r\n\u{202e}b\u{2029}c ", 100), "a\nb\nc");
    }

    #[test]
    fn names_are_shown_as_they_are_or_not_at_all() {
        for (name, expected) in [
            ("get_issue", true),
            ("admin.tools/list-all", true),
            ("日本", true),
            ("", false),
            (" x", false),
            ("a\nb", false),
            ("a\u{202e}b", false),
            ("a\u{200b}b", false),
            ("send\u{200d}_mail", false),
            ("send_mail\u{200c}", false),
            ("send\u{fe0f}_mail", false),
            ("日\u{200d}\u{200d}本", false),
            ("日\u{200d}b", false),
            ("می\u{200c}خواهم", true),
            ("too long a name", false),
        ] {
            assert_eq!(is_plain(name, 14 + 6), expected || name == "too long a name", "{name:?}");
        }
        assert!(!is_plain("too long a name", 14));
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_its_bound_or_dirty_after_cleaning(text in "\\PC*|.*", longest in 3_usize..64) {
            for cleaned in [line(&text, longest), lines(&text, longest)] {
                prop_assert!(cleaned.len() <= longest);
                prop_assert!(cleaned.chars().all(|character| !is_hidden(character)));
                prop_assert_eq!(seen(&cleaned), cleaned);
            }
        }
    }
}
