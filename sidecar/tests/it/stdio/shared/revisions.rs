//! Sessions of clients that speak different revisions.

use longshore_sidecar_config::Isolation;
use serde_json::Value;

use super::{config, shared, state};
use crate::harness::{Client, Request, Sidecar, client, eventually};

#[test]
fn revisions_are_kept_apart_where_they_have_to_be() {
    for (flags, asked, processes) in [
        (&[][..], ["2025-11-25", "2025-06-18"], 3.0),
        // The second is translated for.
        (&[], ["2025-06-18", "2025-11-25"], 2.0),
        // A server that knows only one: another process would not know more.
        (&["proud"], ["2025-06-18", "2025-06-18"], 2.0),
    ] {
        let (_shim, sidecar) = shared(&config(Isolation::Principal, 4), flags, &[]);
        assert_eq!(asked.map(|asked| served_in(&sidecar, asked)), asked);
        assert_eq!(sidecar.metric("longshore_processes"), processes, "{asked:?}");
    }
}

/// The revision in which a client is served that asks for this one.
fn served_in(sidecar: &Sidecar, revision: &str) -> String {
    let reply = Request::post(client::initialize(revision)).key("key-a").send(sidecar.mcp);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.message()["result"]["protocolVersion"].as_str().unwrap().to_owned()
}

/// Where there can be no process of their own: neither now nor, where it rests, when its sessions come back.
#[test]
fn clients_of_another_revision_are_translated_for_where_there_is_one_process() {
    for isolation in [Isolation::Principal, Isolation::Shared] {
        for rests in [false, true] {
            let mut config = config(isolation, 1);
            if rests {
                config.limits.processes.as_mut().unwrap().idle_ms = 300;
            }
            let (_shim, sidecar) = shared(&config, &[], &[]);
            let mut clients = Vec::new();
            for revision in ["2025-11-25", "2025-06-18", "2025-03-26"] {
                assert_eq!(served_in(&sidecar, revision), revision);
                clients.push(Client::of(&sidecar, Some("key-a"), revision));
                if rests {
                    let rests = || sidecar.metric("longshore_processes") == 1.0;
                    eventually("its process has ended", rests);
                }
            }
            let asked: Vec<_> = clients.iter().map(|client| state(client)["heard"][0].clone()).collect();
            let of_the_first = |heard: &Value| heard["protocolVersion"] == "2025-11-25";
            assert!(asked.iter().all(of_the_first), "{isolation:?} {rests}: {asked:?}");
        }
    }
}
