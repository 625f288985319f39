//! The server as a command.

use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use longshore_mcp::revision::Revision;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use crate::http::{HttpError, Served, over_http, over_sse};
use crate::server::{Server, Settings};
use crate::stdio::{StdioError, over_stdio};

/// How it is to be served.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// How it speaks: over its stdin and stdout, Streamable HTTP at /mcp, or (2024-11-05 alone) HTTP+SSE at /sse.
    #[arg(long, value_enum)]
    pub transport: Transport,
    /// The port for HTTP.
    #[arg(long, default_value_t = 3000)]
    pub port: u16,
    /// The address for HTTP.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into())]
    pub host: IpAddr,
}

/// What only a server of one revision can be told.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Special {
    /// How many entries a page of a list has. All of them without it.
    #[arg(long, requires = "revision")]
    pub page: Option<std::num::NonZeroUsize>,
    /// What 2026-07-28's requestState is sealed with, if several processes are to know each other's.
    #[arg(long, requires = "revision", env = "LONGSHORE_EXAMPLE_STATE_KEY", hide_env_values = true)]
    pub state_key: Option<String>,
}

/// What carries its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Lines of stdin and stdout.
    Stdio,
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE.
    Sse,
}

/// Why the command failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// It could not begin.
    #[error("cannot start")]
    Start(#[from] io::Error),
    /// Over stdin and stdout.
    #[error(transparent)]
    Stdio(#[from] StdioError),
    /// Over HTTP.
    #[error(transparent)]
    Http(#[from] HttpError),
}

/// Reads the name of a revision.
pub fn revision_parser() -> impl clap::builder::TypedValueParser<Value = Revision> {
    PossibleValuesParser::new(Revision::ALL.map(Revision::as_str))
        .try_map(|name| Revision::parse(&name).ok_or("no such revision"))
}

/// Serves one revision until it is told to end.
pub fn run(revision: Revision, arguments: &Arguments, special: &Special) -> Result<(), RunError> {
    let settings = Settings {
        revision,
        state_key: special.state_key.clone(),
        page: special.page.map(std::num::NonZeroUsize::get),
    };
    let server = Server::new(&settings);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let address = SocketAddr::new(arguments.host, arguments.port);
    let ended = runtime.block_on(async {
        // Standard output may be the protocol's.
        let said =
            |served: Served| drop(writeln!(io::stderr(), "revision {revision} is served at {}", served.url));
        match arguments.transport {
            Transport::Stdio => over_stdio(server).await.map_err(RunError::from),
            transport => {
                let (mut end, mut interrupt) =
                    (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
                let stop = async move {
                    tokio::select! {
                        _ = end.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                };
                match transport {
                    Transport::Sse => over_sse(server, address, said, stop).await?,
                    _ => over_http(server, address, said, stop).await?,
                }
                Ok(())
            }
        }
    });
    // A read of stdin that nobody waits for any longer must not hold the end up.
    runtime.shutdown_background();
    ended
}
