//! What a sidecar costs before anybody calls: the time from its start to the first handshake of a client through it,
//! and the memory that it holds when idle.
//!
//! `cargo bench -p longshore-sidecar --bench start`; `LONGSHORE_SIDECAR=path` measures another program, such as the
//! static one of an image. The server is the peers' Go server.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement speaks by printing, and by failing"
)]

#[path = "shared/harness.rs"]
mod harness;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::config::keys;
use harness::peer::free_port;
use harness::{Files, GoServer, Request, client, config};

const ROUNDS: usize = 30;
const KEY: &str = "the-key";
/// How long it is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(5);

fn main() {
    let program = std::env::var("LONGSHORE_SIDECAR")
        .unwrap_or_else(|_| env!("CARGO_BIN_EXE_longshore-sidecar").to_owned());
    let size = std::fs::metadata(&program).expect("the program").len();
    let server = GoServer::start(&[]);
    let files = Files::new();
    files.write_with_keys(&config(server.port), &keys(&[("bench", KEY)]));

    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| first_handshake(&program, &files)).collect();
    times.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("program: {program}, {:.2} MB", size as f64 / 1e6);
    println!(
        "start to the first initialize answered: median {:.2} ms, slowest of {ROUNDS} {:.2} ms",
        millis(times[ROUNDS / 2]),
        millis(times[ROUNDS - 1])
    );

    let (mut child, port) = start(&program, &files);
    handshake(port);
    std::thread::sleep(IDLE);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    for line in status
        .lines()
        .filter(|line| ["VmRSS", "RssAnon", "RssFile", "Threads"].iter().any(|name| line.starts_with(name)))
    {
        println!("idle: {}", line.replace('\t', " "));
    }
    end(&mut child);
}

/// Starts a sidecar and waits until a client has its session.
fn first_handshake(program: &str, files: &Files) -> Duration {
    let began = Instant::now();
    let (mut child, port) = start(program, files);
    handshake(port);
    let time = began.elapsed();
    end(&mut child);
    time
}

fn start(program: &str, files: &Files) -> (Child, u16) {
    let port = free_port();
    let mut command = Command::new(program);
    command.args(["serve", "--admin-addr", "127.0.0.1:0", "--mcp-addr", &format!("127.0.0.1:{port}")]);
    for (flag, directory) in
        [("--config-dir", "config"), ("--keys-dir", "keys"), ("--sockets-dir", "sockets")]
    {
        command.arg(flag).arg(files.path(directory));
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    (child.expect("the program"), port)
}

fn handshake(port: u16) {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let request = Request::post(client::initialize("2025-11-25")).key(KEY);
    loop {
        // Until it listens, and until it has read its configuration.
        if TcpStream::connect(address).is_ok() && request.send(address).status == 200 {
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn end(child: &mut Child) {
    child.kill().expect("its end");
    child.wait().expect("its end");
}
