//! What is there of an object before it is applied.

use std::fmt::Debug;

use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource, ResourceExt as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Applier, HasLive as _, managed_fields};
use crate::api::{self, ApiError};
use crate::names::APPLIED_ANNOTATION;
use crate::view::{DeploymentView, Live};

/// The kinds of which an object's own word is taken that it is as it was applied. All else is about who may come in: whoever
/// begins to act writes that, whatever it says.
const TRUSTED: [&str; 4] = [DeploymentView::KIND, "PodDisruptionBudget", "Service", "ServiceAccount"];

/// The object of this name. (A list of one, since the right to read lists is there anyway.)
pub(super) async fn find<K>(objects: &Api<K>, name: &str) -> Result<Option<PartialObjectMeta<K>>, ApiError>
where
    K: Clone + Debug + DeserializeOwned,
{
    Ok(api::call(objects.list_metadata(&only(name))).await?.items.into_iter().next())
}

/// A list that has nothing else.
fn only(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

/// Has an object say in which state it is applied, if that is to be asked of it.
pub(super) fn mark<K: Resource>(kind: &str, object: &mut K, digest: &str) {
    if TRUSTED.contains(&kind) {
        object.annotations_mut().insert(APPLIED_ANNOTATION.to_owned(), digest.to_owned());
    }
}

// === impl Applier ===

impl Applier<'_> {
    /// What is there of an object of which nothing is remembered, if it is what would be applied: whoever acted before has
    /// applied it, and nobody has changed it since. Each write is one for the cluster's webhooks and policies, also where
    /// nothing comes of it, and whoever begins to act would write all objects of all servers at once.
    pub(super) async fn untouched<K>(&self, object: &K, digest: &str, seen: Option<&Live>) -> Option<Live>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let is_applied = |live: &Live| self.is_ours(live) && live.applied.as_deref() == Some(digest);
        // Of a kind that is not trusted none says so, or somebody else wrote that.
        seen.filter(|live| object.annotations().contains_key(APPLIED_ANNOTATION) && is_applied(live))?;
        // Where it cannot be looked at, applying it tells why.
        let found = self.find_whole(&ApiResource::erase::<K>(&()), &object.name_any()).await?;
        let (applied, is) = (serde_json::to_value(object).ok()?, serde_json::to_value(&found).ok()?);
        let live = Live::of(&found.metadata);
        (is_applied(&live) && managed_fields::are_kept(&applied, &found.metadata, &is)).then_some(live)
    }

    /// Whether a Deployment is what would be applied, whatever the number of its pods is. Where it cannot be looked at, it may
    /// be anything.
    pub(super) async fn is_at_most_rescaled<K>(&self, object: &K) -> bool
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let found = self.find_whole(&ApiResource::erase::<K>(&()), &object.name_any()).await;
        let Some(found) = found else { return false };
        let (Ok(mut applied), Ok(is)) = (serde_json::to_value(object), serde_json::to_value(&found)) else {
            return false;
        };
        if let Some(spec) = applied.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("replicas");
        }
        self.is_ours(&Live::of(&found.metadata)) && managed_fields::are_kept(&applied, &found.metadata, &is)
    }

    /// All of the object of this name: its metadata does not say what its values are. `None` where it cannot be looked at. Of
    /// any kind, since to read each of them by its types would be a program of its own.
    async fn find_whole(&self, kind: &ApiResource, name: &str) -> Option<DynamicObject> {
        let client = self.context.client.clone();
        let objects = Api::<DynamicObject>::namespaced_with(client, &self.server.namespace, kind);
        let mut found = api::call(objects.list(&only(name))).await.ok()?.items.into_iter().next()?;
        // Of the items of a list the list itself says that, once.
        found.types = Some(TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        Some(found)
    }
}
