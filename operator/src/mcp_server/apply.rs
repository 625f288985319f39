//! Fourth step: makes the cluster have the objects. The only place that writes them.
//!
//! Server-side apply with one field manager. What was applied already and has not changed since is left alone, and
//! an object that belongs to somebody else is never taken over.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Mutex;

use futures::{TryFutureExt as _, try_join};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::api::{self, ApiError};
use crate::digest;
use crate::mcp_server::build::{Applied, Prepared, Resources};
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{Record, ServerMemory, lock};
use crate::metrics::Write;
use crate::mirror::{Mirror, ServerKey};
use crate::names::MANAGER;
use crate::view::{Live, Owned, View, controller};

/// Why an object could not be applied.
#[derive(Debug, Error)]
pub enum Error {
    /// The name is taken, or the API server refuses the object: the manifest or the cluster has to change.
    #[error("{}", .0.message)]
    Problem(Problem),
    /// The namespace is on its way out, and everything in it.
    #[error("the namespace is being deleted")]
    NamespaceEnds,
    /// The API server could not be asked.
    #[error("cannot apply {what}: {source}")]
    Api {
        /// Kind and name.
        what: String,
        /// What happened.
        source: ApiError,
    },
}

/// Applies objects for one server.
pub struct Applier<'a> {
    /// The client and the mirrors.
    pub context: &'a Context,
    /// The server.
    pub server: &'a ServerKey,
    /// Its UID, which is the controller of each of its objects.
    pub uid: &'a str,
    /// What was applied before.
    pub memory: &'a Mutex<ServerMemory>,
}

// === impl Applier ===

impl Applier<'_> {
    /// Applies every object, those that pods need before the pods.
    pub async fn apply(&self, prepared: Resources<Prepared>) -> Result<Resources<Applied>, Error> {
        // Without `..`: an object that nobody applies does not compile.
        let Resources { service_account, secret, config_maps, service, network_policy, deployment, state: _ } =
            prepared;
        let mirrors = &self.context.mirrors;
        try_join!(
            async {
                match &service_account {
                    Some(account) => self.apply_one(account, &mirrors.service_accounts).await,
                    None => Ok(()),
                }
            },
            self.apply_one(&service, &mirrors.services),
            self.apply_one(&network_policy, &mirrors.network_policies),
            async {
                // A sidecar waits until the keys fit its configuration: the other order would make it wait longer.
                self.apply_one(&secret, &mirrors.secrets).await?;
                for config_map in &config_maps {
                    self.apply_one(config_map, &mirrors.config_maps).await?;
                }
                Ok(())
            },
        )?;
        if let Some(deployment) = &deployment {
            self.apply_one(deployment, &mirrors.deployments).await?;
        }
        let state = PhantomData;
        Ok(Resources { service_account, secret, config_maps, service, network_policy, deployment, state })
    }

    /// Deletes what this server no longer needs: configurations that no pod mounts, and an identity that no pod has.
    pub async fn prune(&self, applied: &Resources<Applied>) -> Result<(), Error> {
        if applied.deployment.is_none() {
            // The pods are from before, and may need what is not among the objects of now.
            return Ok(());
        }
        let mirrors = &self.context.mirrors;
        let pods = mirrors.pods.of_server(self.server);
        for (name, config_map) in mirrors.config_maps.of_server(self.server) {
            let wanted = applied.config_maps.iter().any(|wanted| wanted.name_any() == name);
            let mounted = pods.values().any(|pod| pod.config_maps.contains(&name));
            if !wanted && !mounted && self.is_ours(&config_map.live) {
                self.delete::<k8s_openapi::api::core::v1::ConfigMap>(&name, &config_map.live.uid).await?;
            }
        }
        for (name, account) in mirrors.service_accounts.of_server(self.server) {
            let wanted = applied.service_account.as_ref().is_some_and(|wanted| wanted.name_any() == name);
            if !wanted && self.is_ours(&account.live) {
                self.delete::<k8s_openapi::api::core::v1::ServiceAccount>(&name, &account.live.uid).await?;
            }
        }
        Ok(())
    }

    fn is_ours(&self, live: &Live) -> bool {
        live.controller.as_deref() == Some(self.uid)
    }

    async fn apply_one<K, V>(&self, object: &K, mirror: &Mirror<V>) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
        V: View + HasLive,
    {
        let name = object.name_any();
        let what = || format!("{} {}/{name}", K::kind(&()), self.server.namespace);
        let digest = digest::hex(&serde_json::to_vec(object).unwrap_or_default());
        let kind = V::KIND;
        let record = lock(self.memory).applied.get(&(kind, name.clone())).cloned();
        let live = mirror.get(self.server, &name);
        let live = live.as_deref().map(HasLive::live);
        if let Some(record) = &record
            && record.digest == digest
            && live.is_none_or(|live| is_as_applied(live, &record.live))
        {
            return Ok(());
        }
        let objects = Api::<K>::namespaced(self.context.client.clone(), &self.server.namespace);
        let failed = |source| Error::Api { what: what(), source };
        match (live, &record) {
            (Some(live), _) if self.is_ours(live) => {}
            (None, Some(_)) => {}
            // Nothing of ours is known by this name. Somebody else's would not be in the mirror.
            (Some(_) | None, _) => {
                let found = api::call(objects.get_metadata_opt(&name)).map_err(failed).await?;
                if let Some(found) =
                    found.filter(|found| controller(&found.metadata).as_deref() != Some(self.uid))
                {
                    return Err(Error::Problem(taken(&what(), &found.metadata)));
                }
            }
        }
        let parameters = PatchParams::apply(MANAGER).force();
        let answer = api::call(objects.patch_metadata(&name, &parameters, &Patch::Apply(object))).await;
        self.context.metrics.wrote(Write::Apply);
        let metadata = match answer {
            Ok(applied) => applied.metadata,
            Err(error) if error.is_namespace_ending() => return Err(Error::NamespaceEnds),
            Err(ApiError::Refused(status)) => {
                let message = format!("the API server refuses {}: {}", what(), status.message);
                return Err(Error::Problem(Problem::new(Reason::Rejected, message)));
            }
            Err(source) => return Err(failed(source)),
        };
        tracing::debug!(kind, name, "applied");
        let record = Record { digest, live: V::live_of(&metadata) };
        lock(self.memory).applied.insert((kind, name), record);
        Ok(())
    }

    async fn delete<K>(&self, name: &str, uid: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let objects = Api::<K>::namespaced(self.context.client.clone(), &self.server.namespace);
        let this_one = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        match api::call(objects.delete(name, &parameters)).await {
            Ok(_) => {
                self.context.metrics.wrote(Write::Prune);
                tracing::info!(kind = %K::kind(&()), name, "deleted what is no longer needed");
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(source) => {
                Err(Error::Api { what: format!("{} {}/{name}", K::kind(&()), self.server.namespace), source })
            }
        }
    }
}

/// Whether an object is still what was applied. A sighting from before the apply says nothing.
fn is_as_applied(live: &Live, applied: &Live) -> bool {
    live.version < applied.version || (live.uid == applied.uid && live.fingerprint == applied.fingerprint)
}

fn taken(what: &str, found: &ObjectMeta) -> Problem {
    let mut owners = found.owner_references.iter().flatten();
    let message = match owners.find(|owner| owner.controller == Some(true)) {
        Some(owner) if owner.kind == "McpServer" => {
            format!(
                "{what} still belongs to a McpServer that was deleted; it is made anew once Kubernetes has removed it"
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
pub trait HasLive {
    /// The kind's name.
    const KIND: &'static str;
    /// Which object it is, in which state.
    fn live(&self) -> &Live;
    /// The same from metadata alone.
    fn live_of(metadata: &ObjectMeta) -> Live {
        Live::of(metadata)
    }
}

impl<K: k8s_openapi::Resource> HasLive for Owned<K> {
    const KIND: &'static str = K::KIND;
    fn live(&self) -> &Live {
        &self.live
    }
}

impl HasLive for crate::view::DeploymentView {
    const KIND: &'static str = "Deployment";
    fn live(&self) -> &Live {
        &self.live
    }
    fn live_of(metadata: &ObjectMeta) -> Live {
        Live::of_deployment(metadata)
    }
}
