//! What globs may hold, for those who write rules and those who match them.

/// Whether a class in a glob (`[ab]`) holds a character that is not of ASCII. Matchers take those byte by byte: `[é]` would
/// stand for a part of other characters, too.
pub fn has_wide_class(glob: &str) -> bool {
    parts(glob).any(|part| matches!(part, Part::OfClass(letter) if !letter.is_ascii()))
}

/// How deeply braces nest, but for those between brackets and behind a backslash, which stand for themselves.
pub fn nesting(glob: &str) -> usize {
    let depth = parts(glob).scan(0_usize, |depth, part| {
        match part {
            Part::Plain('{') => *depth += 1,
            Part::Plain('}') => *depth = depth.saturating_sub(1),
            Part::Plain(_) | Part::OfClass(_) => {}
        }
        Some(*depth)
    });
    depth.max().unwrap_or_default()
}

/// A character that is not behind a backslash.
enum Part {
    Plain(char),
    /// It is between brackets.
    OfClass(char),
}

fn parts(glob: &str) -> impl Iterator<Item = Part> {
    let mut letters = glob.chars().peekable();
    let mut in_class = false;
    std::iter::from_fn(move || {
        loop {
            match letters.next()? {
                ']' if in_class => in_class = false,
                letter if in_class => return Some(Part::OfClass(letter)),
                '\\' => drop(letters.next()),
                '[' => {
                    letters.next_if(|letter| matches!(letter, '!' | '^'));
                    in_class = true;
                    // The first one may be the bracket itself.
                    if let Some(first) = letters.next() {
                        return Some(Part::OfClass(first));
                    }
                }
                letter => return Some(Part::Plain(letter)),
            }
        }
    })
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
