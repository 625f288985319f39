//! The memory of one server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use longshore_crds::McpServerStatus;
use longshore_sidecar_config::Processes;
use tokio::time::Instant;

use super::undone::Undone;
use crate::mcp_server::apply::{HasLive as _, SCALE};
use crate::mcp_server::condition::{Problem, Reason, Standing};
use crate::mcp_server::failures::Failures;
use crate::mcp_server::session_keys::SessionKeys;
use crate::metrics::Pending;
use crate::view::{DeploymentView, Live};

/// The memory of one server.
#[derive(Debug, Default)]
pub(crate) struct ServerMemory {
    /// The UID of the `McpServer`: another of the same name starts anew.
    pub(super) uid: String,
    /// What was applied last, by kind and name.
    pub applied: HashMap<Object, Record>,
    /// What is being applied, and the UID of the object of that name that was seen to go meanwhile.
    applying: HashMap<Object, Option<String>>,
    /// What was written into the status last, and the resource version that this gave.
    pub status: Option<(u64, McpServerStatus)>,
    /// When the status was written last.
    pub status_written: Option<Instant>,
    /// When all writes so far would have been made at the pace that is kept in the long run (`status::write`): a change
    /// waits where this is too far ahead.
    pub status_pace: Option<Instant>,
    /// Since when clients use the server as it was before, and the status does not say so yet.
    pub behind: Option<Instant>,
    /// The resource version in which nothing is new but that status: to see it is no news.
    pub echo: Option<u64>,
    /// What sessions are sealed with, and the Secret that they are from. None is known where they were made here, and have yet
    /// to be applied.
    pub session_keys: Option<(SessionKeys, Option<Live>)>,
    /// The bounds of its processes when it was a stdio server last, or those that its pods of that time have.
    pub processes: Option<Processes>,
    /// What has failed lately.
    pub failures: Failures,
    /// The pods that were touched, by UID.
    pub touches: HashMap<String, Touch>,
    /// The digest of the template that a new release of Longshore gives it in its turn.
    pub upgrades_to: Option<String>,
    /// What the API server did not take when it was applied last, and why.
    refused: BTreeMap<Object, Refusal>,
    /// Whether the Deployment was given another number of pods since it was applied last.
    pub scaled: bool,
    /// That number, and the Deployment as the API server had it then.
    pub scaled_to: Option<(i32, Live)>,
    /// How often something else's changes of the number of its pods were undone.
    pub undone: Undone,
    /// When the change that is left alone for now is to be undone.
    pub undo_at: Option<Instant>,
    /// When it was last said that somebody else had changed an object.
    changed_back: Option<Instant>,
    /// Whether the Service of its name was last found to be somebody else's, to whom clients would send their keys.
    pub service_is_others: bool,
    /// Whether it was ever deleted with a finalizer of Kubernetes' own, which takes its objects away before it, or leaves them
    /// behind: they are not made again.
    pub let_go: bool,
    /// Status and reason of the condition `Ready`.
    pub ready: Option<Standing>,
    /// Why it goes on with pods of an earlier release, if it does.
    pub pending: Option<Pending>,
}

/// How seldom it is said that somebody else changes objects, who may do so all the time.
const CHANGED_BACK_PAUSE: Duration = Duration::from_secs(60);

/// The kind of the object that holds the session keys.
pub(crate) const SECRET: &str = "Secret";

/// Of several objects that are refused the first of these is said. Where the keys are refused, revoked ones still work; and
/// what comes before the Deployment keeps it from being tried.
const SAID_FIRST: [&str; 8] = [
    SECRET,
    "ConfigMap",
    "ServiceAccount",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    SCALE,
    DeploymentView::KIND,
];

/// The kind of an object and its name.
pub(crate) type Object = (&'static str, String);

/// An object as it was applied.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The digest of what was sent.
    pub digest: String,
    /// What the API server made of it.
    pub live: Live,
    /// When it had said so: a list that is begun later has the object, or it has gone.
    pub at: Instant,
}

/// Why the API server did not take an object.
#[derive(Clone, Debug)]
struct Refusal {
    /// In which state: the digest of what was sent, of a Deployment that of its pods' template.
    state: String,
    problem: Problem,
}

/// When a pod was touched, and for what.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    /// The digest of the configuration that its sidecar should load.
    pub digest: String,
    /// How often it was touched for that.
    pub attempts: u32,
    /// How often in a row it could not be touched since: those are no attempts.
    pub failures: u32,
    /// When to try again.
    pub next: Instant,
}

// === impl ServerMemory ===

impl ServerMemory {
    /// Whether it is time to say that somebody else had changed an object, and that it is said now.
    pub(crate) fn may_tell_changed_back(&mut self, now: Instant) -> bool {
        let may = self.changed_back.is_none_or(|told| now - told >= CHANGED_BACK_PAUSE);
        if may {
            self.changed_back = Some(now);
        }
        may
    }

    /// The Deployment was given this number of pods.
    pub(crate) fn note_scaled(&mut self, replicas: i32, live: Live) {
        self.scaled = true;
        self.scaled_to = Some((replicas, live));
    }

    /// The Deployment was applied. Says whether it had been given another number of pods since it was applied before.
    pub(crate) fn take_scaled(&mut self) -> bool {
        self.scaled_to = None;
        std::mem::take(&mut self.scaled)
    }

    /// The memory of a server of which nothing is known yet.
    pub(super) fn of(uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..Self::default() }
    }

    /// Nothing is said any more of objects that the server does not need.
    pub(crate) fn needs(&mut self, is_needed: impl Fn(&Object) -> bool) {
        self.refused.retain(|object, _| is_needed(object));
    }

    /// The API server has taken an object.
    pub(crate) fn note_taken(&mut self, object: &Object) {
        self.refused.remove(object);
    }

    /// The API server does not take an object in this state, and this is to be said of it. What was said of it in that state
    /// before is so until it is taken, also where it fails in another way now. (Whose it is, no other state changes.)
    pub(crate) fn note_refused(&mut self, object: Object, state: &str, said: Option<Problem>) {
        let before = self.refused.remove(&object);
        let before = before.filter(|it| it.state == state || it.problem.reason == Reason::NameTaken);
        if let Some(problem) = said.or(before.map(|before| before.problem)) {
            self.refused.insert(object, Refusal { state: state.to_owned(), problem });
        }
    }

    /// What the API server has not taken, of what is applied for pods of this template, and whether it is the Deployment: one
    /// of another template is what the manifest said before, or waits for its turn.
    pub(crate) fn refused(&self, template: &str) -> Option<(bool, Problem)> {
        let is_deployment = |kind: &str| kind == DeploymentView::KIND;
        let refused =
            self.refused.iter().filter(|((kind, _), it)| !is_deployment(kind) || it.state == template);
        let first = refused.min_by_key(|((kind, _), _)| SAID_FIRST.iter().position(|first| first == kind));
        first.map(|((kind, _), refusal)| (is_deployment(kind), refusal.problem.clone()))
    }

    /// Why the upgrade that it waits for came to nothing when it was its turn before. A change that was refused and taken back
    /// is none.
    pub(crate) fn refused_upgrade(&self) -> Option<Problem> {
        let of_deployment = |((kind, _), _): &(&Object, &Refusal)| *kind == DeploymentView::KIND;
        let (_, refusal) = self.refused.iter().find(of_deployment)?;
        (self.upgrades_to.as_ref() == Some(&refusal.state)).then(|| refusal.problem.clone())
    }

    /// An object is about to be applied.
    pub(crate) fn begin(&mut self, object: Object) {
        self.applying.insert(object, None);
    }

    /// What the API server made of it, if it did. The news that it has gone again may be older than the answer.
    pub(crate) fn end(&mut self, object: Object, record: Option<Record>) {
        let gone = self.applying.remove(&object).flatten();
        let Some(record) = record else { return };
        let uid = record.live.uid.clone();
        if object.0 == SECRET
            && let Some((_, from)) = &mut self.session_keys
        {
            *from = Some(record.live.clone());
        }
        self.applied.insert(object.clone(), record);
        if gone.as_ref() == Some(&uid) {
            self.forget_object(object, &uid);
        }
    }

    /// Forgets what was applied of a kind, and is not there any more. Says whether there was any.
    pub(super) fn forget_gone(
        &mut self,
        kind: &'static str,
        listed: Instant,
        is_there: impl Fn(&str, &str) -> bool,
    ) -> bool {
        let known = self.applied.iter().filter(|((of, name), record)| {
            *of == kind && record.at < listed && !is_there(name, &record.live.uid)
        });
        let gone: Vec<_> = known.map(|(object, record)| (object.clone(), record.live.uid.clone())).collect();
        gone.iter().for_each(|(object, uid)| self.forget_object(object.clone(), uid));
        !gone.is_empty()
    }

    pub(super) fn forget_object(&mut self, object: Object, uid: &str) {
        if self.applied.get(&object).is_some_and(|record| record.live.uid == uid) {
            self.applied.remove(&object);
        }
        if object.0 == SECRET {
            // Whoever deletes them has them made anew.
            self.session_keys.take_if(|(_, from)| from.as_ref().is_some_and(|from| from.uid == uid));
        }
        if let Some(gone) = self.applying.get_mut(&object) {
            *gone = Some(uid.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_said_of_the_same_object_until_that_is_taken() {
        let (service, policy) = (("Service", "demo".to_owned()), ("NetworkPolicy", "demo".to_owned()));
        let deployment = (DeploymentView::KIND, "demo".to_owned());
        let says = |words: &str| Some(Problem::new(Reason::Rejected, words));
        let is_others = || Some(Problem::new(Reason::NameTaken, "taken"));
        let mut memory = ServerMemory::default();
        for (why, object, of, is_taken, said, expected) in [
            ("it is refused", &policy, "p1", false, says("p1"), Some("p1")),
            ("it cannot be tried now", &policy, "p1", false, None, Some("p1")),
            ("nor can another", &service, "s1", false, None, Some("p1")),
            ("it is taken", &policy, "p1", true, None, None),
            ("it is refused again", &policy, "p1", false, says("p1"), Some("p1")),
            ("it was corrected, and cannot be tried now", &policy, "p2", false, None, None),
            ("another is somebody else's", &service, "s1", false, is_others(), Some("taken")),
            ("that is so in whichever state it is", &service, "s2", false, None, Some("taken")),
            ("it is no more", &service, "s2", true, None, None),
            ("so are the pods", &deployment, "now", false, says("pods"), Some("pods")),
            ("pods from before are not said of those of now", &deployment, "before", false, says("x"), None),
            ("what keeps them back comes first", &policy, "p2", false, says("p2"), Some("p2")),
        ] {
            if is_taken {
                memory.note_taken(object);
            } else {
                memory.note_refused(object.clone(), of, said);
            }
            let refused = memory.refused("now").map(|(_, problem)| problem.message);
            assert_eq!(refused.as_deref(), expected, "{why}");
        }
        memory.needs(|object| *object != policy);
        assert!(memory.refused("now").is_none(), "what is not needed any more");
    }
}
