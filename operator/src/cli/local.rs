//! `longshore local`, and the two that it starts itself as: `longshore guard` and `longshore shim`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use longshore_sidecar::AuditLog;
use tracing_subscriber::filter::LevelFilter;

use super::log::LogLevel;
use crate::local::output::{self, STDERR};
use crate::local::{self, Options};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files with manifests, or folders of them. Secrets and ConfigMaps that they name are looked for in the files
    /// beside them. Default: a built-in example.
    paths: Vec<PathBuf>,
    /// The port of the first server; the others and the catalog get the next ones. Default: the first that is free from
    /// 8380 on.
    #[arg(long)]
    port: Option<u16>,
    /// Print one line of JSON once all of them serve: {"catalog", "servers": [{"namespace", "name", "url", "key"}]}.
    /// Everything else goes to standard error.
    #[arg(long)]
    json: bool,
    /// The key that callers bring, for servers whose Secret is not there, or to show, where it holds only hashes. 16 visible
    /// characters or more; the same at each start, so that clients go on to work.
    #[arg(long, env = "LONGSHORE_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Write a line to standard error for each request: who called what, and which rule permitted it.
    #[arg(long)]
    audit: bool,
    /// What the sidecars and the catalog log to standard error.
    #[arg(long, value_enum, default_value_t = LogLevel::Error, env = "LONGSHORE_LOG_LEVEL")]
    log_level: LogLevel,
}

/// A command with its arguments, after `--`.
#[derive(Debug, clap::Args)]
pub(super) struct Guarded {
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// The shim's own arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Shim {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(args.log_level))
        .with_writer(|| STDERR.lines())
        .init();
    let options = Options {
        paths: args.paths,
        port: args.port,
        json: args.json,
        key: args.key,
        audit: if args.audit { AuditLog::Stderr } else { AuditLog::Off },
    };
    let code = serve(options).unwrap_or_else(|error| {
        // Here, since nobody may read standard error.
        STDERR.line(format_args!("longshore: {error:#}"));
        ExitCode::FAILURE
    });
    output::flush();
    Ok(code)
}

fn serve(options: Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = super::StopSignals::listen()?;
        anyhow::Ok(local::run(options, async || signals.next().await).await?)
    })
}

pub(super) fn guard(args: &Guarded) -> anyhow::Result<ExitCode> {
    match args.command.split_first() {
        Some((program, arguments)) => Ok(local::guard::run(program, arguments)?),
        None => anyhow::bail!("name the program to run"),
    }
}

pub(super) fn shim(args: Shim) -> ExitCode {
    longshore_shim::main(args.arguments.into_iter())
}
