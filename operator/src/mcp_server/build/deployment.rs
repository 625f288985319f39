//! The Deployment around the pod.

use std::collections::BTreeSet;

use k8s_openapi::DeepMerge as _;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use longshore_crds::mcp_server::StrategyType;

use super::{labelled, own_pods, pod, security, to_json};
use crate::digest;
use crate::mcp_server::validate::ValidatedServer;
use crate::names::TEMPLATE_ANNOTATION;
use crate::settings::Settings;

/// How long a new pod has to serve before an old one goes for it. Many programs find out only after their handshake that
/// they cannot work, such as one whose database refuses them, and would have taken the place of one that did. It takes up
/// to five seconds until such an end is seen: a connection that is lost, and three probes. Whoever waits for a new server
/// need not wait for this: its own `Ready` is that of its pod.
pub(crate) const MIN_READY_SECONDS: u8 = 10;

/// The Deployment, and the digest of its pods' template.
pub(super) fn build(server: &ValidatedServer, settings: &Settings) -> (Deployment, String) {
    let mut template = pod::build(server, settings);
    if let Some(overrides) = server.pod.overrides.clone() {
        make_way(&mut template, &overrides);
        template.merge_from(overrides);
    }
    // Only now are all lists and containers known.
    pod::list(&mut template);
    if let Some(pod) = &mut template.spec {
        security::harden(pod);
        // A constraint without one would be for no pods at all.
        for constraint in pod.topology_spread_constraints.iter_mut().flatten() {
            constraint.label_selector.get_or_insert_with(|| own_pods(server));
        }
        // The sidecar's image is for Linux alone.
        let nodes = pod.node_selector.get_or_insert_default();
        nodes.entry("kubernetes.io/os".to_owned()).or_insert_with(|| "linux".to_owned());
    }
    let digest = mark(&mut template);
    let deployment = Deployment {
        metadata: labelled(server, server.names.deployment()),
        spec: Some(DeploymentSpec {
            replicas: Some(i32::try_from(server.replicas).unwrap_or(i32::MAX)),
            selector: own_pods(server),
            // An old pod goes when a new one serves: a version that fails takes nothing away. (A part of one is one.)
            min_ready_seconds: Some(i32::from(MIN_READY_SECONDS)),
            strategy: Some(strategy(server.strategy)),
            // No new version would ever come up of one that somebody paused, and nothing would say so.
            paused: Some(false),
            revision_history_limit: Some(2),
            template,
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    };
    (deployment, digest)
}

/// Takes out where variables come from of which an override says it: merged, one could have a value and a source of one,
/// or two sources, which the API server refuses.
fn make_way(template: &mut PodTemplateSpec, overrides: &PodTemplateSpec) {
    let said = overrides.spec.iter().flat_map(|spec| &spec.containers);
    for container in template.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let said = said.clone().filter(|it| it.name == container.name).flat_map(|it| it.env.iter().flatten());
        let said: BTreeSet<&str> = said
            .filter(|it| it.value.is_some() || it.value_from.is_some())
            .map(|it| it.name.as_str())
            .collect();
        for variable in container.env.iter_mut().flatten().filter(|it| said.contains(it.name.as_str())) {
            (variable.value, variable.value_from) = (None, None);
        }
    }
}

fn strategy(type_: StrategyType) -> DeploymentStrategy {
    let (name, rolling_update) = match type_ {
        StrategyType::RollingUpdate => (
            "RollingUpdate",
            Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::String("25%".to_owned())),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        ),
        StrategyType::Recreate => ("Recreate", None),
    };
    DeploymentStrategy { type_: Some(name.to_owned()), rolling_update }
}

/// Writes the template's digest into its annotations: pods of this version are known by it.
fn mark(template: &mut PodTemplateSpec) -> String {
    // Half of a SHA-256 is plenty to tell versions of one server apart, and people can read it.
    let digest = digest::hex(to_json(template).as_bytes())[..32].to_owned();
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    annotations.insert(TEMPLATE_ANNOTATION.to_owned(), digest.clone());
    digest
}
