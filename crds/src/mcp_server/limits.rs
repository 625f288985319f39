//! `spec.limits`: bounds of a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// The largest request body, as a quantity of bytes such as `512Ki` or `4Mi`.
    pub request_bytes: String,
    /// How long a call may take until its last answer, such as `90s` or `5m`. The pod's grace period follows it.
    pub request_timeout: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes: "4Mi".to_owned(), request_timeout: "60s".to_owned() }
    }
}
