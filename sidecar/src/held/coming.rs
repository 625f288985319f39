//! Messages of which a part has come. Nobody knows how much of one is still to come, so any number of them may be begun
//! that have no room together. Then their servers wait, and one message at a time may take what room it needs: each comes
//! to its end that way.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::{FEW, Share, Shares};

/// How long a message waits for room while no other comes to its end or is read: no longer than it takes to tell that
/// none does. Where they do, however slowly, its turn comes.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits at most: it may be that others are always first. A message that has the turn waits as long for more of
/// itself.
pub(crate) const MOST: Duration = Duration::from_secs(30);
/// How long it has its turn in all, while there is no room otherwise: one that trickles is not waited for until it is over.
const AT_LATEST: Duration = Duration::from_secs(4 * 30);
/// How often it looks whether there is room.
const LOOK: Duration = Duration::from_millis(50);

/// How long somebody waits still.
struct Patience {
    until: Instant,
    latest: Instant,
    /// How many messages had ended then.
    ended: u64,
}

/// What has come of a message.
pub(crate) struct Coming {
    /// None: it is not counted.
    share: Option<Share>,
    bytes: usize,
    turn: Option<Turn>,
}

/// The right to take more than there is room for, which one message has at a time. It is rarely needed.
pub(crate) type Turn = Box<TurnTaken>;

pub(crate) struct TurnTaken {
    /// Until when more of the message may be waited for, and until when at the latest, however little of it comes at a time.
    until: Instant,
    latest: Instant,
    _permit: OwnedSemaphorePermit,
}

/// A message that has come, until it is counted where it goes.
pub(crate) struct Came {
    share: Share,
    turn: Option<Turn>,
}

impl Share {
    /// Holds so many in all, once there is room for them. Says whether there was, or whether nothing moves any more.
    /// Few are not counted.
    pub(crate) async fn reach_in_time(&mut self, bytes: usize) -> bool {
        bytes <= FEW || self.reach_wholly_in_time(bytes).await
    }

    /// The same where few are counted too.
    pub(crate) async fn reach_wholly_in_time(&mut self, bytes: usize) -> bool {
        if self.reach_wholly(bytes) {
            return true;
        }
        let mut patience = Patience::new(&self.shares);
        while !patience.is_over(&self.shares) {
            sleep(LOOK).await;
            if self.reach_wholly(bytes) {
                return true;
            }
        }
        false
    }
}

impl Coming {
    /// Nothing yet.
    pub(crate) fn new(share: Option<Share>) -> Self {
        Self { share, bytes: 0, turn: None }
    }

    /// So much of it has come.
    pub(crate) fn came(&mut self, bytes: usize) {
        if self.bytes != bytes {
            self.put_off();
        }
        self.bytes = bytes;
        if let Some(share) = &mut self.share {
            share.shrink(bytes);
        }
        if self.turn.is_some() && bytes > FEW && self.fits() {
            // There is room by now: it need not hurry for the others.
            self.turn = None;
        }
    }

    /// It is complete, and counts where it goes. What comes now is another one.
    pub(crate) fn complete(&mut self) {
        if let Some(share) = &self.share
            && self.bytes > FEW
        {
            share.shares.one_ended();
        }
        self.came(0);
    }

    /// A message of so many bytes is complete, and what has come of the next one is behind it. It is counted by this until
    /// it is counted where it goes; one of a few bytes is not.
    pub(crate) fn hand_on(&mut self, bytes: usize) -> Option<Came> {
        let share = self.share.as_mut().filter(|_| bytes > FEW)?;
        share.shares.one_ended();
        Some(Came { share: share.split(bytes), turn: self.turn.take() })
    }

    /// What comes has come elsewhere as a whole, and was counted there, if there is anything. Then there is room for it.
    pub(crate) fn take_over(&mut self, came: Option<Came>) -> bool {
        let is_counted = came.is_some();
        if let (Some(Came { share, turn }), Some(own)) = (came, &mut self.share) {
            own.merge(share);
            self.take_turn(turn);
        }
        is_counted
    }

    /// What comes has had its turn elsewhere.
    pub(crate) fn take_turn(&mut self, turn: Option<Turn>) {
        if self.turn.is_none() && turn.is_some() {
            self.turn = turn;
            self.put_off();
        }
    }

    /// What is complete has found its place. Others have their turn then, while this waits for whoever reads it.
    pub(crate) fn settle(&mut self) {
        if self.turn.is_some() && (self.bytes <= FEW || self.fits()) {
            self.turn = None;
        }
    }

    /// It is complete and has found its place, or nothing of it is wanted.
    pub(crate) fn finish(&mut self) {
        self.complete();
        self.settle();
    }

    /// Waits for more of it: while it has the turn, as long as others wait for theirs. None: nothing has come in time.
    pub(crate) async fn more<T>(&self, more: impl Future<Output = T>) -> Option<T> {
        match &self.turn {
            None => Some(more.await),
            Some(turn) => timeout_at(turn.until, more).await.ok(),
        }
    }

    /// Whether it keeps the turn, and no more of it comes.
    pub(crate) fn stops(&self, now: Instant) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.until <= now)
    }

    /// More of it has come, or was not waited for until now.
    pub(crate) fn put_off(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.until = turn.latest.min(Instant::now() + MOST);
        }
    }

    /// More of it was not waited for, for so long.
    pub(crate) fn held_up(&mut self, time: Duration) {
        if let Some(turn) = &mut self.turn {
            turn.until += time;
            turn.latest += time;
        }
    }

    /// Whether what has come is counted, or need not be.
    pub(crate) fn is_counted(&self) -> bool {
        let counted = self.share.as_ref().is_none_or(|share| self.bytes <= share.bytes);
        self.bytes <= FEW || counted || self.turn.is_some()
    }

    /// Waits for room for what has come. Says whether there is any: then more may come.
    pub(crate) async fn room(&mut self) -> bool {
        if self.bytes <= FEW {
            // What it was for has found its place.
            self.turn = None;
            return true;
        }
        let mut patience = None;
        while self.turn.is_none() && !self.fits() {
            let Some(share) = &self.share else { return true };
            let patience = patience.get_or_insert_with(|| Patience::new(&share.shares));
            match timeout(LOOK, share.shares.turns.clone().acquire_owned()).await {
                Ok(permit) => self.turn = permit.ok().map(TurnTaken::new),
                Err(_) if patience.is_over(&share.shares) => return false,
                Err(_) => {}
            }
        }
        true
    }

    /// The same, however long there is none: where whoever waits for the message has a deadline.
    pub(crate) async fn room_at_last(&mut self) {
        while !self.room().await {}
    }

    /// Counts what has come, if there is room. Most of the room is left to those that are complete: they are many where
    /// all end at once, and have nothing to wait for.
    fn fits(&mut self) -> bool {
        let bytes = self.bytes;
        self.share.as_mut().is_none_or(|share| share.add_to_few(bytes.saturating_sub(share.bytes)))
    }
}

impl TurnTaken {
    fn new(permit: OwnedSemaphorePermit) -> Turn {
        let now = Instant::now();
        Box::new(Self { until: now + MOST, latest: now + AT_LATEST, _permit: permit })
    }
}

impl Came {
    /// Counts it in another share. What is not counted yet may be for as long as the turn is kept that this gives.
    pub(crate) fn count_in(self, share: &mut Share) -> Option<Turn> {
        share.merge(self.share);
        self.turn
    }

    /// Gives back what is more than this.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        self.share.shrink(bytes);
    }

    /// Its turn, for whoever reads it now.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// It is complete, and may wait for whoever reads it: others have their turn meanwhile.
    pub(crate) fn without_turn(self) -> Self {
        Self { turn: None, ..self }
    }

    /// So many of its bytes, counted by themselves.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        Self { share: self.share.split(bytes), turn: None }
    }

    /// A message that is counted by this, if by anything, until nobody needs it any more. One that is too small to be
    /// counted is copied: nobody counts either what it was read together with, which may be very much more.
    pub(crate) fn keep(came: Option<Self>, message: &Bytes) -> Bytes {
        match came {
            Some(came) => came.share.keep(message.clone()),
            None if message.len() <= FEW => Bytes::copy_from_slice(message),
            None => message.clone(),
        }
    }
}

impl Patience {
    fn new(shares: &Shares) -> Self {
        let now = Instant::now();
        Self { until: now + PATIENCE, latest: now + MOST, ended: shares.ended() }
    }

    /// Whether it is over. It begins anew when a message has ended.
    fn is_over(&mut self, shares: &Shares) -> bool {
        let now = Instant::now();
        let ended = shares.ended();
        if self.ended != ended {
            self.ended = ended;
            self.until = self.latest.min(now + PATIENCE);
        }
        now > self.until
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::held::Bounds;

    /// How many seconds a message waits, and whether there is room for it in the end: one that fills it all goes after
    /// `until` seconds, and others end every so many.
    async fn waits(until: u64, ends_every: u64) -> (u64, bool) {
        let shares = Shares::new(Bounds { total: 2 * FEW, per_principal: 2 * FEW });
        let who: Arc<str> = "a".into();
        let full = shares.take(&who, 2 * FEW).unwrap();
        let leave = async {
            sleep(Duration::from_secs(until)).await;
            drop(full);
            std::future::pending().await
        };
        let end = async {
            loop {
                sleep(Duration::from_secs(ends_every)).await;
                shares.one_ended();
            }
        };
        let began = Instant::now();
        let mut share = shares.nothing(&who);
        let there_is_room = tokio::select! {
            there_is_room = share.reach_in_time(2 * FEW) => there_is_room,
            () = leave => unreachable!("it goes on for ever"),
            () = end => unreachable!("it goes on for ever"),
        };
        (began.elapsed().as_secs(), there_is_room)
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_waits_while_others_come_to_their_end() {
        const NEVER: u64 = 1_000;
        for (until, ends_every, expected) in [
            (3, NEVER, (3, true)),
            (NEVER, NEVER, (5, false)),
            (17, 4, (17, true)),
            (17, 6, (5, false)),
            (NEVER, 1, (30, false)),
        ] {
            assert_eq!(waits(until, ends_every).await, expected, "{until} {ends_every}");
        }
    }

    /// Two messages of which more has come than there is room for, and the first has the turn.
    async fn two() -> (Coming, Coming) {
        let shares = Shares::new(Bounds { total: FEW, per_principal: FEW });
        let [mut first, mut second] = ["a", "b"].map(|who| Coming::new(Some(shares.nothing(&who.into()))));
        first.came(2 * FEW);
        second.came(2 * FEW);
        assert!(first.room().await && !second.room().await);
        (first, second)
    }

    #[test]
    fn a_small_message_holds_nothing_of_what_it_was_read_with() {
        let read = Bytes::from(vec![b'x'; 8 * FEW]);
        for (bytes, shares) in [(10, false), (FEW, false), (FEW + 1, true)] {
            let message = read.slice(10..10 + bytes);
            let kept = Came::keep(None, &message);
            assert_eq!((kept.len(), kept.as_ptr() == message.as_ptr()), (bytes, shares));
        }
    }

    #[test]
    fn the_parts_of_a_message_are_counted_by_themselves() {
        let shares = Shares::new(Bounds { total: 8 * FEW, per_principal: 8 * FEW });
        let who: Arc<str> = "a".into();
        let has_room = |bytes| shares.nothing(&who).has_room(bytes);
        let mut coming = Coming::new(Some(shares.take(&who, 6 * FEW).unwrap()));
        let mut whole = coming.hand_on(6 * FEW).unwrap();
        let part = Came::keep(Some(whole.split(2 * FEW)), &Bytes::from(vec![b'x'; 2 * FEW]));
        assert!(!has_room(3 * FEW));
        drop(whole);
        assert!(has_room(6 * FEW) && !has_room(7 * FEW), "the part is there still");
        drop(part);
        assert!(has_room(8 * FEW));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_complete_leaves_the_turn_to_others() {
        let (mut first, mut second) = two().await;
        first.complete();
        assert!(!second.room().await, "it has yet to find its place");
        first.settle();
        assert!(second.room().await);
        // What has come of another one by then needs a turn of its own.
        first.came(2 * FEW);
        assert!(!first.room().await);
        // So does what has come behind one that is complete.
        second.settle();
        assert!(!first.room().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_waits_for_its_reader_leaves_the_turn_to_others() {
        let (mut first, mut second) = two().await;
        let came = first.hand_on(2 * FEW).unwrap();
        assert!(!second.room().await, "it has yet to find its place");
        let _waits = came.without_turn();
        assert!(second.room().await);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_message_has_the_turn_while_more_of_it_comes() {
        let (mut first, mut second) = two().await;
        let begin = Instant::now();
        for pieces in 1..4 {
            let (piece, never) = (sleep(MOST / 3), std::future::pending::<()>());
            assert_eq!(first.more(piece).await, Some(()));
            first.came(2 * FEW + pieces);
            // Whoever waits may do something else meanwhile.
            assert!(timeout(MOST / 3, first.more(never)).await.is_err());
            assert!(!first.stops(Instant::now()));
            first.came(2 * FEW + pieces);
        }
        first.held_up(MOST);
        assert_eq!(first.more(std::future::pending::<()>()).await, None);
        assert!(first.stops(Instant::now()) && begin.elapsed() >= MOST * 3);
        first.put_off();
        assert!(!first.stops(Instant::now()));
        drop(first);
        assert!(second.room().await && !second.stops(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_trickles_has_its_turn_for_so_long() {
        let (mut first, _second) = two().await;
        let begin = Instant::now();
        let mut bytes = 2 * FEW;
        while first.more(sleep(MOST / 2)).await.is_some() {
            bytes += 1;
            first.came(bytes);
        }
        assert!(first.stops(Instant::now()));
        assert!((AT_LATEST - MOST..=AT_LATEST).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    }
}
