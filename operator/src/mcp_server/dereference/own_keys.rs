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
    if let Some(known) = known(context, server, memory, &name) {
        return Ok(known);
    }
    let now = Timestamp::now();
    let deployment = context.mirrors.deployments.get(server, &server.name);
    let had_pods = deployment.is_some_and(|it| it.live.controller.as_deref() == Some(uid));
    let is_known = context.mirrors.secrets.get(server, &name).is_some() || memory.lock().has_keys;
    if !had_pods && !is_known {
        let keys = SessionKeys::first(&material()?, now, wish);
        remember(memory, &keys, false);
        return Ok((keys, None));
    }
    let found = get::<Secret>(&context.client, &server.namespace, &name).await?;
    // Somebody else's is none of ours, and applying ours will say so.
    let ours = found.filter(|secret| controller(&secret.metadata).as_deref() == Some(uid));
    let from = ours.as_ref().map(|secret| Live::of(&secret.metadata));
    let read = ours.map(|secret| {
        let record = secret.metadata.annotations.as_ref().and_then(|all| all.get(SESSION_KEYS_ANNOTATION));
        SessionKeys::read(&secret.data.unwrap_or_default(), record.map(String::as_str), now, wish)
    });
    let is_read = matches!(read, Some(Ok(Some(_))));
    let (keys, loss) = match read {
        Some(Ok(Some(keys))) => (keys, None),
        Some(Ok(None)) => (SessionKeys::first(&material()?, now, wish), None),
        Some(Err(broken)) => {
            (SessionKeys::first(&material()?, now, wish), Some(("ReplaceBrokenKeys", broken.to_string())))
        }
        None => {
            // Who had pods had keys.
            let loss = had_pods.then(|| ("ReplaceDeletedKeys", "it was deleted".to_owned()));
            (SessionKeys::first(&material()?, now, wish), loss)
        }
    };
    remember(memory, &keys, is_read);
    if let Some((action, loss)) = loss {
        let note = format!(
            "Secret {name} had the session keys, and {loss}: they are made anew, and every session has to begin again"
        );
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

fn remember(memory: &Mutex<ServerMemory>, keys: &SessionKeys, are_read: bool) {
    let mut memory = memory.lock();
    (memory.session_keys, memory.keys_are_read) = (Some(keys.clone()), are_read);
}

/// The keys that are remembered, if the Secret is still what was applied, or has yet to be.
fn known(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    name: &str,
) -> Option<(SessionKeys, Option<Live>)> {
    let live = context.mirrors.secrets.get(server, name);
    let live = live.as_deref().map(|live| &live.live);
    let memory = memory.lock();
    let keys = memory.session_keys.clone()?;
    let applied = memory.applied.get(&(SECRET, name.to_owned())).map(|record| &record.live);
    let is_in_force = match (applied, live) {
        (Some(applied), live) => live.is_none_or(|live| is_as_applied(live, applied)),
        // Whoever deletes a Secret has its keys made anew, be it that it was only read until then.
        (None, live) => live.is_none() && !memory.keys_are_read,
    };
    let from = live.into_iter().chain(applied).max_by_key(|secret| secret.version);
    is_in_force.then(|| (keys, from.cloned()))
}

/// Material for a key, from the system's randomness.
pub(crate) fn material() -> Result<Material, NoRandomness> {
    let mut material = Material { first_id: 0, secret: [0; _] };
    rand::fill(&mut material.secret).map_err(|_| NoRandomness)?;
    rand::fill(std::slice::from_mut(&mut material.first_id)).map_err(|_| NoRandomness)?;
    Ok(material)
}
