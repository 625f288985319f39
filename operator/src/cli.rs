//! The command `longshore`, as people type it.

mod catalog;
mod crds;
mod example_server;
mod key;
mod local;
mod log;
mod operator;
mod ready;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Longshore runs MCP servers on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "longshore", version, about, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator, which turns McpServer manifests into served MCP servers.
    Operator(Box<operator::Args>),
    /// Runs the catalog, which says what all servers offer.
    Catalog(Box<catalog::Args>),
    /// Prints the CustomResourceDefinitions, one YAML document each.
    Crds,
    /// Makes API keys.
    Key(key::Args),
    /// Serves the servers of manifests on this machine, without a cluster.
    Local(local::Args),
    /// Runs a small MCP server, to try a client or a sidecar with.
    ExampleServer(example_server::Args),
    /// Waits until an operator or a catalog is ready: `helm test` runs it.
    Ready(ready::Args),
    /// Prints the version.
    Version,
    #[command(hide = true)]
    Guard(local::Guarded),
    #[command(hide = true, disable_help_flag = true)]
    Shim(local::Shim),
}

impl Cli {
    /// Does what was asked for. An error has its causes in its chain.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let done = match self.command {
            Command::Local(args) => return local::run(args),
            Command::Guard(args) => return local::guard(&args),
            Command::Shim(args) => return Ok(local::shim(args)),
            Command::Operator(args) => operator::run(*args),
            Command::Catalog(args) => catalog::run(*args),
            Command::Crds => crds::run(),
            Command::Key(args) => key::run(args),
            Command::ExampleServer(args) => example_server::run(&args),
            Command::Ready(args) => ready::run(&args),
            Command::Version => print(concat!("longshore ", env!("CARGO_PKG_VERSION"), "\n")),
        };
        log::flush();
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Writes to standard output, which may be a closed pipe.
fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).or_else(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error.into()),
    })
}

/// Writes a line to standard error, for people. Nobody may be there to read it.
fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "longshore: {line}");
}

/// The signals that ask a process to end. Once they are listened for, they alone do not end it.
struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// The terminal was closed. None, where whoever started this had it go on all the same.
    hangup: Option<tokio::signal::unix::Signal>,
}

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let goes_on = is_ignored(SignalKind::hangup().as_raw_value());
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if goes_on { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// The next one.
    async fn next(&mut self) {
        let Self { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Whether this process ignores a signal, as `nohup` has it do.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored =
        status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    ignored.is_some_and(|ignored| ignored >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_sidecars_may_use_is_an_amount_that_lets_them_serve() {
        let parse = |flag: &str| {
            let line =
                format!("operator --sidecar-image x --namespace x --identity x --inventory-subject x {flag}");
            Cli::try_parse_from(["longshore"].into_iter().chain(line.split(' ')))
        };
        for flag in [
            "--sidecar-requests=cpu=20m,memory=32Mi",
            "--sidecar-limits=memory=16Mi",
            // None of either.
            "--sidecar-limits= --sidecar-requests=",
        ] {
            assert!(parse(flag).is_ok(), "{flag}");
        }
        for (flag, words) in [
            ("--sidecar-requests=memory", "`memory` is not an amount: write NAME=AMOUNT"),
            ("--sidecar-requests=memory=much", "`much` is not an amount of memory"),
            ("--sidecar-requests=cpu=-1", "`-1` is not an amount of cpu"),
            ("--sidecar-limits=cpu=1,memory=8Mi", "with memory=8Mi a sidecar would be killed"),
            ("--sidecar-limits=memory=0", "memory=0 is no limit that a sidecar could keep"),
            ("--sidecar-limits=cpu=0,memory=16Mi", "cpu=0 is no limit"),
            ("--metrics-from=team", "`team` is not a label"),
            ("--callers-from=team", "`team` is not a label"),
        ] {
            let refused = parse(flag).unwrap_err().to_string();
            assert!(refused.contains(words), "{flag}: {refused}");
        }
    }

    #[test]
    fn the_operator_and_the_catalog_are_reached_over_whatever_a_cluster_has() {
        let operator =
            "longshore operator --sidecar-image x --namespace x --identity x --inventory-subject x";
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().command;
        let addresses: Vec<SocketAddr> = [parse(operator), parse("longshore catalog --auth none")]
            .iter()
            .flat_map(|command| match command {
                Command::Operator(args) => vec![args.health_addr],
                Command::Catalog(args) => vec![args.listen_addr, args.health_addr],
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(addresses.iter().map(SocketAddr::port).collect::<Vec<_>>(), [8081, 8080, 8081]);
        let loopbacks = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let loopbacks = loopbacks.into_iter().filter(|loopback| TcpListener::bind((*loopback, 0)).is_ok());
        for loopback in loopbacks {
            for address in &addresses {
                let listener = TcpListener::bind((address.ip(), 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                assert!(TcpStream::connect((loopback, port)).is_ok(), "{address} at {loopback}");
            }
        }
    }
}
