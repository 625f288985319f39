//! A Deployment that something else changes all the time, such as an autoscaler of before it was a server's.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use longshore_e2e::testing::Namespace;

use super::stand::{
    ADA, NEXT_SIDECAR, Operator, apply_keys, has_key, permit_only, wait_for, wait_for_events,
    wait_until_refused,
};
use super::{LEAST, STAGE, server};

/// What goes by no pace has to be there in much less than a minute.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_deployment_that_is_scaled_all_the_time_is_changed_back_once_a_minute() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let deployments: Api<Deployment> = namespace.api();
        apply_keys(namespace, ADA).await;
        let with_keys = "auth: {none: null, apiKeys: {secretRef: {name: keys}}}";
        namespace.apply(&server(&format!("{{{with_keys}}}"))).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        scale_until_it_stays(namespace, &deployments, 5).await;
        // Nobody's key waits for that.
        let began = Instant::now();
        apply_keys(namespace, "{bob: another-key-that-is-long-enough}").await;
        let secrets: Api<Secret> = namespace.api();
        namespace.wait(&secrets, "demo-longshore-keys", "to have Bob's key", |it| has_key(it, "bob")).await;
        // Nor does the owner.
        namespace.apply(&server(&format!("{{{with_keys}, source: {{args: [more]}}}}"))).await;
        namespace.wait(&deployments, "demo", "to be as its owner says", |it| replicas(it) == Some(1)).await;
        assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
        scale(namespace).await;
        namespace.wait(&deployments, "demo", "to be changed back later", |it| replicas(it) == Some(1)).await;
        let said = wait_for_events(namespace, "ChangedBack", 2).await;
        let is_slow = |it: &String| it.contains("keeps scaling Deployment demo");
        assert!(said.iter().any(is_slow), "whoever does it finds out why: {said:?}");
    });
}

/// Callers would come to the server past the sidecar, or to another program.
#[test]
fn containers_that_are_changed_all_the_time_are_changed_back_at_once() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let deployments: Api<Deployment> = namespace.api();
        namespace.apply(&LEAST).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        scale_until_it_stays(namespace, &deployments, 5).await;
        let began = Instant::now();
        for _ in 0..6 {
            let without = r#"[{"op": "remove", "path": "/spec/template/spec/containers/0"}]"#;
            namespace.kubectl(&["patch", "deployment", "demo", "--type=json", "-p", without]).await.unwrap();
            let is_whole = |it: &Deployment| containers(it) == Some(2);
            namespace.wait(&deployments, "demo", "to have its sidecar again", is_whole).await;
        }
        assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    });
}

/// As where a policy of the cluster knows nothing of the new sidecar's image.
#[test]
fn a_server_that_waits_for_its_upgrade_is_changed_back_at_the_same_pace() {
    STAGE.with_namespace(async |namespace| {
        let deployments: Api<Deployment> = namespace.api();
        let mut before = Operator::start(namespace);
        namespace.apply(&LEAST).await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        assert!(before.stop());
        let others = format!("object.spec.template.spec.containers.all(it, it.image != '{NEXT_SIDECAR}')");
        permit_only(namespace, "apps/deployments", &others).await;
        let image = format!("longshore-sidecar={NEXT_SIDECAR}");
        wait_until_refused(namespace, &["set", "image", "deployment/demo", &image, "--dry-run=server"]).await;

        let _after = Operator::of_the_next_release(namespace, "1");
        wait_for(namespace, "Accepted", "False", "Rejected").await;
        // The first of them may be a number that its owner has changed meanwhile.
        scale_until_it_stays(namespace, &deployments, 6).await;
        assert!(!wait_for_events(namespace, "ChangedBack", 1).await.is_empty(), "it is said");
        let began = Instant::now();
        namespace.kubectl(&["scale", "lmcp", "demo", "--replicas=2"]).await.unwrap();
        namespace.wait(&deployments, "demo", "to be as its owner says", |it| replicas(it) == Some(2)).await;
        assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    });
}

/// Scales it, and sees it changed back, so many times; and then once more, and sees that it is not.
async fn scale_until_it_stays(namespace: &Namespace<'_>, deployments: &Api<Deployment>, times: usize) {
    for _ in 0..times {
        scale(namespace).await;
        namespace.wait(deployments, "demo", "to be changed back", |it| replicas(it) == Some(1)).await;
    }
    scale(namespace).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(replicas(&deployments.get("demo").await.unwrap()), Some(3), "it is changed back at once");
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.as_ref()?.replicas
}

fn containers(deployment: &Deployment) -> Option<usize> {
    Some(deployment.spec.as_ref()?.template.spec.as_ref()?.containers.len())
}

async fn scale(namespace: &Namespace<'_>) {
    namespace.kubectl(&["scale", "deployment", "demo", "--replicas=3"]).await.unwrap();
}
