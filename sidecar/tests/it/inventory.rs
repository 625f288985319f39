//! What the operator and the catalog read.

mod lists;

use std::io::BufReader;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use longshore_sidecar_config::inventory::{ConnectionReason, ConnectionState, Inventory, Phase};
use longshore_sidecar_config::{Config, paths};
use serde_json::json;

use crate::harness::config::keys;
use crate::harness::{
    Client, Cluster, Files, GoServer, Reply, Request, Sessionless, Sidecar, client, config, eventually,
    modern, once_within, peer, scripted,
};

fn ask(token: &str) -> Request {
    Request::new("GET", "/v1/inventory").key(token)
}

fn read(reply: &Reply) -> Inventory {
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

fn started(server: &GoServer, cluster: &Cluster) -> Sidecar {
    let mut config = config(server.port);
    cluster.trust(&mut config);
    config.tools.exclude = vec!["exit".to_owned()];
    Sidecar::start(&config).ready()
}

#[test]
fn it_says_what_the_server_offers() {
    let (server, cluster) = (GoServer::start(&[]), Cluster::new());
    let sidecar = started(&server, &cluster);
    let token = cluster.token(|_| {});
    let reply = ask(&token).send(sidecar.admin);
    let inventory = read(&reply);
    let names: Vec<_> = inventory.tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["add", "echo", "fail", "grow", "slow"]);
    assert_eq!(inventory.hidden_tools, 1);
    assert_eq!(inventory.prompts[0]["name"], "greet");
    assert_eq!(inventory.resources[0]["uri"], "memo://greeting");
    assert_eq!(inventory.phase, Phase::Serving);
    assert_eq!(inventory.connection.state, ConnectionState::Connected);
    assert_eq!((inventory.connection.reason, inventory.connection.message.as_str()), (None, ""));
    assert_eq!((inventory.config.generation, inventory.config.error), (1, None));
    assert_eq!(inventory.config.callers, Some(true));
    assert_eq!(inventory.config.digest, sidecar.log(|line| line["digest"].is_string())["digest"]);
    let described = inventory.server.unwrap();
    assert_eq!(
        (described.info["name"].as_str(), &*described.protocol_version),
        (Some("go-server"), "2025-11-25")
    );

    // The same again, by its name.
    let etag = reply.header("etag").unwrap();
    let again = ask(&token).header("if-none-match", etag).send(sidecar.admin);
    assert_eq!((again.status, again.body.len()), (304, 0));
}

/// The operator tells by it a server that nobody can use from one where keys that were taken back still work.
#[test]
fn it_says_whether_it_lets_anybody_in() {
    let (server, cluster, files) = (GoServer::start(&[]), Cluster::new(), Files::new());
    let mut config = config(server.port);
    cluster.trust(&mut config);
    files.write_with_keys(&config, &keys(&[]));
    let sidecar = Sidecar::with(files, &[]).loaded().ready();
    let token = cluster.token(|_| {});
    let said = || read(&ask(&token).send(sidecar.admin)).config.callers;
    assert_eq!(said(), Some(false));
    sidecar.files.write_with_keys(&config, &keys(&[("alice", "key-a")]));
    eventually("somebody is let in", || said() == Some(true));
    // One that it refuses takes nobody's key away.
    sidecar.files.write_raw("config", paths::CONFIG_FILE, b"{}");
    let state = eventually("it is refused", || {
        Some(read(&ask(&token).send(sidecar.admin)).config).filter(|state| state.error.is_some())
    });
    assert_eq!(state.callers, Some(true));
}

/// In its own words: those that clients of its revision get, and not what older ones get in their place.
#[test]
fn it_says_what_a_server_without_sessions_offers() {
    let cluster = Cluster::new();
    let tools = json!([
        {"name": "any", "inputSchema": {"type": "object"}, "outputSchema": true},
        {"name": "list", "inputSchema": {"type": "object"}, "outputSchema": {"type": "array"}},
    ]);
    let can = json!({"tools": {"listChanged": true}, "extensions": {"com.example/more": {"x": 1}}});
    let server = Sessionless::start(can.clone(), tools.clone(), |_, _| {});
    let mut config = config(server.port);
    cluster.trust(&mut config);
    let sidecar = Sidecar::start(&config).ready();
    let inventory = read(&ask(&cluster.token(|_| {})).send(sidecar.admin));
    let described = inventory.server.unwrap();
    assert_eq!(described.protocol_version, "2026-07-28");
    assert_eq!(described.capabilities, can);
    assert_eq!(json!(inventory.tools), tools);
    let listed = modern::request(1, "tools/list", json!({})).send(sidecar.mcp).message();
    assert_eq!(listed["result"]["tools"], tools);
}

#[test]
fn only_named_readers_of_the_cluster_get_it() {
    let (server, cluster) = (GoServer::start(&[]), Cluster::new());
    let sidecar = started(&server, &cluster);
    let stranger = Cluster::new();
    for (what, token, status) in [
        ("another audience", cluster.token(|claims| claims["aud"] = json!(["api"])), 401),
        ("no audience", cluster.token(|claims| drop(claims.as_object_mut().unwrap().remove("aud"))), 401),
        ("another issuer", cluster.token(|claims| claims["iss"] = json!("https://evil.example")), 401),
        ("expired", cluster.token(|claims| claims["exp"] = json!(1000)), 401),
        ("without end", cluster.token(|claims| drop(claims.as_object_mut().unwrap().remove("exp"))), 401),
        ("not yet", cluster.token(|claims| claims["nbf"] = json!(99_999_999_999_u64)), 401),
        ("another key", stranger.token(|_| {}), 401),
        ("no token", "nonsense".to_owned(), 401),
        ("somebody else", cluster.token(|claims| claims["sub"] = json!("system:serviceaccount:a:b")), 403),
        ("the operator", cluster.token(|_| {}), 200),
    ] {
        assert_eq!(ask(&token).send(sidecar.admin).status, status, "{what}");
    }
    let reply = sidecar.get("/v1/inventory");
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")));
}

#[test]
fn a_new_tool_shows_within_a_second() {
    let (server, cluster) = (GoServer::start(&[]), Cluster::new());
    let sidecar = started(&server, &cluster);
    let token = cluster.token(|_| {});
    let first = ask(&token).send(sidecar.admin);
    let (etag, before) = (first.header("etag").unwrap().to_owned(), read(&first));
    let poll = |etag: &str, seconds: u64| {
        ask(&token)
            .header("if-none-match", etag)
            .header("prefer", &format!("wait={seconds}"))
            .send(sidecar.admin)
    };
    let asked = Instant::now();
    assert_eq!(poll(&etag, 1).status, 304);
    assert!(asked.elapsed() >= Duration::from_secs(1), "it waited");

    let reply = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| poll(&etag, 30));
        Client::open(&sidecar, None).call("grow", json!({"name": "later"}));
        let grown = Instant::now();
        let reply = waiting.join().unwrap();
        // Otherwise it would come with the end of the wait.
        assert!(grown.elapsed() < Duration::from_secs(25), "{:?}", grown.elapsed());
        reply
    });
    let after = read(&reply);
    assert_eq!(after.tools.len(), before.tools.len() + 1);
    assert_ne!(after.tools_digest, before.tools_digest);
}

#[test]
fn a_server_that_dies_is_said_to_be_lost_and_keeps_its_description() {
    let (mut server, cluster) = (GoServer::start(&[]), Cluster::new());
    let sidecar = started(&server, &cluster);
    let token = cluster.token(|_| {});
    let now = || read(&ask(&token).send(sidecar.admin));
    let tools = now().tools;
    server.kill();
    // A call has it looked for at once, and is refused before the next ping would have found out.
    let refused = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
    assert_eq!(refused.message()["error"]["code"], -32603);
    let lost = now();
    assert_eq!(lost.connection.state, ConnectionState::Failed);
    assert_eq!(lost.connection.reason, Some(ConnectionReason::ConnectionLost));
    assert!(lost.connection.message.contains(&server.port.to_string()), "{}", lost.connection.message);
    assert_eq!((lost.phase, lost.tools), (Phase::Serving, tools));
    server.start_again();
    // It has to stay for some seconds first.
    let back = eventually("it is back", || Some(now()).filter(|now| now.connection.message.is_empty()));
    assert_eq!((back.connection.state, back.connection.reason), (ConnectionState::Connected, None));
}

/// The port of a server that is found elsewhere.
fn moved() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while scripted::read(&mut reader).is_some() {
                scripted::json_with(&mut stream, 307, "location: /mcp/\r\n", "{}");
            }
        }
    });
    port
}

#[test]
fn a_server_that_cannot_be_used_has_a_reason() {
    let cluster = Cluster::new();
    let mute = GoServer::start(&["-mute"]);
    let elsewhere = GoServer::start(&["-path", "/other"]);
    let nobody = peer::free_port();
    for (port, reason, words) in [
        (mute.port, ConnectionReason::InitializeTimeout, "has not completed the handshake"),
        (elsewhere.port, ConnectionReason::NotMcp, "answered /mcp with HTTP status 404"),
        (moved(), ConnectionReason::NotMcp, "HTTP status 307, a redirect to /mcp/, and"),
        (nobody, ConnectionReason::ConnectionRefused, "nothing listens on port"),
    ] {
        let mut config = config(port);
        cluster.trust(&mut config);
        let sidecar = Sidecar::start(&config);
        let token = cluster.token(|_| {});
        let failed = eventually("it is known", || {
            let inventory = read(&ask(&token).send(sidecar.admin));
            Some(inventory).filter(|inventory| inventory.connection.state == ConnectionState::Failed)
        });
        assert_eq!(failed.connection.reason, Some(reason), "{}", failed.connection.message);
        assert!(failed.connection.message.contains(words), "{}", failed.connection.message);
        assert_eq!(failed.phase, Phase::Starting);
        let ready = sidecar.get("/readyz");
        assert_eq!(ready.status, 503);
        // The kubelet's port tells nobody what a server has said.
        assert!(ready.text().contains("condition Connected"), "{}", ready.text());
        assert!(!ready.text().contains(words), "{}", ready.text());
    }
}

#[test]
fn readiness_is_answered_the_moment_it_is_there() {
    once_within(Duration::from_millis(500), "it is ready", || {
        let port = peer::free_port();
        let sidecar = Sidecar::start(&config(port));
        // By then it would be looked for less and less often, and has been looked for just now.
        let looked = || sidecar.metric("longshore_handshakes_total{result=\"error\"}");
        eventually("it is looked for", || looked() >= 8.0);
        // A probe is held for most of a second, so one that is asked again and again sees the moment.
        let _server = Sessionless::at(port, json!({"tools": {}}), json!([]), |_, _| {});
        let listening = Instant::now();
        eventually("it is ready", || sidecar.get("/readyz").status == 200);
        listening.elapsed()
    });
}

#[test]
fn a_refused_configuration_and_open_sockets_are_reported() {
    let (server, cluster) = (GoServer::start(&[]), Cluster::new());
    let files = Files::new();
    let mut config = config(server.port);
    cluster.trust(&mut config);
    files.write(&config);
    let net = files.path("proc/net");
    std::fs::create_dir_all(&net).unwrap();
    let table =
        "header\n 0: 00000000:0BB8 00000000:0000 0A 0 0 0\n 1: 0100007F:0BB9 00000000:0000 0A 0 0 0\n";
    std::fs::write(net.join("tcp"), table).unwrap();
    let proc_dir = files.path("proc");
    let sidecar = Sidecar::with(files, &["--proc-dir", proc_dir.to_str().unwrap()]).loaded().ready();
    let token = cluster.token(|_| {});
    let now = || read(&ask(&token).send(sidecar.admin));
    let inventory = eventually("the sockets were read", || Some(now()).filter(|now| !now.exposed.is_empty()));
    assert_eq!(inventory.exposed.len(), 1);
    assert_eq!((inventory.exposed[0].address.as_str(), inventory.exposed[0].port), ("0.0.0.0", 3000));
    sidecar.files.write_raw("config", longshore_sidecar_config::paths::CONFIG_FILE, b"{}");
    let refused = eventually("it is reported", || Some(now()).filter(|now| now.config.error.is_some()));
    assert_eq!(refused.config.digest, inventory.config.digest);
    assert!(refused.config.error.unwrap().contains("missing field `version`"));

    // One whose keys are yet to come is not refused.
    let digest = sidecar.files.keys_digest();
    let next = Config { generation: 2, keys_digest: digest.replace("sha256:", "sha256:0"), ..config };
    let bytes = serde_json::to_vec(&next).unwrap();
    sidecar.files.write_raw("config", longshore_sidecar_config::paths::CONFIG_FILE, &bytes);
    sidecar.log(|line| line["message"] == "configuration is not complete yet");
    let waits = eventually("nothing is refused", || Some(now()).filter(|now| now.config.error.is_none()));
    assert_eq!(waits.config.digest, inventory.config.digest);
}
