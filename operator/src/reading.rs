//! How objects are read that others write: what one costs is in proportion to what it weighs.
//!
//! Trees of values are not. Each `{"a":1}` of a text would be a map with room for eleven, a hundred times as large. So
//! none is made of what nobody here looks at, nor of a whole object that may yet turn out to be unreadable: it is read
//! from its text.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use longshore_crds::{McpServer, McpServerStatus};
use serde::de::{DeserializeOwned, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// So many labels, annotations, finalizers or owners an object may have. Of one with more, which is none of Longshore's, none
/// is read, but for a finalizer.
const MOST_ENTRIES: usize = 1024;

/// An object without its managed fields. They are a tree of the names of all fields, and nobody here reads them.
#[derive(Clone, Debug)]
pub(crate) struct Lean<K>(pub(crate) K);

/// An `McpServer` that may be unreadable: one such must not stop the watch of all the others. (kube's `DeserializeGuard` does
/// that too, and reads a whole tree first.)
#[derive(Clone, Debug)]
pub(crate) struct MaybeUnreadable(pub Result<McpServer, Unreadable>);

/// What is known of an object that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    /// Why it cannot be.
    pub error: String,
    /// Which object it is.
    pub metadata: ObjectMeta,
    /// How many pods it is to have, if that much can be read.
    pub replicas: Option<u32>,
    /// The status that it has, if that can be read: an operator that has just begun to lead knows no other.
    pub status: Option<McpServerStatus>,
}

// === impl MaybeUnreadable ===

impl MaybeUnreadable {
    /// The status that was seen on it, whether or not the rest can be read.
    pub(crate) fn status(&self) -> Option<&McpServerStatus> {
        self.0.as_ref().map_or_else(|unreadable| unreadable.status.as_ref(), |server| server.status.as_ref())
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        serde_json::from_str(&lean(text.get())).map(Self).map_err(D::Error::custom)
    }
}

impl<'de> Deserialize<'de> for MaybeUnreadable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object<'a> {
            metadata: ObjectMeta,
            #[serde(borrow, default)]
            spec: Option<&'a RawValue>,
            #[serde(borrow, default)]
            status: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Spec {
            replicas: u32,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(text.get()) {
            Ok(server) => Ok(Self(Ok(server))),
            Err(error) => {
                let Object { metadata, spec, status } =
                    serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                let spec = spec.and_then(|spec| serde_json::from_str::<Spec>(spec.get()).ok());
                let status = status.and_then(|status| serde_json::from_str(status.get()).ok());
                let error = error.to_string();
                // Where that is in the API server's own text helps nobody.
                let error = error.rsplit_once(" at line ").map_or(error.as_str(), |(words, _)| words);
                let replicas = spec.map(|spec| spec.replicas);
                Ok(Self(Err(Unreadable { error: error.to_owned(), metadata, replicas, status })))
            }
        }
    }
}

/// The parts of an object's text that are read without a bound otherwise.
#[derive(Default, Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
    #[serde(borrow)]
    labels: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    owner_references: Option<&'a RawValue>,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
}

/// An object's text without what is too much of it.
fn lean(text: &str) -> Cow<'_, str> {
    // What has no such parts is refused by whoever wants to read it.
    let outline: Outline<'_> = serde_json::from_str(text).unwrap_or_default();
    let Metadata { managed_fields, labels, annotations, owner_references, finalizers } =
        outline.metadata.unwrap_or_default();
    let too_many = |entries: &&RawValue| {
        serde_json::from_str(entries.get()).is_ok_and(|Entries { count, .. }| count > MOST_ENTRIES)
    };
    let left_out = [
        managed_fields,
        labels.filter(too_many),
        annotations.filter(too_many),
        owner_references.filter(too_many),
    ];
    let mut parts: Vec<_> =
        left_out.into_iter().flatten().map(|part| (part, Cow::Borrowed("null"))).collect();
    if let Some(finalizers) = finalizers.filter(too_many) {
        // One is enough to keep the object. Kubernetes' own are the last ones, as it adds them when the object is to go.
        let last = serde_json::from_str(finalizers.get()).ok().and_then(|Entries { last, .. }| last);
        parts.push((finalizers, last.map_or(Cow::Borrowed("null"), |last| Cow::Owned(format!("[{last}]")))));
    }
    let mut text = Cow::Borrowed(text);
    let start = text.as_ptr().addr();
    let mut parts: Vec<_> = parts
        .into_iter()
        .map(|(part, left)| (part.get().as_ptr().addr() - start, part.get().len(), left))
        .collect();
    // From the end on, since what follows a part moves when it goes.
    parts.sort_unstable();
    for (at, length, left) in parts.into_iter().rev() {
        text.to_mut().replace_range(at..at + length, &left);
    }
    text
}

/// How many entries a map or a list has, and the last one of a list.
struct Entries<'a> {
    count: usize,
    last: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl<'de> Visitor<'de> for Count {
            type Value = Entries<'de>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a map or a list")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Entries { count, last: None })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries<'de>, A::Error> {
                let (mut count, mut last) = (0, None);
                while let Some(entry) = list.next_element::<&RawValue>()? {
                    count += 1;
                    last = Some(entry);
                }
                Ok(Entries { count, last })
            }
        }
        deserializer.deserialize_any(Count)
    }
}

impl<K: Resource> Resource for Lean<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl Resource for MaybeUnreadable {
    type DynamicType = ();
    type Scope = <McpServer as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        McpServer::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        McpServer::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        McpServer::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        McpServer::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, Resource::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, Resource::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt as _;
    use kube::core::{ObjectList, PartialObjectMeta, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: &Value, spec: &Value) -> Value {
        let mut object = json!({"metadata": {"name": "demo", "namespace": "tools"}, "spec": spec});
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        object
    }

    fn spec(more: &Value) -> Value {
        let mut spec = json!({"source": {"image": "x"}, "transport": {"stdio": {}}, "auth": {"none": {}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    }

    /// As the API server writes lists and watches.
    fn read<K: DeserializeOwned + Clone>(object: &Value) -> [K; 2] {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [object]}).to_string();
        let list: ObjectList<Lean<K>> = serde_json::from_str(&list).unwrap();
        let watched = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let WatchEvent::Added(watched) = serde_json::from_str(&watched).unwrap() else { panic!() };
        let [listed] = <[Lean<K>; 1]>::try_from(list.items).ok().unwrap();
        [listed, watched].map(|Lean(object)| object)
    }

    #[test]
    fn an_object_comes_without_what_nobody_reads_and_with_all_the_rest() {
        let fields = json!([{"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:labels": {}}}}]);
        let many: BTreeMap<String, String> = (0..=MOST_ENTRIES)
            .map(|number| (format!("a{number}"), "\"managedFields\":[]".to_owned()))
            .collect();
        let few = json!({"managedFields": "[]", "a": "null"});
        for (metadata, labels, annotations) in [
            (json!({"managedFields": fields, "labels": few, "annotations": few, "uid": "é"}), 2, 2),
            (json!({"labels": few, "annotations": many, "managedFields": fields, "uid": "é"}), 2, 0),
            (json!({"labels": many, "annotations": many, "uid": "é"}), 0, 0),
        ] {
            for read in read::<PartialObjectMeta<ConfigMap>>(&object(&metadata, &json!({}))) {
                assert_eq!((read.name_any(), read.uid()), ("demo".to_owned(), Some("é".to_owned())));
                assert_eq!(read.metadata.managed_fields, None);
                assert_eq!((read.labels().len(), read.annotations().len()), (labels, annotations));
            }
        }
    }

    #[test]
    fn of_too_many_finalizers_the_last_is_read_and_of_too_many_owners_none() {
        let named = |count: usize| (0..count).map(|number| format!("a/b{number}")).collect::<Vec<_>>();
        let owners = |count: usize| {
            let owner = |name: String| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "1"});
            named(count).into_iter().map(owner).collect::<Vec<_>>()
        };
        let mut going = named(MOST_ENTRIES);
        going.push("orphan".to_owned());
        for (finalizers, owned_by, read_finalizers, read_owners) in [
            (named(2), owners(2), named(2), 2),
            (named(MOST_ENTRIES), owners(MOST_ENTRIES), named(MOST_ENTRIES), MOST_ENTRIES),
            (going, owners(MOST_ENTRIES + 1), vec!["orphan".to_owned()], 0),
        ] {
            let metadata = json!({"finalizers": finalizers, "ownerReferences": owned_by, "uid": "é"});
            for read in read::<PartialObjectMeta<ConfigMap>>(&object(&metadata, &json!({}))) {
                assert_eq!(read.uid(), Some("é".to_owned()));
                assert_eq!(read.finalizers(), read_finalizers);
                assert_eq!(read.owner_references().len(), read_owners);
            }
        }
    }

    #[test]
    fn the_status_of_a_server_that_cannot_be_read_is_what_it_was() {
        let good = json!({"observedGeneration": 3, "url": "http://demo.tools.svc/mcp", "conditions": []});
        for (spec, status, expected) in [
            (spec(&json!({})), good.clone(), true),
            (json!("x"), good, true),
            (json!("x"), json!({"observedGeneration": "x"}), false),
            (json!("x"), json!(null), false),
        ] {
            let mut object = object(&json!({}), &spec);
            object["status"] = status;
            for server in read::<MaybeUnreadable>(&object) {
                let seen = server.status().and_then(|status| status.url.as_deref());
                assert_eq!(seen, expected.then_some("http://demo.tools.svc/mcp"), "{object}");
            }
        }
    }

    #[test]
    fn a_server_that_cannot_be_read_is_known_by_its_metadata() {
        let deep = (0..200).fold(json!({}), |deep, _| json!({"a": deep}));
        for (spec, expected, replicas) in [
            (spec(&json!({})), None, None),
            (spec(&json!({"replicas": "two"})), Some("invalid type: string \"two\", expected u32"), None),
            (spec(&json!({"replicas": null})), Some("invalid type: null, expected u32"), None),
            (
                spec(&json!({"pod": {"overrides": deep}, "replicas": 2})),
                Some("recursion limit exceeded"),
                Some(2),
            ),
            (
                spec(&json!({"pod": {"overrides": {"spec": {"$serde_json::private::RawValue": "{}"}}}})),
                Some(r#"no field may be called "$serde_json::private::RawValue""#),
                None,
            ),
            (
                json!({"replicas": 0, "source": "x"}),
                Some("invalid type: string \"x\", expected struct Source"),
                Some(0),
            ),
            (json!("x"), Some("invalid type: string \"x\", expected struct McpServerSpec"), None),
            // What a later release has may take something away.
            (
                spec(
                    &json!({"access": {"rules": [{"name": "a", "tools": ["*"], "when": "x"}]}, "replicas": 2}),
                ),
                Some(
                    "unknown field `when`, expected one of `name`, `principals`, `tools`, `prompts`, `resources`",
                ),
                Some(2),
            ),
            (
                spec(&json!({"auth": {"none": {"from": []}}})),
                Some("unknown field `from`, there are no fields"),
                None,
            ),
            (
                spec(&json!({"tools": {"readOnly": true}})),
                Some("unknown field `readOnly`, expected `include` or `exclude`"),
                None,
            ),
        ] {
            for server in read::<MaybeUnreadable>(&object(&json!({}), &spec)) {
                assert_eq!(
                    (server.name_any(), server.namespace().as_deref()),
                    ("demo".to_owned(), Some("tools"))
                );
                let unreadable = server.0.err();
                assert_eq!(unreadable.as_ref().and_then(|it| it.replicas), replicas, "{expected:?}");
                assert_eq!(unreadable.map(|unreadable| unreadable.error).as_deref(), expected);
            }
        }
    }
}
