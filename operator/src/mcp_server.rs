//! The controller of `McpServer`: one file per step, in the order of [`run_steps`].
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
pub(crate) mod upgrades;
pub(crate) mod validate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_sidecar_config::Upstream;
use parking_lot::Mutex;
use thiserror::Error;

use crate::api::ApiError;
use crate::metrics::Outcome;
use crate::mirror::ServerKey;
use crate::reading::Guarded;
use apply::{Applier, Part};
use condition::{Problem, Reason};
use context::Context;
use dereference::{own_bounds, own_keys};
use failures::Failures;
use memory::ServerMemory;
use progress::{Progress, of_upgrade};
use status::Address;
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

/// Brings one server to what its manifest says, and writes down how it is: now, or when it is called.
pub(crate) async fn reconcile(object: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Failed> {
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
        Ok(server) => run_steps(server, &context, &key, &uid, &memory).await,
        Err(unreadable) => {
            let mut progress = Progress::default();
            let message = format!(
                "this object cannot be read as an McpServer of this version: {}; compare it with `kubectl explain \
                 mcpserver.spec`, or bring the CustomResourceDefinition to this operator's version",
                unreadable.error
            );
            let problem = Problem::new(Reason::Malformed, message);
            progress.stop(vec![problem], probe::probe(&context, &key, &uid));
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
    let error = progress.error.take().or(unwritten);
    let took = started.elapsed();
    let result = match error {
        Some(Error::Apply(apply::Error::Problem(_)) | Error::Dereference(_) | Error::SessionKeys(_))
            if !progress.blind =>
        {
            // Said in the status; what stands in the way may go without a trace that the operator could watch.
            context.metrics.reconciled(Outcome::Refused, took);
            // What else is to be done, such as to touch a pod once more, does not wait for that.
            let delay = memory.lock().failures.refused();
            Ok(Action::requeue(again.map_or(delay, |again| again.min(delay))))
        }
        Some(Error::Apply(apply::Error::NamespaceEnds)) => {
            // The server goes too, in its turn; there is nothing to mend and nobody to tell.
            context.metrics.reconciled(Outcome::Done, took);
            Ok(Action::await_change())
        }
        Some(error) => {
            context.metrics.reconciled(Outcome::Retry, took);
            Err(Failed { error, again })
        }
        None => {
            // Whether what was refused still is, is seen in its turn, and nothing is better until then: many that are
            // refused for ever would take turns for ever, as fast as they can.
            memory
                .lock()
                .failures
                .end(progress.unpruned || progress.turn == Turn::Later && progress.upgrade_refused);
            let outcome = match &progress {
                Progress { untouched: true, .. } | Progress { unpruned: true, .. } => Outcome::Retry,
                Progress { problems, .. } if problems.is_empty() => Outcome::Done,
                Progress { .. } => Outcome::Refused,
            };
            context.metrics.reconciled(outcome, took);
            Ok(again.map_or_else(Action::await_change, Action::requeue))
        }
    };
    tracing::debug!(server = %key.name, namespace = %key.namespace, ?took, "reconciled");
    result
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
pub(crate) fn error_policy(object: Arc<Guarded>, failed: &Failed, context: Arc<Context>) -> Action {
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

/// The steps before the status, each on what the one before it found.
async fn run_steps(
    server: &McpServer,
    context: &Context,
    key: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
) -> Progress {
    let mut progress = Progress::default();

    // 1. Read what the manifest names. Client required.
    let upstreams = mounted_upstreams(context, key, uid);
    let wish = rotate::wish(server);
    let patient = !memory.lock().failures.last(tokio::time::Instant::now());
    let (keys, keys_from) = match own_keys::session_keys(context, key, uid, memory, wish).await {
        Ok(found) => found,
        Err(error) => {
            // Without them there is no configuration either: what there is stays.
            match own_keys::lasting(&error, key, patient) {
                Some(problem) => progress.stop(vec![problem], probe::probe(context, key, uid)),
                None => progress.blind = true,
            }
            if let own_keys::Error::Api(error) = &error {
                progress.met(error);
            }
            progress.error = Some(Error::SessionKeys(error));
            return progress;
        }
    };
    let found = dereference::dereference(server, context, patient, upstreams, keys).await;
    let (found, unread) = match found {
        Ok((found, unread)) => {
            unread.iter().for_each(|error| progress.met(error));
            (found, unread.map(Error::Dereference))
        }
        Err(error) => {
            progress.met(&error);
            progress.blind = true;
            progress.error = Some(Error::Dereference(error));
            return progress;
        }
    };

    // 2. Check it. No client.
    let mut validated = match validate::validate(server, &found) {
        Ok(validated) => validated,
        Err(problems) => {
            progress.stop(problems, probe::probe(context, key, uid));
            progress.error = unread;
            return progress;
        }
    };
    // Of the processes of pods from before it left stdio it says nothing. Client required, where nobody remembers.
    match own_bounds::processes(context, memory, &validated).await {
        Ok(processes) => validated.limits.processes = processes,
        Err(error) => {
            match own_bounds::lasting(&error, &validated, patient) {
                Some(problem) => progress.stop(vec![problem], probe::probe(context, key, uid)),
                None => progress.blind = true,
            }
            progress.met(&error);
            progress.error = Some(Error::Dereference(error));
            return progress;
        }
    }
    progress.problems = validated.readiness.problems().to_vec();
    progress.held_back = validated.is_held_back();
    progress.principals = Some(validated.auth.principals());

    // 3. Make the objects. No client.
    let live = context.mirrors.deployments.get(key, &key.name).and_then(|it| it.template.clone());
    let (mut prepared, mut desired) = build::build_beside(&mut validated, &context.settings, live.as_deref());

    // The session keys move on if every pod has what was just built: then it is built once more. No client.
    let facts = probe::probe(context, key, uid);
    let rotation = match rotate::rotate(&validated, &context.settings, wish, &facts, &desired) {
        Ok(rotation) => rotation,
        Err(error) => {
            progress.blind = true;
            progress.error = Some(Error::SessionKeys(error));
            return progress;
        }
    };
    progress.again = rotation.again;
    if let Some((keys, _)) = &rotation.next {
        validated.session_keys = keys.clone();
        if let Some((known, _)) = &mut memory.lock().session_keys {
            *known = keys.clone();
        }
        (prepared, desired) = build::build(&validated, &context.settings);
    }
    if prepared.deployment.is_none() {
        // What is not to be made takes nobody's turn.
        context.upgrades.not_needed(key);
    } else {
        progress.turn = upgrades::turn(server, context, key, memory, &mut desired);
    }
    if progress.turn == Turn::Later {
        prepared.deployment = None;
        // Whether that is still so is seen when it comes again.
        if let Some(problem) = memory.lock().refused_upgrade() {
            progress.problems.insert(0, of_upgrade(problem));
            progress.upgrade_refused = true;
        }
    }

    // 4. Apply them. Client required.
    let applier = Applier { context, server: key, uid, memory, keys_from: keys_from.as_ref(), patient };
    let applied = match applier.apply(prepared, &desired).await {
        Ok(applied) => {
            if let Some((_, step)) = rotation.next {
                rotate::tell(context, key, uid, step).await;
            }
            Some(applied)
        }
        Err(error) => {
            progress.not_applied(error, &desired.template, memory);
            None
        }
    };

    // Whose new pods cannot be made has none to wait for: the next one's turn.
    let lives = context.mirrors.deployments.get(key, &key.name);
    let is_new = lives.is_none_or(|deployment| deployment.template.as_ref() == Some(&desired.template));
    let unapplied = progress.unapplied.as_ref().map(|unapplied| unapplied.part);
    let is_refused = unapplied.is_some() && memory.lock().refused(&desired.template).is_some();
    progress.upgrade_refused |= is_refused && progress.turn == Turn::Later;
    if is_refused && !is_new {
        context.upgrades.done(key);
        if progress.turn == Turn::Upgrade
            && let Some(live) = live
        {
            // It waits again, and until its turn comes the version that is there is the one that is wanted, with which
            // the manifest is in force: so it is if all else was taken.
            desired.template = live;
            progress.upgrade_refused = true;
            if unapplied == Some(Part::Deployment) {
                progress.unapplied = None;
                progress.held_back = validated.is_held_back();
            }
        }
    }

    // 5. Hear how the pods are, and hurry those that run an old configuration. Client required for the latter.
    progress.pods = probe::probe(context, key, uid);
    let is_there = unapplied != Some(Part::Configuration);
    let touched = probe::touch(context, key, memory, &desired, &progress.pods, is_there).await;
    progress.again = [progress.again, touched.again].into_iter().flatten().min();
    progress.untouched = touched.failed;

    // Delete what is left over, which nothing else waits for: all of the manifest is taken. Client required.
    let waits_to_undo = memory.lock().undo_at.is_some();
    if let Some(applied) = applied
        && !waits_to_undo
    {
        progress.unpruned = !applier.prune(&applied, &desired).await;
    }
    progress.address = Address::of(&validated, &key.namespace, &context.settings.cluster_domain);
    progress.desired = Some(desired);
    progress.error = progress.error.or(unread);
    progress
}

/// How the sidecars of the pods that are there reach their servers.
fn mounted_upstreams(context: &Context, key: &ServerKey, uid: &str) -> Vec<Upstream> {
    let pods = probe::pods_of(context, key, uid);
    let running = pods.iter().filter(|pod| pod.failed.is_none());
    let mut texts: Vec<&str> = running.filter_map(|pod| pod.upstream.as_deref()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.into_iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
}
