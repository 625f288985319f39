//! `longshore catalog`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;
use longshore_sidecar::any_address;

use super::log::LogLevel;
use crate::catalog::Options;
use crate::cluster_domain;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How callers of the catalog prove who they are. Required.
    #[arg(long, value_enum)]
    auth: Auth,
    /// The directory with the API keys, as a Secret is mounted: each file is a principal, each of its lines a key or
    /// `sha256:` with its hash. Changes are read within a second.
    #[arg(long, value_name = "DIRECTORY")]
    api_keys_dir: Option<PathBuf>,
    /// With `--auth none`, a name by which the catalog may be asked, beside `localhost` and IP addresses: a page in
    /// somebody's browser has other names. May be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// The DNS domain of the cluster: with it, a `--host` such as `NAME.NAMESPACE.svc` may be asked for, too. Default: the
    /// one that this pod looks names up in.
    #[arg(long)]
    cluster_domain: Option<String>,
    /// List the servers of this namespace only. May be given several times. Default: all namespaces.
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Vec<String>,
    /// The file with the catalog's own token for the sidecars, of audience `longshore-sidecar`.
    #[arg(long, default_value = "/var/run/secrets/longshore/token")]
    inventory_token_file: PathBuf,
    /// The address of the REST API.
    #[arg(long, default_value_t = any_address(8080))]
    pub(super) listen_addr: SocketAddr,
    /// The address of /livez, /readyz and /metrics.
    #[arg(long, default_value_t = any_address(8081))]
    pub(super) health_addr: SocketAddr,
    /// What to log.
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "LONGSHORE_LOG_LEVEL")]
    log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Auth {
    /// Not at all: whoever reaches the catalog reads it.
    None,
    /// With an API key of --api-keys-dir.
    ApiKeys,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let api_keys_dir = match (args.auth, args.api_keys_dir) {
        (Auth::ApiKeys, Some(directory)) => Some(directory),
        (Auth::None, None) => None,
        (Auth::ApiKeys, None) => bail!("--auth api-keys needs --api-keys-dir, which says where they are"),
        (Auth::None, Some(_)) => {
            bail!("--auth none reads no keys: leave --api-keys-dir out, or say --auth api-keys")
        }
    };
    super::log::start(args.log_level);
    longshore_sidecar::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(crate::catalog::run(Options {
        listen_addr: args.listen_addr,
        health_addr: args.health_addr,
        api_keys_dir,
        hosts: hosts(args.host, &cluster_domain::or_found(args.cluster_domain)),
        watch_namespaces: args.watch_namespace,
        inventory_token_file: args.inventory_token_file,
    }))
}

/// The names by which it may be asked, and the whole names of those that are Services'.
fn hosts(mut hosts: Vec<String>, domain: &str) -> Vec<String> {
    let whole: Vec<_> =
        hosts.iter().filter(|host| host.ends_with(".svc")).map(|host| format!("{host}.{domain}")).collect();
    hosts.extend(whole);
    hosts
}
