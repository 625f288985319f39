//! For whom a session is opened, and how it begins.

use std::sync::Arc;

use longshore_sidecar_config::{Config, Isolation, Processes};

/// For whom a session is opened.
#[derive(Clone, Debug)]
pub(crate) enum Opener {
    /// The sidecar itself.
    Own,
    /// A client.
    Client {
        /// Who it is.
        principal: Arc<str>,
        /// How many processes it and all others may have, where sessions have processes.
        limits: Option<Processes>,
        /// What its session can do with.
        begins: Begins,
    },
}

/// How a session of a client begins, which decides to whose process it may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// For the first time: it is told whatever revision is spoken there.
    Anew,
    /// The same where it is no client's: it is for requests that stand alone, and whoever comes after this sidecar does not
    /// know of it.
    Alone,
    /// Once more: its client was told a revision, and it ends where another one is spoken. Elsewhere there may be a process
    /// for it if there is none here.
    AgainOrElsewhere,
    /// Once more, and nowhere else: where all processes speak another revision it ends, rather than waiting for ever.
    AgainHere,
}

impl Opener {
    /// A client, with what it may have by now.
    pub(crate) fn client(principal: &Arc<str>, config: &Config) -> Self {
        Self::Client { principal: principal.clone(), limits: config.limits.processes, begins: Begins::Anew }
    }

    /// The same for a session that goes on with another handshake.
    pub(crate) fn again(self, may_go_on: bool) -> Self {
        self.beginning(if may_go_on { Begins::AgainOrElsewhere } else { Begins::AgainHere })
    }

    /// The same for one that requests share which stand alone.
    pub(super) fn alone(self) -> Self {
        self.beginning(Begins::Alone)
    }

    fn beginning(self, begins: Begins) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::Client { principal, limits, .. } => Self::Client { principal, limits, begins },
        }
    }

    /// Which client it is.
    pub(super) fn principal(&self) -> Option<&Arc<str>> {
        match self {
            Self::Own => None,
            Self::Client { principal, .. } => Some(principal),
        }
    }

    /// Who shares a process, where there are processes.
    pub(super) fn isolation(&self) -> Option<Isolation> {
        match self {
            Self::Own => None,
            Self::Client { limits, .. } => limits.map(|limits| limits.isolation),
        }
    }

    /// Whether its session shares a process with others, where there are processes. Such a process was told that nobody
    /// can be asked.
    pub(super) fn shares_process(&self) -> bool {
        self.isolation().is_some_and(|isolation| isolation != Isolation::Session)
    }
}
