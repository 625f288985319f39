//! Listening sockets that can be reached around the sidecar: the kernel is asked for them, or its tables are read where it
//! does not answer.

mod diag;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use longshore_sidecar_config::inventory::{ConnectionState, ExposedSocket};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use crate::shared::Shared;

/// Where the kernel shows itself.
const PROC: &str = "/proc";
/// How often it is looked.
const EVERY: Duration = Duration::from_secs(30);
/// How much of a table is read, and how many sockets are reported.
const MAX_TABLE: u64 = 1024 * 1024;
const MAX_SOCKETS: usize = 64;

/// Looks now and then, and after each handshake: that is when a server's sockets are there.
pub(crate) async fn watch_sockets(shared: Arc<Shared>) -> Result<(), watch::error::RecvError> {
    let mut view = shared.view.subscribe();
    let mut connected = false;
    let mut failed = false;
    loop {
        match exposed(&shared.options.proc_dir, &shared.options.own_ports) {
            Ok(sockets) => {
                let changed = shared.exposed.send_if_modified(|current| {
                    let changed = *current != sockets;
                    current.clone_from(&sockets);
                    changed
                });
                if changed && !sockets.is_empty() {
                    tracing::warn!(?sockets, "the pod can be reached around the sidecar");
                }
            }
            // A kernel without these tables is reported once.
            Err(error) if !failed => {
                failed = true;
                tracing::warn!(%error, "cannot read which sockets listen");
            }
            Err(_) => {}
        }
        let handshake = async {
            loop {
                view.changed().await?;
                let now = view.borrow_and_update().connection.state == ConnectionState::Connected;
                if now && !std::mem::replace(&mut connected, now) {
                    return Ok(());
                }
                connected = now;
            }
        };
        if let Ok(result) = timeout(EVERY, handshake).await {
            result?;
        }
    }
}

/// Whose program listens at a port, where the kernel tells it.
pub(crate) fn user_listening(port: u16) -> Option<u32> {
    let all = diag::listening().ok()?;
    all.into_iter().find(|listener| listener.port == port).map(|listener| listener.uid)
}

fn exposed(proc_dir: &Path, own: &[u16]) -> io::Result<Vec<ExposedSocket>> {
    let mut sockets = BTreeSet::new();
    // Another directory is somebody else's tables. And not every kernel answers, nor lets everybody ask.
    if proc_dir == Path::new(PROC)
        && let Ok(all) = diag::listening()
    {
        sockets.extend(all.into_iter().filter_map(|it| reachable(it.address, it.port, Some(it.uid), own)));
        return Ok(sockets.into_iter().take(MAX_SOCKETS).collect());
    }
    let mut text = String::new();
    for table in ["tcp", "tcp6"] {
        let path = proc_dir.join("net").join(table);
        text.clear();
        match std::fs::File::open(path).and_then(|file| file.take(MAX_TABLE).read_to_string(&mut text)) {
            Ok(_) => sockets.extend(listening(&text, own)),
            // A host without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table == "tcp6" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sockets.into_iter().take(MAX_SOCKETS).collect())
}

/// The listening sockets of a table that are neither on loopback nor one's own.
fn listening<'a>(table: &'a str, own: &'a [u16]) -> impl Iterator<Item = ExposedSocket> + 'a {
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(move |line| {
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (columns.next()?, columns.next()?, columns.next()?);
        let (address, port) = local.split_once(':')?;
        let (address, port) = (parse_address(address)?, u16::from_str_radix(port, 16).ok()?);
        // Behind the state are the queues, the timer and what was sent in vain.
        let uid = columns.nth(3).and_then(|uid| uid.parse().ok());
        reachable(address, port, uid, own).filter(|_| state == LISTEN)
    })
}

/// A listening socket, unless it is on loopback or one's own.
fn reachable(address: IpAddr, port: u16, uid: Option<u32>, own: &[u16]) -> Option<ExposedSocket> {
    let reachable = !address.to_canonical().is_loopback() && !own.contains(&port);
    reachable.then(|| ExposedSocket { address: address.to_string(), port, uid })
}

/// The kernel writes addresses as 32-bit words in the machine's byte order.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut octets = [0; 16];
            for (index, part) in octets.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(index * 8)?);
            }
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn only_reachable_listeners_count() {
        let v4 =
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532        0 1 1 0 100 0 0 10 0
   1: 0100007F:0BB9 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532        0 1 1 0 100 0 0 10 0
   2: 0200000A:0BBA 0200000A:1234 01 00000000:00000000 00:00000000 00000000 65532        0 1 1 0 100 0 0 10 0
   3: 00000000:3C14 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65532        0 1 1 0 100 0 0 10 0
   4: 0200000A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1337        0 1 1 0 100 0 0 10 0
   nonsense
";
        let v6 = "  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:0BBC 00000000000000000000000000000000:0000 0A x
   1: 00000000000000000000000001000000:0BBD 00000000000000000000000000000000:0000 0A x
   2: 0000000000000000FFFF00000100007F:0BBE 00000000000000000000000000000000:0000 0A x
";
        let socket = |address: &str, port, uid| ExposedSocket { address: address.to_owned(), port, uid };
        let found: Vec<_> = listening(v4, &[15380]).collect();
        assert_eq!(found, [socket("0.0.0.0", 3000, Some(65532)), socket("10.0.0.2", 80, Some(1337))]);
        let found: Vec<_> = listening(v6, &[15380]).collect();
        assert_eq!(found, [socket("::", 3004, None)]);
    }
}
