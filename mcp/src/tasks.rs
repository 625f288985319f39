//! Tasks: calls that outlive their request. 2025-11-25 has them in its core, 2026-07-28 as an extension, and a server
//! knows only one of the two.
//!
//! Whoever knows a task's id can read what came of it, so a proxy in front of several clients gives each of them ids of
//! its own. Here is where ids stand in messages; what they are called on the other side the proxy says.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks>,
//! <https://modelcontextprotocol.io/extensions/tasks/overview>

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem;
use serde::de::Error;
use thiserror::Error;

use crate::method::Method;
use crate::object::{self, Object, array, edit_elements, quote, string};
use crate::scan::{self, Fault};
use crate::translate::Pair;

/// The most tasks that one subscription may name: each is remembered, and told to a server.
pub(crate) const MAX_LISTENED: usize = 1024;
/// In `_meta` of 2025-11-25: the task that a message belongs to.
pub const RELATED: &str = "io.modelcontextprotocol/related-task";
/// The member that holds an id.
const ID: &str = "taskId";
/// What servers say of tasks on their own account.
const TOLD: [&str; 2] = ["notifications/tasks", "notifications/tasks/status"];

/// Where in an answer ids of tasks stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a task that the call has become, if it has.
    Begun,
    /// In the result, which is a task or nothing.
    Task,
    /// In each entry of a list.
    List,
    /// In `_meta` at most.
    Meta,
}

/// Why the ids in a message cannot be replaced.
#[derive(Debug, Error)]
pub enum Unnameable {
    /// It cannot be read.
    #[error("the message is not usable")]
    Json(#[from] serde_json::Error),
    /// A task has no id, or one that has no name here.
    #[error("the message is about a task that is not known")]
    Task,
    /// It names more tasks than it may.
    #[error("a subscription may name {MAX_LISTENED} tasks at most")]
    TooMany,
}

/// Whether both sides have tasks, and the same ones. Between others nothing of them is carried.
pub fn are_carried(pair: Pair) -> bool {
    pair.client.features().tasks == pair.server.features().tasks
}

/// Where ids stand in the answer to a method. `None`: nowhere.
pub fn place(method: Method) -> Option<Place> {
    match method {
        Method::ToolsCall => Some(Place::Begun),
        Method::TasksGet | Method::TasksCancel | Method::TasksUpdate => Some(Place::Task),
        Method::TasksList => Some(Place::List),
        Method::TasksResult => Some(Place::Meta),
        _ => None,
    }
}

/// A request about a task under another id.
pub fn with_id(request: &str, id: &str) -> Result<String, Unnameable> {
    let mut message = Object::read(request)?;
    message.edit("params", |json| {
        let mut params = Object::read(json)?;
        params.set(ID, quote(id));
        Ok::<_, Unnameable>(params.into_text())
    })?;
    Ok(message.write())
}

/// Whether the result of an answer is a task that the call has become.
pub fn is_begun(message: &str) -> bool {
    // Nearly no answer is one, and a long one need not be read for that.
    message.contains("\"task\"")
        && Object::read(message).is_ok_and(|message| message.original("result").is_some_and(is_task))
}

/// Whether a result is a task that the call has become, where the server chooses that.
pub fn is_task(result: &str) -> bool {
    result.contains("\"task\"")
        && Object::read(result)
            .is_ok_and(|result| result.string("resultType").is_some_and(|kind| kind.as_str() == "task"))
}

/// An answer under other ids. `name` says what an id is called on the other side, and `begun` what that of the task is which
/// the call has become; what has no name is left out of lists, and an error elsewhere.
pub fn answer<'a>(
    message: &'a str,
    place: Place,
    mut begun: impl FnMut(&str) -> Option<String>,
    mut name: impl FnMut(&str) -> Option<String>,
) -> Result<Cow<'a, str>, Unnameable> {
    let begun: &mut dyn FnMut(&str) -> Option<String> = &mut begun;
    let name: &mut dyn FnMut(&str) -> Option<String> = &mut name;
    let mut message = Object::read(message)?;
    message.edit("result", |json| {
        let mut result = Object::read(json)?;
        match place {
            Place::Begun if result.string("resultType").is_some_and(|kind| kind.as_str() == "task") => {
                rename(&mut result, begun)?;
            }
            Place::Begun => result.edit("task", |json| task(json, begun))?,
            // Some answers say nothing but that it was heard.
            Place::Task if result.get(ID).is_none() => {}
            Place::Task => rename(&mut result, name)?,
            Place::List => result.edit("tasks", |json| {
                edit_elements(json, Unnameable::from, |json| match task(json, name) {
                    Ok(task) => Ok(vec![task]),
                    Err(Unnameable::Task) => Ok(Vec::new()),
                    Err(error) => Err(error),
                })
            })?,
            Place::Meta => {}
        }
        related(&mut result, name)?;
        Ok::<_, Unnameable>(result.into_text())
    })?;
    Ok(message.into_text())
}

/// What a server says beside answers, under other ids. `None`: it is about a task that has no name on the other side.
pub fn aside<'a>(
    message: &'a str,
    method: &str,
    mut name: impl FnMut(&str) -> Option<String>,
) -> Result<Option<Cow<'a, str>>, Unnameable> {
    let is_told = is_told(method);
    if !is_told && !may_be_related(message.as_bytes()) {
        return Ok(Some(Cow::Borrowed(message)));
    }
    let mut message = Object::read(message)?;
    let edited = message.edit("params", |json| {
        let mut params = Object::read(json)?;
        if is_told {
            rename(&mut params, &mut name)?;
        }
        related(&mut params, &mut name)?;
        Ok::<_, Unnameable>(params.into_text())
    });
    match edited {
        Ok(()) => Ok(Some(message.into_text())),
        Err(Unnameable::Task) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a message may say which task it belongs to.
pub fn may_be_related(message: &[u8]) -> bool {
    // Without what is before the slash, which some programs escape.
    static MARK: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("/related-task"));
    MARK.find(message).is_some() || may_be_spelled_otherwise(message)
}

/// Whether parameters say which task their message belongs to.
pub fn is_related(params: &str) -> bool {
    may_be_related(params.as_bytes()) && object::at(params, &["_meta", RELATED]).is_some()
}

/// Whether a notification is what servers say of tasks on their own account.
pub fn is_told(method: &str) -> bool {
    TOLD.contains(&method)
}

/// Whether the client's capabilities, which nearly never say so, may declare the extension.
pub fn may_be_declared(capabilities: &str) -> bool {
    capabilities.contains("/tasks") || may_be_spelled_otherwise(capabilities.as_bytes())
}

/// Whether names may stand in a text with other letters than their own: what is searched for is not found then.
pub(crate) fn may_be_spelled_otherwise(text: &[u8]) -> bool {
    static ESCAPE: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(b"\\u"));
    ESCAPE.find(text).is_some()
}

/// What a client says under the ids of its server: only `_meta`, wherever it is.
pub fn related_to<'a>(
    message: &'a str,
    mut name: impl FnMut(&str) -> Option<String>,
) -> Result<Cow<'a, str>, Unnameable> {
    if !may_be_related(message.as_bytes()) {
        return Ok(Cow::Borrowed(message));
    }
    let mut message = Object::read(message)?;
    for member in ["params", "result"] {
        message.edit(member, |json| {
            let Ok(mut object) = Object::read(json) else { return Ok(Cow::Borrowed(json)) };
            related(&mut object, &mut name)?;
            Ok::<_, Unnameable>(object.into_text())
        })?;
    }
    Ok(message.into_text())
}

/// A client's result that belongs to no task.
pub(crate) fn unrelated(result: &str) -> Result<Cow<'_, str>, Unnameable> {
    if !may_be_related(result.as_bytes()) {
        return Ok(Cow::Borrowed(result));
    }
    let mut result = Object::read(result)?;
    related(&mut result, &mut |_| None)?;
    Ok(result.into_text())
}

/// `subscriptions/listen` and its acknowledgement under other ids; what has no name is left out.
pub fn listened<'a>(
    message: &'a str,
    mut name: impl FnMut(&str) -> Option<String>,
) -> Result<Cow<'a, str>, Unnameable> {
    if !message.contains("taskIds") && !may_be_spelled_otherwise(message.as_bytes()) {
        return Ok(Cow::Borrowed(message));
    }
    let mut message = Object::read(message)?;
    message.edit("params", |json| {
        let mut params = Object::read(json)?;
        params.edit("notifications", |json| {
            let mut notifications = Object::read(json)?;
            notifications.edit("taskIds", |json| {
                if json == "null" {
                    return Ok(Cow::Borrowed(json));
                }
                let ids = listed(json)?;
                let names = ids.into_iter().filter_map(|id| name(&string(id)?));
                Ok::<_, Unnameable>(Cow::Owned(array(names.map(|name| quote(&name)))))
            })?;
            Ok::<_, Unnameable>(notifications.into_text())
        })?;
        Ok::<_, Unnameable>(params.into_text())
    })?;
    Ok(message.into_text())
}

/// The tasks that `subscriptions/listen` names in its parameters; none, if it names more than it may.
pub fn of_listener(params: &str) -> Vec<String> {
    let ids = object::at(params, &["notifications", "taskIds"]).and_then(|ids| listed(ids).ok());
    ids.unwrap_or_default().into_iter().filter_map(string).map(|id| id.to_string()).collect()
}

/// The ids in a list of them, as JSON. No more are read than there may be.
fn listed(json: &str) -> Result<Vec<&str>, Unnameable> {
    scan::elements(json, MAX_LISTENED).map_err(|fault| match fault {
        Fault::TooMany(_) => Unnameable::TooMany,
        Fault::NotJson | Fault::TooDeep => Unnameable::Json(serde_json::Error::custom(fault)),
    })
}

fn task<'a>(json: &'a str, name: &mut dyn FnMut(&str) -> Option<String>) -> Result<Cow<'a, str>, Unnameable> {
    let mut task = Object::read(json)?;
    rename(&mut task, name)?;
    Ok(task.into_text())
}

fn rename(object: &mut Object<'_>, name: &mut dyn FnMut(&str) -> Option<String>) -> Result<(), Unnameable> {
    let name = object.string(ID).and_then(|id| name(&id)).ok_or(Unnameable::Task)?;
    object.set(ID, quote(&name));
    Ok(())
}

/// Renames the task that a message belongs to; one that has no name is not spoken of.
fn related(object: &mut Object<'_>, name: &mut dyn FnMut(&str) -> Option<String>) -> Result<(), Unnameable> {
    object.edit("_meta", |json| {
        // What is none belongs to no task: `null` above all, which some write for what is not there.
        if !json.trim_start().starts_with('{') {
            return Ok(Cow::Borrowed(json));
        }
        let mut meta = Object::read(json)?;
        let Some(json) = meta.original(RELATED) else { return Ok(Cow::Borrowed(json)) };
        match task(json, name) {
            Ok(task) => meta.set(RELATED, task.into_owned()),
            Err(_) => drop(meta.remove(RELATED)),
        }
        Ok::<_, Unnameable>(meta.into_text())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    /// Knows ids of one letter.
    fn name(id: &str) -> Option<String> {
        (id.len() == 1).then(|| format!("{id}{id}"))
    }

    #[test]
    fn what_belongs_to_a_task_says_so_in_its_meta() {
        for (params, expected) in [
            (r#"{"_meta":{"io.modelcontextprotocol\/related-task":{"taskId":"a"}}}"#, true),
            (r#"{"_meta":{"io.modelcontextprotocol/related-\u0074ask":{}},"x":1}"#, true),
            (r#"{"io.modelcontextprotocol/related-task":{"taskId":"a"}}"#, false),
            (r#"{"message":"caf\u00e9","_meta":{"x":1}}"#, false),
            ("[]", false),
        ] {
            assert_eq!(is_related(params), expected, "{params}");
        }
    }

    #[test]
    fn ids_are_replaced_where_they_stand_and_nothing_else_is() {
        // What a call has become nobody has a name for yet.
        let begun = |id: &str| (id.len() == 1).then(|| id.to_uppercase());
        for (place, result, expected) in [
            (
                Place::Begun,
                r#"{"task":{"taskId":"a","ttl":1.0}, "x":1}"#,
                r#"{"task":{"taskId":"A","ttl":1.0},"x":1}"#,
            ),
            (Place::Begun, r#"{"resultType":"task","taskId":"a"}"#, r#"{"resultType":"task","taskId":"A"}"#),
            (
                Place::Begun,
                r#"{"task":{"taskId":"a"},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"b"}}}"#,
                r#"{"task":{"taskId":"A"},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"bb"}}}"#,
            ),
            (
                Place::Begun,
                r#"{"content":["task"],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a"}}}"#,
                r#"{"content":["task"],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"aa"}}}"#,
            ),
            (Place::Begun, r#"{ "content":[],"taskId":"a"}"#, r#"{ "content":[],"taskId":"a"}"#),
            (Place::Begun, r#"{"content":[],"_meta":null}"#, r#"{"content":[],"_meta":null}"#),
            (Place::Begun, r#"{"task":{"taskId":"other"}}"#, "error"),
            (Place::Begun, r#"{"task":{}}"#, "error"),
            (
                Place::Task,
                r#"{"taskId":"a","result":{"taskId":"a"}}"#,
                r#"{"taskId":"aa","result":{"taskId":"a"}}"#,
            ),
            (Place::Task, r#"{"taskId":"other"}"#, "error"),
            (Place::Task, r#"{ "resultType":"complete"}"#, r#"{ "resultType":"complete"}"#),
            (
                Place::List,
                r#"{"tasks":[{"taskId":"a"},{"taskId":"other"},{},{"x":1.0,"taskId":"b"}],"nextCursor":""}"#,
                r#"{"tasks":[{"taskId":"aa"},{"x":1.0,"taskId":"bb"}],"nextCursor":""}"#,
            ),
            (
                Place::Meta,
                r#"{"content":[],"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"a"}}}"#,
                r#"{"content":[],"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"aa"}}}"#,
            ),
            (
                Place::Meta,
                r#"{"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"other"}}}"#,
                r#"{"_meta":{"x":1}}"#,
            ),
        ] {
            let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let renamed = answer(&message, place, begun, name).map_or_else(
                |_| "error".to_owned(),
                |text| text.split_once(r#""result":"#).unwrap().1.strip_suffix('}').unwrap().to_owned(),
            );
            assert_eq!(renamed, expected, "{place:?} {result}");
        }
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"taskId"} }"#;
        assert_eq!(answer(error, Place::Task, begun, name).unwrap(), error);
    }

    #[test]
    fn what_is_said_beside_answers_is_renamed_or_goes_nowhere() {
        let told = |id: &str| {
            format!(r#"{{"method":"notifications/tasks/status","params":{{"taskId":"{id}","x":1}}}}"#)
        };
        assert_eq!(aside(&told("a"), "notifications/tasks/status", name).unwrap(), Some(told("aa").into()));
        assert_eq!(aside(&told("other"), "notifications/tasks/status", name).unwrap(), None);
        let log = r#"{"method":"notifications/message","params":{"data":"taskId" }}"#;
        assert_eq!(aside(log, "notifications/message", name).unwrap(), Some(log.into()));
        let question = |id: &str| {
            format!(
                r#"{{"id":1,"method":"roots/list","params":{{"_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}}}}}"#
            )
        };
        assert_eq!(aside(&question("a"), "roots/list", name).unwrap(), Some(question("aa").into()));
        assert_eq!(related_to(&question("a"), name).unwrap(), question("aa"));
        for spelled in [RELATED.replace('/', "\\/"), RELATED.replace('r', "\\u0072")] {
            let question = question("a").replace(RELATED, &spelled);
            let renamed = aside(&question, "roots/list", name).unwrap().unwrap();
            assert!(renamed.contains(r#"{"taskId":"aa"}"#), "{renamed}");
            assert_eq!(related_to(&question, name).unwrap(), renamed);
        }
        let answer =
            r#"{"id":1,"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}}"#;
        assert_eq!(related_to(answer, name).unwrap(), r#"{"id":1,"result":{"_meta":{}}}"#);
    }

    #[test]
    fn requests_name_what_the_server_knows() {
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"aa","x":1.0}}"#;
        assert_eq!(with_id(request, "a").unwrap(), request.replace("aa", "a"));
        let listen = r#"{"id":1,"params":{"notifications":{"taskIds":["a","other","b",7],"x":true}}}"#;
        assert_eq!(
            listened(listen, name).unwrap(),
            r#"{"id":1,"params":{"notifications":{"taskIds":["aa","bb"],"x":true}}}"#
        );
        assert_eq!(of_listener(r#"{"notifications":{"taskIds":["a",7]}}"#), ["a"]);
        assert!(of_listener("{}").is_empty());
        let many = |count: usize| {
            format!(r#"{{"notifications":{{"taskIds":[{}]}}}}"#, vec!["\"a\""; count].join(","))
        };
        let listens = |count: usize| format!(r#"{{"id":1,"params":{}}}"#, many(count));
        assert_eq!(of_listener(&many(MAX_LISTENED)).len(), MAX_LISTENED);
        assert!(listened(&listens(MAX_LISTENED), name).is_ok());
        assert!(of_listener(&many(MAX_LISTENED + 1)).is_empty());
        assert!(matches!(listened(&listens(MAX_LISTENED + 1), name), Err(Unnameable::TooMany)));
        let spelled = listen.replace("taskIds", "task\\u0049ds");
        assert_eq!(listened(&spelled, |_| None).unwrap(), listen.replace(r#""a","other","b",7"#, ""));
        let twice = listen.replace(r#""x":true"#, r#""taskIds":[]"#);
        assert!(listened(&twice, name).is_err());
        for plain in ["{ }", r#"{ "taskIds":null}"#] {
            let plain = format!(r#"{{"id":1,"params":{{"notifications":{plain}}}}}"#);
            assert_eq!(listened(&plain, name).unwrap(), plain);
        }
    }

    #[test]
    fn a_call_that_became_a_task_is_known() {
        for (message, expected) in [
            (r#"{"id":1,"result":{"resultType":"task","taskId":"a"}}"#, true),
            (r#"{"id":1,"result":{"resultType":"complete","x":"task"}}"#, false),
            (r#"{"id":1,"result":{"content":[]}}"#, false),
            (r#"{"id":1,"error":{"resultType":"task"}}"#, false),
        ] {
            assert_eq!(is_begun(message), expected, "{message}");
        }
    }

    #[test]
    fn only_the_same_tasks_are_carried() {
        use Revision::{V2025_06_18, V2025_11_25, V2026_07_28};
        for (client, server, expected) in [
            (V2025_11_25, V2025_11_25, true),
            (V2026_07_28, V2026_07_28, true),
            (V2025_11_25, V2026_07_28, false),
            (V2026_07_28, V2025_11_25, false),
            (V2025_11_25, V2025_06_18, false),
        ] {
            assert_eq!(are_carried(Pair { client, server }), expected);
        }
    }
}
