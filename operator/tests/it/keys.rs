//! Keys, and what else comes from Secrets and ConfigMaps.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::harness::{Folder, LONGSHORE, Local, Served, inspector};
use crate::peers::open;

const PLAIN: &str = "a-plain-key-of-some-length";

fn keyed(name: &str) -> serde_json::Value {
    let mut manifest =
        open(name, &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}));
    manifest["spec"]["auth"] = json!({"apiKeys": {"secretRef": {"name": "keys"}}});
    manifest
}

fn secret(line: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "tools"},
        "stringData": {"ada": line},
    })
}

fn works(to: &Served, key: Option<&str>) -> bool {
    inspector(&Served { key: key.map(str::to_owned), ..to.clone() }, &["--method", "tools/list"]).0
}

#[test]
fn keys_are_those_of_the_secret_or_made() {
    let folder = Folder::new();
    let manifest = folder.write("server.json", &keyed("keyed").to_string());
    let path = manifest.to_str().unwrap();

    // No Secret: a key is made, and it stays when something else changes.
    let mut local = Local::json(&[path]);
    let served = local.server("keyed");
    assert!(served.key.as_deref().unwrap().starts_with("lsk_"), "{served:?}");
    assert!(works(&served, served.key.as_deref()) && !works(&served, None) && !works(&served, Some(PLAIN)));

    // A Secret beside it: its key is the one, and the other one is none any more.
    folder.write("keys.json", &secret(PLAIN).to_string());
    crate::harness::eventually("the Secret's key works", || works(&served, Some(PLAIN)).then_some(()));
    assert!(!works(&served, served.key.as_deref()));
    assert!(!local.said().contains(PLAIN), "only what is asked for is shown: {}", local.said());
    drop(local);
    assert_eq!(Local::json(&[path]).server("keyed").key.as_deref(), Some(PLAIN));

    // Hashes cannot be shown; whoever has the key may say it.
    let printed =
        Command::new(LONGSHORE).args(["key", "new", "--json"]).stderr(Stdio::inherit()).output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    folder.write("keys.json", &secret(printed["secretLine"].as_str().unwrap()).to_string());
    let served = Local::json(&[path]).server("keyed");
    assert_eq!(served.key, None);
    let key = printed["key"].as_str().unwrap();
    assert_eq!(Local::json(&[path, "--key", key]).server("keyed").key.as_deref(), Some(key));
    let local = Local::start(&[path, "--key", "something-else-entirely"]);
    local.says("that of --key is none of its Secret's");
}

#[test]
fn a_file_that_cannot_be_read_is_told_of_where_something_is_missed() {
    let mut needy = keyed("needy");
    needy["spec"]["source"]["env"] =
        json!([{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "a"}}}]);
    let broken = |folder: &Folder| drop(folder.write("keys.yaml", "stringData: ["));
    let crowded = |folder: &Folder| {
        for number in 0..1024 {
            std::fs::write(folder.path().join(format!("{number}.json")), "{}").unwrap();
        }
    };
    let (is_broken, is_crowded) = ("keys.yaml is not YAML", "has more than 1024 manifests");
    for (spoil, why) in [(&broken as &dyn Fn(&Folder), is_broken), (&crowded, is_crowded)] {
        let folder = Folder::new();
        spoil(&folder);
        let items = json!([keyed("keyed"), needy]);
        let text = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let path = folder.write("servers.json", &text);
        let local = Local::start(&[path.to_str().unwrap()]);
        let said = local.says("tools/keyed: Secret tools/keys is not in the files, so a key was made");
        assert!(said.contains(why), "{said}");
        let said = local.says("tools/needy is not started: Secret tools/token");
        assert!(said.contains(why), "{said}");
    }
    // Other files may be about something else.
    let folder = Folder::new();
    broken(&folder);
    folder.write("more-keys.json", &secret(PLAIN).to_string());
    let path = folder.write("server.json", &keyed("keyed").to_string());
    let mut local = Local::json(&[path.to_str().unwrap()]);
    assert_eq!(local.server("keyed").key.as_deref(), Some(PLAIN));
    assert!(!local.said().contains(is_broken), "{}", local.said());
}

#[test]
fn a_secret_that_is_elsewhere_is_told_of_where_a_key_was_made() {
    let folder = Folder::new();
    let mut elsewhere = secret(PLAIN);
    elsewhere["metadata"]["namespace"] = json!("default");
    folder.write("keys.json", &elsewhere.to_string());
    let path = folder.write("server.json", &keyed("keyed").to_string());
    for (given, how) in [
        (PLAIN, "so the one of --key is its key; there is default/keys"),
        ("short", "so a key was made; there is default/keys; the key of --key is not used: a key has 16 to"),
    ] {
        let mut local = Local::json(&[path.to_str().unwrap(), "--key", given]);
        assert_eq!(local.server("keyed").key.as_deref() == Some(given), given == PLAIN);
        assert!(local.said().contains(how), "{}", local.said());
    }
}

#[test]
fn the_secret_of_the_file_that_was_asked_for_is_the_one() {
    let folder = Folder::new();
    let write = |name: &str, key: &str| {
        let items = json!([keyed("keyed"), secret(key)]);
        folder.write(name, &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())
    };
    let (before, asked, after) = ("another-key-of-some-length", PLAIN, "a-third-key-of-some-length");
    write("a.json", before);
    let path = write("b.json", asked);
    write("c.json", after);
    assert_eq!(Local::json(&[path.to_str().unwrap()]).server("keyed").key.as_deref(), Some(asked));
}

#[test]
fn what_only_pods_need_is_not_missed() {
    let folder = Folder::new();
    let server = |name: &str| {
        let mut manifest =
            open(name, &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}));
        manifest["spec"]["pod"] = json!({
            "imagePullSecrets": [{"name": "registry"}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "keys"}},
                {"name": "b", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
            ],
        });
        manifest
    };
    let mut needs_a_key = server("needs-a-key");
    needs_a_key["spec"]["source"]["env"] =
        json!([{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "ada"}}}]);
    let mut needs_a_part = server("needs-a-part");
    needs_a_part["spec"]["source"]["env"] =
        json!([{"name": "HOME", "valueFrom": {"configMapKeyRef": {"name": "part", "key": "there"}}}]);
    needs_a_part["spec"]["pod"]["volumes"][1]["configMap"]["name"] = json!("part");
    let part = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "part", "namespace": "tools"}, "data": {"there": "/"}});
    folder.write("part.yaml", &part.to_string());
    for manifest in [server("pod"), needs_a_key, needs_a_part] {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        folder.write(&format!("{name}.json"), &manifest.to_string());
    }
    let local = Local::start(&[folder.path().to_str().unwrap()]);
    for words in [
        "tools/pod: left out, since it needs a cluster: spec.pod.imagePullSecrets, spec.pod.volumes",
        "tools/pod is ready: 4 tools",
        "tools/needs-a-part is ready: 4 tools",
        "tools/needs-a-key is not started: Secret tools/keys, which spec.source.env[0].valueFrom.secretKeyRef names",
    ] {
        local.says(words);
    }
}

#[test]
fn the_environment_is_the_manifests_and_little_else() {
    let folder = Folder::new();
    let mut manifest = open(
        "env",
        &["sh", "-c", "env >&2; pwd >&2; exec sleep 1000"],
        json!({"streamableHttp": {"port": crate::harness::free_port()}}),
    );
    manifest["spec"]["source"]["env"] = json!([
        {"name": "PLAIN", "value": "one"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "ada"}}},
        {"name": "URL", "value": "http://$(PLAIN)/"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]);
    manifest["spec"]["pod"] = json!({"nodeSelector": {"disk": "fast"}});
    manifest["spec"]["replicas"] = json!(3);
    manifest["spec"]["sidecar"] = json!({"logLevel": "debug"});
    folder.write("server.json", &manifest.to_string());
    let local = Local::start(&[folder.path().to_str().unwrap()]);
    local.says("Secret tools/keys, which spec.source.env[1].valueFrom.secretKeyRef names, does not exist");
    folder.write("keys.json", &secret("the-token").to_string());
    for line in ["PLAIN=one", "TOKEN=the-token", "URL=http://one/", "PATH=/"] {
        local.says(&format!("tools/env | {line}"));
    }
    local.says(&format!("tools/env | {}", folder.path().canonicalize().unwrap().display()));
    let said = local.says("needs a cluster");
    assert!(said.contains("spec.replicas") && said.contains("spec.pod.nodeSelector"), "{said}");
    assert!(said.contains("spec.sidecar.logLevel (here: --log-level)"), "{said}");
    assert!(said.contains("env NODE (fieldRef)"), "{said}");
    assert!(!local.said().contains("SECRET_OF_THE_USER"), "{}", local.said());
}
