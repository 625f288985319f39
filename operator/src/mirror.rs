//! What the watches show, kept up to date: for each kind of owned object the [`View`] of every one of them.
//!
//! Unlike a reflector's store, a mirror never holds a whole object.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::names::SERVER_LABEL;
use crate::scope::{self, Scope};
use crate::view::View;

/// A server, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServerKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServerKey {
    /// Of a manifest, whether or not the rest of it can be read.
    pub(crate) fn of(server: &impl ResourceExt) -> Self {
        Self { namespace: server.namespace().unwrap_or_default(), name: server.name_any() }
    }
}

/// The views of all objects of one kind, by the server that they belong to.
#[derive(Debug)]
pub(crate) struct Mirror<V> {
    objects: RwLock<Objects<V>>,
    /// Whose watch has had its first complete list.
    filled: watch::Sender<BTreeSet<Scope>>,
}

#[derive(Debug)]
struct Objects<V> {
    by_server: HashMap<ServerKey, BTreeMap<String, Arc<V>>>,
    /// The server of each object, by namespace and name: its label may change.
    server_of: HashMap<(String, String), ServerKey>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is new, or no longer as it was.
    Applied,
    /// It has gone.
    Deleted,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        let objects = Objects { by_server: HashMap::new(), server_of: HashMap::new() };
        Self { objects: RwLock::new(objects), filled: watch::Sender::new(BTreeSet::new()) }
    }
}

impl<V: View> Mirror<V> {
    /// The objects of a server, by name.
    pub(crate) fn of_server(&self, server: &ServerKey) -> BTreeMap<String, Arc<V>> {
        self.objects.read().by_server.get(server).cloned().unwrap_or_default()
    }

    /// The servers of a scope that have any.
    pub(crate) fn servers(&self, scope: &Scope) -> Vec<ServerKey> {
        let objects = self.objects.read();
        let in_scope = |server: &&ServerKey| scope::covers(scope, &server.namespace);
        objects.by_server.keys().filter(in_scope).cloned().collect()
    }

    /// One object of a server.
    pub(crate) fn get(&self, server: &ServerKey, name: &str) -> Option<Arc<V>> {
        self.objects.read().by_server.get(server)?.get(name).cloned()
    }

    /// Waits until the watch of this scope has had its first complete list.
    pub(crate) async fn filled(&self, scope: &Scope) {
        // The sender lives as long as the mirror.
        let _ = self.filled.subscribe().wait_for(|filled| filled.contains(scope)).await;
    }

    /// Keeps the mirror up to date with what is heard of one namespace or of all, and says what happened to whose object.
    pub(crate) async fn follow<K>(
        &self,
        events: impl Stream<Item = Event<K>>,
        scope: &Scope,
        changed: &mut impl FnMut(&ServerKey, Change, &str, &V),
    ) where
        V: View<Object = K>,
        K: Resource,
    {
        let mut listed: HashSet<(String, String)> = HashSet::new();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Event::Init => listed.clear(),
                Event::InitApply(object) => {
                    listed.insert(address(object.meta()));
                    self.apply(&object, changed);
                }
                Event::InitDone => {
                    let gone: Vec<_> = {
                        let objects = self.objects.read();
                        let known =
                            objects.server_of.keys().filter(|(namespace, _)| scope::covers(scope, namespace));
                        known.filter(|address| !listed.contains(*address)).cloned().collect()
                    };
                    gone.iter().for_each(|address| self.remove(address, changed));
                    listed = HashSet::new();
                    self.filled.send_if_modified(|filled| filled.insert(scope.clone()));
                }
                Event::Apply(object) => self.apply(&object, changed),
                Event::Delete(object) => self.remove(&address(object.meta()), changed),
            }
        }
    }

    fn apply<K>(&self, object: &K, changed: &mut impl FnMut(&ServerKey, Change, &str, &V))
    where
        V: View<Object = K>,
        K: Resource,
    {
        let address = address(object.meta());
        let Some(server) = server_of(object.meta()) else { return self.remove(&address, changed) };
        let view = V::of(object);
        let (view, moved, unchanged) = {
            let mut objects = self.objects.write();
            let before = objects.server_of.insert(address.clone(), server.clone());
            let before = before.filter(|before| *before != server);
            let moved = before.and_then(|before| Some((objects.forget(&before, &address.1)?, before)));
            let of_server = objects.by_server.entry(server.clone()).or_default();
            let view = Arc::new(match of_server.get(&address.1) {
                Some(before) => view.after(before),
                None => view,
            });
            let before = of_server.insert(address.1.clone(), view.clone());
            let unchanged = before.is_some_and(|before| before == view);
            (view, moved, unchanged)
        };
        if let Some((view, before)) = moved {
            // Somebody changed the label: for the server that it belonged to, it has gone.
            changed(&before, Change::Deleted, &address.1, &view);
        }
        if unchanged {
            return;
        }
        changed(&server, Change::Applied, &address.1, &view);
    }

    fn remove(&self, address: &(String, String), changed: &mut impl FnMut(&ServerKey, Change, &str, &V)) {
        let removed = {
            let mut objects = self.objects.write();
            let server = objects.server_of.remove(address);
            server.and_then(|server| Some((objects.forget(&server, &address.1)?, server)))
        };
        if let Some((view, server)) = removed {
            changed(&server, Change::Deleted, &address.1, &view);
        }
    }
}

// === impl Objects ===

impl<V> Objects<V> {
    fn forget(&mut self, server: &ServerKey, name: &str) -> Option<Arc<V>> {
        let of_server = self.by_server.get_mut(server)?;
        let removed = of_server.remove(name);
        if of_server.is_empty() {
            self.by_server.remove(server);
        }
        removed
    }
}

fn address(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn server_of(metadata: &ObjectMeta) -> Option<ServerKey> {
    let name = metadata.labels.as_ref()?.get(SERVER_LABEL)?.clone();
    Some(ServerKey { namespace: metadata.namespace.clone()?, name })
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::{PodStatus, Service};
    use kube::core::PartialObjectMeta;

    use super::*;
    use crate::view::{BriefDeployment, BriefPod, DeploymentView, Owned, PodView};

    type Object = PartialObjectMeta<Service>;

    fn object(namespace: &str, name: &str, server: Option<&str>, version: u64) -> Object {
        let labels = server.map(|server| BTreeMap::from([(SERVER_LABEL.to_owned(), server.to_owned())]));
        PartialObjectMeta {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.to_owned()),
                uid: Some(format!("{namespace}/{name}")),
                resource_version: Some(version.to_string()),
                labels,
                ..ObjectMeta::default()
            },
            ..PartialObjectMeta::default()
        }
    }

    /// Feeds a mirror with what a watch of one namespace shows, and tells what it says of it.
    async fn follow(
        mirror: &Mirror<Owned<Service>>,
        namespace: Option<&str>,
        events: Vec<Event<Object>>,
    ) -> Vec<String> {
        let mut said = Vec::new();
        let mut changed = |server: &ServerKey, change: Change, name: &str, _: &Owned<Service>| {
            said.push(format!("{change:?} {}/{name} of {}", server.namespace, server.name));
        };
        mirror.follow(stream::iter(events), &namespace.map(str::to_owned), &mut changed).await;
        said
    }

    #[tokio::test]
    async fn shows_what_there_is_and_says_what_changes() {
        let mirror = Mirror::default();
        let said = follow(
            &mirror,
            None,
            vec![
                Event::Init,
                Event::InitApply(object("a", "x", Some("one"), 1)),
                Event::InitApply(object("a", "y", Some("one"), 1)),
                Event::InitDone,
                Event::Apply(object("a", "x", Some("one"), 1)),
                Event::Apply(object("a", "x", Some("one"), 2)),
                Event::Apply(object("a", "x", Some("two"), 3)),
                Event::Delete(object("a", "y", Some("one"), 4)),
                Event::Apply(object("a", "z", None, 5)),
            ],
        )
        .await;
        assert_eq!(
            said,
            [
                "Applied a/x of one",
                "Applied a/y of one",
                "Applied a/x of one",
                "Deleted a/x of one",
                "Applied a/x of two",
                "Deleted a/y of one",
            ]
        );
        let two = ServerKey { namespace: "a".to_owned(), name: "two".to_owned() };
        assert_eq!(mirror.get(&two, "x").unwrap().live.version, 3);
        assert_eq!(mirror.of_server(&ServerKey { name: "one".to_owned(), ..two }).len(), 0);
    }

    #[tokio::test]
    async fn a_status_that_changes_is_no_news_and_a_manifest_that_does_is() {
        let of = |generation: i64, version: u64| {
            let mut object = object("a", "x", Some("one"), version);
            object.metadata.generation = Some(generation);
            Event::Apply(object)
        };
        let mirror = Mirror::default();
        for (event, news) in [(of(1, 1), 1), (of(1, 2), 0), (of(2, 3), 1), (of(2, 4), 0)] {
            assert_eq!(follow(&mirror, None, vec![event]).await.len(), news);
        }
        let one = ServerKey { namespace: "a".to_owned(), name: "one".to_owned() };
        assert_eq!(mirror.get(&one, "x").unwrap().live.version, 4, "the newest is known all the same");
    }

    /// The kubelet clears a container away that has ended while it starts the next one.
    #[tokio::test]
    async fn how_a_container_of_a_pod_has_ended_is_not_forgotten() {
        let pod = |uid: &str, version: u64, last: serde_json::Value| {
            let mut pod =
                BriefPod { metadata: object("a", "x", Some("one"), version).metadata, ..BriefPod::default() };
            pod.metadata.uid = Some(uid.to_owned());
            let server = serde_json::json!({
                "name": "server", "image": "x", "imageID": "x", "ready": false, "restartCount": 1,
                "state": {"running": {}}, "lastState": last,
            });
            let statuses = vec![serde_json::from_value(server).unwrap()];
            pod.status = Some(PodStatus { container_statuses: Some(statuses), ..PodStatus::default() });
            Event::Apply(pod)
        };
        let ended = |code: i32| serde_json::json!({"terminated": {"exitCode": code}});
        let mirror = Mirror::<PodView>::default();
        for (event, expected) in [
            (pod("1", 1, ended(3)), Some(3)),
            (pod("1", 2, serde_json::json!({})), Some(3)),
            (pod("1", 3, ended(4)), Some(4)),
            (pod("2", 4, serde_json::json!({})), None),
        ] {
            mirror.follow(stream::iter([event]), &None, &mut |_, _, _, _| {}).await;
            let one = ServerKey { namespace: "a".to_owned(), name: "one".to_owned() };
            let known = mirror.get(&one, "x").unwrap();
            assert_eq!(known.server.ended.as_ref().map(|ended| ended.code), expected);
        }
    }

    /// What a Deployment's controller says of it is about the Deployment that it has looked at.
    #[tokio::test]
    async fn that_pods_are_refused_is_known_of_their_own_template() {
        let deployment = |generation: i64, observed: i64, template: &str, refused: &str| {
            let metadata = object("a", "x", Some("one"), 1).metadata;
            let annotations = serde_json::json!({"longshore.dev/template": template});
            let failure = if refused.starts_with("no set") {
                let reason = "ReplicaSetCreateError";
                serde_json::json!({"type": "Progressing", "status": "False", "reason": reason, "message": refused})
            } else {
                serde_json::json!({"type": "ReplicaFailure", "status": "True", "message": refused})
            };
            let conditions = if refused.is_empty() { vec![] } else { vec![failure] };
            let mut object: BriefDeployment = serde_json::from_value(serde_json::json!({
                "metadata": metadata,
                "spec": {"template": {"metadata": {"annotations": annotations}}},
                "status": {
                    "observedGeneration": observed, "updatedReplicas": i32::from(template == "again"),
                    "conditions": conditions,
                },
            }))
            .unwrap();
            object.metadata.generation = Some(generation);
            Event::Apply(object)
        };
        let mirror = Mirror::<DeploymentView>::default();
        for (why, event, expected) in [
            ("it is new", deployment(1, 0, "old", ""), None),
            ("it is refused", deployment(1, 1, "old", "quota"), Some("quota")),
            ("another number is wanted", deployment(2, 1, "old", "quota"), Some("quota")),
            ("another template is", deployment(3, 2, "new", "quota"), None),
            ("its controller has begun", deployment(3, 2, "new", "quota"), None),
            ("its controller has looked", deployment(3, 3, "new", "policy"), Some("policy")),
            ("it is let", deployment(3, 3, "new", ""), None),
            ("another template is wanted", deployment(4, 3, "newer", ""), None),
            ("its ReplicaSet is refused", deployment(4, 3, "newer", "no set: quota"), Some("no set: quota")),
            ("another number is wanted", deployment(5, 3, "newer", "no set: quota"), Some("no set: quota")),
            ("its controller scales it", deployment(5, 5, "newer", "no set: quota"), Some("no set: quota")),
            ("another template is", deployment(6, 5, "newest", "no set: quota"), None),
            ("its controller has begun", deployment(6, 5, "newest", "no set: quota"), None),
            ("it has looked, and pods are not made yet", deployment(6, 6, "newest", "no set: quota"), None),
            ("one of before is wanted back", deployment(7, 6, "again", "no set: quota"), None),
            ("its ReplicaSet is there", deployment(7, 7, "again", "no set: quota"), None),
            ("yet another template is wanted", deployment(8, 7, "last", "no set: quota"), None),
            ("it is asked for again", deployment(9, 7, "last", "no set: quota"), Some("no set: quota")),
            ("one is refused by then", deployment(10, 7, "late", "no set: policy"), Some("no set: policy")),
            ("its pods are refused", deployment(10, 10, "late", "policy"), Some("policy")),
            ("they are made", deployment(10, 10, "late", ""), None),
        ] {
            mirror.follow(stream::iter([event]), &None, &mut |_, _, _, _| {}).await;
            let one = ServerKey { namespace: "a".to_owned(), name: "one".to_owned() };
            assert_eq!(mirror.get(&one, "x").unwrap().refused.as_deref(), expected, "{why}");
        }
    }

    #[tokio::test]
    async fn a_watch_that_begins_anew_says_what_went_meanwhile_in_its_own_namespace() {
        let mirror = Mirror::default();
        let list = |namespace: &str, names: &[&str]| {
            let objects = names.iter().map(|name| Event::InitApply(object(namespace, name, Some("one"), 1)));
            std::iter::once(Event::Init).chain(objects).chain([Event::InitDone]).collect::<Vec<_>>()
        };
        follow(&mirror, Some("a"), list("a", &["x", "y"])).await;
        follow(&mirror, Some("b"), list("b", &["x"])).await;
        for scope in ["a", "b"] {
            mirror.filled(&Some(scope.to_owned())).await;
        }
        let said = follow(&mirror, Some("a"), list("a", &["y"])).await;
        assert_eq!(said, ["Deleted a/x of one"]);
        let b = ServerKey { namespace: "b".to_owned(), name: "one".to_owned() };
        assert!(mirror.get(&b, "x").is_some());
    }
}
