//! `longshore example-server`.

use std::net::SocketAddr;

use anyhow::bail;
use longshore_example_server::command::{self, Arguments, Special, Transport, revision_parser};
use longshore_mcp::revision::Revision;

use crate::example;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Speak this revision of MCP alone, all of it, and refuse what it forbids. Without it, a few friendly tools on
    /// the official SDK, which speaks several revisions.
    #[arg(long, value_parser = revision_parser())]
    revision: Option<Revision>,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    special: Special,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { revision, arguments, special } = args;
    if let Some(revision) = revision {
        return Ok(command::run(*revision, arguments, special)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.transport {
        Transport::Stdio => runtime.block_on(example::over_stdio())?,
        Transport::Http => {
            let address = SocketAddr::new(arguments.host, arguments.port);
            let said =
                |bound: SocketAddr| super::say(&format!("the example server is at http://{bound}/mcp"));
            runtime.block_on(async {
                let mut signals = super::StopSignals::listen()?;
                let stop = async move { signals.next().await };
                anyhow::Ok(example::over_http(address, said, stop).await?)
            })?;
        }
        Transport::Sse => bail!("--transport sse is for --revision 2024-11-05"),
    }
    // A read of stdin that nobody waits for any longer must not hold the end up.
    runtime.shutdown_background();
    Ok(())
}
