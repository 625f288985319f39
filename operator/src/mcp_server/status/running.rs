//! What the sidecars of pods that serve say that they run, whatever was said of the server before. Pure.

use super::cast::Cast;
use super::{Observation, PodFacts};

/// Whether anybody is let in by one of them. `None`: nobody can say, since one is silent, or of an earlier release that
/// does not say it.
pub(super) fn callers(cast: &Cast<'_>) -> Option<bool> {
    let callers = cast.serves.iter().map(|facts| facts.report.summary()?.config.callers);
    let callers: Vec<_> = callers.collect();
    if callers.contains(&Some(true)) {
        return Some(true);
    }
    callers.iter().all(Option::is_some).then_some(false).filter(|_| !callers.is_empty())
}

/// Of which generation the earliest configuration is that one of them runs and should not.
pub(super) fn earliest(observed: &Observation<'_>, cast: &Cast<'_>) -> Option<i64> {
    let behind = |facts: &&PodFacts| {
        let config = &facts.report.summary()?.config;
        let wanted = observed.desired.and_then(|desired| desired.config_of(&facts.pod));
        (wanted != Some(&*config.digest)).then_some(config.generation)
    };
    cast.serves.iter().filter_map(behind).min()
}
