//! Why objects are not taken, and which of them.

use thiserror::Error;

use crate::api::{self, ApiError};
use crate::mcp_server::condition::Problem;

/// Why an object could not be applied.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// The name is taken, or the API server refuses the object: the manifest or the cluster has to change.
    #[error("{}", .0.message)]
    Problem(Problem),
    /// The namespace is on its way out, and everything in it.
    #[error("the namespace is being deleted")]
    NamespaceEnds,
    /// The API server answers, but not to this.
    #[error("the API server does not take {what}: {}", api::unanswered())]
    Unanswered {
        /// Kind and name.
        what: String,
    },
    /// The API server could not be asked.
    #[error("cannot apply {what}: {source}")]
    Api {
        /// Kind and name.
        what: String,
        /// What happened.
        source: ApiError,
    },
}

/// What of a manifest was not taken first, and why.
#[derive(Debug)]
pub(crate) struct NotTaken {
    /// The part of what is made of the manifest that it belongs to.
    pub part: Part,
    /// Why it was not taken.
    pub error: Error,
}

/// A part of what is made of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The configuration, or the keys that belong to it, whatever else was not taken.
    Configuration,
    /// Another object that pods need, or their number.
    Other,
    /// The Deployment. All others were taken before.
    Deployment,
}

// === impl Error ===

impl Error {
    /// Kind and name of what was not taken, where its words are no problem's.
    pub(crate) fn what(&self) -> Option<&str> {
        match self {
            Self::Unanswered { what } | Self::Api { what, .. } => Some(what),
            Self::Problem(_) | Self::NamespaceEnds => None,
        }
    }
}
