//! Messages as text.

use longshore_mcp::error::Code;
use serde_json::{Value, json};

/// A notification.
pub(crate) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// A request of the server.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A result; the id is JSON, and comes back as it was written.
pub(crate) fn result(id: &str, result: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// An error.
pub(crate) fn error(id: &str, code: Code, message: &str, data: Option<&Value>) -> String {
    longshore_mcp::error::response(Some(longshore_mcp::envelope::Id::from_json(id)), code, message, data)
}
