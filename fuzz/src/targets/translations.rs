//! Messages of one revision made from messages of another.
//!
//! The first bytes choose the revisions, and what the message is; the rest is the message. Members whose names begin
//! with `x` are nobody's.

use std::borrow::Cow;

use longshore_mcp::envelope::{self, Message};
use longshore_mcp::error::Code;
use longshore_mcp::meta;
use longshore_mcp::method::{Method, ServerRequest};
use longshore_mcp::object::{self, Object};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::responses::{self, Answer, Asked};
use longshore_mcp::translate::results::{self, Hints, Kind};
use longshore_mcp::translate::{
    Pair, Untranslatable, Way, capabilities, content, destination, errors, handshake, names, questions,
    requests, tools,
};

use crate::input::{CLIENT, Input, able, is_bounded, is_json, strangers_survive, value};

const HINTS: Hints<'_> = Hints {
    server_info: Some(r#"{"name":"s","version":"1"}"#),
    ttl_ms: 7,
    scope: results::Scope::Private,
    wrapped: None,
};

/// What holds for all of them: between equals nothing changes, what is made is JSON and not much longer, and who cannot
/// be served hears of both revisions. Gives what was made.
#[track_caller]
fn sound<'a>(way: Way, from: &str, made: Result<Cow<'a, str>, Untranslatable>) -> Option<Cow<'a, str>> {
    match made {
        Ok(made) => {
            if way.is_same() {
                assert_eq!(made, from, "nothing changes between equals");
            } else if matches!(made, Cow::Owned(_)) {
                is_json(&made);
                is_bounded(&made, from.len());
            }
            Some(made)
        }
        Err(error) => {
            let words = error.to_string();
            assert!(words.contains(way.from.as_str()) && words.contains(way.to.as_str()), "{words}");
            None
        }
    }
}

/// A part of a message, as it was written.
fn part<'a>(message: &'a str, name: &str) -> &'a str {
    Object::read(message).ok().and_then(|object| object.original(name)).unwrap_or("{}")
}

pub(super) fn requests(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (pair, method) = (input.pair(), input.method());
    let Some(text) = input.text() else { return };
    _ = destination::of(pair, text);
    let there = requests::request(pair, Some(method), text, &CLIENT);
    let Some(there) = sound(pair.up(), text, there) else { return };
    for (before, after) in [(text, &*there), (part(text, "params"), part(&there, "params"))] {
        strangers_survive(before, after);
    }
    if value(text).is_some() && !pair.is_same() && !there.is_empty() {
        let claims =
            value(&there).is_some_and(|there| there["params"]["_meta"][meta::PROTOCOL_VERSION].is_string());
        match (pair.client.era(), pair.server.era()) {
            (_, Era::Legacy) if pair.client.era() == Era::Modern => {
                assert!(!claims, "an envelope is left: {there}");
            }
            (Era::Legacy, Era::Modern) => assert!(claims, "there is no envelope: {there}"),
            _ => {}
        }
    }
    // There and back: what is not of one era alone is as it was.
    let back = Pair { client: pair.server, server: pair.client };
    if let Ok(back) = requests::request(back, Some(method), &there, &CLIENT) {
        for name in ["name", "arguments", "uri", "cursor", "ref", "argument"] {
            let (before, after) = (part(text, "params"), part(&back, "params"));
            assert_eq!(object::at(before, &[name]), object::at(after, &[name]), "{name}");
        }
        assert_eq!(object::at(text, &["id"]), object::at(&back, &["id"]));
    }
    for change in [names::with_id(text, "77"), names::with_progress_token(text, "77")] {
        if let Ok(Cow::Owned(changed)) = change {
            is_json(&changed);
        }
    }
}

pub(super) fn responses(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (pair, method) = (input.pair(), input.method());
    let Some(text) = input.text() else { return };
    let Ok(Message::Response(response)) = envelope::read(text.as_bytes()) else { return };
    let asked = Asked { id: "\"the client's\"", method: Some(method), uri: Some("a://b") };
    match responses::response(pair, &asked, &response, text, &HINTS) {
        Ok(Answer::Message(message)) => {
            let written = value(&message).expect("JSON");
            assert_eq!(written["id"], "the client's", "it has the id that the client waits for");
            assert!(written.get("result").is_some() != written.get("error").is_some());
            let code = written["error"]["code"].as_i64().and_then(Code::of);
            if !pair.is_same() && pair.client.era() == Era::Modern {
                assert!(
                    code.is_none_or(|code| code.is_in(pair.client)),
                    "{code:?} is not of {}",
                    pair.client
                );
            }
            if let (false, Some(result)) = (pair.is_same(), written.get("result")) {
                assert_eq!(result.get("resultType").is_some(), pair.client.era() == Era::Modern);
            }
        }
        Ok(Answer::InputRequired(result)) => {
            assert_eq!(
                (results::kind(result), pair.eras()),
                (Kind::InputRequired, (Era::Legacy, Era::Modern))
            );
        }
        Ok(Answer::Visit(urls)) => assert!(!urls.is_empty()),
        Err(error) => assert!(error.to_string().contains(pair.client.as_str())),
    }
    // And one that keeps the id keeps everything, between equals.
    if let Some(id) = response.id {
        let same = Pair { client: pair.server, server: pair.server };
        let asked = Asked { id: id.as_json(), ..asked };
        let answer =
            responses::response(same, &asked, &response, text, &HINTS).expect("equals understand each other");
        assert_eq!(answer, Answer::Message(Cow::Borrowed(text)));
    }
}

pub(super) fn results(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (way, method) = (input.way(), input.method());
    let Some(text) = input.text() else { return };
    let made = results::result(way, Some(method), text, &HINTS);
    let Some(made) = sound(way, text, made) else { return };
    strangers_survive(text, &made);
    if way.is_same() {
        return;
    }
    if way.to.era() == Era::Legacy {
        for gone in ["resultType", "ttlMs", "cacheScope"] {
            assert_eq!(object::at(&made, &[gone]), None, "{gone}");
        }
    } else {
        assert_eq!(results::kind(&made), Kind::Complete);
        assert_eq!(
            object::at(&made, &["ttlMs"]).is_some(),
            method.is_cacheable() || object::at(text, &["ttlMs"]).is_some()
        );
    }
    let back = Way { from: way.to, to: way.from };
    if let Ok(back) = results::result(back, Some(method), &made, &HINTS) {
        for name in
            ["nextCursor", "isError", "completion", "contents", "resources", "resourceTemplates", "prompts"]
        {
            // The cursor of a last page is none, however that is written.
            let is_none = |said: &str| name == "nextCursor" && said == "null" && method.list().is_some();
            let before = object::at(text, &[name]).filter(|said| !is_none(said));
            assert_eq!(before, object::at(&back, &[name]), "{name}");
        }
    }
}

pub(super) fn errors(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (pair, method) = (input.pair(), input.method());
    let Some(text) = input.text() else { return };
    let made = errors::error(pair, Some(method), Some("a://b"), text);
    if pair.is_same() {
        assert_eq!(made, text);
        return;
    }
    // Numbers that no reader holds pass like all else that nobody looks at.
    let Some(written) = value(&made) else {
        assert!(value(text).is_none(), "{made}");
        return;
    };
    assert!(written["code"].is_i64() && written["message"].is_string(), "{made}");
    is_bounded(&made, text.len());
    if pair.client.era() != pair.server.era()
        && let Some(code) = written["code"].as_i64().and_then(Code::of)
    {
        assert!(code.is_in(pair.client), "{code:?} is not of {}", pair.client);
    }
    _ = errors::urls_to_visit(text);
}

/// The method, an empty byte, and the message.
pub(super) fn notifications(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let pair = input.pair();
    let Some(method) = input.text_line() else { return };
    let Some(text) = input.text() else { return };
    match notifications::to_client(pair, method, text) {
        Ok(Told::On(made) | Told::Log(made)) => {
            sound(pair.down(), text, Ok(made.clone()));
            strangers_survive(text, &made);
            if pair.eras() == (Era::Legacy, Era::Modern) {
                let id = object::at(&made, &["params", "_meta", meta::SUBSCRIPTION_ID]);
                assert_eq!(id, None, "the client has never heard of it");
            }
        }
        Ok(Told::Subscriptions) => assert_eq!(pair.client.era(), Era::Modern),
        Ok(Told::Cancels | Told::Nowhere) => {}
        Err(error) => assert!(error.to_string().contains(pair.client.as_str())),
    }
    match notifications::to_server(pair, method, text) {
        Told::On(made) => assert_eq!(made, text),
        Told::Subscriptions | Told::Log(_) => panic!("clients say neither"),
        Told::Cancels | Told::Nowhere => {}
    }
    for change in [names::with_reported_token(text, "7"), names::with_cancelled_id(text, "7")] {
        if let Ok(Cow::Owned(changed)) = change {
            is_json(&changed);
        }
    }
}

pub(super) fn questions(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (way, request) = (input.way(), input.pick(&ServerRequest::ALL));
    let Some(text) = input.text() else { return };
    if let Some(made) = sound(way, text, questions::ask(way, request, text, &able())) {
        strangers_survive(text, &made);
        assert_eq!(questions::is_visit(text), questions::is_visit(&made));
    }
    if questions::is_answer(request, text) {
        let answered = questions::answer(way, request, text);
        if let Some(made) = sound(way, text, answered) {
            assert!(questions::is_answer(request, &made), "it is no answer any more: {made}");
        }
    } else {
        assert!(questions::answer(way, request, text).is_err());
    }
    if let Ok(visit) = questions::with_elicitation_id(text, "e") {
        is_json(&visit);
    }
    sound(way, text, questions::request(way, request, text, &able()));
    sound(way, text, questions::response(way, request, text));
}

pub(super) fn handshakes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let way = input.way();
    let Some(text) = input.text() else { return };
    sound(way, text, handshake::offer(way, text));
    sound(way, text, handshake::accept(way, text));
    if let Some(made) = sound(way, text, capabilities::client(way, text)) {
        strangers_survive(text, &made);
    }
    if let Some(made) = sound(way, text, capabilities::server(way, text)) {
        strangers_survive(text, &made);
        if !way.is_same() {
            assert_eq!(object::at(&made, &["tasks"]), None, "tasks are not carried");
        }
    }
    if let Ok(discovered) = handshake::discovered(way, text, &Revision::ALL, &HINTS) {
        is_json(&discovered);
        strangers_survive(text, &discovered);
        let initialized = handshake::initialized(Way { from: way.to, to: way.from }, &discovered);
        if let Ok(initialized) = initialized {
            is_json(&initialized);
            let said = object::at(text, &["instructions"]).filter(|said| *said != "null");
            assert_eq!(object::at(&initialized, &["instructions"]), said);
        }
    }
    if let Ok(initialized) = handshake::initialized(way, text) {
        is_json(&initialized);
    }
    _ = longshore_mcp::initialize::accepted(text, way.to)
        .map(|accepted| accepted.rewritten.as_deref().map(is_json));
}

pub(super) fn tools(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let way = input.way();
    let Some(text) = input.text() else { return };
    if let Ok(made) = tools::definition(way, text) {
        is_json(&made);
        is_bounded(&made, text.len());
        strangers_survive(text, &made);
        assert_eq!(object::at(text, &["name"]), object::at(&made, &["name"]));
        let schema = object::at(&made, &["inputSchema"]);
        if (way.from.era(), way.to.era()) == (Era::Legacy, Era::Modern)
            && let Some(schema) = schema
        {
            let marked = longshore_mcp::headers::argument::marked(schema);
            assert!(marked.is_ok(), "a client would drop the tool: {marked:?}");
        }
    }
    _ = tools::is_wrapped(text);
    for (name, called) in tools::called(text) {
        assert!(
            value(text).is_none_or(|list| list["tools"].to_string().contains("name")),
            "{name} {called:?}"
        );
    }
    if let Ok(made) = content::block(way, text) {
        is_json(&made);
        is_bounded(&made, text.len());
        // What comes out is of a kind that its reader knows, so a second pass changes nothing.
        let again = content::block(Way { from: way.to, to: way.to }, &made).expect("a block");
        assert_eq!(again, made);
    }
    // Where every kind passes nobody looks: what is no JSON has been refused by whoever read the message.
    if value(text).is_some() {
        _ = content::blocks(way, text).map(|made| is_json(&made));
    }
    _ = Method::ALL.map(|method| method.subject());
}
