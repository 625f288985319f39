//! What clients and servers say that they can do.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#capability-negotiation>

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// What a client can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// `roots/list`.
    pub roots: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// With tools.
    pub sampling_tools: bool,
    /// With what other servers said.
    pub sampling_context: bool,
    /// `elicitation/create` with a form.
    pub elicitation_form: bool,
    /// `elicitation/create` with a URL.
    pub elicitation_url: bool,
    /// The extension for tasks.
    pub tasks: bool,
}

/// One thing that a client has to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `roots/list`.
    Roots,
    /// `sampling/createMessage`.
    Sampling,
    /// `sampling/createMessage` with tools.
    SamplingTools,
    /// `elicitation/create` with a form.
    ElicitationForm,
    /// `elicitation/create` with a URL.
    ElicitationUrl,
    /// The extension for tasks.
    Tasks,
}

/// The id of the extension for tasks.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

#[derive(Deserialize)]
struct Wire {
    roots: Option<IgnoredAny>,
    sampling: Option<Sampling>,
    elicitation: Option<Elicitation>,
    extensions: Option<Extensions>,
}

#[derive(Deserialize)]
struct Extensions {
    #[serde(rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Sampling {
    tools: Option<IgnoredAny>,
    context: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Elicitation {
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

impl ClientCapabilities {
    /// Reads a client's capabilities.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        let wire: Wire = serde_json::from_str(json)?;
        let elicitation = wire.elicitation.as_ref();
        Ok(Self {
            roots: wire.roots.is_some(),
            sampling: wire.sampling.is_some(),
            sampling_tools: wire.sampling.as_ref().is_some_and(|sampling| sampling.tools.is_some()),
            sampling_context: wire.sampling.as_ref().is_some_and(|sampling| sampling.context.is_some()),
            // Before there were two modes, the capability was empty and meant forms.
            elicitation_form: elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none()),
            elicitation_url: elicitation.is_some_and(|modes| modes.url.is_some()),
            tasks: wire.extensions.is_some_and(|all| all.tasks.is_some()),
        })
    }

    /// Whether the client can do this.
    pub fn has(&self, need: Need) -> bool {
        match need {
            Need::Roots => self.roots,
            Need::Sampling => self.sampling,
            Need::SamplingTools => self.sampling_tools,
            Need::ElicitationForm => self.elicitation_form,
            Need::ElicitationUrl => self.elicitation_url,
            Need::Tasks => self.tasks,
        }
    }
}

impl Need {
    /// What a client would have had to declare: `data.requiredCapabilities` of the error is such an object.
    pub fn as_capabilities(self) -> Value {
        match self {
            Self::Roots => json!({"roots": {}}),
            Self::Sampling => json!({"sampling": {}}),
            Self::SamplingTools => json!({"sampling": {"tools": {}}}),
            Self::ElicitationForm => json!({"elicitation": {"form": {}}}),
            Self::ElicitationUrl => json!({"elicitation": {"url": {}}}),
            Self::Tasks => json!({"extensions": {TASKS_EXTENSION: {}}}),
        }
    }

    /// What it is, for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Roots => "roots",
            Self::Sampling => "sampling",
            Self::SamplingTools => "sampling with tools",
            Self::ElicitationForm => "elicitation with a form",
            Self::ElicitationUrl => "elicitation with a URL",
            Self::Tasks => "tasks",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_met_by_what_is_declared() {
        use Need::{ElicitationForm, ElicitationUrl, Roots, Sampling, SamplingTools, Tasks};
        for (json, can) in [
            ("{}", &[][..]),
            (r#"{"roots":{"listChanged":true},"x":1}"#, &[Roots]),
            (r#"{"sampling":{}}"#, &[Sampling]),
            (r#"{"sampling":{"tools":{}}}"#, &[Sampling, SamplingTools]),
            (r#"{"elicitation":{}}"#, &[ElicitationForm]),
            (r#"{"elicitation":{"url":{}}}"#, &[ElicitationUrl]),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, &[ElicitationForm, ElicitationUrl]),
            (r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, &[Tasks]),
        ] {
            let capabilities = ClientCapabilities::read(json).unwrap();
            for need in [Roots, Sampling, SamplingTools, ElicitationForm, ElicitationUrl, Tasks] {
                assert_eq!(capabilities.has(need), can.contains(&need), "{json} {need:?}");
                let sufficient = ClientCapabilities::read(&need.as_capabilities().to_string()).unwrap();
                assert!(sufficient.has(need), "{need:?}");
            }
        }
        for json in ["[]", "[1]", "7", "null", r#""x""#] {
            assert!(ClientCapabilities::read(json).is_err(), "{json}");
        }
    }
}
