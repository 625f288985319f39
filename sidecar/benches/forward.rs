//! What it costs that any replica takes any session: the processor time of a call that another replica owns, in both
//! sidecars together, against that of a call which the replica owns that is asked.
//!
//! `cargo bench -p longshore-sidecar --bench forward`. Two sidecars in front of one server, the peers' Go server, on
//! loopback. Owned and forwarded take turns, so that both see the same machine. The processor's time is the kernel's
//! count in nanoseconds, of all threads of a process.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement speaks by printing, and by failing"
)]

#[path = "shared/harness.rs"]
mod harness;

#[path = "shared/machine.rs"]
mod machine;

use std::io::BufReader;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use harness::http::connect;
use harness::replicas::Network;
use harness::{GoServer, Reply, Request, Sidecar, client, config};
use longshore_sidecar_config::LogLevel;
use machine::{median, processor_time};

/// Calls in flight, each in a session of its own.
const LANES: usize = 16;
/// Calls of a lane in one round.
const CALLS: usize = 2_000;
/// How often owned and forwarded take turns.
const ROUNDS: usize = 5;
/// The key of a caller.
const KEY: &str = "key-a";
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#;

fn main() {
    let server = GoServer::start(&["-json"]);
    let mut config = config(server.port);
    config.log_level = LogLevel::Info;
    let replicas = Network::new().replicas(&config, &[server.port; 2]);
    let [owner, other] = &replicas[..] else { panic!("two replicas") };
    let sessions: Vec<String> = (0..LANES).map(|_| open(owner)).collect();

    // Connections, caches and allocators are as they will be afterwards.
    round(other.mcp, &sessions, CALLS / 10);
    round(owner.mcp, &sessions, CALLS / 10);
    let (mut owned, mut forwarded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        owned.push(measure(&replicas, owner.mcp, &sessions));
        forwarded.push(measure(&replicas, other.mcp, &sessions));
    }
    show("owned", &owned);
    show("forwarded", &forwarded);
    let ratio = median(&forwarded).as_secs_f64() / median(&owned).as_secs_f64();
    println!("a forwarded call takes {ratio:.2} times the processor time of an owned one");
}

/// Opens a session, as every client does.
fn open(replica: &Sidecar) -> String {
    let reply = Request::post(client::initialize("2025-11-25")).key(KEY).send(replica.mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    Request::post(ready).key(KEY).session(&id).send(replica.mcp);
    id
}

/// The processor time of a call, in all sidecars together.
fn measure(replicas: &[Sidecar], at: SocketAddr, sessions: &[String]) -> Duration {
    let spent = || replicas.iter().map(|it| processor_time(process(it))).sum::<Duration>();
    let (before, began) = (spent(), Instant::now());
    round(at, sessions, CALLS);
    let calls = u32::try_from(LANES * CALLS).expect("a small number");
    let each = (spent() - before) / calls;
    eprintln!("{calls} calls in {:.2} s", began.elapsed().as_secs_f64());
    each
}

/// Calls in every session at once, over a connection each.
fn round(at: SocketAddr, sessions: &[String], calls: usize) {
    std::thread::scope(|scope| {
        for id in sessions {
            scope.spawn(move || {
                let mut stream = connect(at);
                let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
                for _ in 0..calls {
                    Request::post(CALL).key(KEY).session(id).write(&mut stream);
                    let reply = Reply::read(&mut reader).expect("an answer");
                    assert_eq!(reply.status, 200, "{}", reply.text());
                }
            });
        }
    });
}

/// The id of the process, which no other has been told to read these files.
fn process(sidecar: &Sidecar) -> u32 {
    let files = sidecar.files.path("config");
    let files = files.to_str().expect("text");
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut found = processes.filter_map(|entry| {
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        command.contains(files).then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    });
    found.next().expect("it runs")
}

fn show(what: &str, times: &[Duration]) {
    let micros = |time: &Duration| format!("{:.2}", time.as_secs_f64() * 1e6);
    let all: Vec<_> = times.iter().map(micros).collect();
    println!("{what}: {} us of the sidecars a call (median of {})", micros(&median(times)), all.join(", "));
}
