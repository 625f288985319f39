//! Releases: they come, change, go back and go, beside others and without taking anybody's servers with them.

use std::process::Command;
use std::time::{Duration, Instant};

use longshore_e2e::cluster::{Cluster, run};
use longshore_e2e::longshore::helm;
use longshore_e2e::testing::PATIENCE;

use super::{NAMESPACE, SAID, WATCHED, chart, create_namespace, kubectl};

/// Two teams of one cluster, each with a Longshore for its own namespace.
pub(super) fn releases_of_one_name_go_together(cluster: &Cluster) {
    let release = |arguments: &[&str], namespace: &str| {
        let mut helm = helm(cluster).unwrap();
        helm.args(arguments).args(["--namespace", namespace]);
        run(helm).unwrap()
    };
    let chart = chart("longshore");
    for (namespace, crds) in WATCHED.into_iter().zip(["crds.enabled=true", "crds.enabled=false"]) {
        let watched = format!("watchNamespaces={{{namespace}}}");
        let values = [SAID[0], SAID[1], "--set", &watched, "--set", crds];
        release(&[&["install", "longshore", &*chart][..], &values].concat(), namespace);
    }
    for namespace in WATCHED {
        release(&["uninstall", "longshore"], namespace);
    }
    // They stay, as that release's.
    run(kubectl(cluster, &["delete", "crd", "mcpservers.longshore.dev"])).unwrap();
}

/// Helm itself leaves those of a chart's folder `crds` as they are.
pub(super) fn an_upgrade_is_one_of_the_custom_resources(cluster: &Cluster) {
    const COLUMN: &str = "    - description: How many tools the server has
      jsonPath: .status.tools.count
      name: Tools
      type: integer
";
    create_namespace(cluster, NAMESPACE);
    let folder = tempfile::tempdir().unwrap();
    let earlier = folder.path().join("longshore");
    let mut copy = Command::new("cp");
    copy.args(["-r", &chart("longshore")]).arg(&earlier);
    run(copy).unwrap();
    let manifest = earlier.join("charts/longshore-crds/templates/mcpservers.yaml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let (before, after) = text.split_once(COLUMN).expect("the column is there");
    std::fs::write(&manifest, [before, after].concat()).unwrap();
    let columns = || {
        let path = "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}";
        run(kubectl(cluster, &["get", "crd", "mcpservers.longshore.dev", "-o", path])).unwrap()
    };
    for (action, chart, expected) in
        [("install", earlier.display().to_string(), false), ("upgrade", chart("longshore"), true)]
    {
        let mut helm = helm(cluster).unwrap();
        helm.args([action, "longshore", &chart, "--namespace", NAMESPACE]).args(SAID);
        run(helm).unwrap();
        let columns = columns();
        assert_eq!(columns.contains("Tools"), expected, "after helm {action}: {columns}");
    }
    let mut helm = helm(cluster).unwrap();
    helm.args(["uninstall", "longshore", "--namespace", NAMESPACE]);
    run(helm).unwrap();
}

/// Install, upgrade, rollback, uninstall, install again: the CRD and the servers are there throughout.
pub(super) fn comes_and_goes_without_taking_servers_along(cluster: &Cluster) {
    create_namespace(cluster, NAMESPACE);
    let release = |arguments: &[&str]| {
        let mut helm = helm(cluster).unwrap();
        helm.args(arguments).args(["--namespace", NAMESPACE]);
        run(helm).unwrap()
    };
    let chart = chart("longshore");

    let notes = release(&["install", "longshore", &chart, SAID[0], SAID[1]]);
    assert!(notes.contains("kubectl apply"), "the notes do not say what to do next: {notes}");
    get(cluster, "poddisruptionbudget", "longshore").unwrap();
    let manifest = tempfile::NamedTempFile::new().unwrap();
    let server = "apiVersion: longshore.dev/v1alpha1\nkind: McpServer\nmetadata: {name: kept, namespace: chart-test}\n\
                  spec: {source: {image: a}, transport: {streamableHttp: {port: 1}}, auth: {none: {}}}\n";
    std::fs::write(manifest.path(), server).unwrap();
    let mut apply = kubectl(cluster, &["apply", "-f"]);
    apply.arg(manifest.path());
    run(apply).unwrap();

    people_may_do_with_servers_what_they_may_do_with_the_rest(cluster);

    release(&["upgrade", "longshore", &chart, SAID[0], SAID[1], "--set", "replicas=1"]);
    assert!(get(cluster, "poddisruptionbudget", "longshore").is_err(), "one operator needs no budget");
    get(cluster, "poddisruptionbudget", "longshore-catalog").unwrap();
    release(&["rollback", "longshore", "1"]);
    get(cluster, "poddisruptionbudget", "longshore").unwrap();

    release(&["uninstall", "longshore"]);
    assert!(get(cluster, "deployment", "longshore").is_err());
    let kept = get(cluster, "mcpserver", "kept").unwrap();
    release(&["install", "longshore", &chart, SAID[0], SAID[1]]);
    assert_eq!(get(cluster, "mcpserver", "kept").unwrap(), kept, "the server is another one");
    release(&["uninstall", "longshore"]);
    run(kubectl(cluster, &["delete", "--namespace", NAMESPACE, "mcpserver", "kept"])).unwrap();
}

/// Whoever has the cluster's role `view`, `edit` or `admin` has it for servers too.
fn people_may_do_with_servers_what_they_may_do_with_the_rest(cluster: &Cluster) {
    for role in ["view", "edit", "admin"] {
        let (binding, cluster_role) = (format!("{role}s"), format!("--clusterrole={role}"));
        let arguments = ["create", "rolebinding", &binding, "--namespace", NAMESPACE, &cluster_role];
        run(kubectl(cluster, &[&arguments[..], &[&format!("--user={role}er")]].concat())).unwrap();
    }
    let may = |user: &str, verb: &str, resource: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let subresource = format!("--subresource={subresource}");
        let arguments =
            ["auth", "can-i", verb, resource, &subresource, "--namespace", NAMESPACE, "--as", user];
        run(kubectl(cluster, &arguments)).is_ok_and(|answer| answer.trim() == "yes")
    };
    // A controller puts the roles together.
    let deadline = Instant::now() + PATIENCE;
    while !may("viewer", "get", "mcpservers.longshore.dev") {
        assert!(Instant::now() < deadline, "the role `view` does not hold for servers");
        std::thread::sleep(Duration::from_millis(100));
    }
    for (user, verb, resource, expected) in [
        ("viewer", "watch", "mcpservers.longshore.dev", true),
        ("viewer", "create", "mcpservers.longshore.dev", false),
        ("editer", "create", "mcpservers.longshore.dev", true),
        ("editer", "deletecollection", "mcpservers.longshore.dev", true),
        ("viewer", "get", "mcpservers.longshore.dev/status", true),
        ("editer", "patch", "mcpservers.longshore.dev/status", false),
        ("viewer", "get", "mcpservers.longshore.dev/scale", true),
        ("viewer", "patch", "mcpservers.longshore.dev/scale", false),
        ("editer", "patch", "mcpservers.longshore.dev/scale", true),
        ("adminer", "update", "mcpservers.longshore.dev/scale", true),
        ("adminer", "delete", "mcpservers.longshore.dev", true),
        ("adminer", "get", "mcpservers.longshore.dev", true),
        ("stranger", "get", "mcpservers.longshore.dev", false),
    ] {
        assert_eq!(may(user, verb, resource), expected, "{user} {verb} {resource}");
    }
}

/// The uid of an object of the test's namespace.
fn get(cluster: &Cluster, kind: &str, name: &str) -> Result<String, String> {
    let command =
        kubectl(cluster, &["get", "--namespace", NAMESPACE, kind, name, "-o", "jsonpath={.metadata.uid}"]);
    run(command).map_err(|error| error.to_string())
}
