//! The cluster's token signing keys, which every sidecar is told.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use arc_swap::ArcSwap;
use kube::Client;
use longshore_sidecar_config::InventoryAccess;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

use super::watches::Triggers;
use crate::api::{self, ApiError};
use crate::mcp_server::context::Context;

/// The time between two tries while the cluster is not ready for the operator.
const RETRY: Duration = Duration::from_secs(2);
/// How long whoever begins to lead is refused keys that it has read before, until it acts with those.
const KNOWN_AFTER: Duration = Duration::from_secs(10);
/// Sidecars that refuse the operator's token make it ask for the keys, at most so often. While those are what they were,
/// the time between two doubles: it is the sidecar that is not as it should be.
const SHORTEST_RENEWAL: Duration = Duration::from_secs(10);
/// It asks for them so often in any case. The kubelet renews each token at a time of its own, so the first that is signed
/// with a new key may be the catalog's, and nobody tells the operator that sidecars refuse that one.
const LONGEST_RENEWAL: Duration = Duration::from_secs(300);

/// Why the cluster's token signing keys are not known.
#[derive(Debug, Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("cannot ask for {path}")]
    Request { path: &'static str, source: http::Error },
    #[error("the answer of {path} is not what it should be: {source}")]
    Answer { path: &'static str, source: serde_json::Error },
}

/// Reads who may read the sidecars' inventories, and tries until it can. Whoever knows them acts with what it knows once it
/// has been refused for a while. For all else it waits: the cluster may have other keys by then, and these come to every
/// sidecar in the place of what it has.
pub(super) async fn inventory_access(
    client: &Client,
    subjects: &[String],
    known: Option<&InventoryAccess>,
) -> InventoryAccess {
    let mut refused_since: Option<Instant> = None;
    loop {
        match read_inventory_access(client, subjects).await {
            Ok(access) => return access,
            Err(error @ Error::Api(ApiError::Refused(_))) => {
                tracing::warn!(
                    %error,
                    "may not read the cluster's token signing keys: bind the ClusterRole \
                     system:service-account-issuer-discovery to the operator's ServiceAccount; waiting for it"
                );
                let since = *refused_since.get_or_insert_with(Instant::now);
                if let Some(known) = known.filter(|_| since.elapsed() >= KNOWN_AFTER) {
                    tracing::warn!("going on with the cluster's token signing keys that were read last");
                    return known.clone();
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the cluster's token signing keys yet; waiting");
                // An API server that has just begun may refuse what it allows a moment later.
                refused_since = None;
            }
        }
        sleep(RETRY).await;
    }
}

/// Waits for something that may take weeks, and reads meanwhile what is known again now and then.
pub(super) async fn keeping_known<T>(
    known: &mut InventoryAccess,
    client: &Client,
    subjects: &[String],
    until: impl Future<Output = T>,
) -> T {
    let keep = async {
        loop {
            sleep(LONGEST_RENEWAL).await;
            match read_inventory_access(client, subjects).await {
                Ok(access) => *known = access,
                Err(error) => tracing::warn!(%error, "cannot read the cluster's token signing keys"),
            }
        }
    };
    tokio::select! {
        done = until => done,
        never = keep => never,
    }
}

/// Reads the keys again now and then, and whenever a sidecar refuses the operator's token, and hands new ones to every
/// sidecar.
pub(super) async fn renew_inventory_access(context: &Context, triggers: &Triggers) -> Infallible {
    let Context { client, settings, inventory_access, inventories, memory, mirrors, .. } = context;
    let hand_out = || memory.servers().iter().for_each(|server| triggers.reconcile(server));
    let is_refused = async || {
        let uid = inventories.unauthorized().await;
        let servers = memory.servers();
        let found = servers.iter().find_map(|server| {
            let pods = mirrors.pods.of_server(server);
            let pod = pods.into_values().find(|pod| pod.uid == uid)?;
            Some(format!("{}/{}", server.namespace, pod.name))
        });
        found.unwrap_or(uid)
    };
    renew(client, &settings.inventory_subjects, inventory_access, is_refused, hand_out).await
}

async fn renew(
    client: &Client,
    subjects: &[String],
    known: &ArcSwap<InventoryAccess>,
    is_refused: impl AsyncFn() -> String,
    hand_out: impl Fn(),
) -> Infallible {
    let mut pause = SHORTEST_RENEWAL;
    // Whose refusals turned out to say nothing of the keys.
    let mut refusers = BTreeSet::new();
    let mut early = None;
    loop {
        let refusal = match early.take() {
            Some(pod) => Ok(pod),
            None => timeout(LONGEST_RENEWAL + SHORTEST_RENEWAL - pause, is_refused()).await,
        };
        match read_inventory_access(client, subjects).await {
            Ok(access) if access != **known.load() => {
                tracing::info!("the cluster's token signing keys have changed");
                known.store(access.into());
                hand_out();
                pause = SHORTEST_RENEWAL;
                refusers.clear();
            }
            Ok(_) => match refusal {
                Ok(pod) => {
                    tracing::warn!(
                        pod = pod.as_str(),
                        "a sidecar refuses the operator's token, although it should know the key"
                    );
                    pause = (pause * 2).min(LONGEST_RENEWAL);
                    refusers.insert(pod);
                }
                Err(_) => {
                    pause = SHORTEST_RENEWAL;
                    refusers.clear();
                }
            },
            Err(error) => tracing::warn!(%error, "cannot read the cluster's token signing keys"),
        }
        sleep(SHORTEST_RENEWAL).await;
        // When the keys are others, all refuse.
        let another = async {
            loop {
                let pod = is_refused().await;
                if !refusers.contains(&pod) {
                    return pod;
                }
                sleep(SHORTEST_RENEWAL).await;
            }
        };
        early = timeout(pause - SHORTEST_RENEWAL, another).await.ok();
    }
}

async fn read_inventory_access(client: &Client, subjects: &[String]) -> Result<InventoryAccess, Error> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
    }
    let Discovery { issuer } = get(client, "/.well-known/openid-configuration").await?;
    let mut jwks: serde_json::Value = get(client, "/openid/v1/jwks").await?;
    // In an order of their own: with another one each sidecar would get another configuration.
    if let Some(keys) = jwks.get_mut("keys").and_then(serde_json::Value::as_array_mut) {
        keys.sort_by_cached_key(|key| key.get("kid").map(ToString::to_string));
    }
    let mut subjects = subjects.to_vec();
    subjects.sort();
    subjects.dedup();
    Ok(InventoryAccess { issuer, subjects, jwks })
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &'static str) -> Result<T, Error> {
    let request =
        http::Request::get(path).body(Vec::new()).map_err(|source| Error::Request { path, source })?;
    let text = api::call(client.request_text(request)).await?;
    serde_json::from_str(&text).map_err(|source| Error::Answer { path, source })
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::routing::get;
    use kube::client::ClientBuilder;
    use serde_json::{Value, json};

    use super::*;

    const PERIOD: Duration = LONGEST_RENEWAL.saturating_add(SHORTEST_RENEWAL);

    /// A cluster, how many keys its tokens have, and how often it was asked for them.
    fn cluster() -> (Client, Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (keys, asked) = (Arc::new(AtomicUsize::new(3)), Arc::new(AtomicUsize::new(0)));
        let (count, asking) = (keys.clone(), asked.clone());
        let jwks = async move || {
            let mut keys: Vec<_> = (0..count.load(Ordering::Relaxed)).map(|id| json!({"kid": id})).collect();
            // Each API server has its own order.
            let first = asking.fetch_add(1, Ordering::Relaxed) % keys.len();
            keys.rotate_left(first);
            axum::Json(json!({ "keys": keys }))
        };
        let discovery = async || axum::Json(json!({"issuer": "https://issuer"}));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/openid/v1/jwks", get(jwks));
        (ClientBuilder::new(router, "tools").build(), keys, asked)
    }

    /// What is handed out meanwhile.
    async fn renewed(
        client: &Client,
        is_refused: impl AsyncFn() -> String,
        handed_out: &RefCell<Vec<Value>>,
    ) -> Infallible {
        let known = ArcSwap::from_pointee(inventory_access(client, &[], None).await);
        let hand_out = || handed_out.borrow_mut().push(known.load().jwks.clone());
        renew(client, &[], &known, is_refused, hand_out).await
    }

    /// Keys that the cluster had once.
    fn known() -> InventoryAccess {
        InventoryAccess { issuer: "https://issuer".to_owned(), subjects: Vec::new(), jwks: json!(7) }
    }

    /// An API server that answers like this for a while, and then as in [`cluster`].
    fn once_it_has_answered(status: http::StatusCode, during: Duration) -> Client {
        let (client, _, _) = cluster();
        let began = Instant::now();
        let answer = async move |request: axum::extract::Request| {
            if began.elapsed() < during {
                return (status, String::new());
            }
            let request = http::Request::get(request.uri().path()).body(Vec::new()).unwrap();
            (http::StatusCode::OK, client.request_text(request).await.unwrap())
        };
        ClientBuilder::new(Router::new().fallback(answer), "tools").build()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_begins_to_lead_acts_with_the_keys_that_it_knows_where_it_may_not_read_them_any_more() {
        for (status, lasts, with_known) in [
            (http::StatusCode::FORBIDDEN, 0, false),
            (http::StatusCode::FORBIDDEN, 5, false),
            (http::StatusCode::FORBIDDEN, 3600, true),
            // It is away, and says nothing of what it allows.
            (http::StatusCode::SERVICE_UNAVAILABLE, 30, false),
            (http::StatusCode::TOO_MANY_REQUESTS, 3600, false),
        ] {
            let client = once_it_has_answered(status, Duration::from_secs(lasts));
            let access = inventory_access(&client, &[], Some(&known())).await;
            assert_eq!(access == known(), with_known, "{status} for {lasts} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stands_by_for_long_knows_the_keys_that_there_are() {
        let (client, keys, _) = cluster();
        let mut known = known();
        let expected = async |count| {
            keys.store(count, Ordering::Relaxed);
            inventory_access(&client, &[], None).await
        };
        for count in [3, 4] {
            let expected = expected(count).await;
            keeping_known(&mut known, &client, &[], sleep(PERIOD)).await;
            assert_eq!(known, expected);
        }
        // What cannot be read any more stays.
        let before = known.clone();
        let away = once_it_has_answered(http::StatusCode::FORBIDDEN, PERIOD * 3);
        assert_eq!(
            keeping_known(&mut known, &away, &[], async {
                sleep(PERIOD * 2).await;
                7
            })
            .await,
            7
        );
        assert_eq!(known, before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sidecar_that_refuses_for_ever_costs_little_and_hides_no_new_keys() {
        let (client, keys, asked) = cluster();
        let handed_out = RefCell::default();
        let refuses = async || "tools/demo-1".to_owned();
        let mut renewing = Box::pin(renewed(&client, refuses, &handed_out));
        let mut asks = async |time: Duration| {
            let before = asked.load(Ordering::Relaxed);
            assert!(timeout(time, &mut renewing).await.is_err());
            asked.load(Ordering::Relaxed) - before
        };
        // At the start, then after 0, 20, 60, 140, 300 seconds, and then every 300.
        assert_eq!(asks(Duration::from_secs(130)).await, 1 + 3);
        assert_eq!(asks(Duration::from_secs(3600)).await, 13);
        keys.store(4, Ordering::Relaxed);
        asks(PERIOD).await;
        assert_eq!(handed_out.borrow().len(), 1);
        // They were not what they had been: it begins anew.
        keys.store(5, Ordering::Relaxed);
        asks(Duration::from_secs(30)).await;
        assert_eq!(handed_out.borrow().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn new_keys_are_found_at_once_beside_a_sidecar_that_refuses_for_ever() {
        let (client, keys, _) = cluster();
        let handed_out = RefCell::default();
        let all_refuse = Cell::new(false);
        let refuses = async || {
            sleep(Duration::from_secs(5)).await;
            if all_refuse.get() { "tools/other-1" } else { "tools/demo-1" }.to_owned()
        };
        let mut renewing = Box::pin(renewed(&client, refuses, &handed_out));
        assert!(timeout(Duration::from_secs(1000), &mut renewing).await.is_err());
        keys.store(4, Ordering::Relaxed);
        all_refuse.set(true);
        assert!(timeout(SHORTEST_RENEWAL * 3, &mut renewing).await.is_err());
        assert_eq!(handed_out.borrow().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn new_keys_are_found_though_no_sidecar_refuses_anything() {
        let (client, keys, _) = cluster();
        let handed_out = RefCell::default();
        let mut renewing = Box::pin(renewed(&client, pending, &handed_out));

        assert!(timeout(PERIOD * 3, &mut renewing).await.is_err());
        assert_eq!(handed_out.borrow().len(), 0, "they are what they were");
        keys.store(4, Ordering::Relaxed);
        assert!(timeout(PERIOD * 3, &mut renewing).await.is_err());
        assert_eq!(handed_out.borrow().len(), 1);
        let keys = json!({"keys": [{"kid": 0}, {"kid": 1}, {"kid": 2}, {"kid": 3}]});
        assert_eq!(handed_out.borrow()[0], keys);
    }
}
