//! Which era a server belongs to, judged by what it answers to `server/discover`.
//!
//! Servers have refused unknown requests in many ways, so only what a modern server alone can say counts for the new
//! era. What speaks of neither (a network that failed, a token that is missing) is no evidence at all.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#backward-compatibility>,
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio#backward-compatibility>

use crate::envelope::{self, Message, Outcome};
use crate::error::{Code, code_of};
use crate::object::{self, Object, elements, string};
use crate::revision::{Era, Revision};

/// What an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A modern server, and the newest revision that both sides speak.
    Modern(Revision),
    /// A server that has to be greeted with `initialize`.
    Legacy,
    /// A modern server that speaks no revision that is known here.
    Strange,
    /// Nothing: ask again later, or with credentials.
    Nothing,
}

/// Judges the answer to `server/discover` over HTTP. `body` is the message in it, if there was one.
pub fn over_http(status: u16, body: Option<&str>) -> Verdict {
    match (status, body.and_then(judge)) {
        (200..=299, Some(Said::Discovered(verdict))) | (400..=499, Some(Said::Unsupported(verdict))) => {
            verdict
        }
        // A legacy server answers errors with 200.
        (200..=299, Some(Said::Unsupported(verdict))) => verdict,
        (401 | 403 | 407 | 408 | 425 | 429, _) => Verdict::Nothing,
        (200..=299, Some(Said::Error)) | (400..=499, _) => Verdict::Legacy,
        _ => Verdict::Nothing,
    }
}

/// Judges the answer to `server/discover` over stdio; `None` if none came in time. A process that ended is the
/// caller's to see: it is no answer.
pub fn over_stdio(message: Option<&str>) -> Verdict {
    match message.and_then(judge) {
        Some(Said::Discovered(verdict) | Said::Unsupported(verdict)) => verdict,
        Some(Said::Error) | None => Verdict::Legacy,
    }
}

/// The names of the revisions that such an answer says its server speaks, as it gave them.
pub fn names(message: &str) -> Vec<String> {
    let Ok(Message::Response(response)) = envelope::read_servers(message.as_bytes()) else {
        return Vec::new();
    };
    let list = match response.outcome {
        Outcome::Result(result) => object::at(result.get(), &["supportedVersions"]),
        Outcome::Error(error) => object::at(error.get(), &["data", "supported"]),
    };
    let names = list.and_then(|list| elements(list).ok()).unwrap_or_default();
    names.into_iter().filter_map(string).map(|name| name.to_string()).collect()
}

enum Said {
    Discovered(Verdict),
    Unsupported(Verdict),
    Error,
}

fn judge(message: &str) -> Option<Said> {
    let Ok(Message::Response(response)) = envelope::read_servers(message.as_bytes()) else { return None };
    match response.outcome {
        Outcome::Result(result) => {
            let result = Object::read(result.get()).ok()?;
            Some(result.get("supportedVersions").map_or(Said::Error, |names| Said::Discovered(newest(names))))
        }
        Outcome::Error(error) => {
            let code = code_of(error.get()).and_then(Code::of);
            if code != Some(Code::UnsupportedProtocolVersion) {
                return Some(Said::Error);
            }
            let error = Object::read(error.get()).ok()?;
            let data = error.original("data").and_then(|data| Object::read(data).ok());
            // Without the list nothing says that it is the code of the protocol.
            let names = data.as_ref().and_then(|data| data.get("supported"));
            Some(names.map_or(Said::Error, |names| Said::Unsupported(newest(names))))
        }
    }
}

/// The newest revision of a list. A list of legacy revisions is an invitation to greet.
fn newest(names: &str) -> Verdict {
    let names = elements(names).unwrap_or_default();
    let known = names.into_iter().filter_map(string).filter_map(|name| Revision::parse(&name));
    match known.max() {
        Some(revision) if revision.era() == Era::Modern => Verdict::Modern(revision),
        Some(_) => Verdict::Legacy,
        None => Verdict::Strange,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_revisions() {
        for (rest, expected) in [
            (r#""result":{"supportedVersions":["2026-07-28",7,"x"]}"#, &["2026-07-28", "x"][..]),
            (r#""error":{"code":-32022,"message":"m","data":{"supported":["2025-11-25"]}}"#, &["2025-11-25"]),
            (r#""error":{"code":-32601,"message":"m"}"#, &[]),
            (r#""result":{"supportedVersions":{}}"#, &[]),
        ] {
            assert_eq!(names(&format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#)), expected, "{rest}");
        }
    }

    #[test]
    fn only_what_a_modern_server_says_is_evidence() {
        let modern = Verdict::Modern(Revision::V2026_07_28);
        let discovered =
            r#"{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28","2025-11-25"]}}"#;
        let error = |code: i32, supported: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"m","data":{{"supported":{supported}}}}}}}"#
            )
        };
        for (status, body, expected) in [
            (200, Some(discovered.to_owned()), modern),
            (400, Some(error(-32022, r#"["2026-07-28"]"#)), modern),
            (400, Some(error(-32022, r#"["2025-11-25"]"#)), Verdict::Legacy),
            (400, Some(error(-32022, r#"["2099-01-01"]"#)), Verdict::Strange),
            (400, Some(error(-32022, r#"["2099-01-01"]"#).replace("supported", "x")), Verdict::Legacy),
            (400, Some(error(-32001, "[]")), Verdict::Legacy),
            (400, Some(error(-32020, "[]")), Verdict::Legacy),
            (200, Some(error(-32601, "[]")), Verdict::Legacy),
            (400, None, Verdict::Legacy),
            (404, Some("not found".to_owned()), Verdict::Legacy),
            (405, None, Verdict::Legacy),
            (401, None, Verdict::Nothing),
            (403, None, Verdict::Nothing),
            (429, None, Verdict::Nothing),
            (500, None, Verdict::Nothing),
            (503, Some(discovered.to_owned()), Verdict::Nothing),
            (200, Some("<html>".to_owned()), Verdict::Nothing),
        ] {
            assert_eq!(over_http(status, body.as_deref()), expected, "{status} {body:?}");
        }
        for (message, expected) in [
            (Some(discovered.to_owned()), modern),
            (Some(error(-32022, r#"["2026-07-28"]"#)), modern),
            (Some(error(-32601, "[]")), Verdict::Legacy),
            (Some(error(-32602, "[]")), Verdict::Legacy),
            (None, Verdict::Legacy),
        ] {
            assert_eq!(over_stdio(message.as_deref()), expected, "{message:?}");
        }
    }
}
