//! One pass over JSON, one layer deep: where the members of an object and the elements of an array begin and end.
//!
//! What is in them is checked to be JSON and not looked into. Every message is read so, some of them several times, so
//! this makes nothing but places in the text. `serde_json` decodes the little that has to be decoded.

use crate::Text;

/// How deep values may be nested. The readers here do not recurse; those of servers often do.
pub(crate) const MAX_DEPTH: usize = 128;

/// The most members of an object. What is known of each while an object is read takes far more memory than the shortest
/// have bytes, so a message of nothing else would take up many times its length.
pub(crate) const MAX_MEMBERS: usize = 16_384;

/// JSON as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    #[cfg(test)]
    pub(crate) fn of(json: &'a str) -> Self {
        Self(json)
    }

    /// The text, without white space around it.
    pub fn get(self) -> &'a str {
        self.0
    }
}

/// Why a text cannot be gone over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It is not JSON, or neither an object nor an array, whichever was to be there.
    #[error("this is not the JSON that was expected")]
    NotJson,
    /// More than [`MAX_DEPTH`] values are open at once.
    #[error("this is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// More members or elements than these.
    #[error("this has more than {0} members")]
    TooMany(usize),
}

/// Goes over the members of an object.
pub(crate) fn members<'a>(text: &'a str, mut each: impl FnMut(Text<'a>, Raw<'a>)) -> Result<(), Fault> {
    let mut scan = Scan { text, at: 0 };
    let mut count = 0;
    scan.expect(b'{')?;
    if scan.token() != Some(b'}') {
        loop {
            count += 1;
            if count > MAX_MEMBERS {
                return Err(Fault::TooMany(MAX_MEMBERS));
            }
            let name = scan.name()?;
            // The object is open too.
            each(name, scan.value(MAX_DEPTH - 1)?);
            if scan.token() != Some(b',') {
                break;
            }
            scan.at += 1;
        }
    }
    scan.expect(b'}')?;
    scan.end()
}

/// The elements of an array, which may have so many. To this reader each of them may be nested as deep as if it stood
/// alone.
pub(crate) fn elements(text: &str, most: usize) -> Result<Vec<&str>, Fault> {
    let mut all = Vec::new();
    let mut scan = Scan { text, at: 0 };
    scan.expect(b'[')?;
    if scan.token() != Some(b']') {
        loop {
            if all.len() == most {
                return Err(Fault::TooMany(most));
            }
            all.push(scan.value(MAX_DEPTH)?.get());
            if scan.token() != Some(b',') {
                break;
            }
            scan.at += 1;
        }
    }
    scan.expect(b']')?;
    scan.end()?;
    Ok(all)
}

/// A place in a text.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

/// The values that are open around a place: whether each is an object, the innermost one last.
struct Open {
    depth: usize,
    limit: usize,
    are_objects: u128,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek();
        self.at += usize::from(byte.is_some());
        byte
    }

    /// The next byte that is no white space. It stays the next one.
    fn token(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other,
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Fault> {
        if self.token() != Some(byte) {
            return Err(Fault::NotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Nothing more may come.
    fn end(&mut self) -> Result<(), Fault> {
        if self.token().is_none() { Ok(()) } else { Err(Fault::NotJson) }
    }

    /// The name of a member, decoded, and the colon behind it.
    fn name(&mut self) -> Result<Text<'a>, Fault> {
        self.token();
        let begin = self.at;
        let has_escapes = self.string()?;
        let quoted = &self.text[begin..self.at];
        self.expect(b':')?;
        if has_escapes {
            serde_json::from_str(quoted).map_err(|_| Fault::NotJson)
        } else {
            Ok(Text::from(&quoted[1..quoted.len() - 1]))
        }
    }

    /// The whole of the value that comes next, in which so many may be open at once.
    fn value(&mut self, limit: usize) -> Result<Raw<'a>, Fault> {
        self.token();
        let begin = self.at;
        let mut open = Open { depth: 0, limit, are_objects: 0 };
        'value: loop {
            match self.token() {
                Some(b'"') => drop(self.string()?),
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(bracket @ (b'{' | b'[')) => {
                    self.at += 1;
                    let is_object = bracket == b'{';
                    open.push(is_object)?;
                    if self.token() != Some(if is_object { b'}' } else { b']' }) {
                        self.skip_name(is_object)?;
                        continue;
                    }
                }
                _ => return Err(Fault::NotJson),
            }
            // Here a value has ended, or what is in an empty one.
            while let Some(is_object) = open.innermost() {
                match self.token() {
                    Some(b',') => {
                        self.at += 1;
                        self.skip_name(is_object)?;
                        continue 'value;
                    }
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    _ => return Err(Fault::NotJson),
                }
                self.at += 1;
                open.pop();
            }
            return Ok(Raw(&self.text[begin..self.at]));
        }
    }

    /// In an object there is a name before each value.
    fn skip_name(&mut self, is_object: bool) -> Result<(), Fault> {
        if is_object {
            self.token();
            self.string()?;
            self.expect(b':')?;
        }
        Ok(())
    }

    /// A string. Says whether there are escapes in it.
    fn string(&mut self) -> Result<bool, Fault> {
        if self.next() != Some(b'"') {
            return Err(Fault::NotJson);
        }
        let mut has_escapes = false;
        loop {
            self.at += plain(&self.text.as_bytes()[self.at..]);
            match self.next() {
                Some(b'"') => return Ok(has_escapes),
                Some(b'\\') => self.escape()?,
                // A control character, or no end.
                _ => return Err(Fault::NotJson),
            }
            has_escapes = true;
        }
    }

    /// What follows a backslash. Whether four digits are a character decides who decodes them.
    fn escape(&mut self) -> Result<(), Fault> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') if (0..4).all(|_| self.next().is_some_and(|digit| digit.is_ascii_hexdigit())) => {
                Ok(())
            }
            _ => Err(Fault::NotJson),
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.next() {
            // More digits would be no number, and are no end of a value either.
            Some(b'0') => {}
            Some(b'1'..=b'9') => drop(self.digits()),
            _ => return Err(Fault::NotJson),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), Fault> {
        let begin = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(Fault::NotJson) }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(Fault::NotJson);
        }
        self.at += word.len();
        Ok(())
    }
}

impl Open {
    fn push(&mut self, is_object: bool) -> Result<(), Fault> {
        if self.depth >= self.limit {
            return Err(Fault::TooDeep);
        }
        self.depth += 1;
        self.are_objects = self.are_objects << 1 | u128::from(is_object);
        Ok(())
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.are_objects >>= 1;
    }

    /// Whether the innermost one is an object. None: nothing is open.
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.are_objects & 1 == 1)
    }
}

/// How many bytes of a string stand for themselves before the first one that does not. Strings are most of what there
/// is, so many bytes are looked at at a time: words while it may be a short one, then blocks that the compiler has vectors
/// for.
pub(crate) fn plain(bytes: &[u8]) -> usize {
    const BLOCK: usize = 64;
    let Some((start, rest)) = bytes.split_first_chunk::<BLOCK>() else { return plain_words(bytes) };
    let known = plain_words(start);
    if known < BLOCK {
        return known;
    }
    let is_plain =
        |block: &&[u8; BLOCK]| block.iter().fold(0, |any, byte| any | u8::from(is_special(*byte))) == 0;
    let (blocks, _) = rest.as_chunks();
    let known = BLOCK + blocks.iter().take_while(is_plain).count() * BLOCK;
    known + plain_words(&bytes[known..])
}

/// The same for few bytes.
fn plain_words(bytes: &[u8]) -> usize {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const TOP: u64 = EACH * 0x80;
    // The top bits of the bytes below this one, and perhaps of some behind the first of them.
    let below = |limit: u8, word: u64| word.wrapping_sub(EACH * u64::from(limit)) & !word & TOP;
    let same = |byte: u8, word: u64| below(1, word ^ (EACH * u64::from(byte)));
    let (words, rest) = bytes.as_chunks();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let special = below(b' ', word) | same(b'"', word) | same(b'\\', word);
        if special != 0 {
            return at * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().take_while(|byte| !is_special(**byte)).count()
}

/// Whether a byte of a string ends it, begins an escape, or may not be there.
fn is_special(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, Fault> {
        let mut all = Vec::new();
        members(text, |name, value| all.push((name.into_owned(), value.get().to_owned()))).map(|()| all)
    }

    #[test]
    fn members_and_elements_are_found_as_they_were_written() {
        let text =
            " { \"a\\u0062\" : [ 1 , {\"x\":\"]\\\"\"} ] ,\"\":-0.5e+10, \"\u{e9}\":\"\u{1f600}\"}\r\n";
        let expected = [("ab", "[ 1 , {\"x\":\"]\\\"\"} ]"), ("", "-0.5e+10"), ("\u{e9}", "\"\u{1f600}\"")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(elements("[ true,null , [],{} ]", 4).unwrap(), ["true", "null", "[]", "{}"]);
        assert_eq!(read("{}").unwrap(), []);
        for text in
            ["", "{", "[]", "null", "{} x", "{,}", "{\"a\":1,}", "{\"a\" 1}", "{a:1}", "{\"\\ud800\":1}"]
        {
            assert_eq!(read(text), Err(Fault::NotJson), "{text}");
        }
    }

    /// Whatever one reader takes the other does, with the same bytes.
    #[test]
    fn it_takes_what_serde_takes() {
        let whole = r#"[0,-1,2.50,1e9,1E-7,"a\n\u00e9\ud83d\/","",true,false,null,{},[],{"k":[{"l":"v"},[[]]],"m":0.0}]"#;
        let wrong = [
            "", " ", "\t", "\u{1}", "\"", "\\", "\\u12", "0", "-", ".", "e", "+", ",", ":", "{", "}", "[",
            "]",
        ];
        let mut texts = vec![whole.to_owned()];
        for at in 0..whole.len() {
            texts.push(whole[..at].to_owned());
            for piece in wrong {
                texts.push([&whole[..at], piece, &whole[at..]].concat());
                texts.push([&whole[..at], piece, &whole[at + 1..]].concat());
            }
        }
        let mut taken = 0;
        for text in texts {
            let mine = elements(&text, usize::MAX).ok();
            let theirs = serde_json::from_str::<Vec<&RawValue>>(&text).ok();
            assert_eq!(mine, theirs.map(|all| all.into_iter().map(RawValue::get).collect()), "{text}");
            taken += usize::from(mine.is_some());
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn strings_of_any_length_end_where_they_end() {
        for length in (0..70).chain(120..140) {
            for special in ["", "\\\"", "\u{e9}", "\\u0041"] {
                let text = format!("{{\"a\":\"{}{special}{}\"}}", "x".repeat(length), "y".repeat(length % 7));
                let value: Value = serde_json::from_str(&text).unwrap();
                let read = read(&text).unwrap();
                assert_eq!(serde_json::from_str::<Value>(&read[0].1).unwrap(), value["a"], "{text}");
            }
            let broken = format!("{{\"a\":\"{}\n\"}}", "x".repeat(length));
            assert_eq!(read(&broken), Err(Fault::NotJson));
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let most = MAX_DEPTH - 1;
        assert!(read(&nested(most)).is_ok());
        assert_eq!(read(&nested(most + 1)), Err(Fault::TooDeep));
        let element = format!("[{},1]", nested(most));
        assert!(elements(&element, 2).is_ok());
    }

    #[test]
    fn numbers_are_bounded() {
        let members = |count: usize| format!("{{{}}}", vec!["\"a\":0"; count].join(","));
        assert_eq!(read(&members(MAX_MEMBERS)).unwrap().len(), MAX_MEMBERS);
        // All of it would have to be gone over to know whether it is JSON.
        for text in [members(MAX_MEMBERS + 1), members(MAX_MEMBERS + 1).replace('}', "")] {
            assert_eq!(read(&text), Err(Fault::TooMany(MAX_MEMBERS)));
        }
        for (most, expected) in [(3, Ok(vec!["1", "2", "3"])), (2, Err(Fault::TooMany(2)))] {
            assert_eq!(elements("[1,2,3]", most), expected);
        }
        assert_eq!(elements("[]", 0), Ok(Vec::new()));
    }
}
