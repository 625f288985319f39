//! What the way through the sidecar costs a session with a server over stdio: from the first byte of `initialize` to
//! its answer, the process's own start included, and then each call.
//!
//! `cargo bench -p longshore-sidecar --bench stdio`. The server is the peers' Go server. Directly and through take
//! turns, so that both see the same machine. Then how soon a session begins that finds a process waiting, and how many
//! small calls pass: this program is client and server of those. All of it is on one processor (the first, or
//! `LONGSHORE_BENCH_CPU`).

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement speaks by printing, and by failing"
)]

#[path = "shared/harness.rs"]
mod harness;

#[path = "stdio/load.rs"]
mod load;
#[path = "shared/machine.rs"]
mod machine;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use harness::http::connect;
use harness::shim::{serving, stdio};
use harness::{Reply, Request, client, peer};
use longshore_sidecar_config::LogLevel;

const SESSIONS: usize = 40;
const CALLS: usize = 500;
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn main() {
    if std::env::args().nth(1).as_deref() == Some(load::ECHO) {
        return load::echo();
    }
    machine::pin();
    let program = peer::folder().join("bin/go-server").to_str().expect("text").to_owned();
    let command = [program, "-stdio".to_owned()];
    let mut config = stdio();
    config.log_level = LogLevel::Info;
    let (shim, sidecar) = serving(&config, &command, &[]);

    let (mut direct, mut through, mut answered, mut forwarded) = (vec![], vec![], vec![], vec![]);
    for session in 0..SESSIONS {
        let began = Instant::now();
        let mut server = Direct::start(&command);
        server.ask(&client::initialize("2025-11-25"));
        direct.push(began.elapsed());

        let mut stream = connect(sidecar.mcp);
        let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
        let began = Instant::now();
        Request::post(client::initialize("2025-11-25")).write(&mut stream);
        let reply = Reply::read(&mut reader).expect("an answer");
        through.push(began.elapsed());
        assert_eq!(reply.status, 200, "{}", reply.text());
        let id = reply.header("mcp-session-id").expect("a session");

        if session == 0 {
            for _ in 0..CALLS {
                let began = Instant::now();
                server.ask(PING);
                answered.push(began.elapsed());
                let began = Instant::now();
                Request::post(PING).session(id).write(&mut stream);
                Reply::read(&mut reader).expect("an answer");
                forwarded.push(began.elapsed());
            }
        }
        Request::new("DELETE", "/mcp").session(id).send(sidecar.mcp);
    }
    show("initialize answered, the process's start included", direct, through);
    show("a ping answered", answered, forwarded);
    drop((sidecar, shim));
    load::warm(&command);
    load::calls();
}

fn show(what: &str, mut direct: Vec<Duration>, mut through: Vec<Duration>) {
    direct.sort();
    through.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let at = |times: &[Duration], part: f64| times[((times.len() - 1) as f64 * part) as usize];
    for (name, part) in [("median", 0.5), ("90 %", 0.9)] {
        let (directly, by_sidecar) = (at(&direct, part), at(&through, part));
        println!(
            "{what}, {name}: directly {:.3} ms, through the sidecar {:.3} ms, {:+.3} ms",
            millis(directly),
            millis(by_sidecar),
            millis(by_sidecar) - millis(directly)
        );
    }
}

/// The server, as a client over stdio has it.
struct Direct {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Direct {
    fn start(command: &[String]) -> Self {
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server");
        let stdin = child.stdin.take().expect("stdin");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        Self { child, stdin, stdout }
    }

    fn ask(&mut self, message: &str) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).expect("a message");
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).expect("an answer") > 0);
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
