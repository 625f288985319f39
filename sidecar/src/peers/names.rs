//! Finds the replicas: the addresses behind the headless Service.
//!
//! The system's resolver does it, which reads the `resolv.conf` that the kubelet wrote. Its call blocks for as long as
//! it likes, so it has a thread of its own, and nobody waits for that longer than they want to.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use dns_lookup::LookupErrorKind;
use longshore_sessions::bounds::MAX_MEMBERS;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, timeout};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// The resolver keeps whole answers on its stack.
const STACK: usize = 512 * 1024;

/// Where addresses come from.
pub(crate) enum Names {
    /// From DNS.
    Dns(mpsc::Sender<Query>),
    /// From a file with an address in each line, where there is no cluster: for tests.
    File(PathBuf),
}

/// A name, and who wants to know.
pub(crate) struct Query {
    name: String,
    reply: oneshot::Sender<io::Result<Vec<IpAddr>>>,
}

impl Names {
    /// Asks DNS, or reads the file if there is one.
    pub(crate) fn start(file: Option<PathBuf>) -> io::Result<Self> {
        if let Some(file) = file {
            return Ok(Self::File(file));
        }
        // One name at a time. While the resolver hangs, nobody queues behind it.
        let (queries, mut asked) = mpsc::channel::<Query>(1);
        let work = move || {
            while let Some(Query { name, reply }) = asked.blocking_recv() {
                // Whoever asked may have given up.
                let _ = reply.send(resolve(&name));
            }
        };
        // It ends with the last sender; while the resolver hangs it is left behind.
        std::thread::Builder::new().name("names".to_owned()).stack_size(STACK).spawn(work)?;
        Ok(Self::Dns(queries))
    }

    /// The addresses of that name. That there is no such name is an answer too: DNS lists nobody. An address is its own.
    pub(crate) async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        if let Ok(address) = name.parse() {
            return Ok(vec![address]);
        }
        let mut addresses = match self {
            Self::Dns(queries) => {
                let (reply, answer) = oneshot::channel();
                let busy =
                    |_| io::Error::new(io::ErrorKind::WouldBlock, "the last question is not answered yet");
                queries.try_send(Query { name: name.to_owned(), reply }).map_err(busy)?;
                let late = |_| io::Error::new(io::ErrorKind::TimedOut, "name servers did not answer in time");
                let ended = |_| io::Error::other("the resolver has ended");
                timeout(PATIENCE, answer).await.map_err(late)?.map_err(ended)??
            }
            Self::File(path) => {
                let text = std::fs::read_to_string(path)?;
                let addresses = text.split_ascii_whitespace().map(str::parse);
                addresses.collect::<Result<_, _>>().map_err(io::Error::other)?
            }
        };
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MAX_MEMBERS);
        Ok(addresses)
    }
}

fn resolve(name: &str) -> io::Result<Vec<IpAddr>> {
    match dns_lookup::lookup_host(name) {
        Ok(addresses) => Ok(addresses.collect()),
        // The first pod of a server is there before its Service has an address.
        Err(error) if matches!(error.kind(), LookupErrorKind::NoName | LookupErrorKind::NoData) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_files_give_addresses() {
        let names = Names::start(None).unwrap();
        for name in ["127.0.0.7", "127.7"] {
            assert!(!names.look_up(name).await.unwrap().is_empty(), "{name}");
        }

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers");
        let names = Names::start(Some(path.clone())).unwrap();
        assert!(names.look_up("any").await.is_err());
        std::fs::write(&path, "127.0.0.2\n::1\n127.0.0.2\n").unwrap();
        let addresses: Vec<_> = ["127.0.0.2", "::1"].map(|text| text.parse::<IpAddr>().unwrap()).into();
        assert_eq!(names.look_up("any").await.unwrap(), addresses);
        std::fs::write(&path, "peer-1\n").unwrap();
        assert!(names.look_up("any").await.is_err());
    }
}
