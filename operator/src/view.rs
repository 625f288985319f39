//! What the operator remembers of the objects in the cluster: a few words of each, never the whole.

mod objects;
mod pod;

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use k8s_openapi::api::apps::v1::{DeploymentCondition, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;

use crate::names::{APPLIED_ANNOTATION, TEMPLATE_ANNOTATION};
pub(crate) use objects::BriefDeployment;
#[cfg(test)]
pub(crate) use objects::BriefPod;
#[cfg(test)]
pub(crate) use pod::Told;
pub(crate) use pod::{ContainerState, ContainerView, Ended, KeptOut, OtherContainer, PodView};

/// Messages of the cluster are cut here, on their way into memory.
const LONGEST_MESSAGE: usize = 2048;
/// No annotation of Longshore's is longer: the longest has the path of a server, of at most 1024 bytes, as JSON.
const LONGEST_ANNOTATION: usize = 4096;

/// Something that can be remembered of an object.
pub(crate) trait View: Sized + PartialEq + Send + Sync + 'static {
    /// The object.
    type Object;
    /// What is remembered of it.
    fn of(object: &Self::Object) -> Self;

    /// The same where this was remembered of it before.
    #[must_use]
    fn after(self, _before: &Self) -> Self {
        self
    }
}

/// Which object this is, in which state, and who controls it. Two sightings are equal if nothing that matters has changed
/// between them.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Its UID.
    pub uid: String,
    /// Its resource version, as the number that it is.
    pub version: u64,
    /// The same as long as nobody changed what Longshore wrote.
    pub fingerprint: u64,
    /// The UID of the object that controls it.
    pub controller: Option<String>,
    /// The digest of what was applied, as it says itself.
    pub applied: Option<String>,
}

/// An object of which the metadata says enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned<K> {
    /// Which object it is.
    pub live: Live,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Send + Sync + 'static + PartialEq> View for Owned<K> {
    type Object = PartialObjectMeta<K>;

    fn of(object: &Self::Object) -> Self {
        Self { live: Live::of(&object.metadata), kind: std::marker::PhantomData }
    }
}

/// A Deployment: its state, and why it has fewer pods than it should.
#[derive(Clone, Debug)]
pub(crate) struct DeploymentView {
    /// Which object it is.
    pub live: Live,
    /// The digest of its pods' template.
    pub template: Option<String>,
    /// How many pods it is to have.
    pub replicas: Option<i32>,
    /// The API server's words on why a pod could not be made, of this template as far as is known.
    pub refused: Option<String>,
    /// Its controller's words on why a ReplicaSet could not be made, be it one of a template before.
    pub unmade: Option<String>,
    /// Whether its controller has looked at it as it is now. Until then its status is about what it was before.
    pub is_seen: bool,
}

impl View for DeploymentView {
    type Object = BriefDeployment;

    fn of(object: &BriefDeployment) -> Self {
        let status = &object.status;
        let is_seen = status.observed_generation >= object.metadata.generation;
        let find = |type_: &str, truth: &str| {
            let mut conditions = status.conditions.iter().flatten();
            conditions.find(|condition| condition.type_ == type_ && condition.status == truth)
        };
        // Where not even the ReplicaSet can be made, its controller says that, and not that it has looked, unless only the
        // number is another one. It does not take it back where there is one of that template, with pods.
        let has_set = is_seen && status.updated_replicas.is_some_and(|updated| updated > 0);
        let words = |condition: &DeploymentCondition| cut(condition.message.as_deref().unwrap_or_default());
        let unmade = find("Progressing", "False")
            .filter(|condition| condition.reason.as_deref() == Some("ReplicaSetCreateError"))
            .map(words);
        let refused = find("ReplicaFailure", "True").filter(|_| is_seen).map(words);
        let refused = refused.or_else(|| unmade.clone().filter(|_| !has_set));
        let template = annotation(object.spec.template.metadata.annotations.as_ref(), TEMPLATE_ANNOTATION);
        let (live, replicas) = (Live::of(&object.metadata), object.spec.replicas);
        Self { live, template, replicas, refused, unmade, is_seen }
    }

    /// Whoever only wants another number of pods finds them refused as before, until something else is heard. Of another
    /// template nothing is heard at first: what was there already was said of the one before.
    fn after(mut self, before: &Self) -> Self {
        if self.live.uid != before.live.uid {
            return self;
        }
        // The words on a ReplicaSet stay there until pods of another one are made. Whoever asks for it again may want them.
        let is_untouched = self.live.fingerprint == before.live.fingerprint && self.unmade == before.unmade;
        if is_untouched && before.refused.is_none() && self.refused == self.unmade {
            self.refused = None;
        }
        if self.is_seen {
            return self;
        }
        if self.template == before.template {
            if self.refused.is_none() {
                self.refused.clone_from(&before.refused);
            }
        } else if self.unmade == before.unmade {
            self.refused = None;
        }
        self
    }
}

impl PartialEq for DeploymentView {
    fn eq(&self, other: &Self) -> bool {
        // That its controller has looked is no news: what it says then is.
        let Self { live, template, replicas, refused, unmade: _, is_seen: _ } = self;
        (live, template, replicas, refused) == (&other.live, &other.template, &other.replicas, &other.refused)
    }
}

impl Eq for DeploymentView {}

/// A ReplicaSet: the link between a pod and its Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaSetView {
    /// Its UID.
    pub uid: String,
    /// The UID of its Deployment.
    pub controller: Option<String>,
}

impl View for ReplicaSetView {
    type Object = PartialObjectMeta<ReplicaSet>;

    fn of(object: &Self::Object) -> Self {
        Self {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            controller: controller(&object.metadata),
        }
    }
}

// === impl Live ===

impl PartialEq for Live {
    fn eq(&self, other: &Self) -> bool {
        // A new version alone is a status that changes all the time, or else it shows in the fingerprint.
        let Self { uid, version: _, fingerprint, controller, applied: _ } = self;
        (uid, fingerprint, controller) == (&other.uid, &other.fingerprint, &other.controller)
    }
}

impl Eq for Live {}

impl Live {
    /// Of an object.
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let version = version(metadata);
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            version,
            fingerprint: fingerprint(metadata).unwrap_or(version),
            controller: controller(metadata),
            applied: annotation(metadata.annotations.as_ref(), APPLIED_ANNOTATION),
        }
    }
}

/// Of a kind whose status changes all the time: its generation, labels, annotations and owners tell whether somebody
/// changed what Longshore wrote. `None`: a kind that nobody but its owner changes, for which the resource version does.
fn fingerprint(metadata: &ObjectMeta) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    metadata.generation?.hash(&mut hasher);
    metadata.labels.hash(&mut hasher);
    // Written by the Deployment's controller.
    let annotations = metadata.annotations.iter().flatten();
    annotations
        .filter(|(name, _)| *name != "deployment.kubernetes.io/revision")
        .for_each(|pair| pair.hash(&mut hasher));
    for owner in metadata.owner_references.iter().flatten() {
        owner.uid.hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// Resource versions are numbers that grow, so of two sightings of an object the newer one can be told.
fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The UID of the object that controls this one.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone())
}

/// What Longshore's annotation says. One that is longer is another's.
fn annotation(annotations: Option<&BTreeMap<String, String>>, name: &str) -> Option<String> {
    annotations?.get(name).filter(|text| text.len() <= LONGEST_ANNOTATION).cloned()
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_MESSAGE)].trim().to_owned()
}

/// The end of a text is where a program says why it gave up.
fn cut_front(text: &str) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(LONGEST_MESSAGE))..].trim().to_owned()
}
