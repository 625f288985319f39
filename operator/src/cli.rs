//! The command `longshore`, as people type it.

mod catalog;
mod crds;
mod key;
mod log;
mod operator;
mod ready;

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
    /// Waits until an operator or a catalog is ready: `helm test` runs it.
    Ready(ready::Args),
    /// Prints the version.
    Version,
}

impl Cli {
    /// Does what was asked for. An error has its causes in its chain.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Operator(args) => operator::run(*args),
            Command::Catalog(args) => catalog::run(*args),
            Command::Crds => crds::run(),
            Command::Key(args) => key::run(args),
            Command::Ready(args) => ready::run(&args),
            Command::Version => print(concat!("longshore ", env!("CARGO_PKG_VERSION"), "\n")),
        }
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
