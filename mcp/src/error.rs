//! JSON-RPC errors.

use serde_json::Value;

use crate::envelope::Id;

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
            Self::UnsupportedProtocolVersion => -32022,
        }
    }
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
}
