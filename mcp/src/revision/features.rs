//! What each revision has, as one table: whatever depends on the revision asks it, and what compares dates all the same
//! says why.

use super::Revision;

/// Which messages carry `MCP-Protocol-Version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionHeader {
    /// None. One that is there means nothing.
    Unknown,
    /// All after the handshake.
    AfterHandshake,
    /// All, and the body says the same.
    Always,
}

/// What a tool may return besides content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structured {
    /// Nothing.
    None,
    /// An object, by a schema of type `object`.
    Object,
    /// Any JSON, by any schema.
    Any,
}

/// What a server may ask a user for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Elicitation {
    /// Nothing.
    None,
    /// A form of plain fields.
    Form,
    /// A form, also with titled and multiple choices, or a visit to a URL.
    FormAndUrl,
}

/// Calls that outlive their request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// There are none.
    None,
    /// Part of the protocol, as an experiment.
    Core,
    /// The extension `io.modelcontextprotocol/tasks`.
    Extension,
}

/// How a client says which log messages it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevels {
    /// Once, with `logging/setLevel`.
    PerSession,
    /// In every request.
    PerRequest,
}

/// How a server asks its client for sampling, elicitation and roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Questions {
    /// With requests of its own.
    Requests,
    /// With a result that says what is missing; the client asks again.
    InputRequired,
}

/// What a revision has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `initialize` and `notifications/initialized`; otherwise each request says who sends it.
    pub handshake: bool,
    /// JSON-RPC batches.
    pub batches: bool,
    /// `MCP-Protocol-Version`.
    pub version_header: VersionHeader,
    /// `Mcp-Method`, `Mcp-Name` and `Mcp-Param-*`, which repeat what the body says.
    pub standard_headers: bool,
    /// How servers ask back.
    pub questions: Questions,
    /// `ping`.
    pub ping: bool,
    /// How log messages are chosen.
    pub log_levels: LogLevels,
    /// `subscriptions/listen`; otherwise `resources/subscribe`, and list changes to everybody.
    pub listen: bool,
    /// An event without a message at the start of a stream, and streams that a server closes early. Older clients
    /// fail on them.
    pub priming: bool,
    /// A stream that ends is told from one that breaks off, which is an error.
    pub ends: bool,
    /// A client that goes away has cancelled what it asked for.
    pub disconnect_cancels: bool,
    /// Errors without an id, for requests whose id could not be read.
    pub errors_without_id: bool,
    /// The capability `completions`. Before it, every server may be asked.
    pub completions_capability: bool,
    /// `context` in `completion/complete`.
    pub completion_context: bool,
    /// Content of type `audio`.
    pub audio: bool,
    /// Content of type `resource_link`.
    pub resource_links: bool,
    /// What tools return besides content.
    pub structured: Structured,
    /// What a user can be asked for.
    pub elicitation: Elicitation,
    /// Tools in sampling, and messages of several blocks.
    pub sampling_tools: bool,
    /// Long calls.
    pub tasks: Tasks,
    /// `resultType` in every result.
    pub result_type: bool,
    /// `extensions` among the capabilities.
    pub extensions: bool,
    /// The code of its own for a resource that does not exist.
    pub resource_not_found: bool,
    /// The code -32042, with which a server asks for a URL to be visited.
    pub url_elicitation_error: bool,
}

const V2024_11_05: Features = Features {
    handshake: true,
    batches: false,
    version_header: VersionHeader::Unknown,
    standard_headers: false,
    questions: Questions::Requests,
    ping: true,
    log_levels: LogLevels::PerSession,
    listen: false,
    priming: false,
    ends: false,
    disconnect_cancels: false,
    errors_without_id: false,
    completions_capability: false,
    completion_context: false,
    audio: false,
    resource_links: false,
    structured: Structured::None,
    elicitation: Elicitation::None,
    sampling_tools: false,
    tasks: Tasks::None,
    result_type: false,
    extensions: false,
    resource_not_found: true,
    url_elicitation_error: false,
};

const V2025_03_26: Features =
    Features { batches: true, completions_capability: true, audio: true, ..V2024_11_05 };

const V2025_06_18: Features = Features {
    batches: false,
    version_header: VersionHeader::AfterHandshake,
    completion_context: true,
    resource_links: true,
    structured: Structured::Object,
    elicitation: Elicitation::Form,
    ..V2025_03_26
};

const V2025_11_25: Features = Features {
    priming: true,
    ends: true,
    errors_without_id: true,
    elicitation: Elicitation::FormAndUrl,
    sampling_tools: true,
    tasks: Tasks::Core,
    url_elicitation_error: true,
    ..V2025_06_18
};

const V2026_07_28: Features = Features {
    handshake: false,
    version_header: VersionHeader::Always,
    standard_headers: true,
    questions: Questions::InputRequired,
    ping: false,
    log_levels: LogLevels::PerRequest,
    listen: true,
    priming: false,
    disconnect_cancels: true,
    structured: Structured::Any,
    tasks: Tasks::Extension,
    result_type: true,
    extensions: true,
    resource_not_found: false,
    url_elicitation_error: false,
    ..V2025_11_25
};

impl Revision {
    /// What this revision has.
    pub const fn features(self) -> &'static Features {
        match self {
            Self::V2024_11_05 => &V2024_11_05,
            Self::V2025_03_26 => &V2025_03_26,
            Self::V2025_06_18 => &V2025_06_18,
            Self::V2025_11_25 => &V2025_11_25,
            Self::V2026_07_28 => &V2026_07_28,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(has: impl Fn(&Features) -> bool) -> Vec<&'static str> {
        let those = Revision::ALL.into_iter().filter(|revision| has(revision.features()));
        those.map(Revision::as_str).collect()
    }

    #[test]
    fn revisions_differ_where_they_are_known_to() {
        const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
        assert_eq!(revisions(|has| has.handshake), LEGACY);
        assert_eq!(revisions(|has| has.ping), LEGACY);
        assert_eq!(revisions(|has| has.questions == Questions::Requests), LEGACY);
        assert_eq!(revisions(|has| has.batches), ["2025-03-26"]);
        assert_eq!(revisions(|has| has.version_header == VersionHeader::AfterHandshake), LEGACY[2..]);
        assert_eq!(revisions(|has| !has.completion_context), LEGACY[..2]);
        assert_eq!(revisions(|has| has.priming), ["2025-11-25"]);
        assert_eq!(revisions(|has| has.ends), ["2025-11-25", "2026-07-28"]);
        assert_eq!(revisions(|has| has.url_elicitation_error), ["2025-11-25"]);
        assert_eq!(revisions(|has| has.tasks == Tasks::Core), ["2025-11-25"]);
        assert_eq!(revisions(|has| has.elicitation == Elicitation::FormAndUrl), ["2025-11-25", "2026-07-28"]);
        for only_modern in [
            |has: &Features| has.standard_headers,
            |has: &Features| has.listen,
            |has: &Features| has.disconnect_cancels,
            |has: &Features| has.result_type,
            |has: &Features| has.extensions,
            |has: &Features| !has.resource_not_found,
        ] {
            assert_eq!(revisions(only_modern), ["2026-07-28"]);
        }
    }
}
