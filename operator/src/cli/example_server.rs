//! `longshore example-server`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;

use crate::example;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How it speaks: over its stdin and stdout, or Streamable HTTP at /mcp.
    #[arg(long, value_enum)]
    transport: Transport,
    /// The port for HTTP.
    #[arg(long, default_value_t = 3000)]
    port: u16,
    /// The address for HTTP.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST.into())]
    host: IpAddr,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Transport {
    Stdio,
    Http,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args.transport {
        Transport::Stdio => runtime.block_on(example::over_stdio())?,
        Transport::Http => {
            let address = SocketAddr::new(args.host, args.port);
            let said =
                |bound: SocketAddr| super::say(&format!("the example server is at http://{bound}/mcp"));
            runtime.block_on(async {
                let mut signals = super::StopSignals::listen()?;
                let stop = async move { signals.next().await };
                anyhow::Ok(example::over_http(address, said, stop).await?)
            })?;
        }
    }
    // A read of stdin that nobody waits for any longer must not hold the end up.
    runtime.shutdown_background();
    Ok(())
}
