//! A new release of Longshore has a new sidecar, so every server gets new pods: a few servers at a time, or the
//! cluster would have to run all of them twice at once.
//!
//! A change of a manifest does not wait here. Which of the two it is that makes other pods is told by the condition
//! *Available*: of which generation those are that were made last.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use longshore_crds::McpServer;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::ConditionType;
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::{probe, status};
use crate::mirror::ServerKey;
use crate::scope::Scope;
use crate::view::{DeploymentView, PodView};

/// A server that takes longer than this to serve its new version no longer keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(120);

/// A free turn is kept for so long for the namespace that had one the longest ago. Then who comes first has it: it may be
/// long until one comes whose namespace is held up.
const KEPT: Duration = Duration::from_secs(2);

/// So many more are told that a turn is free than there are turns.
const SPARE: usize = 8;

/// Who gets new pods for Longshore's sake, and who waits for it.
#[derive(Debug)]
pub(crate) struct Upgrades {
    at_once: usize,
    state: Mutex<State>,
    /// Servers whose turn it may be. Each waits at most once, so the channel is as short as the list of servers.
    due: mpsc::UnboundedSender<ServerKey>,
}

#[derive(Debug, Default)]
struct State {
    rolling: HashMap<ServerKey, Instant>,
    /// Whom a free turn is kept for, and since when.
    kept: HashMap<ServerKey, Instant>,
    /// Who asked first is first. Whose turn came to nothing asks again, and is last.
    waiting: Vec<ServerKey>,
    /// When one of a namespace was told last.
    told: HashMap<String, u64>,
    /// When one of a namespace was given a turn last, or had one kept for it in vain.
    had: HashMap<String, u64>,
    /// The time, as a number that grows.
    now: u64,
}

/// Whether a server may have its new pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Now.
    Now,
    /// When another is done, or after this time at the latest.
    Later(Duration),
}

impl Upgrades {
    /// Lets this many servers change at once. The receiver tells whose turn it is.
    pub(crate) fn new(at_once: usize) -> (Self, mpsc::UnboundedReceiver<ServerKey>) {
        let (due, turns) = mpsc::unbounded_channel();
        (Self { at_once: at_once.max(1), state: Mutex::default(), due }, turns)
    }

    /// Asks for a turn.
    pub(crate) fn ask(&self, server: &ServerKey) -> Turn {
        let mut state = self.state.lock();
        let free = state.free(self.at_once);
        if state.rolling.contains_key(server) {
            state.waiting.retain(|waiting| waiting != server);
            return Turn::Now;
        }
        if state.kept.remove(server).is_some() || free > 0 {
            state.waiting.retain(|waiting| waiting != server);
            state.rolling.insert(server.clone(), Instant::now());
            state.note_given(server);
            return Turn::Now;
        }
        if !state.waiting.contains(server) {
            state.waiting.push(server.clone());
        }
        // Whoever was told, and comes before the one that the turn is kept for, comes again in case that one does not.
        let kept = state.kept.values().map(|since| KEPT.saturating_sub(since.elapsed()));
        Turn::Later(kept.min().unwrap_or(PATIENCE))
    }

    /// Somebody has given the server a turn already, of which it has yet to make use.
    fn goes_on(&self, server: &ServerKey) {
        self.state.lock().rolling.entry(server.clone()).or_insert_with(Instant::now);
    }

    /// The server serves its newest version, or has gone: the next one's turn.
    pub(crate) fn done(&self, server: &ServerKey) {
        self.state.lock().rolling.remove(server);
        self.not_needed(server);
    }

    /// The server needs no turn, or no longer: if it was given one, it is the next one's.
    pub(crate) fn not_needed(&self, server: &ServerKey) {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| waiting != server);
        state.kept.remove(server);
        let free = state.free(self.at_once);
        for next in state.next(free) {
            // The receiver ends only with the process.
            let _ = self.due.send(next);
        }
    }
}

// === impl State ===

impl State {
    /// How many turns nobody has, and are kept for nobody.
    fn free(&mut self, at_once: usize) -> usize {
        self.rolling.retain(|_, since| since.elapsed() < PATIENCE);
        self.kept.retain(|_, since| since.elapsed() < KEPT);
        at_once.saturating_sub(self.rolling.len() + self.kept.len())
    }

    /// The server's namespace is given a turn.
    fn note_given(&mut self, server: &ServerKey) {
        self.now += 1;
        self.had.insert(server.namespace.clone(), self.now);
    }

    /// Who is told that so many turns are free: of each namespace no more than that, and first of those of which somebody
    /// was told the longest ago. The turns are kept for those of them whose namespaces had one the longest ago.
    fn next(&mut self, free: usize) -> Vec<ServerKey> {
        if free == 0 {
            return Vec::new();
        }
        let mut of_namespace: HashMap<&str, usize> = HashMap::new();
        let mut next: Vec<_> = self
            .waiting
            .iter()
            .map(|server| {
                let before = of_namespace.entry(&server.namespace).or_default();
                *before += 1;
                (*before, self.told.get(&server.namespace).copied(), server.clone())
            })
            .filter(|(before, ..)| *before <= free)
            .collect();
        next.sort_by_key(|(before, told, _)| (*before, *told));
        next.truncate(free + SPARE);
        // One of each namespace comes before the second of any.
        next.sort_by_key(|(before, _, server)| (*before, self.had.get(&server.namespace).copied()));
        let next: Vec<_> = next.into_iter().map(|(.., server)| server).collect();
        self.waiting.retain(|waiting| !next.contains(waiting));
        for server in &next {
            self.now += 1;
            self.told.insert(server.namespace.clone(), self.now);
        }
        for server in next.iter().take(free) {
            self.note_given(server);
            self.kept.insert(server.clone(), Instant::now());
        }
        if self.waiting.is_empty() && self.rolling.is_empty() && self.kept.is_empty() {
            // All is done.
            (self.told, self.had) = (HashMap::new(), HashMap::new());
        }
        next
    }
}

/// Whether the pods may be replaced now, if it is a new release of Longshore that replaces them. Until then the version
/// that is there is the one that is wanted.
pub(super) fn turn(
    server: &McpServer,
    context: &Context,
    key: &ServerKey,
    memory: &Mutex<ServerMemory>,
    desired: &mut Desired,
) -> Turn {
    let live =
        context.mirrors.deployments.get(key, &key.name).and_then(|deployment| deployment.template.clone());
    decide(server, &context.upgrades, key, &mut memory.lock(), live, desired)
}

/// The same, of a Deployment whose pods have this template. No client.
fn decide(
    server: &McpServer,
    upgrades: &Upgrades,
    key: &ServerKey,
    memory: &mut ServerMemory,
    live: Option<String>,
    desired: &mut Desired,
) -> Turn {
    // What this process makes of a manifest changes with the manifest alone: only its first look can be an upgrade.
    let first_look = !memory.applied.contains_key(&("Deployment", key.name.clone()));
    // Of pods that were made of this very manifest others are a new release's. One without a status started a moment ago,
    // when its first word could still wait. Whoever only scales a server that waits asks for no other pods, and one that was
    // refused them waits for another turn.
    let conditions = server.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let available = status::find(conditions, ConditionType::Available);
    let made_of = available.and_then(|available| available.observed_generation);
    let nobody_asked = made_of.is_none()
        || made_of == server.metadata.generation
        || memory.upgrades_to.as_ref() == Some(&desired.template);
    match live {
        Some(live) if first_look && desired.replicas > 0 && live != desired.template => {
            if !nobody_asked {
                upgrades.not_needed(key);
                return Turn::Now;
            }
            let turn = upgrades.ask(key);
            memory.upgrades_to = Some(match turn {
                Turn::Now => desired.template.clone(),
                Turn::Later(_) => std::mem::replace(&mut desired.template, live),
            });
            turn
        }
        // There is nothing to do; or nothing runs that could be replaced, and its turn would end by time alone.
        live => {
            if live.is_none() {
                // Who has no version to go on with waits for no upgrade.
                memory.upgrades_to = None;
            }
            upgrades.not_needed(key);
            Turn::Now
        }
    }
}

/// Counts what is being replaced already, before the first look at any server: the operator before this one may have
/// ended in the middle of an upgrade, and as many more servers would begin.
pub(crate) fn resume(context: &Context, scope: &Scope) {
    let deployments = &context.mirrors.deployments;
    for server in deployments.servers(scope) {
        let Some(deployment) = deployments.get(&server, &server.name) else { continue };
        let uid = deployment.live.controller.as_deref().unwrap_or_default();
        if is_rolling(&deployment, &probe::pods_of(context, &server, uid)) {
            context.upgrades.goes_on(&server);
        }
    }
}

/// Whether pods of another version wait for those of the newest. A part of them goes when a new one serves, and the last
/// of them when all do.
fn is_rolling(deployment: &DeploymentView, pods: &[Arc<PodView>]) -> bool {
    let is_old = |pod: &PodView| !pod.ending && pod.failed.is_none() && pod.template != deployment.template;
    deployment.replicas != Some(0) && pods.iter().any(|pod| is_old(pod))
}

#[cfg(test)]
mod tests;
