//! The process that keeps a cluster: it gives it a place, runs it, and clears everything away when it has ended, also
//! when whoever started it has died in the meantime.

use std::process::{Child, Command, Stdio};

use tokio::signal::unix::{SignalKind, signal};

use super::certificates::{self, CertificateError};
use super::messages::{Failure, Report};
use super::namespaces;
use super::registry::{self, Claim, RegistryError};
use super::spec::{Plan, Shape, Spec};
use super::supervisor::{self, Lifetime};

/// Why a cluster did not come up, or ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error("cannot run the cluster")]
    Run(#[from] std::io::Error),
    #[error(transparent)]
    Failure(#[from] Failure),
}

/// Keeps a cluster from its start to its end. What goes wrong is reported.
pub(crate) fn keep(plan: Plan, lifetime: Lifetime) {
    if let Err(error) = try_keep(plan, lifetime) {
        let failure = match error {
            KeepError::Failure(failure) => failure,
            error => Failure { what: chain(&error), log: None, logs: None },
        };
        supervisor::report(&Report::Failed(failure));
    }
}

fn try_keep(plan: Plan, lifetime: Lifetime) -> Result<(), KeepError> {
    if lifetime == Lifetime::Detached {
        // A session of its own: it outlives the terminal.
        nix::unistd::setsid().map_err(std::io::Error::from)?;
    }
    let claim = registry::claim(plan)?;
    let ended = run(&claim, lifetime);
    // Why it ended matters more than that it could not be cleared away.
    let released = claim.release();
    ended?;
    Ok(released?)
}

fn run(claim: &Claim, lifetime: Lifetime) -> Result<(), KeepError> {
    let spec = &claim.spec;
    std::fs::write(spec.folder.join("keeper"), std::process::id().to_string())?;
    supervisor::report(&Report::Placed(spec.folder.clone()));
    certificates::write(spec)?;
    match spec.shape {
        Shape::Api | Shape::ControlPlane => Ok(supervisor::run(spec, lifetime)?),
        Shape::Node => Ok(run_apart(spec, lifetime)?),
    }
}

/// Runs the supervisor as the first process of namespaces of its own, and waits until it has ended.
fn run_apart(spec: &Spec, lifetime: Lifetime) -> std::io::Result<()> {
    namespaces::unshare_processes()?;
    let lifetime = match lifetime {
        Lifetime::Lifeline => "lifeline",
        Lifetime::Detached => "detached",
    };
    // Input and output are this process's own, so it is the supervisor whom the other side talks to from here on.
    let mut first = Command::new(std::env::current_exe()?)
        .args(["supervise", "--lifetime", lifetime, "--folder"])
        .arg(&spec.folder)
        .stdin(Stdio::inherit())
        .spawn()?;
    std::fs::write(spec.first_process_file(), first.id().to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(wait(&mut first))
}

async fn wait(first: &mut Child) -> std::io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while first.try_wait()?.is_none() {
        tokio::select! {
            _ = ended.recv() => {}
            // Killing the first process of a namespace kills all others in it.
            _ = terminate.recv() => first.kill()?,
            _ = interrupt.recv() => first.kill()?,
        }
    }
    Ok(())
}

/// The supervisor's own `main`, where it is the first process of its namespaces.
pub(crate) fn supervise(folder: &std::path::Path, lifetime: Lifetime) {
    let ended = registry::hold(folder).and_then(|claim| {
        namespaces::isolate()?;
        Ok(supervisor::run(&claim.spec, lifetime))
    });
    let failure = match ended {
        Ok(Ok(())) => return,
        Ok(Err(failure)) => failure,
        Err(error) => Failure { what: format!("cannot isolate the cluster: {error}"), log: None, logs: None },
    };
    supervisor::report(&Report::Failed(failure));
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}
