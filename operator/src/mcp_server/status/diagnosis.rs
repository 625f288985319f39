//! What keeps a pod from serving, from its containers' states and its sidecar's words. Pure.
//!
//! A container that fails is restarted again and again, and its state runs through the same circle each time: running,
//! ended, waiting. All of the circle is one diagnosis here, with one message, so that a status does not flap.

mod ends;

use longshore_crds::names::SERVER_CONTAINER;
use longshore_sidecar_client::ANSWERED;
use longshore_sidecar_config::inventory::{Connection, ConnectionReason, ConnectionState};
use longshore_sidecar_config::ports::ADMIN;

use super::{Observation, PodFacts, Report, find};
use crate::mcp_server::condition::{ConditionType, Reason};
use crate::view::{ContainerState, ContainerView, KeptOut, OtherContainer, PodView};
use ends::{ended, exit, image_message, sidecar_exit, start};

/// What is known of a pod that does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diagnosis {
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) severity: Severity,
}

/// Whether time alone may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// It is on its way.
    Normal,
    /// Somebody has to look.
    Failure,
}

/// What a server's end can be called.
const ENDS: [Reason; 5] = [
    Reason::ServerExited,
    Reason::OutOfMemory,
    Reason::CommandNotFound,
    Reason::CommandNotExecutable,
    Reason::ContainerRefused,
];
/// The kubelet's word for a container that was killed for its memory.
const OUT_OF_MEMORY: &str = "OOMKilled";
/// Before a diagnosis with its reason, in the words on a pod beside others that serve. By this and the next one another
/// operator reads it there ([`recalled`]): what stands behind them is to be a diagnosis alone, and they are to stay as they are.
pub(super) const FAILS: &str = "fails: ";
/// Before one in the words on several pods of which none serves.
pub(super) const NONE_SERVES: &str = "pods serves: ";

/// Says why a pod of the version that is wanted does not serve.
pub(super) fn of_newest(observed: &Observation<'_>, facts: &PodFacts) -> Diagnosis {
    recalled(observed, facts).unwrap_or_else(|| of_pod(facts))
}

/// How the server of a pod ended that does not serve, where the kubelet has cleared that away before this operator began to
/// look: as the previous operator, which may be of an earlier release, has put it into the status of the same manifest.
pub(super) fn recalled(observed: &Observation<'_>, facts: &PodFacts) -> Option<Diagnosis> {
    let server = &facts.pod.server;
    let is_ready = facts.pod.ready || facts.pod.kept_out.is_some();
    let is_forgotten = server.restarted && server.ended.is_none() && !is_ready && !is_past_its_end(facts);
    if !is_forgotten || of_containers(facts).or_else(|| of_others(&facts.pod)).is_some() {
        return None;
    }
    let said = find(&observed.previous?.conditions, ConditionType::Available)?;
    if said.observed_generation != Some(observed.generation) {
        return None;
    }
    let (reason, message) = match said.message.split_once(FAILS) {
        Some((_, named)) if said.status == "True" => named.split_once(": ")?,
        _ => (said.reason.as_str(), said.message.as_str()),
    };
    let reason = ENDS.into_iter().find(|end| end.name() == reason)?;
    // Of several pods it is said that none serves.
    let message = message.split_once(NONE_SERVES).map_or(message, |(_, message)| message);
    Some(failure(reason, message))
}

/// Says why a pod does not serve.
pub(super) fn of_pod(facts: &PodFacts) -> Diagnosis {
    if let Some(diagnosis) = of_containers(facts).or_else(|| of_others(&facts.pod)) {
        return diagnosis;
    }
    let pod = &facts.pod;
    let of_report = || of_report(facts).filter(|_| is_under_way(pod));
    of_report().or_else(|| of_gate(pod)).unwrap_or_else(|| starting(pod))
}

/// What else the pod has to wait for before it is in the Service.
fn of_gate(pod: &PodView) -> Option<Diagnosis> {
    let Some(KeptOut::Gate(words)) = &pod.kept_out else { return None };
    Some(normal(
        Reason::ReadinessGate,
        format!(
            "the pod could serve, and a readiness gate that something in the cluster added keeps it out: {words}"
        ),
    ))
}

/// Whether both containers run. Until then, while an image is pulled for example, nobody can expect the sidecar to
/// answer or the server to listen.
pub(super) fn is_under_way(pod: &PodView) -> bool {
    let is_running = |container: &ContainerView| container.state == ContainerState::Running;
    is_running(&pod.sidecar) && is_running(&pod.server)
}

/// What the kubelet and the scheduler say of the pod, the sidecar and the server, if it is a failure.
pub(super) fn of_containers(facts: &PodFacts) -> Option<Diagnosis> {
    let pod = &facts.pod;
    if let Some(words) = &pod.failed {
        return Some(failure(Reason::PodFailed, format!("the pod ended and is replaced: {words}")));
    }
    if pod.kept_out == Some(KeptOut::Node) {
        return Some(failure(
            Reason::NodeNotReady,
            "the pod's node is not ready, so the pod is kept out of the Service, and replaced if that lasts: `kubectl get \
             nodes` says which it is",
        ));
    }
    if let Some(words) = &pod.unschedulable {
        return Some(failure(Reason::Unschedulable, format!("no node can take the pod: {words}")));
    }
    let sidecar = of_sidecar(pod, facts.report.summary().is_some());
    // One that the kubelet finds ready has got over how it ended.
    let is_past = is_past_its_end(facts) || pod.kept_out.is_some();
    sidecar.or_else(|| if is_past { None } else { of_server(pod) })
}

/// What the kubelet says of the pod's other containers, if it is a failure.
pub(super) fn of_others(pod: &PodView) -> Option<Diagnosis> {
    pod.others.iter().find_map(|other| of_other(&pod.name, other))
}

/// Whether the server runs, and how it ended before, perhaps long ago, is not what keeps its pod from serving: it has answered
/// the sidecar, with something that cannot be used; or it is the sidecar that has begun anew since, and has found nothing
/// wrong.
fn is_past_its_end(facts: &PodFacts) -> bool {
    let PodView { sidecar, server, .. } = &*facts.pod;
    let Some(connection) = facts.report.summary().map(|summary| &summary.connection) else { return false };
    let is_refused = matches!(
        connection.reason,
        Some(
            ConnectionReason::InitializeRefused
                | ConnectionReason::NotMcp
                | ConnectionReason::UnsupportedRevision
        )
    );
    let is_well = connection.is_steady() || connection.state == ConnectionState::Connecting;
    let ended_at = server.ended.as_ref().and_then(|ended| ended.at);
    // By the clock of one node.
    let is_before = sidecar.began.zip(ended_at).is_some_and(|(began, ended_at)| ended_at < began);
    server.state == ContainerState::Running && (is_refused || is_well && is_before)
}

fn of_sidecar(pod: &PodView, has_spoken: bool) -> Option<Diagnosis> {
    let container = &pod.sidecar;
    let about = |what: String| failure(Reason::SidecarFailed, what);
    let failed = || match &container.hook {
        // The kubelet ends one that it waited for in vain, so how it ended says nothing.
        Some(words) => Some(about(format!("the sidecar does not start: {words}"))),
        None => {
            let ended = container.ended.as_ref();
            ended.map(|ended| about(format!("the sidecar {}", sidecar_exit(&pod.name, ended))))
        }
    };
    match &container.state {
        ContainerState::Waiting { reason, message } => match waiting(reason, message, &container.image) {
            Some(diagnosis) => Some(about(format!("the sidecar does not run: {}", diagnosis.message))),
            None if is_back_off(reason) => failed(),
            None => None,
        },
        ContainerState::Terminated => failed(),
        // One that runs speaks for itself, once it has; and one that the kubelet finds ready has got over how it ended.
        ContainerState::Running => failed().filter(|_| !has_spoken && !container.ready),
        ContainerState::Unknown => None,
    }
}

fn of_server(pod: &PodView) -> Option<Diagnosis> {
    let container = &pod.server;
    if let ContainerState::Waiting { reason, message } = &container.state
        && let Some(diagnosis) = waiting(reason, message, &container.image)
    {
        return Some(diagnosis);
    }
    // The kubelet ends one whose hook has failed. One that ends in another way since then has got past it.
    let is_told = container.ended.as_ref().is_none_or(|end| matches!(end.code, 0 | 137 | 143));
    let hook = container.hook.as_ref().filter(|_| is_told).map(|words| {
        failure(
            Reason::ServerExited,
            format!("the server was ended, since its postStart hook of spec.pod.overrides fails: {words}"),
        )
    });
    hook.or_else(|| container.ended.as_ref().map(|end| ended(&pod.name, end)))
}

/// A container of the manifest's `pod.overrides`, or one that something in the cluster injects.
fn of_other(pod: &str, other: &OtherContainer) -> Option<Diagnosis> {
    let OtherContainer { name, init, container } = other;
    let kind = if *init { "init container" } else { "container" };
    let about = |reason: Reason, what: String| failure(reason, format!("the {kind} {name}: {what}"));
    let failed = container.ended.as_ref().filter(|ended| !init || ended.code != 0);
    let failed = failed.map(|ended| {
        let how = match ended.reason.as_str() {
            OUT_OF_MEMORY => {
                "was killed because memory ran out: raise its limit; if it has none, the node had no more, and a \
                 request lets the pod come to one that has"
                    .to_owned()
            }
            _ => exit(pod, name, ended),
        };
        about(Reason::ContainerFailed, format!("it {how}"))
    });
    match &container.state {
        ContainerState::Waiting { reason, message } => match waiting(reason, message, &container.image) {
            Some(diagnosis) => Some(about(diagnosis.reason, diagnosis.message)),
            None => failed.filter(|_| is_back_off(reason)),
        },
        ContainerState::Terminated => failed,
        // One that ended and runs once more goes through its circle, until it is ready.
        ContainerState::Running => failed.filter(|_| !container.ready),
        ContainerState::Unknown => None,
    }
}

fn is_back_off(reason: &str) -> bool {
    matches!(reason, "CrashLoopBackOff" | "RunContainerError" | "PostStartHookError")
}

/// What the kubelet says of a container that it cannot start. `None` where it is merely not that far yet, or where how
/// it ended says more.
fn waiting(reason: &str, message: &str, image: &str) -> Option<Diagnosis> {
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => {
            Some(failure(Reason::ImagePullFailed, image_message(message, image)))
        }
        "RunContainerError" | "CreateContainerError" => Some(start(message)),
        "CreateContainerConfigError" => Some(failure(
            Reason::ContainerRefused,
            format!("the kubelet cannot make the container: {message}"),
        )),
        _ => None,
    }
}

/// What the sidecar says, if it has no connection.
fn of_report(facts: &PodFacts) -> Option<Diagnosis> {
    match &facts.report {
        Report::Pending => None,
        Report::Unreachable(error) => Some(unreachable(error)),
        Report::Answered(summary) => of_connection(&facts.pod, &summary.connection),
    }
}

/// What the sidecar says of its connection, if there is none.
pub(super) fn of_connection(pod: &PodView, connection: &Connection) -> Option<Diagnosis> {
    let reason = Reason::of_connection(connection.reason);
    let see_log = format!("`kubectl logs {} -c {SERVER_CONTAINER}` may say why", pod.name);
    let advice = match connection.reason {
        Some(ConnectionReason::ConnectionRefused) => {
            "let the server listen there, or correct the port in spec.transport"
        }
        Some(ConnectionReason::NotMcp) => "correct spec.transport, or run a program that speaks MCP there",
        Some(ConnectionReason::UnsupportedRevision) => {
            "if spec.transport.protocol says which one it is to speak, correct that or leave it out; otherwise run a \
             version of the server that speaks another one"
        }
        Some(ConnectionReason::CommandNotFound) => {
            "correct spec.source.command to a program that the image has"
        }
        Some(ConnectionReason::CommandNotExecutable) => {
            "correct spec.source.command, or let the server's user execute the file"
        }
        Some(ConnectionReason::ProcessExited) => "correct spec.source.args or what the server needs",
        None
        | Some(
            ConnectionReason::ConnectionLost
            | ConnectionReason::InitializeTimeout
            | ConnectionReason::InitializeRefused
            | ConnectionReason::ListFailed
            | ConnectionReason::ShimUnavailable,
        ) => &see_log,
    };
    match connection.state {
        // One that was lost soon after its handshake is not believed the moment that it is back.
        ConnectionState::Connected if connection.is_steady() => None,
        ConnectionState::Connected | ConnectionState::Failed => {
            Some(failure(reason, format!("{}; {advice}", connection.message)))
        }
        ConnectionState::Connecting => {
            Some(normal(Reason::Connecting, "the sidecar waits for the server's first answer"))
        }
    }
}

pub(super) fn unreachable(error: &str) -> Diagnosis {
    let between = format!(
        "let Longshore's namespace reach port {ADMIN} of the pod: a NetworkPolicy or a mesh may be in between"
    );
    let advice = match error.strip_prefix(ANSWERED).and_then(|status| status.split(' ').next()) {
        // It was reached, unless a mesh answers in its place.
        Some("503") => {
            "it may have no configuration that it can use, as its log says then; or a mesh is in between"
        }
        Some("401") => {
            "the clock of the pod's node may be wrong, or the sidecar has yet to load the keys of the cluster's tokens; \
             or a mesh is in between"
        }
        Some("403") => {
            "a mesh may refuse it, or the sidecar has yet to load the name of Longshore's ServiceAccount"
        }
        _ => &between,
    };
    failure(
        Reason::SidecarUnreachable,
        format!(
            "the operator cannot read the sidecar's admin port, so it cannot say how the server is: {error}; {advice}"
        ),
    )
}

/// Of what the kubelet does first, the pod does not say what it waits for.
pub(super) fn starting(pod: &PodView) -> Diagnosis {
    if pod.ending {
        // It speaks as long as no other is there, and it is not the one to wait for.
        return normal(Reason::Starting, "the pod is being made");
    }
    let name = &pod.name;
    normal(
        Reason::Starting,
        format!("the pod starts; where that lasts, `kubectl describe pod {name}` says what it waits for"),
    )
}

pub(super) fn normal(reason: Reason, message: impl Into<String>) -> Diagnosis {
    Diagnosis { reason, message: message.into(), severity: Severity::Normal }
}

pub(super) fn failure(reason: Reason, message: impl Into<String>) -> Diagnosis {
    Diagnosis { reason, message: message.into(), severity: Severity::Failure }
}
