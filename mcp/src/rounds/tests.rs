//! Calls of legacy clients, whose modern server asks and is called again.

use super::*;
use crate::object;
use crate::revision::Revision;

const CALL: &str = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{"x":1.0},"_meta":{"a/b":1}}}"#;

#[derive(Default)]
struct Counting(u32);

impl Mint for Counting {
    fn id(&mut self) -> String {
        self.0 += 1;
        format!("\"q{}\"", self.0)
    }

    fn visit(&mut self) -> String {
        format!("visit-{}", self.0)
    }
}

fn rounds(client: Revision, method: Method, can: &str) -> Rounds {
    let pair = Pair { client, server: Revision::V2026_07_28 };
    Rounds::new(pair, method, CALL, ClientCapabilities::read(can).unwrap())
}

const FORM: &str = r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#;

fn required(requests: &str, state: Option<&str>) -> String {
    let state = state.map(|state| format!(",\"requestState\":{state}")).unwrap_or_default();
    format!(r#"{{"resultType":"input_required","inputRequests":{requests}{state}}}"#)
}

#[test]
fn the_client_is_asked_and_the_server_called_again() {
    let mut mint = Counting::default();
    let mut rounds = rounds(
        Revision::V2025_11_25,
        Method::ToolsCall,
        r#"{"roots":{},"elicitation":{"form":{},"url":{}}}"#,
    );
    let asked = required(
        &format!(
            r#"{{"a":{{"method":"elicitation/create","params":{FORM}}},"\u0062":{{"method":"roots/list","params":null}},"c":{{"method":"elicitation/create","params":{{"mode":"url","url":"https://a","message":"m"}}}}}}"#
        ),
        Some(r#""s\u0074ate""#),
    );
    assert_eq!(
        rounds.input_required(&asked, &mut mint),
        Next::Ask(vec![
            format!(r#"{{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{FORM}}}"#),
            r#"{"jsonrpc":"2.0","id":"q2","method":"roots/list"}"#.to_owned(),
            r#"{"jsonrpc":"2.0","id":"q3","method":"elicitation/create","params":{"mode":"url","url":"https://a","message":"m","elicitationId":"visit-2"}}"#.to_owned(),
        ])
    );
    // The state as it is written, and three keys.
    assert_eq!(rounds.kept(), CALL.len() + r#""s\u0074ate""#.len() + 3);
    assert_eq!(rounds.answered(Id::from_json("\"q9\""), Ok("{}")), None);
    assert_eq!(rounds.answered(Id::from_json("\"q2\""), Ok(r#"{"roots":[ ]}"#)), Some(Next::Wait));
    assert_eq!(rounds.answered(Id::from_json("\"q2\""), Ok(r#"{"roots":[ ]}"#)), None);
    // An error in place of a form means that nobody filled it in.
    assert_eq!(rounds.answered(Id::from_json("\"q3\""), Err("{}")), Some(Next::Wait));
    assert_eq!(rounds.unanswered().collect::<Vec<_>>(), ["\"q1\""]);
    assert_eq!(
        rounds.answered(Id::from_json("\"\\u00711\""), Ok(r#"{"action":"accept"}"#)),
        Some(Next::Again)
    );
    // The state keeps its bytes, escapes and all.
    assert_eq!(
        rounds.again("4").unwrap(),
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"t","arguments":{"x":1.0},"_meta":{"a/b":1},"inputResponses":{"a":{"action":"accept"},"b":{"roots":[ ]},"c":{"action":"cancel"}},"requestState":"s\u0074ate"}}"#
    );
    // A round without questions and with a state is a wish for a pause; nothing of the last round is sent again.
    for questions in ["", r#","inputRequests":null"#, r#","inputRequests":{}"#] {
        let later = format!(r#"{{"resultType":"input_required","requestState":"x"{questions}}}"#);
        assert_eq!(rounds.input_required(&later, &mut mint), Next::AgainLater, "{questions}");
        let again = rounds.again("5").unwrap();
        assert_eq!(object::at(&again, &["params", "requestState"]), Some("\"x\""));
        assert_eq!(object::at(&again, &["params", "inputResponses"]), None);
    }
}

#[test]
fn what_cannot_be_asked_ends_the_call_in_words() {
    let form =
        |rest: &str| required(&format!(r#"{{"a":{{"method":"elicitation/create","params":{rest}}}}}"#), None);
    let sample = required(r#"{"a":{"method":"sampling/createMessage","params":{}}}"#, None);
    for (client, method, can, asked, expected) in [
        (
            Revision::V2025_11_25,
            Method::ToolsCall,
            "{}",
            form(FORM),
            r#"{"content":[{"type":"text","text":"the server (revision 2026-07-28) needs elicitation with a form, which this client (revision 2025-11-25) did not declare"}],"isError":true}"#,
        ),
        (
            Revision::V2025_11_25,
            Method::PromptsGet,
            "{}",
            sample.clone(),
            r#"{"code":-32603,"message":"the server (revision 2026-07-28) needs sampling, which this client (revision 2025-11-25) did not declare"}"#,
        ),
        (
            Revision::V2025_06_18,
            Method::PromptsGet,
            r#"{"elicitation":{}}"#,
            form(
                r#"{"message":"m","requestedSchema":{"type":"object","properties":{"a":{"type":"array"}}}}"#,
            ),
            r#"{"code":-32603,"message":"a choice of several values cannot be passed on from revision 2026-07-28 to revision 2025-06-18 of MCP"}"#,
        ),
        (
            Revision::V2025_11_25,
            Method::ResourcesRead,
            "{}",
            r#"{"resultType":"input_required"}"#.to_owned(),
            r#"{"code":-32603,"message":"the server asked its client for something that is not usable"}"#,
        ),
        (
            Revision::V2025_11_25,
            Method::ToolsList,
            "{}",
            sample,
            r#"{"code":-32603,"message":"the server asked back where its revision does not allow it"}"#,
        ),
    ] {
        let next = rounds(client, method, can).input_required(&asked, &mut Counting::default());
        let (Next::Result(text) | Next::Error(text)) = next else { panic!("{next:?}") };
        assert_eq!(text, expected);
    }
    let mut rounds = rounds(Revision::V2025_11_25, Method::PromptsGet, r#"{"sampling":{}}"#);
    let asked =
        required(r#"{"a":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}}"#, None);
    let later = r#"{"resultType":"input_required","requestState":"s"}"#;
    for _ in 0..MAX_ROUNDS {
        assert_eq!(rounds.input_required(later, &mut Counting::default()), Next::AgainLater);
        assert!(matches!(rounds.input_required(&asked, &mut Counting::default()), Next::Ask(_)));
    }
    assert!(matches!(rounds.answered(Id::from_json("\"q1\""), Err("{}")), Some(Next::Error(_))));
    assert!(matches!(rounds.input_required(&asked, &mut Counting::default()), Next::Error(_)));
}
