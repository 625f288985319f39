//! The server as a program of its own, for tests that want a process and not the whole of `longshore`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use longshore_example_server::command::{Arguments, Special, revision_parser, run};
use longshore_mcp::revision::Revision;

#[derive(Debug, clap::Parser)]
#[command(version, about = "An MCP server that speaks one revision, all of it, and forgives nothing")]
struct Program {
    /// The revision that it speaks.
    #[arg(long, value_parser = revision_parser())]
    revision: Revision,
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    special: Special,
}

fn main() -> ExitCode {
    let Program { revision, arguments, special } = Program::parse();
    match run(revision, &arguments, &special) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let source =
                std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{error}{source}");
            ExitCode::FAILURE
        }
    }
}
