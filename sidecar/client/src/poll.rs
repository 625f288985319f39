//! The endless poll of one sidecar.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use crate::bounds::{Pace, Share};
use crate::inventories::{PodUid, Read, Shared};
use crate::request::{self, Answer, Limits};
use crate::{AdminAddress, TokenFile};

/// A sidecar that does not answer for less than this is not worth a word: it may be restarting.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(3);
/// While a pod starts, the next try comes soon.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// One sidecar, and whom to tell of it.
pub(crate) struct Poll<K, S> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) read: Read<K, S>,
    pub(crate) changes: mpsc::UnboundedSender<K>,
    pub(crate) token: TokenFile,
    /// Who of the server's sidecars may have a place for a long answer.
    pub(crate) turn: Arc<Semaphore>,
    /// Those places that are its namespace's.
    pub(crate) of_namespace: Arc<Semaphore>,
    /// What all of them may cost.
    pub(crate) share: Arc<Share>,
    pub(crate) server: K,
    pub(crate) pod: PodUid,
    pub(crate) address: AdminAddress,
}

impl<K: Clone + Send + Sync + 'static, S: PartialEq + Send + Sync + 'static> Poll<K, S> {
    pub(crate) async fn run(self) -> Infallible {
        let Self { shared, read, token, turn, of_namespace, share, server, pod, address, .. } = &self;
        let (keep, of) = (read.keep.clone(), server.clone());
        let keep: request::Keep<S> = Arc::new(move |json| keep(&of, json));
        let mut pace = Pace::new(&shared.bounds, Instant::now());
        let mut tag: Option<String> = None;
        let mut again = false;
        let mut failing: Option<Instant> = None;
        let mut retry = FIRST_RETRY;
        loop {
            let answer_bytes = shared.bounds.answer_bytes;
            let limits = Limits { answer_bytes, answers: &shared.answers, of_namespace, turn };
            let mut cost = Duration::ZERO;
            let known = tag.as_deref().filter(|_| !again);
            // That it answers again is news, whatever it says; and without a tag it answers at once in any case.
            let wait = if failing.is_some() || known.is_none() { Duration::ZERO } else { request::WAIT };
            let kept = match request::ask(*address, token, known, wait, limits, keep.clone()).await {
                Ok(Answer::Changed { kept, tag: new, took }) => {
                    tag = new;
                    again = false;
                    cost = took;
                    Some(kept)
                }
                Ok(Answer::Unchanged) => {
                    again = shared.summary(pod).is_some_and(|kept| (read.is_short)(&kept));
                    None
                }
                Err(error) => {
                    if error.is_unauthorized() {
                        shared.refused(pod);
                    }
                    let since = *failing.get_or_insert_with(Instant::now);
                    if since.elapsed() >= UNREACHABLE_AFTER && shared.failed(pod, error.to_string()) {
                        self.tell();
                    }
                    sleep(jittered(retry).max(share.took(Instant::now(), error.cost()))).await;
                    // A pod takes a second or two to start; after that there is no hurry.
                    let longest =
                        if since.elapsed() < UNREACHABLE_AFTER { FIRST_RETRY * 5 } else { LAST_RETRY };
                    retry = (retry * 3 / 2).min(longest);
                    continue;
                }
            };
            if shared.answered(pod, kept) {
                self.tell();
            }
            failing = None;
            retry = FIRST_RETRY;
            // A sidecar that gives no tag cannot hold the request either.
            let pause = if tag.is_none() { LAST_RETRY } else { Duration::ZERO };
            let now = Instant::now();
            sleep(pause.max(pace.answered(now)).max(share.took(now, cost))).await;
        }
    }

    fn tell(&self) {
        // The receiver ends only with the process.
        let _ = self.changes.send(self.server.clone());
    }
}

/// Between 75 % and 125 % of `delay`, so that many that failed together do not come back together. The operator's
/// reconciliations are spread in the same way.
pub fn jittered(delay: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    // Randomly keyed, which is random enough for a delay.
    let random = RandomState::new().hash_one(0_u8) % 512;
    delay * 3 / 4 + delay * u32::try_from(random).unwrap_or(0) / 1024
}
