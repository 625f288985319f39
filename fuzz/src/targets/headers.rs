//! Headers that repeat what the body says.

use longshore_mcp::envelope::{self, Message};
use longshore_mcp::headers::{self, Fields, argument, sentinel, standard};
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;

use crate::input::{Input, is_json, value};

/// What is written into a header is read again as what it was, and what is read has one spelling.
pub(super) fn values(bytes: &[u8]) {
    let Some(text) = Input::new(bytes).text() else { return };
    let value = sentinel::encode(text);
    assert!(value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)), "{value:?} is no header");
    assert_eq!(sentinel::decode(&value).as_deref(), Ok(text));
    if let Ok(read) = sentinel::decode(text)
        && read != text
    {
        assert_eq!(sentinel::decode(&sentinel::encode(&read)).as_deref(), Ok(&*read));
    }
    if headers::is_session_id(text) {
        assert!(!text.is_empty() && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)));
    }
    for wanted in [headers::JSON, headers::EVENT_STREAM] {
        if headers::is_type(Some(text), wanted) {
            assert!(headers::accepts(Some(text), wanted) || text.contains(['=', ';']), "{text:?}");
        }
        _ = headers::accepts_both(Some(text));
    }
    // A name in a request, however it is spelled, is the one in the header that is written for it.
    for (method, member) in
        [(Method::ToolsCall, "name"), (Method::ResourcesRead, "uri"), (Method::TasksGet, "taskId")]
    {
        let quoted = longshore_mcp::object::quote(text);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{}","params":{{"{member}":{quoted}}}}}"#,
            method.as_str()
        );
        let Ok(Message::Request(request)) = envelope::read(body.as_bytes()) else { panic!("{body}") };
        let outline = Outline::read(request.params).expect("it can be read");
        let written = standard::headers(method, &outline);
        let fields = Fields::read(written.iter().map(|(name, value)| (*name, value.as_bytes())));
        assert_eq!(standard::check_method(&fields, method.as_str()), Ok(()));
        assert_eq!(standard::check_name(&fields, method, &outline), Ok(()));
    }
}

/// The headers of a call are those that its own check wants. A schema, and the arguments in the next line.
pub(super) fn arguments(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Some(schema) = input.text_line() else { return };
    let arguments = input.text_line();
    if let Ok(without) = argument::without_marks(schema) {
        is_json(&without);
        // What only looks like a mark may stand where nobody reads further.
        let left = argument::marked(&without);
        assert!(
            left.as_ref().is_ok_and(Vec::is_empty) || left == Err(argument::BadMark::Schema),
            "marks are left in {without}"
        );
    }
    let Ok(marked) = argument::marked(schema) else { return };
    let written = argument::headers(&marked, arguments);
    assert!(written.len() <= marked.len());
    let fields = Fields::read(written.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    // What does not fit into a header is left to the server to refuse.
    let fits = written.len() == marked.len();
    let readable = arguments.and_then(value).is_some();
    if fits && readable && written.iter().all(|(_, value)| !value.contains(['\n', '\r'])) {
        let checked = argument::check(&marked, arguments, &fields);
        let numbers =
            written.iter().any(|(_, value)| value.parse::<f64>().is_ok() && value.parse::<i64>().is_err());
        assert!(checked.is_ok() || numbers, "{checked:?}: {written:?}");
    }
    _ = argument::check(&marked, arguments, &Fields::default());
}
