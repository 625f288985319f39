//! The servers that the suite is run against, alone and behind a sidecar.

use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use longshore_sidecar_config::inventory::Inventory;
use longshore_sidecar_config::{Config, Isolation, OnOwnerLoss, Upstream};

use super::rules::Behind;
use super::{rust, suite};
use crate::harness::config::keys;
use crate::harness::peer::{Peer, free_port};
use crate::harness::recorder::{Heard, Recorder};
use crate::harness::shim::stdio;
use crate::harness::{Cluster, Files, Request, Shim, Sidecar, config, own};

/// Whose protocol code a server is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Maker {
    Longshore,
    TypeScript,
    Python,
    Go,
    /// The last release of the Go SDK that knows nothing newer or, for the first revisions, one that speaks
    /// them too.
    OlderGo,
    /// It has what the matrix tries, and no more.
    Rust,
    /// The last release of the Rust SDK that knows nothing newer. It has what the matrix tries, and no more.
    OlderRust,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Http,
    Sse,
    Stdio,
}

/// How long a sidecar is given to find out what its server speaks before it is judged: some servers are on Python, several
/// start at once, and one that says nothing at first is asked again later.
const KNOWN: Duration = Duration::from_secs(120);
/// How many processes wait for a call where they take long to start, as docs/stdio.md has it for such servers.
const WARM: u32 = 4;
/// The revision without sessions.
const MODERN: &str = "2026-07-28";

/// A server, and what it is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub(super) revision: &'static str,
    pub(super) maker: Maker,
    pub(super) transport: Transport,
}

impl Server {
    /// Whether the sidecar has to be told to speak its revision to it: it would choose a newer one, or the one of its
    /// clients.
    pub(super) fn is_pinned(self, suite: &str) -> bool {
        let speaks_more = matches!(
            (self.maker, self.revision, self.transport),
            (Maker::Python | Maker::Go, "2026-07-28", _)
                | (Maker::Go, _, Transport::Stdio)
                | (Maker::OlderGo, "2025-03-26" | "2024-11-05", _)
        );
        speaks_more && suite != self.revision
    }

    /// What the rules know of it.
    pub(super) fn behind(self) -> Behind<'static> {
        Behind { revision: self.revision, maker: self.maker.name(), over: self.transport.name() }
    }

    fn command(self, port: u16) -> Vec<String> {
        let transport = match self.transport {
            Transport::Http => "http",
            Transport::Sse => "sse",
            Transport::Stdio => "stdio",
        };
        let number = port.to_string();
        let arguments = [self.revision, transport, &number];
        let program = match self.maker {
            Maker::Longshore => return own::example(self.revision, transport, port),
            Maker::Rust => return own::command(rust::SERVER, &arguments),
            Maker::OlderRust => return own::command(rust::OLDER_SERVER, &arguments),
            Maker::TypeScript => "bin/typescript",
            Maker::Python => "bin/python",
            Maker::Go => "bin/go",
            Maker::OlderGo => "bin/go-older",
        };
        let program = suite::folder().join(program).to_str().expect("text").to_owned();
        std::iter::once(program).chain(arguments.map(str::to_owned)).collect()
    }

    /// Starts it at a port of its own.
    fn listen(self) -> Peer {
        let port = free_port();
        let command = self.command(port);
        let child = suite::patient(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server");
        Peer::listening(child, port)
    }

    /// What the suite says of it alone, if the suite can speak to it. In one that speaks more, it would hear another
    /// revision.
    pub(super) fn alone(self, suite: &str) -> Option<suite::Results> {
        (self.transport == Transport::Http && !self.is_pinned(suite)).then(|| {
            let server = self.listen();
            suite::run(&format!("http://localhost:{}/mcp", server.port), suite)
        })
    }

    /// What the suite says of it alone in these scenarios.
    pub(super) fn alone_in(self, suite: &str, scenarios: &[String]) -> suite::Results {
        let server = self.listen();
        suite::run_each(&format!("http://localhost:{}/mcp", server.port), suite, scenarios)
    }

    /// A sidecar in front of it, for the suite.
    pub(super) fn behind_a_sidecar(self, suite: &str) -> Served {
        // What the suite knows, and where the sidecar listens: some of what it says is wrong, which is not the sidecar's doing.
        let (port, inner) = (free_port(), free_port());
        let origin = format!("http://localhost:{port}");
        let (sidecar, server) = self.beside_a_sidecar(suite, inner, &[], vec![origin.clone()]);
        let recorders = vec![Recorder::of_clients(port, sidecar.mcp)];
        Served { recorders, sidecar, server }
    }

    /// The same for these clients, each of which is known by its name.
    pub(super) fn behind_a_sidecar_of(self, clients: &[&str]) -> Served {
        let keys: Vec<_> = clients.iter().map(|client| (*client, *client)).collect();
        let (sidecar, server) = self.beside_a_sidecar(self.revision, free_port(), &keys, Vec::new());
        let recorder = |client: &&str| Recorder::of_client(0, sidecar.mcp, Some(client));
        let recorders = clients.iter().map(recorder).collect();
        Served { recorders, sidecar, server }
    }

    /// With a sidecar at this port, for callers with these keys, if there are any.
    fn beside_a_sidecar(
        self,
        suite: &str,
        port: u16,
        callers: &[(&str, &str)],
        origins: Vec<String>,
    ) -> (Sidecar, Running) {
        let files = Files::new();
        let (mut config, server) = self.serving(suite, &files);
        let cluster = Cluster::new();
        cluster.trust(&mut config);
        // The suite plays a page of this origin too.
        config.allowed_origins = origins;
        config.protocol = self.is_pinned(suite).then(|| self.revision.to_owned());
        if callers.is_empty() {
            files.write(&config);
        } else {
            files.write_with_keys(&config, &keys(callers));
        }
        let address = format!("127.0.0.1:{port}");
        let sidecar = Sidecar::with(files, &["--mcp-addr", &address]).loaded();
        let warm = config.limits.processes.map_or(0, |processes| processes.warm);
        let began = Instant::now();
        let key = cluster.token(|_| {});
        while !self.is_known_to(&sidecar, &key) || !waits(&sidecar, warm) {
            if began.elapsed() > KNOWN {
                eprintln!("judged before it is known for what it is, or its processes wait: {self:?}");
                break;
            }
            sleep(Duration::from_millis(20));
        }
        (sidecar, server)
    }

    /// Whether a sidecar has found out that it speaks its revision.
    fn is_known_to(self, sidecar: &Sidecar, key: &str) -> bool {
        let reply = Request::new("GET", "/v1/inventory").key(key).send(sidecar.admin);
        let inventory = serde_json::from_slice::<Inventory>(&reply.body).ok();
        let server = inventory.and_then(|inventory| inventory.server);
        server.is_some_and(|server| server.protocol_versions.iter().any(|version| version == self.revision))
    }

    /// Starts it for a sidecar, and says what the sidecar is told of it.
    fn serving(self, suite: &str, files: &Files) -> (Config, Running) {
        match self.transport {
            Transport::Http => {
                let server = self.listen().heard(0);
                (config(server.port), Running::Peer(server))
            }
            Transport::Sse => {
                let server = self.listen().heard(0);
                let upstream = Upstream::Sse { port: server.port, path: "/sse".to_owned() };
                let mut config = Config { upstream, ..config(0) };
                // A call that is cancelled ends the session on older releases on Python. Nothing is kept in it.
                config.sessions.on_owner_loss = OnOwnerLoss::Reinitialize;
                (config, Running::Peer(server))
            }
            Transport::Stdio => {
                let mut config = stdio();
                let is_slow = [Maker::Python, Maker::TypeScript].contains(&self.maker);
                match &mut config.limits.processes {
                    // Python takes seconds to start where others start at once: its sessions share a process.
                    Some(processes) if self.maker == Maker::Python && suite < MODERN => {
                        processes.isolation = Isolation::Principal;
                    }
                    // Requests that stand alone cannot: a process that several use may ask nobody anything. So some wait for
                    // them, since the suite gives a call 0.6 seconds.
                    Some(processes) if is_slow && suite >= MODERN => processes.warm = WARM,
                    _ => {}
                }
                (config, Running::Shim(Shim::start(files, &self.command(0))))
            }
        }
    }
}

/// Whether so many processes wait behind a sidecar.
fn waits(sidecar: &Sidecar, warm: u32) -> bool {
    warm == 0 || sidecar.metric("longshore_processes_warm") >= f64::from(warm)
}

#[test]
#[ignore = "a server, which another test runs"]
fn example() {
    use longshore_example_server::command::{Arguments, Special, Transport, run};
    let words = own::told();
    let [revision, transport, port] = &words[..] else { panic!("{words:?}") };
    let arguments = Arguments {
        transport: match transport.as_str() {
            "stdio" => Transport::Stdio,
            "sse" => Transport::Sse,
            _ => Transport::Http,
        },
        port: port.parse().unwrap(),
        host: std::net::Ipv4Addr::LOCALHOST.into(),
    };
    run(longshore_mcp::revision::Revision::parse(revision).unwrap(), &arguments, &Special::default())
        .unwrap();
}

/// A server and a sidecar in front of it, for as long as they are held. They stay for as long as the suite looks again: a
/// process that took long to start has started then.
pub(super) struct Served {
    // Clients' side of it goes first.
    recorders: Vec<Recorder>,
    sidecar: Sidecar,
    server: Running,
}

enum Running {
    Peer(Peer),
    Shim(Shim),
}

impl Served {
    /// Where the suite finds it.
    pub(super) fn url(&self) -> String {
        self.url_of(0)
    }

    /// Where the client with this number finds it.
    pub(super) fn url_of(&self, client: usize) -> String {
        format!("http://localhost:{}/mcp", self.recorders[client].port)
    }

    /// Whether the client with this number has ever said that it gives a call up: in words, or by the end of a connection.
    pub(super) fn is_told_by(&self, client: usize) -> bool {
        self.recorders[client].given_up() > 0
    }

    /// Whether the sidecar has heard that by now of a client. What comes when the call is over goes nowhere.
    pub(super) fn heard_cancelled_by(&self, client: &str) -> bool {
        self.sidecar.is_audited(|line| {
            let in_words = line["method"] == "notifications/cancelled"
                && (line["reason"].is_null() || line["reason"] == "no such call");
            line["principal"] == client && (in_words || line["reason"] == "cancelled by its client")
        })
    }

    /// How often the server was told that a call is given up.
    pub(super) fn told_cancelled(&self) -> usize {
        match &self.server {
            Running::Peer(peer) => peer.recorder.as_ref().map_or(0, Recorder::given_up),
            Running::Shim(shim) => shim.heard.as_ref().map_or(0, Heard::given_up),
        }
    }
}

impl Maker {
    /// What the page calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Longshore => "Longshore",
            Self::TypeScript => "TypeScript SDK",
            Self::Python => "Python SDK",
            Self::Go | Self::OlderGo => "Go SDK",
            Self::Rust | Self::OlderRust => "Rust SDK",
        }
    }
}

impl Transport {
    /// What the page calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Sse => "HTTP+SSE",
            Self::Stdio => "stdio",
        }
    }
}
