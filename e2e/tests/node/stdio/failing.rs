//! Stdio servers that do not come up.

use futures::future::join_all;
use longshore_e2e::testing::eventually;
use serde_json::json;

use super::{NODE_IMAGE, manifest};
use crate::STAGE;
use crate::faults::connect;
use crate::server::{FAILS_OVER_ONE_THAT_WORKS, GO_IMAGE, RESTARTS, becomes, condition, stays};

#[test]
fn a_stdio_server_that_does_not_come_up_says_why_with_its_last_words() {
    // Name, image and command; the reason, and what the message holds.
    type Row<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, &'a [&'a str]);
    let table: [Row<'_>; 6] = [
        ("no-command", GO_IMAGE, &["/no/such/program"], "CommandNotFound", &["/no/such/program"]),
        (
            "not-executable",
            NODE_IMAGE,
            &["/etc/debian_version"],
            "CommandNotExecutable",
            &["/etc/debian_version"],
        ),
        (
            "exits",
            GO_IMAGE,
            &["/go-server", "-stdio", "-exit=3"],
            "ServerExited",
            &["3", "fatal: no such database"],
        ),
        ("exits-cleanly", NODE_IMAGE, &["true"], "ServerExited", &["0"]),
        (
            "wrong-arguments",
            GO_IMAGE,
            &["/go-server", "-stdio", "-no-such-flag"],
            "ServerExited",
            &["2", "serve standard input and output instead"],
        ),
        ("mute", NODE_IMAGE, &["sleep", "1000"], "InitializeTimeout", &[]),
    ];
    STAGE.with_namespace(async |namespace| {
        let manifests: Vec<_> =
            table.iter().map(|(name, image, command, ..)| manifest(name, image, command)).collect();
        namespace.apply(&manifests.join("---\n")).await;
        for (name, _, _, reason, words) in table {
            // On a slow machine the sidecar finds first that the container does not run yet.
            let message = eventually(&format!("{name} says why"), async || {
                let server = becomes(namespace, name, ("Ready", "False", reason)).await;
                let message = condition(&server, "Ready").expect("it was waited for").message.clone();
                match words.iter().find(|word| !message.contains(**word)) {
                    None => Ok(message),
                    Some(word) => Err(format!("{word} is not in: {message}")),
                }
            })
            .await;
            println!("{name}: {reason}: {message}");
        }
        // It is tried again and again, and that does not show.
        let stay = table.iter().map(async |(name, _, _, reason, _)| {
            stays(namespace, name, &[("Ready", "False", reason)], RESTARTS).await
        });
        join_all(stay).await;
        // One mistake is corrected.
        namespace.apply(&manifest("no-command", GO_IMAGE, &["/go-server", "-stdio"])).await;
        becomes(namespace, "no-command", ("Ready", "True", "Ready")).await;
    });
}

/// The container of a stdio server outlives its processes.
#[test]
fn a_new_version_whose_processes_die_after_their_handshake_leaves_the_old_one_serving() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&manifest("short", GO_IMAGE, &["/go-server", "-stdio"])).await;
        let server = becomes(namespace, "short", ("Ready", "True", "Ready")).await;
        let client = connect(namespace, &server, None).await;
        let dying = ["/go-server", "-stdio", "-exit-after=2s"];
        namespace.apply(&manifest("short", GO_IMAGE, &dying)).await;
        let failing = becomes(namespace, "short", ("Available", "True", "RolloutFailing")).await;
        let ready = condition(&failing, "Ready").expect("there is one");
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "ServingPrevious"), "{ready:?}");
        let message = &condition(&failing, "Available").expect("it was waited for").message;
        println!("{message}");
        // It is greeted and dies, again and again, and that does not show.
        stays(namespace, "short", &FAILS_OVER_ONE_THAT_WORKS, RESTARTS).await;
        client.call("echo", json!({"text": "a"})).await.expect("the old version serves");
    });
}
