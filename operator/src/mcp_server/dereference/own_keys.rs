//! The session keys of a server, read back from Longshore's own Secret, or made where there are none.

use aws_lc_rs::rand;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType};
use parking_lot::Mutex;
use thiserror::Error;

use super::get;
use crate::api::ApiError;
use crate::api_keys::NoRandomness;
use crate::mcp_server::apply::is_as_applied;
use crate::mcp_server::condition::Problem;
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{SECRET, ServerMemory};
use crate::mcp_server::session_keys::{Material, SessionKeys};
use crate::mcp_server::validate::unreadable;
use crate::mirror::ServerKey;
use crate::names::{ObjectNames, SESSION_KEYS_ANNOTATION};
use crate::view::{Live, controller};

/// The reason of the event that tells of lost keys.
const KEYS_REPLACED: &str = "SessionKeysReplaced";

/// Why there are no keys.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// The Secret could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// None could be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// The keys that are in force, and the Secret that they are from, if there is one. Client required, but for a Secret that
/// is as it was left, and for a new server: its keys are made here, and whoever applies them finds out whether there are
/// others already.
pub(crate) async fn session_keys(
    context: &Context,
    server: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
    wish: Option<&str>,
) -> Result<(SessionKeys, Option<Live>), Error> {
    let name = ObjectNames::of(&server.name).keys_secret();
    if let Some(known) = known(context, server, uid, memory, &name) {
        return Ok(known);
    }
    let now = Timestamp::now();
    let deployment = context.mirrors.deployments.get(server, &server.name);
    let had_pods = deployment.is_some_and(|it| it.live.controller.as_deref() == Some(uid));
    let is_applied = memory.lock().applied.contains_key(&(SECRET, name.clone()));
    let is_known = is_applied || context.mirrors.secrets.get(server, &name).is_some();
    if !had_pods && !is_known {
        let keys = SessionKeys::first(&material()?, now, wish);
        memory.lock().session_keys = Some((keys.clone(), None));
        return Ok((keys, None));
    }
    let before = memory.lock().session_keys.clone();
    let found = get::<Secret>(&context.client, &server.namespace, &name).await?;
    let is_there = found.is_some();
    // Somebody else's is none of ours, and applying ours will say so.
    let ours = found.filter(|secret| controller(&secret.metadata).as_deref() == Some(uid));
    let from = ours.as_ref().map(|secret| Live::of(&secret.metadata));
    let read = ours.map(|secret| {
        let record = secret.metadata.annotations.as_ref().and_then(|all| all.get(SESSION_KEYS_ANNOTATION));
        SessionKeys::read(&secret.data.unwrap_or_default(), record.map(String::as_str), now, wish)
    });
    let anew = |action, what: &str| {
        let note = format!(
            "Secret {name} had the session keys, and {what}: they are made anew, and every session has to begin again"
        );
        Some((action, note))
    };
    let (keys, loss) = match read {
        Some(Ok(Some(keys))) => {
            // What was in no Secret yet has sealed nothing.
            let before = before.filter(|(_, from)| from.is_some());
            let is_other = before.is_some_and(|(before, _)| !keys.has_sealing_key_of(&before));
            let note = format!(
                "Secret {name} was given other session keys than it had: every session that began with those has to begin \
                 again"
            );
            (keys, is_other.then_some(("TakeOtherKeys", note)))
        }
        Some(Ok(None)) => (SessionKeys::first(&material()?, now, wish), None),
        Some(Err(broken)) => {
            (SessionKeys::first(&material()?, now, wish), anew("ReplaceBrokenKeys", &broken.to_string()))
        }
        // Who had pods had keys.
        None if !had_pods => (SessionKeys::first(&material()?, now, wish), None),
        None => {
            let what = if is_there { "is its McpServer's no more" } else { "it was deleted" };
            (SessionKeys::first(&material()?, now, wish), anew("ReplaceDeletedKeys", what))
        }
    };
    memory.lock().session_keys = Some((keys.clone(), from.clone()));
    if let Some((action, note)) = loss {
        let event = Event {
            type_: EventType::Warning,
            reason: KEYS_REPLACED.to_owned(),
            note: Some(note.clone()),
            // Events that differ in their note alone are counted as one.
            action: action.to_owned(),
            secondary: None,
        };
        // Where the namespace goes with all that is in it, none are made.
        if context.tell(server, uid, &event).await {
            tracing::warn!(server = %server.name, namespace = %server.namespace, "{note}");
        }
    }
    Ok((keys, from))
}

/// What to say in the status of a failure that is no passing one.
pub(crate) fn lasting(error: &Error, server: &ServerKey, patient: bool) -> Option<Problem> {
    let Error::Api(error) = error else { return None };
    let words = error.lasting(!patient)?;
    let name = ObjectNames::of(&server.name).keys_secret();
    Some(unreadable("Secret", &server.namespace, &name, "which holds the server's session keys", words))
}

/// The keys that are remembered, if the Secret is still the one that they are from, or has yet to be. One that is somebody
/// else's by now says nothing: as long as it is in the way they stay what they are. But another one says that theirs has gone,
/// whoever has it.
fn known(
    context: &Context,
    server: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
    name: &str,
) -> Option<(SessionKeys, Option<Live>)> {
    let live = context.mirrors.secrets.get(server, name);
    let (keys, from) = memory.lock().session_keys.clone()?;
    let says = |live: &&Live| {
        live.controller.as_deref() == Some(uid) || from.as_ref().is_some_and(|from| from.uid != live.uid)
    };
    let live = live.as_deref().map(|live| &live.live).filter(says);
    let is_in_force = live.is_none_or(|live| from.as_ref().is_some_and(|from| is_as_applied(live, from)));
    let from = live.cloned().into_iter().chain(from).max_by_key(|secret| secret.version);
    is_in_force.then_some((keys, from))
}

/// Material for a key, from the system's randomness.
pub(crate) fn material() -> Result<Material, NoRandomness> {
    let mut material = Material { first_id: 0, secret: [0; _] };
    rand::fill(&mut material.secret).map_err(|_| NoRandomness)?;
    rand::fill(std::slice::from_mut(&mut material.first_id)).map_err(|_| NoRandomness)?;
    Ok(material)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::Method;
    use axum::response::IntoResponse as _;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp_server::apply::tests::context;

    /// A Secret of that version, with that controller.
    fn secret(version: &str, controller: Option<&str>) -> Value {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "McpServer", "name": "demo", "uid": uid, "controller": true});
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "demo-longshore-keys", "namespace": "tools", "uid": "s", "resourceVersion": version,
                "labels": {"longshore.dev/server": "demo"},
                "ownerReferences": controller.map(owner).into_iter().collect::<Vec<_>>(),
            },
        })
    }

    async fn see(context: &Context, secret: Value) {
        let events = futures::stream::iter([Event::Apply(serde_json::from_value(secret).unwrap())]);
        context.mirrors.secrets.follow(events, &None, &mut |_, _, _, _| {}).await;
    }

    fn demo() -> ServerKey {
        ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() }
    }

    /// As where it was put back without its owner.
    #[tokio::test]
    async fn keys_stay_what_they_are_while_their_secret_is_somebody_elses() {
        let (own, others) = (("7", Some("7b1c")), ("8", None));
        // Before it was somebody else's, or only since, as whoever leads anew.
        for sightings in [&[own, others, others][..], &[others, others]] {
            let reads = Arc::new(AtomicUsize::new(0));
            let counted = reads.clone();
            let (version, controller) = sightings[0];
            let answer = move |method: Method| {
                counted.fetch_add(usize::from(method == Method::GET), Ordering::Relaxed);
                async move { axum::Json(secret(version, controller)).into_response() }
            };
            let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
            let memory = context.memory.of(&demo(), "7b1c");
            let mut all = Vec::new();
            for (version, controller) in sightings {
                see(&context, secret(version, *controller)).await;
                all.push(session_keys(&context, &demo(), "7b1c", &memory, None).await.unwrap().0);
            }
            assert!(all.iter().all(|keys| *keys == all[0]), "{all:?}");
            assert_eq!(reads.load(Ordering::Relaxed), 1);
        }
    }

    /// As where a list alone shows it.
    #[tokio::test]
    async fn keys_go_with_their_secret_also_where_somebody_else_has_its_name() {
        let own = secret("7", Some("7b1c"));
        let mut other = secret("8", None);
        other["metadata"]["uid"] = json!("t");
        let reads = Arc::new(AtomicUsize::new(0));
        let (counted, found) = (reads.clone(), [own.clone(), other.clone()]);
        // Events are written too.
        let answer = move |method: Method| {
            let is_read = method == Method::GET;
            let before = if is_read { counted.fetch_add(1, Ordering::Relaxed) } else { 0 };
            let found = found[before].clone();
            async move { axum::Json(found).into_response() }
        };
        let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
        let memory = context.memory.of(&demo(), "7b1c");
        let mut all = Vec::new();
        for sighting in [&own, &other, &other] {
            see(&context, sighting.clone()).await;
            all.push(session_keys(&context, &demo(), "7b1c", &memory, None).await.unwrap().0);
        }
        assert!(all[0] != all[1] && all[1] == all[2], "{all:?}");
        assert_eq!(reads.load(Ordering::Relaxed), 2);
    }

    /// As of one whose manifest cannot be used, whoever leads anew.
    #[tokio::test]
    async fn keys_that_are_not_applied_are_read_once_for_each_state_of_their_secret() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        // Events are written too.
        let answer = move |method: Method| {
            let is_read = method == Method::GET;
            let before = if is_read { counted.fetch_add(1, Ordering::Relaxed) } else { 0 };
            async move { axum::Json(secret(["7", "8", "9"][before], Some("7b1c"))).into_response() }
        };
        let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
        let server = demo();
        let memory = context.memory.of(&server, "7b1c");
        for (seen, expected) in [("7", 1), ("7", 1), ("8", 2), ("8", 2)] {
            see(&context, secret(seen, Some("7b1c"))).await;
            let (_, from) = session_keys(&context, &server, "7b1c", &memory, None).await.unwrap();
            assert_eq!(from.unwrap().version.to_string(), seen);
            assert_eq!(reads.load(Ordering::Relaxed), expected, "reads at version {seen}");
        }
        // Whoever deletes it has them made anew.
        context.memory.forget_object(&server, SECRET, "demo-longshore-keys", "s");
        assert!(memory.lock().session_keys.is_none());
    }
}
