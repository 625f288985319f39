//! Fourth step: makes the cluster have the objects. The only place that writes them.
//!
//! Server-side apply with one field manager. What was applied already and has not changed since is left alone, and
//! an object that belongs to somebody else is never taken over: each request says what it expects to find, and the API
//! server refuses it in the same step where that is not so. Nobody has to look first, and nothing can come in between.

mod error;
mod found;
mod managed_fields;
pub(crate) mod prune;
#[cfg(test)]
pub(crate) mod tests;
mod undo;

use std::fmt::Debug;
use std::marker::PhantomData;

use futures::join;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt as _};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use crate::api::{self, ApiError};
use crate::digest;
use crate::mcp_server::build::{Applied, Desired, Prepared, Resources};
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{Object, Record, SECRET, ServerMemory};
use crate::metrics::Write;
use crate::mirror::{Mirror, ServerKey};
use crate::names::{MANAGER, ObjectNames};
use crate::view::{DeploymentView, Live, Owned, View, controller};
pub(crate) use error::{Error, NotTaken, Part};

/// A version that no object has: the first that etcd gives is the one after it. Whoever asks for it gets a conflict if
/// there is an object, whatever is in that.
const NO_VERSION: &str = "1";

/// The kind under which it is remembered that the Deployment that is there cannot be given its number of pods.
pub(crate) const SCALE: &str = "Scale";

/// Applies objects for one server.
pub(crate) struct Applier<'a> {
    /// The client and the mirrors.
    pub context: &'a Context,
    /// The server.
    pub server: &'a ServerKey,
    /// Its UID, which is the controller of each of its objects.
    pub uid: &'a str,
    /// What was applied before.
    pub memory: &'a Mutex<ServerMemory>,
    /// The Secret that the session keys are from: in another state it may hold others, which must not be overwritten.
    pub keys_from: Option<&'a Live>,
    /// Whether a failure that may pass by itself is not said yet: it has not lasted.
    pub patient: bool,
}

// === impl Applier ===

impl Applier<'_> {
    /// Applies every object, those that pods need before the pods.
    pub(crate) async fn apply(
        &self,
        prepared: Resources<Prepared>,
        desired: &Desired,
    ) -> Result<Resources<Applied>, NotTaken> {
        // Without `..`: an object that nobody applies does not compile.
        let Resources {
            service_account,
            secret,
            config_maps,
            service,
            peers,
            network_policy,
            disruption_budget,
            deployment,
            state: _,
        } = prepared;
        let mirrors = &self.context.mirrors;
        self.memory.lock().needs(|(kind, name)| match *kind {
            "ConfigMap" => config_maps.iter().any(|needed| needed.name_any() == *name),
            "PodDisruptionBudget" => disruption_budget.is_some(),
            "ServiceAccount" => service_account.is_some(),
            _ => true,
        });
        // Each is tried whatever comes of the others: a key that was revoked must not stay valid because somebody
        // has taken the Service's name.
        let (configuration, account, service_outcome, peers_outcome, policy_outcome, budget) = join!(
            self.apply_configuration(&secret, &config_maps),
            async {
                match &service_account {
                    Some(account) => self.apply_one(account, None, &mirrors.service_accounts).await,
                    None => Ok(()),
                }
            },
            self.apply_one(&service, None, &mirrors.services),
            self.apply_one(&peers, None, &mirrors.services),
            self.apply_one(&network_policy, None, &mirrors.network_policies),
            async {
                match &disruption_budget {
                    Some(budget) => self.apply_one(budget, None, &mirrors.disruption_budgets).await,
                    None => Ok(()),
                }
            },
        );
        self.note_service(&service_outcome);
        let of = |part| move |error| NotTaken { part, error };
        let others = account.and(service_outcome).and(peers_outcome).and(policy_outcome).and(budget);
        let mut outcome = configuration.map_err(of(Part::Configuration)).and(others.map_err(of(Part::Other)));
        if let Some(deployment) = &deployment
            && outcome.is_ok()
        {
            let template = Some(&*desired.template);
            let applied = self.apply_one(deployment, template, &mirrors.deployments).await;
            outcome = applied.map_err(of(Part::Deployment));
        }
        // What keeps pods from being as the manifest says keeps nobody from stopping those that are there.
        let is_ending = matches!(outcome, Err(NotTaken { error: Error::NamespaceEnds, .. }));
        if deployment.is_none() || outcome.is_err() && !is_ending {
            let scaled = self.scale(desired.replicas).await;
            self.note((SCALE, self.server.name.clone()), &desired.replicas.to_string(), &scaled);
            outcome = outcome.and(scaled.map_err(of(Part::Other)));
        } else {
            // Their number was taken with all else of them, whatever was said of it by itself before.
            self.memory.lock().note_taken(&(SCALE, self.server.name.clone()));
        }
        outcome?;
        let state = PhantomData;
        Ok(Resources {
            service_account,
            secret,
            config_maps,
            service,
            peers,
            network_policy,
            disruption_budget,
            deployment,
            state,
        })
    }

    /// Applies the keys, and then the configuration. A sidecar waits until the keys fit its configuration: the other order
    /// would make it wait longer.
    async fn apply_configuration(&self, secret: &Secret, config_maps: &[ConfigMap]) -> Result<(), Error> {
        let mirrors = &self.context.mirrors;
        let written = self.apply_one(secret, None, &mirrors.secrets).await;
        if written.is_err() {
            // They are not tried, so what was refused of earlier ones is not said of them.
            let mut memory = self.memory.lock();
            for config_map in config_maps {
                let object = (Owned::<ConfigMap>::KIND, config_map.name_any());
                memory.note_refused(object, &digest_of(config_map), None);
            }
            return written;
        }
        let mut outcome = Ok(());
        for config_map in config_maps {
            let applied = self.apply_one(config_map, None, &mirrors.config_maps).await;
            outcome = outcome.and(applied);
        }
        outcome
    }

    /// Remembers whether the Service of the server's name is somebody else's, once that is known.
    fn note_service(&self, outcome: &Result<(), Error>) {
        let is_others = match outcome {
            Ok(()) => false,
            // A problem is said of it only after looking whose it is.
            Err(Error::Problem(problem)) => problem.reason == Reason::NameTaken,
            Err(_) => return,
        };
        self.memory.lock().service_is_others = is_others;
    }

    /// What to say where a configuration is refused: pods keep the previous one, and the keys that belong to it. The new keys
    /// are written already, but no sidecar takes them before the configuration that fits them, and whoever revoked one has to
    /// know.
    fn keeps_what_was(&self, kind: &str, error: Error) -> Error {
        let deployment = ObjectNames::of(&self.server.name).deployment();
        let has_pods = self.context.mirrors.deployments.get(self.server, &deployment).is_some();
        match error {
            Error::Problem(problem) if has_pods && kind == Owned::<ConfigMap>::KIND => {
                let message = format!(
                    "{}; until it is there, pods that run go by the previous keys and rules, and one that starts \
                     anew may have to wait for it",
                    problem.message
                );
                Error::Problem(Problem::new(problem.reason, message))
            }
            error => error,
        }
    }

    /// Whether the server has a Service, be it as an earlier manifest wanted it.
    pub(crate) fn has_service(&self) -> bool {
        let name = ObjectNames::of(&self.server.name).service();
        let live = self.context.mirrors.services.get(self.server, &name);
        live.is_some_and(|service| self.is_ours(&service.live))
            || self.memory.lock().applied.contains_key(&(Owned::<Service>::KIND, name))
    }

    /// Whether it has pods, or had some. None are made before its Service is there.
    pub(crate) fn has_deployment(&self) -> bool {
        let name = ObjectNames::of(&self.server.name).deployment();
        let live = self.context.mirrors.deployments.get(self.server, &name);
        live.is_some_and(|deployment| self.is_ours(&deployment.live))
    }

    fn is_ours(&self, live: &Live) -> bool {
        live.controller.as_deref() == Some(self.uid)
    }

    /// Applies an object, and remembers what is to be said if it is not taken in this state, which is all of it where nothing
    /// else tells.
    async fn apply_one<K, V>(&self, object: &K, state: Option<&str>, mirror: &Mirror<V>) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
        V: View + HasLive,
    {
        let name = object.name_any();
        let digest = digest_of(object);
        let state = state.unwrap_or(&digest).to_owned();
        let kind = V::KIND;
        let record = self.memory.lock().applied.get(&(kind, name.clone())).cloned();
        let live = mirror.get(self.server, &name);
        let live = live.as_deref().map(HasLive::live);
        // What is sent again is sent since somebody else has changed it, or may have.
        let is_as_before = record.as_ref().is_some_and(|record| record.digest == digest);
        if let Some(record) = &record
            && is_as_before
            && live.is_none_or(|live| is_as_applied(live, &record.live))
        {
            self.note((kind, name), &state, &Ok(()));
            return Ok(());
        }
        // What is known of ours by this name. Somebody else's would not be in the mirror.
        let applied = record.as_ref().map(|record| &record.live);
        let ours = live.filter(|live| self.is_ours(live)).into_iter().chain(applied);
        let ours = ours.max_by_key(|live| live.version);
        let (uid, version) = match (kind, self.keys_from, ours) {
            (SECRET, Some(from), _) => (Some(&from.uid), Some(from.version.to_string())),
            (SECRET, None, _) | (_, _, None) => (None, Some(NO_VERSION.to_owned())),
            (_, _, Some(ours)) => (Some(&ours.uid), None),
        };
        let mut object = object.clone();
        found::mark(kind, &mut object, &digest);
        let objects = Api::<K>::namespaced(self.context.client.clone(), &self.server.namespace);
        // Its own doing is undone at once.
        let may_wait = is_as_before && kind == DeploymentView::KIND && !self.memory.lock().scaled;
        let is_rescaled = may_wait && self.is_at_most_rescaled(&object).await;
        if is_rescaled && self.waits_to_undo() {
            return Ok(());
        }
        self.memory.lock().begin((kind, name.clone()));
        if record.is_none()
            && let Some(live) = self.untouched(&object, &digest, live).await
        {
            let record = Record { digest, live, at: Instant::now() };
            self.memory.lock().end((kind, name.clone()), Some(record));
            self.note((kind, name), &state, &Ok(()));
            return Ok(());
        }
        (object.meta_mut().uid, object.meta_mut().resource_version) = (uid.cloned(), version);
        let parameters = PatchParams::apply(MANAGER).force();
        let written = async { objects.patch_metadata(&name, &parameters, &api::applied(&object)?).await };
        let answer = api::call(written).await;
        if answer.is_ok() {
            self.context.metrics.wrote(Write::Apply);
        }
        let record = answer.as_ref().ok().map(|applied| {
            let live = Live::of(&applied.metadata);
            Record { digest, live, at: Instant::now() }
        });
        self.memory.lock().end((kind, name.clone()), record);
        let outcome = match answer {
            Ok(now) => {
                tracing::debug!(kind, name, "applied");
                // Of the version alone nothing follows: status and revision move it too.
                let is_changed =
                    live.is_some_and(|live| Live::of(&now.metadata).fingerprint != live.fingerprint);
                let was_scaled = kind == DeploymentView::KIND && self.memory.lock().take_scaled();
                if is_as_before && is_changed && !was_scaled {
                    self.tell_changed_back(kind, &name, is_rescaled).await;
                }
                Ok(())
            }
            Err(error) => Err(self.keeps_what_was(kind, self.refused(&objects, kind, &name, error).await)),
        };
        self.note((kind, name), &state, &outcome);
        outcome
    }

    /// Remembers what came of applying an object in this state.
    fn note(&self, object: Object, state: &str, outcome: &Result<(), Error>) {
        let mut memory = self.memory.lock();
        let lasting = |what: &str, words: &str| {
            let message = format!("the API server does not take {what}, and is asked again: {words}");
            Problem::new(Reason::Rejected, message)
        };
        let said = match outcome {
            Ok(()) => return memory.note_taken(&object),
            Err(Error::Problem(problem)) => Some(problem.clone()),
            Err(Error::Api { what, source }) => {
                source.failure().filter(|_| !self.patient).map(|words| lasting(what, words))
            }
            Err(Error::Unanswered { what }) => {
                memory.failures.unanswered(Instant::now()).then(|| lasting(what, &api::unanswered()))
            }
            Err(Error::NamespaceEnds) => None,
        };
        memory.note_refused(object, state, said);
    }

    /// Gives the Deployment that is there its number of pods, and leaves the rest of it as it is.
    pub(crate) async fn scale(&self, replicas: u32) -> Result<(), Error> {
        let name = ObjectNames::of(&self.server.name).deployment();
        let replicas = i32::try_from(replicas).unwrap_or(i32::MAX);
        let deployment = self.context.mirrors.deployments.get(self.server, &name);
        let other = deployment.filter(|it| self.is_ours(&it.live) && it.replicas != Some(replicas));
        let Some(deployment) = other else { return Ok(()) };
        // What it was given before something else has changed, or that is not to be seen yet.
        let given = self.memory.lock().scaled_to.clone();
        let given = given.filter(|(to, was)| *to == replicas && was.uid == deployment.live.uid);
        let is_undone = match &given {
            Some((_, was)) if deployment.live.version < was.version => return Ok(()),
            Some(_) if self.waits_to_undo() => return Ok(()),
            given => given.is_some(),
        };
        // With the UID, so that another one which took the name meanwhile is left alone.
        let patch = json!({ "metadata": { "uid": deployment.live.uid }, "spec": { "replicas": replicas } });
        let objects = Api::<Deployment>::namespaced(self.context.client.clone(), &self.server.namespace);
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match api::call(objects.patch_metadata(&name, &parameters, &Patch::Merge(patch))).await {
            Ok(now) => {
                self.context.metrics.wrote(Write::Apply);
                self.memory.lock().note_scaled(replicas, Live::of(&now.metadata));
                tracing::debug!(name, replicas, "scaled");
                if is_undone {
                    self.tell_changed_back(DeploymentView::KIND, &name, true).await;
                }
                Ok(())
            }
            // It has gone, which the watch tells too.
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.refused(&objects, DeploymentView::KIND, &name, error).await),
        }
    }

    /// What to say of an object that could not be applied: it may be somebody else's.
    async fn refused<K>(&self, objects: &Api<K>, kind: &'static str, name: &str, error: ApiError) -> Error
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let what = format!("{kind} {}/{name}", self.server.namespace);
        if error.is_namespace_ending() {
            return Error::NamespaceEnds;
        }
        if matches!(error, ApiError::Unavailable(_)) {
            return Error::Api { what, source: error };
        }
        // There may be one that is not known yet, or none any more of one that is; and whoever answers this, and not the
        // write, is no API server that has gone.
        let found = match found::find(objects, name).await {
            Ok(found) => found,
            Err(source) => return Error::Api { what, source },
        };
        if let Some(found) = &found
            && controller(&found.metadata).as_deref() != Some(self.uid)
        {
            return Error::Problem(taken(&self.server.name, &what, &found.metadata));
        }
        match error {
            ApiError::Refused(status) => {
                let message = format!("the API server refuses {what}: {}", status.message);
                Error::Problem(Problem::new(Reason::Rejected, message))
            }
            ApiError::TimedOut => Error::Unanswered { what },
            source => {
                self.remember(kind, name, found.map(|found| Live::of(&found.metadata)));
                Error::Api { what, source }
            }
        }
    }

    /// An object of ours was another one than was thought, or there was none: what was found counts. The mirror may never
    /// show it, since somebody may have taken its labels away.
    fn remember(&self, kind: &'static str, name: &str, found: Option<Live>) {
        let mut memory = self.memory.lock();
        let key = (kind, name.to_owned());
        match found {
            // Of no digest, so that it is applied.
            Some(live) => {
                memory.applied.insert(key, Record { digest: String::new(), live, at: Instant::now() })
            }
            None => memory.applied.remove(&key),
        };
        if kind == SECRET {
            memory.session_keys = None;
        }
    }
}

/// In which state an object is to be.
fn digest_of(object: &impl Serialize) -> String {
    digest::hex(&serde_json::to_vec(object).unwrap_or_default())
}

/// Whether an object is still what was applied. A sighting from before the apply says nothing.
pub(crate) fn is_as_applied(live: &Live, applied: &Live) -> bool {
    live.version < applied.version || (live.uid == applied.uid && live.fingerprint == applied.fingerprint)
}

/// Says whose an object is that the server of this name needs.
fn taken(server: &str, what: &str, found: &ObjectMeta) -> Problem {
    let mut owners = found.owner_references.iter().flatten();
    let message = match owners.find(|owner| owner.controller == Some(true)) {
        // Two servers want one name: of a server `x` the objects are called `x` and `x-longshore`.
        Some(owner) if owner.kind == "McpServer" && owner.name != server => {
            format!(
                "{what} belongs to the McpServer {}, and the McpServer {server} needs one of the same name: rename one \
                 of the two",
                owner.name
            )
        }
        Some(owner) if owner.kind == "McpServer" => {
            format!(
                "{what} still belongs to an McpServer that was deleted; it is made anew once Kubernetes has removed it"
            )
        }
        Some(owner) => {
            format!("{what} belongs to {} {}: rename the McpServer, or that object", owner.kind, owner.name)
        }
        None => format!(
            "{what} exists already and is not Longshore's: rename the McpServer, or remove that object"
        ),
    };
    Problem::new(Reason::NameTaken, message)
}

/// What is known of objects of a kind, whatever else is.
pub(crate) trait HasLive {
    /// The kind's name.
    const KIND: &'static str;
    /// Which object it is, in which state.
    fn live(&self) -> &Live;
}

impl<K: k8s_openapi::Resource> HasLive for Owned<K> {
    const KIND: &'static str = K::KIND;
    fn live(&self) -> &Live {
        &self.live
    }
}

impl HasLive for DeploymentView {
    const KIND: &'static str = "Deployment";
    fn live(&self) -> &Live {
        &self.live
    }
}
