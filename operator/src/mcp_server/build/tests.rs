//! From a manifest to whole objects, compared as a whole.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore_crds::McpServer;
use longshore_sidecar_config::{ApiKey, InventoryAccess, Upstream};
use serde_json::{Value, json};

use super::*;
use crate::api_keys::ParsedKeys;
use crate::digest;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::dereference::{ApiKeysLookup, Dereferenced, Lookup};
use crate::mcp_server::references::Kind;
use crate::mcp_server::session_keys::SessionKeys;
use crate::mcp_server::validate::validate;
use crate::settings::Place;

fn settings() -> Settings {
    Settings {
        sidecar_image: "registry.example/longshore-sidecar:9".to_owned(),
        sidecar_image_pull_policy: None,
        cluster_domain: "cluster.example".to_owned(),
        control_plane_namespace: "longshore-system".to_owned(),
        metrics_from: vec![BTreeMap::from([("team".to_owned(), "monitoring".to_owned())])],
        inventory_subjects: vec!["system:serviceaccount:longshore-system:longshore".to_owned()],
        catalog: true,
        rotate_session_keys_after: None,
        place: Place::Cluster,
    }
}

/// The name differs from every label and kind, so that no two can be mixed up unseen.
fn manifest(spec: Value) -> McpServer {
    serde_json::from_value(json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": "github", "namespace": "tools", "uid": "7b1c", "generation": 3},
        "spec": spec,
    }))
    .unwrap()
}

fn found() -> Dereferenced {
    Dereferenced {
        objects: BTreeMap::new(),
        api_keys: ApiKeysLookup::NotNamed,
        mounted_upstreams: vec![],
        inventory: InventoryAccess {
            issuer: "https://issuer.example".to_owned(),
            subjects: vec!["system:serviceaccount:longshore-system:longshore".to_owned()],
            jwks: json!({"keys": []}),
        },
        configured: BTreeMap::new(),
        session_keys: SessionKeys::of_tests(),
    }
}

fn minimal() -> Value {
    json!({"source": {"image": "example/github:1"}, "transport": {"streamableHttp": {"port": 3000}}, "auth": {"none": {}}})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    let mut place = &mut spec;
    for name in field.split('.') {
        place = &mut place[name];
    }
    *place = value;
    spec
}

fn built(spec: Value) -> Resources<Prepared> {
    build(&validate(&manifest(spec), &found()).unwrap(), &settings()).0
}

/// The template of a server's pods, with the digest that marks it taken out.
fn template(spec: Value) -> Value {
    let mut template =
        serde_json::to_value(built(spec).deployment.unwrap()).unwrap()["spec"]["template"].take();
    let digest =
        template["metadata"]["annotations"].as_object_mut().unwrap().remove("longshore.dev/template");
    assert_eq!(digest.unwrap().as_str().unwrap().len(), 32);
    template
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name,
        "namespace": "tools",
        "labels": labels(),
        "ownerReferences": [{
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "name": "github", "uid": "7b1c",
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

fn labels() -> Value {
    json!({
        "longshore.dev/server": "github",
        "app.kubernetes.io/component": "mcp-server",
        "app.kubernetes.io/managed-by": "longshore",
        "app.kubernetes.io/name": "mcp-server",
        "app.kubernetes.io/instance": "github",
    })
}

fn selector() -> Value {
    json!({"longshore.dev/server": "github", "app.kubernetes.io/component": "mcp-server"})
}

#[test]
fn the_smallest_manifest_makes_these_objects() {
    let Resources {
        service_account,
        secret,
        config_maps,
        service,
        peers,
        network_policy,
        disruption_budget,
        deployment,
        state: _,
    } = built(minimal());
    assert_eq!(disruption_budget, None, "one pod needs no budget");
    assert_eq!(
        serde_json::to_value(peers).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata("github-longshore"),
            "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true, "selector": selector(),
                "ports": [{"name": "peers", "protocol": "TCP", "port": 15382, "targetPort": 15382}],
            },
        })
    );
    assert_eq!(
        serde_json::to_value(service_account.unwrap()).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("github-longshore"),
            "automountServiceAccountToken": false,
        })
    );
    let mut keys_metadata = metadata("github-longshore-keys");
    let story = "{\"sealWith\":1,\"keys\":[{\"id\":1,\"made\":\"1970-01-01T00:00:00Z\"}]}";
    keys_metadata["annotations"] = json!({ "longshore.dev/session-keys": story });
    let mut secret = serde_json::to_value(secret).unwrap();
    let file = STANDARD.decode(secret["data"].take()["keys.json"].as_str().unwrap()).unwrap();
    let keys: Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(
        secret,
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": keys_metadata, "type": "Opaque",
            "data": null,
        })
    );
    assert_eq!(keys, json!({"keys": [], "sessions": [{"id": 1, "secret": "11".repeat(32)}]}));
    assert_eq!(
        serde_json::to_value(service).unwrap(),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata("github"),
            "spec": {
                "type": "ClusterIP", "selector": selector(),
                "ports": [{"name": "mcp", "appProtocol": "http", "protocol": "TCP", "port": 80, "targetPort": 15380}],
            },
        })
    );
    assert_eq!(
        serde_json::to_value(network_policy).unwrap(),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata("github-longshore"),
            "spec": {
                "podSelector": {"matchLabels": selector()},
                "policyTypes": ["Ingress"],
                "ingress": [
                    {"ports": [{"port": 15380, "protocol": "TCP"}]},
                    {
                        "from": [
                            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "longshore-system"}}},
                            {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}},
                        ],
                        "ports": [{"port": 15381, "protocol": "TCP"}],
                    },
                    {
                        "from": [{"podSelector": {"matchLabels": selector()}}],
                        "ports": [{"port": 15382, "protocol": "TCP"}],
                    },
                ],
            },
        })
    );
    let [config_map] = <[_; 1]>::try_from(config_maps).unwrap();
    let mut config_map = serde_json::to_value(config_map).unwrap();
    let config: Value = serde_json::from_str(config_map["data"]["config.json"].as_str().unwrap()).unwrap();
    config_map["data"] = Value::Null;
    let configured = config_map["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
    assert!(configured["longshore.dev/configured"].as_str().unwrap().starts_with("3/"), "{configured}");
    let name = config_map["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("github-longshore-v2-") && name.len() == 28, "{name}");
    assert_eq!(
        config_map,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(&name), "data": null})
    );
    assert_eq!(
        config,
        json!({
            "version": 2,
            "server": {"namespace": "tools", "name": "github", "uid": "7b1c"},
            "generation": 3,
            "upstream": {"streamableHttp": {"port": 3000, "path": "/mcp"}},
            "keysDigest": digest::prefixed(&file),
            "auth": "none",
            "access": [],
            "tools": {"include": [], "exclude": []},
            "limits": {"requestBytes": 4_194_304, "requestTimeoutMs": 60_000},
            "sessions": {
                "idleTimeoutMs": 1_800_000, "maxAgeMs": 86_400_000, "total": 10_000, "perPrincipal": 10_000,
                "streams": 16, "onOwnerLoss": "NotFound", "resume": {"maxBytes": 1_048_576, "ttlMs": 300_000},
                "sealWith": 1,
            },
            "peers": {"service": "github-longshore.tools.svc.cluster.example."},
            "hosts": ["github", "github.tools", "github.tools.svc", "github.tools.svc.cluster.example"],
            "allowedOrigins": [],
            "inventory": {
                "issuer": "https://issuer.example",
                "subjects": ["system:serviceaccount:longshore-system:longshore"],
                "jwks": {"keys": []},
            },
            "logLevel": "info",
        })
    );
    let mut deployment = serde_json::to_value(deployment.unwrap()).unwrap();
    assert_eq!(deployment["spec"]["template"].take()["metadata"]["labels"], labels());
    assert_eq!(
        deployment,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("github"),
            "spec": {
                "replicas": 1, "revisionHistoryLimit": 2, "selector": {"matchLabels": selector()},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                "template": null,
            },
        })
    );
    let restricted = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    assert_eq!(
        template(minimal()),
        json!({
            "metadata": {
                "labels": labels(),
                "annotations": {
                    "kubectl.kubernetes.io/default-container": "server",
                    "longshore.dev/upstream": "{\"streamableHttp\":{\"port\":3000,\"path\":\"/mcp\"}}",
                },
            },
            "spec": {
                "serviceAccountName": "github-longshore",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 85,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                    "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "longshore-sidecar",
                        "image": "registry.example/longshore-sidecar:9",
                        "command": ["/longshore-sidecar"],
                        "args": [
                            "serve", "--shim=/shim", "--workers=1", "--pod-uid=$(LONGSHORE_POD_UID)",
                            "--pod-ip=$(LONGSHORE_POD_IP)",
                        ],
                        "ports": [
                            {"name": "mcp", "containerPort": 15380, "protocol": "TCP"},
                            {"name": "admin", "containerPort": 15381, "protocol": "TCP"},
                            {"name": "peers", "containerPort": 15382, "protocol": "TCP"},
                        ],
                        "env": [
                            {
                                "name": "LONGSHORE_POD_UID",
                                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}},
                            },
                            {
                                "name": "LONGSHORE_POD_IP",
                                "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
                            },
                        ],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
                        "volumeMounts": [
                            {"name": "longshore-config", "mountPath": "/etc/longshore/config", "readOnly": true},
                            {"name": "longshore-keys", "mountPath": "/etc/longshore/keys", "readOnly": true},
                            {"name": "longshore-program", "mountPath": "/run/longshore/program"},
                            {"name": "longshore-sockets", "mountPath": "/run/longshore/sockets"},
                        ],
                        "readinessProbe": {
                            "httpGet": {"path": "/readyz", "port": 15381},
                            "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 2,
                        },
                        "livenessProbe": {
                            "httpGet": {"path": "/healthz", "port": 15381},
                            "periodSeconds": 10, "timeoutSeconds": 3, "failureThreshold": 3,
                        },
                        "securityContext": {
                            "runAsUser": 15380, "runAsGroup": 15380, "runAsNonRoot": true,
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    },
                    {
                        "name": "server",
                        "image": "example/github:1",
                        "env": [{"name": "HOME", "value": "/tmp"}],
                        "volumeMounts": [
                            {"name": "longshore-program", "mountPath": "/run/longshore/program", "readOnly": true},
                            {"name": "longshore-sockets", "mountPath": "/run/longshore/sockets"},
                            {"name": "longshore-tmp", "mountPath": "/tmp"},
                        ],
                        "lifecycle": {"preStop": {"exec": {"command": ["/run/longshore/program/shim", "drain"]}}},
                        "securityContext": restricted,
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    },
                ],
                "volumes": [
                    {"name": "longshore-config", "configMap": {"name": name}},
                    {"name": "longshore-keys", "secret": {"secretName": "github-longshore-keys", "defaultMode": 0o440}},
                    {"name": "longshore-program", "emptyDir": {"sizeLimit": "32Mi"}},
                    {"name": "longshore-sockets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "longshore-tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
                ],
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": selector()}, "matchLabelKeys": ["pod-template-hash"],
                }],
            },
        })
    );
}

#[test]
fn several_pods_have_a_budget_and_are_of_the_same_template_as_one() {
    for (replicas, budget) in [(0, false), (1, false), (2, true), (3, true)] {
        let spec = with(minimal(), "replicas", json!(replicas));
        assert_eq!(template(spec.clone()), template(minimal()), "{replicas}");
        let resources = built(spec);
        assert_eq!(resources.deployment.unwrap().spec.unwrap().replicas, Some(replicas));
        assert_eq!(resources.disruption_budget.is_some(), budget, "{replicas}");
    }
    let budget = built(with(minimal(), "replicas", json!(2))).disruption_budget;
    assert_eq!(
        serde_json::to_value(budget).unwrap(),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata("github-longshore"),
            "spec": {
                "maxUnavailable": 1, "selector": {"matchLabels": selector()},
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            },
        })
    );
}

#[test]
fn sessions_and_processes_reach_the_sidecar() {
    let config = |spec: Value| -> Value {
        let map = built(spec).config_maps.remove(0);
        serde_json::from_str(&map.data.unwrap()["config.json"]).unwrap()
    };
    let spec = with(
        minimal(),
        "sessions",
        json!({
            "idleTimeout": "90s", "maxAge": "1h30m", "total": 20, "perPrincipal": 3, "streams": 2,
            "onOwnerLoss": "Reinitialize", "resume": {"maxBytes": "0", "ttl": "1s"},
        }),
    );
    assert_eq!(
        config(spec)["sessions"],
        json!({
            "idleTimeoutMs": 90_000, "maxAgeMs": 5_400_000, "total": 20, "perPrincipal": 3, "streams": 2,
            "onOwnerLoss": "Reinitialize", "resume": {"maxBytes": 0, "ttlMs": 1000}, "sealWith": 1,
        })
    );
    let stdio = |stdio: Value| {
        json!({
            "source": {"image": "example/github:1", "command": ["/server"]}, "auth": {"none": {}},
            "transport": {"stdio": stdio},
        })
    };
    for (written, expected) in [
        (
            json!({}),
            json!({
                "isolation": "Session", "total": 32, "perPrincipal": 32, "warm": 0, "queueMs": 5000,
                "idleMs": 300_000,
            }),
        ),
        (
            json!({
                "isolation": "Principal", "warm": 2, "maxProcesses": 5, "maxProcessesPerPrincipal": 4,
                "queueTimeout": "0s", "idleTimeout": "10m", "maxAge": "24h",
            }),
            json!({
                "isolation": "Principal", "total": 5, "perPrincipal": 4, "warm": 2, "queueMs": 0,
                "idleMs": 600_000, "maxAgeMs": 86_400_000,
            }),
        ),
    ] {
        assert_eq!(config(stdio(written))["limits"]["processes"], expected);
    }
}

#[test]
fn a_stdio_server_is_started_by_the_shim_once_that_is_there() {
    let spec = json!({
        "source": {"image": "example/github:1", "command": ["/server", "--quiet"], "args": ["stdio"]},
        "transport": {"stdio": {"maxProcesses": 8}},
        "auth": {"none": {}},
    });
    let server = validate(&manifest(spec), &found()).unwrap();
    let resources = build(&server, &settings()).0;
    let template = serde_json::to_value(resources.deployment.unwrap()).unwrap()["spec"]["template"].take();
    for (pointer, expected) in [
        (
            "/spec/containers/1/command",
            json!(["/run/longshore/program/shim", "--peer-uid", "15380", "--", "/server", "--quiet"]),
        ),
        ("/spec/containers/1/args", json!(["stdio"])),
        (
            "/spec/containers/0/lifecycle",
            json!({"postStart": {"exec": {"command": ["/longshore-sidecar", "await"]}}}),
        ),
        ("/metadata/annotations/longshore.dev~1upstream", json!("{\"stdio\":{}}")),
    ] {
        assert_eq!(template.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn the_manifest_shapes_the_pod() {
    let spec = json!({
        "source": {
            "image": "example/github:1", "imagePullPolicy": "Always", "command": ["/server"], "args": ["--http"],
            "env": [{"name": "HOME", "value": "/data"}], "envFrom": [{"configMapRef": {"name": "settings"}}],
        },
        "transport": {"streamableHttp": {"port": 3000}},
        "auth": {"none": {}},
        "limits": {"requestTimeout": "5m"},
        "sidecar": {"workers": 4, "resources": {"limits": {"memory": "1Gi"}}},
        "pod": {
            "metadata": {"labels": {"team": "tools"}, "annotations": {"example.com/note": "x"}},
            "resources": {"requests": {"cpu": "1"}},
            "serviceAccountName": "github",
            "imagePullSecrets": [{"name": "registry"}],
            "securityContext": {"runAsUser": 1000, "fsGroup": 2000},
            "volumes": [{"name": "data", "emptyDir": {}}],
            "volumeMounts": [{"name": "data", "mountPath": "/tmp/"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "tools", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "overrides": {
                "metadata": {"annotations": {"example.com/more": "y"}},
                "spec": {
                    "priorityClassName": "high",
                    "containers": [
                        {"name": "server", "env": [{"name": "EXTRA", "value": "1"}], "livenessProbe": {"tcpSocket": {"port": 3000}}},
                        {"name": "helper", "image": "example/helper:1"},
                    ],
                },
            },
        },
    });
    let mut lookups = found();
    lookups.objects.insert((Kind::Secret, "registry".to_owned()), Lookup::Present { keys: BTreeSet::new() });
    lookups
        .objects
        .insert((Kind::ConfigMap, "settings".to_owned()), Lookup::Present { keys: BTreeSet::new() });
    let server = validate(&manifest(spec), &lookups).unwrap();
    let resources = build(&server, &settings()).0;
    assert_eq!(resources.service_account, None);
    let template = serde_json::to_value(resources.deployment.unwrap()).unwrap()["spec"]["template"].take();
    for (pointer, expected) in [
        ("/metadata/labels/team", json!("tools")),
        ("/metadata/annotations/example.com~1note", json!("x")),
        ("/metadata/annotations/example.com~1more", json!("y")),
        ("/spec/serviceAccountName", json!("github")),
        ("/spec/automountServiceAccountToken", json!(false)),
        ("/spec/imagePullSecrets", json!([{"name": "registry"}])),
        ("/spec/terminationGracePeriodSeconds", json!(325)),
        ("/spec/nodeSelector", json!({"disk": "ssd"})),
        ("/spec/tolerations", json!([{"key": "tools", "operator": "Exists"}])),
        ("/spec/affinity", json!({"podAntiAffinity": {}})),
        ("/spec/priorityClassName", json!("high")),
        ("/spec/securityContext/runAsUser", json!(1000)),
        ("/spec/securityContext/fsGroup", json!(2000)),
        ("/spec/securityContext/runAsGroup", json!(65532)),
        ("/spec/securityContext/runAsNonRoot", json!(true)),
        ("/spec/containers/0/args/2", json!("--workers=4")),
        ("/spec/containers/0/resources", json!({"limits": {"memory": "1Gi"}})),
        ("/spec/containers/0/securityContext/runAsUser", json!(15380)),
        ("/spec/containers/1/command", json!(["/server"])),
        ("/spec/containers/1/args", json!(["--http"])),
        ("/spec/containers/1/imagePullPolicy", json!("Always")),
        ("/spec/containers/1/resources", json!({"requests": {"cpu": "1"}})),
        (
            "/spec/containers/1/env",
            json!([{"name": "HOME", "value": "/data"}, {"name": "EXTRA", "value": "1"}]),
        ),
        ("/spec/containers/1/livenessProbe", json!({"tcpSocket": {"port": 3000}})),
        ("/spec/containers/1/lifecycle/preStop/exec/command/1", json!("drain")),
        ("/spec/containers/2/image", json!("example/helper:1")),
    ] {
        assert_eq!(template.pointer(pointer), Some(&expected), "{pointer}");
    }
    let mounts =
        |container: usize| template.pointer(&format!("/spec/containers/{container}/volumeMounts")).unwrap();
    assert_eq!(
        mounts(1),
        &json!([
            {"name": "longshore-program", "mountPath": "/run/longshore/program", "readOnly": true},
            {"name": "longshore-sockets", "mountPath": "/run/longshore/sockets"},
            {"name": "longshore-token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
            {"name": "data", "mountPath": "/tmp/"},
        ]),
        "a manifest that mounts /tmp gets no other /tmp"
    );
    assert!(!mounts(0).to_string().contains("longshore-token"), "the sidecar never gets a token");
    let volumes: Vec<_> =
        template["spec"]["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(
        volumes,
        [
            "longshore-config",
            "longshore-keys",
            "longshore-program",
            "longshore-sockets",
            "longshore-token",
            "data"
        ]
    );
}

#[test]
fn every_container_that_an_override_adds_is_restricted_too() {
    let restricted = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
    });
    for (own, changed) in [
        (None, json!({})),
        (Some(json!({})), json!({})),
        (Some(json!({"capabilities": {}})), json!({})),
        (Some(json!({"readOnlyRootFilesystem": false})), json!({"readOnlyRootFilesystem": false})),
        (Some(json!({"runAsUser": 1000})), json!({"runAsUser": 1000})),
    ] {
        let mut expected = restricted.clone();
        expected.as_object_mut().unwrap().extend(changed.as_object().unwrap().clone());
        for (list, name, place) in [
            ("containers", "server", "/spec/containers/1"),
            ("containers", "helper", "/spec/containers/2"),
            ("initContainers", "prepare", "/spec/initContainers/0"),
        ] {
            let mut container = json!({"name": name, "image": "example/helper:1"});
            if let Some(own) = &own {
                container["securityContext"] = own.clone();
            }
            let spec = match list {
                "containers" => json!({"containers": [container]}),
                _ => json!({"containers": [], "initContainers": [container]}),
            };
            let template = template(with(minimal(), "pod", json!({"overrides": {"spec": spec}})));
            let found = template.pointer(place).unwrap();
            assert_eq!(found["name"], name);
            assert_eq!(found["securityContext"], expected, "{name} with {own:?}");
            assert_eq!(template["spec"]["containers"][0]["securityContext"]["runAsUser"], 15380);
        }
    }
}

#[test]
fn only_what_the_pod_needs_makes_a_new_pod() {
    let before = template(minimal());
    for (field, value) in [
        ("access", json!({"rules": [{"name": "all", "tools": ["*"]}]})),
        ("tools", json!({"exclude": ["delete_*"]})),
        ("expose", json!({"host": "github.example", "allowedOrigins": ["https://app.example"]})),
        ("sidecar", json!({"logLevel": "debug"})),
        ("replicas", json!(5)),
        ("sessions", json!({"maxAge": "1h", "total": 5})),
        ("limits", json!({"requestBytes": "1Mi"})),
        ("transport.protocol", json!("2025-06-18")),
    ] {
        assert_eq!(template(with(minimal(), field, value)), before, "{field}");
    }
    for (field, value) in [
        ("source.image", json!("example/github:2")),
        ("transport.streamableHttp.port", json!(4000)),
        ("sidecar", json!({"workers": 2})),
        ("limits", json!({"requestTimeout": "10m"})),
    ] {
        assert_ne!(template(with(minimal(), field, value)), before, "{field}");
    }
}

#[test]
fn the_sidecar_is_told_which_revision_is_to_be_spoken() {
    let protocol = |spec| {
        let maps = built(spec).config_maps;
        let config: Value = serde_json::from_str(&maps[0].data.as_ref().unwrap()["config.json"]).unwrap();
        config.get("protocol").cloned()
    };
    assert_eq!(protocol(minimal()), None);
    for name in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        assert_eq!(protocol(with(minimal(), "transport.protocol", json!(name))), Some(json!(name)));
    }
}

#[test]
fn what_does_not_reach_the_sidecar_leaves_its_configuration_as_it_is() {
    let made = |generation: i64, spec: Value, before: Option<&ConfigMap>| {
        let mut found = found();
        if let Some(map) = before {
            let annotation = map.metadata.annotations.as_ref().unwrap()["longshore.dev/configured"].clone();
            found.configured = BTreeMap::from([(map.metadata.name.clone().unwrap(), annotation)]);
        }
        let mut server = manifest(spec);
        server.metadata.generation = Some(generation);
        build(&validate(&server, &found).unwrap(), &settings()).0.config_maps.remove(0)
    };
    let first = made(3, minimal(), None);
    let scaled = with(minimal(), "replicas", json!(5));
    assert_eq!(made(4, scaled.clone(), Some(&first)), first);
    let ruled = with(scaled, "tools", json!({"exclude": ["delete_*"]}));
    let second = made(5, ruled.clone(), Some(&first));
    let config: Value = serde_json::from_str(&second.data.as_ref().unwrap()["config.json"]).unwrap();
    assert_eq!(config["generation"], 5);
    assert_eq!(made(6, ruled, Some(&second)), second);
}

#[test]
fn a_pod_of_an_older_version_keeps_its_way_to_its_server_and_gets_the_newest_rules() {
    let older = Upstream::StreamableHttp { port: 2000, path: "/old".to_owned() };
    let mut lookups = found();
    lookups.mounted_upstreams =
        vec![older.clone(), Upstream::StreamableHttp { port: 3000, path: "/mcp".to_owned() }];
    let spec = with(minimal(), "access", json!({"rules": [{"name": "all", "tools": ["*"]}]}));
    let (resources, desired) = build(&validate(&manifest(spec), &lookups).unwrap(), &settings());
    let configs: Vec<Value> = resources
        .config_maps
        .iter()
        .map(|config_map| serde_json::from_str(&config_map.data.as_ref().unwrap()["config.json"]).unwrap())
        .collect();
    assert_eq!(configs.len(), 2);
    assert_eq!(configs[0]["upstream"], json!({"streamableHttp": {"port": 3000, "path": "/mcp"}}));
    assert_eq!(configs[1]["upstream"], json!({"streamableHttp": {"port": 2000, "path": "/old"}}));
    assert_eq!(configs[1]["access"][0]["name"], "all");
    assert_ne!(resources.config_maps[0].metadata.name, resources.config_maps[1].metadata.name);
    let mut texts =
        vec![upstream_text(&older), "{\"streamableHttp\":{\"port\":3000,\"path\":\"/mcp\"}}".to_owned()];
    texts.sort();
    assert_eq!(desired.configs.into_keys().collect::<Vec<_>>(), texts);
}

#[test]
fn keys_change_the_configurations_digest_and_not_the_pod() {
    let spec = with(minimal(), "auth", json!({"apiKeys": {"secretRef": {"name": "keys"}}}));
    let built = |hash: &str| {
        let mut lookups = found();
        let keys = vec![ApiKey { principal: "ada".to_owned(), sha256: hash.to_owned() }];
        lookups.api_keys = ApiKeysLookup::Present(ParsedKeys { keys, problems: vec![] });
        build(&validate(&manifest(spec.clone()), &lookups).unwrap(), &settings())
    };
    let (one, two) = (built("11"), built("22"));
    assert_eq!(one.1.template, two.1.template);
    assert_ne!(one.1.configs, two.1.configs);
    let file = one.0.secret.data.unwrap()["keys.json"].0.clone();
    let config: Value =
        serde_json::from_str(&one.0.config_maps[0].data.as_ref().unwrap()["config.json"]).unwrap();
    assert_eq!(config["keysDigest"], json!(digest::prefixed(&file)));
}

#[test]
fn nothing_is_made_of_a_manifest_that_breaks_a_rule() {
    for (field, value, complaint) in [
        ("transport", json!({}), "spec.transport: "),
        ("transport.streamableHttp.port", json!(15381), "spec.transport.streamableHttp.port: "),
        ("transport.streamableHttp.path", json!("mcp"), "spec.transport.streamableHttp.path: "),
        ("transport", json!({"sse": {"port": 15381}}), "spec.transport.sse.port: "),
        ("transport", json!({"sse": {"port": 1, "path": "sse"}}), "spec.transport.sse.path: "),
        ("transport", json!({"sse": {"port": 1}, "streamableHttp": {"port": 1}}), "spec.transport: "),
        ("auth", json!({}), "spec.auth: "),
        ("auth", json!({"none": {}, "apiKeys": {"secretRef": {"name": "x"}}}), "spec.auth: "),
        ("access", json!({"rules": [{"name": "a", "tools": ["[x"]}]}), "spec.access.rules[0].tools[0]: "),
        ("access", json!({"rules": [{"name": "", "tools": ["x"]}]}), "spec.access.rules[0].name: "),
        ("tools", json!({"include": ["{a"]}), "spec.tools.include[0]: "),
        ("limits", json!({"requestBytes": "many"}), "spec.limits.requestBytes: "),
        ("limits", json!({"requestTimeout": "1d"}), "spec.limits.requestTimeout: "),
        ("limits", json!({"requestTimeout": "0s"}), "spec.limits.requestTimeout: "),
        ("sessions", json!({"maxAge": "0s"}), "spec.sessions.maxAge: "),
        ("sessions", json!({"resume": {"maxBytes": "x"}}), "spec.sessions.resume.maxBytes: "),
    ] {
        let problems = validate(&manifest(with(minimal(), field, value.clone())), &found()).unwrap_err();
        assert!(
            problems.len() == 1
                && problems[0].reason == Reason::Invalid
                && problems[0].message.starts_with(complaint),
            "{field}: {value}: {problems:?}"
        );
    }
    let mut unnameable = manifest(minimal());
    unnameable.metadata.name = Some("9-lives".to_owned());
    assert!(validate(&unnameable, &found()).unwrap_err()[0].message.starts_with("metadata.name: "));
}

#[test]
fn what_is_missing_is_named_and_holds_the_pod_back_alone() {
    let env = json!([{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}}]);
    let from = json!([{"configMapRef": {"name": "settings"}}]);
    let optional = json!([{"secretRef": {"name": "maybe", "optional": true}}]);
    let keys = json!({"apiKeys": {"secretRef": {"name": "keys"}}});
    let without_key = Lookup::Present { keys: BTreeSet::from(["other".to_owned()]) };
    for (field, value, lookups, expected) in [
        (
            "source.env",
            env.clone(),
            vec![],
            Some((Reason::SecretNotFound, "Secret tools/token, which spec.source.env[0]")),
        ),
        (
            "source.env",
            env.clone(),
            vec![((Kind::Secret, "token"), without_key)],
            Some((Reason::SecretKeyNotFound, "Secret tools/token has no key \"value\"")),
        ),
        (
            "source.envFrom",
            from,
            vec![],
            Some((Reason::ConfigMapNotFound, "ConfigMap tools/settings, which")),
        ),
        ("source.envFrom", optional, vec![], None),
        (
            "auth",
            keys.clone(),
            vec![],
            Some((Reason::SecretNotFound, "Secret tools/keys, which spec.auth.apiKeys")),
        ),
    ] {
        let mut found = found();
        found.objects =
            lookups.into_iter().map(|((kind, name), lookup)| ((kind, name.to_owned()), lookup)).collect();
        found.api_keys = ApiKeysLookup::Missing;
        let server = validate(&manifest(with(minimal(), field, value)), &found).unwrap();
        let resources = build(&server, &settings()).0;
        assert_eq!(resources.deployment.is_none(), expected.is_some(), "{field}");
        match (server.readiness.problems(), expected) {
            ([], None) => {}
            ([Problem { reason, message }], Some((expected, start))) => {
                assert_eq!(*reason, expected, "{message}");
                assert!(message.starts_with(start), "{message}");
            }
            (problems, expected) => panic!("{field}: {problems:?}, expected {expected:?}"),
        }
    }
    // Nobody but Longshore may use Longshore's own Secrets, not even optionally.
    let mut found = found();
    found.objects.insert((Kind::Secret, "token".to_owned()), Lookup::Reserved);
    let server = validate(&manifest(with(minimal(), "source.env", env)), &found).unwrap();
    assert_eq!(server.readiness.problems()[0].reason, Reason::SecretReserved);
    assert_eq!(build(&server, &settings()).0.deployment, None);
    found.api_keys = ApiKeysLookup::Reserved;
    let problems = validate(&manifest(with(minimal(), "auth", keys)), &found).unwrap_err();
    assert_eq!(problems[0].reason, Reason::SecretReserved);
}
