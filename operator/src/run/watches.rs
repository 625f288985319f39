//! The watches, and how what they show reaches the reconciliations.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::ready;
use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{BoxFuture, join_all, select_all};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt as _, controller};
use kube::{Resource as _, ResourceExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::inventory::Changes;
use crate::mcp_server::apply::HasLive;
use crate::mcp_server::context::Context;
use crate::mcp_server::references::Kind;
use crate::mcp_server::{error_policy, reconcile, upgrades};
use crate::mirror::{Change, Mirror, ServerKey};
use crate::reading::MaybeUnreadable;
use crate::scope::{self, Scope};
use crate::view::{Live, View};
use crate::watching::{Watched, Watching, discarding};

/// Makes servers due for reconciliation.
///
/// The channels are unbounded in type and bounded by nature: a queue merges requests for a server that is due already.
#[derive(Clone)]
pub(super) struct Triggers(HashMap<Scope, UnboundedSender<ObjectRef<MaybeUnreadable>>>);

/// The other ends of [`Triggers`].
pub(super) type Queues = HashMap<Scope, UnboundedReceiver<ObjectRef<MaybeUnreadable>>>;

/// A queue for each scope.
pub(super) fn triggers(scopes: &[Scope]) -> (Triggers, Queues) {
    let (mut senders, mut queues) = (HashMap::new(), HashMap::new());
    for scope in scopes {
        let (sender, queue) = unbounded();
        senders.insert(scope.clone(), sender);
        queues.insert(scope.clone(), queue);
    }
    (Triggers(senders), queues)
}

// === impl Triggers ===

impl Triggers {
    /// Makes a server due.
    pub(super) fn reconcile(&self, server: &ServerKey) {
        let sender = self.0.get(&None).or_else(|| self.0.get(&Some(server.namespace.clone())));
        if let Some(sender) = sender {
            // The queue ends only with the process.
            let _ = sender.unbounded_send(ObjectRef::new(&server.name).within(&server.namespace));
        }
    }
}

/// Keeps every mirror up to date. Ends only if a watch does, which none should.
pub(super) fn watch<'a>(
    context: &'a Arc<Context>,
    watching: &'a Watching,
    scopes: &'a [Scope],
    triggers: &'a Triggers,
) -> impl Future<Output = ()> + use<'a> {
    let mirrors = &context.mirrors;
    let mut watches: Vec<BoxFuture<'a, ()>> = Vec::new();
    for scope in scopes {
        watches.push(owned(context, watching, scope, &mirrors.deployments, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.services, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.config_maps, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.secrets, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.network_policies, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.service_accounts, triggers).boxed());
        watches.push(owned(context, watching, scope, &mirrors.disruption_budgets, triggers).boxed());
        watches.push(made(context, watching, scope, &mirrors.replica_sets, triggers).boxed());
        watches.push(made(context, watching, scope, &mirrors.pods, triggers).boxed());
        watches.push(named::<Secret>(context, watching, scope, Kind::Secret, triggers).boxed());
        watches.push(named::<ConfigMap>(context, watching, scope, Kind::ConfigMap, triggers).boxed());
        watches
            .push(named::<ServiceAccount>(context, watching, scope, Kind::ServiceAccount, triggers).boxed());
    }
    select_all(watches).map(|_| ())
}

/// Runs a controller for each scope, once its part of the mirrors is filled: a namespace that is gone, or that the
/// operator has no rights in, keeps no other waiting. Ends when all reconciliations have after `stop`.
pub(super) async fn control(
    context: &Arc<Context>,
    watching: &Watching,
    scopes: &[Scope],
    mut queues: Queues,
    triggers: &Triggers,
    stop: CancellationToken,
) {
    let controllers = scopes.iter().map(|scope| {
        let queue = queues.remove(scope).unwrap_or_else(|| unbounded().1);
        one_controller(
            context.clone(),
            watching.clone(),
            scope.clone(),
            queue,
            triggers.clone(),
            stop.clone(),
        )
    });
    join_all(controllers).await;
}

async fn one_controller(
    context: Arc<Context>,
    watching: Watching,
    scope: Scope,
    mut queue: UnboundedReceiver<ObjectRef<MaybeUnreadable>>,
    triggers: Triggers,
    stop: CancellationToken,
) {
    let mirrors = &context.mirrors;
    let filled = async {
        mirrors.deployments.filled(&scope).await;
        mirrors.services.filled(&scope).await;
        mirrors.config_maps.filled(&scope).await;
        mirrors.secrets.filled(&scope).await;
        mirrors.network_policies.filled(&scope).await;
        mirrors.service_accounts.filled(&scope).await;
        mirrors.disruption_budgets.filled(&scope).await;
        mirrors.replica_sets.filled(&scope).await;
        mirrors.pods.filled(&scope).await;
    };
    // The first list of servers makes all of them due.
    if stop.run_until_cancelled(discarding(filled, &mut queue)).await.is_none() {
        return;
    }
    upgrades::resume(&context, &scope);
    tracing::info!(namespace = scope.as_deref(), "caches filled; reconciling");
    let (reader, writer) = reflector::store();
    let forgetting = context.clone();
    // Each server of a list that is being read, and whether there is news of it.
    let mut listed = BTreeMap::new();
    let servers = watching
        .events::<MaybeUnreadable>(&context.watch_client, &scope, watcher::Config::default())
        .inspect(move |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(server) => {
                let key = ServerKey::of(server);
                let is_news = !forgetting.memory.is_echo(&key, &Live::of(server.meta()));
                listed.insert(key, is_news);
            }
            Event::InitDone => {
                let gone = forgetting.memory.servers().into_iter().filter(|server| {
                    scope::covers(&scope, &server.namespace) && !listed.contains_key(server)
                });
                gone.for_each(|server| {
                    forgetting.forget(&server);
                    // As below.
                    triggers.reconcile(&server);
                });
                // The queue is read once this event has been handled, and then the whole list is in the store.
                let news = std::mem::take(&mut listed).into_iter().filter(|(_, is_news)| *is_news);
                news.for_each(|(server, _)| triggers.reconcile(&server));
            }
            Event::Delete(server) => {
                let server = ServerKey::of(server);
                forgetting.forget(&server);
                // One of the same name may be there already; and if there is none, what is under way for this one is
                // forgotten once it has ended.
                triggers.reconcile(&server);
            }
            Event::Apply(_) => {}
        })
        .map(Ok::<_, watcher::Error>);
    let remembering = context.clone();
    let servers = reflector::reflector(writer, servers)
        // A list is in the store when it is complete, and not before: of a server on its first page, what is there until
        // then is the manifest of before, or none.
        .try_filter(|event| ready(!matches!(event, Event::InitApply(_))))
        .touched_objects()
        // What the operator itself has just written is no news.
        .try_filter(move |server| {
            ready(!remembering.memory.is_echo(&ServerKey::of(server), &Live::of(server.meta())))
        });
    let (there, remembered) = (reader.clone(), context.clone());
    Controller::for_stream(servers, reader)
        // Whatever is due is asked for at once, and `Slots` say who is looked after: of those that wait in a controller it
        // takes any, and some never.
        .with_config(controller::Config::default().concurrency(0))
        .reconcile_on(queue)
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(reconcile, error_policy, context)
        .for_each(|outcome| {
            forget_gone(&remembered, &there, outcome);
            ready(())
        })
        .await;
}

/// Forgets once more a server that was due and is not there: a reconciliation that was under way when it went goes on, and
/// may have taken a turn or said what the server names. It has ended by now, since no other of the server begins before.
fn forget_gone<T, E, Q>(
    context: &Context,
    there: &Store<MaybeUnreadable>,
    outcome: Result<T, controller::Error<E, Q>>,
) where
    E: std::error::Error + 'static,
    Q: std::error::Error + 'static,
{
    let Err(controller::Error::ObjectNotFound(gone)) = outcome else { return };
    let server = ServerKey { namespace: gone.namespace.unwrap_or_default(), name: gone.name };
    // Another of that name may have come since.
    if there.get(&ObjectRef::new(&server.name).within(&server.namespace)).is_none() {
        context.forget(&server);
    }
}

/// Tells the reconciliations what the sidecars said, whose turn it is to be upgraded, and who is called.
pub(super) async fn relay(mut changes: Changes, context: &Context, triggers: &Triggers) {
    loop {
        tokio::select! {
            changed = changes.recv() => {
                let Some(server) = changed else { return };
                let namespace = server.namespace.unwrap_or_default();
                triggers.reconcile(&ServerKey { namespace, name: server.name });
            }
            due = context.upgrades.called() => triggers.reconcile(&due),
            called = context.slots.called() => triggers.reconcile(&called),
        }
    }
}

/// Mirrors a kind of object that the operator applies: one that has gone has to be applied again.
async fn owned<V>(
    context: &Context,
    watching: &Watching,
    scope: &Scope,
    mirror: &Mirror<V>,
    triggers: &Triggers,
) where
    V: View<Object: Watched> + HasLive,
{
    let mut changed = |server: &ServerKey, change: Change, name: &str, view: &V| {
        if change == Change::Deleted {
            context.memory.forget_object(server, V::KIND, name, &view.live().uid);
        }
        triggers.reconcile(server);
    };
    let mut begun = Instant::now();
    let events = watching.events(&context.watch_client, scope, scope::owned()).inspect(|event| match event {
        // It is asked for after this.
        Event::Init => begun = Instant::now(),
        Event::InitDone => {
            let is_there = |server: &ServerKey, name: &str, uid: &str| {
                mirror.get(server, name).is_some_and(|view| view.live().uid == uid)
            };
            let lacking = context.memory.forget_gone(V::KIND, scope, begun, is_there);
            lacking.iter().for_each(|server| triggers.reconcile(server));
        }
        Event::InitApply(_) | Event::Apply(_) | Event::Delete(_) => {}
    });
    mirror.follow(events, scope, &mut changed).await;
}

/// Mirrors a kind of object that is made for what the operator applies.
async fn made<V>(
    context: &Context,
    watching: &Watching,
    scope: &Scope,
    mirror: &Mirror<V>,
    triggers: &Triggers,
) where
    V: View<Object: Watched>,
{
    watching.mirror(&context.watch_client, scope, mirror, |server, _, _, _| triggers.reconcile(server)).await;
}

/// Watches the metadata of every object of a kind that manifests may name, and keeps nothing of it. Of those that are made
/// here too there is a second watch: reconciliations begin when its list is complete, which must not have to wait for the
/// list of everybody's Secrets.
async fn named<K>(context: &Context, watching: &Watching, scope: &Scope, kind: Kind, triggers: &Triggers)
where
    PartialObjectMeta<K>: Watched,
{
    let config = watcher::Config::default();
    let events = watching.events::<PartialObjectMeta<K>>(&context.watch_client, scope, config);
    let mut events = std::pin::pin!(events);
    let mut present = BTreeSet::new();
    while let Some(event) = events.next().await {
        let due = |namespace: String, servers: Vec<String>| {
            servers
                .into_iter()
                .for_each(|name| triggers.reconcile(&ServerKey { namespace: namespace.clone(), name }));
        };
        match event {
            Event::Init => present.clear(),
            Event::InitApply(object) => {
                let namespace = object.namespace().unwrap_or_default();
                due(namespace.clone(), context.references.seen(kind, &object.metadata));
                present.insert((namespace, object.name_any()));
            }
            Event::InitDone => {
                for (namespace, name) in context.references.listed(kind, scope.as_deref(), &present) {
                    triggers.reconcile(&ServerKey { namespace, name });
                }
                present = BTreeSet::new();
            }
            Event::Apply(object) => {
                due(object.namespace().unwrap_or_default(), context.references.seen(kind, &object.metadata));
            }
            Event::Delete(object) => {
                let namespace = object.namespace().unwrap_or_default();
                due(namespace.clone(), context.references.gone(kind, &namespace, &object.name_any()));
            }
        }
    }
}
