//! The Rust SDK, as a client and as a server of the matrix. Both are this program again, in processes of their own.

mod client;
mod server;

/// The client, which is told how to connect and which URLs there are.
pub(super) const CLIENT: &str = "conformance::rust::client::explore";
/// The server, which is told as the others are: a revision, a transport, and a port.
pub(super) const SERVER: &str = "conformance::rust::server::serve";

/// What the matrix calls it is what is built.
#[test]
fn the_matrix_names_the_release_that_is_here() {
    let locked = include_str!("../../../../Cargo.lock");
    let (_, of_rmcp) = locked.split_once("name = \"rmcp\"\nversion = \"").expect("it is there");
    let (version, _) = of_rmcp.split_once('"').expect("a version");
    let named = super::matrix::CLIENTS.iter().filter(|(client, _)| client.starts_with("rust-"));
    let named = named.map(|(_, name)| *name);
    let servers = super::matrix::SERVERS.iter().filter(|(maker, ..)| *maker == super::server::Maker::Rust);
    for name in named.chain(servers.map(|(.., name)| *name)) {
        assert!(name.starts_with(&format!("Rust {version}, ")), "{name}");
    }
}
