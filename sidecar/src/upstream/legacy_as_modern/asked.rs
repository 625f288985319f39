//! A request that stands alone, read.

use std::borrow::Cow;

use bytes::Bytes;
use longshore_mcp::Text;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::detect::Modern;
use longshore_mcp::level::Level;
use longshore_mcp::meta::MAX_SAID;
use longshore_mcp::method::{Method, Subject};
use longshore_mcp::object::Object;
use longshore_mcp::revision::Revision;
use longshore_mcp::translate::requests::{Client, OF_ROUNDS};
use longshore_sessions::capsule::{PrincipalDigest, canonical};

use crate::upstream::Post;
use crate::upstream::letter::Trace;

/// The request, and what it says of itself.
pub(in crate::upstream) struct Asked {
    pub(super) body: Bytes,
    /// Its id, as JSON.
    pub(super) id: String,
    pub(super) method: Method,
    /// The revision that its client speaks.
    pub(super) revision: Revision,
    /// The resource that it names, if it reads one.
    pub(super) uri: Option<String>,
    /// What its client can do: as JSON, and read.
    pub(super) capabilities: String,
    pub(super) can: ClientCapabilities,
    /// Who its client says that it is, as JSON, if that is not too long to be kept.
    pub(super) info: Option<String>,
    /// The log messages that it wants.
    pub(super) level: Option<Level>,
    /// What it hears of its progress under, as JSON.
    pub(super) token: Option<String>,
    /// The answers to what the server asked in the round before, as JSON.
    pub(super) responses: Option<String>,
    /// What came with those questions.
    pub(super) state: Option<String>,
    /// Where it stands in a trace.
    pub(super) trace: Trace,
}

impl Asked {
    /// `modern` is what the request was read as. Its body may call tasks by other names.
    pub(in crate::upstream) fn of(Post { body, trace, .. }: Post, modern: &Modern<'_>) -> Self {
        let Modern { revision, envelope, method, outline, request } = modern;
        let state = outline.request_state().map(|state| state.map(Text::into_owned));
        let uri = (method.subject() == Subject::Resource).then(|| outline.name(Subject::Resource)).flatten();
        Self {
            id: request.id.as_json().to_owned(),
            method: *method,
            revision: *revision,
            uri: uri.map(Text::into_owned),
            capabilities: envelope.capabilities.to_owned(),
            can: ClientCapabilities::read(envelope.capabilities).unwrap_or_default(),
            info: envelope.client_info.filter(|info| info.len() <= MAX_SAID).map(str::to_owned),
            level: envelope.log_level,
            token: envelope.progress_token.map(str::to_owned),
            responses: outline.input_responses().map(str::to_owned),
            // What is no string nobody gave: it is worth as much as one that is made up.
            state: state.unwrap_or_else(|_| Some(String::new())),
            trace,
            body,
        }
    }

    /// The whole message.
    pub(super) fn text(&self) -> &str {
        // It was read as JSON.
        std::str::from_utf8(&self.body).unwrap_or_default()
    }

    /// Its parameters.
    pub(super) fn params(&self) -> Cow<'_, str> {
        let params = Object::read(self.text()).ok().and_then(|message| message.original("params"));
        params.map_or(Cow::Borrowed("{}"), Cow::Borrowed)
    }

    /// What the client says of itself, as translation wants it.
    pub(super) fn client(&self) -> Client<'_> {
        Client { capabilities: &self.capabilities, info: self.info.as_deref(), level: self.level }
    }

    /// A digest of everything that a client may not change when it asks again: all but what belongs to one round, and
    /// what it says of itself. However it writes the same values; of a long request, in whatever order it names them.
    pub(super) fn digest(&self) -> [u8; 32] {
        let params = self.params();
        let stays = Object::read(&params).map(|mut params| {
            for name in OF_ROUNDS {
                params.remove(name);
            }
            params.remove("_meta");
            params.sort();
            params.write()
        });
        // What has no canonical spelling (numbers that no reader holds, or more than is brought into one) has to be the same
        // bytes.
        let stays = stays.unwrap_or_else(|_| params.clone().into_owned());
        let stays = canonical(&stays).unwrap_or_else(|| stays.into());
        PrincipalDigest::of(&format!("{}\n{stays}", self.method.as_str())).0
    }

    /// Whether its client can be asked anything.
    pub(super) fn can_be_asked(&self) -> bool {
        let ClientCapabilities { roots, sampling, elicitation_form, elicitation_url, .. } = &self.can;
        *roots || *sampling || *elicitation_form || *elicitation_url
    }
}

#[cfg(test)]
pub(super) mod tests {
    use longshore_mcp::envelope::{self, Message};
    use longshore_mcp::meta::Outline;

    use super::*;

    /// A whole request.
    pub(in crate::upstream::legacy_as_modern) fn read(message: String) -> Asked {
        let body = Bytes::from(message);
        let Ok(Message::Request(request)) = envelope::read(&body) else { panic!("{body:?}") };
        let outline = Outline::read(request.params).unwrap();
        let (envelope, revision) = (outline.envelope().unwrap(), Revision::V2026_07_28);
        let method = Method::of(revision, &request.method).unwrap();
        Asked::of(Post::of(body.clone()), &Modern { revision, envelope, method, outline, request })
    }

    fn asked(params: &str) -> Asked {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}"#;
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{{params},{meta}}}}}"#);
        read(body)
    }

    #[test]
    fn a_request_is_known_again_by_what_it_asks_for() {
        let first = asked(r#""name":"t","arguments":{"a":1,"b":[2]}"#);
        assert!(first.can_be_asked());
        let again = asked(
            r#""requestState":"s","inputResponses":{"k":{}},"arguments":{ "b" : [2], "a":1},"name":"\u0074""#,
        );
        assert_eq!(first.digest(), again.digest());
        assert_eq!(again.state.as_deref(), Some("s"));
        // A long one, whose values are not looked into.
        let long = |order: &dyn Fn(&str, &str) -> String| {
            let text = "x".repeat(100_000);
            asked(&order(r#""name":"t""#, &format!(r#""arguments":{{"b":"{text}","a":1}}"#))).digest()
        };
        assert_eq!(
            long(&|name, arguments| format!("{name},{arguments}")),
            long(&|name, arguments| format!(r#""requestState":"s", {arguments} , {name}"#))
        );
        for other in [
            r#""name":"u","arguments":{"a":1,"b":[2]}"#,
            r#""name":"t","arguments":{"a":1,"b":[3]}"#,
            r#""name":"t","arguments":{"a":1,"b":[2]},"more":1"#,
            r#""name":"t""#,
        ] {
            assert_ne!(first.digest(), asked(other).digest(), "{other}");
        }
    }
}
