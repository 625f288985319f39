//! A quick MCP server for tests of sessions. Its answers say who asked and which process answers, so that an answer that
//! went to the wrong session, or a session that two processes serve, shows.
//!
//! ```text
//! echo-server stdio                                       one session, over standard input and output
//! echo-server http [--listen ADDRESS] [--no-sessions] [--streams]
//!                                                         Streamable HTTP at /mcp (default 127.0.0.1:3000), with a stream
//!                                                         of its own for each session where it is told so
//! echo-server check [--listen ADDRESS]                    whether the server at that address is well (its probe)
//! ```
//!
//! | tool | does |
//! |---|---|
//! | `echo` | gives back its arguments |
//! | `wait` | the same after `milliseconds` |
//! | `notify` | the same after `count` numbered notifications, each with `padding` bytes, `milliseconds` apart; with `ask`, questions whose answers nobody reads; over stdio until it is cancelled |
//! | `announce` | the same before such notifications, which belong to no call; over HTTP in the session's own stream |
//! | `remember` | keeps `value` for this session |
//! | `recall` | gives back what this session has kept, and its log level |
//! | `sicken` | from now on `check` fails, and all else works |
//! | `exit` | ends the process with `status` |
//!
//! Every result has `structuredContent`: `echo` (the arguments), `who` (the name that the client gave in `initialize`),
//! `session` (its number among the sessions of this process, from 1; 0: none) and `instance` (of this process: its host, `/`, and
//! something random).

#![expect(clippy::print_stderr, reason = "a program says what is wrong with its command line there")]
#![expect(clippy::exit, reason = "there is a tool for it")]

mod answer;
mod http;
mod stdio;
mod tools;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

const USAGE: &str = "usage: echo-server stdio | http [--listen ADDRESS] [--no-sessions] [--streams] | \
                     check [--listen ADDRESS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> io::Result<ExitCode> {
    let mut words = arguments.iter().map(String::as_str);
    let what = words.next().unwrap_or_default();
    let mut listen = SocketAddr::from(([127, 0, 0, 1], 3000));
    let (mut sessions, mut streams) = (true, false);
    while let Some(word) = words.next() {
        match word {
            "--no-sessions" => sessions = false,
            "--streams" => streams = true,
            "--listen" => {
                let address = words.next().and_then(|text| text.parse().ok());
                listen = address.ok_or_else(|| wrong("--listen takes an address, such as 127.0.0.1:3000"))?;
            }
            _ => return Err(wrong(USAGE)),
        }
    }
    match what {
        "stdio" => stdio::serve().map(|()| ExitCode::SUCCESS),
        "http" => http::serve(listen, sessions, streams).map(|()| ExitCode::SUCCESS),
        "check" => http::check(listen).map(|well| if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        _ => Err(wrong(USAGE)),
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
