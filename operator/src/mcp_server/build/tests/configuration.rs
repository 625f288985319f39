//! What reaches the sidecars, and when.

use k8s_openapi::ByteString;

use super::*;

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
    // Whoever waits for a place is told that there is none before the call itself has had its time.
    let patient = with(stdio(json!({"queueTimeout": "5m"})), "limits", json!({"requestTimeout": "10s"}));
    assert_eq!(config(patient)["limits"]["processes"]["queueMs"], 9_000);
}

#[test]
fn where_requests_come_from_their_size_and_the_log_reach_the_sidecar() {
    let of_the_service = ["github", "github.tools", "github.tools.svc", "github.tools.svc.cluster.example"];
    let public = [&of_the_service[..], &["mcp.example.com"]].concat();
    for (field, value, place, expected) in [
        // Names are compared in lower case.
        ("expose", json!({"host": "MCP.Example.com"}), "/hosts", json!(public)),
        (
            "expose",
            json!({"allowedOrigins": ["https://App.example.com:443", "http://localhost:6274"]}),
            "/allowedOrigins",
            json!(["https://app.example.com", "http://localhost:6274"]),
        ),
        ("limits", json!({"requestBytes": "1Mi"}), "/limits/requestBytes", json!(1 << 20)),
        ("limits", json!({"requestTimeout": "1m30s"}), "/limits/requestTimeoutMs", json!(90_000)),
        ("sidecar", json!({"logLevel": "debug"}), "/logLevel", json!("debug")),
    ] {
        let map = built(with(minimal(), field, value)).config_maps.remove(0);
        let config: Value = serde_json::from_str(&map.data.unwrap()["config.json"]).unwrap();
        assert_eq!(config.pointer(place), Some(&expected), "{field}");
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
    let made = |generation: i64, spec: Value| {
        let mut server = manifest(spec);
        server.metadata.generation = Some(generation);
        build(&validate(&server, &found()).unwrap(), &settings()).0.config_maps.remove(0)
    };
    let first = made(3, minimal());
    let scaled = with(minimal(), "replicas", json!(5));
    assert_eq!(made(4, scaled.clone()), first);
    let ruled = with(scaled, "tools", json!({"exclude": ["delete_*"]}));
    assert_ne!(made(5, ruled), first);
}

#[test]
fn a_pod_of_an_older_version_keeps_its_way_to_its_server_and_gets_the_newest_rules() {
    let older = Upstream::StreamableHttp { port: 2000, path: "/old".to_owned() };
    let mut lookups = found();
    lookups.mounted_upstreams = vec![older, Upstream::StreamableHttp { port: 3000, path: "/mcp".to_owned() }];
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
    let [newest, before] = [0, 1].map(|index| {
        let config_map = &resources.config_maps[index];
        let digest = digest::prefixed(config_map.data.as_ref().unwrap()["config.json"].as_bytes());
        (config_map.metadata.name.clone().unwrap(), digest)
    });
    assert_ne!(newest.0, before.0);
    assert_eq!(desired.configs, BTreeMap::from([newest, before]));
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

/// The API server takes no Secret of more than 1 MiB: without the new one, keys that were taken away would go on working.
#[test]
fn as_many_keys_as_are_taken_fit_a_secret() {
    let spec = with(minimal(), "auth", json!({"apiKeys": {"secretRef": {"name": "keys"}}}));
    let data = (0..4).map(|holder| {
        let lines: String = (0..1000).map(|key| format!("a-key-of-{holder}-{key:08}\n")).collect();
        (format!("{holder}").repeat(253), ByteString(lines.into_bytes()))
    });
    let keys = ParsedKeys::from_data(&data.collect());
    assert!((2900..3100).contains(&keys.keys.len()), "{}", keys.keys.len());
    let found = Dereferenced { api_keys: ApiKeysLookup::Present(keys), ..found() };
    let (resources, _) = build(&validate(&manifest(spec), &found).unwrap(), &settings());
    let size: usize = resources.secret.data.unwrap().values().map(|value| value.0.len()).sum();
    assert!(size < (1 << 20) - 4096, "{size}");
}
