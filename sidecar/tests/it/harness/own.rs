//! This program again, in a process of its own: one of its tests is a server or a client there.

use std::process::{Command, Stdio};

use super::peer::Peer;
use super::recorder::Recorder;

/// How it is started as that test, with these words. They choose no further test.
pub(crate) fn command(test: &str, words: &[&str]) -> Vec<String> {
    let own = std::env::current_exe().expect("its own path");
    let own = own.to_str().expect("text");
    let all = [&[own, "--exact", "--ignored", "--nocapture", test], words].concat();
    all.into_iter().map(str::to_owned).collect()
}

/// The words that such a test was given.
pub(crate) fn told() -> Vec<String> {
    std::env::args().skip(5).collect()
}

/// How the example server is started, in this revision and over this transport (`http`, `sse`, `stdio`).
pub(crate) fn example(revision: &str, transport: &str, port: u16) -> Vec<String> {
    command("conformance::server::example", &[revision, transport, &port.to_string()])
}

/// The example server over Streamable HTTP at this port (0: at any), which speaks this revision alone.
pub(crate) fn example_server(revision: &str, at: u16) -> Peer {
    let port = Recorder::server_port(at);
    let command = example(revision, "http", port);
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Peer::listening(program.spawn().expect("the example server"), port).heard(at)
}
