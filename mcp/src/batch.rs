//! Batches: several messages in one JSON array. Only 2025-03-26 has them.
//!
//! A batch is refused as a whole or taken as a whole. JSON-RPC would answer each element that is no message with an
//! error without an id, but an error of that revision needs an id, so there is nothing to say to one element alone.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-03-26/basic#batching>

use thiserror::Error;

use crate::envelope::{self, Id, Malformed, Message};
use crate::method::Method;
use crate::object::array;
use crate::revision::Revision;
use crate::scan::{self, Fault};

/// The most messages in a batch. Each may be a call, so whoever sends one could otherwise exceed every limit on calls
/// with one request.
pub const MAX_MESSAGES: usize = 64;
/// The most that are taken out of one of a server's.
const MAX_PARTS: usize = 1024;

/// What a body holds.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// One message.
    One(Message<'a>),
    /// Several.
    Batch(Batch<'a>),
}

/// Several messages that came together: requests and notifications, or responses.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    messages: Vec<(Message<'a>, &'a str)>,
}

/// Why an array is no batch.
#[derive(Debug, Error)]
pub enum BadBatch {
    /// It has no elements.
    #[error("a batch has to have at least one message")]
    Empty,
    /// It has too many.
    #[error("a batch may have {MAX_MESSAGES} messages at most")]
    TooLong,
    /// It has responses and something else.
    #[error("a batch has either responses or requests and notifications")]
    Mixed,
    /// Two of its requests have the same id: nobody could tell their answers apart.
    #[error("two requests of a batch have the same \"id\"")]
    SameId,
    /// It holds the handshake, which the revision of the batch would depend on.
    #[error("initialize cannot be part of a batch")]
    Initialize,
    /// An element is no message.
    #[error("message {at} of the batch: {why}")]
    Element {
        /// Which one, beginning with 1.
        at: usize,
        /// What it lacks.
        why: Malformed,
    },
    /// The body as a whole is no message and no batch.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads a body in a conversation of this revision.
pub fn read(body: &[u8], revision: Revision) -> Result<Body<'_>, BadBatch> {
    match envelope::read(body) {
        Ok(message) => Ok(Body::One(message)),
        Err(Malformed::Batch) if revision.features().batches => Batch::read(body).map(Body::Batch),
        Err(malformed) => Err(malformed.into()),
    }
}

/// The messages of a batch that a server has written, each as it stands there. `None`: it is none, or the server's
/// revision has none. That is also so before the revision is known: the handshake is no part of a batch.
///
/// 2024-11-05 does not say that there are none, as JSON-RPC has them. The bounds on what clients send do not hold here,
/// and answers may come with questions. A batch in a batch is none, and is left out.
pub fn parts(said: &[u8], revision: Option<Revision>) -> Option<Vec<&str>> {
    let may_be = revision.is_some_and(|revision| revision <= Revision::V2025_03_26);
    if !may_be || !is_array(said) {
        return None;
    }
    let elements = scan::elements(std::str::from_utf8(said).ok()?, MAX_PARTS).ok()?;
    Some(elements.into_iter().filter(|element| !is_array(element.as_bytes())).collect())
}

/// Whether data is an array, which is a message in no revision.
pub fn is_array(said: &[u8]) -> bool {
    said.trim_ascii_start().first() == Some(&b'[')
}

/// The answers to a batch, as they arrive. There is one for each request, whatever becomes of it.
#[derive(Debug)]
pub struct Answers {
    ids: Vec<String>,
    answers: Vec<Option<String>>,
}

// === impl Batch ===

impl<'a> Batch<'a> {
    /// Reads an array of messages.
    pub fn read(body: &'a [u8]) -> Result<Self, BadBatch> {
        let text = std::str::from_utf8(body).map_err(|_| Malformed::NotJson)?;
        let texts = scan::elements(text, MAX_MESSAGES).map_err(|fault| match fault {
            Fault::TooMany(_) => BadBatch::TooLong,
            Fault::NotJson | Fault::TooDeep => BadBatch::Malformed(fault.into()),
        })?;
        if texts.is_empty() {
            return Err(BadBatch::Empty);
        }
        let mut messages = Vec::with_capacity(texts.len());
        for (at, text) in texts.into_iter().enumerate() {
            let message =
                envelope::read(text.as_bytes()).map_err(|why| BadBatch::Element { at: at + 1, why })?;
            messages.push((message, text));
        }
        let batch = Self { messages };
        let responses = batch.iter().filter(|(message, _)| matches!(message, Message::Response(_))).count();
        if responses != 0 && responses != batch.messages.len() {
            return Err(BadBatch::Mixed);
        }
        let is_handshake = |message: &Message<'_>| matches!(message, Message::Request(request) if request.is(Method::Initialize));
        if batch.iter().any(|(message, _)| is_handshake(message)) {
            return Err(BadBatch::Initialize);
        }
        let ids: Vec<Id<'_>> = batch.iter().filter_map(|(message, _)| message.request_id()).collect();
        if ids.iter().enumerate().any(|(at, id)| ids[..at].iter().any(|earlier| earlier.is(id))) {
            return Err(BadBatch::SameId);
        }
        Ok(batch)
    }

    /// The messages, each with its text.
    pub fn iter(&self) -> impl Iterator<Item = &(Message<'a>, &'a str)> {
        self.messages.iter()
    }

    /// A place for each answer that this batch wants, which [`Answers::take`] fills. `None` if it has no requests: then nothing is
    /// answered at all.
    pub fn answers(&self) -> Option<Answers> {
        let ids: Vec<String> = self
            .iter()
            .filter_map(|(message, _)| message.request_id())
            .map(|id| id.as_json().to_owned())
            .collect();
        (!ids.is_empty()).then(|| Answers { answers: vec![None; ids.len()], ids })
    }
}

// === impl Answers ===

impl Answers {
    /// Takes an answer, and says whether it was wanted: not, if nothing with this id was asked or it was answered.
    pub fn take(&mut self, id: Id<'_>, response: String) -> bool {
        let Some(at) = self.ids.iter().position(|asked| Id::from_json(asked).is(&id)) else { return false };
        if self.answers[at].is_some() {
            return false;
        }
        self.answers[at] = Some(response);
        true
    }

    /// Whether all are there.
    pub fn is_complete(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    /// The answers that are there, one by one, in the order of the requests.
    pub fn into_answers(self) -> impl Iterator<Item = String> {
        self.answers.into_iter().flatten()
    }

    /// The answers that are there, as one array, in the order of the requests.
    pub fn write(&self) -> String {
        array(self.answers.iter().flatten().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    const TOLD: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    fn refusal(body: &str) -> String {
        read(body.as_bytes(), Revision::V2025_03_26)
            .map_or_else(|error| error.to_string(), |_| "taken".to_owned())
    }

    #[test]
    fn batches_are_taken_or_refused_as_a_whole() {
        let initialize = r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}"#;
        let same = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        for (body, expected) in [
            (CALL.to_owned(), "taken"),
            (format!(" [ {CALL} , {TOLD}\n]"), "taken"),
            (format!("[{TOLD}]"), "taken"),
            (format!("[{ANSWER},{ANSWER}]"), "taken"),
            ("[]".to_owned(), "a batch has to have at least one message"),
            (format!("[{CALL},{ANSWER}]"), "a batch has either responses or requests and notifications"),
            (format!("[{CALL},{initialize}]"), "initialize cannot be part of a batch"),
            (format!("[{CALL},{same}]"), "two requests of a batch have the same \"id\""),
            (format!("[{CALL},7]"), "message 2 of the batch: not a JSON-RPC message: it has to be an object"),
            (
                format!("[[{CALL}]]"),
                "message 1 of the batch: batches are not part of this revision: send one message in a body",
            ),
            (format!("[{}]", vec![TOLD; MAX_MESSAGES + 1].join(",")), "a batch may have 64 messages at most"),
            (format!("[{CALL}"), "the body is not JSON"),
        ] {
            assert_eq!(refusal(&body), expected, "{body}");
        }
        for revision in Revision::ALL {
            let taken = read(format!("[{CALL}]").as_bytes(), revision).is_ok();
            assert_eq!(taken, revision == Revision::V2025_03_26, "{revision}");
        }
    }

    #[test]
    fn servers_write_batches_where_their_revision_does_not_forbid_it() {
        let batch = format!(" [ {TOLD} , {TOLD}]");
        for revision in Revision::ALL {
            let split = parts(batch.as_bytes(), Some(revision));
            let may = revision <= Revision::V2025_03_26;
            assert_eq!(split, may.then(|| vec![TOLD, TOLD]), "{revision}");
        }
        let split = |text: &str, parts: Option<&[&str]>| {
            assert_eq!(
                super::parts(text.as_bytes(), Some(Revision::V2025_03_26)).as_deref(),
                parts,
                "{text}"
            );
        };
        split(&format!("[{TOLD},{ANSWER}]"), Some(&[TOLD, ANSWER]));
        split(&format!("[{TOLD},[{TOLD}]]"), Some(&[TOLD]));
        split("[7]", Some(&["7"]));
        split("[]", Some(&[]));
        let many = |count| format!("[{}]", vec![TOLD; count].join(","));
        split(&many(MAX_PARTS), Some(&[TOLD; MAX_PARTS]));
        for other in [TOLD, "", "[7", &many(MAX_PARTS + 1)] {
            split(other, None);
        }
        assert_eq!(parts(batch.as_bytes(), None), None);
    }

    #[test]
    fn each_request_is_answered_once() {
        let other = CALL.replace(":1,", ":\"a\",");
        let text = format!("[{CALL},{TOLD},{other}]");
        let batch = Batch::read(text.as_bytes()).unwrap();
        let mut answers = batch.answers().unwrap();
        assert!(!answers.take(Id::from_json("2"), "no".to_owned()));
        assert!(answers.take(Id::from_json("\"\\u0061\""), "{\"id\":\"a\"}".to_owned()));
        assert!(!answers.take(Id::from_json("\"a\""), "again".to_owned()));
        assert!(!answers.is_complete());
        assert!(answers.take(Id::from_json("1"), "{\"id\":1}".to_owned()));
        assert!(answers.is_complete());
        assert_eq!(answers.write(), r#"[{"id":1},{"id":"a"}]"#);
        assert!(answers.into_answers().eq([r#"{"id":1}"#, r#"{"id":"a"}"#]));
        assert!(Batch::read(format!("[{TOLD}]").as_bytes()).unwrap().answers().is_none());
    }
}
