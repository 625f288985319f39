//! Calls one behind the other on many connections, with a server that costs next to nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longshore_mcp::envelope::{self, Message};
use longshore_sidecar_config::{Isolation, LogLevel, Processes};

use crate::harness::config::processes;
use crate::harness::http::connect;
use crate::harness::shim::{serving, stdio};
use crate::harness::{Reply, Request, client, eventually};
use crate::machine::processor_time;

/// The argument that makes this program the server.
pub(crate) const ECHO: &str = "echo";
/// How many calls are in flight.
const IN_FLIGHT: usize = 16;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
const SESSIONS: usize = 40;

/// Answers every request with the same few words, as many at once as have come at once.
pub(crate) fn echo() {
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut answers) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if let Ok(Message::Request(request)) = envelope::read(&line) {
            let result = match request.method.as_str() {
                "initialize" => {
                    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#
                }
                "tools/list" => r#"{"tools":[]}"#,
                _ => r#"{"content":[{"type":"text","text":"hello"}]}"#,
            };
            answers.extend_from_slice(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\n", request.id.as_json())
                    .as_bytes(),
            );
        }
        line.clear();
        if input.buffer().is_empty() {
            output.write_all(&answers).and_then(|()| output.flush()).expect("a reader");
            answers.clear();
        }
    }
}

fn command() -> [String; 2] {
    let own = std::env::current_exe().expect("its own path");
    [own.to_str().expect("text").to_owned(), ECHO.to_owned()]
}

/// How many small calls pass in a second, and what the sidecar's part of each is.
pub(crate) fn calls() {
    for (name, isolation, sessions) in [
        ("one session", Isolation::Session, 1),
        ("16 sessions, each with its process", Isolation::Session, IN_FLIGHT),
        ("16 sessions that share a process", Isolation::Shared, IN_FLIGHT),
    ] {
        let mut config = stdio();
        config.log_level = LogLevel::Info;
        let total = if isolation == Isolation::Shared { 1 } else { 32 };
        config.limits.processes = Some(Processes { isolation, ..processes(total, total) });
        let (_shim, sidecar) = serving(&config, &command(), &[]);
        let ids: Vec<String> = (0..sessions)
            .map(|_| {
                let reply = Request::post(client::initialize("2025-11-25")).send(sidecar.mcp);
                assert_eq!(reply.status, 200, "{}", reply.text());
                reply.header("mcp-session-id").expect("a session").to_owned()
            })
            .collect();
        let mut connections: Vec<Connection> = (0..IN_FLIGHT)
            .map(|number| Connection::new(connect(sidecar.mcp), &ids[number % sessions], number))
            .collect();
        connections.iter_mut().for_each(Connection::ask);
        turn(&mut connections, WARM_UP);
        let process = sidecar_process();
        let (before, began) = (processor_time(process), Instant::now());
        let count = turn(&mut connections, MEASURED);
        let (used, took) = (processor_time(process) - before, began.elapsed());
        println!(
            "calls with {IN_FLIGHT} in flight, {name}: {:.0} a second, {:.2} \u{b5}s of the sidecar's processor time each",
            count as f64 / took.as_secs_f64(),
            used.as_secs_f64() * 1e6 / count as f64
        );
    }
}

/// The process of the sidecar, which is a child of this one as the shim is.
fn sidecar_process() -> u32 {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("its children");
    let mut children = children.split_ascii_whitespace();
    let is_sidecar = |process: &&str| {
        std::fs::read_to_string(format!("/proc/{process}/comm"))
            .is_ok_and(|name| name.starts_with("longshore-sid"))
    };
    children.find(is_sidecar).and_then(|process| process.parse().ok()).expect("the sidecar")
}

/// Reads each connection's answer and asks again, in turn.
fn turn(connections: &mut [Connection], time: Duration) -> usize {
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < time {
        for connection in connections.iter_mut() {
            connection.answered();
            connection.ask();
        }
        count += connections.len();
    }
    count
}

/// A client's connection. What it sends is always the same, and what comes back is looked at as little as possible:
/// this is on the same processor.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    /// How long an answer is, once that is known.
    length: usize,
    buffer: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, session: &str, id: usize) -> Self {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"hello"}}}}}}"#
        );
        let request = Request::post(body).session(session).bytes();
        let mut connection = Self { stream, request, length: 0, buffer: vec![0; 64 << 10] };
        connection.ask();
        let mut reader = BufReader::new(connection.stream.try_clone().expect("a clone"));
        let reply = Reply::read(&mut reader).expect("an answer");
        assert_eq!(reply.status, 200, "{}", reply.text());
        connection.ask();
        connection.length = connection.stream.read(&mut connection.buffer).expect("an answer");
        connection
    }

    fn ask(&mut self) {
        self.stream.write_all(&self.request).expect("a sidecar");
    }

    fn answered(&mut self) {
        // Every answer is as long as the first: the date in it is, too.
        self.stream.read_exact(&mut self.buffer[..self.length]).expect("an answer");
    }
}

/// How soon a new session begins that finds a process waiting.
pub(crate) fn warm(command: &[String]) {
    for (name, told) in [("told nothing yet", false), ("told ahead", true)] {
        let mut config = stdio();
        config.log_level = LogLevel::Info;
        config.limits.processes = Some(Processes { warm: 2, ..processes(32, 32) });
        let (_shim, sidecar) = serving(&config, command, &[]);
        let mut times = Vec::new();
        for session in 0..SESSIONS {
            eventually("two wait", || (sidecar.metric("longshore_processes_warm") == 2.0).then_some(()));
            // They are not there yet when they have only been started.
            std::thread::sleep(Duration::from_millis(200));
            let mut body = client::initialize("2025-11-25");
            if !told {
                body = body.replace("\"test\"", &format!("\"test-{session}\""));
            }
            let mut stream = connect(sidecar.mcp);
            let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
            let began = Instant::now();
            Request::post(body).write(&mut stream);
            let reply = Reply::read(&mut reader).expect("an answer");
            times.push(began.elapsed());
            assert_eq!(reply.status, 200, "{}", reply.text());
            let id = reply.header("mcp-session-id").expect("a session");
            Request::new("DELETE", "/mcp").session(id).send(sidecar.mcp);
        }
        times.sort();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
        println!(
            "initialize answered by a process that waits, {name}: median {:.3} ms, 90 % {:.3} ms",
            at(0.5),
            at(0.9)
        );
    }
}
