//! What globs may hold, for those who write rules and those who match them.

/// Whether a class in a glob (`[ab]`) holds a character that is not of ASCII. Matchers take those byte by byte: `[é]` would
/// stand for a part of other characters, too.
pub fn has_wide_class(glob: &str) -> bool {
    let mut letters = glob.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '[' => {
                let mut first = letters.next();
                if let Some('!' | '^') = first {
                    first = letters.next();
                }
                // The first one may be the bracket itself.
                let mut class = first.into_iter().chain(letters.by_ref().take_while(|letter| *letter != ']'));
                if class.any(|letter| !letter.is_ascii()) {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_a_class_counts() {
        for (glob, wide) in [
            ("é*", false),
            ("[a-z]é", false),
            ("\\[é]", false),
            ("[]]é", false),
            ("[!]]é[b]", false),
            ("{é,[a]}", false),
            ("[é]*", true),
            ("a[!é]", true),
            ("[]é]", true),
            ("[a][b-é]", true),
            ("{a,[^é]}", true),
            ("[é", true),
        ] {
            assert_eq!(has_wide_class(glob), wide, "{glob}");
        }
    }
}
