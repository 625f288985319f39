//! `_meta`: what each request of 2026-07-28 says of itself, and the reserved names in it.
//!
//! There is no handshake in that revision, so every request brings its revision and what its client can do.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/index#meta>

use memchr::memchr2_iter;
use thiserror::Error;

use crate::envelope::is_object;
use crate::level::Level;
use crate::method::Subject;
use crate::object::string;
use crate::params::{self, Invalid};
use crate::{Raw, Text};

/// The revision of a request. A request that has it is a modern one.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What the client can do, with this request.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Who the client is. Nobody has checked it.
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Which log messages the client wants for this request.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// In results: who the server is. Nobody has checked it.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// In notifications and results: the id of the `subscriptions/listen` that they belong to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// What progress of this request is reported under.
pub(crate) const PROGRESS_TOKEN: &str = "progressToken";
/// Where a request stands in a distributed trace (W3C). These pass through every revision.
pub const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// What only a request of 2026-07-28 has in `_meta`: nothing of it is for a server of another revision.
pub const OF_MODERN_REQUESTS: [&str; 5] =
    [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SUBSCRIPTION_ID];

/// The longest that a client may say of what it can do, in bytes: many times what clients have. It is read for each request,
/// and kept with some. So is what one says of who it is; where that is longer (it may have icons in it), it only passes.
pub const MAX_SAID: usize = 16 * 1024;

/// What a request of 2026-07-28 says of itself. Values are as they were written.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// The revision, which may be one that nobody knows.
    pub version: Text<'a>,
    /// What the client can do: a JSON object.
    pub capabilities: &'a str,
    /// Who the client says that it is.
    pub client_info: Option<&'a str>,
    /// Which log messages it wants. None at all without it.
    pub log_level: Option<Level>,
    /// What progress is reported under: a string or a number.
    pub progress_token: Option<&'a str>,
}

/// Why a request's envelope cannot be used.
#[derive(Debug, Error)]
pub enum Incomplete {
    /// A member that each request has is not there.
    #[error("\"params._meta\" has to have \"{0}\"")]
    Missing(&'static str),
    /// A member is of the wrong type.
    #[error("\"{0}\" in \"params._meta\" is not usable")]
    Wrong(&'static str),
    /// A member is longer than [`MAX_SAID`].
    #[error("\"{0}\" in \"params._meta\" may be {MAX_SAID} bytes long at most")]
    Long(&'static str),
    /// The parameters, or `_meta` in them, cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Invalid),
}

/// What a request's parameters are looked through for, in one pass: they may be long. Values are not looked into.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outline<'a> {
    meta: Meta<'a>,
    name: Option<Raw<'a>>,
    uri: Option<Raw<'a>>,
    task: Option<Raw<'a>>,
    arguments: Option<Raw<'a>>,
    responses: Option<Raw<'a>>,
    state: Option<Raw<'a>>,
}

/// The same of `_meta`.
#[derive(Clone, Copy, Debug, Default)]
struct Meta<'a> {
    version: Option<Raw<'a>>,
    capabilities: Option<Raw<'a>>,
    client_info: Option<Raw<'a>>,
    log_level: Option<Raw<'a>>,
    progress_token: Option<Raw<'a>>,
}

const MEMBERS: [&str; 7] = ["_meta", "name", "uri", "taskId", "arguments", "inputResponses", "requestState"];
/// Members beside it are for whoever decides on the request, see `crate::params`.
const EXACT: [&str; 1] = ["_meta"];

const OF_META: [&str; 5] = [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN];
const EXACT_OF_META: [&str; 6] =
    [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SUBSCRIPTION_ID, PROGRESS_TOKEN];

/// Whether JSON can be a progress token: a string or an integer.
pub fn is_token(json: &str) -> bool {
    json.starts_with('"') || json.parse::<i64>().is_ok()
}

// === impl Outline ===

impl<'a> Outline<'a> {
    /// Looks through the parameters of a request or a notification that says in them that it is of 2026-07-28 or later.
    /// `None`: it does not. Most do not have what says so, and are read by whoever decides on them.
    pub(crate) fn of_modern(params: Option<Raw<'a>>) -> Result<Option<Self>, Invalid> {
        // However `_meta` is written, as some readers would take it.
        let may_have_it = |params: &Raw<'_>| {
            let text = params.get().as_bytes();
            memchr2_iter(b'_', b'\\', text)
                .any(|at| text[at] == b'\\' || matches!(text.get(at + 1), Some(b'm' | b'M')))
        };
        let Some(params) = params.filter(may_have_it) else { return Ok(None) };
        let outline = Self::read(Some(params))?;
        Ok(outline.claims_modern().then_some(outline))
    }

    /// Looks through the parameters of a request or a notification. Those that are no object have nothing in them.
    pub fn read(params: Option<Raw<'a>>) -> Result<Self, Invalid> {
        let Some(params) = params.filter(|params| is_object(params.get())) else {
            return Ok(Self::default());
        };
        let [meta, name, uri, task, arguments, responses, state] = params::members(params, MEMBERS, &EXACT)?;
        let meta = meta.map_or_else(|| Ok(Meta::default()), Meta::read)?;
        Ok(Self { meta, name, uri, task, arguments, responses, state })
    }

    /// Whether a message says that it is of 2026-07-28 or later.
    pub fn claims_modern(&self) -> bool {
        self.meta.version.is_some()
    }

    /// The envelope of a request of 2026-07-28.
    pub fn envelope(&self) -> Result<Envelope<'a>, Incomplete> {
        let Meta { version, capabilities, client_info, log_level, progress_token } = self.meta;
        let version = version.ok_or(Incomplete::Missing(PROTOCOL_VERSION))?;
        let version = string(version.get()).ok_or(Incomplete::Wrong(PROTOCOL_VERSION))?;
        let capabilities = capabilities.ok_or(Incomplete::Missing(CLIENT_CAPABILITIES))?.get();
        if !is_object(capabilities) {
            return Err(Incomplete::Wrong(CLIENT_CAPABILITIES));
        }
        if capabilities.len() > MAX_SAID {
            return Err(Incomplete::Long(CLIENT_CAPABILITIES));
        }
        let client_info = client_info.map(Raw::get);
        if client_info.is_some_and(|info| !is_object(info)) {
            return Err(Incomplete::Wrong(CLIENT_INFO));
        }
        let level = |name: Text<'_>| Level::parse(&name).ok_or(Incomplete::Wrong(LOG_LEVEL));
        let log_level = params::text(log_level)?.map(level).transpose()?;
        let progress_token = progress_token.map(Raw::get);
        if progress_token.is_some_and(|token| !is_token(token)) {
            return Err(Incomplete::Wrong(PROGRESS_TOKEN));
        }
        Ok(Envelope { version, capabilities, client_info, log_level, progress_token })
    }

    /// What `Mcp-Name` repeats of a request with this subject, if it is there and a string.
    pub fn name(&self, subject: Subject) -> Option<Text<'a>> {
        let value = match subject {
            Subject::Tool | Subject::Prompt => self.name,
            Subject::Resource => self.uri,
            Subject::Task => self.task,
            Subject::Nothing | Subject::Reference => None,
        };
        string(value?.get())
    }

    /// The arguments of a tool or a prompt, as they were written.
    pub fn arguments(&self) -> Option<&'a str> {
        self.arguments.map(Raw::get)
    }

    /// Whether it goes on with a call in which the server has asked for something.
    pub fn goes_on(&self) -> bool {
        self.responses.is_some() || self.state.is_some()
    }

    /// The answers to what the server asked in the last round, as they were written.
    pub fn input_responses(&self) -> Option<&'a str> {
        self.responses.map(Raw::get)
    }

    /// What the server gave along with its questions, decoded. `Err` if it is no string: nobody gave that.
    pub fn request_state(&self) -> Result<Option<Text<'a>>, Incomplete> {
        let read = |state: Raw<'a>| string(state.get()).ok_or(Incomplete::Wrong("requestState"));
        self.state.map(read).transpose()
    }
}

impl<'a> Meta<'a> {
    fn read(meta: Raw<'a>) -> Result<Self, Invalid> {
        let [version, capabilities, client_info, log_level, progress_token] =
            params::members(meta, OF_META, &EXACT_OF_META)?;
        Ok(Self { version, capabilities, client_info, log_level, progress_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(meta: &str) -> String {
        let params = format!(r#"{{"name":"x","_meta":{meta}}}"#);
        match Outline::read(Some(Raw::of(&params)))
            .map_err(Incomplete::from)
            .and_then(|outline| outline.envelope())
        {
            Ok(envelope) => format!("{} {}", envelope.version, envelope.capabilities),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn envelopes_are_read() {
        let full = format!(
            r#"{{"{PROTOCOL_VERSION}":"2026-07-28","{CLIENT_CAPABILITIES}":{{ "roots":{{}} }},"{LOG_LEVEL}":"info","progressToken":7,"com.example/x":[]}}"#
        );
        assert_eq!(envelope(&full), r#"2026-07-28 { "roots":{} }"#);
        for (change, expected) in [
            (("\"info\"", "\"loud\""), LOG_LEVEL),
            ((":7,", ":7.5,"), PROGRESS_TOKEN),
            (("{ \"roots\":{} }", "[]"), CLIENT_CAPABILITIES),
            (("\"2026-07-28\"", "20260728"), PROTOCOL_VERSION),
        ] {
            let text = envelope(&full.replacen(change.0, change.1, 1));
            assert_eq!(text, format!("\"{expected}\" in \"params._meta\" is not usable"));
        }
        // As long as it may be, and a byte longer.
        let long = |size: usize| format!(r#"{{"x":"{}"}}"#, "x".repeat(size - 8));
        let said = |size: usize| envelope(&full.replace("{ \"roots\":{} }", &long(size)));
        assert_eq!(said(MAX_SAID), format!("2026-07-28 {}", long(MAX_SAID)));
        let refused =
            format!("\"{CLIENT_CAPABILITIES}\" in \"params._meta\" may be 16384 bytes long at most");
        assert_eq!(said(MAX_SAID + 1), refused);
        // Who a client is may take longer to say.
        let named = full.replace("com.example/x", CLIENT_INFO).replace("[]", &long(MAX_SAID + 1));
        assert_eq!(envelope(&named), r#"2026-07-28 { "roots":{} }"#);
        for (meta, expected) in [
            ("{}".to_owned(), format!("\"params._meta\" has to have \"{PROTOCOL_VERSION}\"")),
            (
                format!(r#"{{"{PROTOCOL_VERSION}":"2026-07-28"}}"#),
                format!("\"params._meta\" has to have \"{CLIENT_CAPABILITIES}\""),
            ),
            ("7".to_owned(), "\"params\" has to be an object".to_owned()),
            (
                r#"{"IO.modelcontextprotocol/protocolVersion":"2026-07-28"}"#.to_owned(),
                format!("invalid parameters: the member `{PROTOCOL_VERSION}` has to be spelled so"),
            ),
        ] {
            assert_eq!(envelope(&meta), expected);
        }
    }

    #[test]
    fn only_a_revision_is_a_claim() {
        for (params, expected) in [
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}"#, true),
            (r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":7}}"#, true),
            (r#"{"_meta":{"io.modelcontextprotocol/clientInfo":{}}}"#, false),
            (r#"{"_meta":null}"#, false),
            ("[1]", false),
        ] {
            let outline = Outline::read(Some(Raw::of(params))).unwrap();
            assert_eq!(outline.claims_modern(), expected, "{params}");
        }
    }

    #[test]
    fn what_a_client_brings_back_is_found() {
        let params = r#"{"name":"a","uri":7,"inputResponses":{ "k":{} },"requestState":"s\u0074"}"#;
        let outline = Outline::read(Some(Raw::of(params))).unwrap();
        assert_eq!(outline.input_responses(), Some(r#"{ "k":{} }"#));
        assert_eq!(outline.request_state().unwrap().as_deref(), Some("st"));
        assert_eq!(outline.name(Subject::Tool).as_deref(), Some("a"));
        assert_eq!(outline.name(Subject::Resource), None);
        let params = Raw::of(r#"{"requestState":7}"#);
        assert!(Outline::read(Some(params)).unwrap().request_state().is_err());
    }
}
