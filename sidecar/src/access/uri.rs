//! What servers make of a URI: often something else than what is written, and it is that which a caller gets.

use std::cell::OnceCell;
use std::iter;

/// How often a URI is decoded, since what is decoded may be encoded still: nobody means one that is even after that.
const DECODINGS: usize = 2;

/// Whether those who parse URIs would make something else of this one: they strip white space and control characters,
/// take a backslash for a slash, and resolve the segments `.` and `..`. Some decode all of that before, more than
/// once, or drop what follows a semicolon. Then no glob over the URI as it is written says anything about it.
pub(super) fn is_ambiguous(uri: &str) -> bool {
    let rewritten = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '\\';
    let is_ascii = |letter: char| letter.is_ascii();
    let decoded = decodings(uri, is_ascii).pop().unwrap_or_default();
    uri.contains(rewritten)
        || decoded.contains(char::is_control)
        || decoded.split(['/', '\\', '?', '#', ':']).any(|segment| {
            let name = segment.split(';').next().unwrap_or(segment);
            matches!(name.trim(), "." | "..")
        })
        || decoded_once(&decoded, is_ascii) != decoded
}

/// What servers do to a URI, by the mark that has them do it. Those who parse it drop the fragment, and often the query and what
/// follows a semicolon in a segment. They decode it, some of them before that and more than once, and then may take a backslash
/// for a slash; and for a file system an empty segment is none.
const MARKS: [char; 6] = ['%', '\\', '#', '?', ';', '/'];

/// Which of [`MARKS`], a bit for each.
pub(super) type Marks = u8;

/// A URI that globs are held against.
pub(super) struct Uri<'a> {
    pub(super) text: &'a str,
    readings: OnceCell<Vec<(Marks, String)>>,
}

impl<'a> Uri<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, readings: OnceCell::new() }
    }

    /// Whatever a server may take it for beside what is written: there may be a hundred of them, which are made once for all
    /// globs that ask for them.
    pub(super) fn readings(&self) -> &[(Marks, String)] {
        self.readings.get_or_init(|| readings(self.text))
    }
}

fn readings(uri: &str) -> Vec<(Marks, String)> {
    let mut readings = Vec::new();
    // However often it is decoded: a slash that still is encoded ends no segment.
    for (times, decoded) in decodings(uri, has_meaning).iter().enumerate() {
        let has_backslash = with_slashes(decoded) != *decoded;
        let is_there = |mark: &char| match mark {
            '%' => false,
            '\\' => has_backslash,
            // To drop what follows a semicolon may leave such a segment.
            '/' => has_backslash || decoded.contains(';') || without_empty_segments(decoded) != *decoded,
            mark => decoded.contains(*mark),
        };
        let there = MARKS.iter().enumerate().filter(|(_, mark)| is_there(mark));
        let there = there.fold(0, |there: Marks, (bit, _)| there | 1 << bit);
        let some = (0..1 << MARKS.len()).filter(|some: &Marks| some & !there == 0);
        // `%` is the first mark.
        let is_decoded = Marks::from(times > 0);
        readings.extend(some.map(|some| (some | is_decoded, read(decoded, some, false))));
    }
    readings.retain(|(_, reading)| reading != uri);
    readings
}

/// A URI, or a glob over URIs, as it is once that is done.
pub(super) fn read(text: &str, marks: Marks, is_glob: bool) -> String {
    let some = MARKS.iter().enumerate().filter(|(bit, _)| marks & (1 << bit) != 0);
    some.fold(text.to_owned(), |text, (_, mark)| match mark {
        // What was encoded stands for no other byte; what was not does.
        '%' if is_glob => decoded(&text.replace('?', "\0")).replace('?', "\\?").replace('\0', "?"),
        '%' => decoded(&text),
        '\\' => with_slashes(&text),
        ';' => without_parameters(&text),
        '/' => without_empty_segments(&text),
        '?' if is_glob => query_of(&text).map_or(text.as_str(), |at| &text[..at]).to_owned(),
        mark => text.split(*mark).next().unwrap_or_default().to_owned(),
    })
}

/// Where a glob speaks of a query: at a `?` that is escaped (a URI with a backslash before it matches none), or has a
/// parameter's name or a last star behind it. Any other stands for a byte, and what is before it says nothing of the rest.
fn query_of(glob: &str) -> Option<usize> {
    glob.match_indices('?').find_map(|(at, _)| {
        let (before, behind) = (&glob[..at], &glob[at + 1..]);
        let name = behind.split_once('=').map_or("", |(name, _)| name);
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if before.ends_with('\\') {
            Some(at - 1)
        } else {
            (behind == "*" || !name.is_empty() && name.bytes().all(is_of_name)).then_some(at)
        }
    })
}

/// A URI whose segments end at their first semicolon.
fn without_parameters(uri: &str) -> String {
    let mut is_parameter = false;
    let is_left = |letter: &char| {
        is_parameter = *letter == ';' || is_parameter && !matches!(letter, '/' | '?' | '#');
        !is_parameter
    };
    uri.chars().filter(is_left).collect()
}

/// A URI with one slash wherever there are several, but behind its scheme.
fn without_empty_segments(uri: &str) -> String {
    let behind = uri.find("://").map_or(0, |scheme| scheme + 3);
    let mut before = None;
    let is_left = |(at, letter): &(usize, char)| {
        let is_second = *at > behind && *letter == '/' && before == Some('/');
        before = Some(*letter);
        !is_second
    };
    uri.char_indices().filter(is_left).map(|(_, letter)| letter).collect()
}

/// A URI in which an encoded backslash is a slash.
fn with_slashes(uri: &str) -> String {
    uri.replace("%5c", "/").replace("%5C", "/")
}

/// What means something to those who take a URI apart, or is the same encoded or not (RFC 3986, 2.3).
fn has_meaning(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '%' | '-' | '.' | '_' | '~' | '/' | '?' | '#' | ';')
}

/// A URI in which nothing is encoded that [has a meaning](has_meaning).
fn decoded(uri: &str) -> String {
    decodings(uri, has_meaning).pop().unwrap_or_default()
}

/// A URI, and what it becomes each time that these letters are decoded in it, as long as that is something else.
fn decodings(uri: &str, is_decoded: impl Fn(char) -> bool) -> Vec<String> {
    let again = |uri: &String| Some(decoded_once(uri, &is_decoded)).filter(|decoded| decoded != uri);
    iter::successors(Some(uri.to_owned()), again).take(1 + DECODINGS).collect()
}

fn decoded_once(uri: &str, is_decoded: impl Fn(char) -> bool) -> String {
    let mut parts = uri.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let letter = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).map(char::from);
        match letter.filter(|letter| is_decoded(*letter)) {
            Some(letter) => decoded.extend([letter].into_iter().chain(part.chars().skip(2))),
            None => decoded.extend(['%'].into_iter().chain(part.chars())),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_ambiguous_that_can_be_read_in_two_ways() {
        for (uri, is_one) in [
            ("file:///public/a", true),
            ("file:///public/a.txt", true),
            ("file:///public/.hidden", true),
            ("file:///public/a..b/c.", true),
            ("file:///public/...", true),
            ("file:///public/%2e%2e%2e", true),
            ("file:///public/%2egit", true),
            ("file:///public/%20a", true),
            ("file:///public/{name}", true),
            ("file:///public/\u{e9}", true),
            ("file:///public/../private/x", false),
            ("file:///public/..", false),
            ("file:///public/.", false),
            ("file:///public/./x", false),
            ("file:///public/a/../../private/x", false),
            ("file:///public/..?x", false),
            ("file:///public/..#x", false),
            ("file:///public/%2e%2e/private/x", false),
            ("file:///public/%2E./private/x", false),
            ("file:///public/.%2e/private/x", false),
            ("file:///public/%2E", false),
            ("file:///public/..%2Fprivate", false),
            ("file:///public/a%5c..%5cprivate", false),
            ("file:///public/a%2fb", true),
            ("file:///public/..;/private/x", false),
            ("file:///public/..;a=b/private/x", false),
            ("file:///public/..%3b/private/x", false),
            ("file:///public/a;b..", true),
            ("file:///public/;..", true),
            ("file:///public/%252e%252e/private/x", false),
            ("file:///public/..%252Fprivate", false),
            ("file:///public/%25252e./private/x", false),
            ("file:///public/%25%32%65%25%32%65/private/x", false),
            ("file:///public/%2%65./private/x", false),
            ("file:///public/%%32e./private/x", false),
            ("file:///public/..%25%32%66private", false),
            ("file:///public/..%3fx", false),
            ("file:///public/.%09./private/x", false),
            ("file:///public/..%20", false),
            ("file:///public/%25%34%31", true),
            ("file:///public/%%%3341", false),
            ("file:///public/%252541", false),
            ("file:///public/%2541", true),
            ("file:///public/%%%%%%%%%%33333333341", false),
            ("file:///public/%+2e", true),
            ("file:///public/a%00", false),
            ("file:///public/100%25", true),
            ("file:///public/%2525a", true),
            ("file:///public/.\t./private/x", false),
            ("file:///public/.\r\n./private/x", false),
            ("file:///public/a\u{0}", false),
            ("file:///public/a\u{7f}", false),
            ("file:///public/a b", false),
            ("file:///public/a\u{a0}b", false),
            ("file:///public/..\\private", false),
            ("file:///public/a\\b", false),
            ("file:///public/{name}/../x", false),
        ] {
            assert_eq!(is_ambiguous(uri), !is_one, "{uri:?}");
        }
    }
}
