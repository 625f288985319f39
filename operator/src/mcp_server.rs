//! The controller of `McpServer`: one file per step, in the order of [`steps`].
//!
//! 1. [`dereference`] reads what a manifest names: [`references`] says what that is;
//! 2. [`validate`] makes a server of both, or says what is wrong, and is pure;
//! 3. [`build`] makes the objects that it needs, and is pure;
//! 4. [`apply`] has the cluster have them;
//! 5. [`probe`] asks its pods how they are;
//! 6. [`status`] says what people read of it, in the words of [`condition`]: pure, and then written.
//!
//! [`progress`] is what came of the steps so far, [`context`] what all of them use, [`memory`] what was done before.
//! Beside them: the [`session_keys`] of a server, and when they [`rotate`]; whose turn it is to be looked after ([`slots`]),
//! or to get a new release's pods ([`upgrades`]), and how often that went wrong ([`failures`]).

pub(crate) mod apply;
pub(crate) mod build;
pub(crate) mod condition;
pub(crate) mod context;
pub(crate) mod dereference;
pub(crate) mod failures;
pub(crate) mod memory;
pub(crate) mod probe;
mod progress;
pub(crate) mod references;
pub(crate) mod rotate;
pub(crate) mod session_keys;
pub(crate) mod slots;
pub(crate) mod status;
mod steps;
pub(crate) mod upgrades;
pub(crate) mod validate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use thiserror::Error;

use crate::api::ApiError;
use crate::metrics::Outcome;
use crate::mirror::ServerKey;
use crate::reading::{MaybeUnreadable, Unreadable};
use apply::Applier;
use condition::{Problem, Reason};
use context::Context;
use dereference::own_keys;
use failures::Failures;
use progress::Progress;
use upgrades::Turn;

/// Why a reconciliation failed and has to be tried again.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// What the manifest names could not be read.
    #[error("cannot read what the manifest names: {0}")]
    Dereference(#[source] ApiError),
    /// There are no session keys.
    #[error("cannot read or make the session keys: {0}")]
    SessionKeys(#[from] own_keys::Error),
    /// The objects could not be applied.
    #[error(transparent)]
    Apply(#[from] apply::Error),
    /// The status could not be written.
    #[error("cannot write the status: {0}")]
    Status(#[source] ApiError),
}

// === impl Error ===

impl Error {
    /// Whether what there is was not what a write expects.
    fn is_conflict(&self) -> bool {
        match self {
            Self::Apply(apply::Error::Api { source, .. }) | Self::Status(source) => {
                matches!(source, ApiError::Conflict(_))
            }
            Self::Apply(_) | Self::Dereference(_) | Self::SessionKeys(_) => false,
        }
    }

    /// Whether the status tells of it, if it is written: somebody else has to mend it.
    fn is_told(&self) -> bool {
        matches!(self, Self::Apply(apply::Error::Problem(_)) | Self::Dereference(_) | Self::SessionKeys(_))
    }
}

/// A reconciliation that has to be tried again.
#[derive(Debug, Error)]
#[error("{error}")]
pub(crate) struct Failed {
    #[source]
    error: Error,
    /// When there is something else to do, which does not wait for what failed.
    again: Option<Duration>,
}

/// Brings one server to what its manifest says, and writes down how it is. Where no slot is free, it does so when the server is
/// called.
pub(crate) async fn reconcile(object: Arc<MaybeUnreadable>, context: Arc<Context>) -> Result<Action, Failed> {
    let key = ServerKey::of(object.as_ref());
    let Some(_slot) = context.slots.take(&key) else { return Ok(Action::await_change()) };
    let started = Instant::now();
    let uid = object.uid().unwrap_or_default();
    let memory = context.memory.of(&key, &uid);
    if object.meta().deletion_timestamp.is_some() && !serves_on(object.finalizers(), &context, &key, &uid) {
        // Everything that it owns goes with it.
        return Ok(Action::await_change());
    }
    let mut progress = match &object.0 {
        Ok(server) => steps::run(server, &context, &key, &uid, &memory).await,
        Err(unreadable) => {
            let mut progress = Progress::default();
            progress.stop(vec![malformed(unreadable)], probe::probe(&context, &key, &uid));
            progress
        }
    };
    let replicas = object.0.as_ref().map_or_else(|it| it.replicas, |server| Some(server.spec.replicas));
    let applier = Applier {
        context: &context,
        server: &key,
        uid: &uid,
        memory: &memory,
        keys_from: None,
        patient: true,
    };
    if let (None, Some(replicas)) = (&progress.desired, replicas) {
        // Nothing could be made of it. Whoever wants fewer pods, or none, gets that all the same.
        if let Err(error) = applier.scale(replicas).await {
            progress.error.get_or_insert(Error::Apply(error));
        }
    }
    let now = tokio::time::Instant::now();
    memory.lock().failures.met(progress.passing, now);
    // What something else changes all the time is changed back in its turn.
    let undo = memory.lock().undo_at.take().map(|at| at.saturating_duration_since(now));

    // 6. Status. It is written after a failure too, unless nothing new could be learnt.
    let written = match &progress.error {
        Some(Error::Apply(apply::Error::NamespaceEnds)) => Ok(None),
        _ if progress.blind => Ok(None),
        Some(_) | None => progress.write_down(&object, &applier).await,
    };
    let (later, unwritten) = match written {
        Ok(later) => (later, None),
        Err(error) => (None, Some(Error::Status(error))),
    };
    let trials = status::trials_end(&progress.pods, condition::now().0.as_second());
    // What cannot be deleted is tried again as what is refused is, and keeps nothing else waiting.
    let prune = progress.unpruned.then(|| memory.lock().failures.refused());
    let again = [progress.again, later, trials, prune, undo].into_iter().flatten().min();
    // Nobody knows what to mend until the status is written, so that is tried again sooner than what is refused.
    let error = progress.error.take_if(|error| unwritten.is_none() || !error.is_told()).or(unwritten);
    let took = started.elapsed();
    let (outcome, result) = conclude(error, again, &progress, &mut memory.lock().failures);
    context.metrics.reconciled(outcome, took);
    tracing::debug!(server = %key.name, namespace = %key.namespace, ?took, "reconciled");
    result
}

/// What came of a reconciliation, and when the server is due again.
fn conclude(
    error: Option<Error>,
    again: Option<Duration>,
    progress: &Progress,
    failures: &mut Failures,
) -> (Outcome, Result<Action, Failed>) {
    match error {
        Some(error) if error.is_told() && !progress.blind => {
            // What stands in the way may go without a trace that the operator could watch.
            let delay = failures.refused();
            // What else is to be done, such as to touch a pod once more, does not wait for that.
            let delay = again.map_or(delay, |again| again.min(delay));
            (Outcome::Refused, Ok(Action::requeue(delay)))
        }
        // The server goes too, in its turn; there is nothing to mend and nobody to tell.
        Some(Error::Apply(apply::Error::NamespaceEnds)) => (Outcome::Done, Ok(Action::await_change())),
        Some(error) => (Outcome::Retry, Err(Failed { error, again })),
        None => {
            // Whether what was refused still is, is seen in its turn, and nothing is better until then: many that are
            // refused for ever would take turns for ever, as fast as they can.
            failures.end(progress.unpruned || progress.turn == Turn::Later && progress.upgrade_refused);
            let outcome = if progress.untouched || progress.unpruned {
                Outcome::Retry
            } else if progress.problems.is_empty() {
                Outcome::Done
            } else {
                Outcome::Refused
            };
            (outcome, Ok(again.map_or_else(Action::await_change, Action::requeue)))
        }
    }
}

/// What is to be said of an object that is no `McpServer` as this version knows them.
fn malformed(unreadable: &Unreadable) -> Problem {
    let message = format!(
        "this object cannot be read as an McpServer of this version: {}; compare it with `kubectl explain \
         mcpserver.spec`, or bring the CustomResourceDefinition to this operator's version",
        unreadable.error
    );
    Problem::new(Reason::Malformed, message)
}

/// Whether a server that is to go is kept by somebody's finalizer alone. Until that is gone it serves, so keys are revoked
/// as ever. Where it has or had one of Kubernetes' own, its objects are going, are gone, or were left behind: they are not
/// made again, nor taken back.
fn serves_on(finalizers: &[String], context: &Context, key: &ServerKey, uid: &str) -> bool {
    let is_kubernetes_own = |name: &String| name == "foregroundDeletion" || name == "orphan";
    let memory = context.memory.of(key, uid);
    let let_go = {
        let mut memory = memory.lock();
        memory.let_go |= finalizers.iter().any(is_kubernetes_own);
        memory.let_go
    };
    let pods = context.mirrors.deployments.get(key, &key.name);
    let has_pods = pods.is_some_and(|pods| pods.live.controller.as_deref() == Some(uid));
    !finalizers.is_empty() && !let_go && has_pods
}

/// What to do after a failure: try again, later each time, or when there is something else to do.
pub(crate) fn error_policy(object: Arc<MaybeUnreadable>, failed: &Failed, context: Arc<Context>) -> Action {
    let key = ServerKey::of(object.as_ref());
    let uid = object.uid().unwrap_or_default();
    if !context.memory.knows(&key, &uid) {
        // It was deleted meanwhile.
        return Action::await_change();
    }
    let memory = context.memory.of(&key, &uid);
    let Failed { error, again } = failed;
    let (is_trouble, delay) = {
        let failures = &mut memory.lock().failures;
        (is_trouble(error, failures), failures.delay())
    };
    let delay = again.map_or(delay, |again| again.min(delay));
    if is_trouble {
        tracing::warn!(
            server = %key.name,
            namespace = %key.namespace,
            %error,
            ?delay,
            "reconciliation failed, will try again"
        );
    } else {
        tracing::debug!(
            server = %key.name,
            namespace = %key.namespace,
            %error,
            ?delay,
            "conflict, will reconcile again"
        );
    }
    Action::requeue(delay)
}

/// Whether a failure is worth a word, after these. Where somebody was faster, who may have deleted what was being applied,
/// looking again helps.
fn is_trouble(error: &Error, before: &Failures) -> bool {
    !error.is_conflict() || before.has_failed()
}
