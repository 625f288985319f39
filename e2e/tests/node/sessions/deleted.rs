//! Sessions that their clients have ended stay ended, whoever dies.

use http::{Method, StatusCode};
use longshore_e2e::mcp_client::{Endpoint, REVISION};
use longshore_e2e::testing::kill_pod;
use std::time::Duration;

use super::row::{form, row};
use super::sdk::Callers;
use super::served::{Echo, Served, Transport};
use crate::faults::{SERVER, SIDECAR};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn a_deleted_session_never_lives_again() {
    let sessions = form(10, 200);
    row("DELETE, then the owner's death", async |namespace, row| {
        // A server without sessions of its own would be no obstacle to another life.
        let transport = Transport::Http { sessions: false };
        let served = Served::up(namespace, Echo { transport, ..Echo::http("http") }).await;
        let pods = served.settles().await;
        let (owner, others) = pods.split_first().expect("three pods");
        let mut ids = Vec::new();
        for number in 0..sessions {
            let (client, _) = served.session_at(owner).await;
            let id = client.session().expect("a session has an id").to_owned();
            // Through any replica: the owner, or one that has to ask it.
            let at = served.pod(&pods[number % pods.len()]);
            let ended = delete(&at, &id).await;
            assert!(ended.is_success(), "{ended}");
            ids.push(id);
        }
        // Clients of others end theirs as they were made to.
        for seen in Callers::start_at(&served, owner).await.stop(row, "sessions that SDKs end") {
            assert!(seen.told == 0 && seen.errors.is_empty(), "{seen}");
            ids.push(seen.ended.expect("its session could be ended"));
        }
        let sessions = ids.len();
        assert!(kill_pod(owner) > 0, "it ran");
        let everywhere: Vec<_> = pods.iter().map(|pod| served.pod(pod)).collect();
        for id in &ids {
            for other in others {
                assert_eq!(call(&served.pod(other), id).await, StatusCode::NOT_FOUND);
            }
        }
        served.recovers(owner, &[SIDECAR, SERVER]).await;
        for id in &ids {
            for at in &everywhere {
                assert_eq!(call(at, id).await, StatusCode::NOT_FOUND);
            }
        }
        // A pod that has heard of the end from others alone.
        let mut served = served;
        served.next_version().await;
        for pod in served.settles().await {
            for id in &ids {
                assert_eq!(call(&served.pod(&pod), id).await, StatusCode::NOT_FOUND);
            }
            // It would have served, had it been asked by another.
            served.session_at(&pod).await;
        }
        row.says(format!(
            "{sessions} ended sessions stayed ended: at 2 replicas with their owner dead, at 3 when it was back, \
             and at 3 others after a rolling update"
        ));
    });
}

async fn delete(at: &Endpoint, id: &str) -> StatusCode {
    let headers = [("mcp-session-id", id), ("mcp-protocol-version", REVISION)];
    at.send(Method::DELETE, &headers, "", DEADLINE).await.expect("an answer").status
}

async fn call(at: &Endpoint, id: &str) -> StatusCode {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let headers = [("mcp-session-id", id), ("mcp-protocol-version", REVISION)];
    at.post(body, &headers, DEADLINE).await.expect("an answer").status
}
