//! The watches of the API server (kube's `watcher`), and whether each of them is up to date.
//!
//! A connection may die without a word. Each watch goes on in another request now and then, so one over which nothing is
//! said for longer than that is dead, and is given up.
//!
//! A watch that failed would go on where it ended and say nothing until something changes, so nobody could tell whether
//! it is heard again. Here it begins anew instead: its list, once complete, is the proof.

mod health;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use kube::client::ClientBuilder;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use longshore_sidecar::log::sentence;
use longshore_sidecar_client::jittered;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tower::timeout::TimeoutLayer;

use crate::mirror::{Change, Mirror, ServerKey};
use crate::reading::Lean;
use crate::scope::{self, PAGE, Scope};
use crate::view::View;
use health::{Name, Watches, Word};

/// An API server that does not take a connection for so long is away.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a page of a list may take. `kube` itself would wait for ever.
const PAGE_WITHIN: Duration = Duration::from_secs(30);
/// How long any answer may take to begin. A watch says nothing until something happens, so nobody would notice that it
/// never began.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);
/// How many pages of lists are in memory at once, of all kinds.
const PAGES: usize = 2;
/// A watch ends after so many seconds, and goes on where it was. `kube` waits for five more.
const WATCH_SECONDS: u32 = 20;
/// A connection over which nothing is said for so long is dead. A little sooner than `kube` gives the watch up: it would ask
/// for the next one over another connection of that time, which may be as dead.
const SILENT: Duration = Duration::from_secs(24);
/// A watch begins anew after this, which doubles while it keeps failing: each time costs a whole list.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// A watch that has not failed for so long is a good one.
const GOOD: Duration = Duration::from_secs(60);
/// What is refused for so long stays so until somebody grants it. An API server that has just started refuses for a
/// moment what it has not read yet that it may grant.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Whoever goes by what is heard.
pub(crate) trait Audience: Send + Sync {
    /// Whether it may be out of date from now on: whether any of the watches is not heard.
    fn set_stale(&self, stale: bool);
    /// Whether it knows of anything in a namespace.
    fn knows(&self, namespace: &str) -> bool;
}

/// A kind of objects that can be heard of.
pub(crate) trait Watched:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static
{
}

/// Waits, and keeps nothing of what is told meanwhile: it may be for ever, and whoever waits looks at everything
/// afterwards.
pub(crate) async fn discarding<T>(until: impl Future<Output = ()>, news: impl Stream<Item = T>) {
    let discarded = async {
        news.for_each(|_| ready(())).await;
        // That nothing is told any more is no reason to begin.
        pending::<()>().await;
    };
    tokio::select! {
        () = until => {}
        () = discarded => {}
    }
}

/// A client whose watches can be heard here. What fails for a moment it asks for again by itself, for some time: a page of a
/// long list is not to cost all that came before it.
pub(crate) async fn client() -> anyhow::Result<Client> {
    connected(true).await
}

/// One for single calls, which says at once what the API server says, that it has too much to do for example: who makes them
/// waits at a pace of its own, and others have their turn meanwhile.
pub(crate) async fn client_for_calls() -> anyhow::Result<Client> {
    connected(false).await
}

async fn connected(retries: bool) -> anyhow::Result<Client> {
    let mut config = kube::Config::infer().await.context("found no way to the API server")?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENT);
    // Nobody speaks over a connection that nothing is asked over: the time begins with a request.
    config.reset_reader_on_write = true;
    config.default_retry = retries;
    let builder = ClientBuilder::try_from(config).context("cannot speak to the API server")?;
    Ok(builder.with_layer(&patience()).build())
}

fn patience() -> TimeoutLayer {
    TimeoutLayer::new(BEGINS_WITHIN)
}

/// Tells its audience while that may be out of date. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Watching {
    audience: Arc<dyn Audience>,
    watches: watch::Sender<Watches>,
    /// One for each page of a list that may be in memory now.
    pages: Arc<Semaphore>,
}

struct Watch<K: 'static> {
    watching: Watching,
    name: Name,
    api: Api<Lean<K>>,
    config: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    state: State,
    /// While a page of a list is read or in memory.
    page: Option<OwnedSemaphorePermit>,
    /// How many of its objects were handed on.
    of_page: u32,
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

// === impl Watching ===

impl Watching {
    pub(crate) fn new(audience: Arc<dyn Audience>) -> Self {
        Self { audience, watches: watch::Sender::default(), pages: Arc::new(Semaphore::new(PAGES)) }
    }

    /// Waits until all watches that there are have been heard once, but for those of namespaces that grant none.
    pub(crate) async fn begun(&self) {
        // The sender lives as long as this.
        let _ = self.watches.subscribe().wait_for(Watches::have_begun).await;
    }

    /// What there is of a kind, and what becomes of it, without end.
    pub(crate) fn events<K>(
        &self,
        client: &Client,
        scope: &Scope,
        config: watcher::Config,
    ) -> impl Stream<Item = Event<K>> + use<K>
    where
        K: Watched,
    {
        let config = config.page_size(PAGE).timeout(WATCH_SECONDS);
        let api = scope::api::<Lean<K>>(client, scope);
        let kind = K::plural(&());
        // Of one kind there may be several, of other objects each.
        let kind = match &config.label_selector {
            Some(labels) => format!("{kind} with {labels}"),
            None => kind.into_owned(),
        };
        let name = (kind, scope.clone());
        self.watches.send_modify(|watches| watches.add(name.clone()));
        let watch = Watch {
            watching: self.clone(),
            name,
            events: watched(&api, &config),
            api,
            config,
            state: State::Listing,
            page: None,
            of_page: 0,
            retry: Retry { next: FIRST_RETRY, failed: Instant::now() },
            refused: None,
        };
        stream::unfold(watch, |mut watch| async move { Some((watch.next().await, watch)) })
    }

    /// Keeps a mirror up to date with what Longshore made for servers, and says what happened to whose object.
    pub(crate) async fn mirror<V>(
        &self,
        client: &Client,
        scope: &Scope,
        mirror: &Mirror<V>,
        mut changed: impl FnMut(&ServerKey, Change, &str, &V),
    ) where
        V: View<Object: Watched>,
    {
        mirror.follow(self.events(client, scope, scope::owned()), scope, &mut changed).await;
    }

    fn tell(&self, watch: &Name, word: Word) {
        self.watches.send_if_modified(|watches| {
            let was_out = watches.is_out(&watch.1);
            let news = watches.enter(watch, word);
            if news {
                self.audience.set_stale(watches.are_stale());
            }
            if !was_out && watches.is_out(&watch.1) {
                let namespace = watch.1.as_deref().unwrap_or_default();
                tracing::warn!(
                    namespace,
                    "nothing in the namespace may be listed: it is left out until that is granted. If it is gone, take \
                     it out of the chart's watchNamespaces"
                );
            }
            news
        });
    }
}

// === impl Watch ===

fn watched<K: Watched>(
    api: &Api<Lean<K>>,
    config: &watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<K>>> {
    let bare = |event| match event {
        Event::Init => Event::Init,
        Event::InitApply(Lean(object)) => Event::InitApply(object),
        Event::InitDone => Event::InitDone,
        Event::Apply(Lean(object)) => Event::Apply(object),
        Event::Delete(Lean(object)) => Event::Delete(object),
    };
    watcher(api.clone(), config.clone()).map(move |event| event.map(bare)).boxed()
}

impl<K: Watched> Watch<K> {
    async fn next(&mut self) -> Event<K> {
        if self.state == State::Heard {
            self.watching.tell(&self.name, Word::Heard);
            self.state = State::Waiting;
            self.refused = None;
        }
        loop {
            let event = match self.state {
                State::Listing => {
                    // A page is in memory until the last of its objects is handed on, and the next one is asked for then:
                    // behind those that wait, or two long lists would keep all others. Nobody closes the semaphore.
                    if self.page.is_none() {
                        self.page = self.watching.pages.clone().acquire_owned().await.ok();
                        self.of_page = 0;
                    }
                    timeout(PAGE_WITHIN, self.events.next()).await
                }
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
                    self.of_page += u32::from(matches!(event, Event::InitApply(_)));
                    // One that is shorter is kept beside the next.
                    if self.state == State::Heard || self.of_page == PAGE {
                        self.page = None;
                    }
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
            // What was read of the list goes now: another one is read while this one waits.
            self.events = stream::pending().boxed();
            self.page = None;
            let now = Instant::now();
            self.refused = is_refused.then(|| self.refused.unwrap_or(now));
            let word = match self.refused {
                Some(since) if now - since >= REFUSED_FOR => {
                    Word::Refused { known: self.watching.audience.knows(namespace) }
                }
                _ => Word::Failed,
            };
            self.watching.tell(&self.name, word);
            sleep(jittered(self.retry.after(Instant::now()))).await;
            self.events = watched(&self.api, &self.config);
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
