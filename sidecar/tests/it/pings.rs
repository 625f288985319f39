//! What the sidecar makes of how its server answers its pings.

use serde_json::json;

use crate::harness::scripted::{OWN_SESSION, method_of};
use crate::harness::{Client, Scripted, Sidecar, config, eventually};

const NO_METHOD: &str = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Method not found"}}"#;
const BUSY: &str = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Too many requests"}}"#;

/// How often the sidecar has done something for its own session.
fn own(server: &Scripted, what: &str) -> usize {
    let seen = server.seen_all();
    seen.iter()
        .filter(|request| request.value("mcp-session-id") == Some(OWN_SESSION) || what == "initialize")
        .filter(|request| request.method == what || method_of(request) == what)
        .count()
}

#[test]
fn a_server_without_time_keeps_its_session_and_one_that_is_left_loses_it() {
    let busy = [(429, "{}"), (408, "{}"), (425, ""), (429, BUSY)];
    for last in [(400, "{}"), (404, NO_METHOD)] {
        let server = Scripted::pinging(busy.into_iter().chain([last]), |_, stream| {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        let sidecar = Sidecar::start(&config(server.port)).ready();
        let client = Client::open(&sidecar, None);
        let begun = own(&server, "initialize");
        let doubt = |pings: usize| {
            // A server that breaks off is looked at.
            client.call("t", json!({}));
            eventually("it is pinged", || own(&server, "ping") >= pings);
        };
        (1..=busy.len()).for_each(doubt);
        assert_eq!((own(&server, "initialize"), own(&server, "DELETE")), (begun, 0));
        doubt(busy.len() + 1);
        eventually("it is greeted again", || own(&server, "initialize") > begun);
        assert_eq!(own(&server, "DELETE"), 1, "{last:?}");
    }
}
