//! What the catalog hears of the cluster, and how it reaches the catalog.
//!
//! Whatever changes (a manifest or its status, a pod, a sidecar's words) names its server, and that is looked at as a
//! whole. A server is asked through one of the pods that its Deployment owns, see [`speaker`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, select_all};
use futures::{FutureExt as _, stream};
use kube::Client;
use kube::runtime::watcher;
use longshore_catalog::model::Health;
use longshore_catalog::{Catalog, Offer, Reader};
use longshore_sidecar_client::{
    Bounds, Changes, Inventories, Observation, PodUid, Poller, Read, TokenFile, inventories_with,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::hiding::Hiding;
use super::servers::Servers;
use super::speaker::{self, Heard, OTHERS};
use crate::mirror::{Mirror, ServerKey};
use crate::ownership;
use crate::scope::Scope;
use crate::view::{DeploymentView, PodView, ReplicaSetView};
use crate::watching::{Audience, Watching, discarding};

/// How many answers of sidecars are in memory at once: one may be long, and they all come at the start.
const ANSWERS: usize = 4;
/// How long the sidecars of the servers that there are at the start may take to answer. Whoever does not is listed with
/// what its status has.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// So often other pods are asked beside one whose server fails. A sidecar that is there has answered by the next time.
const ROUND: Duration = Duration::from_secs(10);

type Key = longshore_catalog::ServerKey;

/// Feeds a catalog with what is in the cluster.
pub(super) struct Source {
    client: Client,
    scopes: Vec<Scope>,
    catalog: Catalog,
    mirrors: Mirrors,
    inventories: Inventories<ServerKey, Offer>,
    changes: Changes<ServerKey>,
    poller: Poller<ServerKey, Offer>,
    servers: Servers,
    due: UnboundedReceiver<ServerKey>,
}

#[derive(Clone, Default)]
struct Mirrors {
    deployments: Arc<Mirror<DeploymentView>>,
    replica_sets: Arc<Mirror<ReplicaSetView>>,
    pods: Arc<Mirror<PodView>>,
}

impl Audience for Catalog {
    fn set_stale(&self, stale: bool) {
        Self::set_stale(self, stale);
    }

    fn knows(&self, namespace: &str) -> bool {
        self.lists(namespace)
    }
}

// === impl Source ===

impl Source {
    pub(super) fn new(client: Client, scopes: Vec<Scope>, token: TokenFile, catalog: Catalog) -> Self {
        let reader = Reader::default();
        let bounds = Bounds { concurrent_answers: ANSWERS, ..Bounds::default() };
        let keep = move |server: &ServerKey, json: &[u8]| reader.read(&key(server), json);
        let read = Read {
            keep: Arc::new(keep),
            is_short: Arc::new(Offer::may_grow),
            namespace: |server: &ServerKey| server.namespace.as_str(),
        };
        let (inventories, changes, poller) = inventories_with(token, bounds, read);
        let (sender, due) = unbounded_channel();
        let servers = Servers { published: Arc::default(), due: sender };
        Self {
            client,
            scopes,
            catalog,
            mirrors: Mirrors::default(),
            inventories,
            changes,
            poller,
            servers,
            due,
        }
    }

    /// Watches and asks, for as long as the process runs. Ends only if a watch does, which none should.
    pub(super) async fn run(self) {
        let Self { client, scopes, catalog, mirrors, inventories, changes, poller, servers, mut due } = self;
        let look_at = |server: &ServerKey| {
            // The receiver ends only with the process.
            let _ = servers.due.send(server.clone());
        };
        let watching = Watching::new(Arc::new(catalog.clone()));
        let mut watches: Vec<BoxFuture<'_, ()>> = Vec::new();
        for scope in &scopes {
            let events = watching.events(&client, scope, watcher::Config::default());
            watches.push(servers.follow(events, scope).boxed());
            watches.push(
                watching
                    .mirror(&client, scope, &mirrors.deployments, |server, _, _, _| look_at(server))
                    .boxed(),
            );
            watches.push(
                watching
                    .mirror(&client, scope, &mirrors.replica_sets, |server, _, _, _| look_at(server))
                    .boxed(),
            );
            watches.push(
                watching.mirror(&client, scope, &mirrors.pods, |server, _, _, _| look_at(server)).boxed(),
            );
        }
        let watches = select_all(watches);
        let looking = async {
            // Before everything is known, a server would seem to have no pods.
            discarding(watching.begun(), stream::poll_fn(|context| due.poll_recv(context))).await;
            let mut look = Look {
                catalog: &catalog,
                mirrors: &mirrors,
                inventories: &inventories,
                servers: &servers,
                asked: HashMap::new(),
                uids: HashMap::new(),
                hiding: Hiding::new(),
            };
            look.run(due, changes).await;
        };
        tokio::select! {
            _ = watches => {}
            () = looking => {}
            never = poller.run() => match never {},
        }
    }
}

/// Looks at servers, one at a time.
struct Look<'a> {
    catalog: &'a Catalog,
    mirrors: &'a Mirrors,
    inventories: &'a Inventories<ServerKey, Offer>,
    servers: &'a Servers,
    asked: HashMap<ServerKey, Asked>,
    /// Which servers are listed, by UID: one of the same name may be another.
    uids: HashMap<ServerKey, String>,
    hiding: Hiding,
}

/// Whom a server was asked through when it was last looked at, and how it was.
struct Asked {
    speaks: Option<PodUid>,
    sidecars: BTreeMap<PodUid, IpAddr>,
    /// How often others were chosen while the one that speaks fails.
    round: usize,
    health: Health,
    /// What it was last heard to offer, whatever of it is hidden.
    heard: Option<Arc<Offer>>,
    /// Why that sidecar does not answer.
    unreachable: Option<String>,
}

impl Look<'_> {
    async fn run(&mut self, mut due: UnboundedReceiver<ServerKey>, mut changes: Changes<ServerKey>) {
        let all: Vec<ServerKey> = self.servers.published.lock().keys().cloned().collect();
        for server in &all {
            self.at(server);
        }
        tracing::info!(servers = all.len(), "caches filled");
        let mut unheard: HashSet<ServerKey> = all.into_iter().filter(|it| self.is_unheard(it)).collect();
        let mut too_late = pin!(sleep(ANSWER_WITHIN));
        let mut complete = false;
        let mut rounds = interval(ROUND);
        // None is passed over: whoever is asked in a round has until the next one to answer.
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let server = tokio::select! {
                server = due.recv() => server,
                server = changes.recv() => server,
                server = self.hiding.done() => server,
                _ = rounds.tick() => {
                    self.ask_others();
                    continue;
                }
                () = self.catalog.caught_up(), if !complete && unheard.is_empty() => {
                    complete = true;
                    self.catalog.set_complete();
                    continue;
                }
                () = &mut too_late, if !complete => {
                    complete = true;
                    self.catalog.set_complete();
                    tracing::warn!(servers = unheard.len(), "serving before every sidecar has answered");
                    continue;
                }
            };
            let Some(server) = server else { return };
            self.at(&server);
            if !self.is_unheard(&server) {
                unheard.remove(&server);
            }
        }
    }

    /// Whether the sidecar that speaks for a server has neither answered nor failed to, or it is not known yet which of
    /// its tools are hidden.
    fn is_unheard(&self, server: &ServerKey) -> bool {
        let speaks = self.asked.get(server).and_then(|asked| asked.speaks.as_deref());
        speaks.is_some_and(|pod| self.inventories.of(pod) == Observation::default())
            || self.hiding.is_at(server)
    }

    /// Where the pods that are asked all fail there may be one that is not asked and serves.
    fn ask_others(&mut self) {
        let fail = self.asked.iter_mut().filter(|(_, asked)| asked.sidecars.len() > OTHERS);
        let fail: Vec<ServerKey> = fail
            .map(|(server, asked)| {
                asked.round = asked.round.wrapping_add(1);
                server.clone()
            })
            .collect();
        for server in &fail {
            self.at(server);
        }
    }

    fn at(&mut self, server: &ServerKey) {
        let key = key(server);
        let published = self.servers.published.lock().get(server).cloned();
        let uid = published.as_ref().map(|published| &published.uid);
        if self.uids.get(server) != uid {
            self.catalog.remove(&key);
            self.uids.remove(server);
            self.hiding.forget(server);
            if self.asked.remove(server).is_some() {
                self.inventories.track(server.clone(), BTreeMap::<PodUid, IpAddr>::new());
            }
        }
        let Some(published) = published else { return };
        self.uids.insert(server.clone(), published.uid.clone());
        let Mirrors { deployments, replica_sets, pods } = self.mirrors;
        let pods = ownership::pods_of(deployments, replica_sets, pods, server, &published.uid);
        let before = self.asked.remove(server);
        let speaks = before.as_ref().and_then(|before| before.speaks.as_deref());
        let round = before.as_ref().map_or(0, |before| before.round);
        let heard_of = |pod: &PodView| Heard::of(&self.inventories.of(&pod.uid));
        let asked = speaker::pods_to_ask(&pods, speaks, round, heard_of);
        let sidecars: BTreeMap<_, _> =
            asked.iter().map(|(pod, address)| (pod.uid.clone(), *address)).collect();
        let round = if sidecars.len() > OTHERS { round } else { 0 };
        if before.as_ref().map(|before| &before.sidecars) != Some(&sidecars) {
            self.inventories.track(server.clone(), sidecars.clone());
        }
        let speaker = asked.first().map(|(pod, _)| (*pod, self.inventories.of(&pod.uid)));
        let unreachable = speaker.as_ref().and_then(|(_, said)| said.unreachable.clone());
        if let Some(error) = &unreachable
            && before.as_ref().and_then(|before| before.unreachable.as_ref()) != Some(error)
        {
            let pod = speaker.as_ref().map(|(pod, _)| &*pod.name);
            tracing::warn!(
                namespace = %server.namespace,
                server = %server.name,
                pod,
                error,
                "a sidecar does not answer"
            );
        }
        let speaks = speaker.as_ref().map(|(pod, _)| pod.uid.clone());
        let said = speaker.as_ref().and_then(|(_, said)| said.summary.clone());
        let heard = said
            .filter(|offer| offer.reported.is_some())
            .or_else(|| before.as_ref().and_then(|before| before.heard.clone()));
        let before = before.filter(|before| before.speaks.is_some()).map(|before| before.health);
        let tools = self.hiding.listed(server, &published.filter, published.tools(heard.clone()));
        let record = published.record(key, speaker, before, tools);
        let health = record.health.clone();
        self.asked.insert(server.clone(), Asked { speaks, sidecars, round, health, heard, unreachable });
        self.catalog.upsert(record);
    }
}

fn key(server: &ServerKey) -> Key {
    Key { namespace: server.namespace.clone(), name: server.name.clone() }
}
