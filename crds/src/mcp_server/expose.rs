//! `spec.expose`: the names under which clients reach the server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::ObjectMetadata;
use crate::schema::{is_default, origins};

/// The names under which clients reach the server, beside those of its Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expose {
    /// The host name that clients use from outside of the cluster, without scheme and port. Requests with another
    /// `Host` than this, the Service's names or a loopback name are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(
        r"self.matches(r'^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')")
        .message("write the host name alone, in lower case, without scheme, port and path, such as `tools.example.com`"))]
    pub host: Option<String>,
    /// The origins that web pages may call from, such as `https://app.example.com`. Programs that send no `Origin`
    /// are not concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "origins")]
    pub allowed_origins: Vec<String>,
    /// Labels and annotations of the Service, such as those that external-dns reads.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service: ObjectMetadata,
}
