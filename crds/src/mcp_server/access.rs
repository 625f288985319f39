//! `spec.auth`, `spec.access`, `spec.tools`: who may call what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How callers prove who they are: exactly one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Auth {
    /// Not at all: whoever reaches the server calls it as the principal `anonymous`. Access rules still hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub none: Option<NoAuth>,
    /// By an API key, sent as `Authorization: Bearer KEY` or `X-API-Key: KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_keys: Option<ApiKeys>,
}

/// No authentication. Has no fields: write `none: {}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoAuth {}

/// API keys from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeys {
    /// The Secret, in the server's namespace. Each of its data names is a principal; the value holds that
    /// principal's keys, one a line, each as `sha256:<64 hex digits>` or in plain. Several keys of a principal may be
    /// live at once. `longshore key new` makes a key with its hash.
    pub secret_ref: SecretReference,
}

/// Names a Secret in the server's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The Secret's name.
    pub name: String,
}

/// Who may call what. Deny by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// A call goes through if one of these permits it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AccessRule>,
}

/// Permits some callers some of what the server offers.
///
/// In the globs `*` stands for any run of characters, `?` for one, `[ab]` for one of those, `{a,b}` for either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessRule {
    /// The rule's name. The audit log gives it as the reason of every call that it permits.
    pub name: String,
    /// Globs over principals: the data names in the keys' Secret. Left out, the rule is for every authenticated
    /// caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principals: Option<Vec<String>>,
    /// Globs over tool names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Globs over prompt names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// Globs over resource URIs and URI templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
}

/// Which of the server's tools exist for clients, whoever they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tools {
    /// Globs over tool names. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Globs over tool names; wins over `include`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}
