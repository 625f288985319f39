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
//!   true for the generation before. With several pods it is in force once all that serve are of it and run its
//!   configuration, whatever is missing that only another pod would need.
//! * *Reconciling* and *Stalled* say so to programs that know no McpServers (the conventions of kstatus). They are there
//!   only while they are true: the first while clients use an earlier manifest, the second while nothing but another
//!   manifest can help.

mod available;
mod callable;
mod cast;
mod connected;
mod diagnosis;
mod history;
mod lack;
mod ready;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use longshore_crds::McpServerStatus;
use longshore_crds::mcp_server::access::Access;
use longshore_crds::mcp_server::status::{ServerInfo, ToolsStatus};
use longshore_sidecar_config::inventory::ExposedSocket;

use crate::inventory::Summary;
use crate::mcp_server::apply::Part;
use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{ConditionType, Problem, Reason, Truth};
use crate::view::{DeploymentView, PodView};
use available::available;
pub(crate) use callable::{Offered, nobody};
use cast::Cast;
pub(crate) use cast::trials_end;
use connected::connected;
use ready::{in_force, ready};
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
    /// Of which part it is.
    pub part: Part,
}

/// Where clients find a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// There, since there is a Service.
    Known {
        /// The address inside of the cluster.
        url: String,
        /// That outside of it. A manifest that names no host has none.
        public_url: Option<String>,
    },
    /// Where they did, if they did: there is a Service, and the manifest cannot be used now.
    Unknown,
    /// Nowhere: the Service of its name is somebody else's.
    Taken,
    /// Nowhere: it has pods, and no Service.
    Missing,
    /// Nowhere: it has neither, and may be new.
    Unmade,
}

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
    /// Nothing yet.
    #[default]
    Pending,
    /// It does not answer, for a while now.
    Unreachable(String),
    /// This.
    Answered(Arc<Summary>),
}

/// Where nothing is heard of a sidecar, for lack of time.
const UNSAID: &str = "the sidecar has not said yet how the server is";

/// A condition without its time.
struct Verdict {
    truth: Truth,
    reason: Reason,
    message: String,
}

/// Makes the status of what was observed.
pub(crate) fn status(observed: &Observation<'_>) -> McpServerStatus {
    let cast = Cast::of(observed);
    let accepted = accepted(observed.problems);
    let available = available(observed, &cast);
    let connected = connected(observed, &cast);
    let isolated = isolated(observed, &cast, &connected);
    let ready = ready(observed, &cast, [&accepted, &available, &connected]);
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
    let living = || observed.pods.iter().filter(|facts| cast::is_living(&facts.pod));
    let summary = cast.face.and_then(|facts| facts.report.summary());
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
fn is_silent(face: &PodFacts) -> bool {
    face.pod.ready && face.report.summary().is_none()
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

/// Containers that a mesh injects, and the user that each runs as by default. They listen for the pod, and pass on to its
/// address, where a server on loopback is not.
const MESHES: [(&str, u32); 2] = [("istio-proxy", 1337), ("linkerd-proxy", 2102)];

/// What a mesh listens at in a pod that has no container of it: its node's proxy does, in the pod's network namespace, for
/// the pod's own connections and for those of others.
const PORTS_OF_AMBIENT: [u16; 3] = [15001, 15006, 15008];

/// Where a pod can be reached around its sidecar, if that one has looked.
fn around(facts: &PodFacts) -> Option<Vec<&ExposedSocket>> {
    let is_of_mesh = |socket: &&ExposedSocket| {
        let is_its = |(name, user)| {
            socket.uid == Some(user) && facts.pod.others.iter().any(|other| other.name == name)
        };
        MESHES.into_iter().any(is_its) || facts.pod.ambient && PORTS_OF_AMBIENT.contains(&socket.port)
    };
    let exposed = &facts.report.summary()?.exposed;
    Some(exposed.iter().filter(|socket| !is_of_mesh(socket)).collect())
}

fn isolated(observed: &Observation<'_>, cast: &Cast<'_>, connected: &Verdict) -> Verdict {
    let looked = cast.serves.iter().copied().chain(cast.face).filter_map(around);
    // Of several pods, one that is exposed.
    let Some(sockets) = looked.max_by_key(Vec::len) else {
        let silent = cast.face.is_some_and(is_silent);
        if let Some(condition) = before(observed, ConditionType::Isolated, Truth::False).filter(|_| silent) {
            return verdict(Truth::False, Reason::ListensBeyondLoopback, condition.message.clone());
        }
        if let Some(condition) = before(observed, ConditionType::Isolated, Truth::True).filter(|_| silent) {
            return verdict(Truth::True, Reason::LoopbackOnly, condition.message.clone());
        }
        if connected.reason == Reason::SidecarUnreachable {
            return verdict(Truth::Unknown, connected.reason, connected.message.clone());
        }
        return verdict(Truth::Unknown, Reason::NoPod, "there is no sidecar yet that could look");
    };
    if sockets.is_empty() {
        return verdict(
            Truth::True,
            Reason::LoopbackOnly,
            "nothing but the sidecar listens on the pod's address",
        );
    }
    let sockets: Vec<_> =
        sockets.iter().map(|socket| format!("{} port {}", socket.address, socket.port)).collect();
    verdict(
        Truth::False,
        Reason::ListensBeyondLoopback,
        format!(
            "the server listens on {}: where network policies are not enforced, it can be reached there around the \
             sidecar; make it listen on 127.0.0.1",
            sockets.join(", ")
        ),
    )
}

fn published(publication: Publication) -> Verdict {
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

/// Whether clients use what the manifest says now, and no pod of the version before is left to be replaced. Of pods that
/// serve and say nothing *Ready* alone would not tell: it is as it was.
pub(crate) fn is_in_force(status: &McpServerStatus) -> bool {
    let is_ready = find(&status.conditions, ConditionType::Ready)
        .is_some_and(|ready| ready.status == Truth::True.name() && ready.reason == Reason::Ready.name());
    let is_replacing = find(&status.conditions, ConditionType::Available).is_some_and(|available| {
        [Reason::RollingOut, Reason::RolloutFailing].iter().any(|it| it.name() == available.reason)
    });
    is_ready && !is_replacing
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

    /// Whether pods are there of another version than is wanted, be it that they do not serve now.
    fn has_pods_of_before(&self) -> bool {
        let wanted = self.desired.map(|desired| &desired.template);
        let mut living = self.pods.iter().filter(|facts| cast::is_living(&facts.pod));
        living.any(|facts| facts.pod.template.as_ref() != wanted)
    }

    /// The pods that serve, and of which nothing is heard.
    fn silent(&self) -> impl Iterator<Item = &PodFacts> {
        self.pods.iter().filter(|facts| cast::is_living(&facts.pod) && is_silent(facts))
    }

    /// Whether it is known that nobody has a key.
    fn has_no_keys(&self) -> bool {
        self.principals.is_some_and(<[_]>::is_empty)
    }

    /// Whether nothing keeps any of the manifest from being in force: it was in force before something went wrong, or nobody
    /// knows of another that was. A pod of before may be away for a moment alone, in which one that fails serves; and one of
    /// which nothing is heard, though others are, may go by rules and keys of before.
    fn can_be_in_force(&self) -> bool {
        let is_new = self.is_whole()
            && !self.has_pods_of_before()
            && self.silent().all(|facts| self.has_come_to_run(facts));
        is_new || self.was_in_force().is_none_or(|was| was == self.generation)
    }

    /// Whether a pod's sidecar runs the configuration that is wanted of it.
    fn has_come_to_run(&self, facts: &PodFacts) -> bool {
        let wanted = self.desired.and_then(|desired| desired.config_of(&facts.pod));
        wanted.is_some_and(|wanted| facts.runs(wanted, self.now.0.as_second()))
    }

    /// The generation of the manifest whose pods are there, or on their way. Where others are wanted they are still of the one
    /// before: who takes over tells by it what their owner wants from what a new release does.
    fn pods_are_of(&self) -> i64 {
        let wanted = self.desired.map(|desired| &desired.template);
        if self.deployment.is_none_or(|it| wanted.is_some() && it.template.as_ref() == wanted) {
            return self.generation;
        }
        self.before(ConditionType::Available).unwrap_or(self.generation)
    }

    /// The generation of the manifest that clients could last use in full, as far as is remembered.
    fn was_in_force(&self) -> Option<i64> {
        self.before(ConditionType::Ready)
    }

    /// The generation that a condition spoke of.
    fn before(&self, type_: ConditionType) -> Option<i64> {
        let before = find(&self.previous?.conditions, type_)?;
        before.observed_generation.map(|before| before.min(self.generation))
    }

    /// Whether all of the manifest can be used, and the API server has taken what is made of it.
    fn is_whole(&self) -> bool {
        self.desired.is_some() && self.unapplied.is_none() && !self.is_partly_refused()
    }

    /// Whether something of the manifest cannot be used, or an object that is made of it cannot be had. What it names and is
    /// not there, pods that run do without, and without a line that is no key so does everybody else.
    fn is_partly_refused(&self) -> bool {
        let is_missing = |problem: &Problem| {
            matches!(
                problem.reason,
                Reason::SecretNotFound
                    | Reason::SecretKeyNotFound
                    | Reason::ConfigMapNotFound
                    | Reason::ConfigMapKeyNotFound
                    | Reason::ServiceAccountNotFound
                    | Reason::Unreadable
                    | Reason::InvalidKeys
            )
        };
        self.held_back && !self.problems.iter().all(is_missing)
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
