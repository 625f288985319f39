//! What is known of the Secrets, ConfigMaps and ServiceAccounts that manifests name, and who names them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{ApiKeysLookup, Lookup, get, summarise};
use crate::api::ApiError;
use crate::api_keys::ParsedKeys;
use crate::mcp_server::references::Kind;
use crate::names::{MANAGED_BY_LABEL, MANAGER};

/// So many objects are read at once. Each may have tens of thousands of entries, which take many times the room of their
/// text until those that matter are picked out.
const READS: usize = 4;

/// Remembers what was read until the watch says that it changed.
#[derive(Debug)]
pub(crate) struct ReferenceCache {
    state: Mutex<State>,
    reads: Semaphore,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Which objects each server names, by its namespace and name.
    used_by: HashMap<(String, String), BTreeSet<Key>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    kind: Kind,
    namespace: String,
    name: String,
}

/// What is known of one object that some manifest names.
#[derive(Debug, Default)]
struct Entry {
    /// Who names it, and which of its entries.
    users: BTreeMap<String, BTreeSet<String>>,
    /// Counts the changes, so that an answer which was on its way during one is not kept.
    epoch: u64,
    /// The version that was read.
    resource_version: Option<String>,
    /// Whether somebody was told what another version than this one held, and has yet to hear of this one.
    unannounced: bool,
    lookup: Option<Known>,
    api_keys: Option<ApiKeysLookup>,
}

/// What was found of an object when these of its entries were asked for.
#[derive(Clone, Debug)]
struct Known {
    lookup: Lookup,
    asked: BTreeSet<String>,
}

impl Default for ReferenceCache {
    fn default() -> Self {
        Self { state: Mutex::default(), reads: Semaphore::new(READS) }
    }
}

// === impl ReferenceCache ===

impl ReferenceCache {
    /// Remembers which objects a server names from now on, and which entries of each.
    pub(crate) fn uses(
        &self,
        namespace: &str,
        server: &str,
        objects: BTreeMap<(Kind, String), BTreeSet<String>>,
    ) {
        let keys: BTreeSet<Key> = objects.keys().map(|(kind, name)| key(*kind, namespace, name)).collect();
        let mut state = self.state.lock();
        let user = (namespace.to_owned(), server.to_owned());
        let before = if keys.is_empty() {
            state.used_by.remove(&user).unwrap_or_default()
        } else {
            state.used_by.insert(user, keys.clone()).unwrap_or_default()
        };
        for key in before.difference(&keys) {
            if let Some(entry) = state.entries.get_mut(key) {
                entry.users.remove(server);
                if entry.users.is_empty() {
                    state.entries.remove(key);
                }
            }
        }
        for ((kind, name), asked) in objects {
            let entry = state.entries.entry(key(kind, namespace, &name)).or_default();
            entry.users.insert(server.to_owned(), asked);
        }
    }

    /// What is known of an object, if it is known of each of these entries.
    pub(super) fn lookup(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        entries: &BTreeSet<String>,
    ) -> Option<Lookup> {
        let state = self.state.lock();
        let known = state.entries.get(&key(kind, namespace, name))?.lookup.as_ref()?;
        entries.is_subset(&known.asked).then(|| known.lookup.clone())
    }

    /// What is known of a Secret with API keys, if anything is.
    pub(super) fn api_keys(&self, namespace: &str, name: &str) -> Option<ApiKeysLookup> {
        self.state.lock().entries.get(&key(Kind::Secret, namespace, name))?.api_keys.clone()
    }

    /// Reads an object, and remembers what it found of these entries and of those that others ask for.
    pub(super) async fn read(
        &self,
        client: &kube::Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        entries: &BTreeSet<String>,
    ) -> Result<Lookup, ApiError> {
        // It is never closed.
        let _turn = self.reads.acquire().await;
        let key = key(kind, namespace, name);
        let epoch = self.epoch(&key);
        let asked = self.asked(&key, entries);
        let (lookup, version) = match kind {
            Kind::Secret => match get::<Secret>(client, namespace, name).await? {
                None => (Lookup::Missing, None),
                Some(secret) => {
                    let keys = secret.data.unwrap_or_default().into_keys();
                    (summarise(is_ours(&secret.metadata), keys, &asked), secret.metadata.resource_version)
                }
            },
            Kind::ConfigMap => match get::<ConfigMap>(client, namespace, name).await? {
                None => (Lookup::Missing, None),
                Some(map) => {
                    let keys = map.data.unwrap_or_default().into_keys();
                    let keys = keys.chain(map.binary_data.unwrap_or_default().into_keys());
                    (summarise(is_ours(&map.metadata), keys, &asked), map.metadata.resource_version)
                }
            },
            Kind::ServiceAccount => match get::<ServiceAccount>(client, namespace, name).await? {
                None => (Lookup::Missing, None),
                Some(account) => {
                    (summarise(false, std::iter::empty(), &asked), account.metadata.resource_version)
                }
            },
        };
        let known = Known { lookup: lookup.clone(), asked };
        self.remember(&key, epoch, version, |entry| entry.lookup = Some(known));
        Ok(lookup)
    }

    /// Reads a Secret with API keys and remembers their hashes.
    pub(super) async fn read_api_keys(
        &self,
        client: &kube::Client,
        namespace: &str,
        name: &str,
    ) -> Result<ApiKeysLookup, ApiError> {
        let _turn = self.reads.acquire().await;
        let key = key(Kind::Secret, namespace, name);
        let epoch = self.epoch(&key);
        let (keys, version) = match get::<Secret>(client, namespace, name).await? {
            None => (ApiKeysLookup::Missing, None),
            Some(secret) if is_ours(&secret.metadata) => {
                (ApiKeysLookup::Reserved, secret.metadata.resource_version)
            }
            Some(secret) => {
                let parsed = ParsedKeys::from_data(&secret.data.unwrap_or_default());
                (ApiKeysLookup::Present(parsed), secret.metadata.resource_version)
            }
        };
        self.remember(&key, epoch, version, |entry| entry.api_keys = Some(keys.clone()));
        Ok(keys)
    }

    /// The watch saw an object. Returns the servers that have to be looked at again.
    pub(crate) fn seen(&self, kind: Kind, metadata: &ObjectMeta) -> Vec<String> {
        let key = key(
            kind,
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(&key) else { return Vec::new() };
        let known = entry.resource_version.is_some() && entry.resource_version == metadata.resource_version;
        if known && !entry.unannounced {
            return Vec::new();
        }
        entry.forget()
    }

    /// The watch saw an object go.
    pub(crate) fn gone(&self, kind: Kind, namespace: &str, name: &str) -> Vec<String> {
        self.state.lock().entries.get_mut(&key(kind, namespace, name)).map(Entry::forget).unwrap_or_default()
    }

    /// The watch began anew, and these are the objects that there are. Returns servers (namespace and name) of which
    /// an object has gone meanwhile.
    pub(crate) fn listed(
        &self,
        kind: Kind,
        scope: Option<&str>,
        present: &BTreeSet<(String, String)>,
    ) -> Vec<(String, String)> {
        let mut state = self.state.lock();
        let gone = state.entries.iter_mut().filter(|(key, entry)| {
            key.kind == kind
                && scope.is_none_or(|namespace| namespace == key.namespace)
                && (entry.resource_version.is_some() || entry.unannounced)
                && !present.contains(&(key.namespace.clone(), key.name.clone()))
        });
        gone.flat_map(|(key, entry)| {
            entry.forget().into_iter().map(|server| (key.namespace.clone(), server)).collect::<Vec<_>>()
        })
        .collect()
    }

    /// These entries of an object, and those that anybody else asks for: who names one that was not asked for before has
    /// the object read anew, and nobody else again.
    fn asked(&self, key: &Key, entries: &BTreeSet<String>) -> BTreeSet<String> {
        let state = self.state.lock();
        let others = state.entries.get(key).into_iter().flat_map(|entry| entry.users.values().flatten());
        others.chain(entries).cloned().collect()
    }

    fn epoch(&self, key: &Key) -> u64 {
        self.state.lock().entries.get(key).map_or(0, |entry| entry.epoch)
    }

    fn remember(&self, key: &Key, epoch: u64, version: Option<String>, fill: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.state.lock().entries.get_mut(key)
            && entry.epoch == epoch
        {
            if entry.resource_version != version {
                // Both answers are of one version, and the watch will speak of the other one as of something known:
                // an answer of before would never be corrected.
                entry.unannounced |= entry.lookup.is_some() || entry.api_keys.is_some();
                entry.lookup = None;
                entry.api_keys = None;
                entry.resource_version = version;
            }
            fill(entry);
        }
    }
}

// === impl Entry ===

impl Entry {
    fn forget(&mut self) -> Vec<String> {
        self.epoch += 1;
        self.resource_version = None;
        self.unannounced = false;
        self.lookup = None;
        self.api_keys = None;
        self.users.keys().cloned().collect()
    }
}

fn key(kind: Kind, namespace: &str, name: &str) -> Key {
    Key { kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

fn is_ours(metadata: &ObjectMeta) -> bool {
    metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(MANAGED_BY_LABEL))
        .is_some_and(|manager| manager == MANAGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(name: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("tools".to_owned()),
            name: Some(name.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn uses(cache: &ReferenceCache, server: &str, secrets: &[&str]) {
        asks(cache, server, secrets, &[]);
    }

    fn asks(cache: &ReferenceCache, server: &str, secrets: &[&str], asked: &[&str]) {
        let named = secrets.iter().map(|name| ((Kind::Secret, (*name).to_owned()), entries(asked)));
        cache.uses("tools", server, named.collect());
    }

    fn entries(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn known(lookup: &Lookup) -> Known {
        Known { lookup: lookup.clone(), asked: BTreeSet::new() }
    }

    fn lookup(cache: &ReferenceCache, name: &str) -> Option<Lookup> {
        cache.lookup(Kind::Secret, "tools", name, &BTreeSet::new())
    }

    /// Whoever may write a ConfigMap could otherwise fill the memory that all servers share.
    #[test]
    fn of_all_entries_those_are_kept_that_somebody_asks_for() {
        let cache = ReferenceCache::default();
        asks(&cache, "one", &["a"], &["k1", "none"]);
        asks(&cache, "two", &["a"], &["k2"]);
        let key = key(Kind::Secret, "tools", "a");
        let read = |by: &[&str]| {
            let asked = cache.asked(&key, &entries(by));
            let lookup = summarise(false, (0..50_000).map(|index| format!("k{index}")), &asked);
            let known = Known { lookup, asked };
            let version = Some("7".to_owned());
            cache.remember(&key, cache.epoch(&key), version, |entry| entry.lookup = Some(known));
        };
        let find = |asked: &[&str]| cache.lookup(Kind::Secret, "tools", "a", &entries(asked));
        let found = |names: &[&str]| Some(Lookup::Present { keys: entries(names).into() });
        read(&["k1", "none"]);
        assert_eq!(find(&["k1", "none"]), found(&["k1", "k2"]));
        assert_eq!(find(&["k2"]), found(&["k1", "k2"]), "nobody else reads it again");
        // One of them asks for another entry, of which nothing is known.
        asks(&cache, "two", &["a"], &["k2", "k3"]);
        assert_eq!(find(&["k2", "k3"]), None);
        read(&["k2", "k3"]);
        assert_eq!(find(&["k2", "k3"]), found(&["k1", "k2", "k3"]));
        // What nobody asks for any more goes with the next reading.
        uses(&cache, "one", &[]);
        read(&["k2", "k3"]);
        assert_eq!(find(&["k2"]), found(&["k2", "k3"]));
    }

    #[test]
    fn a_change_reaches_those_who_name_the_object_and_nobody_else() {
        let cache = ReferenceCache::default();
        uses(&cache, "one", &["a", "b"]);
        uses(&cache, "two", &["b"]);
        assert_eq!(cache.seen(Kind::Secret, &metadata("b", "1")), ["one", "two"]);
        assert_eq!(cache.seen(Kind::Secret, &metadata("a", "1")), ["one"]);
        assert_eq!(cache.seen(Kind::Secret, &metadata("c", "1")), Vec::<String>::new());
        assert_eq!(cache.seen(Kind::ConfigMap, &metadata("a", "1")), Vec::<String>::new());
        uses(&cache, "one", &["a"]);
        assert_eq!(cache.gone(Kind::Secret, "tools", "b"), ["two"]);
        uses(&cache, "two", &[]);
        assert_eq!(cache.gone(Kind::Secret, "tools", "b"), Vec::<String>::new());
    }

    #[test]
    fn an_answer_is_kept_until_the_object_changes() {
        let cache = ReferenceCache::default();
        uses(&cache, "one", &["a"]);
        let key = key(Kind::Secret, "tools", "a");
        let found = Lookup::Present { keys: Default::default() };
        let keep = |epoch: u64| {
            cache.remember(&key, epoch, Some("7".to_owned()), |entry| entry.lookup = Some(known(&found)));
        };
        keep(cache.epoch(&key));
        assert_eq!(
            cache.seen(Kind::Secret, &metadata("a", "7")),
            Vec::<String>::new(),
            "the version that was read"
        );
        assert_eq!(lookup(&cache, "a"), Some(found.clone()));
        let epoch = cache.epoch(&key);
        assert_eq!(cache.seen(Kind::Secret, &metadata("a", "8")), ["one"]);
        assert_eq!(lookup(&cache, "a"), None);
        keep(epoch);
        assert_eq!(lookup(&cache, "a"), None, "an answer from before the change is not kept");
        keep(cache.epoch(&key));
        let gone = cache.listed(Kind::Secret, None, &BTreeSet::new());
        assert_eq!(gone, [("tools".to_owned(), "one".to_owned())]);
        assert_eq!(lookup(&cache, "a"), None);
    }

    #[test]
    fn one_that_went_unheard_is_told_to_those_who_had_read_it() {
        let cache = ReferenceCache::default();
        uses(&cache, "one", &["a"]);
        let key = key(Kind::Secret, "tools", "a");
        let found = Lookup::Present { keys: Default::default() };
        cache.remember(&key, cache.epoch(&key), Some("7".to_owned()), |entry| {
            entry.lookup = Some(known(&found))
        });
        // Another server reads that it is gone, before the watch is back.
        let keys = ApiKeysLookup::Missing;
        cache.remember(&key, cache.epoch(&key), None, |entry| entry.api_keys = Some(keys));
        let gone = cache.listed(Kind::Secret, None, &BTreeSet::new());
        assert_eq!(gone, [("tools".to_owned(), "one".to_owned())]);
        assert_eq!(cache.listed(Kind::Secret, None, &BTreeSet::new()), []);
    }

    #[test]
    fn what_is_known_of_an_object_is_of_one_version() {
        let cache = ReferenceCache::default();
        uses(&cache, "one", &["a"]);
        uses(&cache, "two", &["a"]);
        let key = key(Kind::Secret, "tools", "a");
        let found = Lookup::Present { keys: Default::default() };
        let keys = ApiKeysLookup::Present(ParsedKeys { keys: vec![], problems: vec![] });
        let look_up = |version: &str| {
            cache.remember(&key, cache.epoch(&key), Some(version.to_owned()), |entry| {
                entry.lookup = Some(known(&found));
            });
        };
        let read_keys = |version: &str| {
            cache.remember(&key, cache.epoch(&key), Some(version.to_owned()), |entry| {
                entry.api_keys = Some(keys.clone());
            });
        };
        look_up("7");
        read_keys("7");
        assert_eq!(lookup(&cache, "a"), Some(found.clone()));
        assert_eq!(cache.seen(Kind::Secret, &metadata("a", "7")), Vec::<String>::new());
        // The object changes, and one answer is read anew before the watch says so.
        read_keys("8");
        assert_eq!(cache.api_keys("tools", "a"), Some(keys.clone()));
        assert_eq!(lookup(&cache, "a"), None, "the answer of before");
        assert_eq!(
            cache.seen(Kind::Secret, &metadata("a", "8")),
            ["one", "two"],
            "those who got the answer of before look again"
        );
        read_keys("8");
        look_up("8");
        assert_eq!(cache.seen(Kind::Secret, &metadata("a", "8")), Vec::<String>::new());
        // The same the other way round.
        look_up("9");
        assert_eq!(cache.api_keys("tools", "a"), None);
    }
}
