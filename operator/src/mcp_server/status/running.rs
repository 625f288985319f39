//! What the sidecars of pods that serve say that they run, whatever was said of the server before. Pure.

use longshore_sidecar_config::inventory::ConfigState;

use super::cast::{Cast, Version};
use super::{Observation, PodFacts};

/// What they run, by their own words.
pub(super) struct Running {
    /// The generation that clients use where a sidecar runs another configuration than it should, or pods are of before, as
    /// far as that is known.
    pub(super) generation: Option<i64>,
    /// Whether anybody is let in by one of them. `None`: nobody can say, since one is silent, or of an earlier release that
    /// does not say it.
    pub(super) callers: Option<bool>,
}

impl Running {
    pub(super) fn of(observed: &Observation<'_>, cast: &Cast<'_>) -> Self {
        let config = |facts: &PodFacts| facts.report.summary().map(|summary| summary.config.clone());
        let is_wanted = |facts: &PodFacts, config: &ConfigState| {
            observed.desired.and_then(|desired| desired.config_of(&facts.pod)) == Some(&*config.digest)
        };
        let behind = cast.serves.iter().filter_map(|facts| {
            config(facts).filter(|config| !is_wanted(facts, config)).map(|config| config.generation)
        });
        let is_current = cast.serving == Some(Version::Current);
        let generation = if is_current {
            // The earliest configuration was made then, and what has changed since may have been in force.
            behind.min().max(observed.still_in_force())
        } else {
            // Pods of before may run the configuration of a version that never served, so that Ready knows better.
            observed.was_in_force().or(behind.min())
        };
        // Only the keys may be of before, and those of no other generation. Pods of before are of one. What no configuration
        // could be made of, none is of.
        let is_of_before = observed.desired.is_some() && !is_current;
        let latest = observed.generation - i64::from(is_of_before);
        let callers: Vec<_> = cast.serves.iter().map(|facts| config(facts)?.callers).collect();
        Self {
            generation: generation.map(|generation| generation.min(latest).max(1)),
            callers: if callers.contains(&Some(true)) {
                Some(true)
            } else {
                callers.iter().all(Option::is_some).then_some(false).filter(|_| !callers.is_empty())
            },
        }
    }
}
