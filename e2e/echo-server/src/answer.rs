//! What is answered to a message: pure but for the state of the session.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::tools;

/// Revisions that a client may ask for; another gets the last of them.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What the server knows in one session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// The process that it is in.
    pub(crate) instance: Arc<str>,
    /// Which of the process's sessions it is.
    pub(crate) number: u64,
    /// The name that the client gave, as JSON.
    pub(crate) who: String,
    /// What it was told to remember, as JSON.
    pub(crate) value: String,
    /// The log level that was asked for, as JSON.
    pub(crate) level: String,
}

/// What is to be sent.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Nothing: it was a notification, or an answer.
    Nothing,
    /// This, at once.
    Now(String),
    /// This, after a time.
    Later(Duration, String),
    /// Notifications, then this.
    Notified(Notifications, String),
    /// This, then notifications that belong to no call.
    Announced(Notifications, String),
    /// Nothing: the call of this id, as JSON, is not wanted any more.
    Cancelled(String),
    /// Nothing any more: the process is to end with this status.
    Exit(u8),
    /// This, and from now on the server says that it is not well.
    Sick(String),
}

/// Numbered notifications, from 1.
#[derive(Clone, Debug)]
pub(crate) struct Notifications {
    /// The id of the call, as JSON.
    pub(crate) id: String,
    /// The progress token, as JSON. Without one they are log messages.
    pub(crate) token: Option<String>,
    /// How many.
    pub(crate) count: u64,
    /// How many bytes each carries in addition.
    pub(crate) padding: usize,
    /// How far apart they are.
    pub(crate) pause: Duration,
    /// They are questions for the client, whose answers nobody waits for.
    pub(crate) ask: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialize<'a> {
    #[serde(borrow)]
    protocol_version: Cow<'a, str>,
    #[serde(borrow)]
    client_info: ClientInfo<'a>,
}

#[derive(Deserialize)]
struct ClientInfo<'a> {
    #[serde(borrow)]
    name: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancelled<'a> {
    #[serde(borrow)]
    request_id: &'a RawValue,
}

#[derive(Deserialize)]
struct SetLevel<'a> {
    #[serde(borrow)]
    level: &'a RawValue,
}

// === impl Session ===

impl Session {
    /// The session of this number, before its client has said anything.
    pub(crate) fn new(instance: &Arc<str>, number: u64) -> Self {
        let null = || "null".to_owned();
        Self { instance: instance.clone(), number, who: null(), value: null(), level: null() }
    }

    /// Answers a message.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Reply {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(message) else {
            return Reply::Now(error("null", -32700, "this is no JSON-RPC message"));
        };
        let params = message.params.map_or("{}", RawValue::get);
        let (id, method) = match (message.id, message.method) {
            (Some(id), Some(method)) => (id.get(), method),
            (None, Some(method)) if method == "notifications/cancelled" => {
                return serde_json::from_str::<Cancelled<'_>>(params).map_or(Reply::Nothing, |cancelled| {
                    Reply::Cancelled(cancelled.request_id.get().to_owned())
                });
            }
            _ => return Reply::Nothing,
        };
        match &*method {
            "tools/call" => tools::call(self, id, params),
            "ping" => Reply::Now(result(id, "{}")),
            "tools/list" => Reply::Now(result(id, &tools::list())),
            "initialize" => Reply::Now(self.initialize(id, params)),
            "logging/setLevel" => match serde_json::from_str::<SetLevel<'_>>(params) {
                Ok(SetLevel { level }) => {
                    level.get().clone_into(&mut self.level);
                    Reply::Now(result(id, "{}"))
                }
                Err(wrong) => Reply::Now(error(id, -32602, &wrong.to_string())),
            },
            method => Reply::Now(error(id, -32601, &format!("there is no method {method}"))),
        }
    }

    fn initialize(&mut self, id: &str, params: &str) -> String {
        let asked = match serde_json::from_str::<Initialize<'_>>(params) {
            Ok(asked) => asked,
            Err(wrong) => return error(id, -32602, &wrong.to_string()),
        };
        asked.client_info.name.get().clone_into(&mut self.who);
        let [.., newest] = REVISIONS;
        let revision = REVISIONS.into_iter().find(|it| *it == asked.protocol_version).unwrap_or(newest);
        let version = env!("CARGO_PKG_VERSION");
        result(
            id,
            &format!(
                r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{}},"logging":{{}}}},"serverInfo":{{"name":"echo-server","version":"{version}"}}}}"#
            ),
        )
    }

    /// The result of a tool.
    pub(crate) fn tool_result(&self, id: &str, arguments: &str, more: &str) -> String {
        let Self { instance, number, who, .. } = self;
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"structuredContent":{{"echo":{arguments},"who":{who},"session":{number},"instance":"{instance}"{more}}}}}}}"#
        )
    }
}

// === impl Notifications ===

impl Notifications {
    /// The notification of this number.
    pub(crate) fn number(&self, number: u64) -> String {
        if self.ask {
            return format!(r#"{{"jsonrpc":"2.0","id":"ask-{number}","method":"roots/list"}}"#);
        }
        let padding = "x".repeat(self.padding);
        match &self.token {
            Some(token) => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{number},"message":"{padding}"}}}}"#
            ),
            None => format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","logger":"{padding}","data":{number}}}}}"#
            ),
        }
    }
}

pub(crate) fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(crate) fn error(id: &str, code: i32, message: &str) -> String {
    let message = serde_json::Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::{Reply, Session};
    use serde_json::{Value, json};

    fn ask(session: &mut Session, message: &Value) -> Value {
        match session.answer(message.to_string().as_bytes()) {
            Reply::Now(text) => serde_json::from_str(&text).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_says_who_asked_and_who_answers() {
        let mut session = Session::new(&"abc".into(), 7);
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a \"client\"", "version": "1"}
        }});
        assert_eq!(ask(&mut session, &hello)["result"]["protocolVersion"], "2025-06-18");
        let call = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {
            "name": "echo", "arguments": {"n": [1, {"a": null}]}
        }});
        let expected = json!({"jsonrpc": "2.0", "id": "x", "result": {"content": [], "structuredContent": {
            "echo": {"n": [1, {"a": null}]}, "who": "a \"client\"", "session": 7, "instance": "abc",
        }}});
        assert_eq!(ask(&mut session, &call), expected);
    }

    #[test]
    fn what_is_no_request_is_not_answered_and_what_is_wrong_is_an_error() {
        let mut session = Session::new(&"abc".into(), 1);
        for quiet in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            assert!(matches!(session.answer(quiet.as_bytes()), Reply::Nothing), "{quiet}");
        }
        let cancelled =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
        let reply = session.answer(cancelled.to_string().as_bytes());
        assert!(matches!(&reply, Reply::Cancelled(id) if id == "7"), "{reply:?}");
        let table = [
            (json!({"id": 1, "method": "no/such"}), -32601),
            (json!({"id": 1, "method": "tools/call", "params": {"name": "no-such"}}), -32602),
            (json!({"id": 1, "method": "tools/call", "params": {"name": "wait"}}), -32602),
            (json!({"id": 1, "method": "initialize"}), -32602),
        ];
        for (message, code) in table {
            assert_eq!(ask(&mut session, &message)["error"]["code"], code, "{message}");
        }
    }

    #[test]
    fn a_session_remembers() {
        let mut session = Session::new(&"abc".into(), 1);
        let call = |name: &str, arguments: Value| json!({"id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
        ask(&mut session, &call("remember", json!({"value": {"a": 1}})));
        ask(&mut session, &json!({"id": 1, "method": "logging/setLevel", "params": {"level": "debug"}}));
        let recalled = ask(&mut session, &call("recall", json!({})));
        let content = &recalled["result"]["structuredContent"];
        assert_eq!((&content["value"], &content["level"]), (&json!({"a": 1}), &json!("debug")));
    }
}
