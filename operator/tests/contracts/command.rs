//! The command, as people type it.

use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

fn longshore(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longshore")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

fn line_of(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digest}")
}

#[test]
fn version_and_manifests_are_printed() {
    assert_eq!(said(&longshore(&["version"])).0, format!("longshore {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(said(&longshore(&["crds"])).0, longshore_crds::manifest::documents().unwrap());
}

#[test]
fn a_new_key_comes_with_its_line_and_never_in_its_secret() {
    let printed: Value =
        serde_json::from_slice(&longshore(&["key", "new", "--principal", "ada", "--json"]).stdout).unwrap();
    let key = printed["key"].as_str().unwrap();
    assert_eq!(
        (printed["principal"].as_str(), printed["secretLine"].as_str()),
        (Some("ada"), Some(&*line_of(key)))
    );

    let (text, _) = said(&longshore(&["key", "new"]));
    let key = text.split_whitespace().find(|word| word.starts_with("lsk_")).unwrap();
    assert!(text.contains(&line_of(key)), "{text}");

    let (manifest, errors) =
        said(&longshore(&["key", "new", "--principal", "ada", "--secret", "keys", "--namespace", "tools"]));
    let key = errors.split_whitespace().find(|word| word.starts_with("lsk_")).unwrap();
    let secret: Value = serde_saphyr::from_str(&manifest).unwrap();
    assert_eq!(
        secret,
        serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "tools"},
            "stringData": {"ada": format!("{}\n", line_of(key))},
        })
    );
    assert!(!manifest.contains(key), "the key itself is in the manifest");
    let revocation = "\n#   kubectl patch secret keys -n tools --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/ada\"}]'\n";
    assert!(manifest.contains(revocation), "{manifest}");
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    for (arguments, words) in [
        (&["key", "new", "--principal", "anonymous"][..], "`anonymous` stands for callers without a key"),
        (&["key", "new", "--principal", "a b"], "use letters, digits"),
        (&["key", "new", "--namespace", "tools"], "--secret"),
        (&["operator"], "--sidecar-image"),
        (&["operator", "--log-level", "loud"], "possible values: error, warn, info, debug, trace"),
        (&["local", "--log-level", "loud"], "possible values: error, warn, info, debug, trace"),
        (&["catalog"], "--auth"),
        (&["catalog", "--auth", "api-keys"], "needs --api-keys-dir"),
        (&["catalog", "--auth", "none", "--api-keys-dir", "keys"], "leave --api-keys-dir out"),
        (&["serve"], "unrecognized subcommand"),
    ] {
        let output = longshore(arguments);
        let (_, errors) = said(&output);
        assert!(!output.status.success() && errors.contains(words), "{arguments:?}: {errors}");
    }
}
