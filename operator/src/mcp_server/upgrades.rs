//! A new release of Longshore has a new sidecar, so every server gets new pods: a few servers at a time, or the
//! cluster would have to run all of them twice at once.
//!
//! A change of a manifest does not wait here, unless what was there before it was refused too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_crds::McpServer;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{ConditionType, Reason, Truth};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{ServerMemory, lock};
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
        let mut state = lock(&self.state);
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
        lock(&self.state).rolling.entry(server.clone()).or_insert_with(Instant::now);
    }

    /// The server serves its newest version, or has gone: the next one's turn.
    pub(crate) fn done(&self, server: &ServerKey) {
        lock(&self.state).rolling.remove(server);
        self.not_needed(server);
    }

    /// The server needs no turn, or no longer: if it was given one, it is the next one's.
    pub(crate) fn not_needed(&self, server: &ServerKey) {
        let mut state = lock(&self.state);
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
    decide(server, &context.upgrades, key, &mut lock(memory), live, desired)
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
    let observed = server.status.as_ref().and_then(|status| status.observed_generation);
    // A manifest that could not be accepted has made no pods yet, though it was seen. But a key that is none keeps no pod
    // from being made, what cannot be read now could be read then, and what the API server refuses may be what the new
    // release makes of it. (A change that it refused waits for its turn then, once another operator leads.)
    let conditions = server.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let may_have_pods = [Reason::InvalidKeys, Reason::Unreadable, Reason::Rejected].map(Reason::name);
    let was_accepted = status::find(conditions, ConditionType::Accepted).is_none_or(|accepted| {
        accepted.status == Truth::True.name() || may_have_pods.contains(&&*accepted.reason)
    });
    // One without a status started a moment ago, when its first word could still wait. Whoever only scales a server that
    // waits asks for no other pods, and one that was refused them waits for another turn.
    let nobody_asked = observed.is_none()
        || observed == server.metadata.generation && was_accepted
        || memory.upgrades_to.as_ref() == Some(&desired.template);
    // Where a change could not be applied for a moment, the status has its generation already.
    let somebody_did = memory.changes_to.as_ref() == Some(&desired.template);
    match live {
        Some(live) if first_look && desired.replicas > 0 && live != desired.template => {
            if !nobody_asked || somebody_did {
                memory.changes_to = Some(desired.template.clone());
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
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::mcp_server::condition::Problem;
    use crate::view::Live;

    #[test]
    fn a_server_is_rolling_while_it_has_pods_of_before() {
        let pod = |template: &str| PodView { template: Some(template.to_owned()), ..PodView::default() };
        let live = Live { uid: "d".to_owned(), version: 1, fingerprint: 1, controller: None };
        for (replicas, pods, expected, why) in [
            (2, vec![pod("new"), pod("new")], false, "all are new"),
            (2, vec![pod("new"), pod("old")], true, "one is left"),
            (2, vec![pod("old"), pod("old")], true, "it has not begun"),
            (2, vec![], false, "a new server"),
            (2, vec![pod("new"), PodView { ending: true, ..pod("old") }], false, "it serves already"),
            (2, vec![PodView { failed: Some("Evicted".to_owned()), ..pod("old") }], false, "nothing runs"),
            (0, vec![pod("old")], false, "it is to have none"),
        ] {
            let template = Some("new".to_owned());
            let (replicas, refused) = (Some(replicas), None);
            let deployment = DeploymentView { live: live.clone(), template, replicas, refused };
            let pods: Vec<_> = pods.into_iter().map(Arc::new).collect();
            assert_eq!(is_rolling(&deployment, &pods), expected, "{why}");
        }
    }

    fn manifest(generation: i64, observed: i64) -> McpServer {
        let accepted = serde_json::json!({
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        serde_json::from_value(serde_json::json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "generation": generation},
            "spec": {},
            "status": {"observedGeneration": observed, "conditions": [accepted]},
        }))
        .unwrap()
    }

    #[test]
    fn a_change_of_a_manifest_never_waits_however_often_it_is_tried() {
        let (upgrades, _turns) = Upgrades::new(1);
        assert_eq!(upgrades.ask(&server("other")), Turn::Now);
        let mut memory = ServerMemory::default();
        let later = Turn::Later(PATIENCE);
        for (why, generation, observed, template, expected) in [
            ("a new release", 1, 1, "upgrade", later),
            ("it still waits", 1, 1, "upgrade", later),
            ("it is only scaled", 2, 1, "upgrade", later),
            ("its owner changes it", 3, 2, "change", Turn::Now),
            ("that could not be applied, and the status speaks of it", 3, 3, "change", Turn::Now),
            ("it is scaled meanwhile", 4, 3, "change", Turn::Now),
            ("its owner takes the change back", 5, 4, "upgrade", later),
        ] {
            let mut desired = Desired {
                template: template.to_owned(),
                configs: Default::default(),
                replicas: 1,
                recreates: false,
            };
            let manifest = manifest(generation, observed);
            let live = Some("live".to_owned());
            let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
            assert_eq!(turn, expected, "{why}");
            assert_eq!(desired.template, if turn == later { "live" } else { template }, "{why}");
        }
    }

    /// Another operator leads, and knows no more than the status tells.
    #[test]
    fn who_was_refused_an_upgrade_waits_for_a_turn_as_before() {
        for (reason, expected) in [
            (Reason::Invalid, Turn::Now),
            (Reason::SecretNotFound, Turn::Now),
            (Reason::InvalidKeys, Turn::Later(PATIENCE)),
            (Reason::Unreadable, Turn::Later(PATIENCE)),
            (Reason::Rejected, Turn::Later(PATIENCE)),
        ] {
            let accepted = serde_json::json!({
                "type": "Accepted", "status": "False", "reason": reason.name(), "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let manifest: McpServer = serde_json::from_value(serde_json::json!({
                "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
                "metadata": {"name": "demo", "namespace": "tools", "generation": 1},
                "spec": {},
                "status": {"observedGeneration": 1, "conditions": [accepted]},
            }))
            .unwrap();
            let mut desired = Desired {
                template: "upgrade".to_owned(),
                configs: Default::default(),
                replicas: 1,
                recreates: false,
            };
            let (upgrades, _turns) = Upgrades::new(1);
            assert_eq!(upgrades.ask(&server("other")), Turn::Now);
            let mut memory = ServerMemory::default();
            let live = Some("live".to_owned());
            let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
            assert_eq!(turn, expected, "{}", reason.name());
        }
    }

    #[test]
    fn what_goes_on_counts_and_takes_nobodys_turn() {
        let (upgrades, mut turns) = Upgrades::new(1);
        upgrades.goes_on(&server("a"));
        upgrades.goes_on(&server("b"));
        assert_eq!(upgrades.ask(&server("c")), Turn::Later(PATIENCE));
        upgrades.not_needed(&server("a"));
        upgrades.done(&server("a"));
        assert!(turns.try_recv().is_err(), "b is still at it");
        upgrades.done(&server("b"));
        assert_eq!(turns.try_recv(), Ok(server("c")));
    }

    fn server(name: &str) -> ServerKey {
        of("tools", name)
    }

    fn of(namespace: &str, name: &str) -> ServerKey {
        ServerKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn told(turns: &mut mpsc::UnboundedReceiver<ServerKey>) -> Vec<ServerKey> {
        std::iter::from_fn(|| turns.try_recv().ok()).collect()
    }

    /// One that stands in the line of its namespace comes late.
    #[tokio::test(start_paused = true)]
    async fn a_turn_is_kept_for_a_moment_and_who_had_one_in_vain_is_last() {
        let (upgrades, mut turns) = Upgrades::new(1);
        let later = Turn::Later(PATIENCE);
        assert_eq!(upgrades.ask(&of("aaa", "1")), Turn::Now);
        for waits in [of("aaa", "2"), of("team", "1"), of("team", "2")] {
            assert_eq!(upgrades.ask(&waits), later);
        }
        // Its new pods are refused.
        upgrades.done(&of("aaa", "1"));
        assert_eq!(told(&mut turns), [of("team", "1"), of("aaa", "2")]);
        tokio::time::advance(KEPT / 2).await;
        assert_eq!(
            upgrades.ask(&of("aaa", "2")),
            Turn::Later(KEPT / 2),
            "it is first, and not of those who wait"
        );
        assert_eq!(upgrades.ask(&of("aaa", "1")), Turn::Later(KEPT / 2), "it asks again");
        tokio::time::advance(KEPT / 2).await;
        assert_eq!(upgrades.ask(&of("aaa", "2")), Turn::Now, "the other does not come");
        assert_eq!(upgrades.ask(&of("team", "1")), later, "it comes too late");
        upgrades.done(&of("aaa", "2"));
        assert_eq!(told(&mut turns), [of("team", "2"), of("aaa", "1")]);
        assert_eq!(upgrades.ask(&of("team", "2")), Turn::Now);
        assert_eq!(upgrades.ask(&of("aaa", "1")), later);
        upgrades.done(&of("team", "2"));
        assert_eq!(told(&mut turns), [of("aaa", "1"), of("team", "1")]);
        upgrades.not_needed(&of("aaa", "1"));
        assert_eq!(upgrades.ask(&of("team", "1")), Turn::Now, "what is kept for one that needs none is free");
    }

    /// Of the servers that are told at once, the last one comes first.
    #[test]
    fn every_namespace_has_its_turn_whoever_comes_first() {
        for namespaces in [2, 3, SPARE + 1, SPARE + 2, SPARE + 4] {
            let (upgrades, mut turns) = Upgrades::new(1);
            assert_eq!(upgrades.ask(&server("x")), Turn::Now);
            for (namespace, number) in (0..namespaces).flat_map(|it| (0..50).map(move |number| (it, number)))
            {
                upgrades.ask(&of(&format!("n{namespace:02}"), &number.to_string()));
            }
            let mut had = HashSet::new();
            let mut rolling = server("x");
            for _ in 0..2 * namespaces {
                upgrades.done(&rolling);
                let asked = told(&mut turns).into_iter().rev();
                let given: Vec<_> = asked.filter(|server| upgrades.ask(server) == Turn::Now).collect();
                assert_eq!(given.len(), 1, "{given:?}");
                rolling = given[0].clone();
                had.insert(rolling.namespace.clone());
            }
            assert_eq!(had.len(), namespaces, "{had:?} had a turn");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_many_do_not_come_others_are_told_the_next_time() {
        let (upgrades, mut turns) = Upgrades::new(1);
        assert_eq!(upgrades.ask(&server("x")), Turn::Now);
        for number in 0..3 * SPARE {
            for name in ["a", "b", "c"] {
                let namespace = format!("n{number:02}");
                assert_eq!(upgrades.ask(&of(&namespace, name)), Turn::Later(PATIENCE));
            }
        }
        upgrades.done(&server("x"));
        let first = told(&mut turns);
        tokio::time::advance(KEPT).await;
        // As whoever was upgraded does, each time it is looked after.
        upgrades.done(&server("x"));
        let second = told(&mut turns);
        assert_eq!([first.len(), second.len()], [1 + SPARE; 2]);
        let namespaces: HashSet<_> = first.iter().chain(&second).map(|server| &server.namespace).collect();
        assert_eq!(namespaces.len(), 2 * (1 + SPARE));
    }

    #[test]
    fn what_was_refused_is_said_of_the_upgrade_that_waits_and_of_no_change_that_was_taken_back() {
        let (upgrades, _turns) = Upgrades::new(1);
        let mut memory = ServerMemory::default();
        let words = |what: &str| Problem::new(Reason::Rejected, format!("{what} is refused"));
        let waits = "this server waits for another turn to be upgraded: upgrade is refused";
        for (why, is_free, generation, template, expected) in [
            ("it waits", false, 1, "upgrade", None),
            ("its turn", true, 1, "upgrade", None),
            ("that was refused, and it waits again", false, 1, "upgrade", Some(waits)),
            ("its owner changes it", false, 2, "change", None),
            ("that is refused, and its owner takes it back", false, 3, "upgrade", None),
            ("its turn again", true, 3, "upgrade", None),
            ("that was refused, and it waits again", false, 3, "upgrade", Some(waits)),
        ] {
            if is_free {
                upgrades.done(&server("other"));
            } else {
                upgrades.ask(&server("other"));
            }
            let mut desired = Desired {
                template: template.to_owned(),
                configs: Default::default(),
                replicas: 1,
                recreates: false,
            };
            let manifest = manifest(generation, (generation - 1).max(1));
            let live = Some("live".to_owned());
            let turn = decide(&manifest, &upgrades, &server("demo"), &mut memory, live, &mut desired);
            let said = if turn == Turn::Now { None } else { memory.refused_upgrade() };
            assert_eq!(said.map(|problem| problem.message).as_deref(), expected, "{why}");
            memory.deployment_failed = turn == Turn::Now;
            if turn == Turn::Now {
                memory.note_refused(&desired.template, words(template));
                upgrades.done(&server("demo"));
            } else {
                memory.note_taken(true);
            }
        }
        // Somebody deletes its Deployment, and the next one is refused as well.
        let mut desired = Desired {
            template: "upgrade".to_owned(),
            configs: Default::default(),
            replicas: 1,
            recreates: false,
        };
        decide(&manifest(3, 3), &upgrades, &server("demo"), &mut memory, None, &mut desired);
        memory.deployment_failed = true;
        let said = memory.note_refused(&desired.template, words("upgrade"));
        assert_eq!(said.message, "upgrade is refused", "it waits for no turn");
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_the_others_in_turn() {
        let (upgrades, mut turns) = Upgrades::new(2);
        assert_eq!(upgrades.ask(&server("a")), Turn::Now);
        assert_eq!(upgrades.ask(&server("b")), Turn::Now);
        assert_eq!(upgrades.ask(&server("a")), Turn::Now, "who has a turn keeps it");
        assert_eq!(upgrades.ask(&server("c")), Turn::Later(PATIENCE));
        assert_eq!(upgrades.ask(&server("d")), Turn::Later(PATIENCE));
        upgrades.done(&server("x"));
        assert!(turns.try_recv().is_err());
        upgrades.done(&server("b"));
        assert_eq!(turns.try_recv(), Ok(server("c")));
        assert_eq!(upgrades.ask(&server("c")), Turn::Now);
        assert_eq!(upgrades.ask(&server("d")), Turn::Later(PATIENCE));
        assert_eq!(upgrades.ask(&server("e")), Turn::Later(PATIENCE));
        upgrades.not_needed(&server("d"));
        upgrades.done(&server("a"));
        assert_eq!(turns.try_recv(), Ok(server("e")), "who needs no turn any more is passed over");
        upgrades.not_needed(&server("e"));
        assert_eq!(upgrades.ask(&server("d")), Turn::Now, "a turn that nobody took is free");
        assert_eq!(upgrades.ask(&server("f")), Turn::Later(PATIENCE));
        tokio::time::advance(PATIENCE).await;
        assert_eq!(
            upgrades.ask(&server("d")),
            Turn::Now,
            "a server that never serves does not stop the upgrade"
        );
    }
}
