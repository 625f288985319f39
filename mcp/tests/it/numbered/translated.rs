//! 59, 60, 68 and 70 to 74: what passes between revisions.

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::Id;
use longshore_mcp::ids::Numbers;
use longshore_mcp::level::Level;
use longshore_mcp::listen::{Filter, Offers, Streams, Wishes};
use longshore_mcp::logging::{self, Levels};
use longshore_mcp::method::Method;
use longshore_mcp::object;
use longshore_mcp::parked::{self, Parked};
use longshore_mcp::revision::Revision;
use longshore_mcp::rounds::{self, Rounds};
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::results::{self, Hints};
use longshore_mcp::translate::{Pair, errors, names};
use serde_json::json;

use crate::minted::Minted;

const NEW: Revision = Revision::V2026_07_28;
const OLD: Revision = Revision::V2025_11_25;
const NOBODY: Client<'_> = Client { capabilities: "{}", info: None, level: None };

#[test]
fn r059_a_cancellation_names_the_other_sides_id() {
    let mut numbers = Numbers::new(8);
    let mine = numbers.give("ann", "\"c\"").unwrap();
    let other = numbers.give("bob", "\"c\"").unwrap();
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c","reason":"r"}}"#;
    let id = names::cancelled_id(cancelled).unwrap();
    let found = numbers.find(Id::from_json(id), |owner| *owner == "bob").unwrap();
    assert!(found == other && found != mine);
    assert_eq!(
        names::with_cancelled_id(cancelled, &found.to_string()).unwrap(),
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{other},"reason":"r"}}}}"#
        )
    );
    assert_eq!(numbers.find(Id::from_json("\"d\""), |owner| *owner == "bob"), None);
}

#[test]
fn an_answer_counts_only_from_who_was_asked() {
    let mut questions = Numbers::new(8);
    let asked = questions.give("session a", "5").unwrap().to_string();
    let answer = names::with_id(r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#, &asked).unwrap();
    assert_eq!(object::at(&answer, &["id"]), Some(asked.as_str()));
    let (owner, _) = questions.owner(Id::from_json(&asked)).unwrap();
    assert_ne!(*owner, "session b");
    assert_eq!(questions.take(Id::from_json(&asked)), Some(("session a", "5".to_owned())));
    assert_eq!(questions.take(Id::from_json(&asked)), None);
}

#[test]
fn ids_and_tokens_of_several_clients_stay_apart() {
    let (mut ids, mut tokens) = (Numbers::new(8), Numbers::new(8));
    let request =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}"#;
    let mut sent = Vec::new();
    for client in ["ann", "bob"] {
        let (id, token) = (ids.give(client, "1").unwrap(), tokens.give(client, "1").unwrap());
        let with_id = names::with_id(request, &id.to_string()).unwrap();
        sent.push((
            client,
            id,
            token,
            names::with_progress_token(&with_id, &token.to_string()).unwrap().into_owned(),
        ));
    }
    assert_ne!(sent[0].3, sent[1].3);
    for (client, id, token, _) in sent.into_iter().rev() {
        let progress =
            json!({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
        let progress = progress.to_string();
        let (owner, theirs) = tokens.owner(Id::from_json(names::reported_token(&progress).unwrap())).unwrap();
        assert_eq!(
            (*owner, names::reported_token(&names::with_reported_token(&progress, theirs).unwrap())),
            (client, Some("1"))
        );
        assert_eq!(ids.take(Id::from_json(&id.to_string())), Some((client, "1".to_owned())));
    }
}

/// What a call and its result become between each pair of revisions: the whole table.
#[test]
fn r070_a_call_passes_between_all_revisions() {
    let envelope = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;
    for client in Revision::ALL {
        for server in Revision::ALL {
            let pair = Pair { client, server };
            let write = |revision: Revision, rest: &str| {
                let meta =
                    if revision == NEW { format!(r#","_meta":{{{envelope}}}"#) } else { String::new() };
                format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t"{rest}{meta}}}}}"#
                )
            };
            assert_eq!(destination::of(pair, "tools/call"), Destination::Server);
            let made = write(client, "");
            let made = requests::request(pair, Some(Method::ToolsCall), &made, &NOBODY).unwrap();
            assert_eq!(made, write(server, ""), "{client} {server}");

            let kind = |revision: Revision| if revision == NEW { r#","resultType":"complete""# } else { "" };
            let result = |revision: Revision| {
                format!(r#"{{"content":[{{"type":"text","text":"a"}}],"isError":false{}}}"#, kind(revision))
            };
            let sent = result(server);
            let made =
                results::result(pair.down(), Some(Method::ToolsCall), &sent, &Hints::default()).unwrap();
            assert_eq!(made, result(client), "{client} {server}");
        }
    }
}

#[test]
fn r071_a_legacy_servers_questions_reach_a_modern_client() {
    let everything = || {
        ClientCapabilities::read(r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#).unwrap()
    };
    let mut call = Parked::new(Pair { client: NEW, server: OLD }, "9", everything());
    for (id, method, params) in [
        ("1", "roots/list", None),
        ("2", "sampling/createMessage", Some(r#"{"messages":[],"maxTokens":1}"#)),
        (
            "3",
            "elicitation/create",
            Some(r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#),
        ),
        (
            "4",
            "elicitation/create",
            Some(r#"{"mode":"url","message":"m","url":"https://a","elicitationId":"e"}"#),
        ),
    ] {
        assert_eq!(call.asked(Id::from_json(id), method, params), parked::Asked::Kept);
    }
    let round = call.round("sealed", None).unwrap();
    longshore_mcp_schemas::check(NEW, "InputRequiredResult", &round);
    assert!(!round.contains("elicitationId"));
    let answers = json!({
        "roots-1": {"roots": []},
        "sampling-2": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "t"}},
        "elicitation-3": {"action": "accept", "content": {"a": "b"}},
        "elicitation-4": {"action": "accept"},
    });
    let Ok(parked::Next::Tell(told)) = call.answered(Some(&answers.to_string()), everything()) else {
        panic!()
    };
    let ids: Vec<_> = told.iter().map(|message| object::at(message, &["id"]).unwrap()).collect();
    assert_eq!(ids, ["1", "2", "3", "4"]);

    let error = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a","message":"m"}]}}"#;
    let mut call = Parked::new(Pair { client: NEW, server: OLD }, "9", everything());
    call.visit(&errors::urls_to_visit(error).unwrap(), &everything()).unwrap();
    longshore_mcp_schemas::check(NEW, "InputRequiredResult", &call.round("sealed", None).unwrap());
    let answered = call.answered(Some(r#"{"elicitation-1":{"action":"accept"}}"#), everything());
    assert_eq!(answered, Ok(parked::Next::CallAgain));
}

#[test]
fn r072_a_modern_servers_questions_reach_a_legacy_client() {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}"#;
    let can = ClientCapabilities::read(r#"{"roots":{}}"#).unwrap();
    let mut rounds = Rounds::new(Pair { client: OLD, server: NEW }, Method::PromptsGet, call, can);
    let state = r#""\u0041 \/ \"""#;
    let required = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"k":{{"method":"roots/list"}}}},"requestState":{state}}}"#
    );
    for _ in 0..rounds::MAX_ROUNDS {
        let asked = rounds.input_required(&required, &mut Minted);
        assert_eq!(
            asked,
            rounds::Next::Ask(vec![r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#.to_owned()])
        );
        assert_eq!(rounds.answered(Id::from_json("7"), Ok(r#"{"roots":[]}"#)), Some(rounds::Next::Again));
        let again = rounds.again("2").unwrap();
        assert_eq!(object::at(&again, &["params", "requestState"]), Some(state));
        assert_eq!(object::at(&again, &["params", "inputResponses", "k"]), Some(r#"{"roots":[]}"#));
    }
    assert!(matches!(rounds.input_required(&required, &mut Minted), rounds::Next::Error(_)));
}

#[test]
fn r073_subscriptions_pass_both_ways() {
    let offers = Offers { updates: true, ..Offers::default() };
    let wanted = || Filter::read(r#"{"notifications":{"resourceSubscriptions":["a"]}}"#).unwrap();
    let mut streams = Streams::new();
    let (one, two) =
        (streams.open("1", wanted(), offers).unwrap(), streams.open("2", wanted(), offers).unwrap());
    // The server is asked once, however many listen.
    assert_eq!((one.subscribe.len(), two.subscribe.len()), (1, 0));
    // What it tells may be of a part of what it is asked for.
    for (uri, hearing) in [("a", 2), ("a/part", 2), ("a?part", 2), ("ab", 0), ("b/a", 0)] {
        let news = format!(r#"{{"method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#);
        assert_eq!(streams.deliver(&news).len(), hearing, "{uri}");
    }
    assert_eq!((streams.close(one.stream).len(), streams.close(two.stream).len()), (0, 1));

    let mut wishes = Wishes::new(offers);
    assert_eq!(wishes.request("1", NEW, &NOBODY), None);
    assert_eq!(wishes.subscribe("a"), Ok(true));
    assert!(wishes.request("1", NEW, &NOBODY).unwrap().contains(r#""resourceSubscriptions":["a"]"#));
    assert!(wishes.unsubscribe("a"));
    assert_eq!(wishes.request("1", NEW, &NOBODY), None);
}

#[test]
fn r074_log_levels_pass_both_ways() {
    let mut levels = Levels::new();
    assert_eq!(levels.begin(Some(Level::Error)), Some(Level::Error));
    assert_eq!(levels.begin(Some(Level::Info)), Some(Level::Info));
    let message = json!({"params": {"level": "warning"}}).to_string();
    assert!(
        logging::is_wanted(&message, Some(Level::Info)) && !logging::is_wanted(&message, Some(Level::Error))
    );

    let pair = Pair { client: OLD, server: NEW };
    assert_eq!(destination::of(pair, "logging/setLevel"), Destination::Level);
    let level = logging::level_of(r#"{"level":"notice"}"#);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let made = requests::request(pair, Some(Method::ToolsList), call, &Client { level, ..NOBODY }).unwrap();
    assert!(made.contains(r#""io.modelcontextprotocol/logLevel":"notice""#));
}
