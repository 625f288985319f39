//! Streaming edits: responses that come in pieces and are too large to be held. The id is looked at and replaced on the way,
//! wherever in the message it stands, and so is who may keep the result. Nothing else changes, and nothing is kept but what
//! may be the id.

mod scope;

use std::borrow::Cow;

use memchr::memchr2;

use crate::envelope::{Id, MAX_ID, is_json};
use crate::object;

pub use scope::ScopeInPieces;

/// Replaces the id of one response.
#[derive(Debug)]
pub struct IdInPieces {
    from: Box<str>,
    to: Box<str>,
    found: Found,
    part: Part,
    /// How many objects and arrays are open.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// What comes is the name of a member of the message, if it is a string.
    expects_name: bool,
    /// What comes is the id.
    expects_id: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    NotYet,
    /// And replaced.
    This,
    /// It is the answer to something else, or none.
    Another,
}

/// Of what the next byte is a part.
#[derive(Debug)]
enum Part {
    /// The name of a member of the message, without its first quote: as much of it as tells whether that is the id.
    Name(Vec<u8>),
    /// The id, as far as it has come.
    Id(Vec<u8>),
    Other,
}

const NAME: &str = "id";

/// The longest way to write that, with its last quote: each letter can be an escape.
const MAX_NAME: usize = NAME.len() * r"\u0000".len() + 1;

impl IdInPieces {
    /// Has the response to the request of the id `from` say `to`, both as JSON, in whichever way it writes the former.
    pub fn new(from: &str, to: &str) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            found: Found::NotYet,
            part: Part::Other,
            depth: 0,
            in_string: false,
            is_escaped: false,
            expects_name: false,
            expects_id: false,
        }
    }

    /// What to pass on for the next piece.
    pub fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        // Where the id begins in this piece, and from where on the piece goes as it is.
        let (mut id_at, mut from) = (None, 0);
        let (mut out, mut at) = (Vec::new(), 0);
        while let (Found::NotYet, Some(byte)) = (self.found, piece.get(at).copied()) {
            match &mut self.part {
                Part::Other => at += self.skip(byte, piece.get(at..).unwrap_or_default()),
                Part::Name(name) => {
                    if name.len() <= MAX_NAME {
                        name.push(byte);
                    }
                    let ends = self.ends_string(byte);
                    if ends && let Part::Name(name) = std::mem::replace(&mut self.part, Part::Other) {
                        self.expects_id = name.len() <= MAX_NAME && is_name(&name, NAME);
                    }
                    at += 1;
                }
                Part::Id(id) => {
                    let is_first = id.is_empty();
                    if is_first && byte.is_ascii_whitespace() {
                        at += 1;
                        continue;
                    }
                    if is_first {
                        id_at = Some(at);
                        self.in_string = byte == b'"';
                    }
                    // A number ends before what follows it, a string with its last byte.
                    let is_string = id.first().copied().unwrap_or(byte) == b'"';
                    let is_behind = !is_string && matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
                    if !is_behind {
                        id.push(byte);
                        at += 1;
                    }
                    let is_too_long = id.len() > MAX_ID;
                    let ends = is_behind || is_string && !is_first && self.ends_string(byte);
                    if (ends || is_too_long)
                        && let Part::Id(id) = std::mem::replace(&mut self.part, Part::Other)
                    {
                        let said = self.end(&id);
                        // Large as they are, pieces are not copied that need not be.
                        if id_at.is_none() || said != id {
                            out.extend_from_slice(piece.get(..id_at.unwrap_or(0)).unwrap_or_default());
                            out.extend_from_slice(said);
                            from = at;
                        }
                    }
                }
            }
        }
        if matches!(&self.part, Part::Id(id) if !id.is_empty()) {
            return Cow::Owned(piece.get(..id_at.unwrap_or(0)).unwrap_or_default().to_vec());
        }
        if out.is_empty() {
            return Cow::Borrowed(piece);
        }
        out.extend_from_slice(piece.get(from..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Whether the id was there, and was replaced.
    pub fn is_replaced(&self) -> bool {
        self.found == Found::This
    }

    /// Whether another id was there.
    pub fn is_anothers(&self) -> bool {
        self.found == Found::Another
    }

    /// The id has come. Gives what is said in its place.
    fn end<'a>(&'a mut self, id: &'a [u8]) -> &'a [u8] {
        if std::str::from_utf8(id).is_ok_and(|id| answers(id, &self.from)) {
            self.found = Found::This;
            self.to.as_bytes()
        } else {
            self.found = Found::Another;
            id
        }
    }

    /// Goes on where nothing is kept. Says by how much.
    fn skip(&mut self, byte: u8, rest: &[u8]) -> usize {
        if self.in_string {
            if !self.is_escaped && !matches!(byte, b'"' | b'\\') {
                return memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            }
            self.ends_string(byte);
            return 1;
        }
        let outermost = self.depth == 1;
        match byte {
            b'"' => {
                self.in_string = true;
                if outermost && std::mem::take(&mut self.expects_name) {
                    self.part = Part::Name(Vec::new());
                }
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.expects_name = byte == b'{' && self.depth == 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => self.expects_name = outermost,
            b':' if outermost && std::mem::take(&mut self.expects_id) => self.part = Part::Id(Vec::new()),
            _ => {}
        }
        1
    }

    /// Takes a byte of a string, and says whether that ends with it.
    fn ends_string(&mut self, byte: u8) -> bool {
        let was_escaped = self.is_escaped;
        self.is_escaped = !was_escaped && byte == b'\\';
        let ends = !was_escaped && byte == b'"';
        if ends {
            self.in_string = false;
        }
        ends
    }
}

/// Whether a name, of which the first quote is left out, is this one.
fn is_name(name: &[u8], of: &str) -> bool {
    std::str::from_utf8(name)
        .is_ok_and(|name| object::string(&format!("\"{name}")).is_some_and(|name| name.as_str() == of))
}

/// Whether what a response says for its id means the request that was asked under this one, as with whole responses.
fn answers(id: &str, asked: &str) -> bool {
    id.len() <= MAX_ID && is_json(id) && Id::from_json(id).answers(&Id::from_json(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a message that is cut at these places, and whether its id was replaced.
    fn passed(message: &str, cuts: &[usize]) -> (String, bool, bool) {
        passed_for("\"own-1\"", message, cuts)
    }

    /// The same where the request was asked under this id.
    fn passed_for(asked: &str, message: &str, cuts: &[usize]) -> (String, bool, bool) {
        let mut ids = IdInPieces::new(asked, "7");
        let (mut out, mut from) = (Vec::new(), 0);
        for cut in cuts.iter().copied().chain([message.len()]) {
            out.extend_from_slice(&ids.push(&message.as_bytes()[from..cut]));
            from = cut;
        }
        (String::from_utf8(out).unwrap(), ids.is_replaced(), ids.is_anothers())
    }

    #[test]
    fn the_id_is_replaced_wherever_it_stands_and_whatever_is_cut() {
        for message in [
            r#"{"jsonrpc":"2.0","id":"own-1","result":{"id":"own-1","text":"\"id\":\"own-1\" \\"}}"#,
            r#" { "result" : {"content":[{"id":"own-1"},"a\\\"b{["],"id":1}, "x":"id" ,"id" : "own-1" , "jsonrpc":"2.0"}"#,
            r#"{"error":{"code":-1,"message":"{\"id\":"},"id":"own-1"}"#,
            r#"{"result":[],"":"","i":1,"idd":2,"id":"own-1"}"#,
        ] {
            let at = if message.starts_with("{\"jsonrpc") {
                message.find("\"own-1\"").unwrap()
            } else {
                message.rfind("\"own-1\"").unwrap()
            };
            let expected = format!("{}7{}", &message[..at], &message[at + 7..]);
            for first in 0..=message.len() {
                for second in first..=message.len() {
                    assert_eq!(passed(message, &[first, second]), (expected.clone(), true, false));
                }
            }
        }
    }

    #[test]
    fn what_is_no_such_response_keeps_its_bytes() {
        for (message, is_anothers) in [
            (r#"{"id":"own-2","result":{}}"#, true),
            (r#"{"id":"own-12","result":{}}"#, true),
            (r#"{"id":7,"result":{}}"#, true),
            (r#"{"id": 7 }"#, true),
            (r#"{"id":null}"#, true),
            (r#"{"id":{"id":"own-1"}}"#, true),
            (r#"{"result":{"id":"own-1"}}"#, false),
            (r#"[{"id":"own-1"}]"#, false),
            (r#"{"ID":"own-1","idd":"own-1","i\u0065":"own-1"}"#, false),
            (r#"{"x":"id","y":"own-1"}"#, false),
            ("\"id\":\"own-1\"", false),
            ("hello", false),
        ] {
            for cut in 0..=message.len() {
                assert_eq!(passed(message, &[cut]), (message.to_owned(), false, is_anothers), "{cut}");
            }
        }
    }

    #[test]
    fn an_id_is_the_same_however_it_is_written() {
        let long = format!("\"{}\"", "a".repeat(MAX_ID - 2));
        let too_long = format!("\"{}\"", "a".repeat(MAX_ID - 1));
        for (asked, name, id, is_same) in [
            ("5", "id", "5", true),
            ("5", "id", "5.0", true),
            ("5", "id", "50e-1", true),
            ("5", "id", "\"5\"", true),
            ("5", "id", r#""\u0035""#, true),
            ("5", "id", "\"5.0\"", false),
            ("5", "id", "5.5", false),
            ("5", "id", "+5", false),
            ("5", "id", "null", false),
            ("\"5\"", "id", "5", false),
            ("\"ab\"", "id", r#""\u0061b""#, true),
            (r#""\u0061b""#, "id", "\"ab\"", true),
            ("\"ab\"", r"i\u0064", "\"ab\"", true),
            ("\"ab\"", r"\u0069\u0064", "\"ab\"", true),
            (&long, "id", &long, true),
            (&long, "id", &too_long, false),
        ] {
            let message = format!(r#"{{"result":{{"id":9}},"{name}":{id},"jsonrpc":"2.0"}}"#);
            let to = if is_same { "7" } else { id };
            let expected = format!(r#"{{"result":{{"id":9}},"{name}":{to},"jsonrpc":"2.0"}}"#);
            for cut in 0..=message.len() {
                let (text, replaced, anothers) = passed_for(asked, &message, &[cut]);
                assert_eq!((text, replaced, anothers), (expected.clone(), is_same, !is_same), "{asked} {id}");
            }
        }
    }

    #[test]
    fn what_has_no_id_in_it_is_not_copied() {
        let mut ids = IdInPieces::new("1", "2");
        assert!(matches!(ids.push(br#"{"result":{"text":"aaa"#), Cow::Borrowed(_)));
        assert!(matches!(ids.push(br#"aaa\n"}"#), Cow::Borrowed(_)));
        assert_eq!(&*ids.push(br#","id":1"#), br#","id":"#);
        assert_eq!(&*ids.push(b"}"), b"2}");
        assert!(matches!(ids.push(b"\n"), Cow::Borrowed(_)));
        // Nor what says already what it is to say.
        let mut ids = IdInPieces::new("1", "1");
        assert!(matches!(ids.push(br#"{"id":1,"result":{}"#), Cow::Borrowed(_)) && ids.is_replaced());
        let mut ids = IdInPieces::new("1", "1");
        assert_eq!((&*ids.push(br#"{"id":1"#), &*ids.push(b"}")), (&br#"{"id":"#[..], &b"1}"[..]));
    }
}
