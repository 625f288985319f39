//! What a server is asked for, and what it takes of that. All together wherever it may be: each resource by itself costs a
//! stream of its own that nobody hears.

use std::cell::Cell;
use std::collections::BTreeSet;

use tokio::time::Instant;

use super::stream::{Told, open, says_no, untold};
use super::{AGAIN_AT_MOST, AT_ONCE, Again, Hearing};
use crate::upstream::Failure as Any;
use crate::upstream::modern_as_legacy::way::Way;

/// Each says whether there is another stream.
impl Hearing {
    /// There is none: asks for one of all that the server is not known to refuse, or else of its lists, so that these are
    /// heard while it is found out what else there is.
    pub(super) async fn begin(&mut self, way: &Way) -> Result<bool, Any> {
        let wanted = way.session.wanted();
        self.refused = None;
        if !self.together(way, &wanted.known, wanted.wishes).await? {
            let lists = open(way, &BTreeSet::new()).await?;
            let resources = wanted.all.len();
            tracing::warn!(resources, "the server refuses to tell of what a client has subscribed to");
            // Nobody is refused yet what it may well take.
            self.hears(lists);
            self.refused = Some(wanted.known);
            self.whole.due = Some(Instant::now());
        }
        Ok(true)
    }

    /// The client wants something else: asks for that, without what the server is known to refuse.
    pub(super) async fn wish(&mut self, way: &Way) -> Result<bool, Any> {
        let wanted = way.session.wanted();
        self.found = &self.found & &wanted.all;
        self.refused = None;
        // Whatever ends this.
        if self.whole.due.is_none() {
            self.whole.later();
        }
        // Where its client takes one of those for subscribed to of which it is not known what the server says, they were
        // refused with the others.
        let unsaid = &(&wanted.known - &self.told) - &self.found;
        let is_asked = !way.session.has_promised(&unsaid);
        if is_asked && self.together(way, &wanted.known, wanted.wishes).await? {
            return Ok(true);
        }
        let refused = is_asked.then(|| wanted.known.clone());
        self.sift(way, wanted.known, refused, wanted.wishes).await
    }

    /// Something is in no stream: asks for all, since what the server has once refused it may have refused for that moment.
    pub(super) async fn look(&mut self, way: &Way, sifts: &Cell<bool>) -> Result<bool, Any> {
        let wanted = way.session.wanted();
        self.found = &self.found & &wanted.all;
        self.whole.later();
        let is_refused = self.refused.take().is_some_and(|refused| refused == wanted.all);
        if !is_refused && self.together(way, &wanted.all, wanted.wishes).await? {
            return Ok(true);
        }
        sifts.set(true);
        // That it refuses each of those still is not found out each time.
        let uris = if self.whole.pause < AGAIN_AT_MOST { wanted.known } else { wanted.all.clone() };
        self.sift(way, uris, Some(wanted.all), wanted.wishes).await
    }

    /// Asks for each of these by itself that the server does not tell of yet, and then for what is left; and where it refuses
    /// that, as it may have `refused` it just now, for each of those that it tells of: one of them is gone by now. Where this
    /// is ended before, the next time goes on from there.
    async fn sift(
        &mut self,
        way: &Way,
        mut uris: BTreeSet<String>,
        refused: Option<BTreeSet<String>>,
        wishes: u64,
    ) -> Result<bool, Any> {
        let new = &uris - &self.told;
        let old = &uris - &new;
        let is_fresh = self.found.is_empty();
        for (doubtful, is_last) in [(new, false), (old, true)] {
            let untold = untold(way, &doubtful - &self.found, self.at_once, &mut self.found).await;
            // One that bounds its streams may have room for one more.
            uris = &uris - &untold.inspect_err(|_| self.at_once = 1)?;
            self.whole.put_off();
            if !is_last && refused.as_ref() == Some(&uris) {
                continue;
            }
            // One that takes nothing any more may tell on nevertheless.
            if uris == self.told || uris.is_empty() {
                break;
            }
            if self.together(way, &uris, wishes).await? {
                return Ok(true);
            }
        }
        // What it had taken together it may take so still.
        let had = &self.had & &uris;
        if !had.is_empty() && had != uris && had != self.told {
            way.session.note_refused(&(&uris - &had));
            if self.together(way, &had, wishes).await? {
                self.found.clear();
                return Ok(true);
            }
        }
        // What it takes alone, and not with the others, is refused for now, unless that it takes it was found out before; then
        // each is in doubt again.
        let found = std::mem::take(&mut self.found);
        if is_fresh {
            way.session.note_refused(&(&found - &self.told));
        }
        way.session.note_heard(wishes, &self.told);
        Ok(false)
    }

    /// Asks for these together.
    async fn together(&mut self, way: &Way, uris: &BTreeSet<String>, wishes: u64) -> Result<bool, Any> {
        match open(way, uris).await {
            Ok(told) => self.takes(way, told, uris, wishes),
            Err(failure) if says_no(&failure) && !uris.is_empty() => return Ok(false),
            Err(failure) => return Err(failure),
        }
        Ok(true)
    }

    /// The server has another stream for these.
    fn takes(&mut self, way: &Way, told: Told, asked: &BTreeSet<String>, wishes: u64) {
        let session = &way.session;
        // What its client takes for subscribed to may have changed before there was this stream.
        if session.has_promised(&(&told.uris - &self.told)) {
            self.gap.was_absent();
        }
        session.note_taken(&told.uris);
        // What it leaves out it refuses.
        session.note_refused(&(asked - &told.uris));
        self.found = &self.found - asked;
        self.hears(told);
        let wanted = session.wanted();
        if wanted.known == wanted.all {
            self.whole = Again::default();
        } else if self.whole.due.is_none() {
            self.whole.later();
        }
        session.note_heard(wishes, &self.told);
    }

    fn hears(&mut self, told: Told) {
        self.at_once = AT_ONCE;
        if !told.uris.is_empty() {
            self.had = told.uris.clone();
        }
        (self.current, self.told, self.since) = (told.source, told.uris, Instant::now());
    }
}
