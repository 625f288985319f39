//! All streams of the process: how much they hold together, and when they are forgotten.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Duration, Instant, interval, sleep};

use super::stream::Stream;
use crate::held::{Share, Shares};
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
/// How long clients stay before they are sent away, and no longer than this part of the drain's minimum. Where all pods of a
/// server end at once, as when it is deleted, nothing may lead to any of them any more: by then they have heard of each other.
const NEWS: Duration = Duration::from_secs(2);
const NEWS_PART: u32 = 2;
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
    /// The process ends: clients that are gone come back, or are lost.
    ends: AtomicBool,
    /// And the others are sent away.
    sent_away: watch::Sender<bool>,
    /// Where large events count while a client has yet to read them.
    held: Arc<Shares>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct Streams {
    next: u64,
    /// Oldest first.
    all: BTreeMap<u64, Weak<Stream>>,
    accounts: HashMap<Arc<str>, Arc<Account>>,
}

/// What all streams of one principal hold.
#[derive(Default)]
pub(super) struct Account {
    used: AtomicUsize,
    streams: AtomicUsize,
}

impl Store {
    pub(crate) fn new(limit: usize, held: Arc<Shares>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            streams: Mutex::default(),
            full: Notify::new(),
            ends: AtomicBool::new(false),
            sent_away: watch::Sender::new(false),
            held,
            metrics,
        })
    }

    /// Adds a stream of a principal.
    pub(super) fn add(
        &self,
        principal: &Arc<str>,
        stream: impl FnOnce(u64, Arc<Account>) -> Stream,
    ) -> Arc<Stream> {
        let mut streams = self.streams.lock();
        let serial = streams.next;
        streams.next += 1;
        let account = streams.accounts.entry(principal.clone()).or_default().clone();
        account.streams.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(stream(serial, account.clone()));
        streams.all.insert(serial, Arc::downgrade(&stream));
        drop(streams);
        self.took(&account, STREAM);
        self.metrics.streams.inc();
        stream
    }

    /// A share of what clients have yet to read, with nothing in it.
    pub(super) fn nothing_held(&self, principal: &Arc<str>) -> Share {
        self.held.nothing(principal)
    }

    /// A stream is gone.
    pub(super) fn remove(&self, serial: u64, account: &Account, principal: &Arc<str>) {
        {
            let mut streams = self.streams.lock();
            streams.all.remove(&serial);
            if account.streams.fetch_sub(1, Ordering::Relaxed) == 1 {
                streams.accounts.remove(principal);
            }
        }
        self.gave_back(account, STREAM);
        self.metrics.streams.dec();
    }

    /// So many bytes more are held. It is seen to, soon, that they are not too many.
    pub(super) fn took(&self, account: &Account, bytes: usize) {
        account.used.fetch_add(bytes, Ordering::Relaxed);
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.limit {
            self.full.notify_one();
        }
    }

    /// So many fewer are.
    pub(super) fn gave_back(&self, account: &Account, bytes: usize) {
        account.used.fetch_sub(bytes, Ordering::Relaxed);
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

    /// Whether the process ends.
    pub(super) fn ends(&self) -> bool {
        self.ends.load(Ordering::Relaxed)
    }

    /// Whether clients are sent away, since the process ends. What they hear in other streams than these ends with that.
    pub(crate) fn sent_away(&self) -> watch::Receiver<bool> {
        self.sent_away.subscribe()
    }

    /// Sends away the clients that can come back, since the process ends: they find another replica.
    pub(crate) fn part(&self) {
        self.sent_away.send_if_modified(|sent_away| !std::mem::replace(sent_away, true));
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

    /// Gives up what is kept until it is little enough: the oldest first, of principals that hold more than their part. What
    /// somebody is reading goes last.
    fn relieve(&self) {
        for spares_readers in [true, false] {
            let Some(part) = self.part_of_each() else { return };
            self.each(|stream| {
                if self.used() <= self.limit {
                    return false;
                }
                if stream.account().used() > part && stream.relieve(spares_readers) {
                    stream.forget();
                    self.metrics.streams_given_up.inc();
                }
                true
            });
        }
    }

    /// How much each principal may hold for all to have room, where those that hold less leave the rest to the others. None:
    /// there is room as it is.
    fn part_of_each(&self) -> Option<usize> {
        let mut held: Vec<usize> =
            self.streams.lock().accounts.values().map(|account| account.used()).collect();
        held.sort_unstable();
        part_of_each(&held, self.limit)
    }

    /// Shows every stream that there is by now, the oldest first, for as long as that is wanted.
    fn each(&self, mut show: impl FnMut(&Stream) -> bool) {
        let until = Bound::Excluded(self.streams.lock().next);
        let mut from = Bound::Included(0);
        loop {
            // The lock is not held while a stream is looked at, which may be its end.
            let next = {
                let streams = self.streams.lock();
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
}

/// The same of what they hold, the least first.
fn part_of_each(held: &[usize], limit: usize) -> Option<usize> {
    let mut left = limit;
    for (index, bytes) in held.iter().enumerate() {
        let part = left / (held.len() - index);
        if *bytes > part {
            return Some(part);
        }
        left -= bytes;
    }
    None
}

impl Account {
    /// How many bytes it holds.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// Forgets streams whose time is over, sees to it that they do not hold too much, and sends clients away when the
/// process ends, as soon as another replica serves that does not end too: until then nobody else may let them in, and many give
/// up at the second try.
pub(crate) async fn look_after(shared: Arc<Shared>) {
    let store = &shared.streams;
    let mut draining = shared.draining.subscribe();
    let news = NEWS.min(shared.options.drain_minimum / NEWS_PART);
    let (mut ends, mut parted) = (None::<Instant>, false);
    let mut tick = interval(CHECK);
    loop {
        tokio::select! {
            _ = tick.tick() => store.expire(),
            () = store.full.notified() => {
                store.relieve();
                sleep(BREATHER).await;
            }
            _ = draining.wait_for(|draining| *draining), if ends.is_none() => {
                ends = Some(Instant::now());
                store.ends.store(true, Ordering::Relaxed);
            }
        }
        // Nobody is led to one whose server does not stay, nor do sessions move there.
        let is_elsewhere = || shared.peers.serving().iter().any(|peers| !peers.is_empty());
        if !parted && ends.is_some_and(|since| since.elapsed() >= news) && is_elsewhere() {
            parted = true;
            store.part();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_little_has_room() {
        for (held, limit, part) in [
            (&[][..], 10, None),
            (&[10], 10, None),
            (&[11], 10, Some(10)),
            (&[1, 20], 10, Some(9)),
            (&[6, 6], 10, Some(5)),
            (&[1, 2, 30, 40], 43, Some(20)),
            (&[1, 2, 10, 30], 43, None),
        ] {
            assert_eq!(part_of_each(held, limit), part, "{held:?}");
        }
    }
}
