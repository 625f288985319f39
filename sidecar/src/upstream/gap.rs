//! What is not whole of what a server says that belongs to no call, and when whoever listens is told of it.

use std::future::pending;

use tokio::time::{Duration, Instant, sleep_until};

/// How often at most anything is done only because a stream broke off: many servers cut off whatever takes long, which is no
/// reason to have everything read anew, or said again, each time.
pub(crate) const SELDOM: Duration = Duration::from_secs(300);

/// What may have been missed since it was told last.
#[derive(Default)]
pub(crate) struct Gap {
    /// The server was not there to give its stream.
    is_absent: bool,
    /// A stream broke off, or ended.
    is_broken: bool,
    /// One before that did, and it was too soon to be told.
    is_put_off: bool,
    told: Option<Instant>,
}

impl Gap {
    /// The stream has broken off, or ended.
    pub(crate) fn broke_off(&mut self) {
        self.is_broken = true;
    }

    /// The server was not there to give one.
    pub(crate) fn was_absent(&mut self) {
        self.is_absent = true;
    }

    /// Nothing was missed since the last stream: the server says all of it in the next one. What was put off before that is
    /// in none. Where it gives the session no name (`is_named`) and was not there, another one may have come.
    pub(crate) fn note_whole(&mut self, is_named: bool) {
        self.is_broken = false;
        self.is_absent &= !is_named;
    }

    /// It is told.
    pub(crate) fn note_told(&mut self) {
        *self = Self { told: Some(Instant::now()), ..Self::default() };
    }

    /// Whether it is to be told, now that the server gives its stream; until it is, nothing is forgotten. What is put off is
    /// due later.
    pub(crate) fn ends(&mut self) -> bool {
        let is_late = self.told.is_none_or(|told| told.elapsed() >= SELDOM);
        self.is_put_off |= std::mem::take(&mut self.is_broken);
        self.is_absent || self.is_put_off && is_late
    }

    /// The same for whoever tells it at once: then it is told.
    pub(crate) fn ends_at_once(&mut self) -> bool {
        let ends = self.ends();
        if ends {
            self.note_told();
        }
        ends
    }

    /// Returns when what was put off is to be told to whoever has a stream.
    pub(crate) fn due(&self) -> impl Future<Output = ()> + use<> {
        let put_off = (self.is_broken || self.is_put_off) && !self.is_absent;
        let at = self.told.filter(|_| put_off).map(|told| told + SELDOM);
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_that_break_off_are_told_of_now_and_then() {
        let (mut gap, minute) = (Gap::default(), Duration::from_secs(60));
        let ends = Gap::ends_at_once;
        assert!(!ends(&mut gap));
        gap.broke_off();
        assert!(gap.ends() && gap.ends(), "until it is told");
        assert!(ends(&mut gap) && !ends(&mut gap), "once");
        assert!(timeout(SELDOM * 2, gap.due()).await.is_err(), "nothing was put off");
        gap.broke_off();
        assert!(ends(&mut gap), "it was long ago");
        let told = Instant::now();
        for _ in 0..3 {
            advance(minute).await;
            gap.broke_off();
            assert!(!ends(&mut gap));
        }
        gap.due().await;
        assert_eq!(told.elapsed(), SELDOM, "the last time is not forgotten");
        gap.note_told();
        gap.broke_off();
        gap.was_absent();
        assert!(timeout(SELDOM * 2, gap.due()).await.is_err(), "there is no stream to tell it in");
        assert!(ends(&mut gap));
        gap.was_absent();
        assert!(ends(&mut gap), "that is told each time");
        gap.broke_off();
        gap.note_whole(true);
        assert!(timeout(SELDOM * 2, gap.due()).await.is_err() && !ends(&mut gap));
        gap.broke_off();
        assert!(ends(&mut gap));
        let told = Instant::now();
        gap.broke_off();
        assert!(!ends(&mut gap));
        advance(minute).await;
        gap.broke_off();
        gap.note_whole(true);
        assert!(!ends(&mut gap));
        assert!(timeout(SELDOM, gap.due()).await.is_ok(), "what was put off before is in no stream");
        assert_eq!(told.elapsed(), SELDOM);
        gap.note_told();
        gap.broke_off();
        gap.was_absent();
        gap.note_whole(false);
        assert!(ends(&mut gap), "it may be another server by now");
        gap.broke_off();
        gap.note_whole(false);
        assert!(timeout(SELDOM * 2, gap.due()).await.is_err() && !ends(&mut gap));
    }
}
