//! The servers that the suite is run against, alone and behind a sidecar.

use std::fmt;
use std::process::{Command, Stdio};

use longshore_sidecar_config::{Config, Isolation};

use super::suite;
use crate::harness::peer::{Peer, free_port};
use crate::harness::shim::stdio;
use crate::harness::{Files, Shim, Sidecar, config};

/// Whose protocol code a server is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Maker {
    TypeScript,
    Python,
    Go,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Transport {
    Http,
    Stdio,
}

/// A server, and what it is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub(super) revision: &'static str,
    pub(super) maker: Maker,
    pub(super) transport: Transport,
}

impl Server {
    fn command(self, port: u16) -> Vec<String> {
        let program = match self.maker {
            Maker::TypeScript => "bin/typescript",
            Maker::Python => "bin/python",
            Maker::Go => "bin/go",
        };
        let program = suite::folder().join(program).to_str().expect("text").to_owned();
        let transport = match self.transport {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
        };
        vec![program, self.revision.to_owned(), transport.to_owned(), port.to_string()]
    }

    /// Starts it at a port of its own.
    fn listen(self) -> Peer {
        let port = free_port();
        let command = self.command(port);
        let child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server");
        Peer::listening(child, port)
    }

    /// What the suite says of it alone, if the suite can speak to it.
    pub(super) fn alone(self, suite: &str) -> Option<suite::Results> {
        match self.transport {
            Transport::Http => {
                let server = self.listen();
                Some(suite::run(&format!("http://localhost:{}/mcp", server.port), suite))
            }
            Transport::Stdio => None,
        }
    }

    /// What the suite says of a sidecar in front of it.
    pub(super) fn behind_a_sidecar(self, suite: &str) -> suite::Results {
        let files = Files::new();
        let port = free_port();
        let (config, _server) = self.serving(&files);
        // The suite plays a page of this origin too.
        let origin = format!("http://localhost:{port}");
        files.write(&Config { allowed_origins: vec![origin.clone()], ..config });
        let address = format!("127.0.0.1:{port}");
        let _sidecar = Sidecar::with(files, &["--mcp-addr", &address]).loaded().ready();
        suite::run(&format!("{origin}/mcp"), suite)
    }

    /// Starts it for a sidecar, and says what the sidecar is told of it.
    fn serving(self, files: &Files) -> (Config, Running) {
        match self.transport {
            Transport::Http => {
                let server = self.listen();
                (config(server.port), Running::Peer(server))
            }
            Transport::Stdio => {
                let mut config = stdio();
                // Python takes seconds to start where others start at once: its sessions share a process.
                if let (Maker::Python, Some(processes)) = (self.maker, &mut config.limits.processes) {
                    processes.isolation = Isolation::Principal;
                }
                (config, Running::Shim(Shim::start(files, &self.command(0))))
            }
        }
    }
}

/// Ends with what it holds.
#[expect(dead_code, reason = "held for as long as the suite runs")]
enum Running {
    Peer(Peer),
    Shim(Shim),
}

impl fmt::Display for Maker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TypeScript => "TypeScript SDK",
            Self::Python => "Python SDK",
            Self::Go => "Go SDK",
        })
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Http => "HTTP",
            Self::Stdio => "stdio",
        })
    }
}
