//! The keys that a server's session ids are sealed with, and how one follows another. Pure: time, randomness and what
//! the pods say are arguments.
//!
//! They live in Longshore's own Secret of the server, and nowhere else: what that Secret holds is in force, and when it
//! has gone, so have they. One follows another in steps, each of which every pod has to have taken before the next:
//!
//! 1. the new key is accepted, beside the one that seals;
//! 2. it seals, and the one before is still accepted;
//! 3. the one before has sealed its last, from when on its time runs;
//! 4. it goes, once no session can be left whose id it sealed.

mod record;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use longshore_sidecar_config::SessionKey;

use crate::digest;

/// How many bytes a key has.
const SECRET_BYTES: usize = 32;
/// How many keys there may be at once. Each is a try for whoever opens an id, and a part of the file that every pod
/// mounts; a server that rotates once a week and has sessions of a month needs six.
const MOST_HELD: usize = 8;
/// The least that what a key has sealed may matter, however short sessions are: ids of tasks are sealed too, and some run
/// for a night. Ids of calls that wait for their clients' answers are as well, which sidecars do for ten minutes.
const LEAST: Duration = Duration::from_secs(24 * 3600);
/// How much longer than what it has sealed a key is kept: clocks differ.
const SLACK: Duration = Duration::from_secs(60);

/// The keys of one server, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionKeys {
    held: Vec<Held>,
    /// The number of the one that new ids are sealed with. One of those that are held.
    seal_with: u8,
    /// The digest of the wish for a rotation that was heard last.
    heard: Option<String>,
}

/// A key and its story. (Its `Debug` does not show the secret.)
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    key: SessionKey,
    made: Timestamp,
    /// Since when no pod seals with it any more.
    retired: Option<Timestamp>,
}

/// What a new key is made of.
#[derive(Clone)]
pub(crate) struct Material {
    /// The number of a server's very first key: another one than that of a key which was lost, most likely.
    pub first_id: u8,
    /// The key.
    pub secret: [u8; SECRET_BYTES],
}

/// What decides whether the keys move on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The time.
    pub now: Timestamp,
    /// How long what a key has sealed may matter: see [`lives`].
    pub lives: Duration,
    /// How old a key becomes before another follows it. `None`: as old as its server.
    pub rotate_after: Option<Duration>,
    /// What the server's owner wrote to ask for a rotation. Another value asks again.
    pub wish: Option<&'a str>,
    /// Whether every pod runs the configuration with the keys as they are.
    pub confirmed: bool,
}

/// What the keys did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A new one is accepted from now on.
    Accepted {
        /// Its number.
        id: u8,
    },
    /// It seals from now on.
    Sealing {
        /// Its number.
        id: u8,
        /// The number of the key before it.
        before: u8,
    },
    /// No pod seals any more with the earlier ones.
    Retired,
    /// Those that nobody needs any more have gone.
    Dropped,
}

// === impl SessionKeys ===

impl SessionKeys {
    /// The first key of a server.
    pub(crate) fn first(material: &Material, now: Timestamp, wish: Option<&str>) -> Self {
        let id = material.first_id.max(1);
        Self { held: vec![material.held(id, now)], seal_with: id, heard: wish.map(heard) }
    }

    /// One key of a number and of bytes that tests know.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self::first(&Material { first_id: 1, secret: [0x11; SECRET_BYTES] }, Timestamp::UNIX_EPOCH, None)
    }

    /// All that are accepted.
    pub(crate) fn held(&self) -> impl Iterator<Item = &SessionKey> {
        self.held.iter().map(|held| &held.key)
    }

    /// The number of the one that new ids are sealed with.
    pub(crate) fn seal_with(&self) -> u8 {
        self.seal_with
    }

    /// Whether what those seal opens with these too.
    pub(crate) fn has_sealing_key_of(&self, others: &Self) -> bool {
        let sealing = others.held().find(|key| key.id == others.seal_with);
        sealing.is_some_and(|sealing| self.held().any(|key| key == sealing))
    }

    /// The keys after their next step, if there is one to take now.
    pub(crate) fn advance<E>(
        &self,
        situation: &Situation<'_>,
        material: impl FnOnce() -> Result<Material, E>,
    ) -> Result<Option<(Self, Step)>, E> {
        if !situation.confirmed {
            return Ok(None);
        }
        let mut next = self.clone();
        if let Some(id) = self.successor() {
            let before = self.seal_with;
            next.seal_with = id;
            return Ok(Some((next, Step::Sealing { id, before })));
        }
        // Not with the step before: until every pod has taken that one, some seal with the old key.
        if self.is_to_retire() {
            let sealed = next.held.iter_mut().filter(|held| held.key.id != self.seal_with);
            sealed.for_each(|held| held.retired = held.retired.or(Some(situation.now)));
            return Ok(Some((next, Step::Retired)));
        }
        next.held.retain(|held| self.left(held, situation).is_none_or(|left| !left.is_zero()));
        if next.held.len() < self.held.len() {
            return Ok(Some((next, Step::Dropped)));
        }
        if self.is_wanted(situation) && self.held.len() < MOST_HELD {
            let Some(id) = self.free_id() else { return Ok(None) };
            next.held.push(material()?.held(id, situation.now));
            next.heard = situation.wish.map(heard).or(next.heard);
            return Ok(Some((next, Step::Accepted { id })));
        }
        Ok(None)
    }

    /// Whether there is a step to take, once the pods have taken the one before.
    pub(crate) fn has_next_step(&self, situation: &Situation<'_>) -> bool {
        self.successor().is_some()
            || self.is_to_retire()
            || self.is_wanted(situation)
            || self.held.iter().any(|held| self.left(held, situation).is_some_and(|left| left.is_zero()))
    }

    /// When time alone will bring the next step.
    pub(crate) fn due(&self, situation: &Situation<'_>) -> Option<Duration> {
        let drops = self.held.iter().filter_map(|held| self.left(held, situation));
        let sealing = self.held.iter().find(|held| held.key.id == self.seal_with);
        let rotation = sealing
            .and_then(|held| Some(situation.rotate_after?.saturating_sub(age(held.made, situation.now))));
        drops.chain(rotation.filter(|_| self.held.len() < MOST_HELD)).min()
    }

    /// The key that follows the one that seals, if there is one already.
    fn successor(&self) -> Option<u8> {
        let sealing = self.held.iter().position(|held| held.key.id == self.seal_with)?;
        self.held.get(sealing + 1).map(|held| held.key.id)
    }

    /// Whether there are keys that every pod has been told to seal with no more, and whose time does not run yet. What
    /// comes after the key that seals has not sealed.
    fn is_to_retire(&self) -> bool {
        self.successor().is_none()
            && self.held.iter().any(|held| held.key.id != self.seal_with && held.retired.is_none())
    }

    /// How long a key that no longer seals has to stay.
    fn left(&self, held: &Held, situation: &Situation<'_>) -> Option<Duration> {
        let retired = held.retired.filter(|_| held.key.id != self.seal_with)?;
        Some((situation.lives + SLACK).saturating_sub(age(retired, situation.now)))
    }

    fn is_wanted(&self, situation: &Situation<'_>) -> bool {
        let is_new = situation.wish.is_some_and(|wish| self.heard.as_deref() != Some(&heard(wish)));
        let sealing = self.held.iter().find(|held| held.key.id == self.seal_with);
        let is_old = situation.rotate_after.is_some_and(|rotate_after| {
            sealing.is_some_and(|held| age(held.made, situation.now) >= rotate_after)
        });
        is_new || is_old
    }

    /// The number after the newest key's. Numbers come round, and by then nothing is left of those who had them: what
    /// could still be named is held.
    fn free_id(&self) -> Option<u8> {
        let newest = self.held.last()?.key.id;
        let candidates = (1..=u8::MAX).map(|step| newest.wrapping_add(step));
        candidates.into_iter().find(|id| *id != 0 && self.held().all(|key| key.id != *id))
    }
}

/// How long what a key has sealed may matter: as long as a session may live, or a task may be looked for. Both may have
/// begun under the previous key, and be sealed when the server answers.
#[must_use]
pub(crate) fn lives(max_age: Duration, request_timeout: Duration) -> Duration {
    max_age.max(LEAST) + request_timeout
}

/// A wish is remembered by its digest, since it may be of any length.
fn heard(wish: &str) -> String {
    digest::hex(wish.as_bytes())[..16].to_owned()
}

/// How long ago something was. Nothing, if the clock went back meanwhile.
fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(now.as_second() - then.as_second()).unwrap_or_default())
}

// === impl Material ===

impl Material {
    fn held(&self, id: u8, made: Timestamp) -> Held {
        let secret = self.secret.iter().fold(String::with_capacity(2 * SECRET_BYTES), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Held { key: SessionKey { id, secret }, made, retired: None }
    }
}
