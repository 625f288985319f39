//! Requests of clients.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#meta>

use std::borrow::Cow;

use super::{Pair, Untranslatable, Way};
use crate::level::Level;
use crate::meta;
use crate::method::Method;
use crate::object::{Object, quote};
use crate::revision::{Era, Revision, Tasks};
use crate::tasks::RELATED;

/// What a session knows of its client, and each modern request has to say.
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// What the client can do: a JSON object. In requests the server reads it as it is, so it has to be translated for it
    /// ([`super::capabilities::client`]); [`super::handshake::greet`] does that itself.
    pub capabilities: &'a str,
    /// Who it is: a JSON object.
    pub info: Option<&'a str>,
    /// The log messages that it wants, from this severity on. None at all without it.
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
    edit(pair, method, message, client, None)
}

/// The same under this number (as JSON), which takes the place of its id, and of its progress token if it has one. So both are
/// changed in one pass, also between two sides of one revision.
pub fn numbered<'a>(
    pair: Pair,
    method: Option<Method>,
    message: &'a str,
    client: &Client<'_>,
    number: &str,
) -> Result<Cow<'a, str>, Untranslatable> {
    edit(pair, method, message, client, Some(number))
}

fn edit<'a>(
    pair: Pair,
    method: Option<Method>,
    message: &'a str,
    client: &Client<'_>,
    number: Option<&str>,
) -> Result<Cow<'a, str>, Untranslatable> {
    let way = pair.up();
    let mut request = way.object("a request", message)?;
    let original = request.present("params");
    let mut params = way.object("the parameters of a request", original.unwrap_or("{}"))?;
    let have_tasks = [way.from, way.to].iter().all(|side| side.features().tasks == Tasks::Core);
    if !way.is_same() && !have_tasks {
        // The experimental tasks: a side without them does not begin one, or could not reach what it began.
        params.remove("task");
    }
    if !way.to.features().completion_context && method == Some(Method::CompletionComplete) {
        params.remove("context");
    }
    let (from, to) = pair.eras();
    if from != to {
        // A modern client's are the proxy's to use, and those of a legacy one mean nothing of the kind.
        for name in OF_ROUNDS {
            params.remove(name);
        }
    }
    if from != to || number.is_some() {
        edit_meta(way, &mut params, |meta| {
            match to {
                _ if from == to => {}
                // Trace context and names of vendors stay. A task would be one of the server's own, somebody else's perhaps.
                Era::Legacy => {
                    meta.remove(RELATED);
                    for name in meta::OF_MODERN_REQUESTS {
                        meta.remove(name);
                    }
                }
                Era::Modern => envelope(meta, way.to, client),
            }
            if let Some(token) = number
                && meta.get(meta::PROGRESS_TOKEN).is_some()
            {
                meta.set(meta::PROGRESS_TOKEN, token.to_owned());
            }
        })?;
    }
    // Where there were no parameters and none are needed, there are none.
    if let Cow::Owned(text) = params.into_text() {
        request.set("params", text);
    }
    if let Some(number) = number {
        request.set("id", number.to_owned());
    }
    Ok(request.into_text())
}

/// Changes what a request says of itself. What says nothing is not there.
fn edit_meta(
    way: Way,
    params: &mut Object<'_>,
    change: impl FnOnce(&mut Object<'_>),
) -> Result<(), Untranslatable> {
    let original = params.present("_meta");
    let mut meta = way.object("\"_meta\" of a request", original.unwrap_or("{}"))?;
    change(&mut meta);
    let is_empty = meta.is_empty();
    match meta.into_text() {
        Cow::Borrowed(_) => {}
        Cow::Owned(_) if is_empty => drop(params.remove("_meta")),
        Cow::Owned(text) => params.set("_meta", text),
    }
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
    use crate::revision::Revision::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

    const CLIENT: Client<'_> = Client {
        capabilities: r#"{"sampling":{}}"#,
        info: Some(r#"{"name":"c","version":"1"}"#),
        level: Some(Level::Info),
    };

    fn made(client: Revision, server: Revision, message: &str) -> String {
        let method = crate::object::at(message, &["method"]).and_then(crate::object::string);
        let method = Method::ALL.into_iter().find(|known| Some(known.as_str()) == method.as_deref());
        request(Pair { client, server }, method, message, &CLIENT).unwrap().into_owned()
    }

    #[test]
    fn a_number_takes_the_place_of_id_and_token() {
        let pair = Pair { client: V2026_07_28, server: V2025_11_25 };
        let modern = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        for (meta, expected) in [
            (
                format!(
                    r#"{{{modern},"progressToken":"t","io.modelcontextprotocol/related-task":{{"taskId":"1"}},"a":1.0}}"#
                ),
                r#","_meta":{"progressToken":7,"a":1.0}"#,
            ),
            (format!("{{{modern}}}"), ""),
        ] {
            let request = format!(r#"{{"id":"a","method":"m","params":{{"x":[ ],"_meta":{meta}}}}}"#);
            assert_eq!(
                numbered(pair, None, &request, &CLIENT, "7").unwrap(),
                format!(r#"{{"id":7,"method":"m","params":{{"x":[ ]{expected}}}}}"#)
            );
        }
    }

    /// Members that belong to a revision, in requests between others.
    #[test]
    fn what_only_one_side_knows_stays_there() {
        let message = r#"{"method":"tools/call","params":{"name":"a","task":{},"inputResponses":{},"requestState":"s","x":1}}"#;
        for (client, server, kept) in [
            (V2025_11_25, V2025_11_25, &["task", "inputResponses", "requestState"][..]),
            (V2026_07_28, V2026_07_28, &["task", "inputResponses", "requestState"]),
            (V2024_11_05, V2025_11_25, &["inputResponses", "requestState"]),
            (V2025_06_18, V2025_11_25, &["inputResponses", "requestState"]),
            (V2025_11_25, V2025_06_18, &["inputResponses", "requestState"]),
            (V2026_07_28, V2025_11_25, &[]),
            (V2026_07_28, V2025_06_18, &[]),
            (V2025_11_25, V2026_07_28, &[]),
            (V2024_11_05, V2026_07_28, &[]),
        ] {
            let made = made(client, server, message);
            let params = crate::object::at(&made, &["params"]).unwrap();
            let params = Object::read(params).unwrap();
            let there: Vec<_> =
                params.names().filter(|name| !["name", "x", "_meta"].contains(name)).collect();
            assert_eq!(there, kept, "{client} {server} {made}");
        }
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
