//! The pod: what shapes it, and what makes a new one.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;

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
        // The shim opens a socket of its own.
        (
            "/spec/containers/1/lifecycle/preStop/exec/command",
            json!(["/run/longshore/program/shim", "drain"]),
        ),
        (
            "/spec/containers/0/volumeMounts/2",
            json!({"name": "longshore-sockets", "mountPath": "/run/longshore/sockets"}),
        ),
        (
            "/spec/containers/1/volumeMounts/1",
            json!({"name": "longshore-sockets", "mountPath": "/run/longshore/sockets"}),
        ),
        (
            "/spec/volumes/2",
            json!({"name": "longshore-sockets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
        ),
    ] {
        assert_eq!(template.pointer(pointer), Some(&expected), "{pointer}");
    }
}

#[test]
fn what_a_config_map_has_come_to_hold_makes_no_new_pods() {
    let made = |image: &str, has_home: bool, live: Option<&str>| {
        let mut found = found();
        let keys = has_home.then(|| HOME.to_owned()).into_iter().collect::<BTreeSet<_>>();
        found.objects.insert((Kind::ConfigMap, "it".to_owned()), Lookup::Present { keys: keys.into() });
        let spec =
            with(minimal(), "source", json!({"image": image, "envFrom": [{"configMapRef": {"name": "it"}}]}));
        let mut server = validate(&manifest(spec), &found).unwrap();
        let template = build_beside(&mut server, &settings(), live).1.template;
        // As after the session keys have moved on.
        assert_eq!(build(&server, &settings()).1.template, template);
        template
    };
    for had_home in [false, true] {
        let live = made("example/github:1", had_home, None);
        assert_ne!(made("example/github:1", !had_home, None), live);
        assert_eq!(made("example/github:1", !had_home, Some(&live)), live);
        // New pods, whatever for, are made by what there is now.
        let next = made("example/github:2", !had_home, None);
        assert_eq!(made("example/github:2", !had_home, Some(&live)), next);
    }
}

#[test]
fn a_home_of_the_manifest_is_left_to_it_wherever_it_is_said() {
    let ours = json!([{"name": "HOME", "value": "/tmp"}]);
    let holds = |keys: &[&str]| {
        let keys: BTreeSet<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        Lookup::Present { keys: keys.into() }
    };
    for (env_from, kind, keys, expected) in [
        (json!({"configMapRef": {"name": "it"}}), Kind::ConfigMap, &["HOME"], json!([])),
        (json!({"secretRef": {"name": "it"}}), Kind::Secret, &["HOME"], json!([])),
        (json!({"prefix": "HO", "configMapRef": {"name": "it"}}), Kind::ConfigMap, &["ME"], json!([])),
        (json!({"configMapRef": {"name": "it"}}), Kind::ConfigMap, &["HOMES"], ours.clone()),
        (json!({"prefix": "X_", "secretRef": {"name": "it"}}), Kind::Secret, &["HOME"], ours.clone()),
        // Another object of that name.
        (json!({"secretRef": {"name": "it", "optional": true}}), Kind::ConfigMap, &["HOME"], ours),
    ] {
        let mut found = found();
        found.objects.insert((kind, "it".to_owned()), holds(keys));
        let spec = with(minimal(), "source.envFrom", json!([env_from]));
        let server = validate(&manifest(spec), &found).unwrap();
        let template = build(&server, &settings()).0.deployment.unwrap().spec.unwrap().template;
        let env = template.spec.unwrap().containers.swap_remove(1).env.unwrap();
        assert_eq!(serde_json::to_value(env).unwrap(), expected, "{env_from} with {keys:?}");
    }
}

/// What is for the server alone does not reach the sidecar, and what says not whose pods it is about is about the server's.
#[test]
fn pods_are_spread_over_zones_and_the_servers_profile_is_not_the_sidecars() {
    let zones = json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"});
    let pod = json!({
        "securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "notes"}},
        "overrides": {"spec": {"topologySpreadConstraints": [zones]}},
    });
    let server = validate(&manifest(with(minimal(), "pod", pod)), &found()).unwrap();
    let template = build(&server, &settings()).0.deployment.unwrap().spec.unwrap().template;
    let template = serde_json::to_value(template).unwrap();
    let own = json!({"matchLabels": names::pod_selector("github")});
    let constraints = template["spec"]["topologySpreadConstraints"].as_array().unwrap();
    assert_eq!(constraints.len(), 2);
    assert!(constraints.iter().all(|constraint| constraint["labelSelector"] == own), "{constraints:?}");
    let apart = &template["spec"]["affinity"]["podAntiAffinity"];
    let apart = &apart["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
    assert_eq!(
        (&apart["topologyKey"], &apart["labelSelector"]),
        (&json!("topology.kubernetes.io/zone"), &own)
    );
    let profile =
        |container: usize| &template["spec"]["containers"][container]["securityContext"]["appArmorProfile"];
    assert_eq!((profile(0), profile(1)), (&json!({"type": "RuntimeDefault"}), &json!(null)));
}

/// The API server refuses a variable with a value that has a source of one as well, and one with two sources.
#[test]
fn what_an_override_says_of_a_variable_is_all_that_is_said_of_it() {
    let of =
        |name: &str, source: &str| json!({"name": name, "valueFrom": {source: {"name": "it", "key": "x"}}});
    let plain = |name: &str| json!({"name": name, "value": "/data"});
    let home = || json!({"name": "HOME", "value": "/tmp"});
    for (own, over, expected) in [
        (json!([]), of("HOME", "secretKeyRef"), json!([of("HOME", "secretKeyRef")])),
        (json!([]), plain("HOME"), json!([plain("HOME")])),
        (json!([plain("A")]), of("A", "secretKeyRef"), json!([home(), of("A", "secretKeyRef")])),
        (json!([of("A", "secretKeyRef")]), plain("A"), json!([home(), plain("A")])),
        (
            json!([of("A", "secretKeyRef")]),
            of("A", "configMapKeyRef"),
            json!([home(), of("A", "configMapKeyRef")]),
        ),
        (json!([of("A", "secretKeyRef")]), json!({"name": "A"}), json!([home(), of("A", "secretKeyRef")])),
        (json!([plain("A")]), of("B", "secretKeyRef"), json!([home(), plain("A"), of("B", "secretKeyRef")])),
    ] {
        let mut found = found();
        let keys: BTreeSet<String> = BTreeSet::from(["x".to_owned()]);
        for kind in [Kind::Secret, Kind::ConfigMap] {
            found.objects.insert((kind, "it".to_owned()), Lookup::Present { keys: keys.clone().into() });
        }
        let overrides = json!({"spec": {"containers": [{"name": "server", "env": [over]}]}});
        let spec = with(with(minimal(), "source.env", own.clone()), "pod", json!({"overrides": overrides}));
        let server = validate(&manifest(spec), &found).unwrap();
        let template = build(&server, &settings()).0.deployment.unwrap().spec.unwrap().template;
        let env = template.spec.unwrap().containers.swap_remove(1).env.unwrap();
        assert_eq!(serde_json::to_value(env).unwrap(), expected, "{own} with {over}");
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
            "metadata": {"labels": {"team": "tools"}, "annotations": {
                "example.com/note": "x", "eks.amazonaws.com/skip-containers": "helper",
                "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "data,longshore-program",
            }},
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
                "metadata": {"annotations": {
                    "example.com/more": "y", "azure.workload.identity/skip-containers": "helper",
                    "instrumentation.opentelemetry.io/inject-python": "true", "vault.hashicorp.com/agent-inject": "true",
                }},
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
    lookups
        .objects
        .insert((Kind::Secret, "registry".to_owned()), Lookup::Present { keys: Default::default() });
    lookups
        .objects
        .insert((Kind::ConfigMap, "settings".to_owned()), Lookup::Present { keys: Default::default() });
    lookups
        .objects
        .insert((Kind::ServiceAccount, "github".to_owned()), Lookup::Present { keys: Default::default() });
    let server = validate(&manifest(spec), &lookups).unwrap();
    let resources = build(&server, &settings()).0;
    assert_eq!(resources.service_account, None);
    let template = serde_json::to_value(resources.deployment.unwrap()).unwrap()["spec"]["template"].take();
    for (pointer, expected) in [
        ("/metadata/labels/team", json!("tools")),
        ("/metadata/annotations/example.com~1note", json!("x")),
        ("/metadata/annotations/eks.amazonaws.com~1skip-containers", json!("helper,longshore-sidecar")),
        ("/metadata/annotations/azure.workload.identity~1skip-containers", json!("helper;longshore-sidecar")),
        (
            "/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict-local-volumes",
            json!("data,longshore-program"),
        ),
        ("/metadata/annotations/example.com~1more", json!("y")),
        ("/metadata/annotations/instrumentation.opentelemetry.io~1container-names", json!("server")),
        ("/metadata/annotations/vault.hashicorp.com~1agent-inject-containers", json!("server,helper")),
        ("/spec/serviceAccountName", json!("github")),
        ("/spec/automountServiceAccountToken", json!(false)),
        ("/spec/imagePullSecrets", json!([{"name": "registry"}])),
        ("/spec/terminationGracePeriodSeconds", json!(335)),
        ("/spec/containers/0/livenessProbe/terminationGracePeriodSeconds", json!(20)),
        ("/spec/nodeSelector", json!({"disk": "ssd", "kubernetes.io/os": "linux"})),
        ("/spec/tolerations", json!([{"key": "tools", "operator": "Exists"}])),
        ("/spec/affinity", json!({"podAntiAffinity": {}})),
        ("/spec/priorityClassName", json!("high")),
        ("/spec/securityContext/runAsUser", json!(1000)),
        ("/spec/securityContext/fsGroup", json!(2000)),
        ("/spec/securityContext/runAsGroup", json!(65532)),
        ("/spec/securityContext/runAsNonRoot", json!(true)),
        ("/spec/containers/0/args/2", json!("--workers=4")),
        ("/spec/containers/0/args/5", json!("--peers-entry=github.tools.svc.cluster.example.")),
        ("/spec/containers/0/args/7", json!("--longest-call-ms=300000")),
        (
            "/spec/containers/0/resources",
            json!({"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
        ),
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
            {"name": "longshore-token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
            {"name": "data", "mountPath": "/tmp/"},
        ]),
        "a manifest that mounts /tmp gets no other /tmp"
    );
    assert!(!mounts(0).to_string().contains("longshore-token"), "the sidecar never gets a token");
    let volumes: Vec<_> =
        template["spec"]["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(volumes, ["longshore-config", "longshore-program", "longshore-token", "data"]);
}

#[test]
fn what_the_manifest_does_not_say_of_the_sidecars_resources_stays() {
    let cpu = |request: &str| json!({"cpu": request, "memory": "16Mi"});
    let memory = |request: &str| json!({"cpu": "10m", "memory": request});
    for (named, requests, limits) in [
        (json!({}), memory("16Mi"), json!({"memory": "256Mi"})),
        (json!({"requests": {}, "limits": {}}), memory("16Mi"), json!({"memory": "256Mi"})),
        // Where only a limit is named it is the request too, as everywhere in Kubernetes.
        (json!({"limits": {"memory": "96Mi"}}), memory("96Mi"), json!({"memory": "96Mi"})),
        (json!({"limits": {"cpu": "1"}}), cpu("1"), json!({"cpu": "1", "memory": "256Mi"})),
        (
            json!({"limits": {"cpu": "200m", "memory": "128Mi"}}),
            json!({"cpu": "200m", "memory": "128Mi"}),
            json!({"cpu": "200m", "memory": "128Mi"}),
        ),
        (json!({"requests": {"cpu": 2}}), cpu("2"), json!({"memory": "256Mi"})),
        (json!({"requests": {"memory": "64Mi"}}), memory("64Mi"), json!({"memory": "256Mi"})),
        // No request is above its limit.
        (json!({"limits": {"cpu": "0.005"}}), cpu("0.005"), json!({"cpu": "0.005", "memory": "256Mi"})),
        (json!({"requests": {"memory": "1Gi"}}), memory("1Gi"), json!({"memory": "1Gi"})),
        // What contradicts itself is the API server's to refuse.
        (
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "64Mi"}}),
            memory("1Gi"),
            json!({"memory": "64Mi"}),
        ),
    ] {
        let template = template(with(minimal(), "sidecar", json!({"resources": named})));
        let expected = json!({"requests": requests, "limits": limits});
        assert_eq!(template["spec"]["containers"][0]["resources"], expected, "{named}");
    }
}

#[test]
fn an_installation_says_what_sidecars_are_pulled_with_and_may_use() {
    let of = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
    };
    let mut settings = settings();
    settings.sidecar.image_pull_secrets = vec!["mirror".to_owned(), "registry".to_owned()];
    settings.sidecar.requests = of(&[("cpu", "50m"), ("memory", "300Mi")]);
    settings.sidecar.limits = of(&[("memory", "256Mi"), ("cpu", "1")]);
    let mut lookups = found();
    for name in ["registry", "own"] {
        lookups.objects.insert((Kind::Secret, name.to_owned()), Lookup::Present { keys: Default::default() });
    }
    let template = |spec| {
        let deployment =
            build(&validate(&manifest(spec), &lookups).unwrap(), &settings).0.deployment.unwrap();
        serde_json::to_value(deployment.spec.unwrap().template.spec.unwrap()).unwrap()
    };
    let plain = template(minimal());
    assert_eq!(plain["imagePullSecrets"], json!([{"name": "mirror"}, {"name": "registry"}]));
    assert_eq!(
        plain["containers"][0]["resources"],
        json!({"requests": {"cpu": "50m", "memory": "300Mi"}, "limits": {"cpu": "1", "memory": "300Mi"}}),
        "no request is above its limit"
    );
    let named = template(with(
        minimal(),
        "pod",
        json!({"imagePullSecrets": [{"name": "registry"}, {"name": "own"}]}),
    ));
    assert_eq!(named["imagePullSecrets"], json!([{"name": "registry"}, {"name": "own"}, {"name": "mirror"}]));
    let named = template(with(minimal(), "sidecar", json!({"resources": {"limits": {"memory": "64Mi"}}})));
    assert_eq!(
        named["containers"][0]["resources"],
        json!({"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}})
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
        ("strategy", json!({"type": "Recreate"})),
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
