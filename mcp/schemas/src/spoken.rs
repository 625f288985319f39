//! Messages as they go by.

use longshore_mcp::method::{Method, NotificationMethod, ServerNotification, ServerRequest};
use longshore_mcp::revision::{Revision, Tasks};
use serde_json::Value;

use crate::definitions::{
    answer_of, error_of, faults, is_defined, question_of, request_of, result_of, told_of,
};

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// A message, and what has to be known to judge it.
#[derive(Clone, Copy, Debug)]
pub struct Spoken<'a> {
    /// The revision of the conversation.
    pub revision: Revision,
    /// Who says it.
    pub by: Side,
    /// The message.
    pub message: &'a Value,
    /// The method of the request that it answers, if it is an answer and that is known.
    pub asked: Option<&'a str>,
}

impl Spoken<'_> {
    /// What is wrong with it. Methods that the revision does not have are judged as JSON-RPC alone.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let Self { revision, message, .. } = *self;
        let said = message.get("method").and_then(Value::as_str);
        if let Some(method) = said {
            let is_request = message.get("id").is_some();
            let special = if is_request { self.request(method) } else { self.notification(method) };
            let plain = if is_request { "JSONRPCRequest" } else { "JSONRPCNotification" };
            return self.both(plain, special.map(|definition| (definition, message)));
        }
        if message.get("error").is_some() {
            // Over HTTP an error may come without an id in every revision, and only the schemas since 2025-11-25 say so.
            let lenient =
                if message.get("id").is_none() { Revision::V2025_11_25.max(revision) } else { revision };
            return faults(lenient, error_of(lenient), message);
        }
        let plain = if is_defined(revision, "JSONRPCResultResponse") {
            "JSONRPCResultResponse"
        } else {
            "JSONRPCResponse"
        };
        let result = message.get("result").unwrap_or(&Value::Null);
        self.both(
            plain,
            self.asked.and_then(|asked| self.result(asked, result)).map(|definition| (definition, result)),
        )
    }

    /// By JSON-RPC, and by the definition of what it is.
    fn both(&self, plain: &str, special: Option<(&str, &Value)>) -> Vec<String> {
        let mut all = faults(self.revision, plain, self.message);
        if let Some((definition, value)) =
            special.filter(|(definition, _)| is_defined(self.revision, definition))
        {
            all.extend(
                faults(self.revision, definition, value)
                    .into_iter()
                    .map(|fault| format!("{definition}: {fault}")),
            );
        }
        all
    }

    fn request(&self, method: &str) -> Option<&'static str> {
        match self.by {
            Side::Client => Method::of(self.revision, method).map(request_of),
            Side::Server => ServerRequest::parse(method).map(question_of),
        }
    }

    fn notification(&self, method: &str) -> Option<&'static str> {
        match self.by {
            // Both sides may have tasks, and only clients say so on their own.
            Side::Server if method == NotificationMethod::TasksStatus.as_str() => {
                Some("TaskStatusNotification")
            }
            Side::Server => ServerNotification::parse(method).map(told_of),
            Side::Client => NotificationMethod::parse(method).map(|told| match told {
                NotificationMethod::Initialized => "InitializedNotification",
                NotificationMethod::Cancelled => "CancelledNotification",
                NotificationMethod::Progress => "ProgressNotification",
                NotificationMethod::RootsListChanged => "RootsListChangedNotification",
                NotificationMethod::TasksStatus => "TaskStatusNotification",
            }),
        }
    }

    fn result(&self, asked: &str, result: &Value) -> Option<&'static str> {
        let begins_task = self.revision.features().tasks == Tasks::Core && result.get("task").is_some();
        match self.by {
            // The answer comes later, and has a form of its own.
            _ if begins_task => Some("CreateTaskResult"),
            Side::Client => ServerRequest::parse(asked).map(answer_of),
            Side::Server if result["resultType"] == "input_required" => Some("InputRequiredResult"),
            // The extension's form is no part of the schema.
            Side::Server if result["resultType"] == "task" => Some("Result"),
            Side::Server => Method::of(self.revision, asked).map(result_of),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_mcp::revision::Revision::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28};
    use serde_json::json;

    #[test]
    fn messages_are_judged_by_what_they_are() {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}});
        let nameless = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}});
        let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "com.example/do", "params": {}});
        let progress =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}});
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}});
        let empty = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
        let called = json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}});
        let error = json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "m"}});
        let null = json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "m"}});
        let task = json!({"taskId": "t", "status": "working", "createdAt": "2026-01-01T00:00:00Z",
            "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttl": null});
        let begun = json!({"jsonrpc": "2.0", "id": 1, "result": {"task": task}});
        let half_begun = json!({"jsonrpc": "2.0", "id": 1, "result": {"task": {"taskId": "t"}}});
        let status = json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": task});
        let no_status =
            json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": {"taskId": "t"}});
        use Side::{Client, Server};
        for (revision, by, message, asked, is_right) in [
            (V2025_11_25, Client, &call, None, true),
            (V2026_07_28, Client, &call, None, false),
            (V2025_11_25, Client, &nameless, None, false),
            (V2025_11_25, Client, &unknown, None, true),
            (V2025_11_25, Server, &progress, None, false),
            (V2024_11_05, Server, &question, None, false),
            (V2025_11_25, Server, &empty, Some("tools/call"), false),
            (V2025_11_25, Server, &empty, Some("ping"), true),
            (V2025_11_25, Server, &empty, None, true),
            (V2025_06_18, Server, &called, Some("tools/call"), true),
            (V2026_07_28, Server, &called, Some("tools/call"), false),
            (V2025_11_25, Client, &empty, Some("roots/list"), false),
            (V2025_11_25, Server, &begun, Some("tools/call"), true),
            (V2025_11_25, Server, &half_begun, Some("tools/call"), false),
            (V2025_11_25, Client, &begun, Some("sampling/createMessage"), true),
            (V2025_11_25, Client, &half_begun, Some("sampling/createMessage"), false),
            (V2025_06_18, Server, &begun, Some("tools/call"), false),
            (V2025_11_25, Server, &status, None, true),
            (V2025_11_25, Server, &no_status, None, false),
            (V2025_06_18, Server, &no_status, None, true),
            (V2025_06_18, Server, &error, None, true),
            (V2025_06_18, Server, &null, None, false),
            (V2025_11_25, Server, &null, None, false),
        ] {
            let faults = Spoken { revision, by, message, asked }.faults();
            assert_eq!(faults.is_empty(), is_right, "{revision} {by:?} {message}: {faults:?}");
        }
    }
}
