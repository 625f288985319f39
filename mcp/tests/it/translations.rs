//! What the proxy itself writes, against the schema of who reads it.

use longshore_mcp::error::{self, Code};
use longshore_mcp::headers::Fields;
use longshore_mcp::level::Level;
use longshore_mcp::listen::{Filter, Offers, Streams, Wishes, subscribe, unsubscribe};
use longshore_mcp::method::{Method, ServerNotification};
use longshore_mcp::object;
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests::Client;
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, Way, errors, handshake};
use longshore_mcp::{detect, logging};
use serde_json::json;

use longshore_mcp_schemas::{check, error_of, result_of};

const MODERN: Revision = Revision::V2026_07_28;

fn legacy() -> impl Iterator<Item = Revision> {
    Revision::ALL.into_iter().filter(|revision| revision.era() == Era::Legacy)
}

fn pairs() -> impl Iterator<Item = Pair> {
    Revision::ALL.into_iter().flat_map(|client| Revision::ALL.map(|server| Pair { client, server }))
}

#[test]
fn handshakes_are_valid() {
    let client = Client {
        capabilities: r#"{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"url":{}},"tasks":{},"extensions":{"a/b":{}}}"#,
        info: Some(r#"{"name":"c","version":"1","icons":[]}"#),
        level: None,
    };
    for revision in legacy() {
        let up = Way { from: MODERN, to: revision };
        let greeting = handshake::greet("1", up, &client).unwrap();
        check(revision, "InitializeRequest", &greeting);
        check(revision, "InitializedNotification", handshake::INITIALIZED);
        let result = json!({
            "protocolVersion": revision.as_str(), "serverInfo": {"name": "s", "version": "1"}, "instructions": "i",
            "capabilities": {"tools": {"listChanged": true}, "logging": {}, "tasks": {}},
        })
        .to_string();
        let down = Way { from: revision, to: MODERN };
        let discovered = handshake::discovered(down, &result, &Revision::ALL, &Hints::default()).unwrap();
        check(MODERN, "DiscoverResult", &discovered);
        let initialized = handshake::initialized(up, &discovered).unwrap();
        check(revision, "InitializeResult", &initialized);
        assert_eq!(object::at(&initialized, &["instructions"]), Some("\"i\""));
        // A server that does not say who it is has a name all the same.
        let nameless = handshake::initialized(up, r#"{"supportedVersions":[],"capabilities":{}}"#).unwrap();
        check(revision, "InitializeResult", &nameless);
        for other in legacy() {
            let way = Way { from: other, to: revision };
            let asked = handshake::greet("1", Way { from: MODERN, to: other }, &client).unwrap();
            check(revision, "InitializeRequest", &handshake::offer(way, &asked).unwrap());
            check(revision, "InitializeResult", &handshake::accept(way, &result).unwrap());
        }
    }
    check(
        MODERN,
        "DiscoverRequest",
        &handshake::discover("1", MODERN, &Client { capabilities: "{}", ..client }),
    );
}

#[test]
fn subscriptions_and_levels_are_valid() {
    let offers =
        Offers::read(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#);
    let wanted =
        Filter::read(r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a://b"]}}"#);
    let mut streams = Streams::new();
    let opened = streams.open("7", wanted.unwrap(), offers).unwrap();
    check(MODERN, "SubscriptionsAcknowledgedNotification", &opened.acknowledgement);
    let ended = streams.end(opened.stream, Some(r#"{"name":"s","version":"1"}"#)).unwrap();
    check(MODERN, "SubscriptionsListenResultResponse", &ended);
    for revision in legacy() {
        check(revision, "SubscribeRequest", &subscribe("1", "a://b"));
        check(revision, "UnsubscribeRequest", &unsubscribe("1", "a://b"));
        for level in Level::ALL {
            check(revision, "SetLevelRequest", &logging::set_level("1", level));
        }
    }
    let mut wishes = Wishes::new(offers);
    wishes.subscribe("a://b").unwrap();
    let client = Client { capabilities: "{}", info: None, level: None };
    check(MODERN, "SubscriptionsListenRequest", &wishes.request("1", MODERN, &client).unwrap());
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a://b"}}"#;
    let [(_, delivered)] = streams.deliver(updated).try_into().unwrap();
    check(MODERN, "ResourceUpdatedNotification", &delivered);
    for revision in legacy() {
        check(revision, "ResourceUpdatedNotification", &wishes.deliver(&delivered).unwrap());
    }
}

#[test]
fn notifications_are_valid() {
    let params = |method| match method {
        ServerNotification::Progress => json!({"progressToken": 1, "progress": 0.5, "message": "m"}),
        ServerNotification::Message => json!({"level": "info", "data": {"a": 1}}),
        ServerNotification::ResourcesUpdated => json!({"uri": "a://b"}),
        ServerNotification::ElicitationComplete => json!({"elicitationId": "e"}),
        _ => json!({"_meta": {"io.modelcontextprotocol/subscriptionId": 7, "x": 1}}),
    };
    let definition = |method| match method {
        ServerNotification::Progress => "ProgressNotification",
        ServerNotification::Message => "LoggingMessageNotification",
        ServerNotification::ResourcesUpdated => "ResourceUpdatedNotification",
        ServerNotification::ResourcesListChanged => "ResourceListChangedNotification",
        ServerNotification::ToolsListChanged => "ToolListChangedNotification",
        ServerNotification::PromptsListChanged => "PromptListChangedNotification",
        ServerNotification::ElicitationComplete => "ElicitationCompleteNotification",
        ServerNotification::Cancelled | ServerNotification::SubscriptionsAcknowledged => {
            "JSONRPCNotification"
        }
    };
    for pair in pairs().filter(|pair| !pair.is_same()) {
        for method in ServerNotification::ALL {
            let message =
                json!({"jsonrpc": "2.0", "method": method.as_str(), "params": params(method)}).to_string();
            if let Told::On(told) | Told::Log(told) =
                notifications::to_client(pair, method.as_str(), &message).unwrap()
            {
                check(pair.client, definition(method), &told);
                assert!(pair.server.era() == Era::Legacy || !told.contains("subscriptionId"));
            }
        }
    }
}

#[test]
fn errors_are_valid_and_of_their_revision() {
    for pair in pairs().filter(|pair| !pair.is_same()) {
        for code in Code::ALL.into_iter().filter(|code| code.is_in(pair.server)) {
            let sent = json!({"code": code.number(), "message": "m", "data": {"uri": "a://b"}}).to_string();
            let made = errors::error(pair, Some(Method::ResourcesRead), Some("a://b"), &sent);
            let response = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{made}}}"#);
            check(pair.client, error_of(pair.client), &response);
            let code = Code::of(error::code_of(&made).unwrap()).unwrap();
            assert!(code.is_in(pair.client), "{pair:?}: {made}");
        }
    }
    let lacking =
        errors::lacking(longshore_mcp::capabilities::Need::Sampling, Way { from: MODERN, to: MODERN });
    check(
        MODERN,
        "MissingRequiredClientCapabilityError",
        &format!(r#"{{"jsonrpc":"2.0","id":1,"error":{lacking}}}"#),
    );
}

#[test]
fn refusals_are_valid() {
    let envelope = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"VERSION","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for (version, header, definition) in [
        ("2099-01-01", "2099-01-01", "UnsupportedProtocolVersionError"),
        ("2026-07-28", "2025-11-25", "HeaderMismatchError"),
        ("2026-07-28", "2026-07-28", "HeaderMismatchError"),
    ] {
        let envelope = envelope.replace("VERSION", version);
        let body = format!(r#"{{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{{{envelope}}}}}"#);
        let mut headers = vec![("mcp-protocol-version", header.as_bytes())];
        if version != header || version == "2099-01-01" {
            headers.push(("mcp-method", b"tools/list"));
        }
        let mistake = detect::with_body(body.as_bytes(), &Fields::read(headers), &Revision::ALL).unwrap_err();
        check(MODERN, definition, &mistake.response());
    }
    for body in ["{", "[]", "7", r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#] {
        let mistake = detect::with_body(body.as_bytes(), &Fields::default(), &Revision::ALL).unwrap_err();
        check(Revision::V2025_11_25, "JSONRPCErrorResponse", &mistake.response());
    }
    for method in [Method::Ping, Method::ResourcesSubscribe, Method::LoggingSetLevel] {
        for revision in legacy() {
            check(revision, result_of(method), "{}");
        }
    }
}
