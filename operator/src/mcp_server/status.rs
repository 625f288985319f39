//! Last step: what people read of a server. Pure, but for the one function that writes it.
//!
//! The rules:
//! * *Accepted* speaks of the manifest alone.
//! * *Available*, *Connected* and *Isolated* speak of the pods that serve, or of the one that should. Where some of
//!   several do and others fail, a condition is true and its reason is `Degraded`. The `observedGeneration` of *Available*
//!   is that of the manifest whose pods were made last.
//! * *Published* speaks of the catalog, and nothing else depends on it.
//! * *Ready* means that clients can use the server. Its `observedGeneration` is that of the manifest which is in
//!   force, or was when they last could: while a new version is on its way, or fails, over one that works, Ready stays
//!   true for the previous generation. With several pods it is in force once all that serve are of it and run its
//!   configuration, whatever is missing that only another pod would need.
//! * *Reconciling* and *Stalled* say so to programs that know no McpServers (the conventions of kstatus). They are there
//!   only while they are true: the first while clients use an earlier manifest, the second while nothing but another
//!   manifest can help.

mod address;
mod available;
mod callable;
mod connected;
mod diagnosis;
mod generations;
mod history;
mod isolated;
mod lack;
mod pod_roles;
mod published;
mod ready;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use longshore_crds::McpServerStatus;
use longshore_crds::mcp_server::access::Access;
use longshore_crds::mcp_server::status::{ServerInfo, ToolsStatus};

use crate::inventory::Summary;
use crate::mcp_server::apply::Part;
use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{ConditionType, Problem, Reason, Truth};
use crate::view::{DeploymentView, PodView};
pub(crate) use address::Address;
use available::available;
pub(crate) use callable::{Offered, nobody};
use connected::connected;
use generations::in_force;
pub(crate) use generations::is_in_force;
use isolated::isolated;
use pod_roles::PodRoles;
pub(crate) use pod_roles::trials_end;
pub(crate) use published::Publication;
use published::published;
use ready::ready;
pub(crate) use write::{previous, wait, write};

/// A condition's message is cut here.
const LONGEST_MESSAGE: usize = 1024;

/// Everything that a status is made of.
#[derive(Clone, Debug)]
pub(crate) struct Observation<'a> {
    /// The generation of the manifest that was looked at.
    pub generation: i64,
    /// The status before.
    pub previous: Option<&'a McpServerStatus>,
    /// What is wrong with the manifest, the gravest first.
    pub problems: &'a [Problem],
    /// Whether they keep the manifest from being in force. Otherwise they cost nothing but what they name.
    pub held_back: bool,
    /// What of it the API server did not take just now, also where that may pass and is no problem yet.
    pub unapplied: Option<&'a Unapplied>,
    /// What the pod should be like. `None`: nothing could be built.
    pub desired: Option<&'a Desired>,
    /// The pods of the server's Deployment.
    pub pods: &'a [PodFacts],
    /// The Deployment.
    pub deployment: Option<&'a DeploymentView>,
    /// Where clients find it.
    pub address: Address,
    /// The label selector of its pods.
    pub selector: String,
    /// Whether the catalog lists it.
    pub publication: Publication,
    /// Who may call what, if that can be read.
    pub access: Option<&'a Access>,
    /// The principals that callers can be, where they are known.
    pub principals: Option<&'a [String]>,
    /// The time.
    pub now: Time,
}

/// What the API server did not take of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unapplied {
    /// The first object, as kind and name, unless it is a problem's.
    pub what: Option<String>,
    /// The part that it belongs to.
    pub part: Part,
}

/// A pod, and what its sidecar says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFacts {
    /// The pod.
    pub pod: Arc<PodView>,
    /// Its sidecar's words.
    pub report: Report,
}

/// What is known of a sidecar.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Report {
    /// It has said nothing yet.
    #[default]
    Pending,
    /// It does not answer, for a while now.
    Unreachable(String),
    /// It has answered this.
    Answered(Arc<Summary>),
}

/// Where nothing is heard of a sidecar, for lack of time.
const UNSAID: &str = "the sidecar has not reported the server's state yet";

/// A condition without its time.
struct Verdict {
    truth: Truth,
    reason: Reason,
    message: String,
}

/// Makes the status of what was observed.
pub(crate) fn status(observed: &Observation<'_>) -> McpServerStatus {
    let roles = PodRoles::of(observed);
    let accepted = accepted(observed.problems);
    let available = available(observed, &roles);
    let connected = connected(observed, &roles);
    let isolated = isolated(observed, &roles, &connected);
    let ready = ready(observed, &roles, [&accepted, &available, &connected]);
    let in_force = in_force(observed, &ready);
    let generation = observed.generation;
    let is_unusable = |problem: &Problem| matches!(problem.reason, Reason::Invalid | Reason::Malformed);
    let (type_, why) = if observed.held_back && observed.problems.iter().any(is_unusable) {
        (ConditionType::Stalled, Some(&accepted))
    } else {
        let is_of_before = ready.truth == Truth::True && in_force != generation;
        (ConditionType::Reconciling, is_of_before.then_some(&ready))
    };
    let of_others = why.map(|why| (type_, verdict(Truth::True, why.reason, why.message.clone()), generation));
    let conditions = [
        (ConditionType::Accepted, accepted, generation),
        (ConditionType::Available, available, observed.pods_are_of()),
        (ConditionType::Connected, connected, generation),
        (ConditionType::Isolated, isolated, generation),
        (ConditionType::Published, published(observed.publication), generation),
        (ConditionType::Ready, ready, in_force),
    ];
    let living = || observed.pods.iter().filter(|facts| pod_roles::is_living(&facts.pod));
    let summary = roles.speaker.and_then(|facts| facts.report.summary());
    // What a server said of itself stays when its pods are away for a moment.
    let previous = observed.previous.cloned().unwrap_or_default();
    let said = summary.and_then(|summary| Some((summary, summary.server.as_ref()?)));
    let (url, public_url) = match &observed.address {
        Address::Known { url, public_url } => (Some(url.clone()), public_url.clone()),
        Address::Unknown => (previous.url, previous.public_url),
        Address::Taken | Address::Missing | Address::Unmade => (None, None),
    };
    let mut status = McpServerStatus {
        observed_generation: Some(generation),
        replicas: Some(count(living())),
        ready_replicas: Some(count(living().filter(|facts| facts.pod.ready))),
        selector: Some(observed.selector.clone()),
        url,
        public_url,
        server_info: previous.server_info,
        protocol_versions: previous.protocol_versions,
        capabilities: previous.capabilities,
        tools: previous.tools,
        conditions: conditions
            .into_iter()
            .chain(of_others)
            .map(|(type_, verdict, generation)| condition(observed, type_, verdict, generation))
            .collect(),
    };
    if let Some((summary, server)) = said {
        status.server_info =
            Some(ServerInfo { name: server.info.name.clone(), version: server.info.version.clone() });
        status.protocol_versions = server.revisions().to_vec();
        status.capabilities = server.capabilities.clone();
        status.tools = Some(ToolsStatus {
            count: summary.tools.count,
            digest: summary.tools_digest.clone(),
            names: summary.tools.names.clone(),
        });
    }
    status
}

fn accepted(problems: &[Problem]) -> Verdict {
    match problems {
        [] => verdict(
            Truth::True,
            Reason::Accepted,
            "the manifest is in order and every Secret, ConfigMap and ServiceAccount that it needs exists",
        ),
        [only] => verdict(Truth::False, only.reason, only.message.clone()),
        [first, rest @ ..] => {
            let others: Vec<_> = rest.iter().map(|problem| problem.message.as_str()).collect();
            verdict(Truth::False, first.reason, format!("{}; {}", first.message, others.join("; ")))
        }
    }
}

/// Whether a pod serves while nothing is heard of its sidecar: the operator has just started, or cannot reach it. The
/// kubelet says that it serves, so what was known before still holds.
fn is_silent(facts: &PodFacts) -> bool {
    facts.pod.ready && facts.report.summary().is_none()
}

/// Why nothing is heard of a sidecar, if that is not for lack of time.
fn unheard(report: &Report) -> Option<String> {
    match report {
        Report::Unreachable(error) => Some(diagnosis::unreachable(error).message),
        Report::Pending | Report::Answered(_) => None,
    }
}

/// The condition as it was, if it was so.
fn before<'a>(observed: &Observation<'a>, type_: ConditionType, truth: Truth) -> Option<&'a Condition> {
    let conditions = &observed.previous?.conditions;
    find(conditions, type_).filter(|condition| condition.status == truth.name())
}

fn condition(
    observed: &Observation<'_>,
    type_: ConditionType,
    verdict: Verdict,
    generation: i64,
) -> Condition {
    let before = observed.previous.and_then(|status| find(&status.conditions, type_));
    let since = before.filter(|before| before.status == verdict.truth.name());
    Condition {
        type_: type_.name().to_owned(),
        status: verdict.truth.name().to_owned(),
        reason: verdict.reason.name().to_owned(),
        message: cut(verdict.message),
        observed_generation: Some(generation),
        last_transition_time: since
            .map_or_else(|| observed.now.clone(), |before| before.last_transition_time.clone()),
    }
}

/// The condition of this type, if it is there.
pub(crate) fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.name())
}

fn verdict(truth: Truth, reason: Reason, message: impl Into<String>) -> Verdict {
    Verdict { truth, reason, message: message.into() }
}

fn count<'a>(pods: impl Iterator<Item = &'a PodFacts>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
}

fn cut(mut message: String) -> String {
    if message.len() > LONGEST_MESSAGE {
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE - '…'.len_utf8()));
        message.push('…');
    }
    message
}

// === impl Observation ===

impl Observation<'_> {
    /// Whether there are to be pods, as far as is known.
    fn wants_pods(&self) -> bool {
        self.desired.is_none_or(|desired| desired.replicas > 0)
    }

    /// The pods that serve, and of which nothing is heard.
    fn silent(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.iter().filter(|facts| pod_roles::is_living(&facts.pod) && is_silent(facts))
    }

    /// Whether it is known that nobody has a key.
    fn has_no_keys(&self) -> bool {
        self.principals.is_some_and(<[_]>::is_empty)
    }
}

// === impl PodFacts ===

impl PodFacts {
    /// Whether its sidecar runs the configuration with this digest: as it says, or, where it cannot be asked, since its pod was
    /// told of it long enough ago.
    pub(crate) fn runs(&self, digest: &str, now: i64) -> bool {
        match &self.report {
            Report::Answered(summary) => summary.config.digest == digest,
            Report::Unreachable(_) => {
                let told = self.pod.told.as_ref().filter(|told| told.digest == digest);
                told.is_some_and(|told| told.left(now).is_none())
            }
            Report::Pending => false,
        }
    }
}

// === impl Report ===

impl Report {
    /// What the sidecar said, if it did.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        match self {
            Self::Answered(summary) => Some(summary),
            Self::Pending | Self::Unreachable(_) => None,
        }
    }
}
