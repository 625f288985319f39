//! Stdio servers that do not come up.

use std::time::Duration;

use longshore_e2e::testing::eventually;

use super::{NODE_IMAGE, manifest};
use crate::STAGE;
use crate::server::{GO_IMAGE, becomes, condition, stays};

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
        for (name, _, _, reason, _) in table {
            stays(namespace, name, ("Ready", "False", reason), Duration::from_millis(300)).await;
        }
        // One mistake is corrected.
        namespace.apply(&manifest("no-command", GO_IMAGE, &["/go-server", "-stdio"])).await;
        becomes(namespace, "no-command", ("Ready", "True", "Ready")).await;
    });
}
