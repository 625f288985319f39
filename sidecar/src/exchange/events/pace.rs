//! When a server is asked again for a stream that it has ended: as soon as it says if the stream was of use, and ever
//! later if not.

use tokio::time::{Duration, Instant};

/// How much later than it says a server is asked again that has ended its stream at once, and how much at most if it does
/// so again and again.
const LATER: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(10);
/// After how long without an event many proxies close a stream: that is not at once.
const QUIET: Duration = Duration::from_secs(10);

/// How a server's streams end, one after the other.
pub(super) struct Pace {
    began: Instant,
    /// Something was said in this one.
    pub(super) spoke: bool,
    later: Duration,
}

impl Pace {
    /// The first has begun.
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), spoke: false, later: Duration::ZERO }
    }

    /// A stream has ended: how much later than the server says the next one is asked for.
    pub(super) fn ended(&mut self) -> Duration {
        self.later = later(self.later, self.spoke || self.began.elapsed() >= QUIET);
        self.later
    }

    /// There is another one.
    pub(super) fn go_on(&mut self) {
        *self = Self { later: self.later, ..Self::new() };
    }
}

/// The same by what it was before, and by whether the stream was worth asking for.
fn later(before: Duration, was_of_use: bool) -> Duration {
    if was_of_use { Duration::ZERO } else { (before * 2).clamp(LATER, LATEST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_its_streams_at_once_is_asked_ever_later() {
        let (mut waits, mut wait) = (Vec::new(), Duration::ZERO);
        for was_of_use in
            [true, false, false, false, false, false, false, false, false, false, false, true, false]
        {
            wait = later(wait, was_of_use);
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 0, 50]);
    }
}
