//! What a sidecar is told when it starts. Everything that belongs to a server is in its configuration instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_sessions::PodId;

use crate::memory::Amounts;

/// A port at every address of the pod: also those of IPv6 where there is IPv6, since a cluster may have no other.
pub fn any_address(port: u16) -> SocketAddr {
    let has_v6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let address = if has_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    SocketAddr::new(address, port)
}

/// The settings of a process.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many threads carry requests.
    pub workers: usize,
    /// Where clients connect.
    pub mcp: SocketAddr,
    /// Where probes, metrics and the inventory are.
    pub admin: SocketAddr,
    /// Where the other replicas connect. All replicas of a server listen at the same port.
    pub peers: SocketAddr,
    /// This replica. `None` where there are no others.
    pub pod: Option<Pod>,
    /// The name of a Service that leads to a replica that is ready. It is asked who there is, where DNS does not list this
    /// one yet.
    pub peers_entry: Option<String>,
    /// A file that lists the replicas' addresses in place of DNS: for tests.
    pub peers_file: Option<PathBuf>,
    /// The directory of the configuration file.
    pub config_dir: PathBuf,
    /// The directory of the file with the hashes of the keys.
    pub keys_dir: PathBuf,
    /// The directory that only the sidecar writes, and that survives a restart of it. `None`: which sessions are ended is
    /// forgotten then.
    pub program_dir: Option<PathBuf>,
    /// The directory of the Unix sockets that are shared with the server's container.
    pub sockets_dir: PathBuf,
    /// Where the kernel shows its tables.
    pub proc_dir: PathBuf,
    /// The sidecar's own ports in the pod, which are no way around it.
    pub own_ports: Vec<u16>,
    /// Where audit lines are written to.
    pub audit: AuditLog,
    /// Bounds on clients.
    pub bounds: Bounds,
    /// How many milliseconds a call may take at the most, whatever the configuration says: what the time is made for that
    /// the process gets for its end. `None`: the configuration alone says it.
    pub longest_call_ms: Option<u64>,
    /// How long a drain keeps accepting at least, since the endpoints of a Service follow with a lag.
    pub drain_minimum: Duration,
}

/// Who a replica is.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its pod's UID.
    pub uid: PodId,
    /// Its pod's address.
    pub address: IpAddr,
    /// The template that its pod was made of, where that is known: those of one have the same name for it.
    pub template: Option<Arc<str>>,
}

/// Where audit lines are written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuditLog {
    /// Standard output, which is nobody else's in a pod.
    #[default]
    Stdout,
    /// Standard error, among the log's lines.
    Stderr,
    /// Nowhere.
    Off,
}

/// Bounds that protect the process, whatever the configuration says.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Connections at once.
    pub connections: usize,
    /// Calls under way at once, those included whose client has gone.
    pub calls: usize,
    /// How many bytes of events all streams hold together, for clients that read slowly or come back.
    pub stream_bytes: usize,
    /// How long the head of a request may take, and how long a connection may be idle.
    pub head: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a call waits for its client to answer what the server asked in it.
    pub answers: Duration,
    /// How long a process of the server may say nothing at all, after a call was given up and it was asked whether it is
    /// there, before another one takes its place.
    pub hang: Duration,
    /// How soon a server over HTTP is asked again that has said that it is older. Behind an address another program may
    /// take its place that answers pings as well, and nothing else would show that it speaks more; the question costs one
    /// request.
    pub older: Duration,
    /// How many bytes of messages are held whole at once for clients: what they send, and what they have yet to read.
    pub held_bytes: usize,
    /// How many sessions there may be, whatever the configuration permits.
    pub sessions: u32,
    /// How many bytes of memory the process may have, by which everything else is bounded. `None`: nobody limits it.
    pub memory: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::within(None)
    }
}

impl Bounds {
    /// Those of a process that may have so many bytes of memory.
    pub fn within(memory: Option<u64>) -> Self {
        let Amounts { connections, streams, held, sessions, .. } = Amounts::within(memory);
        Self {
            connections,
            calls: connections,
            stream_bytes: streams,
            // Longer than the usual proxies and clients keep idle connections, so that they close first: a close from
            // here can cross a request on its way.
            head: Duration::from_secs(75),
            body: Duration::from_secs(30),
            // About as long as people think over a form, and as long as clients wait that ask them.
            answers: Duration::from_secs(600),
            // Twice what a call may take by default: a server of one thread is busy for as long as a call.
            hang: Duration::from_secs(120),
            older: Duration::from_mins(15),
            // One message of the largest size, and something for everybody else.
            held_bytes: held.total,
            sessions,
            memory,
        }
    }
}
