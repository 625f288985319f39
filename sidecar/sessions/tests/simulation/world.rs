//! The world: what is in it, what really is true of each session, and the order of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longshore_sessions::{Capsule, Moment, Peer};

use super::copies::Keeper;
use super::faults::Fault;
use super::names::NameServers;
use super::network::{Ask, Packet};
use super::pods::Pod;
use super::random::Random;
use super::requests::Task;
use super::tally::Tally;

/// When faults end.
pub(super) const FAULTS_END: u64 = 40_000;
/// When everything that waits for time has had it, and every session is tried once more.
const LAST_CALLS: u64 = FAULTS_END + 60_000;
/// When these calls must have been answered.
const END: u64 = LAST_CALLS + 15_000;
/// Wall-clock time at the beginning, in seconds.
const WALL: u64 = 1_800_000_000;
/// No session gets that old here.
pub(super) const MAX_AGE: u64 = 86_400;

pub(super) struct World {
    pub(super) random: Random,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    next: u64,
    pub(super) pods: Vec<Pod>,
    pub(super) sessions: Vec<Truth>,
    pub(super) names: NameServers,
    /// When something last began or ended that is out of order.
    pub(super) upset: u64,
    /// Pairs of pods that do not reach each other.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// How many messages of a thousand are lost; as many are doubled.
    pub(super) losses: u64,
    pub(super) reinitialize: bool,
    /// Pods only come and go, as in a rollout: nothing breaks.
    pub(super) orderly: bool,
    /// Few sessions, with many requests of each that meet on their way, and pods that often have no room. So it is only where
    /// nothing breaks.
    pub(super) busy: bool,
    /// Pods say when they have no room. Otherwise it is the part of one principal that is taken, of which others hear only
    /// when they ask for more.
    pub(super) tells: bool,
    /// The pods that are there from the beginning are of a release that knows nothing of room elsewhere.
    pub(super) upgrades: bool,
    /// Which template pods are made of now.
    pub(super) template: u32,
    /// Which sessions were given to which pods, and wait for their turn there.
    pub(super) in_line: BTreeSet<(usize, usize)>,
    pub(super) asks: HashMap<u64, Ask>,
    pub(super) tasks: HashMap<u64, Task>,
    pub(super) tally: Tally,
    talks: bool,
}

/// What is true of a session.
pub(super) struct Truth {
    pub(super) capsule: Capsule,
    pub(super) owner: usize,
    pub(super) has_state: bool,
    /// Somebody wanted to end it.
    pub(super) end_tried: bool,
    /// And was told that it is.
    pub(super) ended: Option<u64>,
    /// Its server's state was lost, in a history where that ends it.
    pub(super) lost: bool,
    /// Answered in the last calls.
    pub(super) answered: u32,
    /// How often its client has set something.
    pub(super) times_set: u64,
    /// Who has got copies of that.
    pub(super) keepers: Vec<Keeper>,
}

/// Something that happens at some time. `life` is that of the pod's sidecar: what was for an earlier one is void.
pub(super) enum Happening {
    Heartbeat { pod: usize, life: u32 },
    Packet(Packet),
    AskEnds(u64),
    TaskWaited(u64),
    TaskTaken(u64),
    TaskServed(u64),
    TaskLost(u64),
    Forwarded { task: u64, to: Peer },
    SentBack { task: u64, why: longshore_sessions::routing::NotForwarded },
    Client,
    Fault,
    Heal(Fault),
    Drain { pod: usize, life: u32 },
    Turn { pod: usize, life: u32, session: usize },
    LastCalls,
}

impl World {
    pub(super) fn new(seed: u64, talks: bool) -> Self {
        let mut random = Random::new(seed);
        let names = NameServers::new(&mut random);
        let orderly = random.chance(150);
        let losses = if orderly { 0 } else { [0, 0, 10, 50][random.between(0, 4) as usize] };
        let reinitialize = orderly || random.chance(500);
        let (tells, upgrades) = (random.chance(500), random.chance(300));
        let busy = orderly && random.chance(200);
        let mut world = Self {
            random,
            now: 0,
            queue: BTreeMap::new(),
            next: 0,
            pods: Vec::new(),
            sessions: Vec::new(),
            names,
            upset: 0,
            cut: BTreeSet::new(),
            losses,
            reinitialize,
            orderly,
            busy,
            tells,
            upgrades,
            template: 0,
            in_line: BTreeSet::new(),
            asks: HashMap::new(),
            tasks: HashMap::new(),
            tally: Tally::default(),
            talks,
        };
        for _ in 0..world.random.between(2, 5) {
            world.add_pod();
        }
        world.pods.iter_mut().for_each(|pod| pod.earlier = upgrades);
        world
    }

    pub(super) fn run(mut self) -> Tally {
        self.after(3_000, Happening::Client);
        self.after(4_000, Happening::Fault);
        self.after(LAST_CALLS, Happening::LastCalls);
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            if at > END {
                break;
            }
            self.now = at;
            self.happen(happening);
        }
        for (number, session) in self.sessions.iter().enumerate() {
            let may_be_gone = session.end_tried || session.lost;
            assert!(may_be_gone || session.answered > 0, "session {number} is lost");
        }
        self.tally
    }

    pub(super) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Heartbeat { pod, life } => self.heartbeat(pod, life),
            Happening::Packet(packet) => self.arrive(packet),
            Happening::AskEnds(ask) => self.ask_ends(ask),
            Happening::TaskWaited(task) => self.waited(task),
            Happening::TaskTaken(task) => self.taken(task),
            Happening::TaskServed(task) => self.served(task),
            Happening::TaskLost(task) => self.task_lost(task),
            Happening::Forwarded { task, to } => self.forwarded(task, &to),
            Happening::SentBack { task, why } => self.sent_back(task, why),
            Happening::Client => self.client(),
            Happening::Fault => self.fault(),
            Happening::Heal(fault) => self.heal(fault),
            Happening::Drain { pod, life } => self.drain(pod, life),
            Happening::Turn { pod, life, session } => self.turn(pod, life, session),
            Happening::LastCalls => self.last_calls(),
        }
    }

    pub(super) fn after(&mut self, time: u64, happening: Happening) {
        self.queue.insert((self.now + time, self.next), happening);
        self.next += 1;
    }

    /// Counts what has happened.
    pub(super) fn happenings(&self) -> u64 {
        self.next
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn moment(&self) -> Moment {
        // As if the processes had run for long: what is young is so by its id.
        Moment(self.now + 1_000_000)
    }

    pub(super) fn unix(&self) -> u64 {
        WALL + self.now / 1_000
    }

    pub(super) fn say(&self, text: impl FnOnce() -> String) {
        if self.talks {
            println!("{:>7} {}", self.now, text());
        }
    }
}
