//! The condition *Published*. Pure.

use longshore_crds::McpServer;

use super::{Verdict, verdict};
use crate::mcp_server::condition::{Reason, Truth};
use crate::settings::Settings;

/// Whether a catalog lists a server. It says nothing about who may call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publication {
    /// The manifest says so, and there is a catalog.
    Published,
    /// The manifest says that it is not to.
    Withheld,
    /// The manifest cannot be read.
    Unreadable,
    /// There is no catalog.
    NoCatalog,
}

pub(super) fn published(publication: Publication) -> Verdict {
    match publication {
        Publication::Published => verdict(Truth::True, Reason::Published, "the catalog lists the server"),
        Publication::Withheld => verdict(
            Truth::False,
            Reason::NotPublished,
            "the catalog does not list the server, since the manifest says `catalog: {publish: false}`",
        ),
        Publication::Unreadable => verdict(
            Truth::Unknown,
            Reason::Malformed,
            "the catalog cannot read the manifest either: it lists what it knew of the server before, if anything",
        ),
        Publication::NoCatalog => verdict(
            Truth::False,
            Reason::NoCatalog,
            "no catalog is installed: the chart's value catalog.enabled is false",
        ),
    }
}

// === impl Publication ===

impl Publication {
    /// Of a server, unless its manifest cannot be read.
    pub(crate) fn of(server: Option<&McpServer>, settings: &Settings) -> Self {
        match server {
            _ if !settings.catalog => Self::NoCatalog,
            Some(server) if server.spec.catalog.publish => Self::Published,
            Some(_) => Self::Withheld,
            None => Self::Unreadable,
        }
    }
}
