//! The sidecar's program.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use longshore_sessions::PodId;
use longshore_sidecar::{App, AuditLog, Bounds, Options, Pod, any_address, log};
use longshore_sidecar::{memory, start};
use longshore_sidecar_config::{paths, ports};
use mimalloc::MiMalloc;

/// A call allocates some thirty times, which takes a tenth of its time with the allocator of the C library. Without huge
/// pages (`no_thp`), since they would take a third more memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(
    name = "longshore-sidecar",
    version,
    about = "Stands in front of an MCP server and decides who may call what."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until SIGTERM.
    Serve(Box<Serve>),
    /// Wait until the sidecar has started: the container's postStart hook.
    Await(Await),
}

// What is hidden here is what tests say: elsewhere the defaults do.
#[derive(Args)]
struct Serve {
    /// Threads that carry requests.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Where clients connect.
    #[arg(long, default_value_t = any_address(ports::MCP))]
    mcp_addr: SocketAddr,
    /// Where probes, metrics and the inventory are.
    #[arg(long, default_value_t = any_address(ports::ADMIN))]
    admin_addr: SocketAddr,
    /// Where the other replicas connect.
    #[arg(long, default_value_t = any_address(ports::PEERS))]
    peers_addr: SocketAddr,
    /// The UID of this pod, without which it has no other replicas.
    #[arg(long, env = "LONGSHORE_POD_UID", value_parser = PodId::new, requires = "pod_ip")]
    pod_uid: Option<PodId>,
    /// The address of this pod, at which other replicas reach it.
    #[arg(long, env = "LONGSHORE_POD_IP", requires = "pod_uid")]
    pod_ip: Option<IpAddr>,
    /// The name of the template that this pod was made of: in a rollout sessions go to pods of the next one.
    #[arg(long, env = "LONGSHORE_POD_TEMPLATE", requires = "pod_uid")]
    pod_template: Option<String>,
    /// The name of the Service that leads to a replica that is ready, for as long as DNS does not list this one.
    #[arg(long)]
    peers_entry: Option<String>,
    /// A file that lists the addresses of all replicas, in place of DNS.
    #[arg(long, hide = true)]
    peers_file: Option<PathBuf>,
    /// The directory of config.json.
    #[arg(long, default_value = paths::CONFIG_DIR)]
    config_dir: PathBuf,
    /// The directory of keys.json.
    #[arg(long, default_value = paths::KEYS_DIR)]
    keys_dir: PathBuf,
    /// The directory of the sockets shared with the server's container.
    #[arg(long, default_value = paths::SOCKETS_DIR)]
    sockets_dir: PathBuf,
    /// The shim, to be installed for the server's container. Left out, none is.
    #[arg(long)]
    shim: Option<PathBuf>,
    /// Where the server's container finds it, and where the sidecar keeps which sessions are ended, and what clients
    /// have set in the others.
    #[arg(long, default_value = paths::PROGRAM_DIR)]
    program_dir: PathBuf,
    /// Where the kernel shows its tables.
    #[arg(long, default_value = "/proc", hide = true)]
    proc_dir: PathBuf,
    /// Where the kernel shows what the container may have.
    #[arg(long, default_value = "/sys/fs/cgroup", hide = true)]
    cgroups_dir: PathBuf,
    /// Connections at once. This and other numbers follow from the container's memory where they are left out.
    #[arg(long, hide = true)]
    max_connections: Option<usize>,
    /// How many sessions there may be, whatever the configuration permits.
    #[arg(long, hide = true)]
    max_sessions: Option<u32>,
    /// How many calls may be under way at once, those included whose client has gone.
    #[arg(long, hide = true)]
    max_calls: Option<usize>,
    /// Bytes of events that all streams hold together.
    #[arg(long, hide = true)]
    max_stream_bytes: Option<usize>,
    /// Milliseconds that the head of a request may take, and that a connection may be idle.
    #[arg(long, default_value_t = millis(Bounds::default().head), hide = true)]
    head_timeout_ms: u64,
    /// Milliseconds that the body of a request may take.
    #[arg(long, default_value_t = millis(Bounds::default().body), hide = true)]
    body_timeout_ms: u64,
    /// Milliseconds that a call waits for its client to answer what the server asked in it.
    #[arg(long, default_value_t = millis(Bounds::default().answers), hide = true)]
    answer_timeout_ms: u64,
    /// Milliseconds that a process of the server may say nothing, once it was asked whether it is there.
    #[arg(long, default_value_t = millis(Bounds::default().hang), hide = true)]
    hang_timeout_ms: u64,
    /// Milliseconds after which a server over HTTP is asked again what it speaks that has said that it is older.
    #[arg(long, default_value_t = millis(Bounds::default().older), hide = true)]
    older_again_ms: u64,
    /// Bytes of messages that are held whole at once for clients: what they send, and what they have yet to read.
    #[arg(long, hide = true)]
    max_held_bytes: Option<usize>,
    /// Milliseconds that a call may take at the most, whatever the configuration says: the pod's grace period has room for
    /// that. Left out, the configuration alone says it.
    #[arg(long)]
    longest_call_ms: Option<u64>,
    /// Milliseconds that a drain accepts connections at least.
    #[arg(long, default_value_t = 5000, hide = true)]
    drain_minimum_ms: u64,
}

#[derive(Args)]
struct Await {
    /// The sidecar's admin port.
    #[arg(long, default_value_t = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::ADMIN))]
    admin_addr: SocketAddr,
    /// Seconds after which to give up.
    #[arg(long, default_value_t = 10)]
    timeout: u64,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(serve) => {
            let code = run(*serve);
            log::flush();
            code
        }
        Command::Await(arguments) => await_start(&arguments),
    }
}

fn run(serve: Serve) -> ExitCode {
    log::start();
    abort_on_panic();
    // Before anybody is told that the sidecar has started, since the server may be started then.
    if let Some(shim) = &serve.shim
        && let Err(error) = start::install(shim, &serve.program_dir)
    {
        return failed(&error);
    }
    let app = match App::bind(serve.into()) {
        Ok(app) => app,
        Err(error) => return failed(&error),
    };
    let bound = app.bound();
    tracing::info!(mcp = %bound.mcp, admin = %bound.admin, peers = %bound.peers, version = env!("CARGO_PKG_VERSION"), "listening");
    match app.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn await_start(arguments: &Await) -> ExitCode {
    match start::wait(arguments.admin_addr, Duration::from_secs(arguments.timeout)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The kubelet shows this in the event of the failed hook.
            let _ = writeln!(std::io::stderr(), "{}", log::sentence(&error));
            ExitCode::FAILURE
        }
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    let reason = log::sentence(error);
    tracing::error!(error = reason, "the sidecar exits");
    ExitCode::FAILURE
}

/// A task that panics would end alone and leave the rest of the process without it.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a bug: the sidecar exits");
        log::flush();
        std::process::abort();
    }));
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<Serve> for Options {
    fn from(serve: Serve) -> Self {
        // A pod that no Deployment has made has none, and its environment an empty one.
        let template = serve.pod_template.filter(|template| !template.is_empty()).map(Arc::from);
        let bounds = Bounds::within(memory::of_container(&serve.cgroups_dir));
        Self {
            workers: serve.workers.into(),
            mcp: serve.mcp_addr,
            admin: serve.admin_addr,
            peers: serve.peers_addr,
            pod: serve.pod_uid.zip(serve.pod_ip).map(|(uid, address)| Pod { uid, address, template }),
            peers_entry: serve.peers_entry,
            peers_file: serve.peers_file,
            config_dir: serve.config_dir,
            keys_dir: serve.keys_dir,
            program_dir: Some(serve.program_dir),
            sockets_dir: serve.sockets_dir,
            proc_dir: serve.proc_dir,
            own_ports: Vec::new(),
            audit: AuditLog::Stdout,
            bounds: Bounds {
                connections: serve.max_connections.unwrap_or(bounds.connections),
                sessions: serve.max_sessions.unwrap_or(bounds.sessions),
                calls: serve.max_calls.unwrap_or(bounds.calls),
                stream_bytes: serve.max_stream_bytes.unwrap_or(bounds.stream_bytes),
                head: Duration::from_millis(serve.head_timeout_ms),
                body: Duration::from_millis(serve.body_timeout_ms),
                answers: Duration::from_millis(serve.answer_timeout_ms),
                hang: Duration::from_millis(serve.hang_timeout_ms),
                older: Duration::from_millis(serve.older_again_ms),
                held_bytes: serve.max_held_bytes.unwrap_or(bounds.held_bytes),
                memory: bounds.memory,
            },
            longest_call_ms: serve.longest_call_ms,
            drain_minimum: Duration::from_millis(serve.drain_minimum_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator leaves it out: for that long others may still send requests here that have not heard of the end.
    #[test]
    fn a_drain_takes_five_seconds_unless_told_otherwise() {
        let cli = Cli::try_parse_from(["longshore-sidecar", "serve"]).unwrap();
        let Command::Serve(serve) = cli.command else { panic!("it serves") };
        assert_eq!(Options::from(*serve).drain_minimum, Duration::from_secs(5));
    }
}
