//! What cannot be served gets a sentence that says what to do.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::{Folder, LONGSHORE, Local, get};
use crate::peers::open;

fn example() -> Value {
    open("a", &[LONGSHORE, "example-server", "--transport", "stdio"], json!({"stdio": {}}))
}

const SECRET: &str = r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}"#;

fn with(change: impl FnOnce(&mut Value)) -> String {
    let mut manifest = example();
    change(&mut manifest);
    manifest.to_string()
}

#[test]
fn what_cannot_be_read_ends_it_with_2() {
    let folder = Folder::new();
    for (file, text, words) in [
        ("a.yaml", "a: [".to_owned(), "a.yaml is not YAML"),
        ("a.json", "{".to_owned(), "a.json is not JSON: EOF"),
        ("a.yaml", "kind: ConfigMap\napiVersion: v1\n".to_owned(), "there is no McpServer in"),
        ("a.json", with(|it| it["spec"]["acess"] = json!({})), "spec.acess: there is no such field"),
        (
            "a.json",
            with(|it| it["spec"]["tools"]["only"] = json!([])),
            "spec.tools.only: unknown field `only`",
        ),
        ("a.json", with(|it| it["spec"]["source"]["env"] = json!([{"nam": "A"}])), "spec.source.env"),
        (
            "a.json",
            with(|it| it["spec"]["limits"] = json!({"requestBytes": 7})),
            "spec.limits.requestBytes: invalid type",
        ),
        ("a.json", with(|it| it["spec"]["auth"] = json!({})), "spec.auth: choose exactly one"),
        ("a.json", with(|it| it["spec"]["transport"] = json!({})), "spec.transport: say in exactly one way"),
        (
            "a.json",
            with(|it| {
                it["spec"]["transport"] = json!({"streamableHttp": {"port": 3000, "path": "/my path"}})
            }),
            "spec.transport.streamableHttp.path: write a path",
        ),
        ("a.json", with(|it| it["kind"] = json!("McpServr")), "there is no \"McpServr\" of longshore.dev"),
        ("a.json", with(|it| it["apiVersion"] = json!("longshore.dev/v2")), "write `longshore.dev/v1alpha1`"),
        (
            "a.yaml",
            format!("{}\n---\n{}\n", example(), example()),
            "McpServer tools/a is in another file or document too",
        ),
        (
            "a.yaml",
            format!("{}\n---\n{SECRET}\n---\n{SECRET}\n", example()),
            "Secret default/keys is in another file or document too",
        ),
    ] {
        let path = folder.write(file, &text);
        let mut local = Local::json(&[path.to_str().unwrap()]);
        assert_eq!(local.code(), Some(2), "{text}");
        local.says(words);
        std::fs::remove_file(path).unwrap();
    }
    let mut local = Local::json(&["/no/such/file.yaml"]);
    assert_eq!(local.code(), Some(2));
    local.says("cannot read /no/such/file.yaml: No such file");
    assert_eq!(Local::json(&["--prot", "1"]).code(), Some(2));
}

#[test]
fn a_server_that_cannot_run_here_is_told_of_and_costs_the_others_nothing() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for manifest in [
        example(),
        open("image", &[], json!({"streamableHttp": {"port": 1}})),
        open("nowhere", &["no-such-program"], json!({"stdio": {}})),
        open("taken", &["sleep", "1000"], json!({"streamableHttp": {"port": port}})),
        open(
            "ends",
            &["sh", "-c", "echo no database >&2; exit 3"],
            json!({"streamableHttp": {"port": crate::harness::free_port()}}),
        ),
        open("ends-stdio", &["sh", "-c", "echo no table >&2; exit 4"], json!({"stdio": {}})),
    ] {
        folder.write(
            &format!("{}.json", manifest["metadata"]["name"].as_str().unwrap()),
            &manifest.to_string(),
        );
    }
    let local = Local::start(&[folder.path().to_str().unwrap()]);
    for words in [
        "tools/a is ready: 4 tools",
        "tools/image is not started: image registry.example/image:1 cannot run here, since there is no cluster",
        "tools/nowhere is not started: image registry.example/nowhere:1 cannot run here, and \"no-such-program\"",
        &format!("tools/taken does not run: port {port}, at which the server is to listen, is taken"),
        "tools/ends does not run: it exited with code 3; its last lines: no database",
        "tools/ends-stdio is not ready (ServerExited)",
    ] {
        local.says(words);
    }
    // Whoever may read the catalog need not see what servers write.
    assert!(local.says("tools/ends-stdio is not ready").contains("no table"));
    let line = local.says("/v1/tools");
    let url = line.split_whitespace().last().unwrap().replace("/v1/tools", "/v1/servers/tools/ends-stdio");
    let (_, listed) = get(&url, &[]);
    assert!(listed.contains("\"reason\":\"ServerExited\"") && !listed.contains("no table"), "{listed}");
    // A reason that the condition of a server in a cluster can have, too.
    let (_, listed) = get(&url.replace("ends-stdio", "nowhere"), &[]);
    assert!(listed.contains("\"reason\":\"NoPod\""), "{listed}");
    // The annotation that the message asks for.
    let mut annotated = open("nowhere", &["no-such-program"], json!({"stdio": {}}));
    annotated["metadata"]["annotations"] =
        json!({"longshore.dev/local-command": format!("'{LONGSHORE}' example-server --transport stdio")});
    folder.write("nowhere.json", &annotated.to_string());
    local.says("tools/nowhere is ready: 4 tools");
}

#[test]
fn a_port_that_is_taken_is_left_or_told_of() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut local = Local::json(&["--port", &port]);
    assert_eq!(local.code(), Some(1));
    local.says(&format!("port {port} is taken: choose another with --port"));

    // Two runs side by side find ports of their own, also those whose threads share one.
    let folder = Folder::new();
    let path = folder.write("a.json", &with(|it| it["spec"]["sidecar"] = json!({"workers": 2})));
    for manifests in [&[][..], &[path.to_str().unwrap()]] {
        let (mut one, mut two) = (Local::json(manifests), Local::json(manifests));
        let (one, two) = (one.announced(), two.announced());
        assert_ne!(one["catalog"], two["catalog"]);
        let url = one["servers"][0]["url"].as_str().unwrap();
        assert_ne!(url, two["servers"][0]["url"]);

        let port = url.trim_end_matches("/mcp").rsplit_once(':').unwrap().1;
        let mut third = Local::json(&[&["--port", port][..], manifests].concat());
        assert_eq!(third.code(), Some(1));
        third.says(&format!("port {port} is taken"));
    }
}
