//! What people type: `longshore-cluster up`, `exec`, `enter`, `down`; and what clusters type themselves.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::spec::Plan;
use super::supervisor::Lifetime;
use super::{Cluster, ClusterError, keeper, registry, run};
use crate::longshore;

/// A real Kubernetes cluster on this machine, with Longshore from this checkout.
#[derive(Debug, Parser)]
#[command(name = "longshore-cluster")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster that stays, or bring the one that runs up to date: with Longshore from this checkout installed
    /// and the manifests of `examples/` applied.
    Up {
        /// Its name.
        #[arg(default_value = "dev")]
        name: String,
    },
    /// Open a shell on the node: `kubectl`, `helm` and `ctr` are at hand, and names of Services can be looked up.
    Enter {
        /// Its name.
        #[arg(default_value = "dev")]
        name: String,
    },
    /// Run one command on the node.
    Exec {
        /// Its name.
        name: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// End the cluster, and leave nothing of it behind.
    Down {
        /// Its name.
        #[arg(default_value = "dev")]
        name: String,
    },
    /// Keep a cluster (its own business).
    #[command(hide = true)]
    Keep {
        #[arg(long, value_parser = parse_plan)]
        plan: Plan,
        #[arg(long)]
        lifetime: Lifetime,
    },
    /// Be the first process of a cluster's namespaces (its own business).
    #[command(hide = true)]
    Supervise {
        #[arg(long)]
        folder: PathBuf,
        #[arg(long)]
        lifetime: Lifetime,
    },
}

fn parse_plan(text: &str) -> Result<Plan, serde_json::Error> {
    serde_json::from_str(text)
}

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Up { name } => up(&name),
        Command::Enter { name } => enter(&name),
        Command::Exec { name, command } => exec(&name, &command),
        Command::Down { name } => down(&name),
        Command::Keep { plan, lifetime } => {
            keeper::keep(plan, lifetime);
            Ok(())
        }
        Command::Supervise { folder, lifetime } => {
            keeper::supervise(&folder, lifetime);
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("longshore-cluster: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn up(name: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    let cluster = match Cluster::running(name)? {
        Some(cluster) => once_ready(name, cluster)?,
        None => match Cluster::start_detached(name) {
            Ok(cluster) => {
                say(&format!("cluster {name} is ready after {:.1} s", started.elapsed().as_secs_f32()));
                cluster
            }
            // Somebody else may have begun it meanwhile.
            Err(error) => match Cluster::running(name)? {
                Some(cluster) => once_ready(name, cluster)?,
                None => return Err(error.into()),
            },
        },
    };
    longshore::install(&cluster).context("cannot install Longshore")?;
    longshore::apply_examples(&cluster).context("cannot apply the examples")?;
    say("Longshore is installed, and the examples are applied");
    let program = std::env::current_exe()?;
    let mut output = io::stdout().lock();
    writeln!(output, "{} enter {name}", quoted(&program))?;
    Ok(())
}

/// Waits for a cluster that may be on its way still: whoever started it waits too, or has been stopped.
fn once_ready(name: &str, cluster: Cluster) -> anyhow::Result<Cluster> {
    say(&format!("cluster {name} is running"));
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let asked = cluster.command("kubectl").map_err(ClusterError::from).and_then(|mut kubectl| {
            kubectl.args(["wait", "nodes", "--all", "--for=condition=Ready", "--timeout=5s"]);
            run(kubectl)
        });
        let Err(error) = asked else { return Ok(cluster) };
        if Instant::now() > deadline || registry::find(name)?.is_none() {
            return Err(error).with_context(|| format!("cluster {name} does not become ready"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A path, as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn enter(name: &str) -> anyhow::Result<()> {
    let shell = std::env::var_os("SHELL").unwrap_or("/bin/sh".into());
    exec(name, &[shell])
}

fn exec(name: &str, command: &[OsString]) -> anyhow::Result<()> {
    let cluster = running(name)?;
    let Some((program, arguments)) = command.split_first() else { bail!("no command is given") };
    let error = cluster.command(program)?.args(arguments).exec();
    Err(error).context("cannot run nsenter")
}

/// Ends a cluster by its keeper, which clears everything away; and if that has been killed, without it.
fn down(name: &str) -> anyhow::Result<()> {
    let Some(spec) = registry::find(name)? else {
        say(&format!("no cluster {name} is running"));
        registry::sweep_up()?;
        return Ok(());
    };
    end(&spec.folder.join("keeper"), Signal::SIGTERM)?;
    if !is_gone_soon(name)? {
        end(&spec.first_process_file(), Signal::SIGKILL)?;
        end(&spec.folder.join("keeper"), Signal::SIGKILL)?;
        // What still runs holds on to what is to be swept up.
        if !is_gone_soon(name)? {
            bail!("cluster {name} does not end, although its processes were killed; try again");
        }
    }
    registry::sweep_up()?;
    say(&format!("cluster {name} is gone"));
    Ok(())
}

/// Waits for its end, and says whether it has come.
fn is_gone_soon(name: &str) -> anyhow::Result<bool> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while registry::find(name)?.is_some() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(true)
}

fn end(file: &Path, signal: Signal) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read_to_string(file) else { return Ok(()) };
    match kill(Pid::from_raw(text.trim().parse()?), signal) {
        Err(Errno::EPERM) => bail!("the cluster is another user's: end it as that user, or as root"),
        // One that has ended already is what is wanted.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn running(name: &str) -> anyhow::Result<Cluster> {
    Cluster::running(name)?
        .with_context(|| format!("no cluster {name} is running; `make cluster` starts one"))
}

fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_for_a_shell() {
        for (path, word) in [
            ("/work/target/debug/longshore-cluster", "/work/target/debug/longshore-cluster"),
            ("/my work/x", "'/my work/x'"),
            ("/it's/x", r"'/it'\''s/x'"),
        ] {
            assert_eq!(quoted(Path::new(path)), word);
        }
    }
}
