//! What the operator remembers of a pod and its containers.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerStatus;
use longshore_crds::names::{SERVER_CONTAINER, SIDECAR_CONTAINER};

use super::objects::{BriefPod, BriefVolume};
use super::{View, annotation, controller, cut, cut_front};
use crate::names::{CONFIG_ANNOTATION, TEMPLATE_ANNOTATION, UPSTREAM_ANNOTATION};

/// So many ConfigMaps of a pod are known. Longshore's volumes come before the manifest's own.
const MOST_CONFIG_MAPS: usize = 64;

/// So many seconds it takes at most until a sidecar runs what it was told to load: the kubelet looks after its files every
/// minute or so, if nothing wakes it.
const TAKES: i64 = 120;

/// On a pod that Istio's ambient mode has taken in: its agent on the node writes it.
const AMBIENT_ANNOTATION: &str = "ambient.istio.io/redirection";

/// A pod, as far as it tells how its server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodView {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its address, once it has one.
    pub ip: Option<String>,
    /// The UID of its ReplicaSet.
    pub controller: Option<String>,
    /// The digest of the template that it was made from.
    pub template: Option<String>,
    /// How its sidecar reaches its server.
    pub upstream: Option<String>,
    /// What its sidecar was last told to load, if it ever was.
    pub told: Option<Told>,
    /// Seconds since the epoch when it was made.
    pub created: i64,
    /// Whether it is on its way out.
    pub ending: bool,
    /// Seconds since the epoch by when it should have gone, if it is.
    pub gone_by: Option<i64>,
    /// Whether it ended without being asked (evicted, for example), and the words for it.
    pub failed: Option<String>,
    /// Whether it is in the Service.
    pub ready: bool,
    /// Seconds since the epoch when that last changed.
    pub ready_changed: Option<i64>,
    /// What keeps it out of the Service although its containers are ready.
    pub kept_out: Option<KeptOut>,
    /// Why no node takes it.
    pub unschedulable: Option<String>,
    /// Its first container.
    pub sidecar: ContainerView,
    /// Its second container.
    pub server: ContainerView,
    /// What else runs in it: containers of the manifest's own, and those that something in the cluster injects.
    pub others: Vec<OtherContainer>,
    /// Whether a mesh listens in it without a container of its own, from the node.
    pub ambient: bool,
    /// The names of the ConfigMaps that it mounts.
    pub config_maps: Vec<String>,
    /// The name of its ServiceAccount.
    pub service_account: Option<String>,
}

/// The configuration that a sidecar was told to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// Its digest.
    pub digest: String,
    /// Seconds since the epoch when it was told of it first, or for the last time of those at which it was heard to run
    /// another one.
    pub since: i64,
}

/// What keeps a pod out whose containers are ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeptOut {
    /// A readiness gate, with the kubelet's sentence.
    Gate(String),
    /// Its node is not heard of, and what is known of its containers is from before.
    Node,
}

/// A container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerView {
    /// What it does now.
    pub state: ContainerState,
    /// How it ended the last time, if it did and that is known.
    pub ended: Option<Ended>,
    /// Whether it has ended and begun again.
    pub restarted: bool,
    /// Seconds since the epoch when it began, if it runs.
    pub began: Option<i64>,
    /// Whether it is ready, by its own probe if it has one.
    pub ready: bool,
    /// What the hook printed without which it does not start, if that failed.
    pub hook: Option<String>,
    /// The image that it runs.
    pub image: String,
}

/// A container that is not Longshore's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherContainer {
    /// Its name.
    pub name: String,
    /// Whether the containers wait for it.
    pub init: bool,
    /// How it is.
    pub container: ContainerView,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ContainerState {
    /// Nothing is known of it yet.
    #[default]
    Unknown,
    /// It does not run, for this reason (the kubelet's word and sentence).
    Waiting {
        /// The kubelet's word.
        reason: String,
        /// The kubelet's sentence.
        message: String,
    },
    /// It runs.
    Running,
    /// It ended, see [`ContainerView::ended`].
    Terminated,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Its exit code.
    pub code: i32,
    /// The kubelet's word.
    pub reason: String,
    /// Its last lines, where the exit code is not 0.
    pub message: String,
    /// Seconds since the epoch when it did, by the clock of its node.
    pub at: Option<i64>,
}

impl View for PodView {
    type Object = BriefPod;

    fn of(pod: &BriefPod) -> Self {
        let metadata = &pod.metadata;
        let annotation = |name: &str| annotation(metadata.annotations.as_ref(), name);
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        let statuses = status.container_statuses.unwrap_or_default();
        let container = |name: &str| {
            statuses.iter().find(|status| status.name == name).map(ContainerView::of).unwrap_or_default()
        };
        let inits = status.init_container_statuses.unwrap_or_default();
        let regular =
            statuses.iter().filter(|status| ![SIDECAR_CONTAINER, SERVER_CONTAINER].contains(&&*status.name));
        let others = inits.iter().map(|status| (true, status)).chain(regular.map(|status| (false, status)));
        let ended = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            ip: status.pod_ip.filter(|ip| !ip.is_empty()),
            controller: controller(metadata),
            template: annotation(TEMPLATE_ANNOTATION),
            upstream: annotation(UPSTREAM_ANNOTATION),
            told: annotation(CONFIG_ANNOTATION).and_then(|text| {
                let mut parts = text.split('.');
                let digest = format!("sha256:{}", parts.next()?);
                Some(Told { digest, since: parts.next()?.parse().ok()? })
            }),
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
            ending: metadata.deletion_timestamp.is_some(),
            gone_by: metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()),
            failed: ended.then(|| {
                let reason = status.reason.unwrap_or_else(|| "it ended".to_owned());
                cut(&status.message.map_or(reason.clone(), |message| format!("{reason}: {message}")))
            }),
            ready: condition("Ready").is_some_and(|condition| condition.status == "True"),
            ready_changed: condition("Ready")
                .and_then(|condition| Some(condition.last_transition_time.as_ref()?.0.as_second())),
            kept_out: condition("Ready")
                .filter(|ready| ready.status != "True")
                .filter(|_| condition("ContainersReady").is_some_and(|ready| ready.status == "True"))
                .map(|ready| match ready.reason.as_deref() {
                    Some("ReadinessGatesNotReady") => {
                        KeptOut::Gate(cut(ready.message.as_deref().unwrap_or_default()))
                    }
                    // Whoever marks the pods of a node that is gone changes nothing but this.
                    _ => KeptOut::Node,
                }),
            unschedulable: condition("PodScheduled")
                .filter(|condition| condition.status == "False")
                .map(|condition| cut(condition.message.as_deref().unwrap_or_default())),
            sidecar: container(SIDECAR_CONTAINER),
            server: container(SERVER_CONTAINER),
            others: others
                .map(|(init, status)| OtherContainer {
                    name: status.name.clone(),
                    init,
                    container: ContainerView::of(status),
                })
                .collect(),
            ambient: annotation(AMBIENT_ANNOTATION).as_deref() == Some("enabled"),
            config_maps: pod
                .spec
                .volumes
                .iter()
                .flatten()
                .flat_map(config_maps)
                .take(MOST_CONFIG_MAPS)
                .collect(),
            service_account: pod.spec.service_account_name.clone(),
        }
    }

    /// The kubelet forgets how a container ended when it clears that one away before the next one has ended, which it
    /// often does while it starts it; and what a hook said when it waits before the next try.
    fn after(mut self, before: &Self) -> Self {
        if self.uid == before.uid {
            self.sidecar.recall(&before.sidecar, self.ready);
            self.server.recall(&before.server, self.ready);
            for other in &mut self.others {
                if let Some(before) = before.others.iter().find(|before| before.name == other.name) {
                    other.container.recall(&before.container, self.ready);
                }
            }
        }
        self
    }
}

// === impl PodView ===

impl PodView {
    /// Where its sidecar can be asked. Whoever asks shows a token, and while the sidecar does not run, the server or an
    /// init container could listen at its port: it is asked when it is known to run, which the kubelet says late.
    pub(crate) fn askable_at(&self) -> Option<IpAddr> {
        let runs = self.sidecar.state == ContainerState::Running;
        if self.ending || self.failed.is_some() || !runs {
            return None;
        }
        self.ip.as_deref()?.parse().ok()
    }
}

// === impl Told ===

impl Told {
    /// For how much longer it may run another one all the same.
    pub(crate) fn left(&self, now: i64) -> Option<Duration> {
        let left = self.since.saturating_add(TAKES).saturating_sub(now).min(TAKES);
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs)
    }
}

/// Pods of earlier releases have a volume of nothing but a ConfigMap.
fn config_maps(volume: &BriefVolume) -> impl Iterator<Item = String> {
    let alone = volume.config_map.iter().map(|source| source.name.clone());
    let projected = volume.projected.iter().flat_map(|volume| volume.sources.iter().flatten());
    alone.chain(projected.filter_map(|source| Some(source.config_map.as_ref()?.name.clone())))
}

// === impl ContainerView ===

impl ContainerView {
    fn of(status: &ContainerStatus) -> Self {
        let state = status.state.clone().unwrap_or_default();
        let last = status.last_state.clone().unwrap_or_default();
        let ended = state.terminated.clone().or(last.terminated).map(|ended| Ended {
            code: ended.exit_code,
            reason: ended.reason.unwrap_or_default(),
            message: cut_front(&ended.message.unwrap_or_default()),
            at: ended.finished_at.map(|time| time.0.as_second()),
        });
        let began = state.running.as_ref().and_then(|running| running.started_at.as_ref());
        let began = began.map(|time| time.0.as_second());
        let state = if state.running.is_some() {
            ContainerState::Running
        } else if state.terminated.is_some() {
            ContainerState::Terminated
        } else if let Some(waiting) = state.waiting {
            ContainerState::Waiting {
                reason: waiting.reason.unwrap_or_default(),
                message: cut(&waiting.message.unwrap_or_default()),
            }
        } else {
            ContainerState::Unknown
        };
        let hook = match &state {
            ContainerState::Waiting { reason, message } if reason == "PostStartHookError" => {
                Some(printed(message))
            }
            _ => None,
        };
        Self {
            state,
            ended,
            restarted: status.restart_count > 0,
            began,
            ready: status.ready,
            hook,
            image: status.image.clone(),
        }
    }

    /// Keeps what the kubelet has forgotten of it.
    fn recall(&mut self, before: &Self, serves: bool) {
        self.ended = self.ended.take().or_else(|| before.ended.clone());
        // A pod that serves is past it.
        self.hook = self.hook.take().or_else(|| before.hook.clone()).filter(|_| !serves);
    }
}

/// What a hook's program printed: the kubelet tells around it which hook of which pod it was, and quotes it as Go does.
fn printed(message: &str) -> String {
    let quoted = message.rsplit_once(", message: ").map(|(_, quoted)| quoted);
    let words = quoted.and_then(|quoted| serde_json::from_str::<String>(quoted).ok());
    let words = words.as_deref().map(str::trim).filter(|words| !words.is_empty());
    words.unwrap_or(message).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_is_asked_while_its_sidecar_runs_and_no_one_in_its_place() {
        let asked = |state: Value, status: Value| {
            let sidecar = json!({"name": "longshore-sidecar", "state": state, "image": "x", "imageID": "x", "ready": false, "restartCount": 0});
            let server = json!({"name": "server", "state": {"running": {}}, "image": "x", "imageID": "x", "ready": true, "restartCount": 0});
            let mut pod = json!({"metadata": {}, "status": {"podIP": "10.0.0.1", "containerStatuses": [server, sidecar]}});
            pod["status"].as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
            PodView::of(&serde_json::from_value(pod).unwrap()).askable_at().is_some()
        };
        let running = json!({"running": {}});
        for (state, expected) in [
            (running.clone(), true),
            (json!({"waiting": {"reason": "PodInitializing"}}), false),
            (json!({"waiting": {"reason": "CrashLoopBackOff"}}), false),
            (json!({"terminated": {"exitCode": 137}}), false),
            (json!({}), false),
        ] {
            assert_eq!(asked(state.clone(), json!({})), expected, "{state}");
        }
        assert!(!asked(running.clone(), json!({"containerStatuses": []})), "nothing is known of it");
        for gone in [json!({"podIP": null}), json!({"podIP": ""}), json!({"phase": "Failed"})] {
            assert!(!asked(running.clone(), gone.clone()), "{gone}");
        }
        let sidecar = ContainerView { state: ContainerState::Running, ..ContainerView::default() };
        let pod = PodView { ip: Some("10.0.0.1".to_owned()), sidecar, ..PodView::default() };
        assert!(pod.askable_at().is_some());
        assert_eq!(PodView { ending: true, ..pod }.askable_at(), None);
    }

    #[test]
    fn what_a_pod_was_told_and_since_when_is_read_from_it() {
        let told = |text: &str| {
            let pod = json!({"metadata": {"annotations": {CONFIG_ANNOTATION: text}}});
            PodView::of(&serde_json::from_value(pod).unwrap()).told
        };
        let expected = Told { digest: "sha256:ab".to_owned(), since: 10 };
        // As an earlier release wrote it, too.
        for text in ["ab.10.700.2", "ab.10.2"] {
            assert_eq!(told(text).as_ref(), Some(&expected), "{text}");
        }
        assert_eq!(["", "ab", "ab.soon"].map(told), [None, None, None]);
        let left = [10, 129, 130, 1000].map(|now| expected.left(now).map(|left| left.as_secs()));
        assert_eq!(left, [Some(120), Some(1), None, None]);
    }

    #[test]
    fn of_what_others_make_like_longshores_only_so_much_is_kept() {
        let pod = |text: &str, volumes: usize| {
            let volumes: Vec<_> =
                (0..volumes).map(|n| json!({"name": "v", "configMap": {"name": format!("c-{n}")}})).collect();
            let pod = json!({
                "metadata": {"annotations": {TEMPLATE_ANNOTATION: text, UPSTREAM_ANNOTATION: text}},
                "spec": {"containers": [{"env": "read by nobody"}], "volumes": volumes},
            });
            PodView::of(&serde_json::from_value(pod).unwrap())
        };
        let fine = pod(&"a".repeat(super::super::LONGEST_ANNOTATION), 3);
        assert!(fine.template.is_some() && fine.upstream.is_some());
        assert_eq!(fine.config_maps, ["c-0", "c-1", "c-2"]);
        let large = pod(&"a".repeat(super::super::LONGEST_ANNOTATION + 1), 1000);
        assert_eq!((large.template, large.upstream), (None, None));
        assert_eq!(large.config_maps.len(), MOST_CONFIG_MAPS);
    }

    #[test]
    fn when_a_container_began_and_ended_before_is_known() {
        let state = json!({"running": {"startedAt": "1970-01-01T00:00:20Z"}});
        let last = json!({"terminated": {"exitCode": 1, "finishedAt": "1970-01-01T00:00:10Z"}});
        let status = json!({"name": "server", "state": state, "lastState": last, "image": "x", "imageID": "x", "ready": true, "restartCount": 1});
        let pod = json!({"metadata": {}, "status": {"containerStatuses": [status]}});
        let server = PodView::of(&serde_json::from_value(pod).unwrap()).server;
        assert_eq!((server.began, server.ended.and_then(|ended| ended.at)), (Some(20), Some(10)));
    }

    #[test]
    fn what_a_hook_said_is_known_until_the_pod_serves() {
        let said = "Exec lifecycle hook ([/longshore-sidecar await]) for Container \"longshore-sidecar\" in Pod \
                    \"demo-1_tools(7b1c)\" failed - error: command '/longshore-sidecar await' exited with 1: no, \
                    message: \"the sidecar is not ready after 60 seconds: \\\"no shim\\\"\\n\"";
        let sidecar = |ready: bool, reason: &str, message: &str| {
            let state = json!({"waiting": {"reason": reason, "message": message}});
            let status = json!({"name": "longshore-sidecar", "state": state, "image": "x", "imageID": "x", "ready": false, "restartCount": 0});
            let conditions = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
            let pod =
                json!({"metadata": {}, "status": {"conditions": conditions, "containerStatuses": [status]}});
            PodView::of(&serde_json::from_value(pod).unwrap())
        };
        let hook = |pod: &PodView| pod.sidecar.hook.clone();
        let failed = sidecar(false, "PostStartHookError", said);
        let words = "the sidecar is not ready after 60 seconds: \"no shim\"";
        assert_eq!(hook(&failed).as_deref(), Some(words));
        let waits = sidecar(false, "CrashLoopBackOff", "back-off 10s");
        assert_eq!(hook(&waits), None);
        assert_eq!(hook(&waits.clone().after(&failed)).as_deref(), Some(words));
        assert_eq!(hook(&sidecar(true, "", "").after(&failed)), None, "it serves");
        assert_eq!(hook(&PodView { uid: "other".to_owned(), ..waits }.after(&failed)), None, "another pod");
        assert_eq!(hook(&sidecar(false, "PostStartHookError", "no more")).as_deref(), Some("no more"));
    }

    #[test]
    fn a_pod_has_an_account_whoever_named_it() {
        let account = |spec: Value| {
            PodView::of(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
                .service_account
        };
        let named = json!({"containers": [], "serviceAccountName": "demo-longshore"});
        assert_eq!(account(named).as_deref(), Some("demo-longshore"));
        assert_eq!(account(json!({"containers": []})), None);
    }

    #[test]
    fn what_else_runs_in_a_pod_is_known_by_name() {
        let status = |name: &str, state: Value| json!({"name": name, "state": state, "image": "x", "imageID": "x", "ready": false, "restartCount": 0});
        let regular =
            ["longshore-sidecar", "server", "proxy"].map(|name| status(name, json!({"running": {}})));
        let pod = json!({"metadata": {}, "status": {
            "initContainerStatuses": [status("migrate", json!({"terminated": {"exitCode": 1}}))],
            "containerStatuses": regular,
        }});
        let others = PodView::of(&serde_json::from_value(pod).unwrap()).others;
        let others: Vec<_> =
            others.iter().map(|it| (it.name.as_str(), it.init, &it.container.state)).collect();
        assert_eq!(
            others,
            [("migrate", true, &ContainerState::Terminated), ("proxy", false, &ContainerState::Running)]
        );
    }

    #[test]
    fn a_pod_says_whether_a_mesh_listens_in_it_from_its_node() {
        for (annotations, expected) in [
            (json!({"ambient.istio.io/redirection": "enabled"}), true),
            (json!({"ambient.istio.io/redirection": "disabled"}), false),
            (json!({}), false),
        ] {
            let pod = json!({"metadata": {"annotations": annotations}});
            assert_eq!(PodView::of(&serde_json::from_value(pod).unwrap()).ambient, expected);
        }
    }

    #[test]
    fn a_pod_mounts_config_maps_alone_and_projected() {
        let mounted = |volumes: Value| {
            let pod = serde_json::from_value(json!({"metadata": {}, "spec": {"volumes": volumes}})).unwrap();
            PodView::of(&pod).config_maps
        };
        let projected = json!([
            {"name": "a", "projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "k"}}]}},
            {"name": "b", "emptyDir": {}},
            {"name": "c", "configMap": {"name": "y"}},
        ]);
        assert_eq!(mounted(projected), ["x", "y"]);
        assert!(mounted(json!([{"name": "k", "secret": {"secretName": "x"}}])).is_empty());
    }
}
