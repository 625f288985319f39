//! The charts against a real API server: what they render is accepted, values that cannot work are refused, and a
//! release comes, changes, goes back and goes without taking anybody's servers with it. (That what they install also
//! works is shown on a node.)

mod releases;
mod values;

use std::process::Command;

use longshore::{CONTROL_PLANE, NAME_LABEL};
use longshore_e2e::cluster::{Cluster, Shape, run};
use longshore_e2e::longshore::helm;
use longshore_e2e::testing::{Kind, Room};
use serde_json::Value;

use values::{REFUSED, RENDERED};

/// A namespace of this test's own.
const NAMESPACE: &str = "chart-test";
const WATCHED: [&str; 2] = ["chart-test-a", "chart-test-b"];

/// What has no default: who may read the catalog, and where the images are.
const SAID: [&str; 2] =
    ["--set", "catalog.auth.none=true,images.operator=a/longshore:1,images.sidecar=a/sidecar:1"];

/// In one test, since all of them have to do with what is in the cluster and not in a namespace.
#[test]
fn the_chart() {
    let _room = Room::take_first(Kind::Objects);
    let cluster = Cluster::start(Shape::ControlPlane).unwrap();
    lints(&cluster);
    refuses_values_that_cannot_work(&cluster);
    refuses_names_that_no_service_can_have(&cluster);
    rights_end_at_the_watched_namespaces(&cluster);
    values_make_what_they_say(&cluster);
    the_test_says_what_a_quota_wants(&cluster);
    amounts_are_the_same_text_however_they_are_set(&cluster);
    blank_lines_leave_the_defaults(&cluster);
    notes_tell_of_targets_that_would_be_down(&cluster);
    a_secret_that_is_deleted_takes_its_keys_along(&cluster);
    an_open_catalog_knows_its_names(&cluster);
    whoever_asks_again_asks_the_same_catalog(&cluster);
    renders_what_the_api_server_takes(&cluster);
    names_may_look_like_numbers(&cluster);
    releases::releases_of_one_name_go_together(&cluster);
    releases::an_upgrade_is_one_of_the_custom_resources(&cluster);
    releases::comes_and_goes_without_taking_servers_along(&cluster);
}

fn lints(cluster: &Cluster) {
    let mut helm = helm(cluster).unwrap();
    helm.args(["lint", "--strict", &chart("longshore"), &chart("longshore-crds")]).args(SAID);
    run(helm).unwrap();
}

/// The kind of the monitors, which comes with the Prometheus operator.
const MONITORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring.yaml");

/// Everything that is rendered is what the API server knows, to the last field.
fn renders_what_the_api_server_takes(cluster: &Cluster) {
    run(kubectl(cluster, &["apply", "-f", MONITORS])).unwrap();
    run(kubectl(cluster, &["wait", "--for=condition=Established", "-f", MONITORS, "--timeout=60s"])).unwrap();
    for namespace in WATCHED.iter().chain([&NAMESPACE]) {
        create_namespace(cluster, namespace);
    }
    for values in RENDERED {
        let manifests = template(cluster, values).unwrap_or_else(|error| panic!("{values}: {error}"));
        try_out(cluster, &manifests).unwrap_or_else(|error| panic!("{values}: {error}"));
    }
}

/// YAML would take them for some.
fn names_may_look_like_numbers(cluster: &Cluster) {
    for namespace in ["123", "1e3"] {
        create_namespace(cluster, namespace);
    }
    let values = "{watchNamespaces: ['123', '1e3'], priorityClassName: '456', \
                  catalog: {auth: {none: false, apiKeysSecret: '789'}}}";
    try_out(cluster, &template_in(cluster, "123", values).unwrap()).unwrap();
}

fn try_out(cluster: &Cluster, manifests: &str) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), manifests).unwrap();
    let mut kubectl = kubectl(cluster, &["apply", "--dry-run=server", "--validate=strict", "-f"]);
    kubectl.arg(file.path());
    run(kubectl).map(drop).map_err(|error| error.to_string())
}

fn refuses_values_that_cannot_work(cluster: &Cluster) {
    for (values, words) in REFUSED {
        match template(cluster, values) {
            Ok(_) => panic!("accepted: {values}"),
            Err(error) => {
                assert!(error.contains(words), "{values} is refused, and {words:?} is not in: {error}")
            }
        }
    }
}

/// Helm takes them, and the API server would refuse a part of the release when the rest is made.
fn refuses_names_that_no_service_can_have(cluster: &Cluster) {
    for (name, taken) in [("team-1", true), ("1st", false), ("team.longshore", false)] {
        let mut helm = helm(cluster).unwrap();
        helm.args(["template", name, &chart("longshore")]).args(SAID);
        match run(helm).map_err(|error| error.to_string()) {
            Ok(_) => assert!(taken, "accepted: {name}"),
            Err(error) => {
                let words = format!("{name:?} cannot be the name of a release of Longshore");
                assert!(!taken && error.contains(&words), "{name}: {error}");
            }
        }
    }
}

/// Who watches some namespaces has no rights in the others.
fn rights_end_at_the_watched_namespaces(cluster: &Cluster) {
    let everywhere = kinds(&template(cluster, "{}").unwrap());
    assert!(everywhere.contains(&("ClusterRoleBinding".to_owned(), None)), "{everywhere:?}");

    let some = kinds(&template(cluster, "{watchNamespaces: [chart-test-a, chart-test-b]}").unwrap());
    assert!(!some.iter().any(|(kind, _)| kind == "ClusterRoleBinding"), "{some:?}");
    for namespace in WATCHED.iter().chain([&NAMESPACE]) {
        let binding = ("RoleBinding".to_owned(), Some((*namespace).to_owned()));
        assert!(some.contains(&binding), "{namespace} is not in {some:?}");
    }
}

/// What the API server would take without it too.
fn values_make_what_they_say(cluster: &Cluster) {
    let objects = |values: &str| -> Vec<Value> {
        let manifests = template(cluster, values).unwrap_or_else(|error| panic!("{values}: {error}"));
        serde_saphyr::from_multiple(&manifests).unwrap()
    };
    let count = |values: &str, kind: &str| objects(values).iter().filter(|it| it["kind"] == kind).count();
    for (values, budgets, policies) in [
        ("{}", 2, 2),
        ("{podDisruptionBudget: {enabled: false}}", 0, 2),
        ("{networkPolicy: {enabled: false}}", 2, 0),
        // The values that `--reuse-values` keeps of a release before them.
        ("{podDisruptionBudget: null, networkPolicy: null}", 2, 2),
    ] {
        let counted = (count(values, "PodDisruptionBudget"), count(values, "NetworkPolicy"));
        assert_eq!(counted, (budgets, policies), "{values}");
    }
    // No pod that fails holds up whoever empties its node.
    for budget in objects("{}").iter().filter(|it| it["kind"] == "PodDisruptionBudget") {
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{budget}");
    }
    let labelled = "commonLabels: {team: tools}";
    // What is rendered twice is no object that can be read.
    let doubled = "podLabels: {team: pods, app.kubernetes.io/name: x}, metrics: {podMonitor: {enabled: true, labels: {team: monitors}}}";
    for object in objects(&format!("{{{labelled}, {doubled}}}")) {
        let label = &object["metadata"]["labels"]["team"];
        match object["kind"].as_str() {
            // They may be another release's as well.
            Some("CustomResourceDefinition") => assert_eq!(label, &Value::Null),
            Some("PodMonitor") => assert_eq!(label, "monitors"),
            _ => assert_eq!(label, "tools", "{object}"),
        }
        let of_pods = &object["spec"]["template"]["metadata"]["labels"];
        if !of_pods.is_null() {
            let selected = &object["spec"]["selector"]["matchLabels"];
            assert!(of_pods["team"] == "pods" && of_pods["helm.sh/chart"].is_string(), "{object}");
            assert_eq!(of_pods["app.kubernetes.io/component"], selected["app.kubernetes.io/component"]);
            assert_eq!(of_pods[NAME_LABEL], CONTROL_PLANE, "servers' sidecars would not let it in");
        }
    }
    for object in objects(&format!("{{{labelled}, metrics: {{podMonitor: {{enabled: true}}}}}}")) {
        let of_pods = &object["spec"]["template"]["metadata"]["labels"];
        assert!(of_pods.is_null() || of_pods["team"] == "tools", "{object}");
        let selector = &object["spec"]["selector"]["matchLabels"];
        assert_eq!(selector["team"], Value::Null, "it would be another selector after each change: {object}");
    }
    for (values, nodes) in [
        ("{}", serde_json::json!({"kubernetes.io/os": "linux"})),
        ("{nodeSelector: {disk: ssd}}", serde_json::json!({"disk": "ssd", "kubernetes.io/os": "linux"})),
        ("{nodeSelector: {kubernetes.io/os: other}}", serde_json::json!({"kubernetes.io/os": "other"})),
    ] {
        for object in objects(values) {
            match object["kind"].as_str() {
                Some("Deployment") => assert_eq!(object["spec"]["template"]["spec"]["nodeSelector"], nodes),
                Some("Pod") => assert_eq!(object["spec"]["nodeSelector"], nodes),
                _ => {}
            }
        }
    }
    let monitors = |values: &str| -> Vec<Value> {
        objects(values).into_iter().filter(|it| it["kind"] == "PodMonitor").collect()
    };
    assert_eq!(monitors("{}"), [Value::Null; 0]);
    let enabled = "podMonitor: {enabled: true, labels: {release: prometheus}}";
    for (values, namespaces) in [
        (format!("{{metrics: {{{enabled}}}}}"), serde_json::json!({"any": true})),
        (
            format!("{{metrics: {{{enabled}}}, watchNamespaces: [{}]}}", WATCHED[0]),
            serde_json::json!({"matchNames": [WATCHED[0]]}),
        ),
    ] {
        let monitors = monitors(&values);
        assert!(
            monitors.iter().all(|it| it["metadata"]["labels"]["release"] == "prometheus"),
            "{monitors:?}"
        );
        // Whoever may run pods can have one of them scraped too.
        let is_bounded = |it: &Value| it["sampleLimit"] == 5000 && it["bodySizeLimit"] == "4MB";
        assert!(monitors.iter().all(|it| is_bounded(&it["spec"])), "{monitors:?}");
        let [own, servers] = <[Value; 2]>::try_from(monitors).unwrap();
        assert_eq!(own["spec"]["podMetricsEndpoints"][0]["port"], "http");
        assert_eq!(servers["spec"]["podMetricsEndpoints"][0]["port"], "admin");
        assert_eq!(servers["spec"]["namespaceSelector"], namespaces);
        // Whose they are is not in the series.
        assert_eq!(servers["spec"]["podTargetLabels"], serde_json::json!(["longshore.dev/server"]));
    }
}

/// Helm has a whole number as another kind of number once it was stored with the release. If that were another text, an
/// upgrade that changes nothing would make new pods of all servers.
fn amounts_are_the_same_text_however_they_are_set(cluster: &Cluster) {
    let limits = |values: &str, more: &[&str]| -> String {
        let manifests = template_with(cluster, NAMESPACE, values, more).unwrap();
        let line = manifests.lines().find(|line| line.contains("--sidecar-limits=")).unwrap();
        line.trim().trim_start_matches("- --sidecar-limits=").to_owned()
    };
    let amount = "sidecar.resources.limits.memory=268435456";
    for (values, more) in [
        ("{}", &["--set", amount][..]),
        ("{}", &["--set-string", amount]),
        ("{sidecar: {resources: {limits: {memory: 268435456}}}}", &[]),
        ("{sidecar: {resources: {limits: {memory: '268435456'}}}}", &[]),
    ] {
        assert_eq!(limits(values, more), "memory=268435456", "{values} {more:?}");
    }
    assert_eq!(limits("{sidecar: {resources: {limits: {cpu: 0.5}}}}", &[]), "cpu=0.5,memory=256Mi");
}

/// Programs would not start with an empty flag.
fn blank_lines_leave_the_defaults(cluster: &Cluster) {
    let manifests = template(cluster, "{}").unwrap();
    for name in ["imagePullPolicy", "logLevel", "replicas", "upgradesAtOnce"] {
        assert_eq!(template(cluster, &format!("{{{name}: null}}")).unwrap(), manifests, "{name}");
    }
}

/// A quota of CPU or memory keeps out pods that leave one of these out, and no value says them for `helm test`.
fn the_test_says_what_a_quota_wants(cluster: &Cluster) {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&template(cluster, "{}").unwrap()).unwrap();
    let pod = objects.iter().find(|it| it["kind"] == "Pod").expect("there is a test");
    for container in pod["spec"]["containers"].as_array().expect("it has containers") {
        for amounts in ["requests", "limits"].map(|kind| &container["resources"][kind]) {
            assert!(amounts["cpu"].is_string() && amounts["memory"].is_string(), "{container}");
        }
    }
}

/// Prometheus is kept out unless its namespace is named, and its targets alone would say so.
fn notes_tell_of_targets_that_would_be_down(cluster: &Cluster) {
    let enabled = "metrics.podMonitor.enabled=true";
    let rules = "metrics.prometheusRule.enabled=true";
    let credentials = "imagePullSecrets[0].name=registry";
    for (values, words) in [
        (&[][..], None),
        (&[credentials], None),
        (&[enabled], Some("none of the pods, and their targets are down")),
        (&[enabled, "networkPolicy.enabled=false"], Some("no server's pod, and their targets are down")),
        (&[enabled, "metrics.from[0].team=a"], None),
        (&[rules], Some("none of the pods, and their targets are down")),
        (&[rules], Some("the alert LongshoreNotHeard comes")),
        (&[enabled, rules, "metrics.from[0].team=a"], None),
    ] {
        let mut helm = helm(cluster).unwrap();
        helm.args([
            "install",
            "longshore",
            &chart("longshore"),
            "--namespace",
            NAMESPACE,
            "--dry-run=client",
        ]);
        helm.args(SAID).args(values.iter().flat_map(|value| ["--set", value]));
        let printed = run(helm).unwrap();
        let (_, notes) = printed.split_once("\nNOTES:\n").unwrap();
        assert!(notes.contains("kubectl apply"), "{values:?}: {notes}");
        assert!(!notes.contains("auth: {none"), "the first server is for whoever has a key: {notes}");
        let pod = r#"  pod: {imagePullSecrets: [{"name":"registry"}]}"#;
        assert_eq!(notes.lines().any(|line| line == pod), values == [credentials], "{values:?}: {notes}");
        let copy = "copy them to the namespace default first.";
        assert_eq!(notes.contains(copy), values == [credentials], "{values:?}: {notes}");
        assert_eq!(notes.contains("LongshoreNotHeard"), values == [rules], "{values:?}: {notes}");
        assert_eq!(notes.contains("targets are down"), words.is_some(), "{values:?}: {notes}");
        assert!(words.is_none_or(|words| notes.contains(words)), "{values:?}: {notes}");
    }
}

/// The kubelet leaves the files of a Secret that is deleted, unless the volume says that it need not be there.
fn a_secret_that_is_deleted_takes_its_keys_along(cluster: &Cluster) {
    let manifests = template(cluster, "{catalog: {auth: {none: false, apiKeysSecret: readers}}}").unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
    let mut volumes = objects
        .iter()
        .filter_map(|object| object["spec"]["template"]["spec"]["volumes"].as_array())
        .flatten();
    let keys = volumes.find(|volume| volume["name"] == "api-keys").unwrap();
    assert_eq!(keys["secret"]["optional"], true, "{keys}");
}

/// Whoever asks by another one may be a page in somebody's browser.
fn an_open_catalog_knows_its_names(cluster: &Cluster) {
    let hosts = |values: &str| -> Vec<String> {
        let manifests = template(cluster, values).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
        let arguments = objects
            .iter()
            .filter_map(|object| object["spec"]["template"]["spec"]["containers"][0]["args"].as_array())
            .find(|arguments| arguments[0] == "catalog")
            .unwrap();
        let hosts = arguments.iter().filter_map(|it| it.as_str()?.strip_prefix("--host="));
        hosts.map(str::to_owned).collect()
    };
    let service = format!("longshore-catalog.{NAMESPACE}");
    assert_eq!(
        hosts("{clusterDomain: cluster.example, catalog: {hosts: [catalog.example]}}"),
        ["longshore-catalog", &service, &format!("{service}.svc"), "catalog.example",]
    );
    let keys = "{catalog: {auth: {none: false, apiKeysSecret: readers}, hosts: [catalog.example]}}";
    assert_eq!(hosts(keys), [""; 0], "a key is needed by any name");
}

/// Each has tags of its own for what it answers.
fn whoever_asks_again_asks_the_same_catalog(cluster: &Cluster) {
    let manifests = template(cluster, "{}").unwrap();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&manifests).unwrap();
    let is_service =
        |object: &&Value| object["kind"] == "Service" && object["metadata"]["name"] == "longshore-catalog";
    let service = objects.iter().find(is_service).unwrap();
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
}

fn template(cluster: &Cluster, values: &str) -> Result<String, String> {
    template_in(cluster, NAMESPACE, values)
}

fn template_in(cluster: &Cluster, namespace: &str, values: &str) -> Result<String, String> {
    template_with(cluster, namespace, values, &[])
}

/// With more arguments.
fn template_with(cluster: &Cluster, namespace: &str, values: &str, more: &[&str]) -> Result<String, String> {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    // Values from a file go beneath those that are set, so this one goes first.
    let said = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let words =
        "{catalog: {auth: {none: true}}, images: {operator: 'a/longshore:1', sidecar: 'a/sidecar:1'}}";
    std::fs::write(said.path(), words).unwrap();
    std::fs::write(file.path(), values).unwrap();
    let mut helm = helm(cluster).unwrap();
    helm.args(["template", "longshore", &chart("longshore"), "--namespace", namespace, "--values"])
        .arg(said.path())
        .arg("--values")
        .arg(file.path())
        .args(more);
    run(helm).map_err(|error| error.to_string())
}

/// Kind and namespace of every object.
fn kinds(manifests: &str) -> Vec<(String, Option<String>)> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    objects
        .iter()
        .map(|object| {
            let namespace = object["metadata"]["namespace"].as_str().map(str::to_owned);
            (object["kind"].as_str().unwrap().to_owned(), namespace)
        })
        .collect()
}

fn create_namespace(cluster: &Cluster, name: &str) {
    let exists = run(kubectl(cluster, &["get", "namespace", name])).is_ok();
    if !exists {
        run(kubectl(cluster, &["create", "namespace", name])).unwrap();
    }
}

fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut kubectl = cluster.command("kubectl").unwrap();
    kubectl.args(arguments);
    kubectl
}

/// A chart as it lies in the checkout: nothing has to be done to it before it can be installed.
fn chart(name: &str) -> String {
    format!("{}/../charts/{name}", env!("CARGO_MANIFEST_DIR"))
}
