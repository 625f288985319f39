//! The Rust SDK, as a client and as a server of the matrix. Both are this program again, in processes of their own.

mod client;
mod server;

use std::collections::BTreeSet;

/// The client, which is told how to connect and which URLs there are.
pub(super) const CLIENT: &str = "conformance::rust::client::explore";
/// The server, which is told as the others are: a revision, a transport, and a port.
pub(super) const SERVER: &str = "conformance::rust::server::serve";
/// The same on the last release before the next revision.
pub(crate) const OLDER_SERVER: &str = "conformance::rust::server::older::serve";

/// What the matrix calls them is what is built.
#[test]
fn the_matrix_names_the_releases_that_are_here() {
    let locked = include_str!("../../../../Cargo.lock");
    let releases: Vec<_> = locked
        .split("name = \"rmcp\"\nversion = \"")
        .skip(1)
        .filter_map(|package| Some(package.split_once('"')?.0))
        .collect();
    let clients = super::matrix::CLIENTS.iter().map(|(_, name)| *name);
    let servers = super::matrix::SERVERS.iter().map(|(.., name)| *name);
    for names in [clients.collect::<Vec<_>>(), servers.collect()] {
        let named = names.iter().filter_map(|name| name.strip_prefix("Rust ")?.split(',').next());
        let (named, built) = (named.collect::<BTreeSet<_>>(), releases.iter().copied().collect());
        assert_eq!(named, built);
    }
}
