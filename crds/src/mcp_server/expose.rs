//! `spec.expose`: the names under which clients reach the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The names under which clients reach the server, beside those of its Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// The host name that clients use from outside of the cluster, without scheme and port. Requests with another
    /// `Host` than this, the Service's names or a loopback name are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The origins that web pages may call from, such as `https://app.example.com`. Programs that send no `Origin`
    /// are not concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
}
