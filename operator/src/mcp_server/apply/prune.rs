//! Deletes what a server no longer needs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::Applier;
use crate::api;
use crate::mcp_server::build::{Applied, Desired, Resources};
use crate::metrics::Write;
use crate::view::PodView;

impl Applier<'_> {
    /// Deletes what this server no longer needs: configurations that no pod mounts, an identity that no pod can need, and
    /// a budget for more pods than there are. Says whether all of that has gone: what cannot be deleted keeps nothing else.
    pub(crate) async fn prune(&self, applied: &Resources<Applied>, desired: &Desired) -> bool {
        if applied.deployment.is_none() {
            // The pods are from before, and may need what is not among these objects.
            return true;
        }
        // What does not answer keeps no other waiting, nor whatever is done for this server next.
        let mut deletions: Vec<BoxFuture<'_, bool>> = Vec::new();
        let mirrors = &self.context.mirrors;
        // One that has ended never runs again, and may be there for as long as somebody's finalizer or, evicted, for ever.
        let mut pods = mirrors.pods.of_server(self.server);
        pods.retain(|_, pod| pod.failed.is_none());
        for (name, config_map) in mirrors.config_maps.of_server(self.server) {
            let wanted = applied.config_maps.iter().any(|wanted| wanted.name_any() == name);
            let mounts_it = |pod: &PodView| pod.config_maps.contains(&name);
            if !wanted && is_needless(mounts_it, &pods, desired) && self.is_ours(&config_map.live) {
                deletions.push(self.delete::<ConfigMap>(name, config_map.live.uid.clone()).boxed());
            }
        }
        for (name, budget) in mirrors.disruption_budgets.of_server(self.server) {
            let wanted = applied.disruption_budget.as_ref().is_some_and(|wanted| wanted.name_any() == name);
            if !wanted && self.is_ours(&budget.live) {
                deletions.push(self.delete::<PodDisruptionBudget>(name, budget.live.uid.clone()).boxed());
            }
        }
        for (name, account) in mirrors.service_accounts.of_server(self.server) {
            // Pods may have the one that is made for servers which name none because their manifest names just that one.
            let wanted = account_of_pods(applied) == Some(&name);
            let has_it = |pod: &PodView| pod.service_account.as_ref() == Some(&name);
            if !wanted && is_needless(has_it, &pods, desired) && self.is_ours(&account.live) {
                deletions.push(self.delete::<ServiceAccount>(name, account.live.uid.clone()).boxed());
            }
        }
        join_all(deletions).await.into_iter().all(|has_gone| has_gone)
    }

    async fn delete<K>(&self, name: String, uid: String) -> bool
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let objects = Api::<K>::namespaced(self.context.client.clone(), &self.server.namespace);
        let this_one = Preconditions { uid: Some(uid), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(this_one), ..DeleteParams::default() };
        match api::call(objects.delete(&name, &parameters)).await {
            Ok(_) => {
                self.context.metrics.wrote(Write::Prune);
                tracing::info!(kind = %K::kind(&()), name, "deleted what is no longer needed");
                true
            }
            Err(error) if error.is_not_found() => true,
            Err(error) => {
                let (kind, namespace) = (K::kind(&()), &self.server.namespace);
                tracing::warn!(%error, %kind, name, %namespace, "cannot delete what is no longer needed");
                false
            }
        }
    }
}

/// The identity that pods are to have, whoever made it.
fn account_of_pods(applied: &Resources<Applied>) -> Option<&String> {
    let template = &applied.deployment.as_ref()?.spec.as_ref()?.template;
    template.spec.as_ref()?.service_account_name.as_ref()
}

/// Whether no pod has or will have something that the manifest does not ask for. Until the new version is there in full,
/// pods of the previous one may have to be made anew, and without it they cannot be.
fn is_needless(
    has_it: impl Fn(&PodView) -> bool,
    pods: &BTreeMap<String, Arc<PodView>>,
    desired: &Desired,
) -> bool {
    let serves =
        |pod: &&Arc<PodView>| pod.ready && !pod.ending && pod.template.as_deref() == Some(&desired.template);
    !pods.values().any(|pod| has_it(pod)) && pods.values().filter(serves).count() >= desired.replicas as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_version_before_needs_goes_only_when_that_cannot_come_back() {
        let pod = |template: &str, account: &str, ready: bool| PodView {
            template: Some(template.to_owned()),
            service_account: Some(account.to_owned()),
            config_maps: vec![template.to_owned()],
            ready,
            ..PodView::default()
        };
        let (old, new) = (pod("old", "demo-longshore", true), pod("new", "own", true));
        let failing = pod("new", "own", false);
        let ending = PodView { ending: true, ..new.clone() };
        for (what, replicas, pods, expected) in [
            ("the old one serves beside one that fails", 1, vec![old.clone(), failing.clone()], false),
            ("the old one was deleted and is to be made anew", 1, vec![failing], false),
            ("nothing is there for a moment", 1, vec![], false),
            ("the new one serves, the old one ends", 1, vec![new.clone(), old], false),
            ("the new one serves", 1, vec![new.clone()], true),
            ("the new one ends", 1, vec![ending], false),
            ("one of two is new", 2, vec![new.clone()], false),
            ("both are", 2, vec![new.clone(), new], true),
            ("no pod is wanted", 0, vec![], true),
        ] {
            let pods = pods.into_iter().enumerate();
            let pods = pods.map(|(index, pod)| (index.to_string(), Arc::new(pod))).collect();
            let desired =
                Desired { template: "new".to_owned(), configs: BTreeMap::new(), replicas, recreates: false };
            let has_it = |pod: &PodView| pod.service_account.as_deref() == Some("demo-longshore");
            assert_eq!(is_needless(has_it, &pods, &desired), expected, "its identity: {what}");
            let mounts_it = |pod: &PodView| pod.config_maps.iter().any(|name| name == "old");
            assert_eq!(is_needless(mounts_it, &pods, &desired), expected, "its configuration: {what}");
        }
    }
}
