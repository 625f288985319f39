//! What a manifest may ask for, and what reaches the pods that are there when it asks for more.

use std::collections::BTreeMap;

use longshore_crds::api_keys::KeyProblem;
use longshore_sidecar_config::{ApiKey, InventoryAccess};
use serde_json::{Value, json};

use super::*;
use crate::api_keys::ParsedKeys;
use crate::mcp_server::build::{Prepared, Resources, build};
use crate::mcp_server::condition::Reason;
use crate::mcp_server::dereference::ApiKeysLookup;
use crate::mcp_server::references;
use crate::mcp_server::session_keys::SessionKeys;
use crate::settings::Settings;

impl Dereferenced {
    /// Nothing exists, and the manifest names none of it.
    pub(crate) fn of_tests() -> Self {
        Self {
            objects: BTreeMap::new(),
            api_keys: ApiKeysLookup::NotNamed,
            mounted_upstreams: vec![],
            inventory: InventoryAccess {
                issuer: "https://issuer.example".to_owned(),
                subjects: vec![],
                jwks: json!({"keys": []}),
            },
            session_keys: SessionKeys::of_tests(),
        }
    }
}

/// A server with one API key, whose manifest has this besides.
fn server(source: Value, pod: Value) -> McpServer {
    let mut server = json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"name": "demo", "namespace": "tools", "uid": "7b1c", "generation": 3},
        "spec": {
            "source": {"image": "example/demo:1"},
            "transport": {"streamableHttp": {"port": 3000}},
            "auth": {"apiKeys": {"secretRef": {"name": "callers"}}},
            "pod": pod,
        },
    });
    server["spec"]["source"].as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    serde_json::from_value(server).unwrap()
}

/// Nothing exists but the API key.
fn found() -> Dereferenced {
    let keys = vec![ApiKey { principal: "ada".to_owned(), sha256: "11".to_owned() }];
    let api_keys = ApiKeysLookup::Present(ParsedKeys { keys, problems: vec![] });
    Dereferenced { api_keys, ..Dereferenced::of_tests() }
}

fn prepared(server: &McpServer, found: &Dereferenced) -> (Vec<Problem>, Resources<Prepared>) {
    let validated = validate(server, found).unwrap();
    (validated.readiness.problems().to_vec(), build(&validated, &Settings::of_tests()).0)
}

#[test]
fn one_principal_gets_a_share_of_the_processes() {
    let keys = json!({"apiKeys": {"secretRef": {"name": "callers"}}});
    for (stdio, auth, expected) in [
        (json!({}), &keys, (32, 8)),
        (json!({}), &json!({"none": {}}), (32, 32)),
        (json!({"maxProcesses": 3}), &keys, (3, 1)),
        (json!({"maxProcesses": 10, "maxProcessesPerPrincipal": 10}), &keys, (10, 10)),
        (json!({"maxProcesses": 10, "maxProcessesPerPrincipal": 11}), &keys, (10, 10)),
    ] {
        let mut server = server(json!({"command": ["/server"]}), json!({}));
        server.spec.transport = serde_json::from_value(json!({"stdio": stdio})).unwrap();
        server.spec.auth = serde_json::from_value(auth.clone()).unwrap();
        let limits = validate(&server, &found()).unwrap().limits.processes.unwrap();
        assert_eq!((limits.total, limits.per_principal), expected, "{stdio} {auth}");
    }
}

#[test]
fn one_principal_gets_a_share_of_the_sessions() {
    let keys = json!({"apiKeys": {"secretRef": {"name": "callers"}}});
    for (sessions, auth, expected) in [
        (json!({}), &keys, (10_000, 1000)),
        (json!({}), &json!({"none": {}}), (10_000, 10_000)),
        (json!({"total": 3}), &keys, (3, 1)),
        (json!({"total": 10, "perPrincipal": 10}), &keys, (10, 10)),
        (json!({"total": 10, "perPrincipal": 11}), &keys, (10, 10)),
    ] {
        let mut server = server(json!({}), json!({}));
        server.spec.sessions = serde_json::from_value(sessions.clone()).unwrap();
        server.spec.auth = serde_json::from_value(auth.clone()).unwrap();
        let found = validate(&server, &found()).unwrap().sessions;
        assert_eq!((found.total, found.per_principal), expected, "{sessions} {auth}");
    }
}

#[test]
fn a_stdio_server_needs_a_command() {
    let mut server = server(json!({}), json!({}));
    server.spec.transport = serde_json::from_value(json!({"stdio": {}})).unwrap();
    let (problems, resources) = prepared(&server, &found());
    assert!(problems.len() == 1 && problems[0].message.starts_with("spec.source.command: "), "{problems:?}");
    assert_eq!(resources.deployment, None);
}

#[test]
fn a_pod_that_may_not_be_is_not_made_and_keys_reach_the_one_that_is_there() {
    let (problems, fine) = prepared(&server(json!({}), json!({})), &found());
    assert!(problems.is_empty() && fine.deployment.is_some(), "{problems:?}");
    let overrides = |spec: Value| json!({"overrides": {"spec": spec}});
    let container = |context: Value| json!({"containers": [{"name": "server", "securityContext": context}]});
    for (source, pod, complaint) in [
        (json!({"image": " "}), json!({}), "spec.source.image: "),
        (
            json!({}),
            json!({"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}),
            "spec.pod.volumes[0].hostPath: ",
        ),
        (json!({}), json!({"volumes": [{"name": "a", "emptyDyr": {}}]}), "spec.pod.volumes[0].emptyDyr: "),
        (json!({}), json!({"volumes": [{"name": "a", "emptyDir": 7}]}), "spec.pod.volumes[0]: "),
        (json!({}), json!({"affinity": {"podAfinity": {}}}), "spec.pod.affinity.podAfinity: "),
        (json!({}), json!({"overrides": {"spec": {"containers": 7}}}), "spec.pod.overrides: "),
        (
            json!({}),
            json!({"overrides": {"x": vec![json!({"a": 1}); 5000]}}),
            "spec.pod.overrides: it has more than 128 KiB or 8192 values",
        ),
        // To merge so many takes time that grows with their square.
        (
            json!({}),
            overrides(json!({"containers": [{"name": "server", "env": vec![json!({"name": "A"}); 80_000]}]})),
            "spec.pod.overrides: it has more than ",
        ),
        (json!({}), json!({"affinity": {"x": "a".repeat(200_000)}}), "spec.pod.affinity: it has more than "),
        (
            json!({}),
            json!({"volumes": [{"name": "a", "projected": {"sources": vec![json!({}); 9000]}}]}),
            "spec.pod.volumes: it has more than ",
        ),
        (json!({}), overrides(json!({"hostNetwork": true})), "spec.pod.overrides.spec.hostNetwork: "),
        (
            json!({}),
            overrides(json!({"shareProcessNamespace": true})),
            "spec.pod.overrides.spec.shareProcessNamespace: ",
        ),
        (
            json!({}),
            overrides(container(json!({"privileged": true}))),
            "spec.pod.overrides.spec.containers[0].securityContext.privileged: ",
        ),
        (json!({}), json!({"securityContext": {"runAsUser": 15380}}), "spec.pod.securityContext.runAsUser: "),
        (
            json!({}),
            json!({"volumeMounts": [{"name": "a", "mountPath": "/run"}]}),
            "spec.pod.volumeMounts[0].mountPath: ",
        ),
        (json!({}), json!({"metadata": {"labels": {"longshore.dev/x": "y"}}}), "spec.pod.metadata.labels: "),
    ] {
        let (problems, resources) = prepared(&server(source.clone(), pod.clone()), &found());
        assert!(
            problems.len() == 1
                && problems[0].reason == Reason::Invalid
                && problems[0].message.starts_with(complaint),
            "{source} {pod}: {problems:?}"
        );
        assert_eq!(resources.deployment, None, "{complaint}");
        assert_eq!(resources.secret, fine.secret, "{complaint}");
        assert_eq!(resources.config_maps, fine.config_maps, "{complaint}");
    }
}

#[test]
fn what_is_wrong_with_the_pod_is_said_with_what_is_wrong_with_the_configuration() {
    let mut both = server(json!({"image": " "}), json!({}));
    both.spec.limits.request_bytes = "many".to_owned();
    let problems = validate(&both, &found()).unwrap_err();
    let fields: Vec<_> = problems.iter().filter_map(|problem| problem.message.split(": ").next()).collect();
    assert_eq!(fields, ["spec.limits.requestBytes", "spec.source.image"]);
}

#[test]
fn secrets_of_longshores_own_are_reserved_before_they_exist() {
    let own = "demo-longshore-keys";
    let volume = |volume: Value| json!({"volumes": [volume]});
    for (source, pod) in [
        (json!({}), volume(json!({"name": "a", "secret": {"secretName": own, "optional": true}}))),
        (json!({}), volume(json!({"name": "a", "secret": {"secretName": "other-longshore-keys"}}))),
        (
            json!({}),
            volume(
                json!({"name": "a", "projected": {"sources": [{"secret": {"name": own, "optional": true}}]}}),
            ),
        ),
        (
            json!({}),
            json!({"overrides": {"spec": {
                "containers": [],
                "volumes": [{"name": "a", "secret": {"secretName": own, "optional": true}}],
            }}}),
        ),
        (
            json!({"env": [{"name": "K", "valueFrom": {
                "secretKeyRef": {"name": own, "key": "keys.json", "optional": true}}}]}),
            json!({}),
        ),
        (json!({"envFrom": [{"secretRef": {"name": own, "optional": true}}]}), json!({})),
        (json!({}), json!({"imagePullSecrets": [{"name": own}]})),
    ] {
        let (problems, resources) = prepared(&server(source.clone(), pod.clone()), &found());
        assert!(
            problems.len() == 1 && problems[0].reason == Reason::SecretReserved,
            "{source} {pod}: {problems:?}"
        );
        assert_eq!(resources.deployment, None, "{source} {pod}");
        assert_eq!(resources.secret.metadata.name.as_deref(), Some(own));
    }
    let mut callers = server(json!({}), json!({}));
    callers.spec.auth.api_keys.as_mut().unwrap().secret_ref.name = own.to_owned();
    let first = Dereferenced { api_keys: ApiKeysLookup::Missing, ..found() };
    let (problems, resources) = prepared(&callers, &first);
    assert!(problems.len() == 1 && problems[0].reason == Reason::SecretReserved, "{problems:?}");
    assert_eq!(resources.deployment, None);
    // A ConfigMap may have any name, and a Secret one that only looks like it.
    let pod = json!({"volumes": [
        {"name": "a", "configMap": {"name": own, "optional": true}},
        {"name": "b", "secret": {"secretName": "longshore-keys", "optional": true}},
    ]});
    assert!(prepared(&server(json!({}), pod), &found()).1.deployment.is_some());
}

/// None of these can be asked for: a request for ` ` is none, one for `/` is one for all of them.
#[test]
fn names_that_no_object_can_have_are_refused_where_it_has_to_be_there() {
    let long = "a".repeat(254);
    for name in [" ", "/", "../a", "a\u{0}b", "a?b", "Upper", "\u{e9}", "-a", "a-", "a..b", ".", &long] {
        let key = json!({"name": name, "key": "k"});
        for (source, pod, field) in [
            (
                json!({"env": [{"name": "K", "valueFrom": {"secretKeyRef": key}}]}),
                json!({}),
                "spec.source.env[0].valueFrom.secretKeyRef: ",
            ),
            (
                json!({"envFrom": [{"configMapRef": {"name": name}}]}),
                json!({}),
                "spec.source.envFrom[0].configMapRef: ",
            ),
            (json!({}), json!({"imagePullSecrets": [{"name": name}]}), "spec.pod.imagePullSecrets[0]: "),
            (json!({}), json!({"serviceAccountName": name}), "spec.pod.serviceAccountName: "),
        ] {
            let (problems, resources) = prepared(&server(source, pod), &found());
            let [problem] = &problems[..] else { panic!("{name:?} {field} {problems:?}") };
            assert!(
                problem.reason == Reason::Invalid && problem.message.starts_with(field),
                "{}",
                problem.message
            );
            assert_eq!(resources.deployment, None, "{name:?} {field}");
        }
    }
    let source = json!({"envFrom": [{"secretRef": {"name": "Upper", "optional": true}}]});
    assert!(prepared(&server(source, json!({})), &found()).1.deployment.is_some());
    let pod =
        json!({"volumes": [{"name": "a", "configMap": {"name": "1.kube-root-ca.crt", "optional": true}}]});
    assert!(prepared(&server(json!({}), pod), &found()).1.deployment.is_some());
}

#[test]
fn a_line_that_is_no_key_holds_nothing_back_while_somebody_has_one() {
    let bad = || KeyProblem::NoKeys { principal: "bob".to_owned() };
    let good = || ApiKey { principal: "ada".to_owned(), sha256: "11".to_owned() };
    for (keys, problems, held_back) in [
        (vec![good()], vec![], false),
        (vec![good()], vec![bad()], false),
        (vec![], vec![bad()], true),
        (vec![], vec![KeyProblem::Empty], true),
    ] {
        let parsed = ParsedKeys { keys, problems };
        let found = Dereferenced { api_keys: ApiKeysLookup::Present(parsed.clone()), ..found() };
        let validated = validate(&server(json!({}), json!({})), &found).unwrap();
        assert_eq!(validated.is_held_back(), held_back, "{parsed:?}");
        assert!(build(&validated, &Settings::of_tests()).0.deployment.is_some(), "{parsed:?}");
    }
    let nobody = Dereferenced { api_keys: ApiKeysLookup::Missing, ..found() };
    assert!(validate(&server(json!({}), json!({})), &nobody).unwrap().is_held_back());
}

#[test]
fn of_very_many_mistakes_the_first_are_told_and_how_many_more_there_are() {
    let wrong = vec!["[z-a]"; 60_000];
    let mut server = serde_json::to_value(server(json!({}), json!({}))).unwrap();
    server["spec"]["access"] = json!({"rules": [{"name": "a", "tools": wrong}]});
    let (problems, _) = prepared(&serde_json::from_value(server.clone()).unwrap(), &found());
    assert_eq!(problems.len(), MOST_PROBLEMS + 1);
    assert!(problems[0].message.starts_with("spec.access.rules[0].tools[0]: "), "{}", problems[0].message);
    let last = &problems[MOST_PROBLEMS].message;
    assert_eq!(*last, format!("{} more like these", 60_000 - MOST_PROBLEMS));
    // And where nothing can be made of it.
    server["spec"]["transport"] = json!({});
    let problems = validate(&serde_json::from_value(server).unwrap(), &found()).unwrap_err();
    assert_eq!(problems.len(), MOST_PROBLEMS + 1);
    assert!(problems[0].message.starts_with("spec.transport: "), "{}", problems[0].message);
}

#[test]
fn a_manifest_may_not_name_more_objects_than_are_read() {
    let naming = |objects: usize| {
        let env: Vec<Value> = (0..objects)
            .map(|number| json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": format!("s-{number}"), "key": "a", "optional": true}}}))
            .collect();
        // Each twice: what counts is objects.
        let containers = json!([{"name": "more", "env": env}, {"name": "again", "env": env}]);
        server(json!({}), json!({"overrides": {"spec": {"containers": containers}}}))
    };
    assert_eq!(prepared(&naming(references::MOST), &found()).0, []);
    let (problems, resources) = prepared(&naming(references::MOST + 1), &found());
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    let field = "spec.pod.overrides.spec.containers[0].env[512].valueFrom.secretKeyRef: ";
    assert!(problem.reason == Reason::Invalid && problem.message.starts_with(field), "{}", problem.message);
    assert_eq!(resources.deployment, None);
}

#[test]
fn a_sidecar_has_the_memory_that_it_takes_to_run() {
    for (limit, is_refused) in
        [("1Mi", true), ("16383Ki", true), ("1", true), ("0", false), ("16Mi", false), ("1Gi", false)]
    {
        let mut server = server(json!({}), json!({}));
        server.spec.sidecar.resources =
            serde_json::from_value(json!({"limits": {"memory": limit, "cpu": "1"}})).unwrap();
        let (problems, resources) = prepared(&server, &found());
        let said = problems.iter().any(|it| it.message.starts_with("spec.sidecar.resources.limits.memory: "));
        assert_eq!((said, resources.deployment.is_none()), (is_refused, is_refused), "{limit}: {problems:?}");
    }
}

/// Whatever passes `kubectl apply` and is wrong: a key that is revoked meanwhile stops working.
#[test]
fn a_revoked_key_goes_from_running_pods_whatever_else_is_wrong() {
    let two = || {
        let key = |principal: &str| ApiKey { principal: principal.to_owned(), sha256: "11".to_owned() };
        let parsed = ParsedKeys { keys: vec![key("ada"), key("bob")], problems: vec![] };
        Dereferenced { api_keys: ApiKeysLookup::Present(parsed), ..found() }
    };
    let keys_of = |resources: &Resources<Prepared>| {
        String::from_utf8(resources.secret.data.clone().unwrap().remove("keys.json").unwrap().0).unwrap()
    };
    for (change, complaint) in [
        (
            json!({"access": {"rules": [{"name": "a", "tools": ["[z-a]"]}]}}),
            "spec.access.rules[0].tools[0]: ",
        ),
        (json!({"tools": {"exclude": ["[z-a]"]}}), "spec.tools.exclude[0]: "),
        (json!({"tools": {"include": ["[\u{e9}]*"]}}), "spec.tools.include[0]: "),
        (
            json!({"transport": {"sse": {"port": 3000}, "protocol": "2026-07-28"}}),
            "spec.transport.protocol: ",
        ),
        (
            json!({"auth": {"apiKeys": {"secretRef": {"name": "x-longshore-keys"}}}}),
            "spec.auth.apiKeys.secretRef: ",
        ),
    ] {
        let mut server = serde_json::to_value(server(json!({}), json!({}))).unwrap();
        server["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let server: McpServer = serde_json::from_value(server).unwrap();
        for (found, bob) in [(two(), true), (found(), false)] {
            let (problems, resources) = prepared(&server, &found);
            assert!(
                problems.len() == 1 && problems[0].message.starts_with(complaint),
                "{change}: {problems:?}"
            );
            assert_eq!(resources.deployment, None, "{change}");
            // A Secret that may not be named gives nobody a key.
            let bob = bob && !complaint.starts_with("spec.auth");
            assert_eq!(keys_of(&resources).contains("bob"), bob, "{change}");
        }
    }
}

#[test]
fn what_a_glob_that_cannot_be_read_was_to_say_is_denied() {
    let of = |change: Value| {
        let mut server = serde_json::to_value(server(json!({}), json!({}))).unwrap();
        server["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        validate(&serde_json::from_value(server).unwrap(), &found()).unwrap()
    };
    let validated = of(json!({"access": {"rules": [
        {"name": "a", "principals": ["[z-a]"], "tools": ["[z-a]", "get"], "prompts": ["[z-a]"],
         "resources": ["[z-a]", "file:///a"]},
        {"name": "b", "tools": ["*"]},
    ]}}));
    assert_eq!(
        serde_json::to_value(&validated.access).unwrap(),
        json!([
            {"name": "a", "principals": [], "tools": ["get"], "prompts": [], "resources": ["file:///a"]},
            {"name": "b", "principals": null, "tools": ["*"], "prompts": [], "resources": []},
        ])
    );
    let globs = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
    for (include, exclude, expected_include, expected_exclude) in [
        (&["get"][..], &["a"][..], &["get"][..], &["a"][..]),
        (&["get", "[z-a]"], &["a"], &["get"], &["a"]),
        (&["[z-a]"], &["a"], &[], &["*"]),
        (&["get", "[\u{e9}]"], &["[!\u{e9}]"], &["get"], &["*"]),
        (&["get"], &["a", "[z-a]"], &["get"], &["*"]),
        (&[], &[], &[], &[]),
    ] {
        let tools = of(json!({"tools": {"include": include, "exclude": exclude}})).tools;
        assert_eq!(
            (tools.include, tools.exclude),
            (globs(expected_include), globs(expected_exclude)),
            "{include:?} {exclude:?}"
        );
    }
}
