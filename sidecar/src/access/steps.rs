//! A glob as steps through a text. A server may have some ten thousand globs, each of which is asked about names of a few
//! letters, and all of them have to fit into a sidecar beside all else: an automaton for each would not.
//!
//! What a glob means is said by its regular expression, which is globset's. Here it is only followed.

use globset::{ErrorKind, Glob};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};
use regex_syntax::utf8::Utf8Sequences;

use super::glob::NoGlob;

/// A glob.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<Step>,
    /// Whether there is a choice between some of them, as in `{a,b}`.
    fork: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A byte of these.
    Byte(u8, u8),
    /// Any bytes, as many as are wanted.
    Any,
    /// Goes on with the next step, or with that one.
    Fork(u16),
    /// Goes on with that one.
    To(u16),
}

/// No byte.
const NEVER: Step = Step::Byte(1, 0);

/// Where in the steps a text may have led. One is used for many globs.
#[derive(Default)]
pub(super) struct Walk {
    /// After the bytes so far, and after the next one.
    now: Vec<usize>,
    next: Vec<usize>,
    /// How many bytes there were when each step was come to last, counted from 1.
    seen: Vec<usize>,
    /// Those still to be come to.
    ahead: Vec<usize>,
}

impl Steps {
    /// The steps of a glob.
    pub(super) fn of(glob: &Glob) -> Result<Self, NoGlob> {
        let mut parser = ParserBuilder::new().utf8(false).dot_matches_new_line(true).build();
        let parsed = parser.parse(glob.regex()).map_err(|error| unreadable(error.to_string()))?;
        let mut steps = Self::default();
        steps.add(&parsed)?;
        steps.steps.shrink_to_fit();
        steps.fork = steps.steps.iter().any(|step| matches!(step, Step::Fork(_)));
        Ok(steps)
    }

    /// Whether they lead through the whole text.
    pub(super) fn lead_through(&self, text: &[u8], walk: &mut Walk) -> bool {
        if self.fork { walk.leads_through(&self.steps, text) } else { piece_by_piece(&self.steps, text) }
    }

    fn add(&mut self, part: &Hir) -> Result<(), NoGlob> {
        match part.kind() {
            // The whole text is meant in any case.
            HirKind::Empty | HirKind::Look(Look::Start | Look::End) => {}
            HirKind::Look(look) => return Err(unreadable(format!("{look:?} is nothing of a glob"))),
            HirKind::Literal(bytes) => self.steps.extend(bytes.0.iter().map(|byte| Step::Byte(*byte, *byte))),
            HirKind::Class(Class::Bytes(class)) => self.either(class.ranges(), |steps, range| {
                steps.steps.push(Step::Byte(range.start(), range.end()));
                Ok(())
            })?,
            // What `{a,b}` is read as.
            HirKind::Class(Class::Unicode(class)) => {
                let ranges = class.ranges().iter();
                let letters: Vec<_> =
                    ranges.flat_map(|range| Utf8Sequences::new(range.start(), range.end())).collect();
                self.either(&letters, |steps, letter| {
                    steps.steps.extend(letter.as_slice().iter().map(|byte| Step::Byte(byte.start, byte.end)));
                    Ok(())
                })?;
            }
            HirKind::Repetition(repetition) if is_any(repetition) => self.steps.push(Step::Any),
            HirKind::Repetition(repetition) => self.repeat(repetition)?,
            HirKind::Capture(capture) => self.add(&capture.sub)?,
            HirKind::Concat(parts) => parts.iter().try_for_each(|part| self.add(part))?,
            HirKind::Alternation(parts) => self.either(parts, |steps, part| steps.add(part))?,
        }
        Ok(())
    }

    /// One of these.
    fn either<T>(
        &mut self,
        parts: &[T],
        add: impl Fn(&mut Self, &T) -> Result<(), NoGlob>,
    ) -> Result<(), NoGlob> {
        let Some((last, others)) = parts.split_last() else {
            self.steps.push(NEVER);
            return Ok(());
        };
        let mut ends = Vec::new();
        for part in others {
            let fork = self.later();
            add(self, part)?;
            ends.push(self.later());
            self.steps[fork] = Step::Fork(self.here()?);
        }
        add(self, last)?;
        let here = self.here()?;
        ends.into_iter().for_each(|end| self.steps[end] = Step::To(here));
        Ok(())
    }

    fn repeat(&mut self, repetition: &Repetition) -> Result<(), NoGlob> {
        for _ in 0..repetition.min {
            self.add(&repetition.sub)?;
        }
        let Some(max) = repetition.max else {
            let (again, fork) = (self.here()?, self.later());
            self.add(&repetition.sub)?;
            self.steps.push(Step::To(again));
            self.steps[fork] = Step::Fork(self.here()?);
            return Ok(());
        };
        for _ in repetition.min..max {
            let fork = self.later();
            self.add(&repetition.sub)?;
            self.steps[fork] = Step::Fork(self.here()?);
        }
        Ok(())
    }

    /// The next step to be added.
    fn here(&self) -> Result<u16, NoGlob> {
        u16::try_from(self.steps.len()).map_err(|_| unreadable("it is too long".to_owned()))
    }

    /// A step that is not known yet.
    fn later(&mut self) -> usize {
        self.steps.push(NEVER);
        self.steps.len() - 1
    }
}

impl Walk {
    /// Whether the steps lead through the whole text, by whichever way.
    fn leads_through(&mut self, steps: &[Step], text: &[u8]) -> bool {
        self.seen.clear();
        self.seen.resize(steps.len() + 1, 0);
        self.next.clear();
        let mut ends = self.come_to(steps, 0, 1);
        for (at, byte) in (2..).zip(text) {
            std::mem::swap(&mut self.now, &mut self.next);
            self.next.clear();
            ends = false;
            while let Some(step) = self.now.pop() {
                let next = match steps[step] {
                    Step::Byte(from, to) if (from..=to).contains(byte) => step + 1,
                    Step::Any => step,
                    _ => continue,
                };
                ends |= self.come_to(steps, next, at);
            }
            if !ends && self.next.is_empty() {
                return false;
            }
        }
        ends
    }

    /// Notes a step that the text has led to, and those that need no byte from there. Says whether the end is among them.
    fn come_to(&mut self, steps: &[Step], step: usize, at: usize) -> bool {
        let mut ends = false;
        self.ahead.push(step);
        while let Some(step) = self.ahead.pop() {
            if std::mem::replace(&mut self.seen[step], at) == at {
                continue;
            }
            match steps.get(step) {
                Some(Step::Byte(..)) => self.next.push(step),
                Some(Step::Any) => {
                    self.next.push(step);
                    self.ahead.push(step + 1);
                }
                Some(Step::Fork(other)) => self.ahead.extend([usize::from(*other), step + 1]),
                Some(Step::To(other)) => self.ahead.push(usize::from(*other)),
                None => ends = true,
            }
        }
        ends
    }
}

/// The same where there is one way: what is between any bytes may as well be where it is found first.
fn piece_by_piece(steps: &[Step], text: &[u8]) -> bool {
    let mut pieces = steps.split(|step| *step == Step::Any);
    let first = pieces.next().unwrap_or_default();
    let Some((begin, rest)) = text.split_at_checked(first.len()).filter(|(begin, _)| fits(first, begin))
    else {
        return false;
    };
    let Some(last) = pieces.next_back() else { return begin.len() == text.len() };
    let Some(end) = rest.len().checked_sub(last.len()).filter(|end| fits(last, &rest[*end..])) else {
        return false;
    };
    let mut rest = &rest[..end];
    pieces.filter(|piece| !piece.is_empty()).all(|piece| {
        let found = rest.windows(piece.len()).position(|bytes| fits(piece, bytes));
        found.inspect(|at| rest = &rest[at + piece.len()..]).is_some()
    })
}

/// Whether as many bytes are those that the steps want.
fn fits(steps: &[Step], bytes: &[u8]) -> bool {
    let is = |(step, byte): (&Step, &u8)| matches!(step, Step::Byte(from, to) if (from..=to).contains(&byte));
    steps.iter().zip(bytes).all(is)
}

/// Whether it is any bytes, as many as are wanted.
fn is_any(repetition: &Repetition) -> bool {
    let HirKind::Class(Class::Bytes(class)) = repetition.sub.kind() else { return false };
    let is_all = matches!(class.ranges(), [range] if (range.start(), range.end()) == (0, u8::MAX));
    is_all && (repetition.min, repetition.max) == (0, None)
}

fn unreadable(why: String) -> NoGlob {
    NoGlob::Syntax(ErrorKind::Regex(why))
}

#[cfg(test)]
mod tests {
    use globset::Candidate;
    use proptest::prelude::*;

    use super::*;
    use crate::access::glob;

    fn leads_through(glob: &str, text: &str) -> bool {
        let steps = Steps::of(&glob::read(glob).unwrap()).unwrap();
        steps.lead_through(text.as_bytes(), &mut Walk::default())
    }

    #[test]
    fn any_bytes_may_be_none_and_no_way_is_lost() {
        for (glob, text, leads) in [
            ("get_*", "get_", true),
            ("get_*", "get", false),
            ("*_b", "a_b_b", true),
            ("*_b", "a_b_", false),
            ("*a*b?", "aabb", true),
            ("*a*b?", "aab", false),
            ("{*a,b}c*", "xacac", true),
            ("{a*,b}{c*,}d", "axd", true),
            ("{a*,b}{c*,}d", "bxd", false),
            ("a/**/b", "a/b", true),
            ("**", "", true),
        ] {
            assert_eq!(leads_through(glob, text), leads, "{glob} {text:?}");
        }
    }

    #[test]
    fn long_texts_come_to_their_end_however_many_ways_there_are() {
        let text = "ab".repeat(4 << 10);
        for glob in ["*a*b*a*b*a*b*a*b*c", "*a????????????????????c", "{,a}{,b}{*a,*b}{*a,*b}{a*,b*}c"] {
            assert!(!leads_through(glob, &text), "{glob}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn globs_stand_for_what_they_do_for_globset(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "b", "/", "*", "*", "?", "**", "/**/", "**/", "[ab]", "[!a]", "[a-z-]", "[]a]", "{", "}",
                    ",", "{a,}", "{a,b}", "{é,è}", "\\*", "\\{", "é", "!",
                ]),
                0..9,
            ),
            texts in prop::collection::vec("[ab/*{}éè,\n!-]{0,8}", 24),
        ) {
            let glob = parts.concat();
            if let Ok(read) = glob::read(&glob) {
                let (globset, steps) = (read.compile_matcher(), Steps::of(&read).unwrap());
                let mut walk = Walk::default();
                for text in texts {
                    let expected = globset.is_match_candidate(&Candidate::from_bytes(text.as_bytes()));
                    let leads = steps.lead_through(text.as_bytes(), &mut walk);
                    prop_assert_eq!(leads, expected, "{:?} {:?}", glob, text);
                }
            }
        }
    }
}
