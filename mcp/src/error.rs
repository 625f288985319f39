//! JSON-RPC errors.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes>

use serde_json::Value;

use crate::envelope::Id;
use crate::revision::Revision;

/// The codes that are used here. The range from -32099 to -32020 belongs to MCP, from -32019 to -32000 to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The body is not JSON.
    ParseError,
    /// It is JSON and no message, or one that is out of place.
    InvalidRequest,
    /// Nobody knows the method.
    MethodNotFound,
    /// The parameters name something that does not exist or are wrong.
    InvalidParams,
    /// Something behind the request failed.
    InternalError,
    /// The resource does not exist. Until 2025-11-25 only.
    ResourceNotFound,
    /// The server needs the user to visit a URL first. In 2025-11-25 only.
    UrlElicitationRequired,
    /// A header says something else than the body. Since 2026-07-28.
    HeaderMismatch,
    /// The request needs a capability that its client did not declare. Since 2026-07-28.
    MissingClientCapability,
    /// A client of 2026-07-28 or later meets a server that speaks only other revisions.
    UnsupportedProtocolVersion,
}

impl Code {
    /// The number.
    pub fn number(self) -> i32 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::InternalError => -32603,
            Self::ResourceNotFound => -32002,
            Self::UrlElicitationRequired => -32042,
            Self::HeaderMismatch => -32020,
            Self::MissingClientCapability => -32021,
            Self::UnsupportedProtocolVersion => -32022,
        }
    }

    /// The code with that number.
    pub fn of(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|code| i64::from(code.number()) == number)
    }

    /// Whether a side of this revision may be sent this code.
    pub fn is_in(self, revision: Revision) -> bool {
        let has = revision.features();
        match self {
            Self::ParseError
            | Self::InvalidRequest
            | Self::MethodNotFound
            | Self::InvalidParams
            | Self::InternalError => true,
            Self::ResourceNotFound => has.resource_not_found,
            Self::UrlElicitationRequired => has.url_elicitation_error,
            Self::HeaderMismatch => has.standard_headers,
            // A legacy client may hear of the last two: the first names what its session lacks, the second what a
            // server speaks that has no handshake at all.
            Self::MissingClientCapability | Self::UnsupportedProtocolVersion => true,
        }
    }

    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::ParseError,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::InternalError,
        Self::ResourceNotFound,
        Self::UrlElicitationRequired,
        Self::HeaderMismatch,
        Self::MissingClientCapability,
        Self::UnsupportedProtocolVersion,
    ];
}

/// An error response. Without an id the member is left out: `null` is not in the schema of any revision since
/// 2025-11-25, and older clients do not look at it.
pub fn response(id: Option<Id<'_>>, code: Code, message: &str, data: Option<&Value>) -> String {
    let mut text = String::with_capacity(96 + message.len());
    text.push_str("{\"jsonrpc\":\"2.0\",");
    if let Some(id) = id {
        text.push_str("\"id\":");
        text.push_str(id.as_json());
        text.push(',');
    }
    text.push_str("\"error\":{\"code\":");
    text.push_str(&code.number().to_string());
    text.push_str(",\"message\":");
    text.push_str(&Value::from(message).to_string());
    if let Some(data) = data {
        text.push_str(",\"data\":");
        text.push_str(&data.to_string());
    }
    text.push_str("}}");
    text
}

/// The code of an error object, if it is one.
pub fn code_of(error: &str) -> Option<i64> {
    #[derive(serde::Deserialize)]
    struct Wire {
        code: i64,
    }
    if !crate::envelope::is_object(error) {
        return None;
    }
    serde_json::from_str::<Wire>(error).ok().map(|wire| wire.code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_are_json() {
        let text =
            response(Some(Id::from_json("\"a\"")), Code::InvalidParams, "no \"x\"", Some(&json!({"a": 1})));
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32602,"message":"no \"x\"","data":{"a":1}}}"#
        );
        let text = response(None, Code::ParseError, "m", None);
        assert_eq!(text, r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}"#);
        assert_eq!(code_of(r#"{"message":"m","code":-5}"#), Some(-5));
        assert_eq!(code_of("[-5]"), None);
    }

    #[test]
    fn codes_have_their_revisions() {
        for code in Code::ALL {
            assert_eq!(Code::of(code.number().into()), Some(code));
        }
        assert_eq!(Code::of(-32000), None);
        for (code, revisions) in [
            (Code::InvalidParams, &Revision::ALL[..]),
            (Code::ResourceNotFound, &Revision::ALL[..4]),
            (Code::UrlElicitationRequired, &[Revision::V2025_11_25]),
            (Code::HeaderMismatch, &[Revision::V2026_07_28]),
        ] {
            let those: Vec<_> = Revision::ALL.into_iter().filter(|revision| code.is_in(*revision)).collect();
            assert_eq!(those, revisions, "{code:?}");
        }
    }
}
