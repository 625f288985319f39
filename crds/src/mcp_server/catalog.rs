//! `spec.catalog`: what the catalog says about the server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// What the catalog says about the server, beside what the server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Catalog {
    /// Whether the catalog lists the server and its tools. It changes nothing about who may call them.
    #[serde(default = "default_publish")]
    pub publish: bool,
    /// A name for people, such as `Issue tracker`. Default: what the server calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub title: Option<String>,
    /// What the server is good for, in plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub description: Option<String>,
    /// Whose server this is: a team, a person, an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub owner: Option<String>,
    /// Words to find it by, such as `issues`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = Rule::new("self.all(tag, tag.matches(r'^[a-z0-9]([-._a-z0-9]*[a-z0-9])?$'))")
        .message("write tags of lower-case letters, digits, `-`, `_` and `.`, such as `issues`"))]
    pub tags: Vec<String>,
    /// Where there is more about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub links: Vec<Link>,
}

/// A link for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Link {
    /// What is there, such as `Runbook`.
    #[schemars(length(min = 1, max = 128))]
    pub title: String,
    /// Its address. The catalog shows it and never follows it.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(r"self.matches(r'^https?://[^[:space:]/]+[^[:space:]]*$')")
        .message("write an address that begins with https:// or http://"))]
    pub url: String,
}

impl Default for Catalog {
    fn default() -> Self {
        Self {
            publish: default_publish(),
            title: None,
            description: None,
            owner: None,
            tags: Vec::new(),
            links: Vec::new(),
        }
    }
}

fn default_publish() -> bool {
    true
}
