//! One server, as it is shown and found.

use std::sync::Arc;

use super::{Page, Position};
use crate::index::{Document, Hit, Segment};
use crate::limits;
use crate::metrics::Listed;
use crate::model::{Freshness, Health, Link, Reported, Server, ServerReference, Tool, ToolSummary};
use crate::offer::{Offer, Schema, ToolEntry};
use crate::record::{About, ServerKey, ServerRecord};
use crate::text;

/// One server: as it was heard last, and, for what its words find of it, as it was when they were read.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) slot: u32,
    /// Tells it from one of the same name that went.
    pub(crate) id: u64,
    /// What is listed.
    pub(crate) record: ServerRecord,
    /// What the index was made from.
    pub(crate) indexed: Option<(About, Option<Arc<Offer>>)>,
    /// Where each tool in there is in what was heard last, if that is another list: what is hidden meanwhile is not found
    /// until words are read again.
    pub(super) places: Option<Vec<Option<usize>>>,
    /// How many of its words the index has no room for.
    pub(super) words_left_out: usize,
    /// As it is shown.
    pub(super) title: String,
    /// As it is shown.
    pub(super) owner: Option<String>,
}

// === impl Entry ===

impl Entry {
    /// Whether what it is found by is not what was last heard.
    pub(crate) fn is_behind(&self) -> bool {
        let Some((about, offer)) = &self.indexed else { return true };
        let same = match (offer, &self.record.offer) {
            (None, None) => true,
            (Some(one), Some(other)) => one.lists_the_same(other),
            (None, Some(_)) | (Some(_), None) => false,
        };
        !same || *about != self.record.about
    }

    /// What the server was last heard to offer. Names alone, nobody heard from it.
    pub(crate) fn heard(&self) -> Option<Arc<Offer>> {
        self.record.offer.clone().filter(|offer| offer.reported.is_some())
    }

    /// What the index is to be made from.
    pub(crate) fn source(&self) -> (About, Option<Arc<Offer>>) {
        (self.record.about.clone(), self.record.offer.clone())
    }

    /// The tools that are listed, by name.
    pub(super) fn tools(&self) -> &[Arc<ToolEntry>] {
        self.record.offer.as_ref().map(|offer| offer.tools.as_slice()).unwrap_or_default()
    }

    /// How much of it is listed, and found.
    pub(crate) fn listed(&self) -> Listed {
        Listed {
            state: self.record.health.state,
            tools: self.tools().len(),
            tools_left_out: self.record.offer.as_ref().map_or(0, |offer| offer.tools_left_out),
            words_left_out: self.words_left_out,
        }
    }

    /// The tool of a document of the index, if it is one that the server still has. It is as it was heard last, whatever it
    /// was when its words were read.
    pub(super) fn tool_at(&self, document: usize) -> Option<&ToolEntry> {
        let place = document.checked_sub(1)?;
        let place = match &self.places {
            Some(places) => (*places.get(place)?)?,
            None => place,
        };
        self.tools().get(place).map(|tool| &**tool)
    }

    /// Whether a document that the index has is still the server's, and one that is asked for.
    pub(super) fn lists(&self, document: usize, page: &Page) -> bool {
        document == 0 || self.tool_at(document).is_some_and(|tool| page.admits_tool(tool))
    }

    /// Compares what it is found by with what was last heard.
    pub(super) fn compare(&mut self) {
        let indexed = self.indexed.as_ref().and_then(|(_, offer)| offer.as_ref());
        let heard = self.record.offer.as_ref();
        let same = matches!((indexed, heard), (Some(indexed), Some(heard)) if Arc::ptr_eq(indexed, heard));
        let tools = indexed.map(|indexed| indexed.tools.as_slice()).unwrap_or_default();
        let place = |tool: &Arc<ToolEntry>| heard?.place(&tool.name);
        self.places = (!same).then(|| tools.iter().map(place).collect());
    }

    /// What it is called: the owner's word for it, else its own, else its name. And whose it is.
    pub(super) fn retitle(&mut self) {
        let own = |reported: &Reported| {
            reported.title.clone().or_else(|| (!reported.name.is_empty()).then(|| reported.name.clone()))
        };
        self.title = self
            .record
            .about
            .title
            .as_deref()
            .map(|title| text::line(title, limits::OWN_LINE))
            .filter(|title| !title.is_empty())
            .or_else(|| self.record.offer.as_ref().and_then(|offer| own(offer.reported.as_ref()?)))
            .unwrap_or_else(|| self.record.key.name.clone());
        self.owner = self.record.about.owner.as_deref().map(|owner| text::line(owner, limits::OWN_LINE));
    }

    pub(super) fn server(&self) -> Server {
        let ServerRecord { key, about, endpoint, health, offer, .. } = &self.record;
        let offer = offer.as_deref();
        Server {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            title: self.title.clone(),
            description: about.description.as_deref().map(|text| text::lines(text, limits::OWN_TEXT)),
            owner: self.owner.clone(),
            tags: about.tags.iter().map(|tag| text::line(tag, limits::LINE)).collect(),
            links: about
                .links
                .iter()
                .map(|link| Link {
                    title: text::line(&link.title, limits::OWN_LINE),
                    url: text::line(&link.url, limits::OWN_TEXT),
                })
                .collect(),
            url: endpoint.url.clone(),
            public_url: endpoint.public_url.clone(),
            auth: endpoint.auth.clone(),
            health: health.clone(),
            reported: offer.and_then(|offer| offer.reported.clone()),
            tools: self.tools().len(),
            tools_left_out: offer.map_or(0, |offer| offer.tools_left_out),
            words_left_out: self.words_left_out,
            prompts: offer.map_or(0, |offer| offer.prompts),
            resources: offer.map_or(0, |offer| offer.resources),
            tools_digest: offer.map(|offer| offer.tools_digest.clone()).filter(|digest| !digest.is_empty()),
        }
    }

    pub(super) fn summary(&self, tool: &ToolEntry, with_schemas: bool) -> ToolSummary {
        let ServerRecord { key, endpoint, health, .. } = &self.record;
        let shown =
            |schema: &Option<Schema>| schema.as_ref().filter(|_| with_schemas).map(|schema| schema.0.clone());
        ToolSummary {
            name: tool.name.to_string(),
            title: tool.title.as_deref().map(str::to_owned),
            description: tool.description.as_deref().map(str::to_owned),
            parameters: tool.parameters.iter().map(ToString::to_string).collect(),
            annotations: tool.annotations,
            server: ServerReference {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                title: self.title.clone(),
                owner: self.owner.clone(),
                url: endpoint.url.clone(),
                public_url: endpoint.public_url.clone(),
                auth: endpoint.auth.clone(),
                health: health.clone(),
            },
            input_schema: shown(&tool.input_schema),
            output_schema: shown(&tool.output_schema),
            omitted: with_schemas.then(|| tool.omitted.clone()),
        }
    }

    pub(super) fn tool(&self, tool: &ToolEntry, freshness: Freshness) -> Tool {
        Tool { tool: self.summary(tool, true), freshness }
    }

    fn tool_name(&self, document: usize) -> Option<&str> {
        Some(&self.tool_at(document)?.name)
    }

    pub(super) fn position(&self, hit: &Hit) -> Position {
        Position {
            score: Some(hit.score),
            server: self.record.key.clone(),
            tool: self.tool_name(hit.document as usize).map(str::to_owned),
        }
    }

    pub(super) fn is_at(&self, document: usize, position: &Position) -> bool {
        (&self.record.key, self.tool_name(document)) == (&position.server, position.tool.as_deref())
    }

    pub(super) fn comes_after(&self, document: usize, position: &Position) -> bool {
        let own = (&self.record.key, self.tool_name(document));
        own > (&position.server, position.tool.as_deref())
    }
}

/// Reads what a server and its tools are found by.
pub(crate) fn segment(key: &ServerKey, about: &About, offer: Option<&Offer>) -> Segment {
    let reported = offer.and_then(|offer| offer.reported.as_ref());
    // A server that nobody has described says itself what it is for. A template may leave an empty description.
    let described = about.description.as_deref().filter(|description| !description.trim().is_empty());
    let instructions = reported.and_then(|reported| reported.instructions.as_deref());
    let mut server = Document {
        names: vec![&key.name],
        titles: about.title.as_deref().into_iter().collect(),
        parameters: Vec::new(),
        description: described.or(instructions),
    };
    server.titles.extend(about.tags.iter().map(String::as_str));
    server.titles.extend(about.owner.as_deref());
    if let Some(reported) = reported {
        server.titles.push(&reported.name);
        server.titles.extend(reported.title.as_deref());
    }
    let tools = offer.map(|offer| offer.tools.as_slice()).unwrap_or_default();
    let tools = tools.iter().map(|tool| Document {
        names: vec![&tool.name],
        titles: tool.title.as_deref().into_iter().collect(),
        parameters: tool.parameters.iter().map(|name| &**name).collect(),
        description: tool.description.as_deref(),
    });
    Segment::of(&std::iter::once(server).chain(tools).collect::<Vec<_>>())
}

/// A state has been there since it came, whatever a source says of the time.
pub(super) fn settle(health: &mut Health, before: Option<&Health>, now: &str) {
    health.reason = text::line(&health.reason, limits::LINE);
    health.message = text::line(&health.message, limits::MESSAGE);
    if health.since.is_none() {
        health.since = before
            .filter(|before| before.state == health.state)
            .and_then(|before| before.since.clone())
            .or_else(|| Some(now.to_owned()));
    }
}
