//! The vocabulary of the status: condition types, their reasons, and problems found with a manifest.
//!
//! Reasons are part of the interface: people and programs match on them, so every one is in this list.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use longshore_sidecar_config::inventory::ConnectionReason;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionType {
    /// Longshore can do what the manifest says.
    Accepted,
    /// A pod serves.
    Available,
    /// The sidecar and the MCP server understand each other.
    Connected,
    /// The MCP server cannot be reached around its sidecar.
    Isolated,
    /// The catalog lists the server.
    Published,
    /// Clients can use the server.
    Ready,
    /// The newest manifest is not in force yet.
    Reconciling,
    /// The newest manifest never will be in force.
    Stalled,
}

impl ConditionType {
    /// As it stands in the status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Available => "Available",
            Self::Connected => "Connected",
            Self::Isolated => "Isolated",
            Self::Published => "Published",
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say yet.
    Unknown,
}

impl Truth {
    /// As it stands in the status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// The status and the reason of a condition, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    /// The status.
    pub status: &'static str,
    /// The reason.
    pub reason: &'static str,
}

impl Standing {
    /// The standing of a condition. `None`: this release knows no such reason.
    pub fn of(condition: &Condition) -> Option<Self> {
        let named = |truth: &Truth| truth.name() == condition.status;
        let status = [Truth::True, Truth::False, Truth::Unknown].iter().find(|it| named(it))?.name();
        let reason = Reason::of(&condition.reason)?.name();
        Some(Self { status, reason })
    }
}

macro_rules! reasons {
    ($(#[doc = $meaning:literal] $reason:ident,)*) => {
        /// Why a condition is as it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $meaning] $reason,)* }

        impl Reason {
            /// Every reason. A test holds docs/troubleshooting.md to them.
            pub const ALL: &'static [Self] = &[$(Self::$reason,)*];

            /// As it stands in the status.
            pub fn name(self) -> &'static str {
                match self { $(Self::$reason => stringify!($reason),)* }
            }

            /// The one that stands there by this name. `None`: this release knows no such reason.
            pub fn of(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.name() == name)
            }

            /// What it means, in a sentence that is the same for every server.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$reason => $meaning.trim_ascii(),)* }
            }
        }
    };
}

// The line above each is what [`Reason::meaning`] gives to people.
reasons! {
    /// The manifest is fine and everything that it asks for exists.
    Accepted,
    /// A field's value cannot be used.
    Invalid,
    /// The object cannot even be read as an `McpServer`.
    Malformed,
    /// A Secret that the manifest names does not exist.
    SecretNotFound,
    /// A Secret that the manifest names has no such key.
    SecretKeyNotFound,
    /// A ConfigMap that the manifest names does not exist.
    ConfigMapNotFound,
    /// A ConfigMap that the manifest names has no such key.
    ConfigMapKeyNotFound,
    /// A ServiceAccount that the manifest names does not exist.
    ServiceAccountNotFound,
    /// The manifest names a Secret of Longshore's own.
    SecretReserved,
    /// The manifest names a ConfigMap of Longshore's own.
    ConfigMapReserved,
    /// The API server does not let Longshore read what the manifest names, or the server's session keys.
    Unreadable,
    /// The Secret with the API keys has none, entries that are no keys, or too many.
    InvalidKeys,
    /// An object of a name that the server needs belongs to somebody else.
    NameTaken,
    /// The API server refused an object made from the manifest.
    Rejected,
    /// A pod of the newest version serves.
    Serving,
    /// Some of several pods serve, and others fail; or the operator cannot reach a sidecar that it heard before.
    Degraded,
    /// The manifest asks for no pod.
    ScaledToZero,
    /// A pod of the previous version serves while the newest starts.
    RollingOut,
    /// A pod of the previous version serves, since the newest fails.
    RolloutFailing,
    /// The pod is on its way.
    Starting,
    /// No pod may be made, or none has been yet.
    NoPod,
    /// No node can take the pod.
    Unschedulable,
    /// The pod's node is not heard of.
    NodeNotReady,
    /// A readiness gate keeps the pod out of the Service.
    ReadinessGate,
    /// The API server refuses to let the pod be made.
    PodRejected,
    /// The pod ended and is replaced.
    PodFailed,
    /// The image cannot be pulled.
    ImagePullFailed,
    /// The kubelet cannot make the container from its description.
    ContainerRefused,
    /// The image has no such program.
    CommandNotFound,
    /// The program is there and may not be executed.
    CommandNotExecutable,
    /// The server's process ends.
    ServerExited,
    /// The server's process was killed for its memory.
    OutOfMemory,
    /// A container beside the server and the sidecar does not run.
    ContainerFailed,
    /// The sidecar itself does not run.
    SidecarFailed,
    /// The server answers.
    Connected,
    /// The first handshake is still to come.
    Connecting,
    /// Nothing listens at the server's port.
    ConnectionRefused,
    /// The server did not answer `initialize` in time.
    InitializeTimeout,
    /// The server answered `initialize` with an error.
    InitializeRefused,
    /// What answers is not MCP.
    NotMcp,
    /// The server speaks only revisions that the sidecar does not.
    UnsupportedRevision,
    /// The server cannot list what it offers.
    ListFailed,
    /// The server answered before and no longer does.
    ConnectionLost,
    /// The sidecar's admin port does not answer the operator.
    SidecarUnreachable,
    /// The server listens on loopback addresses alone.
    LoopbackOnly,
    /// The server listens on addresses that other pods can reach.
    ListensBeyondLoopback,
    /// The catalog lists the server.
    Published,
    /// The manifest says that it is not to be listed.
    NotPublished,
    /// No catalog is installed that could list it.
    NoCatalog,
    /// Clients can use the server.
    Ready,
    /// Clients can use the server, and the last change is not in force, or not all of it.
    ServingPrevious,
    /// The sidecar has yet to load the newest configuration.
    ConfigurationPending,
    /// The sidecar refused the newest configuration.
    ConfigurationRefused,
}

// === impl Reason ===

impl Reason {
    /// Of a server that its sidecar has no connection to, by the sidecar's word.
    pub fn of_connection(said: Option<ConnectionReason>) -> Self {
        match said {
            None | Some(ConnectionReason::ConnectionLost) => Self::ConnectionLost,
            Some(ConnectionReason::ConnectionRefused) => Self::ConnectionRefused,
            Some(ConnectionReason::InitializeTimeout) => Self::InitializeTimeout,
            Some(ConnectionReason::InitializeRefused) => Self::InitializeRefused,
            Some(ConnectionReason::NotMcp) => Self::NotMcp,
            Some(ConnectionReason::UnsupportedRevision) => Self::UnsupportedRevision,
            Some(ConnectionReason::ListFailed) => Self::ListFailed,
            Some(ConnectionReason::CommandNotFound) => Self::CommandNotFound,
            Some(ConnectionReason::CommandNotExecutable) => Self::CommandNotExecutable,
            // What listens for a stdio server's sessions ends with the server's container.
            Some(ConnectionReason::ShimUnavailable | ConnectionReason::ProcessExited) => Self::ServerExited,
        }
    }
}

/// What is wrong with a manifest or with what it names, for the `Accepted` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The class.
    pub reason: Reason,
    /// What is wrong, where, and what to do.
    pub message: String,
}

impl Problem {
    /// A problem of this class.
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// A value that cannot be used, in this field.
    pub(crate) fn invalid(field: &str, message: impl std::fmt::Display) -> Self {
        Self::new(Reason::Invalid, format!("{field}: {message}"))
    }
}

/// The time in whole seconds, as conditions have it.
pub(crate) fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
