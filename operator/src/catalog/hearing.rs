//! Watches of what is in the cluster, and whether all of them are heard.
//!
//! A watch that failed would go on where it ended and say nothing until something changes, so nobody could tell whether
//! it is heard again. Here it begins anew instead: its list, once complete, is the proof.

mod watches;

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use longshore_catalog::Catalog;
use longshore_sidecar_client::jittered;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tower::timeout::TimeoutLayer;

use crate::reasons::sentence;
use crate::scope::{self, Scope};
use watches::{Name, Watches, Word};

/// How long a page of a list may take. `kube` itself would wait for ever.
const PAGE_WITHIN: Duration = Duration::from_secs(10);
/// How long any answer may take to begin. A watch says nothing until something happens, so nobody would notice that it
/// never began.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);
/// A watch begins anew after this, which doubles while it keeps failing: each time costs a whole list.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// A watch that has not failed for so long is a good one.
const GOOD: Duration = Duration::from_secs(60);
/// What is refused for so long stays so until somebody grants it. An API server that has just started refuses for a
/// moment what it has not read yet that it may grant.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// What a client has to have whose watches are heard here.
pub(super) fn patience() -> TimeoutLayer {
    TimeoutLayer::new(BEGINS_WITHIN)
}

/// Tells the catalog while it may be out of date: while any of the watches is not heard. Cheap to clone.
#[derive(Clone)]
pub(super) struct Hearing {
    catalog: Catalog,
    watches: watch::Sender<Watches>,
}

struct Watch<K: 'static> {
    hearing: Hearing,
    name: Name,
    api: Api<K>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    state: State,
    retry: Retry,
    /// Since when the API server refuses each of its lists.
    refused: Option<Instant>,
}

/// What is known of a watch.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The next event does not depend on anything happening: it is of a list.
    Listing,
    /// It is heard, and its reader has not yet read what it said last.
    Heard,
    /// It is heard.
    Waiting,
}

struct Retry {
    next: Duration,
    failed: Instant,
}

// === impl Hearing ===

impl Hearing {
    pub(super) fn new(catalog: Catalog) -> Self {
        Self { catalog, watches: watch::Sender::default() }
    }

    /// Waits until all watches that there are have been heard once, but for those of namespaces that grant none.
    pub(super) async fn begun(&self) {
        // The sender lives as long as this.
        let _ = self.watches.subscribe().wait_for(Watches::have_begun).await;
    }

    /// What there is of a kind, and what becomes of it, without end.
    pub(super) fn events<K>(
        &self,
        client: &Client,
        scope: &Scope,
        config: watcher::Config,
    ) -> impl Stream<Item = Event<K>> + use<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug
            + Send
            + 'static,
    {
        let api = scope::api::<K>(client, scope);
        let name = (K::plural(&()).into_owned(), scope.clone());
        self.watches.send_modify(|watches| watches.add(name.clone()));
        let watch = Watch {
            hearing: self.clone(),
            name,
            events: watcher(api.clone(), config.clone()).boxed(),
            api,
            config,
            state: State::Listing,
            retry: Retry { next: FIRST_RETRY, failed: Instant::now() },
            refused: None,
        };
        stream::unfold(watch, |mut watch| async move { Some((watch.next().await, watch)) })
    }

    fn tell(&self, watch: &Name, word: Word) {
        self.watches.send_if_modified(|watches| {
            let was_out = watches.is_out(&watch.1);
            let news = watches.enter(watch, word);
            if news {
                self.catalog.set_stale(watches.are_stale());
            }
            if !was_out && watches.is_out(&watch.1) {
                let namespace = watch.1.as_deref().unwrap_or_default();
                tracing::warn!(
                    namespace,
                    "nothing in the namespace may be listed: it is left out until that is granted"
                );
            }
            news
        });
    }
}

// === impl Watch ===

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Event<K> {
        if self.state == State::Heard {
            self.hearing.tell(&self.name, Word::Heard);
            self.state = State::Waiting;
            self.refused = None;
        }
        loop {
            let event = match self.state {
                State::Listing => timeout(PAGE_WITHIN, self.events.next()).await,
                State::Heard | State::Waiting => Ok(self.events.next().await),
            };
            let (kind, namespace) = (&self.name.0, self.name.1.as_deref().unwrap_or_default());
            let is_refused = matches!(&event, Ok(Some(Err(error))) if is_refusal(error));
            match event {
                Ok(Some(Ok(event))) => {
                    self.state = match event {
                        Event::Init | Event::InitApply(_) => State::Listing,
                        Event::InitDone | Event::Apply(_) | Event::Delete(_) => State::Heard,
                    };
                    return event;
                }
                Ok(Some(Err(error))) => {
                    tracing::warn!(
                        error = sentence(&error),
                        kind,
                        namespace,
                        "a watch failed and starts again"
                    )
                }
                Ok(None) => tracing::warn!(kind, namespace, "a watch ended and starts again"),
                Err(_) => {
                    tracing::warn!(kind, namespace, "the API server does not answer; a watch starts again")
                }
            }
            let now = Instant::now();
            self.refused = is_refused.then(|| self.refused.unwrap_or(now));
            let word = match self.refused {
                Some(since) if now - since >= REFUSED_FOR => {
                    Word::Refused { lists: self.hearing.catalog.lists(namespace) }
                }
                _ => Word::Failed,
            };
            self.hearing.tell(&self.name, word);
            sleep(jittered(self.retry.after(Instant::now()))).await;
            self.events = watcher(self.api.clone(), self.config.clone()).boxed();
            self.state = State::Listing;
        }
    }
}

/// Whether the API server says that this may not be listed.
fn is_refusal(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 403)
}

// === impl Retry ===

impl Retry {
    /// How long to wait after a failure now.
    fn after(&mut self, now: Instant) -> Duration {
        if now - self.failed > GOOD {
            self.next = FIRST_RETRY;
        }
        self.failed = now;
        let wait = self.next;
        self.next = (wait * 2).min(LAST_RETRY);
        wait
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::body::{Body, Bytes};
    use axum::extract::Query;
    use axum::response::{IntoResponse as _, Response};
    use futures::FutureExt as _;
    use futures::future::join;
    use http::StatusCode;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::ClientBuilder;
    use longshore_catalog::Metrics;
    use serde_json::json;

    use super::*;

    /// When an API server ends a watch, as each does after some minutes.
    const WATCHED_FOR: Duration = Duration::from_secs(300);

    /// What an API server does with a list, and with a watch.
    #[derive(Clone, Copy, Debug)]
    enum Does {
        Answer,
        /// With this status.
        Refuse(u16),
        Hang,
    }

    #[derive(Clone)]
    struct ApiServer {
        does: Arc<Mutex<(Does, Does)>>,
        lists: Arc<AtomicUsize>,
    }

    impl ApiServer {
        fn that(list: Does, watch: Does) -> Self {
            Self { does: Arc::new(Mutex::new((list, watch))), lists: Arc::default() }
        }

        fn client(&self) -> Client {
            let server = self.clone();
            let answer = move |query: Query<HashMap<String, String>>| async move {
                server.answer(query.contains_key("watch")).await
            };
            ClientBuilder::new(Router::new().fallback(answer), "tools").with_layer(&patience()).build()
        }

        async fn answer(&self, is_watch: bool) -> Response {
            let (list, watch) = *self.does.lock().unwrap();
            if !is_watch {
                self.lists.fetch_add(1, Ordering::Relaxed);
            }
            match if is_watch { watch } else { list } {
                // A watch says something when something happens, and nothing does, until it ends.
                Does::Answer if is_watch => {
                    let end = sleep(WATCHED_FOR).map(|()| Ok::<_, Infallible>(Bytes::new()));
                    Body::from_stream(stream::once(end)).into_response()
                }
                Does::Hang => std::future::pending().await,
                Does::Answer => axum::Json(json!({
                    "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"},
                    "items": [{"metadata": {"name": "x", "namespace": "tools", "resourceVersion": "1"}}],
                }))
                .into_response(),
                Does::Refuse(code) => {
                    let status = json!({
                        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no",
                        "reason": "", "code": code,
                    });
                    (StatusCode::from_u16(code).unwrap(), axum::Json(status)).into_response()
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_never_begins_starts_again() {
        let (catalog, _indexer) = Catalog::new(Metrics::new().unwrap());
        let server = ApiServer::that(Does::Answer, Does::Hang);
        let hearing = Hearing::new(catalog.clone());
        let config = watcher::Config::default();
        let events = hearing.events::<ConfigMap>(&server.client(), &Some("one".to_owned()), config);
        let mut reading = Box::pin(events.for_each(|_| std::future::ready(())));
        let lists = || server.lists.load(Ordering::Relaxed);
        assert!(timeout(BEGINS_WITHIN * 4, &mut reading).await.is_err());
        assert!((3..=5).contains(&lists()), "{} lists", lists());
        *server.does.lock().unwrap() = (Does::Answer, Does::Answer);
        assert!(timeout(BEGINS_WITHIN * 2, &mut reading).await.is_err());
        let before = lists();
        assert!(timeout(BEGINS_WITHIN * 8, &mut reading).await.is_err());
        assert_eq!((lists(), catalog.stale_since()), (before, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_catalog_is_stale_while_any_watch_is_not_heard() {
        use Does::{Answer, Hang, Refuse};
        for (list, watch, most_lists) in
            [(Answer, Answer, 1), (Refuse(429), Answer, 20), (Hang, Answer, 12), (Answer, Refuse(429), 20)]
        {
            let (catalog, _indexer) = Catalog::new(Metrics::new().unwrap());
            let hearing = Hearing::new(catalog.clone());
            let (one, other) = (ApiServer::that(list, watch), ApiServer::that(Answer, Answer));
            let events = |server: &ApiServer, scope: &str| {
                let config = watcher::Config::default();
                let events = hearing.events::<ConfigMap>(&server.client(), &Some(scope.to_owned()), config);
                events.for_each(|_| std::future::ready(()))
            };
            let mut reading = Box::pin(join(events(&one, "one"), events(&other, "other")));
            let minutes = Duration::from_secs(120);
            assert!(timeout(minutes, &mut reading).await.is_err());
            let is_good = matches!((list, watch), (Answer, Answer));
            assert_eq!(catalog.stale_since().is_none(), is_good, "{list:?} {watch:?}");
            let lists = one.lists.load(Ordering::Relaxed);
            assert!(lists <= most_lists, "{list:?} {watch:?}: {lists} lists");

            *one.does.lock().unwrap() = (Answer, Answer);
            assert!(timeout(minutes, &mut reading).await.is_err());
            assert_eq!(catalog.stale_since(), None, "after {list:?} {watch:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_may_not_be_listed_is_not_waited_for_and_comes_when_it_may() {
        use Does::{Answer, Hang, Refuse};
        for (scope, list, begins) in [
            (Some("gone"), Refuse(403), true),
            (Some("gone"), Refuse(429), false),
            (Some("gone"), Hang, false),
            (None, Refuse(403), false),
        ] {
            let (catalog, _indexer) = Catalog::new(Metrics::new().unwrap());
            let hearing = Hearing::new(catalog.clone());
            let (gone, here) = (ApiServer::that(list, Answer), ApiServer::that(Answer, Answer));
            let listed = AtomicUsize::new(0);
            let events = |server: &ApiServer, scope: Option<&str>| {
                let scope = scope.map(str::to_owned);
                let events =
                    hearing.events::<ConfigMap>(&server.client(), &scope, watcher::Config::default());
                events.for_each(|event| {
                    if matches!(event, Event::InitApply(_)) {
                        listed.fetch_add(1, Ordering::Relaxed);
                    }
                    std::future::ready(())
                })
            };
            let mut reading = Box::pin(join(events(&gone, scope), events(&here, Some("here"))));
            let minute = Duration::from_secs(60);
            let began = tokio::select! {
                begun = timeout(minute, hearing.begun()) => begun.is_ok(),
                _ = &mut reading => false,
            };
            assert_eq!(began, begins, "{scope:?} {list:?}");
            assert_eq!(catalog.stale_since().is_none(), begins, "{scope:?} {list:?}");

            *gone.does.lock().unwrap() = (Answer, Answer);
            assert!(timeout(minute, &mut reading).await.is_err());
            assert_eq!(listed.load(Ordering::Relaxed), 2, "{scope:?} {list:?}");
            hearing.begun().await;
            assert_eq!(catalog.stale_since(), None, "{scope:?} {list:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_goes_after_its_servers_leaves_nothing_out_of_date() {
        let (catalog, _indexer) = Catalog::new(Metrics::new().unwrap());
        let hearing = Hearing::new(catalog.clone());
        let server = ApiServer::that(Does::Answer, Does::Answer);
        let config = watcher::Config::default();
        let events = hearing.events::<ConfigMap>(&server.client(), &Some("one".to_owned()), config);
        let mut reading = Box::pin(events.for_each(|_| std::future::ready(())));
        for (does, stale) in [(Does::Answer, false), (Does::Refuse(503), true), (Does::Refuse(403), false)] {
            *server.does.lock().unwrap() = (does, does);
            assert!(timeout(WATCHED_FOR * 2, &mut reading).await.is_err());
            assert_eq!(catalog.stale_since().is_some(), stale, "{does:?}");
        }
    }
}
