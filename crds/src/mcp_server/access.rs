//! `spec.auth`, `spec.access`, `spec.tools`: who may call what.
//!
//! A field that is not known here may be a later release's and take something away: without it more would be permitted
//! than was written. So what has one is not read at all. No field may get a default in the schema, since the API server
//! would add it to every server under the eyes of an operator of before.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{name_globs, uri_globs};

/// How callers prove who they are: exactly one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new("has(self.none) || has(self.apiKeys)")
    .message("say who may call: write `apiKeys: {secretRef: {name: SECRET}}` for callers with a key, or `none: {}` to let everybody in")
    .reason(Reason::FieldValueRequired))]
#[x_kube(validation = Rule::new("!(has(self.none) && has(self.apiKeys))")
    .message("write `none` or `apiKeys`, not both"))]
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
#[serde(deny_unknown_fields)]
pub struct NoAuth {}

/// API keys from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiKeys {
    /// The Secret, in the server's namespace. Each of its data names is a principal; the value holds that
    /// principal's keys, one a line, each as `sha256:<64 hex digits>` or in plain. Several keys of a principal may be
    /// live at once. `longshore key new` makes a key with its hash.
    pub secret_ref: SecretReference,
}

/// Names a Secret in the server's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretReference {
    /// The Secret's name.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(crate::schema::OBJECT_NAME)
        .message("write the name of a Secret in the server's namespace: lower-case letters, digits, `-` and `.`"))]
    pub name: String,
}

/// Who may call what. Deny by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// A call goes through if one of these permits it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[x_kube(validation = Rule::new("self.all(r, self.exists_one(other, other.name == r.name))")
        .message("two rules have the same name: the audit log tells them apart by it, so give each its own"))]
    pub rules: Vec<AccessRule>,
}

/// Permits some callers some of what the server offers.
///
/// In the globs `*` stands for any run of characters, `?` for one of ASCII, `[ab]` for one of those, `{a,b}` for either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[x_kube(validation = Rule::new(
    "(has(self.tools) && size(self.tools) > 0) || (has(self.prompts) && size(self.prompts) > 0) \
     || (has(self.resources) && size(self.resources) > 0)")
    .message("the rule permits nothing: name something in `tools`, `prompts` or `resources`, such as `tools: [\"get_*\"]`"))]
pub struct AccessRule {
    /// The rule's name. The audit log gives it as the reason of every call that it permits.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches(r'^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$')")
        .message("write a name of letters, digits, `-`, `_` and `.`, such as `readers`"))]
    pub name: String,
    /// Globs over principals: the data names in the keys' Secret. Left out, the rule is for every authenticated
    /// caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "name_globs")]
    #[x_kube(validation = Rule::new("size(self) > 0")
        .message("an empty list permits nobody: leave `principals` out for every authenticated caller, or name some"))]
    pub principals: Option<Vec<String>>,
    /// Globs over tool names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "name_globs")]
    pub tools: Vec<String>,
    /// Globs over prompt names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "name_globs")]
    pub prompts: Vec<String>,
    /// Globs over resource URIs and URI templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "uri_globs")]
    pub resources: Vec<String>,
}

/// Which of the server's tools exist for clients, whoever they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// Globs over tool names. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "name_globs")]
    pub include: Vec<String>,
    /// Globs over tool names; wins over `include`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "name_globs")]
    pub exclude: Vec<String>,
}
