//! A client whose requests stand alone.

use serde_json::{Value, json};

use super::Request;

/// The revision of such a client.
pub(crate) const REVISION: &str = "2026-07-28";
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The message.
pub(crate) fn message(id: impl Into<Value>, method: &str, params: Value) -> Value {
    let mut params = params;
    let meta = params.as_object_mut().expect("an object").entry("_meta").or_insert_with(|| json!({}));
    let meta = meta.as_object_mut().expect("an object");
    meta.insert(PROTOCOL_VERSION.to_owned(), json!(REVISION));
    meta.insert(CAPABILITIES.to_owned(), json!({}));
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// The request with the headers that belong to it.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: Value) -> Request {
    of(&message(id, method, params).to_string())
}

/// The request of a message that is given byte for byte.
pub(crate) fn of(message: &str) -> Request {
    let read: Value = serde_json::from_str(message).expect("JSON");
    let method = read["method"].as_str().expect("a method");
    let request =
        Request::post(message).header("mcp-protocol-version", REVISION).header("mcp-method", method);
    let params = &read["params"];
    let name = match method {
        "tools/call" | "prompts/get" => &params["name"],
        "resources/read" => &params["uri"],
        "tasks/get" | "tasks/update" | "tasks/cancel" => &params["taskId"],
        _ => &Value::Null,
    };
    name.as_str().into_iter().fold(request, |request, name| request.header("mcp-name", name))
}
