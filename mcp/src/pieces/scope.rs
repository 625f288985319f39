//! Streaming edits of who may keep a result: [`crate::passing::private`] does the same to whole ones.

use std::borrow::Cow;

use memchr::memchr2;

use super::is_name;

/// Has one response say that nobody but its client may keep it, wherever it says something else. What says nothing of it
/// is not to be kept at all.
#[derive(Debug, Default)]
pub struct ScopeInPieces {
    /// How many objects and arrays are open.
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// The object that is open in the outermost one is the result.
    in_result: bool,
    /// What comes is the name of a member, of the message or of its result, if it is a string.
    expects_name: bool,
    /// That name without its first quote, as far as it has come: as much of it as tells which it is.
    name: Option<Vec<u8>>,
    /// Which member's value comes.
    named: Option<Member>,
    /// The value that is left out, as far as it is known.
    left_out: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Result,
    Scope,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Awaited,
    /// A number or a word, which ends before what follows it.
    Plain,
    /// What ends with its own last byte.
    Closed,
}

const RESULT: &str = "result";
const SCOPE: &str = "cacheScope";
const PRIVATE: &[u8] = br#""private""#;

/// The longest way to write either, with its last quote: each letter can be an escape.
const MAX_NAME: usize = SCOPE.len() * r"\u0000".len() + 1;

impl ScopeInPieces {
    /// What to pass on for the next piece.
    pub fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        // From where on the piece goes as it is.
        let mut from = 0;
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(byte) = piece.get(at).copied() {
            if let Some(value) = self.left_out {
                at += self.leave_out(value, byte, piece.get(at..).unwrap_or_default());
                if self.left_out.is_none() {
                    from = at;
                }
                continue;
            }
            at += self.skip(byte, piece.get(at..).unwrap_or_default());
            if self.left_out.is_some() {
                out.extend_from_slice(piece.get(from..at).unwrap_or_default());
                out.extend_from_slice(PRIVATE);
                from = piece.len();
            }
        }
        if self.left_out.is_some() {
            return Cow::Owned(out);
        }
        if out.is_empty() && from == 0 {
            return Cow::Borrowed(piece);
        }
        out.extend_from_slice(piece.get(from..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Goes on in the value that is left out. Says by how much.
    fn leave_out(&mut self, value: Value, byte: u8, rest: &[u8]) -> usize {
        match value {
            Value::Awaited if byte.is_ascii_whitespace() => 1,
            Value::Awaited => {
                let closed = matches!(byte, b'"' | b'{' | b'[');
                self.left_out = Some(if closed { Value::Closed } else { Value::Plain });
                0
            }
            Value::Plain => {
                let is_behind = byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']');
                self.left_out = self.left_out.filter(|_| !is_behind);
                usize::from(!is_behind)
            }
            Value::Closed => {
                let by = self.skip(byte, rest);
                let is_open = self.in_string || !self.is_among_members();
                self.left_out = self.left_out.filter(|_| is_open);
                by
            }
        }
    }

    /// Goes on where nothing is left out. Says by how much.
    fn skip(&mut self, byte: u8, rest: &[u8]) -> usize {
        if self.in_string {
            if self.name.is_none() && !self.is_escaped && !matches!(byte, b'"' | b'\\') {
                return memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
            }
            self.go_on_in_string(byte);
            return 1;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.name = std::mem::take(&mut self.expects_name).then(Vec::new);
            }
            b'{' | b'[' => {
                let is_object = byte == b'{';
                let is_result = self.named.take() == Some(Member::Result);
                self.in_result |= is_object && is_result && self.depth == 1;
                self.depth += 1;
                self.expects_name = is_object && self.is_among_members();
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.in_result &= self.depth > 1;
                self.expects_name = false;
            }
            b',' => (self.named, self.expects_name) = (None, self.is_among_members()),
            b':' if self.is_among_members() && self.named == Some(Member::Scope) => {
                (self.named, self.left_out) = (None, Some(Value::Awaited));
            }
            _ => {}
        }
        1
    }

    /// Whether what comes is a member of the message or of its result, and in nothing else.
    fn is_among_members(&self) -> bool {
        self.depth == 1 || self.depth == 2 && self.in_result
    }

    fn go_on_in_string(&mut self, byte: u8) {
        let was_escaped = self.is_escaped;
        self.is_escaped = !was_escaped && byte == b'\\';
        self.in_string = was_escaped || byte != b'"';
        if let Some(name) = self.name.as_mut().filter(|name| name.len() <= MAX_NAME) {
            name.push(byte);
        }
        if !self.in_string
            && let Some(name) = self.name.take()
        {
            let is = |of| name.len() <= MAX_NAME && is_name(&name, of);
            self.named = match self.depth {
                1 if is(RESULT) => Some(Member::Result),
                2 if is(SCOPE) => Some(Member::Scope),
                _ => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passing::private;

    /// What comes of a message that is cut at these places.
    fn passed(message: &str, cuts: &[usize]) -> String {
        let mut scope = ScopeInPieces::default();
        let (mut out, mut from) = (Vec::new(), 0);
        for cut in cuts.iter().copied().chain([message.len()]) {
            out.extend_from_slice(&scope.push(&message.as_bytes()[from..cut]));
            from = cut;
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn it_says_what_whole_results_do_whatever_is_cut() {
        for message in [
            r#"{"jsonrpc":"2.0","id":1,"result":{"cacheScope":"public","ttlMs":7,"contents":[{"text":"\"cacheScope\":\"public\" \\"}]}}"#,
            r#"{"result":{"contents":[{"cacheScope":"a"},["cacheScope","b"],{"result":{"cacheScope":"c"}}],"cacheScope":"public"},"id":1}"#,
            r#" { "id" : "result" , "result" : { "a" : [ ] , "cacheScope" : "pub\"lic\\" } , "x" : { "cacheScope" : 1 } } "#,
            r#"{"r\u0065sult":{"cache\u0053cope":"public"},"id":1}"#,
            r#"{"result":{"cacheScope":null,"a":1}}"#,
            r#"{"result":{"a":1,"cacheScope":-1.0e3}}"#,
            "{\"result\":{\"cacheScope\":true\n}}",
            r#"{"result":{"cacheScope":{"cacheScope":"}","a":["\\",{}]},"b":"cacheScope"}}"#,
            r#"{"result":{"cacheScope":[["]"],{"cacheScope":2}],"b":":"}}"#,
            r#"{"result":{"cacheScope":"private"}}"#,
            r#"{"result":{"contents":[],"ttlMs":0}}"#,
            r#"{"error":{"code":1,"message":"m","data":{"cacheScope":"public"}},"id":1}"#,
            r#"{"cacheScope":"public","result":{"":"","cacheScop":"a","cacheScopes":"b"}}"#,
            r#"{"result":"cacheScope","id":":"}"#,
            r#"{"result":["cacheScope",{"cacheScope":"public"}],"x":{"cacheScope":1}}"#,
        ] {
            let expected = private(message).ok().flatten().unwrap_or_else(|| message.to_owned());
            let expected: serde_json::Value = serde_json::from_str(&expected).unwrap();
            for first in 0..=message.len() {
                for second in first..=message.len() {
                    let said = passed(message, &[first, second]);
                    let is_same =
                        serde_json::from_str(&said).is_ok_and(|said: serde_json::Value| said == expected);
                    assert!(is_same, "{message} cut at {first}, {second}: {said}");
                }
            }
        }
    }

    #[test]
    fn nobody_finds_another_one() {
        for (message, expected) in [
            (
                r#"{"result":{"cacheScope":"private","cacheScope":"public"}}"#,
                r#"{"result":{"cacheScope":"private","cacheScope":"private"}}"#,
            ),
            (
                r#"{"result":{"cacheScope":"a"},"result":{"x":[],"cacheScope":"b"}}"#,
                r#"{"result":{"cacheScope":"private"},"result":{"x":[],"cacheScope":"private"}}"#,
            ),
        ] {
            assert_eq!(passed(message, &[]), expected);
        }
    }

    #[test]
    fn what_says_nothing_of_it_is_not_copied() {
        let mut scope = ScopeInPieces::default();
        assert!(matches!(scope.push(br#"{"result":{"text":"aaa"#), Cow::Borrowed(_)));
        assert!(matches!(scope.push(br#"aaa\n","cacheScope""#), Cow::Borrowed(_)));
        assert_eq!(&*scope.push(br#":"publ"#), br#":"private""#);
        assert_eq!(&*scope.push(b"i"), b"");
        assert_eq!(&*scope.push(br#"c""#), b"");
        assert!(matches!(scope.push(b"}}"), Cow::Borrowed(_)));
    }
}
