//! `_meta`: what each request of 2026-07-28 says of itself, and the reserved names in it.
//!
//! There is no handshake in that revision, so every request brings its revision and what its client can do.

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::Text;
use crate::envelope::is_object;
use crate::level::Level;
use crate::params::{Invalid, object};
use crate::spelling::Known;

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
pub const PROGRESS_TOKEN: &str = "progressToken";
/// Where a request stands in a distributed trace (W3C). These pass through every revision.
pub const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// What only a request of 2026-07-28 has in `_meta`: nothing of it is for a server of another revision.
pub const OF_MODERN_REQUESTS: [&str; 5] =
    [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SUBSCRIPTION_ID];

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
    /// The parameters, or `_meta` in them, cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Invalid),
}

#[derive(Default, Deserialize)]
struct Holder<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<Text<'a>>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

impl Known for Holder<'_> {
    const MEMBERS: &'static [&'static str] = &["_meta"];
}

impl Known for Wire<'_> {
    const MEMBERS: &'static [&'static str] =
        &[PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SUBSCRIPTION_ID, PROGRESS_TOKEN];
}

/// Whether a message says that it is of 2026-07-28 or later. Parameters that are no object say nothing.
pub fn claims_modern(params: Option<&RawValue>) -> Result<bool, Invalid> {
    Ok(wire(params)?.is_some_and(|wire| wire.version.is_some()))
}

/// Reads the envelope of a request of 2026-07-28.
pub fn read(params: Option<&RawValue>) -> Result<Envelope<'_>, Incomplete> {
    let wire = wire(params)?.unwrap_or_default();
    let version = wire.version.ok_or(Incomplete::Missing(PROTOCOL_VERSION))?;
    let version = serde_json::from_str(version.get()).map_err(|_| Incomplete::Wrong(PROTOCOL_VERSION))?;
    let capabilities = wire.capabilities.ok_or(Incomplete::Missing(CLIENT_CAPABILITIES))?.get();
    if !is_object(capabilities) {
        return Err(Incomplete::Wrong(CLIENT_CAPABILITIES));
    }
    let client_info = wire.client_info.map(RawValue::get);
    if client_info.is_some_and(|info| !is_object(info)) {
        return Err(Incomplete::Wrong(CLIENT_INFO));
    }
    let level = |name: Text<'_>| Level::parse(&name).ok_or(Incomplete::Wrong(LOG_LEVEL));
    let log_level = wire.log_level.map(level).transpose()?;
    let progress_token = wire.progress_token.map(RawValue::get);
    if progress_token.is_some_and(|token| !is_token(token)) {
        return Err(Incomplete::Wrong(PROGRESS_TOKEN));
    }
    Ok(Envelope { version, capabilities, client_info, log_level, progress_token })
}

/// Whether JSON can be a progress token: a string or an integer.
pub fn is_token(json: &str) -> bool {
    json.starts_with('"') || json.parse::<i64>().is_ok()
}

fn wire(params: Option<&RawValue>) -> Result<Option<Wire<'_>>, Invalid> {
    let Some(params) = params.filter(|params| is_object(params.get())) else { return Ok(None) };
    object::<Holder<'_>>(params)?.meta.map(object::<Wire<'_>>).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(meta: &str) -> String {
        let params = format!(r#"{{"name":"x","_meta":{meta}}}"#);
        let params: Box<RawValue> = RawValue::from_string(params).unwrap();
        match read(Some(&params)) {
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
            let params = RawValue::from_string(params.to_owned()).unwrap();
            assert_eq!(claims_modern(Some(&params)).unwrap(), expected, "{params}");
        }
    }
}
