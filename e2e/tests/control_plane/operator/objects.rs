//! The objects of a server: made, mended, replaced and removed.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use serde_json::{Value, json};

use super::stand::{Operator, condition, is, ready, wait_for, wait_for_events};
use super::{LEAST, STAGE, server};

#[test]
fn objects_come_with_their_server_are_mended_and_go_with_it() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&LEAST).await;
        let deployments: Api<Deployment> = namespace.api();
        let deployment = namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        let services: Api<Service> = namespace.api();
        let service = namespace.wait(&services, "demo", "to be made", |_| true).await;
        let (secrets, accounts): (Api<Secret>, Api<ServiceAccount>) = (namespace.api(), namespace.api());
        let policies: Api<NetworkPolicy> = namespace.api();
        let config_maps: Api<ConfigMap> = namespace.api();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let config_map = config_maps.list(&ours).await.unwrap().items.pop().unwrap();
        namespace.wait(&secrets, "demo-longshore-keys", "to be made", |_| true).await;
        namespace.wait(&accounts, "demo-longshore", "to be made", |_| true).await;
        namespace.wait(&policies, "demo-longshore", "to be made", |_| true).await;
        let owner = &service.owner_references()[0];
        assert_eq!(
            (owner.kind.as_str(), owner.name.as_str(), owner.controller),
            ("McpServer", "demo", Some(true))
        );

        // Somebody changes or deletes what is Longshore's.
        services.delete("demo", &DeleteParams::default()).await.unwrap();
        namespace.wait(&services, "demo", "to be made again", |again| again.uid() != service.uid()).await;
        let patch = Patch::Merge(json!({"data": {"config.json": "{}"}}));
        config_maps.patch(&config_map.name_any(), &PatchParams::default(), &patch).await.unwrap();
        namespace
            .wait(&config_maps, &config_map.name_any(), "to be mended", |now| now.data == config_map.data)
            .await;
        let said = wait_for_events(namespace, "ChangedBack", 1).await;
        assert!(said.iter().any(|it| it.contains("ConfigMap")), "whoever did it finds out why: {said:?}");
        let patch = Patch::Merge(json!({"spec": {"template": {"spec": {"containers": []}}, "replicas": 3}}));
        let refused = deployments.patch("demo", &PatchParams::default(), &patch).await;
        assert!(refused.is_err(), "a pod without containers is no pod");
        let patch = Patch::Merge(
            json!({"spec": {"replicas": 3}, "metadata": {"labels": {"longshore.dev/server": "x"}}}),
        );
        deployments.patch("demo", &PatchParams::default(), &patch).await.unwrap();
        namespace
            .wait(&deployments, "demo", "to be mended", |now| {
                now.labels()["longshore.dev/server"] == "demo"
                    && now.spec.as_ref().is_some_and(|spec| spec.replicas == Some(1))
            })
            .await;
        let template = |deployment: &Deployment| deployment.spec.as_ref().unwrap().template.clone();
        let mended = deployments.get("demo").await.unwrap();
        assert_eq!(template(&mended), template(&deployment), "no pod is replaced for a change beside it");

        // No later version would ever come up.
        namespace.kubectl(&["rollout", "pause", "deployment/demo"]).await.unwrap();
        namespace
            .wait(&deployments, "demo", "to go on", |now| {
                now.spec.as_ref().is_some_and(|spec| spec.paused != Some(true))
            })
            .await;

        namespace.kubectl(&["delete", "mcpserver", "demo"]).await.unwrap();
        namespace.wait_gone(&deployments, "demo").await;
        namespace.wait_gone(&services, "demo").await;
        namespace.wait_gone(&secrets, "demo-longshore-keys").await;
        namespace.wait_gone(&accounts, "demo-longshore").await;
        namespace.wait_gone(&policies, "demo-longshore").await;
        namespace.wait_gone(&config_maps, &config_map.name_any()).await;
    });
}

/// Through the schema, the API server's defaults and its own rules, there and back.
#[test]
fn how_versions_follow_each_other_and_what_the_service_is_marked_with_can_change() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let (deployments, services): (Api<Deployment>, Api<Service>) = (namespace.api(), namespace.api());
        let marked =
            "expose: {service: {labels: {team: tools}, annotations: {example.com/scheme: internal}}}";
        for (spec, strategy, mark) in [
            ("{}".to_owned(), "RollingUpdate", None),
            (format!("{{strategy: {{type: Recreate}}, {marked}}}"), "Recreate", Some("internal")),
            ("{strategy: {type: RollingUpdate}}".to_owned(), "RollingUpdate", None),
        ] {
            namespace.apply(&server(&spec)).await;
            let type_ = |it: &Deployment| it.spec.clone()?.strategy?.type_;
            let what = format!("to have the strategy {strategy}");
            let deployment = namespace
                .wait(&deployments, "demo", &what, |it| type_(it).as_deref() == Some(strategy))
                .await;
            let rolling = deployment.spec.and_then(|spec| spec.strategy?.rolling_update);
            assert_eq!(rolling.is_some(), strategy == "RollingUpdate", "{rolling:?}");
            let scheme = |it: &Service| it.annotations().get("example.com/scheme").cloned();
            let what = format!("to be marked {mark:?}");
            let service = namespace.wait(&services, "demo", &what, |it| scheme(it).as_deref() == mark).await;
            assert_eq!(service.labels().contains_key("team"), mark.is_some());
            assert_eq!(service.labels()["longshore.dev/server"], "demo");
        }
    });
}

/// To the last word, through the schema and the API server's own reading of it.
#[test]
fn all_that_a_manifest_says_of_its_pod_is_in_the_deployment() {
    let nodes = json!({"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 7, "preference": {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]},
    }]});
    let tolerations = json!([
        {"key": "tools", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "slow", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
    ]);
    let volumes = [
        json!({"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}}),
        json!({"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}),
    ];
    let mounts = [
        json!({"name": "scratch", "mountPath": "/tmp"}),
        json!({"name": "disk", "mountPath": "/data", "subPath": "demo", "readOnly": true}),
    ];
    let fat = json!({
        "pod": {
            "metadata": {"labels": {"team": "tools"}, "annotations": {"example.com/note": "a word"}},
            // A whole number without quotes, as people write it.
            "resources": {"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": 3, "memory": "2Gi"}},
            "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": tolerations,
            "affinity": {"nodeAffinity": nodes},
            "volumes": volumes,
            "volumeMounts": mounts,
        },
        "sidecar": {"workers": 2, "resources": {"requests": {"cpu": 1}, "limits": {"memory": "256Mi"}}},
    });
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        for secret in ["registry", "mirror"] {
            namespace.apply(&format!("{{apiVersion: v1, kind: Secret, metadata: {{name: {secret}}}}}")).await;
        }
        namespace.apply(&server(&fat.to_string())).await;
        let deployments: Api<Deployment> = namespace.api();
        let deployment = namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        let template = serde_json::to_value(deployment.spec.unwrap().template).unwrap();
        for (pointer, expected) in [
            ("/metadata/labels/team", json!("tools")),
            ("/metadata/labels/longshore.dev~1server", json!("demo")),
            ("/metadata/annotations/example.com~1note", json!("a word")),
            ("/spec/imagePullSecrets", fat["pod"]["imagePullSecrets"].clone()),
            ("/spec/nodeSelector", json!({"disk": "ssd", "kubernetes.io/os": "linux"})),
            ("/spec/tolerations", tolerations.clone()),
            ("/spec/affinity/nodeAffinity", fat["pod"]["affinity"]["nodeAffinity"].clone()),
            (
                "/spec/containers/0/resources",
                json!({"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"memory": "256Mi"}}),
            ),
            (
                "/spec/containers/1/resources",
                json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}),
            ),
        ] {
            assert_eq!(template.pointer(pointer), Some(&expected), "{pointer}");
        }
        let list = |pointer: &str| template.pointer(pointer).and_then(Value::as_array).unwrap().clone();
        assert!(volumes.iter().all(|volume| list("/spec/volumes").contains(volume)), "{template}");
        assert!(
            mounts.iter().all(|mount| list("/spec/containers/1/volumeMounts").contains(mount)),
            "{template}"
        );
        wait_for(namespace, "Accepted", "True", "Accepted").await;
    });
}

#[test]
fn what_no_pod_needs_any_more_is_removed() {
    STAGE.with_namespace(async |namespace| {
        let (operator, node, old) = ready(namespace).await;
        let config_maps: Api<ConfigMap> = namespace.api();
        let ours = ListParams::default().labels("longshore.dev/server=demo");
        let before = config_maps.list(&ours).await.unwrap().items.pop().unwrap();

        // Another port needs another pod. The old one keeps its configuration, rules of today included, until it goes.
        namespace
            .apply(&server(
                "{transport: {streamableHttp: {port: 4000}}, pod: {serviceAccountName: default}, access: {rules: [{name: all, tools: ['*']}]}}",
            ))
            .await;
        let kept = namespace
            .wait(&config_maps, &before.name_any(), "to get the new rules", |now| {
                now.data.as_ref().is_some_and(|data| data["config.json"].contains("\"name\":\"all\""))
            })
            .await;
        assert!(kept.data.unwrap()["config.json"].contains("\"port\":3000"));
        // A pod of the previous version that dies meanwhile is made anew, and needs its account and its configuration.
        let new = node.find_pod(namespace, &old).await;
        let accounts: Api<ServiceAccount> = namespace.api();
        let looks = operator.looks("demo");
        node.say(namespace, &old, json!({"phase": "Failed"})).await;
        node.find_pods(namespace, 3).await;
        operator.looks_again("demo", looks).await;
        accounts.get("demo-longshore").await.unwrap();
        let still = config_maps.get(&before.name_any()).await.unwrap();
        assert_eq!(still.uid(), before.uid(), "it went, and came again");
        node.run(namespace, &new).await;
        let pods: Api<Pod> = namespace.api();
        // Somebody keeps it when it has ended, and it needs nothing any more. (There is no kubelet to end it.)
        let held = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        pods.patch(&old, &PatchParams::default(), &held(json!(["example.com/held"]))).await.unwrap();
        let _ = pods.delete(&old, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await;
        namespace.wait_gone(&config_maps, &before.name_any()).await;
        namespace.wait_gone(&accounts, "demo-longshore").await;
        pods.patch(&old, &PatchParams::default(), &held(json!(null))).await.unwrap();
    });
}

/// Somebody may have read it off a pod.
#[test]
fn the_account_that_a_manifest_names_stays_whoever_made_it() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&LEAST).await;
        let accounts: Api<ServiceAccount> = namespace.api();
        let made = namespace.wait(&accounts, "demo-longshore", "to be made", |_| true).await;
        // No pod has it, which would keep it.
        namespace.apply(&server("{replicas: 0, pod: {serviceAccountName: demo-longshore}}")).await;
        let servers: Api<McpServer> = namespace.api();
        let is_at_rest = |it: &McpServer| {
            let observed = it.status.as_ref().and_then(|status| status.observed_generation);
            observed == it.metadata.generation && is(it, "Available", "False", "ScaledToZero")
        };
        namespace.wait(&servers, "demo", "to be scaled to zero", is_at_rest).await;
        // What is pruned is pruned before the status tells of it.
        assert_eq!(accounts.get("demo-longshore").await.unwrap().uid(), made.uid());
        namespace.apply(&server("{replicas: 0, pod: {serviceAccountName: default}}")).await;
        namespace.wait_gone(&accounts, "demo-longshore").await;
    });
}

#[test]
fn the_words_of_the_api_server_reach_those_who_wrote_the_manifest() {
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        namespace.apply(&server("{pod: {overrides: {spec: {dnsPolicy: Sometimes}}}}")).await;
        let message = wait_for(namespace, "Accepted", "False", "Rejected").await;
        assert!(message.contains("dnsPolicy") && message.contains("Sometimes"), "{message}");
        wait_for(namespace, "Ready", "False", "Rejected").await;
        assert!(!wait_for_events(namespace, "Rejected", 1).await.is_empty(), "an event says it too");

        namespace.apply(&server("{pod: {overrides: {spec: {dnsPolicy: Default}}}}")).await;
        wait_for(namespace, "Accepted", "True", "Accepted").await;

        // A pod that the API server refuses is its Deployment's trouble, and shown all the same.
        namespace
            .apply("{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, spec: {hard: {pods: 0}}}")
            .await;
        namespace.apply(&server("{source: {image: 'registry.invalid/demo:2'}}")).await;
        let message = wait_for(namespace, "Available", "False", "PodRejected").await;
        assert!(message.contains("exceeded quota"), "{message}");
    });
}

/// The API server reads as YAML what is applied, and kubectl what it is given, so these come by the API.
#[test]
fn characters_that_mean_something_else_in_yaml_arrive_as_they_were_written() {
    let odd = "a \u{85}b \u{2028} c\u{7f}\u{9b}\u{feff}\u{ffff}";
    STAGE.with_namespace(async |namespace| {
        let _operator = Operator::start(namespace);
        let kind = ApiResource::erase::<McpServer>(&());
        let servers: Api<DynamicObject> = Api::namespaced_with(namespace.client(), namespace.name(), &kind);
        let mut manifest: Value = serde_json::from_str(&server("{}")).unwrap();
        manifest["spec"]["source"]["env"] = json!([{"name": "ODD", "value": odd}]);
        manifest["spec"]["access"] = json!({"rules": [{"name": "all", "tools": [odd]}]});
        let manifest: DynamicObject = serde_json::from_value(manifest).unwrap();
        servers.create(&Default::default(), &manifest).await.unwrap();
        let deployments: Api<Deployment> = namespace.api();
        let deployment = namespace.wait(&deployments, "demo", "to be made", |_| true).await;
        let server = deployment.spec.unwrap().template.spec.unwrap().containers.remove(1);
        let variable = server.env.unwrap().into_iter().find(|variable| variable.name == "ODD");
        assert_eq!(variable.unwrap().value.as_deref(), Some(odd));
        let config_maps: Api<ConfigMap> = namespace.api();
        let of_server = ListParams::default().labels("longshore.dev/server=demo");
        let config_maps = config_maps.list(&of_server).await.unwrap();
        let texts = config_maps.iter().filter_map(|map| map.data.as_ref()).flat_map(|data| data.values());
        assert!(texts.into_iter().any(|text| text.contains(odd)), "{config_maps:?}");

        // What is said of them in the status too.
        let wrong = Patch::Merge(json!({"spec": {"pod": {"overrides": {"spec": {(odd): 1}}}}}));
        servers.patch("demo", &PatchParams::default(), &wrong).await.unwrap();
        let message = wait_for(namespace, "Accepted", "False", "Invalid").await;
        assert!(message.contains(odd), "{message}");
    });
}

#[test]
fn a_new_version_that_fails_leaves_the_old_one_ready() {
    STAGE.with_namespace(async |namespace| {
        let (operator, node, old) = ready(namespace).await;
        let servers: Api<McpServer> = namespace.api();
        let since = condition(&servers.get("demo").await.unwrap(), "Ready").unwrap().last_transition_time;

        namespace.apply(&server("{source: {image: 'registry.invalid/demo:2'}}")).await;
        // It never serves: the Deployment would send the old one away.
        let new = node.find_pod(namespace, &old).await;
        let failing = |state: serde_json::Value| {
            json!({
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [{
                    "name": "server", "ready": false, "started": false, "restartCount": 1, "image": "demo:2", "imageID": "",
                    "state": state,
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no token given"}},
                }],
            })
        };
        node.say(namespace, &new, failing(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}))).await;
        // The old pod gets the configuration of the new generation too.
        node.load_configuration(namespace).await;
        let message = wait_for(namespace, "Available", "True", "RolloutFailing").await;
        assert!(message.contains("generation 2") && message.contains("no token given"), "{message}");
        let seen = namespace
            .wait(&servers, "demo", "to serve as before", |server| is(server, "Ready", "True", "ServingPrevious"))
            .await;
        let ready = condition(&seen, "Ready").unwrap();
        assert_eq!((ready.observed_generation, ready.last_transition_time), (Some(1), since));

        // Restarts change nothing that people see.
        node.say(namespace, &new, failing(json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}))).await;
        let looks = operator.looks("demo");
        node.say(namespace, &new, failing(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "longer"}}))).await;
        operator.looks_again("demo", looks).await;
        assert_eq!(servers.get("demo").await.unwrap().status, seen.status);
    });
}

#[test]
fn an_object_that_cannot_be_read_stops_nobody_else() {
    use super::stand::{install, kubectl, until};
    use longshore_e2e::cluster::{Cluster, Shape};
    use longshore_e2e::testing::eventually;
    // The schema would refuse such an object, so this cluster loses it for a moment: it is nobody else's.
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    install(&cluster).unwrap();
    cluster
        .block_on(async || {
            let client = cluster.client().await.unwrap();
            type Crds = Api<
                k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
            >;
            let crds = Crds::all(client.clone());
            let real = crds.get("mcpservers.longshore.dev").await.unwrap();
            let mut loose = serde_json::to_value(&real).unwrap();
            loose["metadata"] = json!({"name": "mcpservers.longshore.dev"});
            let version = &mut loose["spec"]["versions"][0];
            version["schema"]["openAPIV3Schema"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let parameters = PatchParams::apply("test").force();
            crds.patch("mcpservers.longshore.dev", &parameters, &Patch::Apply(&loose)).await.unwrap();
            let servers: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), "default", &ApiResource::erase::<McpServer>(&()));
            let broken = json!({
                "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "metadata": {"name": "broken"},
                "spec": {"source": "an image"},
            });
            let broken: DynamicObject = serde_json::from_value(broken).unwrap();
            eventually("the loose schema is in force", async || {
                servers.create(&Default::default(), &broken).await
            })
            .await;
            let once_good = serde_json::from_str(&LEAST.replace("demo", "once-good")).unwrap();
            servers.create(&Default::default(), &once_good).await.unwrap();
            let mut operator = Operator::start_in(&cluster, "default");
            let good: DynamicObject = serde_json::from_str(&LEAST).unwrap();
            servers.create(&Default::default(), &good).await.unwrap();
            let services: Api<Service> = Api::namespaced(client.clone(), "default");
            eventually("the good one has its Service", async || {
                services.get_opt("demo").await.unwrap().ok_or_else(|| operator.log())
            })
            .await;
            let status = async |name: &str| servers.get(name).await.unwrap().data["status"].take();
            let accepted = async |name: &str, reason: &str| {
                eventually(&format!("{name} is said to be {reason}"), async || {
                    let status = status(name).await;
                    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
                    let is_so = |it: &Value| it["type"] == "Accepted" && it["reason"] == reason;
                    if conditions.iter().any(is_so) { Ok(()) } else { Err(status) }
                })
                .await;
            };
            accepted("broken", "Malformed").await;
            // What is known of one that nobody can read any more stays, and is said once.
            accepted("once-good", "Accepted").await;
            eventually("its pod is seen", async || {
                let status = status("once-good").await;
                if status["replicas"] == 1 { Ok(()) } else { Err(status) }
            })
            .await;
            let url = status("once-good").await["url"].clone();
            assert!(url.is_string(), "{url}");
            let patch = Patch::Merge(json!({"spec": {"source": "an image"}}));
            servers.patch("once-good", &PatchParams::default(), &patch).await.unwrap();
            accepted("once-good", "Malformed").await;
            let said = [status("broken").await, status("once-good").await];
            assert_eq!(said[1]["url"], url);
            let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
            for name in ["broken", "once-good"] {
                let labels = json!({"longshore.dev/server": name});
                let container = json!({"name": "a", "image": "registry.invalid/a:1"});
                let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}});
                pods.create(&Default::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
            }
            // Times are in whole seconds.
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
            for name in ["broken", "once-good"] {
                pods.delete(name, &DeleteParams::default()).await.unwrap();
            }
            eventually("the status is what it was", async || {
                let now = [status("broken").await, status("once-good").await];
                if now == said { Ok(()) } else { Err(json!(now)) }
            })
            .await;
            until("the operator goes on", || operator.leads()).await;
            // Nor does another operator take it for one that it never knew.
            assert!(operator.stop(), "{}", operator.log());
            let operator = operator.another();
            until("the next operator has looked", || operator.log().matches("reconciled").count() >= 3).await;
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            assert_eq!([status("broken").await, status("once-good").await], said);

            // How many pods there are to be can be read all the same.
            let deployments: Api<Deployment> = Api::namespaced(client, "default");
            let before = deployments.get("once-good").await.unwrap().spec.unwrap().template;
            let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
            servers.patch("once-good", &PatchParams::default(), &scale).await.unwrap();
            for replicas in [3, 0] {
                let wanted = format!("--replicas={replicas}");
                kubectl(&cluster, &["scale", "lmcp", "once-good", &wanted, "--namespace=default"], None).unwrap();
                eventually(&format!("there are to be {replicas} pods"), async || {
                    let spec = deployments.get("once-good").await.unwrap().spec.unwrap();
                    assert_eq!(spec.template, before);
                    if spec.replicas == Some(replicas) { Ok(()) } else { Err(format!("{:?}", spec.replicas)) }
                })
                .await;
            }
            accepted("once-good", "Malformed").await;
        })
        .unwrap();
}
