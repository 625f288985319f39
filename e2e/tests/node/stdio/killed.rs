//! What is left of a stdio server's processes when somebody is killed.

use std::time::{Duration, Instant};

use longshore_e2e::mcp_client::McpError;
use longshore_e2e::testing::{container_processes, eventually, kill_container};
use serde_json::json;

use super::manifest;
use crate::STAGE;
use crate::faults::{SERVER, SIDECAR, connect, restarts, the_pod};
use crate::server::{GO_IMAGE, becomes};

/// For how long the shim keeps the processes of a sidecar that is gone, at least.
const WAITS: Duration = Duration::from_secs(9);
/// The container's first process, the shim that serves, and the process by which the sidecar lists what the server offers.
const AT_REST: usize = 3;

#[test]
fn no_process_is_left_of_a_sidecar_that_was_killed() {
    const SESSIONS: usize = 5;
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&manifest("go", GO_IMAGE, &["/go-server", "-stdio"])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            let client = connect(namespace, &server, None).await;
            client.call("echo", json!({"text": "hello"})).await.expect("it is served");
            sessions.push(client);
        }
        let pod = the_pod(namespace, "go").await;
        let before = container_processes(&pod, SERVER);
        assert!(before.len() >= AT_REST + SESSIONS, "each session has a process of its own: {before:?}");

        assert!(kill_container(&pod, SIDECAR) > 0, "it ran");
        let killed = Instant::now();
        eventually("the sidecar is back", async || {
            let pod = the_pod(namespace, "go").await;
            if restarts(&pod, SIDECAR) == 1 { Ok(()) } else { Err("not yet") }
        })
        .await;
        // A process that the new sidecar has taken over is still its session's; the others have been ended.
        let mut alive = 0;
        for session in &sessions {
            let answered = eventually("it is answered", async || {
                match session.call("echo", json!({"text": "again"})).await {
                    Ok(_) => Ok(true),
                    Err(McpError::Rpc { .. } | McpError::Status(_)) => Ok(false),
                    Err(error) => Err(error.to_string()),
                }
            });
            alive += usize::from(answered.await);
        }
        let took = killed.elapsed();
        assert!(alive == SESSIONS || took > WAITS, "{alive} of {SESSIONS} sessions went on after {took:?}");
        eventually("the other processes are gone", async || {
            let processes = container_processes(&the_pod(namespace, "go").await, SERVER);
            if processes.len() <= AT_REST + alive { Ok(()) } else { Err(format!("{processes:?}")) }
        })
        .await;

        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, None).await;
        client.call("echo", json!({"text": "hello"})).await.expect("it is served");
        assert_eq!(restarts(&the_pod(namespace, "go").await, SERVER), 0, "the shim outlives sidecars");
    });
}

#[test]
fn a_process_that_is_killed_is_one_sessions_trouble() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&manifest("go", GO_IMAGE, &["/go-server", "-stdio"])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let bystander = connect(namespace, &server, None).await;
        bystander.call("echo", json!({"text": "hello"})).await.expect("it is served");
        let victim = connect(namespace, &server, None).await;
        let error = victim.call("exit", json!({"status": 3})).await.expect_err("nobody is there to answer");
        let McpError::Rpc { message, data, .. } = error else { panic!("{error}") };
        assert!(message.contains("exit status 3"), "{message}");
        assert_eq!(data["stderr"], "asked to exit with status 3", "its last words");
        bystander.call("echo", json!({"text": "hello"})).await.expect("it noticed nothing");
        let pod = the_pod(namespace, "go").await;
        assert_eq!((restarts(&pod, SERVER), restarts(&pod, SIDECAR)), (0, 0));
    });
}
