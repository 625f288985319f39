//! The handshake of the legacy revisions, and what took its place.
//!
//! | client | server | the client sends | the server gets | the client gets |
//! |---|---|---|---|---|
//! | legacy | legacy | `initialize` | [`offer`] | [`accept`] |
//! | modern | legacy | `server/discover`, or nothing | [`greet`] | [`discovered`] |
//! | legacy | modern | `initialize` | [`discover`] | [`initialized`] |
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle>,
//! <https://modelcontextprotocol.io/specification/2026-07-28/server/discover>

use std::borrow::Cow;

use super::requests::{Client, envelope};
use super::results::{Hints, stamp};
use super::{Untranslatable, Way, capabilities};
use crate::meta::SERVER_INFO;
use crate::object::{self, Object, array, quote};
use crate::revision::Revision;

/// Who a side is that did not say so. The handshake wants a name.
pub const NOBODY: &str = r#"{"name":"unknown","version":"unknown"}"#;

/// A client's `initialize` (the whole message) for a server of another revision.
pub fn offer(way: Way, message: &str) -> Result<Cow<'_, str>, Untranslatable> {
    const WHAT: &str = "an initialize request";
    if way.is_same() {
        return Ok(Cow::Borrowed(message));
    }
    let mut request = way.object(WHAT, message)?;
    request.edit("params", |params| {
        let mut params = way.object(WHAT, params)?;
        params.set("protocolVersion", quote(way.to.as_str()));
        params.edit("capabilities", |json| capabilities::client(way, json))?;
        Ok(params.into_text())
    })?;
    Ok(request.into_text())
}

/// A server's result of `initialize` for a client of another revision: the result alone.
pub fn accept(way: Way, result: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if way.is_same() {
        return Ok(Cow::Borrowed(result));
    }
    let mut result = way.object("the result of initialize", result)?;
    remove_nulls(&mut result);
    result.set("protocolVersion", quote(way.to.as_str()));
    result.edit("capabilities", |json| capabilities::server(way, json))?;
    Ok(result.into_text())
}

/// Leaves out what a server has none of and may write as `null`, for which clients that go by the schema refuse the whole
/// handshake.
fn remove_nulls(result: &mut Object<'_>) {
    for name in ["_meta", "instructions"] {
        result.remove_null(name);
    }
}

/// `initialize` to a legacy server, under this id (as JSON), on behalf of a client that does not greet it itself: the whole
/// message. The capabilities are the client's own; the server sees those that can be kept.
pub fn greet(id: &str, way: Way, client: &Client<'_>) -> Result<String, Untranslatable> {
    let can = capabilities::client(way, client.capabilities)?;
    let info = somebody(client.info);
    Ok(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{can},"clientInfo":{info}}}}}"#,
        way.to
    ))
}

/// What follows a greeting that was answered.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The result of `server/discover`, made of a legacy server's result of `initialize`. `served` is what clients may
/// speak at this address, whatever the server speaks. The result says who the server is even if `hints` does not.
pub fn discovered(
    way: Way,
    result: &str,
    served: &[Revision],
    hints: &Hints<'_>,
) -> Result<String, Untranslatable> {
    let mut result = way.object("the result of initialize", result)?;
    let info = somebody(result.original("serverInfo"));
    result.remove("protocolVersion");
    result.remove("serverInfo");
    remove_nulls(&mut result);
    let mut versions = served.to_vec();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    result.set("supportedVersions", array(versions.iter().map(|revision| quote(revision.as_str()))));
    match result.present("capabilities") {
        Some(json) => result.set("capabilities", capabilities::server(way, json)?.into_owned()),
        None => result.set("capabilities", "{}".to_owned()),
    }
    result.set("resultType", "\"complete\"".to_owned());
    result.set("ttlMs", hints.ttl_ms.to_string());
    result.set("cacheScope", quote(hints.scope.as_str()));
    stamp(way, &mut result, hints.server_info.unwrap_or(&info))?;
    Ok(result.write())
}

/// `server/discover` of this revision, under this id (as JSON): the whole message. The client's capabilities are those that the
/// server is to see.
pub fn discover(id: &str, revision: Revision, client: &Client<'_>) -> String {
    let mut meta = Object::empty();
    envelope(&mut meta, revision, client);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{"_meta":{}}}}}"#,
        meta.write()
    )
}

/// The result of `initialize`, made of a modern server's result of `server/discover`. The revision is the one that
/// [`crate::session::negotiate`] found, which is that of `way`.
pub fn initialized(way: Way, result: &str) -> Result<String, Untranslatable> {
    let info = somebody(object::at(result, &["_meta", SERVER_INFO]));
    let mut result = way.object("the result of server/discover", result)?;
    for of_discovery in ["supportedVersions", "resultType", "ttlMs", "cacheScope"] {
        result.remove(of_discovery);
    }
    remove_nulls(&mut result);
    result.set("protocolVersion", quote(way.to.as_str()));
    match result.present("capabilities") {
        Some(json) => result.set("capabilities", capabilities::server(way, json)?.into_owned()),
        None => result.set("capabilities", "{}".to_owned()),
    }
    result.set("serverInfo", info.into_owned());
    Ok(result.write())
}

/// What a side says of who it is, with the name and the version that every handshake needs and no later request.
fn somebody(info: Option<&str>) -> Cow<'_, str> {
    let Some(mut info) = info.and_then(|info| Object::read(info).ok()) else { return Cow::Borrowed(NOBODY) };
    for name in ["name", "version"] {
        if info.string(name).is_none() {
            info.set(name, quote("unknown"));
        }
    }
    info.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};

    #[test]
    fn a_legacy_server_is_discovered() {
        let initialized = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{ },"tasks":{}},"serverInfo":{"name":"s", "version":"1"},"instructions":"i","x":1.0}"#;
        let way = Way { from: V2025_06_18, to: V2026_07_28 };
        let discovered =
            discovered(way, initialized, &[V2025_11_25, V2026_07_28], &Hints::default()).unwrap();
        assert_eq!(
            discovered,
            r#"{"capabilities":{"tools":{ }},"instructions":"i","x":1.0,"supportedVersions":["2026-07-28","2025-11-25"],"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s", "version":"1"}}}"#
        );
        let back = super::initialized(Way { from: V2026_07_28, to: V2025_06_18 }, &discovered).unwrap();
        assert_eq!(object::at(&back, &["serverInfo"]), Some(r#"{"name":"s", "version":"1"}"#));
        assert_eq!(object::at(&back, &["protocolVersion"]), Some("\"2025-06-18\""));
        assert_eq!(object::at(&back, &["x"]), Some("1.0"));
        assert_eq!(object::at(&back, &["resultType"]), None);
    }

    #[test]
    fn servers_that_say_nothing_of_themselves_are_unknown() {
        let way = Way { from: V2025_06_18, to: V2026_07_28 };
        let back = Way { from: way.to, to: way.from };
        for info in ["null", "\"s\"", "[]"] {
            let initialized = format!(
                r#"{{"protocolVersion":"2025-06-18","capabilities":null,"serverInfo":{info},"instructions":"i"}}"#
            );
            let discovered = discovered(way, &initialized, &[V2026_07_28], &Hints::default()).unwrap();
            assert_eq!(object::at(&discovered, &["_meta", SERVER_INFO]), Some(NOBODY), "{info}");
            assert_eq!(object::at(&discovered, &["capabilities"]), Some("{}"), "{info}");
            let said = format!(r#"{{"capabilities":null,"_meta":{{"{SERVER_INFO}":{info}}}}}"#);
            let initialized = super::initialized(back, &said).unwrap();
            assert_eq!(object::at(&initialized, &["serverInfo"]), Some(NOBODY), "{info}");
            assert_eq!(object::at(&initialized, &["capabilities"]), Some("{}"), "{info}");
        }
        let nothing = r#"{"capabilities":{},"instructions":null,"_meta":null}"#;
        let initialized = super::initialized(back, nothing).unwrap();
        let expected =
            format!(r#"{{"capabilities":{{}},"protocolVersion":"2025-06-18","serverInfo":{NOBODY}}}"#);
        assert_eq!(initialized, expected);
    }

    #[test]
    fn who_somebody_is_has_a_name_and_a_version() {
        let way = Way { from: V2026_07_28, to: V2025_11_25 };
        for (said, expected) in [
            (r#"{"name":"s", "version":"1"}"#, r#"{"name":"s", "version":"1"}"#),
            (r#"{"name":"s"}"#, r#"{"name":"s","version":"unknown"}"#),
            (
                r#"{"title":"t","name":7,"version":null}"#,
                r#"{"title":"t","name":"unknown","version":"unknown"}"#,
            ),
            ("{}", NOBODY),
        ] {
            let client = Client { capabilities: "{}", info: Some(said), level: None };
            let greeting = greet("1", way, &client).unwrap();
            assert_eq!(object::at(&greeting, &["params", "clientInfo"]), Some(expected), "{said}");
            let discovered = format!(r#"{{"capabilities":{{}},"_meta":{{"{SERVER_INFO}":{said}}}}}"#);
            let initialized = super::initialized(way, &discovered).unwrap();
            assert_eq!(object::at(&initialized, &["serverInfo"]), Some(expected), "{said}");
        }
    }

    #[test]
    fn servers_are_greeted_in_the_name_of_clients() {
        let client = Client { capabilities: r#"{"roots":{},"extensions":{}}"#, info: None, level: None };
        let greeting = greet("1", Way { from: V2026_07_28, to: V2025_11_25 }, &client).unwrap();
        assert_eq!(
            greeting,
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"unknown","version":"unknown"}}}"#
        );
        assert!(discover("\"a\"", V2026_07_28, &client).contains(r#""id":"a","method":"server/discover""#));
        let asked = r#"{"id":1,"params":{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}},"clientInfo":{ }}}"#;
        let way = Way { from: V2025_11_25, to: V2024_11_05 };
        assert_eq!(
            offer(way, asked).unwrap(),
            r#"{"id":1,"params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{ }}}"#
        );
        let result = r#"{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{ }}"#;
        let way = Way { from: V2024_11_05, to: V2025_11_25 };
        let expected = result.replace("2024-11-05", "2025-11-25");
        assert_eq!(accept(way, result).unwrap(), expected);
        let without = result.replace(r#","serverInfo""#, r#","instructions":null,"_meta":null,"serverInfo""#);
        assert_eq!(accept(way, &without).unwrap(), expected);
    }
}
