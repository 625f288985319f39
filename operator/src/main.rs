//! `longshore`: the operator, and the command people type.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match longshore::cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // The chain of causes on one line, for people and log collectors alike.
            let _ = writeln!(std::io::stderr(), "longshore: {error:#}");
            ExitCode::FAILURE
        }
    }
}
