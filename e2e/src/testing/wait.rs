//! Waiting for an object to be as it should: by watching it, with a deadline.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Namespace;

/// How long a test waits. A busy machine is slow, not broken; what is tested for speed is measured elsewhere.
pub const PATIENCE: Duration = Duration::from_secs(300);

impl Namespace<'_> {
    /// Waits until the object `name` fulfils `condition`, and returns it as it was then. `what` ends the sentence "was
    /// waiting for NAME …".
    pub async fn wait<K>(&self, api: &Api<K>, name: &str, what: &str, condition: impl Fn(&K) -> bool) -> K
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let mut last = None;
        let found = tokio::time::timeout(PATIENCE, async {
            let mut states = watch(api, name);
            while let Some(state) = states.next().await {
                match state {
                    Ok(Some(object)) if condition(&object) => return Some(object),
                    Ok(state) => last = state,
                    // The watch begins again by itself.
                    Err(_) => {}
                }
            }
            None
        })
        .await;
        match found {
            Ok(Some(object)) => object,
            Ok(None) | Err(_) => panic!(
                "was waiting for {name} {what} for {} s; it was last seen as {}",
                PATIENCE.as_secs(),
                show(last.as_ref())
            ),
        }
    }

    /// Looks at the object `name` for a while, at each state that it has, and fails if one does not fulfil `condition`.
    pub async fn stays<K>(
        &self,
        api: &Api<K>,
        name: &str,
        what: &str,
        time: Duration,
        condition: impl Fn(&K) -> bool,
    ) where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let mut seen = 0;
        let _ = tokio::time::timeout(time, async {
            let mut states = watch(api, name);
            while let Some(state) = states.next().await {
                let Ok(state) = state else { continue };
                seen += 1;
                if !state.as_ref().is_some_and(&condition) {
                    panic!("{name} did not stay {what}: it was seen as {}", show(state.as_ref()));
                }
            }
        })
        .await;
        assert!(seen > 0, "{name} was not seen within {time:?}");
    }

    /// Waits until the object `name` does not exist.
    pub async fn wait_gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
        K::DynamicType: Default,
    {
        let gone = tokio::time::timeout(PATIENCE, async {
            let mut states = watch(api, name);
            while let Some(state) = states.next().await {
                if let Ok(None) = state {
                    return;
                }
            }
        });
        if gone.await.is_err() {
            panic!("was waiting for {name} to go for {} s", PATIENCE.as_secs());
        }
    }
}

/// Every state of an object, `None` while there is none.
fn watch<K>(
    api: &Api<K>,
    name: &str,
) -> std::pin::Pin<Box<dyn futures::Stream<Item = watcher::Result<Option<K>>> + Send>>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    Box::pin(watcher::watch_object(api.clone(), name).default_backoff())
}

fn show<K: Resource + Clone + Serialize>(object: Option<&K>) -> String {
    let Some(object) = object else { return "absent".to_owned() };
    let mut object = object.clone();
    object.managed_fields_mut().clear();
    serde_saphyr::to_string(&object).unwrap_or_else(|error| error.to_string())
}
