//! Requests of clients.

use std::borrow::Cow;

use super::{Pair, Untranslatable, Way};
use crate::level::Level;
use crate::meta;
use crate::method::Method;
use crate::object::{Object, quote};
use crate::revision::{Era, Revision, Tasks};

/// What a session knows of its client, and each modern request has to say.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// What the client can do, translated for the server.
    pub capabilities: &'a str,
    /// Who it is.
    pub info: Option<&'a str>,
    /// The log messages that it wants.
    pub level: Option<Level>,
}

/// What a request has only in revisions where the server may ask back: the answers to what it asked, and its own
/// state. They are the proxy's to keep, see [`crate::parked`].
pub const OF_ROUNDS: [&str; 2] = ["inputResponses", "requestState"];

/// A client's request for its server: the whole message. `client` is needed where the server is a modern one and the
/// client is not.
pub fn request<'a>(
    pair: Pair,
    method: Option<Method>,
    message: &'a str,
    client: &Client<'_>,
) -> Result<Cow<'a, str>, Untranslatable> {
    if pair.is_same() {
        return Ok(Cow::Borrowed(message));
    }
    let way = pair.up();
    let mut request = way.object("a request", message)?;
    let original = request.original("params").filter(|params| *params != "null");
    let mut params = way.object("the parameters of a request", original.unwrap_or("{}"))?;
    if way.to.features().tasks != Tasks::Core {
        // The experimental tasks: no server of another revision would answer the way that this asks for.
        params.remove("task");
    }
    if way.to < Revision::V2025_06_18 && method == Some(Method::CompletionComplete) {
        params.remove("context");
    }
    match pair.eras() {
        (Era::Modern, Era::Legacy) => strip(way, &mut params)?,
        (Era::Legacy, Era::Modern) => wrap(way, &mut params, client)?,
        _ => {}
    }
    match (original, params.into_text()) {
        (Some(_), Cow::Borrowed(_)) => {}
        // There were none, and none are needed.
        (None, Cow::Borrowed(_)) => {}
        (_, Cow::Owned(text)) => request.set("params", text),
    }
    Ok(request.into_text())
}

/// Takes away what only a modern server reads. Trace context and names of vendors stay.
fn strip(way: Way, params: &mut Object<'_>) -> Result<(), Untranslatable> {
    for name in OF_ROUNDS {
        params.remove(name);
    }
    let Some(meta) = params.original("_meta") else { return Ok(()) };
    let mut meta = way.object("\"_meta\" of a request", meta)?;
    for name in meta::OF_MODERN_REQUESTS {
        meta.remove(name);
    }
    if meta.is_empty() {
        params.remove("_meta");
    } else if let Cow::Owned(text) = meta.into_text() {
        params.set("_meta", text);
    }
    Ok(())
}

/// Says what each modern request says.
fn wrap(way: Way, params: &mut Object<'_>, client: &Client<'_>) -> Result<(), Untranslatable> {
    let meta = params.original("_meta").filter(|meta| *meta != "null").unwrap_or("{}");
    let mut meta = way.object("\"_meta\" of a request", meta)?;
    envelope(&mut meta, way.to, client);
    params.set("_meta", meta.write());
    Ok(())
}

/// Puts the envelope of a modern request into its `_meta`.
pub(crate) fn envelope(meta: &mut Object<'_>, revision: Revision, client: &Client<'_>) {
    meta.set(meta::PROTOCOL_VERSION, quote(revision.as_str()));
    meta.set(meta::CLIENT_CAPABILITIES, client.capabilities.to_owned());
    match client.info {
        Some(info) => meta.set(meta::CLIENT_INFO, info.to_owned()),
        None => drop(meta.remove(meta::CLIENT_INFO)),
    }
    match client.level {
        Some(level) => meta.set(meta::LOG_LEVEL, quote(level.as_str())),
        None => drop(meta.remove(meta::LOG_LEVEL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28};

    const CLIENT: Client<'_> = Client {
        capabilities: r#"{"sampling":{}}"#,
        info: Some(r#"{"name":"c","version":"1"}"#),
        level: Some(Level::Info),
    };

    fn made(client: Revision, server: Revision, message: &str) -> String {
        let method = crate::translate::names::get(message, &["method"]).and_then(crate::object::string);
        let method = Method::ALL.into_iter().find(|known| Some(known.as_str()) == method.as_deref());
        request(Pair { client, server }, method, message, &CLIENT).unwrap().into_owned()
    }

    #[test]
    fn requests_say_what_their_reader_needs() {
        let modern = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1.0e2,"_meta":1},"requestState":"s","inputResponses":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/logLevel":"info","traceparent":"00-1","progressToken":"t"}}}"#;
        assert_eq!(
            made(V2026_07_28, V2025_11_25, modern),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1.0e2,"_meta":1},"_meta":{"traceparent":"00-1","progressToken":"t"}}}"#
        );
        let bare = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        assert_eq!(
            made(V2026_07_28, V2024_11_05, bare),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#
        );
        let envelope = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"info""#;
        assert_eq!(
            made(V2025_03_26, V2026_07_28, r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{{envelope}}}}}}}"#
            )
        );
        assert_eq!(
            made(
                V2025_11_25,
                V2026_07_28,
                r#"{"method":"tools/call","params":{"_meta":{"progressToken":1},"task":{"ttl":1}}}"#
            ),
            format!(r#"{{"method":"tools/call","params":{{"_meta":{{"progressToken":1,{envelope}}}}}}}"#)
        );
        let complete = r#"{"method":"completion/complete","params":{"ref":{},"argument":{ },"context":{}}}"#;
        assert_eq!(
            made(V2025_11_25, V2024_11_05, complete),
            r#"{"method":"completion/complete","params":{"ref":{},"argument":{ }}}"#
        );
        for (client, server) in [(V2025_03_26, V2025_11_25), (V2026_07_28, V2026_07_28)] {
            let message = r#"{ "params": {"task" :1} }"#.replace("task", "other");
            assert_eq!(made(client, server, &message), message);
        }
        let none = r#"{ "method":"tools/list" }"#;
        assert_eq!(made(V2025_03_26, V2025_11_25, none), none);
    }
}
