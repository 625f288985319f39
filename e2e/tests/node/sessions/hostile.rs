//! Clients that never read, never answer, read or send a byte a second, and a server that floods them: what it costs the
//! others.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use longshore_e2e::load::{Load, Report};
use longshore_e2e::mcp_client::REVISION;
use longshore_e2e::testing::{Namespace, container_memory};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::row::{Row, form, long_row};
use super::served::{Echo, Served, Transport};
use crate::faults::{SIDECAR, restarts};

#[derive(Clone, Copy)]
struct Form {
    /// How often it is measured. What is asserted of the time is so of the one in the middle.
    rounds: usize,
    /// Clients of each kind.
    clients: usize,
    /// Calls of the others, without them and with them.
    calls: u64,
    /// How many times as long as before the slowest of a hundred of their calls may take.
    slower: f64,
    /// What counts as nothing before: beside other tests a call may take so long for any reason.
    noise: Duration,
}

/// How long those that are slow take for a byte.
const SLOWLY: Duration = Duration::from_secs(1);
/// By how much the sidecar may grow, in bytes: by what all streams hold together, and by what each connection may have, in the
/// kernel too. That is below the limit of its container, which has 256 MiB.
const STREAMS: u64 = 12 << 20;
const A_CONNECTION: u64 = 172 << 10;

#[test]
fn hostile_clients_and_a_server_that_floods_are_nobody_elses_trouble() {
    const TITLE: &str =
        "clients that never read, never answer, read or send a byte a second, a server that floods";
    long_row(TITLE, async |namespace, row| {
        let form = form(
            Form { rounds: 1, clients: 10, calls: 1_000, slower: 10.0, noise: Duration::from_millis(100) },
            Form { rounds: 3, clients: 50, calls: 20_000, slower: 2.0, noise: Duration::ZERO },
        );
        let with_streams = json!({"source": {"args": ["http", "--streams"]}});
        let http = Echo { more: with_streams, ..Echo::http("http") };
        for echo in [http, Echo::stdio("stdio", "Session"), Echo::stdio("shared", "Shared")] {
            let (name, mut ratios) = (echo.name, Vec::new());
            for _ in 0..form.rounds {
                let echo = Echo { replicas: 1, ..echo.clone() };
                ratios.push(attacked(namespace, row, echo, form).await);
            }
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios[ratios.len() / 2];
            let slower =
                format!("{name}: p99 of the others {ratio:.2} times what it was or {:?}", form.noise);
            row.says(format!("{slower}, in the middle"));
            assert!(ratio <= form.slower, "{slower}");
        }
    });
}

/// Gives how many times as long the slowest of a hundred of the others' calls takes then.
async fn attacked(namespace: &Namespace<'_>, row: &Row, echo: Echo, mut form: Form) -> f64 {
    if matches!(echo.transport, Transport::Stdio { isolation: "Session" }) {
        // One caller may have 200 processes, and the others want some too.
        form.clients = form.clients.min(30);
    }
    let served = Served::up(namespace, echo).await;
    let name = served.echo.name;
    let pod = served.settles().await.remove(0);
    let others = async || -> Report {
        let mut plan = served.plan(20, 4);
        plan.calls = Some(form.calls);
        // An idle moment of the machine, or a busy one, is not what is measured.
        plan.pause = Duration::from_millis(2);
        Load::start(plan).await.expect("the sessions are opened").finish().await
    };
    let alone = others().await;
    let before = container_memory(&pod, SIDECAR);
    let mut hostile = JoinSet::new();
    for _ in 0..form.clients {
        if matches!(served.echo.transport, Transport::Http { .. }) {
            hostile.spawn(never_listens(open(&served, &pod).await));
        }
        hostile.spawn(never_reads(open(&served, &pod).await));
        hostile.spawn(reads_slowly(open(&served, &pod).await));
        hostile.spawn(sends_slowly(open(&served, &pod).await));
        hostile.spawn(never_answers(open(&served, &pod).await));
    }
    let beside = others().await;
    let after = container_memory(&pod, SIDECAR);
    row.saw_nothing_lost(&format!("{name}, alone"), &alone);
    row.saw_nothing_lost(&format!("{name}, beside {} of each kind", form.clients), &beside);
    let (was, is) = (alone.latency(0.99), beside.latency(0.99));
    row.says(format!(
        "{name}: p99 of the others {is:.1?}, after {was:.1?}; the sidecar took {} KiB before and {} KiB with them",
        before / 1024,
        after / 1024
    ));
    // Of each of five kinds, one with two connections; and those of the others.
    let most = before + STREAMS + (6 * form.clients as u64 + 100) * A_CONNECTION;
    assert!(after < most, "the sidecar grew from {before} to {after} bytes");
    let now = served.settles().await.remove(0);
    assert_eq!(restarts(&now, SIDECAR), 0);
    hostile.abort_all();
    while let Some(ended) = hostile.join_next().await {
        // What is hostile only in name shows nothing.
        assert!(!ended.is_err_and(|error| error.is_panic()), "one of them was not what it should be");
    }
    served.cut_down().await;
    is.as_secs_f64() / was.max(form.noise).as_secs_f64()
}

/// A connection of its own, and the head of every request in a session of its own.
struct Hostile {
    stream: TcpStream,
    head: String,
}

async fn open(served: &Served<'_>, pod: &Pod) -> Hostile {
    let (client, _) = served.session_at(pod).await;
    let endpoint = served.pod(pod);
    let session = client.session().expect("a session has an id");
    Hostile {
        stream: TcpStream::connect(endpoint.address).await.expect("a connection"),
        head: format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-session-id: {session}\r\n\
             mcp-protocol-version: {REVISION}\r\n",
            endpoint.path, endpoint.host
        ),
    }
}

impl Hostile {
    async fn call(&mut self, tool: &str, arguments: Value) {
        let call = json!({"jsonrpc": "2.0", "id": "hostile", "method": "tools/call", "params": {
            "name": tool, "arguments": arguments, "_meta": {"progressToken": "hostile"},
        }})
        .to_string();
        let request = format!("{}content-length: {}\r\n\r\n{call}", self.head, call.len());
        self.stream.write_all(request.as_bytes()).await.expect("it is sent");
    }

    /// Has the server send a gigabyte.
    async fn flood(&mut self) {
        self.call("notify", json!({"count": 1_000_000, "padding": 1_000})).await;
        is_answered(&mut self.stream).await;
    }
}

/// Reads the head of an answer, and a little more at most: it is served.
async fn is_answered(stream: &mut TcpStream) {
    let mut head = [0; 1024];
    let length = stream.read(&mut head).await.expect("an answer");
    assert!(head[..length].starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head[..length]));
}

/// Opens the session's own stream, has the server say a gigabyte there, and reads nothing of it.
async fn never_listens(mut hostile: Hostile) {
    let address = hostile.stream.peer_addr().expect("it is connected");
    let mut listens = TcpStream::connect(address).await.expect("a connection");
    let request = format!("{}\r\n", hostile.head.replacen("POST", "GET", 1));
    listens.write_all(request.as_bytes()).await.expect("it is sent");
    // By then the server has the stream too.
    is_answered(&mut listens).await;
    hostile.call("announce", json!({"count": 1_000_000, "padding": 1_000})).await;
    std::future::pending::<()>().await;
}

/// Reads nothing of a flood.
async fn never_reads(mut hostile: Hostile) {
    hostile.flood().await;
    std::future::pending::<()>().await;
}

/// Reads a byte of it now and then.
async fn reads_slowly(mut hostile: Hostile) {
    hostile.flood().await;
    while hostile.stream.read_u8().await.is_ok() {
        tokio::time::sleep(SLOWLY).await;
    }
}

/// Is asked fifty times a second, and reads it all.
async fn never_answers(mut hostile: Hostile) {
    hostile.call("notify", json!({"count": 1_000_000, "milliseconds": 20, "ask": true})).await;
    is_answered(&mut hostile.stream).await;
    let mut questions = [0; 4096];
    while hostile.stream.read(&mut questions).await.is_ok_and(|length| length > 0) {}
}

/// Sends a request so slowly that it never ends.
async fn sends_slowly(mut hostile: Hostile) {
    let request = format!("{}content-length: 100000\r\n\r\n{}", hostile.head, " ".repeat(100_000));
    for byte in request.bytes() {
        if hostile.stream.write_all(&[byte]).await.is_err() {
            // It was sent away, which is as good.
            return;
        }
        tokio::time::sleep(SLOWLY).await;
    }
}
