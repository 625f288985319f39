//! Files that change under a running sidecar.

use std::io::Write as _;
use std::time::{Duration, Instant};

use longshore_sidecar_config::{LogLevel, paths};
use serde_json::{Value, json};

use crate::harness::config::{keys, rule};
use crate::harness::http::{Reply, connect};
use crate::harness::{Client, Files, GoServer, Request, Sidecar, client, config, eventually, once_within};

#[test]
fn a_removed_key_is_refused_within_two_seconds() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    let mut config = config(server.port);
    files.write_with_keys(&config, &keys(&[("alice", "one"), ("alice", "two"), ("bob", "three")]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let old = Client::open(&sidecar, Some("one"));
    let new = Client::open(&sidecar, Some("two"));
    let mut write = |alice: &[&str]| {
        config.generation += 1;
        let alice = alice.iter().map(|key| ("alice", *key));
        let all: Vec<_> = alice.chain([("bob", "three")]).collect();
        sidecar.files.write_with_keys(&config, &keys(&all))
    };
    once_within(Duration::from_secs(2), "the key is refused", || {
        sidecar.runs(&write(&["one", "two"]));
        assert_eq!(old.send("ping", json!({})).status, 200);
        write(&["two"]);
        let removed = Instant::now();
        eventually("the key is refused", || old.send("ping", json!({})).status == 401);
        removed.elapsed()
    });
    assert_eq!(new.send("ping", json!({})).status, 200, "the other key of the same principal works on");
    // A session belongs to the principal, whatever key of theirs opens it.
    assert_eq!(
        new.request(new.message("ping", &json!({})))
            .with("mcp-session-id", &old.session)
            .send(sidecar.mcp)
            .status,
        200
    );
}

/// A body may take its time; what counts is what holds when it has come.
#[test]
fn a_key_that_is_removed_while_the_body_comes_is_refused() {
    let server = GoServer::start(&[]);
    let both = keys(&[("alice", "the-key-of-alice-1"), ("bob", "the-key-of-bob-123")]);
    let sidecar = Sidecar::keyed(&config(server.port), &both).ready();
    let alice = Client::open(&sidecar, Some("the-key-of-alice-1"));
    let whole =
        alice.request(alice.message("tools/call", &json!({"name": "echo", "arguments": {"text": "late"}})));

    let mut stream = connect(sidecar.mcp);
    let (first, rest) = whole.body.split_at(10);
    let head = format!("{}content-length: {}\r\n\r\n", whole.head(), whole.body.len());
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(first).unwrap();
    let only_bob = keys(&[("bob", "the-key-of-bob-123")]);
    let digest = sidecar.files.write_with_keys(&config(server.port), &only_bob);
    sidecar.runs(&digest);
    stream.write_all(rest).unwrap();
    assert_eq!(Reply::on(stream).status, 401);
}

#[test]
fn keys_and_configuration_are_swapped_together() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    let sidecar = Sidecar::keyed(&config, &keys(&[("alice", "one")])).ready();
    let alice = Client::open(&sidecar, Some("one"));

    // Keys of a configuration that is not there yet: the last good pair goes on.
    let next = keys(&[("alice", "one"), ("bob", "two")]);
    let bytes = serde_json::to_vec(&next).unwrap();
    sidecar.files.write_raw("keys", paths::KEYS_FILE, &bytes);
    sidecar.log(|line| line["message"] == "configuration is not complete yet");
    assert_eq!(alice.send("ping", json!({})).status, 200);
    let bob = || Request::post(client::initialize("2025-11-25")).key("two").send(sidecar.mcp).status;
    assert_eq!(bob(), 401);

    config.generation = 2;
    let digest = sidecar.files.write_with_keys(&config, &next);
    sidecar.runs(&digest);
    assert_eq!(bob(), 200);
}

#[test]
fn a_configuration_that_cannot_be_used_is_refused_whole() {
    let server = GoServer::start(&[]);
    let good = config(server.port);
    let sidecar = Sidecar::start(&good).ready();
    let client = Client::open(&sidecar, None);
    let mut json = serde_json::to_value(&good).unwrap();
    // That of the keys that are there: what is wrong is always something else.
    json["keysDigest"] = sidecar.files.keys_digest().into();
    let with = |edit: &dyn Fn(&mut Value)| {
        let mut json = json.clone();
        edit(&mut json);
        serde_json::to_vec(&json).unwrap()
    };
    for (what, bytes, reason) in [
        ("not JSON", b"{".to_vec(), "is not a configuration of this version"),
        ("empty", Vec::new(), "is not a configuration of this version"),
        (
            "a newer contract",
            with(&|json| json["version"] = 3.into()),
            "has contract version 3, and this sidecar reads 2",
        ),
        ("an unknown restriction", with(&|json| json["rates"] = json!([])), "unknown field `rates`"),
        (
            "an unknown field in a rule",
            with(&|json| json["access"][0]["when"] = json!("x")),
            "unknown field `when`",
        ),
        (
            "a missing field",
            with(&|json| drop(json.as_object_mut().unwrap().remove("auth"))),
            "missing field `auth`",
        ),
        (
            "a bad glob",
            with(&|json| json["access"][0]["tools"] = json!(["a["])),
            "the glob \"a[\" cannot be read",
        ),
        (
            "a bad path",
            with(&|json| json["upstream"]["streamableHttp"]["path"] = json!("mcp")),
            "has to begin with",
        ),
        (
            "no key set",
            with(&|json| json["inventory"]["jwks"] = json!([])),
            "\"jwks\" is not a JSON Web Key Set",
        ),
    ] {
        sidecar.files.write_raw("config", paths::CONFIG_FILE, &bytes);
        let line = sidecar.log(|line| line["reason"].as_str().is_some_and(|text| text.contains(reason)));
        assert_eq!(line["level"], "ERROR", "{what}");
        assert_eq!(client.send("ping", json!({})).status, 200, "{what}: the last good one stays");
    }
    assert!(sidecar.metric("longshore_config_loads_total{result=\"error\"}") >= 8.0);
    assert_eq!(sidecar.metric("longshore_config_refused"), 1.0, "for as long as it is refused");
    let mut next = good;
    next.access = vec![rule("none", &[], &[], &[])];
    let digest = sidecar.files.write(&next);
    sidecar.runs(&digest);
    assert_eq!(client.call("echo", json!({"text": "a"}))["error"]["code"], -32602, "it heals");
    assert_eq!(sidecar.metric("longshore_config_refused"), 0.0);
}

#[test]
fn broken_keys_are_reported_without_what_is_in_them() {
    let server = GoServer::start(&[]);
    let files = Files::new();
    let hash = "f".repeat(63) + "X";
    let broken = json!({"keys": [{"principal": "alice", "sha256": hash}], "sessions": []});
    files.write_with_keys(&config(server.port), &serde_json::from_value(broken).unwrap());
    let sidecar = Sidecar::with(files, &[]);
    sidecar.log(|line| line["message"] == "configuration refused, the last good one stays");
    assert!(!sidecar.written().contains(&hash));
}

#[test]
fn nothing_is_served_without_a_configuration() {
    let server = GoServer::start(&[]);
    let sidecar = Sidecar::with(Files::new(), &[]);
    let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert_eq!(
        (reply.status, &reply.message()["error"]["message"]),
        (503, &json!("no configuration is loaded yet"))
    );
    sidecar.audit(|line| line["reason"] == "no configuration is loaded");
    let line = sidecar.log(|line| line["message"] == "configuration is not complete yet");
    assert!(line["reason"].as_str().unwrap().contains("cannot read"), "{line}");
    assert!(!sidecar.written().contains("configuration refused"), "nothing was there to refuse");
    assert_eq!(sidecar.metric("longshore_config_refused"), 0.0);
    assert_eq!(sidecar.get("/startupz").status, 503);
    assert!(sidecar.get("/startupz").text().contains("cannot read"));
    assert_eq!(sidecar.get("/readyz").status, 503);
    assert_eq!(sidecar.get("/v1/inventory").status, 503);
    assert_eq!(sidecar.get("/healthz").status, 200);
    let digest = sidecar.files.write(&config(server.port));
    sidecar.runs(&digest);
    Client::open(&sidecar, None);
}

#[test]
fn the_level_of_the_log_follows_the_configuration() {
    let server = GoServer::start(&[]);
    let mut config = config(server.port);
    config.log_level = LogLevel::Info;
    let sidecar = Sidecar::start(&config).ready();
    let refused = || Request::new("GET", "/nope").send(sidecar.mcp);
    refused();
    sidecar.audit(|line| line["reason"] == "unknown path");
    assert!(!sidecar.written().contains("request refused"));
    config.log_level = LogLevel::Debug;
    sidecar.runs(&sidecar.files.write(&config));
    refused();
    sidecar.log(|line| line["message"] == "request refused");
}
