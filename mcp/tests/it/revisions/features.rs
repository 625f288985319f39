//! The rows.

use std::borrow::Cow;

use longshore_mcp::batch;
use longshore_mcp::detect;
use longshore_mcp::envelope::Malformed;
use longshore_mcp::headers::Fields;
use longshore_mcp::listen::{Filter, Offers, Streams, Wishes};
use longshore_mcp::method::{Method, NotificationMethod, ServerNotification, ServerRequest};
use longshore_mcp::revision::{Elicitation, Era, Revision, Structured, Tasks};
use longshore_mcp::status::{Problem, answer};
use longshore_mcp::tasks;
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::results::{self, Hints};
use longshore_mcp::translate::{Pair, capabilities, content, tools};
use serde_json::{Value, json};

use super::Feature;
use super::Reads::{Client as ToClient, Server as ToServer};
use super::Verdict::{self, Answered, Becomes, Passes, Refused, Unheard};
use super::asking::{
    cancels_question, form, ping_of_server, question, sampling_answer, sampling_audio, sampling_blocks,
    sampling_context, urls, visit, visited,
};
use super::failing::{error, no_method, not_found, reserved};
use super::probed;

pub(super) const ABLE: &str =
    r#"{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;
const CLIENT: Client<'_> = Client { capabilities: ABLE, info: None, level: None };

// What a cell says that no function of this crate does is shown by tests of the sidecar, which stand behind `shown by`.
macro_rules! features {
    ($($name:literal, $reads:ident, $probe:expr $(, shown by [$($shown:expr),+])?;)+) => {
        pub(super) const FEATURES: &[Feature] =
            &[$(Feature { name: $name, reads: $reads, probe: $probe, shown: &[$($($shown),+)?] }),+];
    };
}

const CANCELLED: &str = "r059_a_cancelled_call_ends_though_its_server_leaves_it_open";

features! {
    "`initialize`", ToServer, |pair| asks(pair, Method::Initialize, json!({})),
        shown by ["r019_every_client_gets_the_revision_that_it_asks_for", "r019_a_session_begins_with_the_revision_that_its_client_asks_for"];
    "`server/discover`", ToServer, |pair| asks(pair, Method::ServerDiscover, json!({})),
        shown by ["r036_a_server_with_a_handshake_is_discovered_and_listed"];
    "`ping` of a client", ToServer, |pair| asks(pair, Method::Ping, json!({})),
        shown by ["what_a_session_keeps_never_reaches_the_server"];
    "`tools/list`, `prompts/list`, `resources/list`, `resources/templates/list`, with cursors", ToServer,
        |pair| alike(&[Method::ToolsList, Method::PromptsList, Method::ResourcesList, Method::ResourcesTemplatesList]
            .map(|method| asks(pair, method, json!({"cursor": "c"}))));
    "`tools/call`, `prompts/get`, `resources/read`", ToServer,
        |pair| alike(&[Method::ToolsCall, Method::PromptsGet, Method::ResourcesRead]
            .map(|method| asks(pair, method, json!({"name": "n", "uri": "a://b", "arguments": {"a": "b"}}))));
    "`completion/complete`", ToServer, |pair| asks(pair, Method::CompletionComplete, json!({"ref": {}}));
    "its `context` (since 2025-06-18)", ToServer, context;
    "methods that nobody knows", ToServer, strange_method;
    "`notifications/initialized`", ToServer, |pair| tells(pair, "notifications/initialized");
    "`notifications/roots/list_changed`", ToServer, roots_changed,
        shown by ["r060_answers_and_cancellations_stay_apart_where_the_server_has_no_sessions"];
    "progress of what the client was asked", ToServer, |pair| tells(pair, "notifications/progress");
    "notifications of a client that nobody knows", ToServer, |pair| tells(pair, "com.example/done");
    "batches of a client (2025-03-26)", ToServer, batch_of_client,
        shown by ["r007_each_message_of_a_batch_is_served_by_itself", "r007_a_server_that_knows_no_batches_gets_requests", "r007_answers_to_questions_may_come_in_a_batch", "r061_a_stream_names_its_place_for_messages"];
    "results", ToClient, |pair| result(pair, Method::PromptsList, json!({"prompts": []}), Becomes("with `resultType`, caching hints (not kept, private) and who the server is"), Becomes("without `resultType` and caching hints"));
    "structured results that are objects (since 2025-06-18)", ToClient, |pair| structured(pair, json!({"a": 1}));
    "structured results that are none (2026-07-28)", ToClient, |pair| structured(pair, json!([1]));
    "output schemas that are not of objects (2026-07-28)", ToClient, output_schema;
    "audio (since 2025-03-26)", ToClient, |pair| block(pair, pair.server.features().audio, json!({"type": "audio", "data": "", "mimeType": "audio/wav"}), "an embedded resource with the same data");
    "links to resources (since 2025-06-18)", ToClient, |pair| block(pair, pair.server.features().resource_links, json!({"type": "resource_link", "uri": "a://b", "name": "n"}), "text that names the link");
    "`x-mcp-header` that a client could not use", ToClient, marks,
        shown by ["r027_arguments_are_repeated_as_the_servers_list_says"];
    "progress", ToClient, |pair| hears(pair, ServerNotification::Progress, json!({"progressToken": 1, "progress": 1}));
    "cancellation by the client", ToServer, cancels,
        shown by [CANCELLED, "r059_a_cancelled_call_is_dropped_at_the_server"];
    "cancellation by the server, of what it asked", ToClient, cancels_question;
    "a client that goes away in a call", ToServer, goes_away,
        shown by ["a_client_that_goes_away_cancels_nothing_and_leaves_nothing", "r041_a_client_that_goes_away_has_cancelled_at_a_server_with_sessions", "r058_a_client_that_goes_away_cancels_nothing_at_a_server_without_sessions", "the_end_of_a_stream_is_the_end_of_its_session"];
    "log messages", ToClient, |pair| hears(pair, ServerNotification::Message, json!({"level": "info", "data": 1}));
    "`logging/setLevel`", ToServer, |pair| asks(pair, Method::LoggingSetLevel, json!({"level": "info"})),
        shown by ["r074_requests_say_what_the_session_knows"];
    "list changes", ToClient, |pair| alike(&[ServerNotification::ToolsListChanged, ServerNotification::PromptsListChanged, ServerNotification::ResourcesListChanged].map(|told| hears(pair, told, json!({})))),
        shown by ["r073_listening_subscribes_and_hears", "r073_a_session_hears_what_it_wants_to_hear"];
    "`notifications/resources/updated`", ToClient, |pair| match hears(pair, ServerNotification::ResourcesUpdated, json!({"uri": "a://b"})) {
            Becomes(_) if pair.client.era() == Era::Legacy => Becomes("to the clients that subscribed to it, without the subscription"),
            verdict => verdict,
        },
        shown by ["r073_listening_subscribes_and_hears", "r073_a_session_hears_what_it_wants_to_hear"];
    "`resources/subscribe`, `resources/unsubscribe`", ToServer, |pair| alike(&[Method::ResourcesSubscribe, Method::ResourcesUnsubscribe].map(|method| asks(pair, method, json!({"uri": "a://b"})))),
        shown by ["r073_a_session_hears_what_it_wants_to_hear"];
    "`subscriptions/listen`", ToServer, |pair| asks(pair, Method::SubscriptionsListen, json!({"notifications": {}})),
        shown by ["r073_listening_subscribes_and_hears"];
    "`notifications/subscriptions/acknowledged`", ToClient, acknowledges,
        shown by ["r073_listening_subscribes_and_hears"];
    "notifications of a server that nobody knows", ToClient, strange_notification,
        shown by ["what_nobody_knows_passes_in_calls_alone", "what_is_said_during_a_call_comes_on_its_stream", "what_nobody_knows_passes_in_the_only_call"];
    "batches of a server (2025-03-26, and 2024-11-05 where JSON-RPC is taken at its word)", ToClient, batch_of_server;
    "`ping` of a server", ToClient, ping_of_server,
        shown by ["what_the_server_asks_is_asked_in_a_call", "r055_what_a_server_says_goes_to_one_stream"];
    "`sampling/createMessage`", ToClient, |pair| question(pair, ServerRequest::SamplingCreateMessage, json!({"messages": [], "maxTokens": 1}));
    "sampling with tools (since 2025-11-25)", ToClient, |pair| if pair.server.features().sampling_tools { question(pair, ServerRequest::SamplingCreateMessage, json!({"messages": [], "maxTokens": 1, "tools": [{"name": "t", "inputSchema": {"type": "object"}}]})) } else { Unheard };
    "messages of several blocks in sampling (since 2025-11-25)", ToClient, sampling_blocks,
        shown by ["what_cannot_be_asked_is_answered_with_both_revisions"];
    "an answer of several blocks to sampling, or of one that uses a tool (since 2025-11-25)", ToServer,
        |pair| alike(&[json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), json!({"type": "tool_use", "id": "1", "name": "t", "input": {}})]
            .map(|content| sampling_answer(pair, pair.client.features().sampling_tools, content))),
        shown by ["what_cannot_be_answered_is_an_error_to_the_server", "r043_questions_that_come_together_are_asked_together"];
    "audio in sampling (since 2025-03-26)", ToClient, sampling_audio;
    "audio in an answer to sampling (since 2025-03-26)", ToServer,
        |pair| sampling_answer(pair, pair.client.features().audio, json!({"type": "audio", "data": "", "mimeType": "audio/wav"}));
    "`includeContext` of sampling, other than `none`", ToClient, sampling_context;
    "`elicitation/create` with a form (since 2025-06-18)", ToClient, |pair| form(pair, Elicitation::Form, json!({"a": {"type": "string"}}));
    "a form with titled choices, or a default (since 2025-11-25)", ToClient, |pair| form(pair, Elicitation::FormAndUrl, json!({"a": {"type": "string", "oneOf": [{"const": "x", "title": "X"}], "default": "x"}}));
    "a form with a choice of several values (since 2025-11-25)", ToClient, |pair| form(pair, Elicitation::FormAndUrl, json!({"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}));
    "`elicitation/create` with a URL (since 2025-11-25)", ToClient, |pair| if pair.server.features().elicitation < Elicitation::FormAndUrl { Unheard } else { question(pair, ServerRequest::ElicitationCreate, visit(pair)) };
    "`notifications/elicitation/complete` (2025-11-25)", ToClient, visited;
    "the error -32042, which names URLs (2025-11-25)", ToClient, urls;
    "`roots/list`", ToClient, |pair| question(pair, ServerRequest::RootsList, json!({}));
    "tasks of 2025-11-25", ToServer, |pair| alike(&[capability(pair, Tasks::Core, "tasks"), capability_of_client(pair, Tasks::Core, "tasks")]),
        shown by ["r047_no_tasks_are_carried_between_revisions"];
    "extensions that add no message, as `io.modelcontextprotocol/ui` for MCP Apps", ToServer, silent_extensions;
    "the extension for tasks, and other extensions (2026-07-28)", ToServer, |pair| alike(&[capability(pair, Tasks::Extension, "extensions"), capability_of_client(pair, Tasks::Extension, "extensions")]),
        shown by ["r047_no_tasks_are_carried_between_revisions"];
    "`tasks/get`, `tasks/cancel` and what else there is for tasks (since 2025-11-25)", ToServer, asks_for_tasks,
        shown by ["r047_no_tasks_are_carried_between_revisions"];
    "`notifications/tasks/status` of a client (2025-11-25)", ToServer, |pair| if pair.client.features().tasks == Tasks::Core { tells(pair, "notifications/tasks/status") } else { Unheard };
    "the error for an unknown resource", ToClient, |pair| not_found(pair);
    "the error for an unknown method", ToClient, |pair| no_method(pair);
    "errors -32020, -32021, -32022 of a server", ToClient, |pair| reserved(pair);
    "a server's own errors from -32099 to -32020", ToClient, |pair| error(pair, Method::ToolsCall, r#"{"code":-32050,"message":"m","data":{"x":[1]}}"#, Becomes("-32603, with the same words"), Passes);
    "other errors", ToClient, |pair| error(pair, Method::ToolsCall, r#"{"code":-32000,"message":"m","data":{"x":[1]}}"#, Passes, Passes);
    "members that nobody knows", ToClient, |pair| strangers(pair);
}

/// One verdict for things that are all treated alike.
#[track_caller]
fn alike(verdicts: &[Verdict]) -> Verdict {
    for verdict in verdicts {
        assert_eq!(*verdict, verdicts[0]);
    }
    verdicts[0].clone()
}

/// A client's request.
fn asks(pair: Pair, method: Method, params: Value) -> Verdict {
    let name = method.as_str();
    probed(name);
    if !method.is_in(pair.client) {
        assert_eq!(destination::of(pair, name), Destination::Unknown);
        return Unheard;
    }
    match destination::of(pair, name) {
        Destination::Server => {}
        Destination::Handshake => {
            return match (pair.is_same(), pair.eras()) {
                (true, _) => Passes,
                (_, (Era::Legacy, Era::Legacy)) => Becomes("asks for the server's revision"),
                (_, (Era::Modern, _)) => Answered("answers from what the server said to `initialize`"),
                (_, (_, Era::Modern)) => Answered("answers from what the server said to `server/discover`"),
            };
        }
        Destination::Empty => return Answered("answers"),
        Destination::Level => {
            return Answered("keeps the level (`info` until one is set), and puts it into every request");
        }
        Destination::Subscription => return Answered("keeps the subscription, and listens for it"),
        Destination::Listen => {
            return Answered(
                "acknowledges, subscribes for it, and says which subscription each message is for",
            );
        }
        Destination::Unknown => return no_such_method(pair),
    }
    let mut message = json!({"jsonrpc": "2.0", "id": 1, "method": name, "params": params});
    if pair.client.era() == Era::Modern {
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    let text = message.to_string();
    match requests::request(pair, Some(method), &text, &CLIENT).unwrap() {
        Cow::Borrowed(_) => Passes,
        Cow::Owned(made) => {
            let claims = made.contains("io.modelcontextprotocol/protocolVersion");
            assert_eq!(claims, pair.server.era() == Era::Modern, "{made}");
            if claims {
                Becomes("with the envelope and the headers of 2026-07-28")
            } else {
                Becomes("without the envelope")
            }
        }
    }
}

fn no_such_method(pair: Pair) -> Verdict {
    let answer = answer(Problem::UnknownMethod, pair.client);
    Refused(format!("{} (HTTP {})", answer.code.number(), answer.status))
}

/// What no rule can permit goes no way at all: it is refused where requests are read, or where they are decided on.
fn strange_method(pair: Pair) -> Verdict {
    const NAME: &str = "com.example/do";
    assert_eq!(Method::parse(NAME), None);
    if pair.client.era() == Era::Modern {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": NAME, "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": pair.client.as_str(),
            "io.modelcontextprotocol/clientCapabilities": {},
        }}})
        .to_string();
        let version = ("mcp-protocol-version", pair.client.as_str().as_bytes());
        let fields = Fields::read([version, ("mcp-method", NAME.as_bytes())]);
        let mistake = detect::with_body(body.as_bytes(), &fields, &Revision::ALL).unwrap_err();
        assert!(matches!(mistake.wrong, detect::Wrong::Method), "{:?}", mistake.wrong);
    }
    let Refused(error) = no_such_method(pair) else { panic!("it is refused") };
    Refused(format!("{error}: no rule could permit them"))
}

fn context(pair: Pair) -> Verdict {
    if pair.client < Revision::V2025_06_18 {
        return Unheard;
    }
    let text = json!({"jsonrpc": "2.0", "id": 1, "method": "completion/complete", "params": {"context": {"arguments": {}}}});
    let made = requests::request(pair, Some(Method::CompletionComplete), &text.to_string(), &CLIENT)
        .unwrap()
        .into_owned();
    if made.contains("\"context\":") { Passes } else { Becomes("left out") }
}

fn result(pair: Pair, method: Method, json: Value, modern: Verdict, legacy: Verdict) -> Verdict {
    let mut json = json;
    if pair.server.features().result_type {
        json["resultType"] = json!("complete");
        json["ttlMs"] = json!(9);
        json["cacheScope"] = json!("public");
    }
    let hints = Hints { server_info: Some("{}"), ..Hints::default() };
    let text = json.to_string();
    match results::result(pair.down(), Some(method), &text, &hints).unwrap() {
        Cow::Borrowed(_) => Passes,
        Cow::Owned(made) => {
            let made: Value = serde_json::from_str(&made).unwrap();
            let is_modern = pair.client.era() == Era::Modern;
            for (name, expected) in
                [("resultType", json!("complete")), ("ttlMs", json!(0)), ("cacheScope", json!("private"))]
            {
                assert_eq!(made.get(name), is_modern.then_some(&expected), "{name}");
            }
            if is_modern { modern } else { legacy }
        }
    }
}

fn structured(pair: Pair, value: Value) -> Verdict {
    let needs = if value.is_object() { Structured::Object } else { Structured::Any };
    if pair.server.features().structured < needs {
        return Unheard;
    }
    let made = |content: &Value| -> Value {
        let text = json!({"content": content, "structuredContent": value}).to_string();
        let made = results::result(pair.down(), Some(Method::ToolsCall), &text, &Hints::default()).unwrap();
        serde_json::from_str(&made).unwrap()
    };
    // The words of a server are its own, whatever they say.
    let said = json!([{"type": "text", "text": "said"}]);
    assert_eq!(made(&said)["content"], said);
    let made = made(&json!([]));
    let words = value.to_string();
    let told = made["content"][0]["text"] == words.as_str();
    match (made["structuredContent"] == value, pair.client.features().structured) {
        (true, Structured::None) if told => Becomes("passes, and as text where `content` is empty"),
        (true, _) => Passes,
        (false, _) if told && made["structuredContent"]["result"] == value => {
            Becomes("`{\"result\": ...}`, and as text where `content` is empty")
        }
        _ => panic!("{pair:?}: {made}"),
    }
}

fn output_schema(pair: Pair) -> Verdict {
    if pair.server.features().structured < Structured::Any {
        return Unheard;
    }
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}})
        .to_string();
    let made: Value = serde_json::from_str(&tools::definition(pair.down(), &tool).unwrap()).unwrap();
    match &made["outputSchema"] {
        schema if *schema == json!({"type": "array"}) && pair.is_same() => Passes,
        schema if schema["type"] == "object" && schema["properties"]["result"]["type"] == "array" => {
            Becomes("of an object with the member `result`")
        }
        schema if pair.client.features().structured == Structured::None && schema["type"] == "array" => {
            Passes
        }
        schema => panic!("{pair:?}: {schema}"),
    }
}

fn block(pair: Pair, has: bool, json: Value, form: &'static str) -> Verdict {
    if !has {
        return Unheard;
    }
    match content::block(pair.down(), &json.to_string()).unwrap() {
        Cow::Borrowed(_) => Passes,
        Cow::Owned(_) => Becomes(form),
    }
}

fn marks(pair: Pair) -> Verdict {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","x-mcp-header":"A"}}"#;
    match tools::definition(pair.down(), tool).unwrap() {
        // No call of it over HTTP could be right.
        Cow::Borrowed(_) if pair.server.era() == Era::Modern && !pair.is_same() => {
            let list = format!(r#"{{"tools":[{tool}]}}"#);
            assert!(tools::called(&list).all(|(_, called)| called.marked.is_none()));
            Becomes("the tool is left out over HTTP; over stdio it passes")
        }
        Cow::Borrowed(_) => Passes,
        Cow::Owned(made) => {
            assert!(!made.contains("x-mcp-header"));
            Becomes("taken out, since clients drop such a tool")
        }
    }
}

fn hears(pair: Pair, told: ServerNotification, mut params: Value) -> Verdict {
    probed(told.as_str());
    if pair.server.era() == Era::Modern {
        params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": 7});
    }
    let text = json!({"jsonrpc": "2.0", "method": told.as_str(), "params": params}).to_string();
    match notifications::to_client(pair, told.as_str(), &text).unwrap() {
        Told::On(made) if made == text => Passes,
        Told::On(made) if !made.contains("subscriptionId") => match told {
            ServerNotification::Progress | ServerNotification::Message => Passes,
            _ => Becomes("to all clients that have a stream, without the subscription"),
        },
        Told::Subscriptions => Becomes("to the subscriptions that asked for it"),
        Told::Log(_) => Becomes("to the requests that asked for its level"),
        other => panic!("{pair:?}: {other:?}"),
    }
}

/// Whose roots they are a server without session ids would not know.
fn roots_changed(pair: Pair) -> Verdict {
    match tells(pair, "notifications/roots/list_changed") {
        Passes if !pair.is_same() => Becomes("passes; it goes nowhere where the server gives no session ids"),
        verdict => verdict,
    }
}

/// A client's notification. One that only a session has is said where a session begins or lives.
fn tells(pair: Pair, method: &'static str) -> Verdict {
    probed(method);
    let known = NotificationMethod::parse(method);
    if known.is_some() && pair.client.era() == Era::Modern {
        return Unheard;
    }
    let text = json!({"jsonrpc": "2.0", "method": method}).to_string();
    match notifications::to_server(pair, method, &text) {
        Told::On(made) if made == text => Passes,
        Told::Nowhere => Becomes("taken, and goes nowhere"),
        other => panic!("{pair:?}: {other:?}"),
    }
}

fn strange_notification(pair: Pair) -> Verdict {
    let text = json!({"jsonrpc": "2.0", "method": "com.example/done", "params": {"a": 1}}).to_string();
    match notifications::to_client(pair, "com.example/done", &text).unwrap() {
        Told::On(made) if made == text => {}
        other => panic!("{pair:?}: {other:?}"),
    }
    // Outside of calls what one side says comes by way of the other one's subscriptions, which know what there is.
    let is_told = match pair.eras() {
        _ if pair.is_same() => true,
        (Era::Legacy, Era::Legacy) => true,
        (Era::Modern, _) => {
            let mut streams = Streams::new();
            let everything = json!({"notifications": {"toolsListChanged": true}}).to_string();
            streams.open("1", Filter::read(&everything).unwrap(), OFFERS).unwrap();
            !streams.deliver(&text).is_empty()
        }
        (Era::Legacy, Era::Modern) => Wishes::new(OFFERS).deliver(&text).is_some(),
    };
    if is_told { Passes } else { Becomes("in a call they pass; outside of one they go nowhere") }
}

const OFFERS: Offers = Offers { tools: true, prompts: true, resources: true, updates: true };

const BATCH: &str = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;

fn batch_of_client(pair: Pair) -> Verdict {
    match batch::read(BATCH.as_bytes(), pair.client) {
        Ok(batch::Body::Batch(batch)) if batch.iter().count() == 2 => Becomes(
            "side by side; their answers together, or as events where one takes over a second or says something \
                 before it; over HTTP+SSE refused: 400",
        ),
        Err(batch::BadBatch::Malformed(Malformed::Batch)) => Unheard,
        other => panic!("{pair:?}: {other:?}"),
    }
}

fn batch_of_server(pair: Pair) -> Verdict {
    match batch::parts(BATCH.as_bytes(), Some(pair.server)) {
        Some(parts) if parts.len() == 2 => Becomes("one message after the other"),
        None => Unheard,
        other => panic!("{pair:?}: {other:?}"),
    }
}

/// A server says what of a subscription it honours.
fn acknowledges(pair: Pair) -> Verdict {
    const NAME: &str = "notifications/subscriptions/acknowledged";
    probed(NAME);
    if !pair.server.features().listen {
        return Unheard;
    }
    let text = json!({"jsonrpc": "2.0", "method": NAME, "params": {"notifications": {}}}).to_string();
    match notifications::to_client(pair, NAME, &text).unwrap() {
        Told::On(made) if made == text => Passes,
        Told::Nowhere => Becomes("goes nowhere: Longshore listens itself"),
        other => panic!("{pair:?}: {other:?}"),
    }
}

fn cancels(pair: Pair) -> Verdict {
    probed(NotificationMethod::Cancelled.as_str());
    let text = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(notifications::to_server(pair, "notifications/cancelled", text), Told::Cancels);
    match (pair.client.era(), pair.server.era()) {
        (Era::Modern, _) => Unheard,
        (Era::Legacy, Era::Legacy) => Becomes("under the id that the server knows"),
        (Era::Legacy, Era::Modern) => Answered("ends the request to the server, which means the same"),
    }
}

fn goes_away(pair: Pair) -> Verdict {
    let (client, server) = (pair.client.features(), pair.server.features());
    match (client.disconnect_cancels, server.disconnect_cancels) {
        (true, true) => Passes,
        (true, false) => Becomes("`notifications/cancelled`"),
        (false, _) if pair.is_same() => Passes,
        (false, _) => Becomes(
            "means nothing: the call goes on, and the stream can be [resumed](sessions.md#streams-that-break); over \
             HTTP+SSE the session ends with its stream",
        ),
    }
}

/// A capability of a server's that goes no further.
fn capability(pair: Pair, tasks: Tasks, name: &str) -> Verdict {
    if pair.client.features().tasks != tasks && pair.server.features().tasks != tasks {
        return Unheard;
    }
    if pair.is_same() {
        return Passes;
    }
    let all = json!({name: {}}).to_string();
    let made = capabilities::server(pair.down(), &all).unwrap();
    // A capability of another revision means nothing to its reader, so it may as well pass.
    assert!(
        !made.contains(name) || pair.server.features().tasks != tasks || pair.client.era() == Era::Modern,
        "{made}"
    );
    Becomes("not offered to the other side")
}

/// Told to either side as it was declared.
fn silent_extensions(pair: Pair) -> Verdict {
    let all = r#"{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html"]}}}"#;
    assert_eq!(capabilities::server(pair.down(), all).unwrap(), all);
    assert_eq!(capabilities::client(pair.up(), all).unwrap(), all);
    Passes
}

/// A request for a task, in either of the two forms that there are.
fn asks_for_tasks(pair: Pair) -> Verdict {
    let mut methods =
        Method::ALL.into_iter().filter(|method| method.is_about_tasks() && method.is_in(pair.client));
    methods.clone().for_each(|method| probed(method.as_str()));
    if pair.client.features().tasks == Tasks::None {
        return Unheard;
    }
    if tasks::are_carried(pair) {
        return Passes;
    }
    assert!(methods.all(|method| destination::of(pair, method.as_str()) == Destination::Unknown));
    Becomes("refused: -32601 that names both revisions")
}

/// And one of a client's.
fn capability_of_client(pair: Pair, tasks: Tasks, name: &str) -> Verdict {
    if pair.client.features().tasks != tasks && pair.server.features().tasks != tasks {
        return Unheard;
    }
    if pair.is_same() {
        return Passes;
    }
    let all = json!({name: {}}).to_string();
    let made = capabilities::client(pair.up(), &all).unwrap();
    assert!(
        !made.contains(name) || pair.client.features().tasks != tasks || pair.server.era() == Era::Modern,
        "{made}"
    );
    Becomes("not offered to the other side")
}

fn strangers(pair: Pair) -> Verdict {
    let text = r#"{"contents":[],"xkept":[ 1.0e2, "\u0041" ]}"#;
    let made = results::result(pair.down(), Some(Method::ResourcesRead), text, &Hints::default()).unwrap();
    assert!(made.contains(r#""xkept":[ 1.0e2, "\u0041" ]"#), "{made}");
    Passes
}
