//! What a request is about: the few parameters that decide who may send it. Everything else passes unread.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/schema>

use thiserror::Error;

use crate::envelope::{is_object, plain};
use crate::listen::Full;
use crate::method::Subject;
use crate::{Raw, Text, meta, spelling};

/// Why parameters cannot be used.
#[derive(Debug, Error)]
pub enum Invalid {
    /// `params` is something else.
    #[error("\"params\" has to be an object")]
    NotObject,
    /// A parameter has the wrong type, occurs twice, or has a name that could be taken for another's.
    #[error("invalid parameters: {0}")]
    Unreadable(String),
    /// A parameter that the method needs is not there.
    #[error("the parameter \"{0}\" is missing")]
    Missing(&'static str),
    /// A reference of an unknown type.
    #[error("the type of \"ref\" has to be \"ref/prompt\" or \"ref/resource\"")]
    Reference,
    /// A subscription is too large.
    #[error(transparent)]
    Full(#[from] Full),
}

/// The longest token, as JSON, that is kept for as long as a request is under way.
pub const MAX_TOKEN: usize = 512;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The tool of that name.
    Tool(Text<'a>),
    /// The prompt of that name.
    Prompt(Text<'a>),
    /// The resource, or the resource template, of that URI.
    Resource(Text<'a>),
}

/// The parameters that whoever decides on a message reads. They say nothing of whether its method knows them.
#[derive(Clone, Debug, Default)]
pub struct Params<'a> {
    name: Option<Text<'a>>,
    uri: Option<Text<'a>>,
    reference: Option<Raw<'a>>,
    meta: Option<Raw<'a>>,
    request_id: Option<Raw<'a>>,
    progress_token: Option<Raw<'a>>,
    level: Option<Raw<'a>>,
    task: Option<Raw<'a>>,
    task_id: Option<Text<'a>>,
}

const MEMBERS: [&str; 9] =
    ["name", "uri", "ref", "_meta", "requestId", "progressToken", "level", "task", "taskId"];
/// More than is read here: what the handshake is judged by, and what a server reads beside the target.
const EXACT: [&str; 15] = [
    "name",
    "uri",
    "ref",
    "_meta",
    "arguments",
    "argument",
    "cursor",
    "protocolVersion",
    "capabilities",
    "clientInfo",
    "requestId",
    "progressToken",
    "level",
    "task",
    "taskId",
];
const OF_REFERENCE: [&str; 3] = ["type", "name", "uri"];
const OF_META: [&str; 2] = [meta::PROTOCOL_VERSION, meta::PROGRESS_TOKEN];

impl<'a> Params<'a> {
    /// Reads the parameters of a request or a notification; none at all are as good as empty ones.
    pub fn read(params: Option<Raw<'a>>) -> Result<Self, Invalid> {
        let Some(params) = params else { return Ok(Self::default()) };
        let [name, uri, reference, meta, request_id, progress_token, level, task, task_id] =
            members(params, MEMBERS, &EXACT)?;
        let (name, uri, task_id) = (text(name)?, text(uri)?, text(task_id)?);
        Ok(Self { name, uri, reference, meta, request_id, progress_token, level, task, task_id })
    }

    /// The token that a request's progress is to be reported under, as JSON.
    pub fn wanted_token(&self) -> Result<Option<&'a str>, Invalid> {
        let Some(meta) = self.meta else { return Ok(None) };
        let [token] = members(meta, [meta::PROGRESS_TOKEN], &OF_META)?;
        Ok(token.map(Raw::get))
    }

    /// The same of a question that is kept until it is answered. Under one that cannot be read, or is longer than
    /// [`MAX_TOKEN`], nobody reports.
    pub fn kept_token(&self) -> Option<&'a str> {
        self.wanted_token().ok().flatten().filter(|token| token.len() <= MAX_TOKEN)
    }

    /// The token that a notification of progress carries, as JSON.
    pub fn reported_token(&self) -> Option<&'a str> {
        self.progress_token.map(Raw::get)
    }

    /// The id of the request that a notification is about, as JSON.
    pub fn request_id(&self) -> Option<&'a str> {
        self.request_id.map(Raw::get)
    }

    /// A level of logging, as JSON.
    pub fn level(&self) -> Option<&'a str> {
        self.level.map(Raw::get)
    }

    /// Whether the answer may be a task, and what comes of it is asked for later (2025-11-25).
    pub fn wants_task(&self) -> bool {
        self.task.is_some_and(|task| is_object(task.get()))
    }

    /// The task that a request is about.
    pub fn task_id(&self) -> Option<&str> {
        self.task_id.as_deref()
    }

    /// The URI of a resource.
    pub fn uri(&self) -> Option<&str> {
        self.uri.as_deref()
    }

    /// The target of a request with this subject.
    pub fn target(&self, subject: Subject) -> Result<Option<Target<'a>>, Invalid> {
        let name = || self.name.clone().ok_or(Invalid::Missing("name"));
        let uri = || self.uri.clone().ok_or(Invalid::Missing("uri"));
        Ok(match subject {
            // A task belongs to who began it, which is no question of names.
            Subject::Nothing | Subject::Task => None,
            Subject::Tool => Some(Target::Tool(name()?)),
            Subject::Prompt => Some(Target::Prompt(name()?)),
            Subject::Resource => Some(Target::Resource(uri()?)),
            Subject::Reference => {
                let reference = self.reference.ok_or(Invalid::Missing("ref"))?;
                let [kind, name, uri] = members(reference, OF_REFERENCE, &OF_REFERENCE)?;
                let (kind, name, uri) = (text(kind)?, text(name)?, text(uri)?);
                Some(match kind.as_deref() {
                    Some("ref/prompt") => Target::Prompt(name.ok_or(Invalid::Missing("ref.name"))?),
                    Some("ref/resource") => Target::Resource(uri.ok_or(Invalid::Missing("ref.uri"))?),
                    _ => return Err(Invalid::Reference),
                })
            }
        })
    }
}

/// Members of parameters, or of an object in them. One that is null is not there.
pub(crate) fn members<'a, const N: usize>(
    raw: Raw<'a>,
    members: [&'static str; N],
    exact: &[&'static str],
) -> Result<[Option<Raw<'a>>; N], Invalid> {
    if !is_object(raw.get()) {
        return Err(Invalid::NotObject);
    }
    let read = spelling::read(raw.get(), members, exact);
    let read = read.map_err(|wrong| Invalid::Unreadable(wrong.to_string()))?;
    Ok(read.map(|value| value.filter(|value| value.get() != "null")))
}

/// A parameter that is a string.
pub(crate) fn text(value: Option<Raw<'_>>) -> Result<Option<Text<'_>>, Invalid> {
    spelling::text(value).map_err(|error| Invalid::Unreadable(plain(&error)))
}

// === impl Target ===

impl Target<'_> {
    /// The name or URI.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tool(name) | Self::Prompt(name) | Self::Resource(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(params: &str, subject: Subject) -> String {
        let raw = Raw::of(params);
        match Params::read(Some(raw)).and_then(|params| params.target(subject)) {
            Ok(None) => "none".to_owned(),
            Ok(Some(Target::Tool(name))) => format!("tool {name}"),
            Ok(Some(Target::Prompt(name))) => format!("prompt {name}"),
            Ok(Some(Target::Resource(uri))) => format!("resource {uri}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn targets_are_found() {
        use Subject::{Nothing, Prompt, Reference, Resource, Tool};
        for (params, subject, expected) in [
            (r#"{"name":"echo","arguments":{"name":"other"}}"#, Tool, "tool echo"),
            (r#"{"name":"e\u0063ho"}"#, Tool, "tool echo"),
            (r#"{"name":"p"}"#, Prompt, "prompt p"),
            (r#"{"uri":"a://b"}"#, Resource, "resource a://b"),
            (r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x"}}"#, Reference, "prompt p"),
            (r#"{"ref":{"type":"ref/resource","uri":"a://{b}"}}"#, Reference, "resource a://{b}"),
            (
                r#"{"ref":{"type":"ref/tool","name":"p"}}"#,
                Reference,
                "the type of \"ref\" has to be \"ref/prompt\" or \"ref/resource\"",
            ),
            (r#"{"ref":["ref/prompt","p"]}"#, Reference, "\"params\" has to be an object"),
            (r#"{"ref":{"type":"ref/prompt"}}"#, Reference, "the parameter \"ref.name\" is missing"),
            (r#"{"x":1}"#, Nothing, "none"),
            (r#"["echo"]"#, Tool, "\"params\" has to be an object"),
            (r#"{}"#, Tool, "the parameter \"name\" is missing"),
            (r#"{"name":null}"#, Tool, "the parameter \"name\" is missing"),
            (r#"{"name":"a","n\u0061me":"b"}"#, Tool, "invalid parameters: duplicate field `name`"),
            (r#"{"name":7}"#, Tool, "invalid parameters: invalid type: integer `7`, expected a string"),
        ] {
            assert_eq!(target(params, subject), expected, "{params}");
        }
    }

    #[test]
    fn names_that_a_server_could_take_for_others_are_refused() {
        use Subject::{Nothing, Reference, Resource, Tool};
        for (params, subject, meant) in [
            (r#"{"name":"echo","Name":"exit"}"#, Tool, "name"),
            (r#"{"NAME":"exit","name":"echo"}"#, Tool, "name"),
            (r#"{"name":"echo","n\u0041me":"exit"}"#, Tool, "name"),
            (r#"{"Name":"exit"}"#, Tool, "name"),
            (r#"{"uri":"a://b","URI":"a://c"}"#, Resource, "uri"),
            (r#"{"uri":"a://b","ur\u0131":"a://c"}"#, Resource, "uri"),
            (r#"{"name":"echo","Arguments":{}}"#, Tool, "arguments"),
            (r#"{"name":"echo","argument\u017f":{}}"#, Tool, "arguments"),
            (r#"{"Cursor":"x"}"#, Nothing, "cursor"),
            (r#"{"_META":{}}"#, Nothing, "_meta"),
            (
                r#"{"protocolVersion":"2025-11-25","ProtocolVersion":"2026-07-28"}"#,
                Nothing,
                "protocolVersion",
            ),
            (r#"{"ref":{"type":"ref/prompt","name":"p"},"Ref":{}}"#, Reference, "ref"),
            (r#"{"ref":{"type":"ref/prompt","name":"p","Name":"q"}}"#, Reference, "name"),
            (r#"{"ref":{"type":"ref/prompt","name":"p","Type":"ref/resource"}}"#, Reference, "type"),
            (r#"{"ref":{"type":"ref/resource","uri":"a://b","Uri":"a://c"}}"#, Reference, "uri"),
        ] {
            let expected = format!("invalid parameters: the member `{meant}` has to be spelled so");
            assert_eq!(target(params, subject), expected, "{params}");
        }
        // What a tool is given is its own affair, and so is what resembles nothing.
        for params in [
            r#"{"name":"echo","arguments":{"name":1,"Name":2,"URI":3,"_Meta":4}}"#,
            r#"{"name":"echo","names":1,"Nam":2,"title":"Name"}"#,
        ] {
            assert_eq!(target(params, Tool), "tool echo", "{params}");
        }
        let params = r#"{"_meta":{"IO.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
        let raw = Raw::of(params);
        assert!(Params::read(Some(raw)).unwrap().wanted_token().is_err());
    }

    #[test]
    fn tokens_are_kept_that_are_short() {
        for (length, is_kept) in [(1, true), (MAX_TOKEN - 2, true), (MAX_TOKEN - 1, false), (1 << 20, false)]
        {
            let params = format!(r#"{{"_meta":{{"progressToken":"{}"}}}}"#, "x".repeat(length));
            let params = Params::read(Some(Raw::of(&params))).unwrap();
            assert!(params.wanted_token().unwrap().is_some());
            assert_eq!(params.kept_token().is_some(), is_kept, "{length}");
        }
    }
}
