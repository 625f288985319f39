//! The crate's tour: a proxy that starts a server of one revision and serves it to one client of another, over stdin and
//! stdout. `proxy` is what there is to know of MCP; here lines are carried.
//!
//! ```text
//! cargo run -p longshore-mcp --example translate -- 2025-06-18 2026-07-28 \
//!     longshore example-server --revision 2026-07-28 --transport stdio
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the crate does no I/O, so who uses it has to"
)]

mod proxy;

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use longshore_mcp::revision::Revision;
use longshore_mcp::translate::Pair;
use proxy::{Failure, Proxy, Side};

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, server, program, rest @ ..] = arguments.as_slice() else {
        return Err("usage: translate REVISION-OF-CLIENT REVISION-OF-SERVER PROGRAM [ARGUMENT...]".into());
    };
    let revision = |name: &str| Revision::parse(name).ok_or("there is no such revision");
    let pair = Pair { client: revision(client)?, server: revision(server)? };
    run(pair, Command::new(program).args(rest), io::stdin(), io::stdout())
}

/// Starts the server and serves it, until it ends: it hears that its client has gone by the end of its stdin.
pub(crate) fn run(
    pair: Pair,
    server: &mut Command,
    client: impl Read + Send + 'static,
    answers: impl Write,
) -> Result<(), Failure> {
    let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let served = serve(pair, &mut child, client, answers);
    child.wait()?;
    served
}

fn serve(
    pair: Pair,
    server: &mut Child,
    client: impl Read + Send + 'static,
    mut answers: impl Write,
) -> Result<(), Failure> {
    let mut input = server.stdin.take();
    let output = server.stdout.take().ok_or("the server has no stdout")?;
    let (heard, lines) = channel();
    read(Side::Client, client, heard.clone());
    read(Side::Server, output, heard);
    let (mut proxy, mut has_gone) = (Proxy::new(pair)?, false);
    loop {
        for (to, line) in proxy.out.drain(..) {
            match (to, &mut input) {
                (Side::Client, _) => writeln!(answers, "{line}").and_then(|()| answers.flush())?,
                // One that does not read any more ends, which comes next.
                (Side::Server, Some(input)) => drop(writeln!(input, "{line}")),
                (Side::Server, None) => {}
            }
        }
        if has_gone && !proxy.is_greeting() {
            input = None;
        }
        match lines.recv()? {
            (Side::Client, Some(line)) => proxy.client_says(&line),
            (Side::Client, None) => has_gone = true,
            (Side::Server, Some(line)) => proxy.server_says(&line),
            (Side::Server, None) => return Ok(()),
        }
    }
}

/// Has a thread tell of each line of a side, and of its end. What is no text is told as an empty line: it is no message
/// either.
fn read(side: Side, lines: impl Read + Send + 'static, heard: Sender<(Side, Option<String>)>) {
    std::thread::spawn(move || {
        for line in BufReader::new(lines).split(b'\n').map_while(Result::ok) {
            if heard.send((side, Some(String::from_utf8(line).unwrap_or_default()))).is_err() {
                return;
            }
        }
        drop(heard.send((side, None)));
    });
}
