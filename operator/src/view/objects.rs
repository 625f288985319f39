//! Pods and Deployments, as far as their views look at them. Whoever may make some can give them the labels of
//! Longshore's, so of what is in them no more is read than that.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct BriefPod {
    /// Whose it is.
    pub metadata: ObjectMeta,
    /// What it is made of.
    #[serde(default)]
    pub spec: BriefPodSpec,
    /// How it is.
    pub status: Option<PodStatus>,
}

/// What a pod is made of.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BriefPodSpec {
    pub(super) service_account_name: Option<String>,
    pub(super) volumes: Option<Vec<BriefVolume>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BriefVolume {
    pub(super) config_map: Option<Named>,
    pub(super) projected: Option<Projected>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Projected {
    pub(super) sources: Option<Vec<Source>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    pub(super) config_map: Option<Named>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    pub(super) name: String,
}

/// A Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct BriefDeployment {
    /// Whose it is.
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: BriefDeploymentSpec,
    #[serde(default)]
    pub(super) status: BriefDeploymentStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct BriefDeploymentSpec {
    pub(super) replicas: Option<i32>,
    #[serde(default)]
    pub(super) template: BriefTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct BriefTemplate {
    #[serde(default)]
    pub(super) metadata: Annotated,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Annotated {
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BriefDeploymentStatus {
    pub(super) observed_generation: Option<i64>,
    pub(super) updated_replicas: Option<i32>,
    pub(super) conditions: Option<Vec<DeploymentCondition>>,
}

/// It is watched as what it is a part of.
macro_rules! is_watched_as {
    ($brief:ty, $whole:ty) => {
        impl Resource for $brief {
            type DynamicType = ();
            type Scope = <$whole as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole>::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                <$whole>::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                <$whole>::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                <$whole>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

is_watched_as!(BriefPod, Pod);
is_watched_as!(BriefDeployment, Deployment);
