//! What a source says of a server.

use std::sync::Arc;

use crate::model::{Health, Link};
use crate::offer::Offer;

/// A server, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a source knows of one published server at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerRecord {
    /// Which server.
    pub key: ServerKey,
    /// What its owner says of it.
    pub about: About,
    /// Where and how clients connect.
    pub endpoint: Endpoint,
    /// How it is. Without a `since` the catalog takes the moment at which it heard of the state first.
    pub health: Health,
    /// What it offers. `None`: nothing new is known, and what was known stays listed.
    pub offer: Option<Arc<Offer>>,
    /// Names of tools that it had when somebody last heard of it: listed as long as no offer has ever been seen.
    pub known_tools: Vec<String>,
    /// How many it had beside those.
    pub known_tools_left_out: usize,
}

/// What a server's owner says of it: `spec.catalog` of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// A name for people.
    pub title: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    /// Whose it is.
    pub owner: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Where there is more about it. The catalog never follows them.
    pub links: Vec<Link>,
}

/// Where clients connect, and what they have to bring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The address inside of the cluster, or on this machine.
    pub url: Option<String>,
    /// The address from outside.
    pub public_url: Option<String>,
    /// How callers prove who they are, such as `apiKeys`. Empty: they need not.
    pub auth: Vec<String>,
}
