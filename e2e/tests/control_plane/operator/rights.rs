//! Operators that lack a right: they say so where people look, in the words of the API server, and do whatever else there
//! is to do.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;

use super::node::Node;
use super::stand::{
    Operator, Request, apply_keys, audit_lines, condition, give_back, has_key, is, requests, until, wait_for,
    wait_for_events,
};
use super::{KEYED, LEAST, STAGE, server};
use longshore_crds::McpServer;

/// A key of somebody who is to lose it.
const BOB: &str = "{ada: a-key-that-is-long-enough, bob: another-key-that-is-long-enough}";
const REVOKE: &str = "[{\"op\":\"remove\",\"path\":\"/data/bob\"}]";

/// An operator that has just started knows nothing of what is named.
#[test]
fn one_object_that_cannot_be_read_is_said_and_keys_are_revoked_all_the_same() {
    STAGE.with_namespace(async |namespace| {
        let mut operator = Operator::without(namespace, "get", "configmaps");
        namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
        apply_keys(namespace, BOB).await;
        let spec = "{auth: {none: null, apiKeys: {secretRef: {name: keys}}}, \
                     source: {envFrom: [{configMapRef: {name: settings, optional: true}}]}}";
        namespace.apply(&server(spec)).await;
        let message = wait_for(namespace, "Accepted", "False", "Unreadable").await;
        let start = format!(
            "ConfigMap {}/settings, which spec.source.envFrom[0].configMapRef names, cannot be read, ",
            namespace.name()
        );
        assert!(message.starts_with(&start) && message.contains("cannot get resource"), "{message}");
        wait_for(namespace, "Ready", "False", "Unreadable").await;
        assert!(!wait_for_events(namespace, "Unreadable", 1).await.is_empty(), "an event says it too");
        let deployments: Api<Deployment> = namespace.api();
        assert!(deployments.get_opt("demo").await.unwrap().is_none(), "it may be Longshore's own");

        let secrets: Api<Secret> = namespace.api();
        let has_bob = |secret: &Secret| has_key(secret, "bob");
        namespace.wait(&secrets, "demo-longshore-keys", "to hold bob's key", has_bob).await;
        assert!(operator.stop());
        let _operator = operator.another();
        namespace.kubectl(&["patch", "secret", "keys", "--type=json", "-p", REVOKE]).await.unwrap();
        namespace.wait(&secrets, "demo-longshore-keys", "to lose bob's key", |it| !has_bob(it)).await;
        assert!(has_key(&secrets.get("demo-longshore-keys").await.unwrap(), "ada"));

        give_back(namespace);
        wait_for(namespace, "Accepted", "True", "Accepted").await;
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
    });
}

#[test]
fn keys_that_cannot_be_read_are_said_and_those_that_are_in_force_stay() {
    STAGE.with_namespace(async |namespace| {
        let mut before = Operator::start(namespace);
        let node = Node::start().await;
        apply_keys(namespace, BOB).await;
        namespace.apply(&KEYED).await;
        node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        let secrets: Api<Secret> = namespace.api();
        let made = secrets.get("demo-longshore-keys").await.unwrap().data;
        assert!(before.stop());

        // It has nothing of its own either.
        let operator = Operator::without(namespace, "get", "secrets");
        let message = wait_for(namespace, "Accepted", "False", "Unreadable").await;
        let start = format!(
            "Secret {}/demo-longshore-keys, which holds the server's session keys, ",
            namespace.name()
        );
        assert!(message.starts_with(&start) && message.contains("cannot get resource"), "{message}");
        let servers: Api<McpServer> = namespace.api();
        let is_as_before = |it: &McpServer| is(it, "Ready", "True", "ServingPrevious");
        let serving = namespace.wait(&servers, "demo", "to serve as before", is_as_before).await;
        assert!(condition(&serving, "Ready").unwrap().message.contains(&start), "{serving:?}");
        // A new server has session keys of its own, and nobody's keys.
        namespace.apply(&KEYED.replace("demo", "late")).await;
        let is_said = |it: &McpServer| is(it, "Accepted", "False", "Unreadable");
        let late = namespace.wait(&servers, "late", "to say so", is_said).await;
        let message = condition(&late, "Accepted").unwrap().message;
        let start = format!("Secret {}/keys, which spec.auth.apiKeys.secretRef names, ", namespace.name());
        assert!(message.starts_with(&start), "{message}");

        apply_keys(namespace, BOB).await;
        let looks = operator.looks("demo");
        namespace.kubectl(&["patch", "secret", "keys", "--type=json", "-p", REVOKE]).await.unwrap();
        operator.looks_again("demo", looks).await;
        assert_eq!(secrets.get("demo-longshore-keys").await.unwrap().data, made, "they are what was known");
        give_back(namespace);
        let has_bob = |secret: &Secret| has_key(secret, "bob");
        namespace.wait(&secrets, "demo-longshore-keys", "to lose bob's key", |it| !has_bob(it)).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
    });
}

/// Of two releases the older one has its rights still, and goes on until the newer one is ready.
#[test]
fn an_operator_that_may_not_list_what_it_watches_is_not_ready_and_says_so_once() {
    STAGE.with_namespace(async |namespace| {
        let from = audit_lines(namespace.cluster());
        let operator = Operator::without(namespace, "list", "poddisruptionbudgets");
        let is_refused =
            |request: &&Request| request.resource == "poddisruptionbudgets" && request.code == 403;
        let tries = || {
            let requests = requests(namespace.cluster(), namespace.name(), from);
            requests.iter().filter(is_refused).count()
        };
        until("it has tried again", || tries() > 2).await;
        let log = operator.log();
        let said: Vec<_> = log.lines().filter(|line| line.contains("lacks a right that it needs")).collect();
        assert!(said.len() == 1 && said[0].contains("poddisruptionbudgets.policy is forbidden"), "{said:?}");
        assert!(!operator.is_ready().await, "{log}");
        assert!(!log.contains("waiting to be elected"), "{log}");
        give_back(namespace);
        until("it waits to be elected", || operator.log().contains("waiting to be elected")).await;
        assert!(operator.is_ready().await);
    });
}

/// It waits for the whole of what there is, perhaps for long, and keeps nothing of what happens meanwhile.
#[test]
fn a_server_that_comes_while_a_kind_may_not_be_listed_is_made_once_it_may() {
    STAGE.with_namespace(async |namespace| {
        let operator = Operator::without_here(namespace, "list", "poddisruptionbudgets");
        let here = format!("\"namespace\":\"{}\"", namespace.name());
        let leads = || {
            let log = operator.log();
            let begins = log.lines().filter(|line| line.contains("caches filled; reconciling"));
            begins.map(|line| line.contains(&here)).collect::<Vec<_>>()
        };
        until("it reconciles elsewhere", || !leads().is_empty()).await;
        until("the list is refused", || {
            let log = operator.log();
            log.lines().any(|line| line.contains("a watch failed") && line.contains("poddisruptionbudgets"))
        })
        .await;
        namespace.apply(&LEAST).await;
        for value in 0..3 {
            let labels = "{longshore.dev/server: demo}";
            let map = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: theirs, labels: {labels}}}, data: {{a: '{value}'}}}}");
            namespace.apply(&map).await;
        }
        assert_eq!(leads(), [false], "it acts without having seen what there is");
        give_back(namespace);
        let deployments: Api<Deployment> = namespace.api();
        namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;
    });
}

/// All of the change is taken: what is left over is tried again, and nobody waits for it.
#[test]
fn what_may_not_be_deleted_keeps_no_change_from_being_in_force() {
    STAGE.with_namespace(async |namespace| {
        let operator = Operator::without(namespace, "delete", "poddisruptionbudgets");
        let node = Node::start().await;
        namespace.apply(&server("{replicas: 2}")).await;
        for pod in node.find_pods(namespace, 2).await {
            node.run(namespace, &pod).await;
        }
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        namespace.apply(&server("{replicas: 1}")).await;
        let of_deletion = || {
            let log = operator.log();
            log.lines().filter(|line| line.contains("cannot delete")).map(str::to_owned).collect::<Vec<_>>()
        };
        until("the deletion is refused", || of_deletion().len() > 1).await;
        // As long as a failure would wait for the next, whatever that is.
        assert!(of_deletion().iter().all(|line| !line.contains("will try again")), "{:?}", of_deletion());
        node.load_configuration(namespace).await;
        let servers: Api<McpServer> = namespace.api();
        let is_in_force = |it: &McpServer| {
            condition(it, "Ready").is_some_and(|it| it.reason == "Ready" && it.observed_generation == Some(2))
        };
        let said = namespace.wait(&servers, "demo", "to be in force", is_in_force).await;
        assert!(condition(&said, "Reconciling").is_none(), "{said:?}");
        give_back(namespace);
        let budgets: Api<PodDisruptionBudget> = namespace.api();
        namespace.wait_gone(&budgets, "demo-longshore").await;
    });
}

#[test]
fn what_may_not_be_deleted_keeps_nothing_else_that_is_left_over() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::without(namespace, "delete", "poddisruptionbudgets");
        let (accounts, budgets): (Api<ServiceAccount>, Api<PodDisruptionBudget>) =
            (namespace.api(), namespace.api());
        namespace.apply(&server("{replicas: 2}")).await;
        namespace.wait(&accounts, "demo-longshore", "to be made", |_| true).await;
        namespace.wait(&budgets, "demo-longshore", "to be made", |_| true).await;
        namespace.apply(&server("{replicas: 0, pod: {serviceAccountName: default}}")).await;
        namespace.wait_gone(&accounts, "demo-longshore").await;
        give_back(namespace);
        namespace.wait_gone(&budgets, "demo-longshore").await;
    });
}

/// The one right that no request of the operator shows: the API server asks for it inside of others, to see whether
/// somebody may keep a server from going until its objects have gone.
#[test]
fn objects_that_keep_their_server_until_they_are_gone_take_a_right_to_its_finalizers() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::without(namespace, "update", "mcpservers/finalizers");
        namespace.apply(&LEAST).await;
        let message = wait_for(namespace, "Accepted", "False", "Rejected").await;
        assert!(message.contains("blockOwnerDeletion"), "{message}");
        give_back(namespace);
        wait_for(namespace, "Accepted", "True", "Accepted").await;
    });
}
