//! A new release of Longshore has a new sidecar, so every server gets new pods: a few servers at a time, or the
//! cluster would have to run all of them twice at once.
//!
//! A change of a manifest does not wait here. Which of the two it is that makes other pods is told by the condition
//! *Available*: of which generation those are that were made last.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use longshore_crds::McpServer;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{ConditionType, Reason, Truth};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::{probe, status};
use crate::mirror::ServerKey;
use crate::scope::Scope;
use crate::view::{DeploymentView, PodView};

/// A server that takes longer than this to serve its new version no longer keeps others waiting.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nor does a server keep others waiting that does not come for its turn within this: it may be long until one comes whose
/// namespace is held up. It finds a turn when it comes, unless others have all of them by then.
const KEPT: Duration = Duration::from_secs(2);

/// Who gets new pods for Longshore's sake, and who waits for it.
#[derive(Debug)]
pub(crate) struct Upgrades {
    at_once: usize,
    state: Mutex<State>,
    has_changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Who has a turn.
    given: HashMap<ServerKey, Given>,
    /// Those that were given a turn, and that nobody has told yet.
    called: VecDeque<ServerKey>,
    /// Who asked first is first. Whose turn came to nothing asks again, and is last.
    waiting: Vec<ServerKey>,
    /// When a server of each namespace was given a turn last, be it in vain.
    had: HashMap<String, u64>,
    /// The time, as a number that grows.
    now: u64,
}

/// A turn that somebody was given.
#[derive(Clone, Copy, Debug)]
struct Given {
    /// Whether the server has come for it.
    begun: bool,
    /// When it came, or was given the turn if it has not come.
    since: Instant,
}

/// Whether a server may have its new pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It may have them: its owner asks for them, or it has them already.
    #[default]
    Free,
    /// It may have them for Longshore's sake: it has a turn.
    Upgrade,
    /// It may have them when it is called for its turn.
    Later,
}

// === impl Upgrades ===

impl Upgrades {
    /// Lets this many servers change at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self { at_once: at_once.max(1), state: Mutex::default(), has_changed: Notify::new() }
    }

    /// Whether a server has a turn. If there is none now, it waits, and is called when it is its turn.
    pub(crate) fn ask(&self, server: &ServerKey) -> bool {
        let mut state = self.state.lock();
        // Its turn may have ended by now.
        state.call(self.at_once);
        if !state.given.contains_key(server) && !state.waiting.contains(server) {
            state.waiting.push(server.clone());
            state.call(self.at_once);
        }
        let may_begin = state.begins(server, self.at_once);
        self.has_changed.notify_one();
        may_begin
    }

    /// Waits until a server is called, which has to come and ask for the turn that it was given.
    pub(crate) async fn called(&self) -> ServerKey {
        loop {
            let next = {
                let mut state = self.state.lock();
                state.call(self.at_once);
                if let Some(server) = state.called.pop_front() {
                    return server;
                }
                state.next_end()
            };
            let some_end = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.has_changed.notified() => {}
                () = some_end => {}
            }
        }
    }

    /// The server is in the middle of its upgrade, as another operator has left it: it goes on to have its turn.
    fn goes_on(&self, server: &ServerKey) {
        let turn = Given { begun: true, since: Instant::now() };
        self.state.lock().given.entry(server.clone()).or_insert(turn);
    }

    /// The server serves its newest version, or has gone: the next one's turn.
    pub(crate) fn done(&self, server: &ServerKey) {
        self.state.lock().given.remove(server);
        self.not_needed(server);
    }

    /// The server needs no turn, or no longer: if it was given one, it is the next one's.
    pub(crate) fn not_needed(&self, server: &ServerKey) {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| waiting != server);
        state.called.retain(|called| called != server);
        if state.given.get(server).is_some_and(|turn| !turn.begun) {
            state.given.remove(server);
        }
        if state.waiting.is_empty() && state.given.is_empty() {
            // All is done.
            state.had = HashMap::new();
        }
        self.has_changed.notify_one();
    }
}

// === impl State ===

impl State {
    /// Gives turns that nobody keeps to those that wait.
    fn call(&mut self, at_once: usize) {
        let now = Instant::now();
        self.given.retain(|_, turn| !turn.begun || turn.end() > now);
        while self.given.values().filter(|turn| turn.end() > now).count() < at_once
            && let Some(server) = self.next()
        {
            self.given.insert(server.clone(), Given { begun: false, since: now });
            self.called.push_back(server);
        }
    }

    /// Who is next: the first one that waits of the namespace that had a turn the longest ago.
    fn next(&mut self) -> Option<ServerKey> {
        let waiting = self.waiting.iter().enumerate();
        let (place, _) = waiting.min_by_key(|(place, it)| (self.had.get(&it.namespace).copied(), *place))?;
        let server = self.waiting.remove(place);
        self.now += 1;
        self.had.insert(server.namespace.clone(), self.now);
        Some(server)
    }

    /// Whether a server begins, or has begun, with the turn that it was given. One that comes late goes before those that were
    /// called after it, or waits again.
    fn begins(&mut self, server: &ServerKey, at_once: usize) -> bool {
        let others = self.given.iter().filter(|(other, turn)| turn.begun && *other != server).count();
        let Some(turn) = self.given.get_mut(server) else { return false };
        if !turn.begun && others >= at_once {
            self.given.remove(server);
            self.waiting.push(server.clone());
            return false;
        }
        if !turn.begun {
            *turn = Given { begun: true, since: Instant::now() };
        }
        self.called.retain(|called| called != server);
        true
    }

    /// When the next turn ends for lack of use, if anybody waits for it.
    fn next_end(&self) -> Option<Instant> {
        let ends = self.given.values().map(Given::end).filter(|end| *end > Instant::now());
        ends.min().filter(|_| !self.waiting.is_empty())
    }
}

// === impl Given ===

impl Given {
    /// When it is somebody else's, if nothing happens until then.
    fn end(&self) -> Instant {
        self.since + if self.begun { PATIENCE } else { KEPT }
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

/// What [`turn`] says, of a Deployment whose pods have this template. No client.
fn decide(
    server: &McpServer,
    upgrades: &Upgrades,
    key: &ServerKey,
    memory: &mut ServerMemory,
    live: Option<String>,
    desired: &mut Desired,
) -> Turn {
    // What this process makes of a manifest changes with the manifest alone: only its first look can be an upgrade.
    // (One that somebody else was faster with is remembered, and was not applied.)
    let applied = memory.applied.get(&("Deployment", key.name.clone()));
    let first_look = applied.is_none_or(|record| record.digest.is_empty());
    // Of pods that were made of this very manifest others are a new release's. One without a status started a moment ago,
    // when its first word could still wait. Whoever only scales a server that waits asks for no other pods, and one that was
    // refused them waits for another turn.
    let made_of = made_of(server);
    let nobody_asked = made_of.is_none()
        || made_of == server.metadata.generation
        || memory.upgrades_to.as_ref() == Some(&desired.template);
    match live {
        Some(live) if first_look && desired.replicas > 0 && live != desired.template => {
            if !nobody_asked {
                upgrades.not_needed(key);
                return Turn::Free;
            }
            memory.upgrades_to = Some(desired.template.clone());
            if upgrades.ask(key) {
                return Turn::Upgrade;
            }
            desired.template = live;
            Turn::Later
        }
        // There is nothing to do; or nothing runs that could be replaced, and its turn would end by time alone.
        Some(_) | None => {
            if !first_look || live.as_ref() == Some(&desired.template) {
                // It has been upgraded, or needed none.
                memory.upgrades_to = None;
            }
            upgrades.not_needed(key);
            Turn::Free
        }
    }
}

/// The generation of the manifest that the pods were made of which are there, as far as its status tells.
fn made_of(server: &McpServer) -> Option<i64> {
    let conditions = server.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let find = |type_| status::find(conditions, type_);
    let available = find(ConditionType::Available)?.observed_generation?;
    // Earlier releases wrote the manifest's own there, whatever pods there were. Of a change that was refused, or held back,
    // they said that clients use what was before.
    let is_taken =
        find(ConditionType::Accepted).is_some_and(|accepted| accepted.status == Truth::True.name());
    let is_before = |ready: &&Condition| {
        ready.status == Truth::True.name() && ready.reason == Reason::ServingPrevious.name()
    };
    let before = find(ConditionType::Ready).filter(is_before).filter(|_| !is_taken);
    Some(before.and_then(|ready| ready.observed_generation).map_or(available, |before| before.min(available)))
}

/// Counts what is being replaced already, before the first look at any server: the operator before this one may have
/// ended in the middle of an upgrade, and as many more servers would begin. Where namespaces are watched one by one this is so
/// of each by itself: those of another may have begun.
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
