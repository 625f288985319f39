//! Whole messages, from the outside in.

use longshore_mcp::batch::{self, Batch, Body};
use longshore_mcp::detect::{self, Conversation, HttpMethod};
use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::error::{self, Code};
use longshore_mcp::headers::Fields;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::object::{Object, edit_elements, elements, quote, string};
use longshore_mcp::params::Params;
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::{initialize, lines, probe};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::input::{Input, is_bounded, is_json, value};

/// A message is read as another reader of JSON would read it.
pub(super) fn envelope(input: &[u8]) {
    let Ok(message) = envelope::read(input) else {
        // A line of noise, or something to refuse. What a server says first may be either.
        let text = str::from_utf8(input).ok();
        _ = probe::over_stdio(text);
        _ = probe::over_http(400, text);
        return;
    };
    let text = str::from_utf8(input).unwrap();
    assert!(lines::may_be_message(input), "it would be taken for noise");
    let line = lines::line(text);
    assert!(!line.contains(['\n', '\r']));
    let tree = value(text).expect("whatever is read here, others can read");
    assert_eq!(value(&line).as_ref(), Some(&tree), "a line says the same");
    // A second member of the same name would be another message to another reader.
    let layer = Object::read(text).expect("no member occurs twice");
    for known in ["jsonrpc", "id", "method", "params", "result", "error"] {
        assert_eq!(layer.get(known).is_some(), tree.get(known).is_some(), "{known}");
    }
    match &message {
        Message::Request(request) => {
            assert_eq!(tree["method"], request.method.as_str());
            is(&request.id, &tree["id"]);
            if let Ok(params) = Params::read(request.params)
                && let Some(method) = Method::parse(&request.method)
                && let Ok(Some(target)) = params.target(method.subject())
            {
                is_said(&format!("{target:?}"), &tree["params"]);
            }
            if let Ok(outline) = Outline::read(request.params) {
                assert_eq!(outline.arguments().and_then(value), tree["params"].get("arguments").cloned());
                let claim = &tree["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
                assert_eq!(outline.claims_modern(), !claim.is_null());
            }
        }
        Message::Notification(notification) => {
            assert_eq!(tree["method"], notification.method.as_str());
            assert!(tree.get("id").is_none());
        }
        Message::Response(response) => {
            if let Some(id) = &response.id {
                is(id, &tree["id"]);
            }
            let (name, raw) = match response.outcome {
                Outcome::Result(raw) => ("result", raw),
                Outcome::Error(raw) => ("error", raw),
            };
            assert_eq!(value(raw.get()).as_ref(), Some(&tree[name]));
        }
    }
    _ = probe::over_http(200, Some(text));
}

/// An id is echoed so that whoever asked finds it again.
fn is(id: &Id<'_>, in_tree: &Value) {
    assert_eq!(value(id.as_json()).as_ref(), Some(in_tree));
    let response = error::response(Some(*id), Code::InternalError, "w", None);
    assert_eq!(value(&response).expect("JSON")["id"], *in_tree);
}

/// Access is decided by a name that is somewhere in the parameters as it is.
fn is_said(target: &str, params: &Value) {
    let names =
        [&params["name"], &params["uri"], &params["ref"]["name"], &params["ref"]["uri"], &params["taskId"]];
    let is_there =
        names.iter().any(|name| name.as_str().is_some_and(|name| target.contains(&format!("{name:?}"))));
    assert!(is_there || !target.contains('"'), "{target} is nowhere in {params}");
}

/// A batch is answered whole, each answer once and in the place of its own request.
pub(super) fn batch(input: &[u8]) {
    for revision in Revision::ALL {
        if let Ok(Body::Batch(_)) = batch::read(input, revision) {
            assert!(revision.features().batches, "{revision} has no batches");
        }
    }
    let Ok(batch) = Batch::read(input) else { return };
    let messages: Vec<_> = batch.iter().collect();
    assert!(!messages.is_empty() && messages.len() <= batch::MAX_MESSAGES);
    let ids: Vec<Id<'_>> = messages.iter().filter_map(|(message, _)| message.request_id()).collect();
    for (at, id) in ids.iter().enumerate() {
        assert!(ids[..at].iter().all(|earlier| !earlier.is(id)), "two requests with one id");
    }
    let Some(mut answers) = batch.answers() else {
        assert!(ids.is_empty());
        return;
    };
    for (at, id) in ids.iter().enumerate().rev() {
        assert!(answers.take(*id, format!("[{at}]")));
        assert!(!answers.take(*id, "[]".to_owned()), "an answer was taken twice");
    }
    assert!(answers.is_complete());
    let expected: Vec<String> = (0..ids.len()).map(|at| format!("[{at}]")).collect();
    assert_eq!(answers.write(), format!("[{}]", expected.join(",")));
}

/// What comes over HTTP is put where it belongs, or refused with an error of its own revision.
///
/// Lines of headers, as `name: value`; an empty line; the body.
pub(super) fn incoming(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let served: &[Revision] = match input.byte() % 3 {
        0 => &Revision::ALL,
        1 => &Revision::ALL[..4],
        _ => &Revision::ALL[4..],
    };
    let mut headers = Vec::new();
    while let Some(line) = input.line().filter(|line| !line.is_empty()) {
        let at = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.get(at + 1..).unwrap_or_default().trim_ascii();
        if let Ok(name) = str::from_utf8(&line[..at]) {
            headers.push((name, value));
        }
    }
    let body = input.bytes();
    let fields = Fields::read(headers);
    for method in [HttpMethod::Get, HttpMethod::Delete, HttpMethod::Post] {
        _ = detect::without_body(method, &fields, served).map_err(|mistake| mistake.answer());
    }
    let conversation = match detect::with_body(body, &fields, served) {
        Ok(conversation) => conversation,
        Err(mistake) => {
            let response = mistake.response();
            let written = value(&response).expect("an error is JSON");
            is_bounded(&response, body.len() + fields.version.one().map_or(0, str::len));
            let answer = mistake.answer();
            let is_refused = (400..500).contains(&answer.status);
            assert!(is_refused || answer.code == Code::InvalidParams, "{answer:?}");
            match &mistake.id {
                Some(id) => assert_eq!(Some(&written["id"]), value(id.as_json()).as_ref()),
                None => assert!(written.get("id").is_none()),
            }
            return;
        }
    };
    match conversation {
        Conversation::Modern(call) => {
            assert!(served.contains(&call.revision) && call.revision.era() == Era::Modern);
            assert!(call.method.is_in(call.revision));
            let body = value(str::from_utf8(body).unwrap()).expect("JSON");
            let claim = &body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
            assert_eq!(claim.as_str(), Some(call.revision.as_str()));
            assert_eq!(fields.version.one(), claim.as_str(), "header and body say the same");
            assert_eq!(fields.method.one(), Some(call.method.as_str()));
        }
        Conversation::Handshake(request) => {
            assert!(request.is(Method::Initialize) && served.iter().any(|one| one.era() == Era::Legacy));
            if let Ok(offer) = initialize::offer(str::from_utf8(body).unwrap(), served) {
                offer.rewritten.as_deref().inspect(|rewritten| is_json(rewritten));
            }
        }
        Conversation::Session(_) | Conversation::SessionBatch(_) => {
            assert!(served.iter().any(|one| one.era() == Era::Legacy));
        }
        Conversation::ModernNotification => assert!(served.iter().any(|one| one.era() == Era::Modern)),
        Conversation::Stream | Conversation::End => panic!("a POST is neither"),
    }
}

/// Editing leaves the bytes of what stays.
pub(super) fn object(bytes: &[u8]) {
    /// What is added; it may be there already.
    const NEW: &str = "\u{7f}new";
    let Some(text) = Input::new(bytes).text() else { return };
    if let Some(read) = string(text) {
        assert_eq!(value(text), Some(Value::from(&*read)));
        assert_eq!(string(&quote(&read)).as_deref(), Some(&*read));
    }
    // Two readers that have nothing in common take the same, but for what is nested too deeply.
    let is_flat = text.matches(['{', '[']).count() <= 128;
    let theirs: Result<Vec<&RawValue>, _> = serde_json::from_str(text);
    assert!(elements(text).is_ok() == theirs.is_ok() || !is_flat);
    if let Ok(elements) = elements(text) {
        let same = edit_elements(text, |error| error, |element| Ok(vec![element.into()])).unwrap();
        assert_eq!(same, text);
        elements.into_iter().for_each(is_json);
    }
    let Ok(mut object) = Object::read(text) else { return };
    assert_eq!(object.clone().into_text(), text, "what is not edited is as it was");
    let before: Vec<(String, String)> =
        object.names().map(|name| (name.to_owned(), object.get(name).unwrap().to_owned())).collect();
    object.set(NEW, "7".to_owned());
    let written = object.write();
    is_json(&written);
    let again = Object::read(&written).expect("it is read again");
    for (name, json) in &before {
        let expected = if name == NEW { "7" } else { json };
        assert_eq!(again.get(name), Some(expected), "{name:?}");
    }
    if let Some((first, _)) = before.first() {
        assert!(object.remove(first) && object.get(first).is_none());
        is_json(&object.write());
    }
}
