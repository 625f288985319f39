//! Pods are touched so that their files follow at once: each of them, whatever becomes of another.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::STAGE;
use super::stand::{apply_keys, two_pods};

#[test]
fn a_pod_that_may_not_be_touched_keeps_no_other_waiting() {
    STAGE.with_namespace(async |namespace| {
        let (_operator, _node, names) = two_pods(namespace).await;

        // As somebody's policy would: the first pod stays as it is.
        let policy = format!("touched-{}", namespace.name());
        let policy_and_binding = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
                "metadata": {"name": policy},
                "spec": {
                    "matchConstraints": {"resourceRules": [{
                        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"],
                    }]},
                    "validations": [{"expression": format!("object.metadata.name != '{}'", names[0])}],
                },
            },
            {
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": policy},
                "spec": {"policyName": policy, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": namespace.name()},
                }}},
            },
        ]});
        namespace.apply(&policy_and_binding.to_string()).await;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
        let annotate = async |pod: &str| {
            namespace.kubectl(&["annotate", "--overwrite", "pod", pod, "example.com/x=y", "--dry-run=server"]).await
        };
        while annotate(&names[0]).await.is_ok() {
            assert!(tokio::time::Instant::now() < deadline, "the policy is not in force");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        annotate(&names[1]).await.unwrap();

        apply_keys(namespace, "{bob: another-key-that-is-long}").await;
        let pods: Api<Pod> = namespace.api();
        let is_touched = |pod: &Pod| pod.annotations().contains_key("longshore.dev/config");
        namespace.wait(&pods, &names[1], "to be touched", is_touched).await;
        assert!(!is_touched(&pods.get(&names[0]).await.unwrap()));
        namespace.kubectl(&["delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", &policy]).await.unwrap();
    });
}
