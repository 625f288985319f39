//! Those of whom nothing is known: what they hold, and whom they are in the way of.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::http::connect;
use crate::harness::{Client, Scripted, Sidecar, config, eventually, scripted};

/// Connections on which the beginning of a head of this many bytes was sent.
fn beginnings(to: SocketAddr, count: usize, bytes: usize) -> Vec<TcpStream> {
    let head = format!("GET /mcp HTTP/1.1\r\nx: {}", "y".repeat(bytes));
    let open = (0..count).map(|_| {
        let mut stream = connect(to);
        // It may be closed while it writes.
        let _ = stream.write_all(head.as_bytes());
        stream.set_nonblocking(true).unwrap();
        stream
    });
    open.collect()
}

/// Whether the sidecar has left this connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut stream = stream;
    !matches!(stream.read(&mut [0; 512]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn heads_that_never_end_are_held_within_a_bound() {
    let server = Scripted::start(|_, stream| scripted::no_stream(stream));
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    // 24 MB of which 16 MiB, and what each connection may have anyway, are held.
    let large = beginnings(sidecar.mcp, 400, 60_000);
    eventually("some are closed", || large.iter().any(is_closed).then_some(()));
    assert_eq!(client.send("ping", serde_json::json!({})).status, 200);
    assert!(sidecar.memory() < 64 << 20, "{} bytes", sidecar.memory());
    // What they held is free again.
    drop(large);
    eventually("there is room for large heads again", || {
        let large = beginnings(sidecar.mcp, 200, 60_000);
        std::thread::sleep(std::time::Duration::from_millis(100));
        (!large.iter().any(is_closed)).then_some(())
    });
}

#[test]
fn probes_are_answered_whoever_else_is_connected_to_the_admin_port() {
    let server = Scripted::start(|_, stream| scripted::no_stream(stream));
    let sidecar = Sidecar::start(&config(server.port)).ready();
    let silent = beginnings(sidecar.admin, 300, 0);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(sidecar.get(path).status, 200, "{path}");
    }
    drop(silent);
}
