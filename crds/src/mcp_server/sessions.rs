//! `spec.sessions`: how long sessions live, how many there may be, and what becomes of them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::SECOND_TO_MONTH;

/// The sessions of clients. Every number is of one pod; a server of three replicas can have three times as many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.perPrincipal) || self.perPrincipal <= self.total")
    .message("`perPrincipal` may not be more than `total`"))]
pub struct Sessions {
    /// After how long without a request or an open stream a session ends: from `1s` to `720h`.
    #[serde(default = "default_idle_timeout")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(SECOND_TO_MONTH.0).message(SECOND_TO_MONTH.1))]
    pub idle_timeout: String,
    /// After how long a session ends in any case: from `1s` to `720h`.
    #[serde(default = "default_max_age")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(SECOND_TO_MONTH.0).message(SECOND_TO_MONTH.1))]
    pub max_age: String,
    /// How many sessions a pod holds at once.
    #[serde(default = "default_total")]
    #[schemars(range(min = 1, max = 100_000))]
    pub total: u32,
    /// How many of those one principal may have. Default: a tenth of `total`, at least one; with `auth.none`, where
    /// all callers are one principal, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub per_principal: Option<u32>,
    /// How many streams of events one session may have open.
    #[serde(default = "default_streams")]
    #[schemars(range(min = 1, max = 1024))]
    pub streams: u32,
    /// What becomes of a session whose pod is gone, if its server gave it an id of its own or a process. `NotFound`: it
    /// ends, and its client begins another. `Reinitialize`: another pod begins it again, and what the server knew is lost.
    #[serde(default)]
    pub on_owner_loss: OnOwnerLoss,
    /// What is kept of a stream of events for a client that comes back for the rest of it.
    #[serde(default)]
    pub resume: Resume,
}

/// What becomes of a session whose pod is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnOwnerLoss {
    /// It is gone too, and the client begins another.
    #[default]
    NotFound,
    /// Another pod begins it again and the client does not notice: for servers that remember nothing that matters.
    Reinitialize,
}

/// What is kept of a stream of events for a client that comes back for the rest of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// How many bytes of each stream, as a quantity such as `512Ki` or `1Mi`: from `0`, which is nothing, to `16Mi`.
    #[serde(default = "default_max_bytes")]
    #[schemars(length(max = 12))]
    #[x_kube(validation = Rule::new(
        "self.matches(r'^[0-9]{1,8}(k|M|Ki|Mi)?$') && quantity(self).compareTo(quantity('16Mi')) <= 0")
        .message("write a whole number of bytes from 0 to 16Mi, such as `1Mi`"))]
    pub max_bytes: String,
    /// For how long after a stream has ended, or its client has gone: from `1s` to `1h`.
    #[serde(default = "default_ttl")]
    #[schemars(length(max = 24))]
    #[x_kube(validation = Rule::new(
        r"self.matches(r'^[1-9]\d*[smh](\d+[smh])*$') && duration(self)<=duration('1h')")
        .message("write a time from 1s to 1h, such as `5m`"))]
    pub ttl: String,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            idle_timeout: default_idle_timeout(),
            max_age: default_max_age(),
            total: default_total(),
            per_principal: None,
            streams: default_streams(),
            on_owner_loss: OnOwnerLoss::default(),
            resume: Resume::default(),
        }
    }
}

impl Default for Resume {
    fn default() -> Self {
        Self { max_bytes: default_max_bytes(), ttl: default_ttl() }
    }
}

fn default_idle_timeout() -> String {
    "30m".to_owned()
}

fn default_max_age() -> String {
    "24h".to_owned()
}

fn default_total() -> u32 {
    10_000
}

fn default_streams() -> u32 {
    16
}

fn default_max_bytes() -> String {
    "1Mi".to_owned()
}

fn default_ttl() -> String {
    "5m".to_owned()
}
