//! `longshore operator`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use longshore_sidecar::any_address;

use super::log::LogLevel;
use crate::cluster_domain;
use crate::mcp_server::validate::{amount, duration, is_too_little_memory};
use crate::run::Options;
use crate::settings::{Place, Settings, Sidecar};

/// `None`: never.
#[derive(Clone, Copy, Debug)]
struct Rotation(Option<Duration>);

/// Each rotation is two configurations that every pod has to load.
const SHORTEST_ROTATION: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The image of the sidecar that is put in front of every server.
    #[arg(long)]
    sidecar_image: String,
    /// When the kubelet pulls that image. Default: as Kubernetes does.
    #[arg(long, value_parser = ["Always", "IfNotPresent", "Never"])]
    sidecar_image_pull_policy: Option<String>,
    /// A Secret with credentials for that image, by its name in each namespace that has servers, which use it beside those
    /// that their manifests name. May be given several times.
    #[arg(long, value_name = "NAME")]
    sidecar_pull_secret: Vec<String>,
    /// What a sidecar requests where its manifest does not say. Default: `cpu=10m,memory=16Mi`.
    #[arg(long, value_name = "NAME=AMOUNT,...", value_parser = requests)]
    sidecar_requests: Option<BTreeMap<String, Quantity>>,
    /// What a sidecar may use where its manifest does not say. Default: `memory=256Mi`.
    #[arg(long, value_name = "NAME=AMOUNT,...", value_parser = limits)]
    sidecar_limits: Option<BTreeMap<String, Quantity>>,
    /// The namespace that the operator runs in, which holds its lease.
    #[arg(long, env = "POD_NAMESPACE")]
    namespace: String,
    /// What tells this operator from its other replicas.
    #[arg(long, env = "POD_NAME")]
    identity: String,
    /// Look after the servers of this namespace only. May be given several times. Default: all namespaces.
    #[arg(long, value_name = "NAMESPACE")]
    watch_namespace: Vec<String>,
    /// A subject whose token may read the sidecars' inventory, such as
    /// `system:serviceaccount:longshore-system:longshore`. May be given several times.
    #[arg(long, value_name = "SUBJECT", required = true)]
    inventory_subject: Vec<String>,
    /// The file with the operator's own token for the sidecars, of audience `longshore-sidecar`.
    #[arg(long, default_value = "/var/run/secrets/longshore/token")]
    inventory_token_file: PathBuf,
    /// A catalog is installed beside the operator: published servers are said to be in it.
    #[arg(long)]
    catalog: bool,
    /// The DNS domain of the cluster. Default: the one that this pod looks names up in.
    #[arg(long)]
    cluster_domain: Option<String>,
    /// Labels of namespaces whose pods may call the servers, such as `kubernetes.io/metadata.name=agents`. May be given several
    /// times. Default: whoever reaches them, from wherever the network lets them.
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = labels)]
    callers_from: Vec<BTreeMap<String, String>>,
    /// Labels of namespaces whose pods may scrape the sidecars' metrics, such as
    /// `kubernetes.io/metadata.name=monitoring`. May be given several times.
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = labels)]
    metrics_from: Vec<BTreeMap<String, String>>,
    /// The address of /healthz, /readyz and /metrics.
    #[arg(long, default_value_t = any_address(8081))]
    pub(super) health_addr: SocketAddr,
    /// The name of the lease that one of several operators holds.
    #[arg(long, default_value = "longshore-operator")]
    lease_name: String,
    /// How many servers get new pods at once when Longshore itself is upgraded.
    #[arg(long, value_name = "SERVERS", default_value_t = 10)]
    upgrades_at_once: usize,
    /// How old a session key becomes before another follows it, such as `720h`. `0`: as old as its server.
    #[arg(long, value_name = "TIME", default_value = "720h", value_parser = rotation)]
    rotate_session_keys_after: Rotation,
    /// What to log.
    #[arg(long, value_enum, default_value_t = LogLevel::Info, env = "LONGSHORE_LOG_LEVEL")]
    log_level: LogLevel,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    super::log::start(args.log_level);
    longshore_sidecar::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(crate::run::run(args.into()))?;
    Ok(())
}

impl From<Args> for Options {
    fn from(args: Args) -> Self {
        let sidecar = Sidecar::of(args.sidecar_image);
        Self {
            settings: Settings {
                sidecar: Sidecar {
                    image_pull_policy: args.sidecar_image_pull_policy,
                    image_pull_secrets: args.sidecar_pull_secret,
                    requests: args.sidecar_requests.unwrap_or(sidecar.requests),
                    limits: args.sidecar_limits.unwrap_or(sidecar.limits),
                    image: sidecar.image,
                },
                cluster_domain: cluster_domain::or_found(args.cluster_domain),
                control_plane_namespace: args.namespace.clone(),
                callers_from: args.callers_from,
                metrics_from: args.metrics_from,
                inventory_subjects: args.inventory_subject,
                catalog: args.catalog,
                rotate_session_keys_after: args.rotate_session_keys_after.0,
                place: Place::Cluster,
            },
            namespace: args.namespace,
            identity: args.identity,
            watch_namespaces: args.watch_namespace,
            inventory_token_file: args.inventory_token_file,
            health_addr: args.health_addr,
            lease_name: args.lease_name,
            upgrades_at_once: args.upgrades_at_once,
        }
    }
}

fn rotation(text: &str) -> Result<Rotation, String> {
    match duration(text) {
        _ if text == "0" => Ok(Rotation(None)),
        Some(age) if age >= SHORTEST_ROTATION => Ok(Rotation(Some(age))),
        Some(_) | None => {
            Err(format!("`{text}` is not an age for a key: write 1m or more, such as 720h, or 0 for never"))
        }
    }
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let label = |pair: Result<(&str, &str), &str>| match pair {
        Ok((name, value)) => Ok((name.to_owned(), value.to_owned())),
        Err(pair) => Err(format!("`{pair}` is not a label: write NAME=VALUE")),
    };
    pairs(text).map(label).collect()
}

fn requests(text: &str) -> Result<BTreeMap<String, Quantity>, String> {
    let quantity = |pair: Result<(&str, &str), &str>| match pair {
        Ok((name, text)) if amount(text).is_some_and(|amount| amount >= 0.0) => {
            Ok((name.to_owned(), Quantity(text.to_owned())))
        }
        Ok((name, text)) => {
            Err(format!("`{text}` is not an amount of {name}: write one such as 250m or 128Mi"))
        }
        Err(pair) => Err(format!("`{pair}` is not an amount: write NAME=AMOUNT, such as memory=128Mi")),
    };
    pairs(text).map(quantity).collect()
}

fn limits(text: &str) -> Result<BTreeMap<String, Quantity>, String> {
    let limits = requests(text)?;
    // In a manifest that is no limit; here requests would be above it.
    if let Some((name, _)) = limits.iter().find(|(_, limit)| amount(&limit.0) == Some(0.0)) {
        return Err(format!("{name}=0 is no limit that a sidecar could keep: leave {name} out for none"));
    }
    match limits.get("memory") {
        Some(limit) if is_too_little_memory(limit) => Err(format!(
            "with memory={} a sidecar would be killed before it serves: write 16Mi or more",
            limit.0
        )),
        _ => Ok(limits),
    }
}

/// Pairs of a name and something, or what is none. Nothing is no pair.
fn pairs(text: &str) -> impl Iterator<Item = Result<(&str, &str), &str>> {
    text.split(',')
        .filter(move |_| !text.is_empty())
        .map(|pair| pair.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(pair))
}
