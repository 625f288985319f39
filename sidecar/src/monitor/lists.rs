//! What a server lists: all of it, as far as it says that it has some.

use longshore_mcp::method::List;
use serde_json::Value;
use tokio::time::Duration;

use super::client::{MAX_OFFER, Server};
use super::state::Problem;
use super::{Lists, RELIST_EVERY, RELIST_PAUSE};

/// What a server has listed.
pub(super) struct Listed {
    pub(super) lists: Lists,
    /// Why a list is as it was before, if one is.
    pub(super) unlisted: Option<Problem>,
}

/// A server that has listed its tools, and not all else that it says it has, or not now: it serves, and is asked again.
#[derive(Default)]
pub(super) struct Partly {
    problem: Option<Problem>,
    /// How often in a row.
    times: u32,
}

impl Partly {
    /// Takes in how its lists were read, and tells what is wrong when that is news.
    pub(super) fn note(&mut self, problem: Option<Problem>) {
        self.times = if problem.is_some() { self.times.saturating_add(1) } else { 0 };
        // Once, however often it is asked.
        if let Some(Problem { message, .. }) = problem.as_ref().filter(|_| problem != self.problem) {
            tracing::warn!(detail = %message, "the MCP server does not list all that it says it has");
        }
        self.problem = problem;
    }

    /// How soon the lists are read again.
    pub(super) fn list_in(&self) -> Duration {
        match self.times.checked_sub(1) {
            Some(before) => (RELIST_PAUSE * 4 * (1 << before.min(6))).min(RELIST_EVERY),
            None => RELIST_EVERY,
        }
    }
}

/// Reads every list that the server says it has. One that it refuses stays what it was. That of its tools does only where it
/// has listed them before and has no time now: without it, it does not serve.
pub(super) async fn list_all(
    server: &Server,
    capabilities: &Value,
    known: Option<&Lists>,
) -> Result<Listed, Problem> {
    let nothing = Lists::default();
    let (has_listed, known) = (known.is_some(), known.unwrap_or(&nothing));
    let mut lists = Lists::default();
    let (mut room, mut unlisted) = (MAX_OFFER, None);
    for list in List::ALL {
        let (capability, place, known) = match list {
            List::Tools => ("tools", &mut lists.tools, &known.tools),
            List::Prompts => ("prompts", &mut lists.prompts, &known.prompts),
            List::Resources => ("resources", &mut lists.resources, &known.resources),
            List::ResourceTemplates => {
                ("resources", &mut lists.resource_templates, &known.resource_templates)
            }
        };
        if capabilities.get(capability).is_none() {
            continue;
        }
        let before = room;
        match server.list(list, &mut room).await {
            Ok(entries) => *place = entries,
            Err(error) if error.is_answer() && (list != List::Tools || (has_listed && error.is_busy())) => {
                unlisted = unlisted.or(Some(error.in_list(list)));
                let size = known.iter().map(|entry| entry.len()).sum();
                if let Some(left) = before.checked_sub(size) {
                    (room, *place) = (left, known.clone());
                }
            }
            Err(error) => return Err(error.in_list(list)),
        }
    }
    Ok(Listed { lists, unlisted })
}
