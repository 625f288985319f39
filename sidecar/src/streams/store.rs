//! All streams of the process: how much they hold together, and when they are forgotten.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, interval, sleep};

use super::stream::Stream;
use crate::metrics::Metrics;
use crate::shared::Shared;

/// How long clients wait before they come back, in milliseconds, when they are sent away: long enough for the Service
/// to send them elsewhere, short enough for nobody to mind.
pub(super) const RETRY: u64 = 1000;
/// How long clients that were sent away are waited for when their answers are there: they wait, they may have to try
/// twice, and they read.
pub(super) const FETCH: Duration = Duration::from_secs(3);
/// How often a drain looks whether they have.
const FETCH_CHECK: Duration = Duration::from_millis(20);
/// What a stream costs beside its events.
const STREAM: usize = 512;
/// How often streams are looked at whose time may be over.
const CHECK: Duration = Duration::from_millis(500);
/// How long to leave it at that when there was not enough that could be given up.
const BREATHER: Duration = Duration::from_millis(10);

/// All streams.
pub(crate) struct Store {
    /// How many bytes they may hold.
    limit: usize,
    used: AtomicUsize,
    streams: Mutex<Streams>,
    /// They hold too much.
    full: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Streams {
    next: u64,
    /// Oldest first.
    all: BTreeMap<u64, Weak<Stream>>,
}

impl Store {
    pub(crate) fn new(limit: usize, metrics: Arc<Metrics>) -> Arc<Self> {
        let (used, full) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { limit, used, streams: Mutex::default(), full, metrics })
    }

    /// Adds a stream.
    pub(super) fn add(&self, stream: impl FnOnce(u64) -> Stream) -> Arc<Stream> {
        let mut streams = self.lock();
        let serial = streams.next;
        streams.next += 1;
        let stream = Arc::new(stream(serial));
        streams.all.insert(serial, Arc::downgrade(&stream));
        drop(streams);
        self.took(STREAM);
        self.metrics.streams.inc();
        stream
    }

    /// A stream is gone.
    pub(super) fn remove(&self, serial: u64) {
        self.lock().all.remove(&serial);
        self.gave_back(STREAM);
        self.metrics.streams.dec();
    }

    /// So many bytes more are held. It is seen to, soon, that they are not too many.
    pub(super) fn took(&self, bytes: usize) {
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            self.full.notify_one();
        }
    }

    /// So many fewer are.
    pub(super) fn gave_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether they hold as much as they may, or more.
    pub(super) fn is_full(&self) -> bool {
        self.used() >= self.limit
    }

    /// How many bytes the streams hold.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sends away the clients that can come back, since the process ends: they find another replica.
    fn part(&self) {
        self.each(|stream| {
            stream.part();
            true
        });
    }

    /// Waits until those who were sent away have fetched the answers of their calls, which have ended, and closes what
    /// is still open. The last thing that a drain does.
    pub(crate) async fn fetched(&self) {
        while self.is_awaited() {
            sleep(FETCH_CHECK).await;
        }
        self.part();
    }

    fn is_awaited(&self) -> bool {
        let mut awaited = false;
        self.each(|stream| {
            awaited = stream.is_awaited();
            !awaited
        });
        awaited
    }

    fn expire(&self) {
        let now = Instant::now();
        self.each(|stream| {
            if stream.is_due(now) {
                stream.forget();
            }
            true
        });
    }

    /// Gives up what is kept, the oldest first, until it is little enough.
    fn relieve(&self) {
        self.each(|stream| {
            if self.used() <= self.limit {
                return false;
            }
            if stream.relieve() {
                stream.forget();
                self.metrics.streams_given_up.inc();
            }
            true
        });
    }

    /// Shows every stream that there is by now, the oldest first, for as long as that is wanted.
    fn each(&self, mut show: impl FnMut(&Stream) -> bool) {
        let until = Bound::Excluded(self.lock().next);
        let mut from = Bound::Included(0);
        loop {
            // The lock is not held while a stream is looked at, which may be its end.
            let next = {
                let streams = self.lock();
                let next = streams.all.range((from, until)).next();
                next.map(|(serial, stream)| (*serial, stream.upgrade()))
            };
            let Some((serial, stream)) = next else { return };
            from = Bound::Excluded(serial);
            if stream.is_some_and(|stream| !show(&stream)) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        // Nothing that holds the lock can leave them half changed.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets streams whose time is over, sees to it that they do not hold too much, and sends clients away when the
/// process ends.
pub(crate) async fn look_after(shared: Arc<Shared>) {
    let store = &shared.streams;
    let mut draining = shared.draining.subscribe();
    let mut parted = false;
    let mut tick = interval(CHECK);
    loop {
        tokio::select! {
            _ = tick.tick() => store.expire(),
            () = store.full.notified() => {
                store.relieve();
                sleep(BREATHER).await;
            }
            _ = draining.wait_for(|draining| *draining), if !parted => {
                parted = true;
                store.part();
            }
        }
    }
}
