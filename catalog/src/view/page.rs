//! Which part of a list is asked for, and what fits into it.

use std::io;

use serde::Serialize;

use super::entry::Entry;
use crate::limits;
use crate::model::{Freshness, State};
use crate::offer::ToolEntry;
use crate::record::{ServerKey, ServerRecord};

/// Which servers and tools are meant, and from where on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// What to look for. `None`: everything, by name.
    pub query: Option<String>,
    /// Only servers of this namespace.
    pub namespace: Option<String>,
    /// Only servers of this name.
    pub server: Option<String>,
    /// Only servers of this owner.
    pub owner: Option<String>,
    /// Only servers with all of these tags.
    pub tags: Vec<String>,
    /// Only servers that are so.
    pub health: Option<State>,
    /// Only tools of which their servers say that they change nothing.
    pub read_only: bool,
    /// Only tools of which their servers say that they destroy nothing.
    pub destroys_nothing: bool,
    /// Whether tools come with their schemas.
    pub schemas: bool,
    /// How many.
    pub limit: usize,
    /// Only what comes after this.
    pub after: Option<Position>,
}

/// A place in a list: that of its last entry. It needs not be there any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Position {
    /// The score, where there is a query.
    pub score: Option<f32>,
    /// The server.
    pub server: ServerKey,
    /// The tool, in a list of tools.
    pub tool: Option<String>,
}

/// One page of what was found.
#[derive(Clone, Debug)]
pub struct Found<T> {
    /// The entries.
    pub items: Vec<T>,
    /// How many there are on all pages.
    pub total: usize,
    /// Where the next page begins, if there is one.
    pub next: Option<Position>,
    /// Whether this may be out of date.
    pub freshness: Freshness,
}

/// A page while it is filled. An answer is in memory until its reader has it, so it is bounded in bytes too.
pub(super) struct Filling<T> {
    items: Vec<T>,
    left: usize,
    most: usize,
    last: Option<Position>,
    is_full: bool,
}

/// Counts what is written.
struct Counter(usize);

// === impl Page ===

impl Page {
    pub(super) fn admits(&self, entry: &Entry) -> bool {
        let ServerRecord { key, about, health, .. } = &entry.record;
        self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.server.as_ref().is_none_or(|name| *name == key.name)
            && self.owner.as_ref().is_none_or(|owner| {
                // As it was written, or as it was read in an answer.
                about.owner.as_ref() == Some(owner) || entry.owner.as_ref() == Some(owner)
            })
            && self.tags.iter().all(|tag| about.tags.contains(tag))
            && self.health.is_none_or(|state| state == health.state)
    }

    /// Whether tools of servers that are admitted are not.
    pub(super) fn chooses_tools(&self) -> bool {
        self.read_only || self.destroys_nothing
    }

    pub(super) fn admits_tool(&self, tool: &ToolEntry) -> bool {
        let changes_nothing = tool.annotations.read_only_hint == Some(true);
        // As MCP has it: one that changes something, and of which nothing else is said, may destroy it.
        let destroys = tool.annotations.destructive_hint.unwrap_or(!changes_nothing);
        (!self.read_only || changes_nothing) && !(self.destroys_nothing && destroys)
    }
}

// === impl Filling ===

impl<T: Serialize> Filling<T> {
    pub(super) fn new(page: &Page) -> Self {
        Self { items: Vec::new(), left: limits::PAGE, most: page.limit, last: None, is_full: false }
    }

    /// Adds the entry that is at this position, or says that it is for the next page.
    pub(super) fn put(&mut self, item: T, position: impl FnOnce() -> Position) -> bool {
        let mut counter = Counter(0);
        // What cannot be written fails where the answer is.
        let _ = serde_json::to_writer(&mut counter, &item);
        // One entry is never too long.
        self.is_full = self.items.len() == self.most || (counter.0 > self.left && !self.items.is_empty());
        if self.is_full {
            return false;
        }
        self.left = self.left.saturating_sub(counter.0);
        self.items.push(item);
        self.last = Some(position());
        true
    }

    pub(super) fn found(self, total: usize, freshness: Freshness) -> Found<T> {
        Found { items: self.items, total, next: self.last.filter(|_| self.is_full), freshness }
    }
}

// === impl Counter ===

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
