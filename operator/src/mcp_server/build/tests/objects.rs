//! The whole of what a manifest makes.

use super::*;

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
                "ports": [
                    {"name": "mcp", "appProtocol": "http", "protocol": "TCP", "port": 80, "targetPort": 15380},
                    {"name": "peers", "protocol": "TCP", "port": 15382, "targetPort": 15382},
                ],
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
                            {
                                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "longshore-system"}},
                                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "longshore"}},
                            },
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
            "generation": 0,
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
                "replicas": 1, "minReadySeconds": 10, "paused": false, "revisionHistoryLimit": 2, "selector": {"matchLabels": selector()},
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
                    "azure.workload.identity/skip-containers": "longshore-sidecar",
                    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "longshore-program",
                    "eks.amazonaws.com/skip-containers": "longshore-sidecar",
                    "kubectl.kubernetes.io/default-container": "server",
                    "longshore.dev/upstream": "{\"streamableHttp\":{\"port\":3000,\"path\":\"/mcp\"}}",
                },
            },
            "spec": {
                "serviceAccountName": "github-longshore",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 95,
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
                            "--peers-entry=github.tools.svc.cluster.example.", "--keys-dir=/etc/longshore/config",
                            "--longest-call-ms=60000", "--sockets-dir=/run/longshore/program",
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
                            {
                                "name": "LONGSHORE_POD_TEMPLATE",
                                "valueFrom": {
                                    "fieldRef": {
                                        "apiVersion": "v1", "fieldPath": "metadata.labels['pod-template-hash']",
                                    },
                                },
                            },
                        ],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "256Mi"}},
                        "volumeMounts": [
                            {"name": "longshore-config", "mountPath": "/etc/longshore/config", "readOnly": true},
                            {"name": "longshore-program", "mountPath": "/run/longshore/program"},
                        ],
                        "readinessProbe": {
                            "httpGet": {"path": "/readyz", "port": 15381},
                            "periodSeconds": 1, "timeoutSeconds": 3, "failureThreshold": 3,
                        },
                        "livenessProbe": {
                            "httpGet": {"path": "/healthz", "port": 15381},
                            "initialDelaySeconds": 10,
                            "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 3,
                            "terminationGracePeriodSeconds": 20,
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
                            {"name": "longshore-tmp", "mountPath": "/tmp"},
                        ],
                        "lifecycle": {"preStop": {"exec": {"command": ["/run/longshore/program/shim", "drain", "/run/longshore/program/drain.sock"]}}},
                        "securityContext": restricted,
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                    },
                ],
                "volumes": [
                    {"name": "longshore-config", "projected": {"defaultMode": 0o440, "sources": [
                        {"configMap": {"name": name}}, {"secret": {"name": "github-longshore-keys"}},
                    ]}},
                    {"name": "longshore-program", "emptyDir": {"sizeLimit": "32Mi"}},
                    {"name": "longshore-tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
                ],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 50, "podAffinityTerm": {
                        "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": selector()},
                        "matchLabelKeys": ["pod-template-hash"],
                    },
                }]}},
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
