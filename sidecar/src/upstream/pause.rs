//! When a server is asked again for a stream that it has ended: as soon as it says if the stream was of use, and ever
//! later if not, up to a limit.

use tokio::time::{Duration, Instant};

/// After how long a server is asked again that has ended its stream at once, if it does not say later.
const LATER: Duration = Duration::from_millis(50);
/// After how long without an event many proxies close a stream: that is not at once.
const QUIET: Duration = Duration::from_secs(10);

/// How a server's streams end, one after the other.
pub(crate) struct Pause {
    began: Instant,
    /// Something was said in this one.
    pub(crate) spoke: bool,
    wait: Duration,
    latest: Duration,
}

impl Pause {
    /// The first has begun, or is asked for. There is never more to wait than `latest`, unless the server says so.
    pub(crate) fn new(latest: Duration) -> Self {
        Self { began: Instant::now(), spoke: false, wait: Duration::ZERO, latest }
    }

    /// A stream has ended: how long to wait at least before the next one is asked for.
    pub(crate) fn ended(&mut self) -> Duration {
        self.wait = wait(self.wait, self.spoke || self.began.elapsed() >= QUIET, self.latest);
        self.wait
    }

    /// There is another one.
    pub(crate) fn go_on(&mut self) {
        *self = Self { wait: self.wait, ..Self::new(self.latest) };
    }
}

/// The same by what it was before, and by whether the stream was worth asking for.
fn wait(before: Duration, was_of_use: bool, latest: Duration) -> Duration {
    if was_of_use { Duration::ZERO } else { (before * 2).max(LATER).min(latest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_its_streams_at_once_is_asked_ever_later() {
        let (mut waits, mut before) = (Vec::new(), Duration::ZERO);
        for was_of_use in
            [true, false, false, false, false, false, false, false, false, false, false, true, false]
        {
            before = wait(before, was_of_use, Duration::from_secs(10));
            waits.push(before.as_millis());
        }
        assert_eq!(waits, [0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 0, 50]);
    }
}
