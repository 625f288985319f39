//! Each way to more than a pod, and what is left to the manifest.

use serde_json::{Value, json};

use super::*;

fn complaints(value: Value) -> Vec<String> {
    let mut problems = Vec::new();
    overrides("o", &serde_json::from_value(value).unwrap(), &mut problems);
    problems.into_iter().map(|problem| problem.message).collect()
}

#[test]
fn refuses_each_way_to_more_than_a_pod() {
    let server = |fields: Value| {
        let mut container = json!({"name": "server"});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json!({"spec": {"containers": [container]}})
    };
    for (value, field) in [
        (json!({"spec": {"hostNetwork": true}}), "o.spec.hostNetwork"),
        (json!({"spec": {"hostPID": true}}), "o.spec.hostPID"),
        (json!({"spec": {"hostIPC": true}}), "o.spec.hostIPC"),
        (json!({"spec": {"shareProcessNamespace": true}}), "o.spec.shareProcessNamespace"),
        (json!({"spec": {"serviceAccountName": "admin"}}), "o.spec.serviceAccountName"),
        (json!({"spec": {"automountServiceAccountToken": true}}), "o.spec.automountServiceAccountToken"),
        (json!({"spec": {"restartPolicy": "Never"}}), "o.spec.restartPolicy"),
        (json!({"spec": {"terminationGracePeriodSeconds": 5}}), "o.spec.terminationGracePeriodSeconds"),
        (json!({"spec": {"securityContext": {"runAsUser": 0}}}), "o.spec.securityContext.runAsUser"),
        (json!({"spec": {"securityContext": {"runAsUser": 15380}}}), "o.spec.securityContext.runAsUser"),
        (
            json!({"spec": {"securityContext": {"runAsNonRoot": false}}}),
            "o.spec.securityContext.runAsNonRoot",
        ),
        (
            json!({"spec": {"securityContext": {"supplementalGroups": [7, 15380]}}}),
            "o.spec.securityContext.supplementalGroups[1]",
        ),
        (
            json!({"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}}),
            "o.spec.volumes[0].hostPath",
        ),
        (
            json!({"spec": {"volumes": [{"name": "a", "nfs": {"server": "x", "path": "/"}}]}}),
            "o.spec.volumes[0].nfs",
        ),
        (
            server(json!({"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}})),
            "o.spec.containers[0].livenessProbe.host",
        ),
        (
            server(json!({"lifecycle": {"postStart": {"tcpSocket": {"host": "a", "port": 80}}}})),
            "o.spec.containers[0].lifecycle.postStart.host",
        ),
        (server(json!({"command": ["/x"]})), "o.spec.containers[0].command"),
        (
            server(
                json!({"resources": {"limits": {"cpu": 2, "memory": "1GB"}, "requests": {"memory": " 1e9 "}}}),
            ),
            "o.spec.containers[0].resources.limits.memory",
        ),
        (json!({"spec": {"resources": {"requests": {"cpu": ""}}}}), "o.spec.resources.requests.cpu"),
        (json!({"spec": {"resources": {"limits": {"memory": "inf"}}}}), "o.spec.resources.limits.memory"),
        (
            json!({"spec": {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10GB"}},
            }}}}]}}),
            "o.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        ),
        (
            json!({"spec": {"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "lots"}}]}}),
            "o.spec.volumes[0].emptyDir.sizeLimit",
        ),
        (
            json!({"spec": {"volumes": [{"name": "longshore-keys", "emptyDir": {}}]}}),
            "o.spec.volumes[0].name",
        ),
        (
            json!({"spec": {"containers": [{"name": "longshore-sidecar", "image": "x"}]}}),
            "o.spec.containers[0]",
        ),
        (json!({"spec": {"initContainers": [{"name": "longshore-sidecar"}]}}), "o.spec.initContainers[0]"),
        (json!({"spec": {"initContainers": [{"name": "server"}]}}), "o.spec.initContainers[0]"),
        (
            json!({"spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}}),
            "o.spec.initContainers[0].restartPolicy",
        ),
        (server(json!({"ports": [{"containerPort": 15381}]})), "o.spec.containers[0].ports[0]"),
        (
            server(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
            "o.spec.containers[0].ports[0].hostPort",
        ),
        (
            server(json!({"volumeMounts": [{"name": "longshore-keys", "mountPath": "/keys"}]})),
            "o.spec.containers[0].volumeMounts[0].name",
        ),
        (
            server(json!({"volumeMounts": [{"name": "a", "mountPath": "/run"}]})),
            "o.spec.containers[0].volumeMounts[0].mountPath",
        ),
        (
            server(json!({"volumeMounts": [{"name": "a", "mountPath": "/run/longshore/program/"}]})),
            "o.spec.containers[0].volumeMounts[0].mountPath",
        ),
        (
            server(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}})),
            "o.spec.containers[0].lifecycle.preStop",
        ),
        (
            server(json!({"securityContext": {"privileged": true}})),
            "o.spec.containers[0].securityContext.privileged",
        ),
        (
            server(json!({"securityContext": {"allowPrivilegeEscalation": true}})),
            "o.spec.containers[0].securityContext.allowPrivilegeEscalation",
        ),
        (
            server(json!({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})),
            "o.spec.containers[0].securityContext.capabilities.add",
        ),
        (
            server(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
            "o.spec.containers[0].securityContext.seccompProfile",
        ),
        (
            server(json!({"securityContext": {"runAsUser": 15380}})),
            "o.spec.containers[0].securityContext.runAsUser",
        ),
        (json!({"metadata": {"labels": {"longshore.dev/server": "x"}}}), "o.metadata"),
        (
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "x"}}}),
            "o.metadata",
        ),
    ] {
        let found = complaints(value.clone());
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{field}: ")),
            "{value} should be refused at {field}, got {found:?}"
        );
        // And what to do is said.
        let says = [
            "leave it out",
            "choose another",
            "mount it",
            "put it",
            "mount one",
            "set spec",
            "; set ",
            "; give ",
            "; use ",
            "can be set",
            "write one",
        ];
        assert!(says.iter().any(|word| found[0].contains(word)), "{found:?}");
    }
}

#[test]
fn refuses_what_the_restricted_standard_does_at_either_level() {
    let both: [(Value, Option<&str>); 25] = [
        (json!({"runAsUser": 0}), Some("runAsUser")),
        (json!({"runAsUser": 15380}), Some("runAsUser")),
        (json!({"runAsGroup": 15380}), Some("runAsGroup")),
        (json!({"runAsNonRoot": false}), Some("runAsNonRoot")),
        (json!({"seccompProfile": {"type": "Unconfined"}}), Some("seccompProfile")),
        (json!({"seccompProfile": {"type": ""}}), Some("seccompProfile")),
        (json!({"appArmorProfile": {"type": "Unconfined"}}), Some("appArmorProfile")),
        (json!({"seLinuxOptions": {"user": "system_u"}}), Some("seLinuxOptions.user")),
        (json!({"seLinuxOptions": {"role": "system_r"}}), Some("seLinuxOptions.role")),
        (json!({"seLinuxOptions": {"type": "spc_t"}}), Some("seLinuxOptions.type")),
        (json!({"windowsOptions": {"hostProcess": true}}), Some("windowsOptions.hostProcess")),
        (json!({"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true}), None),
        (json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}), None),
        (json!({"seccompProfile": {"type": "RuntimeDefault"}}), None),
        (json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}), None),
        (json!({"appArmorProfile": {"type": "RuntimeDefault"}}), None),
        (json!({"seLinuxOptions": {"user": "", "role": "", "type": ""}}), None),
        (json!({"seLinuxOptions": {"level": "s0:c1,c2"}}), None),
        (json!({"seLinuxOptions": {"type": "container_t"}}), None),
        (json!({"seLinuxOptions": {"type": "container_init_t"}}), None),
        (json!({"seLinuxOptions": {"type": "container_kvm_t"}}), None),
        (json!({"seLinuxOptions": {"type": "container_engine_t"}}), None),
        (json!({"windowsOptions": {"hostProcess": false}}), None),
        (json!({"windowsOptions": {}}), None),
        (json!({}), None),
    ];
    let pod = [
        (json!({"fsGroup": 15380}), Some("fsGroup")),
        (json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}), Some("sysctls[0].name")),
        (json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}), None),
    ];
    let container = [
        (json!({"capabilities": {"drop": []}}), Some("capabilities.drop")),
        (json!({"capabilities": {"drop": ["NET_RAW"]}}), Some("capabilities.drop")),
        (json!({"capabilities": {"drop": ["NET_RAW", "ALL"]}}), None),
        (json!({"capabilities": {}}), None),
        (json!({"procMount": "Unmasked"}), Some("procMount")),
        (json!({"procMount": "Default"}), None),
        (json!({"readOnlyRootFilesystem": false}), None),
    ];
    let check = |spec: Value, place: &str, field: Option<&str>| {
        let found = complaints(json!({"spec": spec}));
        match field {
            None => assert_eq!(found, Vec::<String>::new(), "{spec}"),
            Some(field) => assert!(
                found.len() == 1 && found[0].starts_with(&format!("o.spec.{place}securityContext.{field}: ")),
                "{spec} should be refused at {place}{field}, got {found:?}"
            ),
        }
    };
    for (context, field) in both.iter().chain(&pod) {
        check(json!({"containers": [], "securityContext": context}), "", *field);
    }
    for (context, field) in both.iter().chain(&container) {
        for (list, name) in
            [("containers", "server"), ("containers", "helper"), ("initContainers", "prepare")]
        {
            let mut spec = json!({"containers": []});
            spec[list] = json!([{"name": name, "securityContext": context}]);
            check(spec, &format!("{list}[0]."), *field);
        }
    }
}

#[test]
fn refuses_apparmor_annotations_for_any_container() {
    for (container, profile) in
        [("server", "unconfined"), ("helper", "unconfined"), ("longshore-sidecar", "localhost/other")]
    {
        let key = format!("container.apparmor.security.beta.kubernetes.io/{container}");
        let mut annotations = serde_json::Map::new();
        annotations.insert(key, json!(profile));
        let found = complaints(json!({"metadata": {"annotations": annotations}}));
        assert!(found.len() == 1 && found[0].contains("appArmorProfile"), "{container}: {found:?}");
    }
}

#[test]
fn refuses_mounts_that_hide_longshores_directories_however_they_are_written() {
    for (path, complaint) in [
        ("/run//longshore/program", Some("is not a plain path")),
        ("//run/longshore", Some("is not a plain path")),
        ("//", Some("is not a plain path")),
        ("/run/longshore//", Some("is not a plain path")),
        ("/x/../run/longshore", Some("is not a plain path")),
        ("/run/./longshore", Some("is not a plain path")),
        ("/data/..", Some("is not a plain path")),
        ("run/longshore/program", Some("is not a plain path")),
        ("../run/longshore", Some("is not a plain path")),
        ("", Some("is not a plain path")),
        ("/", Some("hides a directory")),
        ("/run/", Some("hides a directory")),
        ("/etc/longshore/keys", Some("hides a directory")),
        ("/var/run/longshore/program", Some("hides a directory")),
        ("/var/run/longshore", Some("hides a directory")),
        ("/var/run/longshoreman", None),
        ("/var/run", None),
        ("/var", None),
        ("/run/longshoreman", None),
        ("/data/", None),
        ("/data/.cache/..a/b..", None),
    ] {
        let mounts = json!([{"name": "a", "mountPath": path}]);
        for (list, container) in
            [("containers", "server"), ("containers", "helper"), ("initContainers", "prepare")]
        {
            let mut spec = json!({"containers": []});
            spec[list] = json!([{"name": container, "volumeMounts": mounts}]);
            let found = complaints(json!({"spec": spec}));
            let field = format!("o.spec.{list}[0].volumeMounts[0].mountPath: ");
            match complaint {
                None => assert_eq!(found, Vec::<String>::new(), "{path}"),
                Some(complaint) => assert!(
                    found.len() == 1 && found[0].starts_with(&field) && found[0].contains(complaint),
                    "{path} should be refused: {found:?}"
                ),
            }
        }
    }
}

#[test]
fn leaves_the_rest_to_the_manifest() {
    let allowed = json!({
        "metadata": {"labels": {"team": "tools"}, "annotations": {"example.com/scrape": "yes"}},
        "spec": {
            "priorityClassName": "high",
            "dnsPolicy": "ClusterFirst",
            "hostNetwork": false,
            "securityContext": {"runAsUser": 1000, "runAsNonRoot": true},
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "server", "volumeMounts": [{"name": "data", "mountPath": "/runtime"}], "livenessProbe": {"tcpSocket": {"port": 3000}}},
                {"name": "helper", "image": "x", "ports": [{"containerPort": 9000}]},
            ],
        },
    });
    assert_eq!(complaints(allowed), Vec::<String>::new());
}

#[test]
fn a_service_stays_longshores_and_kubernetes() {
    for (metadata, refused) in [
        (
            json!({"labels": {"team": "tools"}, "annotations": {"service.kubernetes.io/topology-mode": "Auto"}}),
            None,
        ),
        (json!({"labels": {"app.kubernetes.io/name": "a"}}), Some("s.labels: ")),
        (json!({"labels": {"service.kubernetes.io/service-proxy-name": "a"}}), Some("s.labels: ")),
        (json!({"annotations": {"a.longshore.dev/b": "c"}}), Some("s.annotations: ")),
    ] {
        let mut problems = Vec::new();
        service("s", &mut serde_json::from_value(metadata.clone()).unwrap(), &mut problems);
        let said: Vec<_> = problems.iter().map(|problem| &problem.message).collect();
        assert_eq!(said.len(), usize::from(refused.is_some()), "{metadata}: {said:?}");
        assert!(refused.is_none_or(|field| said[0].starts_with(field)), "{said:?}");
    }
}
