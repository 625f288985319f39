//! `spec.limits`: bounds of a request.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Bounds of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// The largest request body, as a quantity of bytes such as `512Ki` or `4Mi`: from `1Ki` to `32Mi`.
    #[serde(default = "default_request_bytes")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new(
        "self.matches(r'^[0-9]{1,9}(k|M|Ki|Mi)?$') && quantity(self).compareTo(quantity('1Ki')) >= 0 \
         && quantity(self).compareTo(quantity('32Mi')) <= 0")
        .message("write a whole number of bytes from 1Ki to 32Mi, with or without a unit (k, M, Ki, Mi), such as `4Mi`"))]
    pub request_bytes: String,
    /// How long a call may take until its last answer, such as `90s` or `5m`: from `100ms` to `1h`. The pod's grace
    /// period follows it.
    #[serde(default = "default_request_timeout")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(
        "self.matches(r'^([0-9]{1,6}(ms|s|m|h))+$') && duration(self) >= duration('100ms') \
         && duration(self) <= duration('1h')")
        .message("write a time from 100ms to 1h in the units ms, s, m and h, such as `60s` or `1m30s`"))]
    pub request_timeout: String,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request_bytes: default_request_bytes(), request_timeout: default_request_timeout() }
    }
}

fn default_request_bytes() -> String {
    "4Mi".to_owned()
}

fn default_request_timeout() -> String {
    "60s".to_owned()
}
