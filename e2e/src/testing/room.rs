//! How many tests run at once.
//!
//! Tests of a cluster mostly wait: for the kubelet's rounds, for pods that drain, for leases that run out. So more of
//! them are under way than the machine has processors, and as many as it bears: deadlines are generous, but a machine
//! that does everything at once meets none of them. `cargo test` counts threads alone; here there is room for so many
//! tests of each kind, and kinds do not wait for each other.

use std::sync::{Condvar, LazyLock, Mutex, PoisonError};

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
pub struct Room(&'static Rooms);

#[derive(Debug)]
struct Rooms {
    free: Mutex<usize>,
    freed: Condvar,
}

static OBJECTS: LazyLock<Rooms> = LazyLock::new(|| Rooms::new(3 * processors()));
// These have containerd unpack, etcd write and servers work all at the same time. With more of them on two processors
// processes took ten seconds to start.
static CLUSTERS: LazyLock<Rooms> = LazyLock::new(|| Rooms::new(processors().div_ceil(2)));
static PODS: LazyLock<Rooms> = LazyLock::new(|| Rooms::new(processors()));
static LOAD: LazyLock<Rooms> = LazyLock::new(|| Rooms::new(processors().div_ceil(2)));

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Room {
    /// Waits until there is room for one more test of this kind.
    #[must_use]
    pub fn take(kind: Kind) -> Self {
        let rooms: &'static Rooms = match kind {
            Kind::Objects => &OBJECTS,
            Kind::Cluster => &CLUSTERS,
            Kind::Pods => &PODS,
            Kind::Load => &LOAD,
        };
        let free = rooms.free.lock().unwrap_or_else(PoisonError::into_inner);
        let none_left = |free: &mut usize| *free == 0;
        *rooms.freed.wait_while(free, none_left).unwrap_or_else(PoisonError::into_inner) -= 1;
        Self(rooms)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

impl Rooms {
    fn new(all: usize) -> Self {
        Self { free: Mutex::new(all), freed: Condvar::new() }
    }
}
