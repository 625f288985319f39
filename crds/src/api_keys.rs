//! API keys: what a Secret that people write holds.
//!
//! Each data name of the Secret is a principal. Its value holds lines: `sha256:<64 hex digits>` or a plain key. Blank
//! lines and lines that begin with `#` are skipped. From here on only hashes exist; no message repeats a line.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use k8s_openapi::ByteString;
use longshore_sidecar_config::ApiKey;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// Shorter plain keys could be guessed.
const SHORTEST_PLAIN_KEY: usize = 16;
/// Longer ones do not fit a header.
const LONGEST_PLAIN_KEY: usize = 1024;
/// So many bytes of keys, as [`bytes`] counts them, fit the Secret that Longshore makes of them, of which the API server
/// takes 1 MiB. Of more it could make none, so no key that is taken away would stop working either.
const ROOM: usize = (1 << 20) - 8192;
/// So many problems are told of a Secret that may have a million of them.
const MOST_PROBLEMS: usize = 8;
/// The principal of callers who need no key. No key may stand for it.
pub const ANONYMOUS: &str = "anonymous";

/// The keys of a Secret, and what is wrong with the rest of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedKeys {
    /// Every usable key, sorted.
    pub keys: Vec<ApiKey>,
    /// What was left out, in the order of the data names: the first few, and how many more there are.
    pub problems: Vec<KeyProblem>,
}

/// Why a line, a data name or a Secret holds no usable key. Never says what the line is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyProblem {
    /// The Secret has no data at all.
    #[error("it has no data: add one entry per principal, which holds that principal's keys, one a line")]
    Empty,
    /// An entry without a key.
    #[error("data {principal:?} holds no key: add one (`longshore key new` makes one) or remove the entry")]
    NoKeys {
        /// The data name.
        principal: String,
    },
    /// The name that stands for callers without a key.
    #[error("data {ANONYMOUS:?} names the principal of callers without a key: choose another name")]
    Anonymous,
    /// The value is not text.
    #[error("data {principal:?} is not UTF-8 text")]
    NotText {
        /// The data name.
        principal: String,
    },
    /// A line that is no key.
    #[error("line {line} of data {principal:?} is not a key: {because}")]
    BadLine {
        /// The data name.
        principal: String,
        /// Counted from one.
        line: usize,
        /// What a key looks like.
        because: &'static str,
    },
    /// One key in the hands of two principals: nobody could say who calls, so it is good for neither.
    #[error(
        "data {first:?} and data {second:?} hold the same key, which therefore works for neither: give each its own"
    )]
    Shared {
        /// One data name.
        first: String,
        /// The other.
        second: String,
    },
    /// More keys than can be handed to those who check them.
    #[error(
        "it holds {count} keys, and only {taken} of them work, the first in the order of their data names: take away \
         those that nobody uses"
    )]
    TooMany {
        /// How many there are.
        count: usize,
        /// How many work.
        taken: usize,
    },
    /// What else is wrong, beside what is told.
    #[error("{count} more of its lines and entries are wrong")]
    More {
        /// How many.
        count: usize,
    },
}

/// Whose a key is.
enum Holder<'a> {
    One(&'a str),
    Two(&'a str, &'a str),
}

/// What is wrong, as much as people can read.
#[derive(Default)]
struct Problems {
    first: Vec<KeyProblem>,
    more: usize,
}

// === impl ParsedKeys ===

impl ParsedKeys {
    /// Reads the data of a Secret.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Self {
        if data.is_empty() {
            return Self { keys: Vec::new(), problems: vec![KeyProblem::Empty] };
        }
        let mut problems = Problems::default();
        let mut holders: BTreeMap<String, Holder<'_>> = BTreeMap::new();
        for (principal, value) in data {
            if principal == ANONYMOUS {
                problems.push(|| KeyProblem::Anonymous);
                continue;
            }
            let Ok(text) = std::str::from_utf8(&value.0) else {
                problems.push(|| KeyProblem::NotText { principal: principal.clone() });
                continue;
            };
            let mut found = false;
            for (index, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                found = true;
                match hash_of_line(line) {
                    Ok(hash) => match holders.entry(hash) {
                        Entry::Vacant(free) => {
                            free.insert(Holder::One(principal));
                        }
                        Entry::Occupied(mut held) => held.get_mut().add(principal),
                    },
                    Err(because) => problems.push(|| KeyProblem::BadLine {
                        principal: principal.clone(),
                        line: index + 1,
                        because,
                    }),
                }
            }
            if !found {
                problems.push(|| KeyProblem::NoKeys { principal: principal.clone() });
            }
        }
        let mut keys = Vec::new();
        for (sha256, holder) in holders {
            match holder {
                Holder::One(principal) => keys.push((principal, sha256)),
                Holder::Two(first, second) => problems
                    .push(|| KeyProblem::Shared { first: first.to_owned(), second: second.to_owned() }),
            }
        }
        keys.sort();
        let mut problems = problems.told();
        let mut room = ROOM;
        let fits = |(principal, _): &&(&str, String)| match room.checked_sub(bytes(principal)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let taken = keys.iter().take_while(fits).count();
        if taken < keys.len() {
            // Said first: it is what is new where a key that was just added does not work.
            problems.insert(0, KeyProblem::TooMany { count: keys.len(), taken });
            keys.truncate(taken);
        }
        let keys =
            keys.into_iter().map(|(principal, sha256)| ApiKey { principal: principal.to_owned(), sha256 });
        Self { keys: keys.collect(), problems }
    }
}

// === impl Holder ===

impl<'a> Holder<'a> {
    fn add(&mut self, principal: &'a str) {
        match *self {
            Self::One(first) if first != principal => *self = Self::Two(first, principal),
            Self::One(_) | Self::Two(..) => {}
        }
    }
}

// === impl Problems ===

impl Problems {
    fn push(&mut self, problem: impl FnOnce() -> KeyProblem) {
        if self.first.len() < MOST_PROBLEMS {
            self.first.push(problem());
        } else {
            self.more += 1;
        }
    }

    fn told(self) -> Vec<KeyProblem> {
        let mut told = self.first;
        if self.more > 0 {
            told.push(KeyProblem::More { count: self.more });
        }
        told
    }
}

/// What a key of this principal takes where keys are handed on: its hash, the name, and the words around both.
fn bytes(principal: &str) -> usize {
    principal.len() + 96
}

/// What is kept of a key, and compared with what callers send: its SHA-256 as 64 lower-case hexadecimal digits.
pub fn hash(key: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(key.as_bytes()).iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash_of_line(line: &str) -> Result<String, &'static str> {
    // Whoever writes it in capitals does not mean that the hash is the key.
    if let Some((_, hash)) = line.split_once(':').filter(|(kind, _)| kind.eq_ignore_ascii_case("sha256")) {
        let hash = hash.to_ascii_lowercase();
        return if hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(hash)
        } else {
            Err("after `sha256:` come 64 hexadecimal digits, the SHA-256 of the key")
        };
    }
    if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a key has no spaces and only visible ASCII characters, since it travels in a header");
    }
    if line.len() < SHORTEST_PLAIN_KEY {
        return Err("a key has at least 16 characters; `longshore key new` makes one of 256 random bits");
    }
    if line.len() > LONGEST_PLAIN_KEY {
        return Err("a key has at most 1024 characters");
    }
    Ok(hash(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "a-plain-key-of-some-length";

    fn parse(data: &[(&str, &str)]) -> ParsedKeys {
        let data = data
            .iter()
            .map(|(name, text)| ((*name).to_owned(), ByteString(text.as_bytes().to_vec())))
            .collect();
        ParsedKeys::from_data(&data)
    }

    fn key(principal: &str, plain: &str) -> ApiKey {
        ApiKey { principal: principal.to_owned(), sha256: hash(plain) }
    }

    #[test]
    fn reads_plain_keys_and_hashes_several_a_principal() {
        let hash = format!("SHA256:{}", hash("another-key-of-some-length").to_ascii_uppercase());
        let parsed =
            parse(&[("ada", &format!("# laptop\n{PLAIN}\r\n\n{hash}\n")), ("ci", "the-key-of-the-pipeline")]);
        let mut expected = vec![
            key("ada", PLAIN),
            key("ada", "another-key-of-some-length"),
            key("ci", "the-key-of-the-pipeline"),
        ];
        expected.sort();
        assert_eq!(parsed, ParsedKeys { keys: expected, problems: vec![] });
    }

    #[test]
    fn says_where_a_key_is_wrong_and_keeps_the_others() {
        for (data, complaint) in [
            (vec![], "it has no data"),
            (vec![("ada", PLAIN), ("bob", "\n# nothing yet\n")], "data \"bob\" holds no key"),
            (vec![("ada", PLAIN), ("anonymous", "some-key-of-some-length")], "data \"anonymous\""),
            (vec![("ada", &*format!("{PLAIN}\nsha256:1234\n"))], "line 2 of data \"ada\""),
            (vec![("ada", &*format!("short\n{PLAIN}"))], "line 1 of data \"ada\""),
            (vec![("ada", PLAIN), ("bob", "two words are not one key")], "line 1 of data \"bob\""),
            (
                vec![("ada", PLAIN), ("bob", "shared-by-two-people"), ("eve", "shared-by-two-people")],
                "data \"bob\" and data \"eve\" hold the same key",
            ),
        ] {
            let parsed = parse(&data);
            let expected: Vec<_> = if data.is_empty() { vec![] } else { vec![key("ada", PLAIN)] };
            assert_eq!(parsed.keys, expected, "{data:?}");
            assert_eq!(parsed.problems.len(), 1, "{data:?}: {:?}", parsed.problems);
            let message = parsed.problems[0].to_string();
            assert!(message.contains(complaint), "{message}");
            assert!(
                data.iter()
                    .all(|(_, text)| text.lines().all(|line| !message.contains(line) || line.is_empty()))
            );
        }
    }

    /// One Secret in a namespace of a tenant must not fill the memory of the process that reads it.
    #[test]
    fn tells_the_first_problems_and_how_many_more_there_are() {
        let name = "n".repeat(253);
        let parsed = parse(&[("ada", PLAIN), (&name, &"x\n".repeat(500_000))]);
        assert_eq!(parsed.keys, [key("ada", PLAIN)]);
        assert_eq!(parsed.problems.len(), MOST_PROBLEMS + 1);
        assert!(matches!(&parsed.problems[0], KeyProblem::BadLine { line: 1, .. }));
        assert_eq!(parsed.problems[MOST_PROBLEMS], KeyProblem::More { count: 500_000 - MOST_PROBLEMS });
    }

    #[test]
    fn takes_the_first_of_too_many_keys_and_says_so() {
        let keys = |holder: &str, count: usize| -> String {
            (0..count).map(|number| format!("a-key-of-{holder}-{number:08}\n")).collect()
        };
        let most = ROOM / bytes("ada");
        assert!(most > 10_000, "that should do for most: {most}");
        let parsed = parse(&[("ada", &keys("ada", most)), ("bob", "two words are no key")]);
        assert_eq!(parsed.keys.len(), most);
        assert!(matches!(parsed.problems[..], [KeyProblem::BadLine { .. }]));
        let both = format!("{PLAIN}\n{}", keys("ada", most - 2));
        let parsed = parse(&[("ada", &both), ("bob", &keys("bob", 9)), ("eve", PLAIN)]);
        assert_eq!(parsed.keys.len(), most);
        assert_eq!(parsed.keys.iter().filter(|key| key.principal == "bob").count(), 2);
        // A key of two works for neither, be one of them among those that do not count.
        assert!(parsed.keys.iter().all(|key| key.sha256 != hash(PLAIN)));
        let [too_many, KeyProblem::Shared { .. }] = &parsed.problems[..] else {
            panic!("{:?}", parsed.problems)
        };
        let message = too_many.to_string();
        let words = format!("it holds {} keys, and only {most} of them work", most + 7);
        assert!(message.contains(&words), "{message}");
    }
}
