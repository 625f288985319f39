//! Several sidecars of one server, as if each of them were in a pod of its own: each has its own loopback address, and
//! a file takes the place of DNS.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use longshore_sidecar_config::{Config, Keys, Peers, ports};

use super::config::callers;
use super::{Files, Sidecar, eventually};

/// A server that listens at a port.
pub(crate) trait Listens {
    fn port(&self) -> u16;
}

/// Where replicas can be, and who knows of whom.
pub(crate) struct Network {
    directory: tempfile::TempDir,
    /// No other test has it: all replicas of a server listen at the same port.
    prefix: [u8; 2],
    /// For how long replicas that end accept connections at least, in milliseconds.
    drain_minimum: u16,
}

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        // Nor has another process of tests, most likely: they share the machine.
        let process = u8::try_from(std::process::id() % 250).expect("small") + 2;
        let network = Self {
            directory: tempfile::tempdir().expect("a directory"),
            prefix: [process, NEXT.fetch_add(1, Ordering::Relaxed)],
            drain_minimum: 1_000,
        };
        network.list(&[]);
        network
    }

    /// One whose replicas take their time to end: longer than a busy machine does for a few calls.
    pub(crate) fn ending_slowly() -> Self {
        Self { drain_minimum: 20_000, ..Self::new() }
    }

    /// The address of the replica of that number.
    pub(crate) fn address(&self, number: u8) -> Ipv4Addr {
        let [first, second] = self.prefix;
        Ipv4Addr::new(127, first, second, number)
    }

    /// What DNS says from now on.
    pub(crate) fn list(&self, numbers: &[u8]) {
        let lines: String = numbers.iter().map(|number| format!("{}\n", self.address(*number))).collect();
        let temporary = self.directory.path().join("new");
        std::fs::write(&temporary, lines).expect("a file");
        std::fs::rename(temporary, self.file()).expect("a rename");
    }

    /// DNS says nothing, until it lists somebody.
    pub(crate) fn fail(&self) {
        std::fs::remove_file(self.file()).expect("a file");
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("peers")
    }

    /// The flags of the replica of that number, in a pod of that UID.
    pub(crate) fn flags(&self, number: u8, uid: &str) -> Vec<String> {
        let address = self.address(number);
        let flags = [
            ("--peers-addr", format!("{address}:{}", ports::PEERS)),
            ("--mcp-addr", "127.0.0.1:0".to_owned()),
            ("--admin-addr", "127.0.0.1:0".to_owned()),
            ("--pod-ip", address.to_string()),
            ("--pod-uid", uid.to_owned()),
            ("--peers-file", self.file().to_str().expect("text").to_owned()),
            ("--drain-minimum-ms", self.drain_minimum.to_string()),
        ];
        flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Starts the replica of that number. Its pod is `pod-NUMBER`.
    pub(crate) fn start(&self, number: u8, config: &Config) -> Sidecar {
        self.start_with(number, config, &callers())
    }

    pub(crate) fn start_with(&self, number: u8, config: &Config, keys: &Keys) -> Sidecar {
        let files = files(config, keys);
        self.start_again(number, &format!("pod-{number}"), files)
    }

    /// Starts the replica of that number in a pod of that template.
    pub(crate) fn start_of(&self, template: &str, number: u8, config: &Config) -> Sidecar {
        let mut flags = self.flags(number, &format!("pod-{number}"));
        flags.extend(["--pod-template".to_owned(), template.to_owned()]);
        with_flags(files(config, &callers()), &flags)
    }

    /// Starts the replica of that number, and has the Service lead it to that other one.
    pub(crate) fn start_at(&self, entry: u8, number: u8, config: &Config) -> Sidecar {
        let mut flags = self.flags(number, &format!("pod-{number}"));
        flags.extend(["--peers-entry".to_owned(), self.address(entry).to_string()]);
        with_flags(files(config, &callers()), &flags)
    }

    /// Starts a replica with the files of one that has ended.
    pub(crate) fn start_again(&self, number: u8, uid: &str, files: impl Into<Arc<Files>>) -> Sidecar {
        with_flags(files, &self.flags(number, uid))
    }

    /// Lists replicas from 1 on and starts them, each in front of the server at its port, and waits until all of them
    /// know each other.
    pub(crate) fn replicas(&self, config: &Config, server_ports: &[u16]) -> Vec<Sidecar> {
        let numbers: Vec<_> = (1..).take(server_ports.len()).collect();
        self.list(&numbers);
        let start = |(number, port): (&u8, &u16)| {
            let mut config = config.clone();
            if let longshore_sidecar_config::Upstream::StreamableHttp { port: to, .. } = &mut config.upstream
            {
                *to = *port;
            }
            self.start(*number, &config)
        };
        let replicas: Vec<_> = numbers.iter().zip(server_ports).map(start).collect();
        replicas
            .into_iter()
            .map(|replica| replica.ready())
            .inspect(|replica| knows(replica, numbers.len() - 1))
            .collect()
    }

    /// The same, each of them in front of one of these servers.
    pub(crate) fn in_front_of(&self, config: &Config, servers: &[impl Listens]) -> Vec<Sidecar> {
        self.replicas(config, &servers.iter().map(Listens::port).collect::<Vec<_>>())
    }
}

fn files(config: &Config, keys: &Keys) -> Files {
    let files = Files::new();
    files.write_with_keys(&with_peers(config), keys);
    files
}

fn with_flags(files: impl Into<Arc<Files>>, flags: &[String]) -> Sidecar {
    Sidecar::with(files, &flags.iter().map(String::as_str).collect::<Vec<_>>()).loaded()
}

/// Waits until a replica knows that so many others serve.
pub(crate) fn knows(replica: &Sidecar, others: usize) {
    eventually("the others are known", || {
        replica.metric("longshore_replicas{state=\"serving\"}") == others as f64
    });
}

/// A configuration with other replicas in it.
pub(crate) fn with_peers(config: &Config) -> Config {
    Config { peers: Some(Peers { service: "peer-peers.tools.svc".to_owned() }), ..config.clone() }
}
