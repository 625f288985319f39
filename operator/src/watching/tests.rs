//! Watches of an API server that does not do as it should.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Query;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use futures::future::join;
use http::{StatusCode, Uri};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
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
    /// Begin the answer and say nothing more: its machine is gone.
    FallSilent,
}

#[derive(Clone)]
struct ApiServer {
    does: Arc<Mutex<(Does, Does)>>,
    lists: Arc<AtomicUsize>,
    watches: Arc<AtomicUsize>,
}

impl ApiServer {
    fn that(list: Does, watch: Does) -> Self {
        Self { does: Arc::new(Mutex::new((list, watch))), lists: Arc::default(), watches: Arc::default() }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let answer = move |query: Query<HashMap<String, String>>| async move {
            server.answer(query.contains_key("watch")).await
        };
        ClientBuilder::new(Router::new().fallback(answer), "tools").with_layer(&patience()).build()
    }

    async fn answer(&self, is_watch: bool) -> Response {
        let (list, watch) = *self.does.lock();
        let asked = if is_watch { &self.watches } else { &self.lists };
        asked.fetch_add(1, Ordering::Relaxed);
        match if is_watch { watch } else { list } {
            // A watch says something when something happens, and nothing does, until it ends.
            Does::Answer if is_watch => {
                let end = sleep(WATCHED_FOR).map(|()| Ok::<_, Infallible>(Bytes::new()));
                Body::from_stream(stream::once(end)).into_response()
            }
            Does::Hang => std::future::pending().await,
            Does::FallSilent => {
                Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()).into_response()
            }
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

/// Whether it was told that what it knows may be out of date. It knows nothing.
#[derive(Default)]
struct Listener(AtomicBool);

impl Listener {
    fn is_stale(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Audience for Listener {
    fn set_stale(&self, stale: bool) {
        self.0.store(stale, Ordering::Relaxed);
    }

    fn knows(&self, _namespace: &str) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_begins_starts_again() {
    let listener = Arc::<Listener>::default();
    let server = ApiServer::that(Does::Answer, Does::Hang);
    let watching = Watching::new(listener.clone());
    let config = watcher::Config::default();
    let events = watching.events::<ConfigMap>(&server.client(), &Some("one".to_owned()), config);
    let mut reading = Box::pin(events.for_each(|_| std::future::ready(())));
    let lists = || server.lists.load(Ordering::Relaxed);
    assert!(timeout(BEGINS_WITHIN * 4, &mut reading).await.is_err());
    assert!((3..=5).contains(&lists()), "{} lists", lists());
    *server.does.lock() = (Does::Answer, Does::Answer);
    assert!(timeout(BEGINS_WITHIN * 2, &mut reading).await.is_err());
    let before = lists();
    assert!(timeout(BEGINS_WITHIN * 8, &mut reading).await.is_err());
    assert_eq!((lists(), listener.is_stale()), (before, false));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_goes_on_elsewhere() {
    let listener = Arc::<Listener>::default();
    let server = ApiServer::that(Does::Answer, Does::FallSilent);
    let watching = Watching::new(listener.clone());
    let events = watching.events::<ConfigMap>(&server.client(), &None, scope::owned());
    let mut reading = Box::pin(events.for_each(|_| std::future::ready(())));
    assert!(timeout(Duration::from_secs(300), &mut reading).await.is_err());
    let asked = [&server.lists, &server.watches].map(|count| count.load(Ordering::Relaxed));
    assert!(asked[0] == 1 && asked[1] >= 8, "{asked:?} lists and watches in five minutes");
    assert!(!listener.is_stale(), "all that it missed is told when it goes on");
}

#[tokio::test(start_paused = true)]
async fn whoever_listens_is_told_while_any_watch_is_not_heard() {
    use Does::{Answer, Hang, Refuse};
    for (list, watch, most_lists) in
        [(Answer, Answer, 1), (Refuse(429), Answer, 20), (Hang, Answer, 12), (Answer, Refuse(429), 20)]
    {
        let listener = Arc::<Listener>::default();
        let watching = Watching::new(listener.clone());
        let (one, other) = (ApiServer::that(list, watch), ApiServer::that(Answer, Answer));
        let events = |server: &ApiServer, scope: &str| {
            let config = watcher::Config::default();
            let events = watching.events::<ConfigMap>(&server.client(), &Some(scope.to_owned()), config);
            events.for_each(|_| std::future::ready(()))
        };
        let mut reading = Box::pin(join(events(&one, "one"), events(&other, "other")));
        let minutes = Duration::from_secs(120);
        assert!(timeout(minutes, &mut reading).await.is_err());
        let is_good = matches!((list, watch), (Answer, Answer));
        assert_eq!(!listener.is_stale(), is_good, "{list:?} {watch:?}");
        let lists = one.lists.load(Ordering::Relaxed);
        assert!(lists <= most_lists, "{list:?} {watch:?}: {lists} lists");

        *one.does.lock() = (Answer, Answer);
        assert!(timeout(minutes, &mut reading).await.is_err());
        assert!(!listener.is_stale(), "after {list:?} {watch:?}");
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
        let listener = Arc::<Listener>::default();
        let watching = Watching::new(listener.clone());
        let (gone, here) = (ApiServer::that(list, Answer), ApiServer::that(Answer, Answer));
        let listed = AtomicUsize::new(0);
        let events = |server: &ApiServer, scope: Option<&str>| {
            let scope = scope.map(str::to_owned);
            let events = watching.events::<ConfigMap>(&server.client(), &scope, watcher::Config::default());
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
            begun = timeout(minute, watching.begun()) => begun.is_ok(),
            _ = &mut reading => false,
        };
        assert_eq!(began, begins, "{scope:?} {list:?}");
        assert_eq!(!listener.is_stale(), begins, "{scope:?} {list:?}");

        *gone.does.lock() = (Answer, Answer);
        assert!(timeout(minute, &mut reading).await.is_err());
        assert_eq!(listed.load(Ordering::Relaxed), 2, "{scope:?} {list:?}");
        watching.begun().await;
        assert!(!listener.is_stale(), "{scope:?} {list:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_goes_after_its_servers_leaves_nothing_out_of_date() {
    let listener = Arc::<Listener>::default();
    let watching = Watching::new(listener.clone());
    let server = ApiServer::that(Does::Answer, Does::Answer);
    let config = watcher::Config::default();
    let events = watching.events::<ConfigMap>(&server.client(), &Some("one".to_owned()), config);
    let mut reading = Box::pin(events.for_each(|_| std::future::ready(())));
    for (does, stale) in [(Does::Answer, false), (Does::Refuse(503), true), (Does::Refuse(403), false)] {
        *server.does.lock() = (does, does);
        assert!(timeout(WATCHED_FOR * 2, &mut reading).await.is_err());
        assert_eq!(listener.is_stale(), stale, "{does:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_told_before_anybody_looks_is_not_kept() {
    let (sender, mut queue) = tokio::sync::mpsc::unbounded_channel();
    for change in 0..1000 {
        sender.send(change).unwrap();
    }
    let second = Duration::from_secs(1);
    let news = stream::poll_fn(|context| queue.poll_recv(context));
    assert!(timeout(second, discarding(pending(), news)).await.is_err(), "nobody may begin yet");
    assert_eq!(queue.len(), 0);
    sender.send(1000).unwrap();
    discarding(ready(()), stream::pending::<()>()).await;
    assert_eq!(queue.recv().await, Some(1000), "what is told afterwards is heard");
    drop(sender);
    let begun = Instant::now();
    discarding(sleep(second), stream::poll_fn(|context| queue.poll_recv(context))).await;
    assert_eq!(begun.elapsed(), second);
}

/// Each namespace has so many pages, each of which takes so long: without end, the last one of those that hang.
struct Lists {
    pages: fn(&str) -> usize,
    each: Duration,
    hang: &'static [&'static str],
}

impl Lists {
    /// Counts the pages of each namespace that it gave.
    fn client(self, given: &Arc<Mutex<BTreeMap<String, usize>>>) -> Client {
        let (lists, given) = (Arc::new(self), given.clone());
        let answer = move |uri: Uri, query: Query<HashMap<String, String>>| {
            let (lists, given) = (lists.clone(), given.clone());
            async move {
                let namespace = uri.path().split('/').nth(4).unwrap().to_owned();
                let page: usize = query.get("continue").map_or(1, |page| page.parse().unwrap());
                let is_last = page == (lists.pages)(&namespace);
                if query.contains_key("watch") || is_last && lists.hang.contains(&&*namespace) {
                    pending::<()>().await;
                }
                sleep(lists.each).await;
                *given.lock().entry(namespace.clone()).or_default() += 1;
                let item = |number: u32| json!({"metadata": {"name": format!("x{number}"), "namespace": namespace, "resourceVersion": "1"}});
                let next = if is_last { String::new() } else { (page + 1).to_string() };
                axum::Json(json!({
                    "apiVersion": "v1", "kind": "ConfigMapList",
                    "metadata": {"resourceVersion": "1", "continue": next},
                    "items": (0..PAGE).map(item).collect::<Vec<_>>(),
                }))
            }
        };
        ClientBuilder::new(Router::new().fallback(answer), "tools").with_layer(&patience()).build()
    }
}

/// A page that was read is in memory until its last object is handed on.
#[tokio::test(start_paused = true)]
async fn of_all_lists_two_pages_are_in_memory_and_none_that_hangs_or_is_long_keeps_others_waiting_for_long() {
    const NAMESPACES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let (moment, second) = (Duration::ZERO, Duration::from_secs(1));
    let two = |_: &str| 2;
    let long = |namespace: &str| if ["a", "b"].contains(&namespace) { 100 } else { 2 };
    for (lists, others, within) in [
        (Lists { pages: two, each: moment, hang: &[] }, &NAMESPACES[..], PAGE_WITHIN * 4),
        (Lists { pages: two, each: moment, hang: &["a", "b", "c"] }, &["d", "e"], PAGE_WITHIN * 4),
        (Lists { pages: long, each: second, hang: &[] }, &["c", "d", "e"], second * 10),
    ] {
        let watching = Watching::new(Arc::<Listener>::default());
        let given = Arc::default();
        let client = lists.client(&given);
        let events = NAMESPACES.map(|scope| {
            let config = watcher::Config::default();
            let events = watching.events::<ConfigMap>(&client, &Some(scope.to_owned()), config);
            events.map(move |event| (scope, event)).boxed()
        });
        let mut events = stream::select_all(events);
        let mut done = BTreeSet::new();
        let mut handed_on = BTreeMap::<_, usize>::new();
        let reading = async {
            while let Some((scope, event)) = events.next().await {
                *handed_on.entry(scope).or_default() += usize::from(matches!(event, Event::InitApply(_)));
                let given: usize = given.lock().values().sum();
                let finished: usize = handed_on.values().map(|objects| objects / PAGE as usize).sum();
                assert!(given - finished <= PAGES, "{} pages are in memory", given - finished);
                if matches!(event, Event::InitDone) {
                    done.insert(scope);
                }
                if others.iter().all(|other| done.contains(other)) {
                    break;
                }
            }
        };
        assert!(timeout(within, reading).await.is_ok(), "{others:?}: {done:?} are done");
    }
}
