//! Messages of which a part has come. Nobody knows how much of one is still to come, so any number of them may be begun
//! that have no room together. Then their servers wait, and one message at a time may take what room it needs: each comes
//! to its end that way.

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::{FEW, Share};

/// How long a message waits for room: longer than it takes many others to come to their end, and no longer than it takes
/// to tell that they do not.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether there is room.
const LOOK: Duration = Duration::from_millis(50);

/// What has come of a message.
pub(crate) struct Coming {
    /// None: it is not counted.
    share: Option<Share>,
    bytes: usize,
    /// It may take more than there is room for, which is rare.
    turn: Option<Box<OwnedSemaphorePermit>>,
}

impl Share {
    /// Holds so many in all, once there is room for them. Says whether there was before long.
    pub(crate) async fn reach_in_time(&mut self, bytes: usize) -> bool {
        if self.reach(bytes) {
            return true;
        }
        let patience = Instant::now() + PATIENCE;
        while Instant::now() <= patience {
            sleep(LOOK).await;
            if self.reach(bytes) {
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
        self.bytes = bytes;
        if let Some(share) = &mut self.share {
            share.shrink(bytes);
        }
    }

    /// It is complete, and counts where it goes. What comes now is another one.
    pub(crate) fn complete(&mut self) {
        self.came(0);
    }

    /// Waits for room for what has come. Says whether there is any: then more may come.
    pub(crate) async fn room(&mut self) -> bool {
        if self.bytes <= FEW {
            // What it was for has found its place.
            self.turn = None;
            return true;
        }
        let patience = Instant::now() + PATIENCE;
        while self.turn.is_none() && !self.fits() {
            let Some(share) = &self.share else { return true };
            match timeout(LOOK, share.shares.turns.clone().acquire_owned()).await {
                Ok(turn) => self.turn = turn.ok().map(Box::new),
                Err(_) if Instant::now() > patience => return false,
                Err(_) => {}
            }
        }
        true
    }

    /// Counts what has come, if there is room. Most of the room is left to those that are complete: they are many where
    /// all end at once, and have nothing to wait for.
    fn fits(&mut self) -> bool {
        let bytes = self.bytes;
        self.share.as_mut().is_none_or(|share| share.add_to_few(bytes.saturating_sub(share.bytes)))
    }
}
