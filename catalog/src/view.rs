//! What the catalog knows at a moment, and how it is looked through: filters, order, pages.

mod entry;
mod page;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;

use crate::index::{Hit, Index, Kind, Query, Segment};
use crate::model::{Freshness, Server, Tool, ToolSummary};
use crate::offer::Offer;
use crate::record::{About, ServerKey, ServerRecord};
use entry::settle;
pub(crate) use entry::{Entry, segment};
use page::Filling;
pub use page::{Found, Page, Position};

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) servers: BTreeMap<ServerKey, Entry>,
    pub(crate) index: Index,
    /// Since when nothing is heard of changes.
    pub(crate) stale: Option<String>,
}

// === impl View ===

impl View {
    /// Enters a server or changes one. Says whether its words have to be read again.
    pub(crate) fn enter(&mut self, mut record: ServerRecord, id: u64, now: &str) -> bool {
        let before = self.servers.get(&record.key);
        settle(&mut record.health, before.map(|entry| &entry.record.health), now);
        let offer = record.offer.take().or_else(|| before.and_then(Entry::heard));
        // Names alone are better than nothing, and the newest of them, until the server has been heard.
        let offer = offer.or_else(|| {
            let (names, others) = (&record.known_tools, record.known_tools_left_out);
            (!names.is_empty() || others > 0).then(|| Arc::new(Offer::of_names(names, others)))
        });
        record.offer = offer;
        match self.servers.get_mut(&record.key) {
            Some(entry) => {
                entry.record = record;
                let behind = entry.is_behind();
                if !behind && let Some((_, indexed)) = &mut entry.indexed {
                    // The tools are the same: what was read before need not be in memory for them.
                    indexed.clone_from(&entry.record.offer);
                }
                entry.retitle();
                entry.compare();
                behind
            }
            None => {
                let slot = self.index.reserve(&record.key.namespace);
                let mut entry = Entry {
                    slot,
                    id,
                    indexed: None,
                    places: None,
                    words_left_out: 0,
                    title: String::new(),
                    owner: None,
                    record: record.clone(),
                };
                entry.retitle();
                self.servers.insert(record.key, entry);
                true
            }
        }
    }

    /// Removes a server, if it is there.
    pub(crate) fn remove(&mut self, key: &ServerKey) {
        let Some(entry) = self.servers.remove(key) else { return };
        self.index.release(entry.slot);
    }

    /// Has a server found by what a segment was made from, if it is still the one that it was made for. Says whether the
    /// server has said something else meanwhile.
    pub(crate) fn publish(
        &mut self,
        key: &ServerKey,
        id: u64,
        source: (About, Option<Arc<Offer>>),
        segment: Segment,
    ) -> bool {
        let Some(entry) = self.servers.get_mut(key).filter(|entry| entry.id == id) else { return false };
        entry.words_left_out = self.index.put(entry.slot, segment);
        entry.indexed = Some(source);
        entry.compare();
        entry.is_behind()
    }

    pub(crate) fn freshness(&self) -> Freshness {
        Freshness { stale: self.stale.is_some(), since: self.stale.clone() }
    }

    pub(crate) fn server(&self, key: &ServerKey) -> Option<Server> {
        self.servers.get(key).map(Entry::server)
    }

    pub(crate) fn tool(&self, key: &ServerKey, name: &str) -> Option<Tool> {
        let entry = self.servers.get(key)?;
        Some(entry.tool(entry.record.offer.as_ref()?.tool(name)?, self.freshness()))
    }

    pub(crate) fn servers_page(&self, page: &Page) -> Found<Server> {
        if let Some(query) = &page.query {
            return self.found(page, query, Kind::Servers, |entry, _| Some(entry.server()));
        }
        let matching = |after: Bound<&ServerKey>| {
            let servers = self.servers.range::<ServerKey, _>((after, Bound::Unbounded));
            servers.filter(|(_, entry)| page.admits(entry))
        };
        let start = page.after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(&after.server));
        let mut filling = Filling::new(page);
        for (key, entry) in matching(start) {
            if !filling.put(entry.server(), || Position { score: None, server: key.clone(), tool: None }) {
                break;
            }
        }
        filling.found(matching(Bound::Unbounded).count(), self.freshness())
    }

    pub(crate) fn tools_page(&self, page: &Page) -> Found<ToolSummary> {
        if let Some(query) = &page.query {
            return self.found(page, query, Kind::Tools, |entry, document| {
                Some(entry.summary(entry.tool_at(document)?, page.schemas))
            });
        }
        let count = |entry: &Entry| {
            if page.chooses_tools() {
                entry.tools().iter().filter(|tool| page.admits_tool(tool)).count()
            } else {
                entry.tools().len()
            }
        };
        let total = self.servers.values().filter(|entry| page.admits(entry)).map(count).sum();
        let start = page.after.as_ref().map_or(Bound::Unbounded, |after| Bound::Included(&after.server));
        let mut filling = Filling::new(page);
        'page: for (key, entry) in self.servers.range::<ServerKey, _>((start, Bound::Unbounded)) {
            if !page.admits(entry) {
                continue;
            }
            let tools = entry.tools();
            let seen = page.after.as_ref().filter(|after| after.server == *key).map_or(0, |after| {
                let tool = after.tool.as_deref().unwrap_or_default();
                tools.partition_point(|it| *it.name <= *tool)
            });
            for tool in tools.iter().skip(seen).filter(|tool| page.admits_tool(tool)) {
                let position =
                    || Position { score: None, server: key.clone(), tool: Some(tool.name.to_string()) };
                if !filling.put(entry.summary(tool, page.schemas), position) {
                    break 'page;
                }
            }
        }
        filling.found(total, self.freshness())
    }

    /// The best of what a query finds.
    fn found<T: Serialize>(
        &self,
        page: &Page,
        query: &str,
        kind: Kind,
        show: impl Fn(&Entry, usize) -> Option<T>,
    ) -> Found<T> {
        // By their slots, with their places among all by key. To go through all is faster than to look for each.
        let mut entries: Vec<Option<(usize, &Entry)>> = vec![None; self.index.slots()];
        for (place, entry) in self.servers.values().enumerate().filter(|(_, entry)| page.admits(entry)) {
            if let Some(slot) = entries.get_mut(entry.slot as usize) {
                *slot = Some((place, entry));
            }
        }
        let at = |slot: u32| entries.get(slot as usize).copied().flatten();
        let entry = |slot: u32| at(slot).map(|(_, entry)| entry);
        let lists =
            |slot: u32, document: u32| entry(slot).is_some_and(|entry| entry.lists(document as usize, page));
        let mut hits = self.index.search(&Query::of(query), kind, &lists);
        let total = hits.len();
        let rank = |hit: &Hit| (at(hit.slot).map(|(place, _)| place), hit.document);
        let order = |one: &Hit, other: &Hit| {
            other.score.total_cmp(&one.score).then_with(|| rank(one).cmp(&rank(other)))
        };
        if let Some(after) = &page.after {
            // Where the entry is by now: whatever any server changes moves the scores of all. One that is gone was where its
            // score says.
            let is_it = |hit: &&Hit| entry(hit.slot).is_some_and(|it| it.is_at(hit.document as usize, after));
            let here = hits.iter().find(is_it).map(|hit| hit.score);
            let score = here.or(after.score).unwrap_or(f32::INFINITY);
            hits.retain(|hit| match hit.score.total_cmp(&score) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Greater => false,
                std::cmp::Ordering::Equal => {
                    entry(hit.slot).is_some_and(|entry| entry.comes_after(hit.document as usize, after))
                }
            });
        }
        // One more says that there is a next page.
        let most = page.limit.saturating_add(1);
        if hits.len() > most {
            hits.select_nth_unstable_by(page.limit, order);
            hits.truncate(most);
        }
        hits.sort_unstable_by(order);
        let mut filling = Filling::new(page);
        for hit in &hits {
            let Some(entry) = entry(hit.slot) else { continue };
            let Some(item) = show(entry, hit.document as usize) else { continue };
            if !filling.put(item, || entry.position(hit)) {
                break;
            }
        }
        filling.found(total, self.freshness())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Reader;
    use crate::model::{Health, State};
    use crate::record::Endpoint;

    fn offer(key: &ServerKey, tools: &[&str]) -> Arc<Offer> {
        let tools: Vec<_> = tools.iter().map(|name| json!({"name": name, "description": "common"})).collect();
        let inventory = json!({
            "phase": "Serving",
            "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
            "server": {"info": {"name": "demo"}, "protocolVersion": "2025-11-25"},
            "tools": tools,
        });
        Arc::new(Reader::default().read(key, inventory.to_string().as_bytes()).unwrap())
    }

    /// At once, and found when its words have been read; what is hidden meanwhile is not found by those.
    #[test]
    fn what_was_heard_last_is_listed() {
        let key = ServerKey { namespace: "a".to_owned(), name: "demo".to_owned() };
        let health = Health { state: State::Up, since: None, reason: String::new(), message: String::new() };
        let record = |offer| ServerRecord {
            key: key.clone(),
            about: About::default(),
            endpoint: Endpoint::default(),
            health: health.clone(),
            offer: Some(offer),
            known_tools: vec![],
            known_tools_left_out: 0,
        };
        let mut view = View::default();
        let listed = |view: &View| {
            let all = view.tools_page(&Page { limit: 9, ..Page::default() });
            assert_eq!(all.items.len(), all.total);
            let all: Vec<_> = all.items.into_iter().map(|tool| tool.name).collect();
            let (mut walked, mut after) = (Vec::new(), None);
            loop {
                let found = view.tools_page(&Page { limit: 1, after, ..Page::default() });
                assert_eq!((found.items.len(), found.total), (1, all.len()));
                walked.extend(found.items.into_iter().map(|tool| tool.name));
                after = found.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(all, walked);
            assert!(all.iter().all(|name| view.tool(&key, name).is_some()));
            assert_eq!(view.server(&key).unwrap().tools, all.len());
            all
        };
        let found = |view: &View| {
            let query = Some("common".to_owned());
            let found = view.tools_page(&Page { query, limit: 9, ..Page::default() });
            assert_eq!(found.items.len(), found.total);
            let mut names: Vec<_> = found.items.into_iter().map(|tool| tool.name).collect();
            names.sort_unstable();
            names
        };
        let publish = |view: &mut View, source: (About, Option<Arc<Offer>>)| {
            let segment = segment(&key, &source.0, source.1.as_deref());
            view.publish(&key, 0, source, segment)
        };
        let first = ["ancient", "echo", "old", "secret", "tidy"];
        assert!(view.enter(record(offer(&key, &first)), 0, ""));
        assert_eq!((listed(&view), found(&view)), (first.map(str::to_owned).to_vec(), vec![]));
        let source = view.servers[&key].source();
        assert!(!publish(&mut view, source));
        assert_eq!(found(&view), first);
        let next = offer(&key, &["add", "echo", "new secret", "secret"]);
        assert!(view.enter(record(next.clone()), 1, ""));
        assert_eq!(listed(&view), ["add", "echo", "new secret", "secret"]);
        assert_eq!(found(&view), ["echo", "secret"]);
        let source = view.servers[&key].source();
        assert!(view.enter(record(next.only(|name| !name.contains("secret"))), 2, ""));
        assert!(view.tool(&key, "new secret").is_none());
        assert_eq!(listed(&view), ["add", "echo"]);
        assert_eq!(found(&view), ["echo"]);
        assert!(publish(&mut view, source), "it has said something else meanwhile");
        assert_eq!(found(&view), ["add", "echo"]);
        let source = view.servers[&key].source();
        assert!(!publish(&mut view, source));
        assert_eq!(found(&view), listed(&view));
    }
}
