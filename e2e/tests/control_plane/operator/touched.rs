//! Pods are touched so that their files follow at once: each of them, whatever becomes of another.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};

use super::node::Node;
use super::stand::{ADA, Operator, apply_keys, permit_only, two_pods, until, wait_for, wait_until_refused};
use super::{KEYED, STAGE};

#[test]
fn a_pod_that_may_not_be_touched_keeps_no_other_waiting() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, _node, names) = two_pods(namespace).await;

        // As somebody's policy would: the first pod stays as it is.
        let others = format!("object.metadata.name != '{}'", names[0]);
        let [kinds, policy] = permit_only(namespace, "pods", &others).await;
        let annotate = |pod| ["annotate", "--overwrite", "pod", pod, "example.com/x=y", "--dry-run=server"];
        wait_until_refused(namespace, &annotate(&names[0])).await;
        namespace.kubectl(&annotate(&names[1])).await.unwrap();

        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let pods: Api<Pod> = namespace.api();
        let is_touched = |pod: &Pod| pod.annotations().contains_key("longshore.dev/config");
        namespace.wait(&pods, &names[1], "to be touched", is_touched).await;
        assert!(!is_touched(&pods.get(&names[0]).await.unwrap()));
        namespace.kubectl(&["delete", &kinds, &policy]).await.unwrap();
    });
}

/// A mesh or a policy may be between the operator and the sidecar's port, and clients are served all the same.
#[test]
fn a_pod_whose_sidecar_cannot_be_asked_is_touched_for_each_configuration() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        apply_keys(namespace, ADA).await;
        namespace.apply(&KEYED).await;
        // It has loaded no configuration, so it has nothing to say.
        let name = Node::start().await.run_pod(namespace, "").await;
        wait_for(namespace, "Connected", "Unknown", "SidecarUnreachable").await;
        let pods: Api<Pod> = namespace.api();
        let value = |pod: &Pod| pod.annotations().get("longshore.dev/config").cloned().unwrap_or_default();
        let digest = |value: &str| value.split('.').next().unwrap_or_default().to_owned();
        let is_second = |pod: &Pod| value(pod).ends_with(".2");
        let first = value(&namespace.wait(&pods, &name, "to be touched twice", is_second).await);
        // And no more: the third time would be soon.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(value(&pods.get(&name).await.unwrap()), first);

        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let is_anew = |pod: &Pod| digest(&value(pod)) != digest(&first) && is_second(pod);
        namespace.wait(&pods, &name, "to be touched for the new keys", is_anew).await;
    });
}

/// As where the CRD is older than the operator.
#[test]
fn a_pod_is_touched_once_more_as_soon_as_ever_where_something_else_has_failed_for_long() {
    STAGE.with_namespace(async |namespace| {
        let operator = Operator::without(namespace, "patch", "mcpservers/status");
        apply_keys(namespace, ADA).await;
        namespace.apply(&KEYED).await;
        // It has loaded no configuration, so it has nothing to say.
        let name = Node::start().await.run_pod(namespace, "").await;
        let pods: Api<Pod> = namespace.api();
        let value = |pod: &Pod| pod.annotations().get("longshore.dev/config").cloned().unwrap_or_default();
        let digest = |value: &str| value.split('.').next().unwrap_or_default().to_owned();
        let is_second = |pod: &Pod| value(pod).ends_with(".2");
        let first = value(&namespace.wait(&pods, &name, "to be touched twice", is_second).await);
        // The next time would be after ten seconds at least.
        until("it has tried in vain for long", || {
            operator.log().lines().filter(|line| line.contains("cannot write the status")).count() >= 8
        })
        .await;

        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let is_anew = |pod: &Pod| digest(&value(pod)) != digest(&first);
        namespace.wait(&pods, &name, "to be touched for the new keys", is_anew).await;
        let touched = Instant::now();
        namespace.wait(&pods, &name, "to be touched again", |pod| is_anew(pod) && is_second(pod)).await;
        assert!(touched.elapsed() < Duration::from_secs(5), "after {:?}", touched.elapsed());
    });
}
