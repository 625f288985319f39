//! How many tests run at once.
//!
//! Tests of a cluster mostly wait: for the kubelet's rounds, for pods that drain, for leases that run out. So more of
//! them are under way than the machine has processors, and as many as it bears: deadlines are generous, but a machine
//! that does everything at once meets none of them. `cargo test` counts threads alone; here there is room for so many
//! tests of each kind, and kinds do not wait for each other. Those that are left when all others are over share the
//! machine.

use parking_lot::{Condvar, Mutex};

/// What a test does to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks an API server now and then.
    Objects,
    /// It does something to a cluster as a whole, and waits most of the time for what comes of that.
    Cluster,
    /// It has pods started.
    Pods,
    /// It keeps servers busy.
    Load,
}

/// The room that a test has. It is given back when this goes.
#[derive(Debug)]
pub struct Room(Kind);

/// How many tests of one kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tests {
    /// They wait for room, or have it.
    here: usize,
    /// They have it.
    at_work: usize,
    /// They wait for room, and go before others.
    first: usize,
}

/// By kind.
#[derive(Clone, Copy, Debug, Default)]
struct Rooms([Tests; 4]);

static ROOMS: Mutex<Rooms> = Mutex::new(Rooms([Tests { here: 0, at_work: 0, first: 0 }; 4]));
static LEFT: Condvar = Condvar::new();

impl Room {
    /// Waits until there is room for one more test of this kind.
    #[must_use]
    pub fn take(kind: Kind) -> Self {
        Self::wait(kind, false)
    }

    /// The same before all others of this kind that wait, for one that takes far longer than they do: begun as the last, it
    /// would be waited for by everybody.
    #[must_use]
    pub fn take_first(kind: Kind) -> Self {
        Self::wait(kind, true)
    }

    fn wait(kind: Kind, is_first: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let mut rooms = ROOMS.lock();
        rooms.of(kind).here += 1;
        rooms.of(kind).first += usize::from(is_first);
        let must_wait = |rooms: &mut Rooms| {
            let tests = *rooms.of(kind);
            tests.at_work >= rooms.most(kind, processors) || tests.first > 0 && !is_first
        };
        LEFT.wait_while(&mut rooms, must_wait);
        rooms.of(kind).first -= usize::from(is_first);
        rooms.of(kind).at_work += 1;
        if is_first {
            // There may be room for more.
            LEFT.notify_all();
        }
        Self(kind)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut rooms = ROOMS.lock();
        let tests = rooms.of(self.0);
        tests.here -= 1;
        tests.at_work -= 1;
        // Any of those who wait may have been waiting for this one.
        LEFT.notify_all();
    }
}

impl Rooms {
    fn of(&mut self, kind: Kind) -> &mut Tests {
        &mut self.0[kind as usize]
    }

    fn none_of(&mut self, kinds: [Kind; 2]) -> bool {
        kinds.into_iter().all(|kind| self.of(kind).here == 0)
    }

    /// How many tests of this kind may be at work.
    fn most(&mut self, kind: Kind, processors: usize) -> usize {
        let half = processors.div_ceil(2);
        match kind {
            Kind::Objects => 3 * processors,
            Kind::Pods => processors,
            Kind::Cluster if self.none_of([Kind::Pods, Kind::Load]) => processors,
            // These have containerd unpack, etcd write and servers work all at the same time. With more of them on two
            // processors processes took ten seconds to start.
            Kind::Cluster => half,
            // What others leave: half of their time they wait for pods.
            Kind::Load => {
                let others = self.of(Kind::Pods).here.min(processors) + self.of(Kind::Cluster).here.min(half);
                (2 * processors - others.min(2 * processors)).clamp(half, processors + half)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_has_the_machine() {
        let left = |kinds: &[(Kind, usize)]| {
            let mut rooms = Rooms::default();
            for &(kind, here) in kinds {
                rooms.of(kind).here = here;
            }
            rooms
        };
        for (others, most) in [
            (&[][..], [2, 3]),
            (&[(Kind::Objects, 5)], [2, 3]),
            (&[(Kind::Pods, 5), (Kind::Cluster, 5)], [1, 1]),
            (&[(Kind::Pods, 5)], [1, 2]),
            (&[(Kind::Pods, 1)], [1, 3]),
            (&[(Kind::Load, 5), (Kind::Cluster, 5)], [1, 3]),
            (&[(Kind::Cluster, 5)], [2, 3]),
            (&[(Kind::Load, 5)], [1, 3]),
        ] {
            let mut rooms = left(others);
            assert_eq!(
                [Kind::Cluster, Kind::Load].map(|kind| rooms.most(kind, 2)),
                most,
                "beside {others:?}"
            );
        }
    }
}
