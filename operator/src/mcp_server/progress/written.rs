//! What came of the steps, written into the status.

use std::time::Duration;

use kube::{Resource as _, ResourceExt as _};
use longshore_crds::McpServerStatus;

use super::Progress;
use crate::api::ApiError;
use crate::mcp_server::apply::Applier;
use crate::mcp_server::condition::{ConditionType, Standing, now};
use crate::mcp_server::status::{self, Observation, Publication};
use crate::mcp_server::upgrades::Turn;
use crate::names;
use crate::reading::MaybeUnreadable;

// === impl Progress ===

impl Progress {
    /// Writes down how the server is, or says when that will be worth it.
    pub(in crate::mcp_server) async fn write_down(
        &self,
        object: &MaybeUnreadable,
        applier: &Applier<'_>,
    ) -> Result<Option<Duration>, ApiError> {
        let Applier { context, server: key, memory, .. } = *applier;
        let version = object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default();
        let previous = status::previous(memory, version, object.status());
        let deployment = context.mirrors.deployments.get(key, &key.name);
        let status: McpServerStatus = status::status(&Observation {
            generation: object.meta().generation.unwrap_or_default(),
            previous: previous.as_ref(),
            problems: &self.problems,
            held_back: self.held_back,
            unapplied: self.unapplied.as_ref(),
            desired: self.desired.as_ref(),
            pods: &self.pods,
            deployment: deployment.as_deref(),
            address: self.address.as_found(applier),
            selector: names::selector_text(&key.name),
            publication: Publication::of(object.0.as_ref().ok(), &context.settings),
            access: object.0.as_ref().ok().map(|server| &server.spec.access),
            principals: self.principals.as_deref(),
            now: now(),
        });
        let ready = status::find(&status.conditions, ConditionType::Ready).and_then(Standing::of);
        if self.turn != Turn::Later && status::is_in_force(&status) {
            context.upgrades.done(key);
        }
        let pending = self.pending();
        let were = {
            let mut memory = memory.lock();
            (std::mem::replace(&mut memory.ready, ready), std::mem::replace(&mut memory.pending, pending))
        };
        if were != (ready, pending) {
            context.count_servers();
        }
        if let Some(wait) = status::wait(memory, previous.as_ref(), &status) {
            return Ok(Some(wait));
        }
        status::write(context, key, object.meta(), memory, previous.as_ref(), &status).await?;
        Ok(None)
    }
}
