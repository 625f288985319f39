//! The session keys of a server, read back from Longshore's own Secret, or made where there are none.

use std::sync::Mutex;

use aws_lc_rs::rand;
use k8s_openapi::api::core::v1::Secret;

use super::get;
use crate::api::ApiError;
use crate::api_keys::NoRandomness;
use crate::mcp_server::apply::is_as_applied;
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::{ServerMemory, lock};
use crate::mcp_server::session_keys::{Material, SessionKeys};
use crate::mirror::ServerKey;
use crate::names::ObjectNames;
use crate::view::controller;
use thiserror::Error;

/// Why there are no keys.
#[derive(Debug, Error)]
pub enum Error {
    /// The Secret could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// None could be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// The keys that are in force. Client required, but for a Secret that is as it was left.
pub async fn session_keys(
    context: &Context,
    server: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
) -> Result<SessionKeys, Error> {
    let name = ObjectNames::of(&server.name).keys_secret();
    if let Some(known) = known(context, server, memory, &name) {
        return Ok(known);
    }
    let found = get::<Secret>(&context.client, &server.namespace, &name).await?;
    // Somebody else's is none of ours, and applying ours will say so.
    let ours = found.filter(|secret| controller(&secret.metadata).as_deref() == Some(uid));
    let keys = match ours.map(|secret| SessionKeys::read(&secret.data.unwrap_or_default())) {
        Some(Ok(Some(keys))) => keys,
        Some(Ok(None)) | None => SessionKeys::first(&material()?),
        Some(Err(error)) => {
            tracing::warn!(server = %server.name, namespace = %server.namespace, %error, "session keys are made anew");
            SessionKeys::first(&material()?)
        }
    };
    lock(memory).session_keys = Some(keys.clone());
    Ok(keys)
}

/// The keys that are remembered, if the Secret is still what was applied, or has yet to be.
fn known(
    context: &Context,
    server: &ServerKey,
    memory: &Mutex<ServerMemory>,
    name: &str,
) -> Option<SessionKeys> {
    let live = context.mirrors.secrets.get(server, name);
    let memory = lock(memory);
    let is_in_force = match (memory.applied.get(&("Secret", name.to_owned())), live) {
        (Some(record), live) => live.is_none_or(|live| is_as_applied(&live.live, &record.live)),
        (None, live) => live.is_none(),
    };
    memory.session_keys.clone().filter(|_| is_in_force)
}

/// Material for a key, from the system's randomness.
pub fn material() -> Result<Material, NoRandomness> {
    let mut material = Material { first_id: 0, secret: [0; _] };
    rand::fill(&mut material.secret).map_err(|_| NoRandomness)?;
    rand::fill(std::slice::from_mut(&mut material.first_id)).map_err(|_| NoRandomness)?;
    Ok(material)
}
