//! The world: pods, what really is true of each session, and the order of events.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::AddAssign;

use longshore_sessions::bounds::{DECIDE, HEARTBEAT};
use longshore_sessions::membership::{State, View};
use longshore_sessions::message::Copy;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use longshore_sessions::{Capsule, Moment, Peer, PodId, Replica, SessionKey};

use super::copies::Keeper;
use super::faults::Fault;
use super::network::{Ask, Packet};
use super::random::Random;
use super::requests::Task;

/// When faults end.
pub(super) const FAULTS_END: u64 = 40_000;
/// When everything that waits for time has had it, and every session is tried once more.
const LAST_CALLS: u64 = FAULTS_END + 60_000;
/// When these calls must have been answered.
const END: u64 = LAST_CALLS + 15_000;
/// After how long everybody knows that a pod has room, and who was passed by before that has been answered.
const KNOWN: u64 = 6_000;
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
    /// What DNS would say if it were not behind: from when on which addresses.
    dns: Vec<(u64, Vec<IpAddr>)>,
    /// How far name servers are behind at most.
    dns_lag: u64,
    /// What each of them said last, and when; a pod asks always the same one.
    dns_said: [Option<(u64, Vec<IpAddr>)>; 2],
    /// For how long they say the same.
    dns_cache: u64,
    pub(super) dns_is_down: bool,
    /// When something last began or ended that is out of order.
    pub(super) upset: u64,
    /// Pairs of pods that do not reach each other.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// How many messages of a thousand are lost; as many are doubled.
    pub(super) losses: u64,
    pub(super) reinitialize: bool,
    /// Pods only come and go, as in a rollout: nothing breaks.
    pub(super) orderly: bool,
    /// Pods say when they have no room. Otherwise it is the part of one principal that is taken, of which others hear only
    /// when they ask for more.
    pub(super) tells: bool,
    /// The pods that are there from the beginning are of a release that knows nothing of room elsewhere.
    pub(super) upgrades: bool,
    pub(super) asks: HashMap<u64, Ask>,
    pub(super) tasks: HashMap<u64, Task>,
    pub(super) tally: Tally,
    talks: bool,
}

/// One pod.
pub(super) struct Pod {
    pub(super) peer: Peer,
    /// The sidecar that runs.
    pub(super) process: Option<Process>,
    /// Counts its sidecars.
    pub(super) life: u32,
    /// The pod is deleted, or its node is.
    pub(super) gone: bool,
    /// DNS lists it.
    pub(super) listed: bool,
    /// The file of endings, which survives the sidecar.
    pub(super) file: Vec<Tombstone>,
    /// Which of its sessions the server knows.
    pub(super) server_knows: BTreeSet<usize>,
    /// It takes no more sessions of others: all places are taken.
    pub(super) crowded: bool,
    /// Since when it has room, and a server that stays, if it has.
    pub(super) room_since: u64,
    /// It is of a release that goes nowhere else where it has no room, and says nothing of it.
    pub(super) earlier: bool,
}

pub(super) struct Process {
    pub(super) replica: Replica<Held>,
    pub(super) started: u64,
    /// When it asks DNS for the first time: not at once where nobody is ready, since DNS would keep that.
    asks_dns: u64,
    pub(super) drains_since: Option<u64>,
    /// To whom copies of others' sessions were passed on.
    pub(super) passed_on: HashMap<SessionKey, (PodId, u64)>,
}

/// What a sidecar keeps for a session.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: usize,
    pub(super) busy: Cell<u32>,
    /// What its client has set.
    pub(super) copy: RefCell<Copy>,
    /// Who keeps that as it is now: a pod, and which of its processes.
    pub(super) kept_at: RefCell<Option<(PodId, u64)>>,
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
    LastCalls,
}

/// What happened in histories.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) served: u64,
    pub(super) forwarded: u64,
    pub(super) adopted: u64,
    pub(super) taken_up: u64,
    pub(super) handed_over: u64,
    pub(super) failed_to_take: u64,
    pub(super) broken_off: u64,
    pub(super) ended: u64,
    pub(super) not_found: u64,
    pub(super) unavailable: u64,
    pub(super) set: u64,
    pub(super) set_again: u64,
    /// Servers that did not stay.
    pub(super) shaken: u64,
    /// Sessions that one of theirs would have taken otherwise.
    pub(super) spared: u64,
    /// Pods that had no room for more.
    pub(super) crowded: u64,
    /// Requests that went on to somebody else therefore, and sessions.
    pub(super) passed_on: u64,
    pub(super) handed_on: u64,
    /// Those for which nobody had any.
    pub(super) had_no_room: u64,
}

impl World {
    pub(super) fn new(seed: u64, talks: bool) -> Self {
        let mut random = Random::new(seed);
        let dns_lag = [1, 500, 3_000, 8_000][random.between(0, 4) as usize];
        let dns_cache = [0, 5_000, 30_000][random.between(0, 3) as usize];
        let orderly = random.chance(150);
        let losses = if orderly { 0 } else { [0, 0, 10, 50][random.between(0, 4) as usize] };
        let reinitialize = orderly || random.chance(500);
        let (tells, upgrades) = (random.chance(500), random.chance(300));
        let mut world = Self {
            random,
            now: 0,
            queue: BTreeMap::new(),
            next: 0,
            pods: Vec::new(),
            sessions: Vec::new(),
            dns: vec![(0, Vec::new())],
            dns_lag,
            dns_said: [None, None],
            dns_cache,
            dns_is_down: false,
            upset: 0,
            cut: BTreeSet::new(),
            losses,
            reinitialize,
            orderly,
            tells,
            upgrades,
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

    fn happen(&mut self, happening: Happening) {
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

    // === pods ===

    pub(super) fn add_pod(&mut self) {
        let number = self.pods.len();
        // Sometimes it gets the address of one that is gone, but not as long as answers are kept that may list it.
        let free: Vec<IpAddr> =
            self.pods.iter().filter(|pod| pod.gone && !pod.listed).map(|pod| pod.peer.address).collect();
        let free: Vec<IpAddr> = free.into_iter().filter(|address| self.pod_at(*address).is_none()).collect();
        let used = if self.dns_cache == 0 && self.random.chance(300) {
            self.random.pick(&free).copied()
        } else {
            None
        };
        let address = used.unwrap_or_else(|| self.new_address());
        self.pods.push(Pod {
            peer: Peer { pod: PodId::new(&format!("pod-{number}")).unwrap(), address },
            process: None,
            life: 0,
            gone: false,
            listed: true,
            file: Vec::new(),
            server_knows: BTreeSet::new(),
            crowded: false,
            room_since: self.now,
            earlier: false,
        });
        self.list();
        self.start(number);
    }

    pub(super) fn new_address(&mut self) -> IpAddr {
        let number = self.number();
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + u32::try_from(number).unwrap()))
    }

    /// Starts a pod's sidecar.
    pub(super) fn start(&mut self, number: usize) {
        let pod = &mut self.pods[number];
        pod.life += 1;
        let mut tombstones = Tombstones::default();
        pod.file.iter().for_each(|tombstone| {
            tombstones.add(*tombstone);
        });
        let replica =
            Replica::new(pod.peer.clone(), u64::from(pod.life), View::new(pod.peer.address), tombstones);
        let life = pod.life;
        let is_first = life == 1 && self.endpoint().is_none();
        let asks_dns = self.now + if is_first { 2_000 } else { 0 };
        let process =
            Process { replica, started: self.now, asks_dns, drains_since: None, passed_on: HashMap::new() };
        self.pods[number].process = Some(process);
        self.say(|| format!("pod {number} starts"));
        self.enter(number);
        self.happen(Happening::Heartbeat { pod: number, life });
    }

    /// Ends a pod's sidecar at once.
    pub(super) fn stop(&mut self, number: usize) {
        self.pods[number].process = None;
        let life = self.pods[number].life;
        self.asks.retain(|_, ask| (ask.pod, ask.life) != (number, life));
        self.tasks.retain(|_, task| (task.pod, task.life) != (number, life));
    }

    /// What cannot move is lost with its pod.
    pub(super) fn lose(&mut self, number: usize) {
        self.lose_where(number, |_| true);
    }

    /// A sidecar that ends takes no session up any more that it had before it died.
    pub(super) fn lose_what_is_not_held(&mut self, number: usize) {
        let held = self.pods[number].process.as_ref().map(|process| &process.replica);
        let held = held.into_iter().flat_map(Replica::all_held).map(|(key, _)| *key);
        let held: BTreeSet<SessionKey> = held.collect();
        self.lose_where(number, |key| !held.contains(key));
    }

    fn lose_where(&mut self, number: usize, is_lost: impl Fn(&SessionKey) -> bool) {
        if !self.reinitialize {
            // Whoever finds that the pod that had a session is down may say that it is lost.
            for session in
                self.sessions.iter_mut().filter(|session| session.owner == number && session.has_state)
            {
                session.lost |= is_lost(&session.capsule.key);
            }
        }
    }

    pub(super) fn pod_at(&self, address: IpAddr) -> Option<usize> {
        self.pods.iter().position(|pod| !pod.gone && pod.peer.address == address)
    }

    pub(super) fn replica(&mut self, pod: usize) -> Option<&mut Replica<Held>> {
        self.pods[pod].process.as_mut().map(|process| &mut process.replica)
    }

    pub(super) fn serves(&self, pod: usize) -> bool {
        self.pods[pod].process.as_ref().is_some_and(|process| process.replica.state() == State::Serving)
    }

    pub(super) fn is_life(&self, pod: usize, life: u32) -> bool {
        self.pods[pod].process.is_some() && self.pods[pod].life == life
    }

    // === name servers ===

    /// DNS lists whoever is there now.
    pub(super) fn list(&mut self) {
        let listed = self.pods.iter().filter(|pod| pod.listed).map(|pod| pod.peer.address).collect();
        self.dns.push((self.now, listed));
    }

    fn look_up(&mut self, pod: usize) -> Option<Vec<IpAddr>> {
        if self.dns_is_down {
            return None;
        }
        let server = pod % self.dns_said.len();
        if let Some((at, said)) = &self.dns_said[server]
            && self.now - at < self.dns_cache
        {
            return Some(said.clone());
        }
        let asked = self.now.saturating_sub(self.random.between(0, self.dns_lag));
        let (_, listed) = self.dns.iter().rev().find(|(from, _)| *from <= asked)?;
        self.dns_said[server] = Some((self.now, listed.clone()));
        Some(listed.clone())
    }

    fn heartbeat(&mut self, pod: usize, life: u32) {
        if !self.is_life(pod, life) {
            return;
        }
        let now = self.moment();
        let is_first = self.pods[pod].process.as_ref().is_some_and(|process| self.now < process.asks_dns);
        let listed = if is_first { None } else { self.look_up(pod) };
        let is_full = self.tells && self.pods[pod].crowded && !self.pods[pod].earlier;
        let Some(replica) = self.replica(pod) else { return };
        if let Some(listed) = listed {
            replica.view.listed(&listed, now);
        }
        replica.set_full(is_full);
        if replica.state() == State::Starting && (is_first || replica.view.is_greeted()) {
            replica.set_state(State::Serving);
            self.say(|| format!("pod {pod} serves"));
        }
        self.send_heartbeats(pod);
        if self.replica(pod).is_some_and(|replica| replica.view.is_overlooked()) {
            self.enter(pod);
        }
        self.copy_all(pod);
        let pause = HEARTBEAT.as_millis() as u64 + self.random.between(0, 50);
        // A replica that starts is in a hurry.
        let starting = self.replica(pod).is_some_and(|replica| replica.state() == State::Starting);
        self.after(if starting { 100 } else { pause }, Happening::Heartbeat { pod, life });
    }

    // === the rules ===

    /// Never do two replicas hold one session.
    pub(super) fn check_holders(&self, session: usize) {
        let key = self.sessions[session].capsule.key;
        let holds = |pod: &&Pod| {
            // One that leaves serves nobody any more.
            pod.process.as_ref().is_some_and(|process| {
                process.replica.state() != State::Leaving && process.replica.held(&key).is_some()
            })
        };
        let holders: Vec<&str> = self.pods.iter().filter(holds).map(|pod| pod.peer.pod.as_str()).collect();
        assert!(holders.len() <= 1, "session {session} is held by {holders:?} at {}", self.now);
    }

    /// An ended session does not serve, as long as a replica lives that knows of its end. (One that just starts may
    /// not have been asked.)
    pub(super) fn check_lives(&self, session: usize) {
        let Truth { capsule, ended: Some(ended), .. } = &self.sessions[session] else { return };
        let knows = |pod: &&Pod| {
            pod.process.as_ref().is_some_and(|process| {
                let since = process.started;
                let knows = process.replica.tombstones().get(&capsule.key).is_some();
                knows && (since < *ended || self.now - since > DECIDE.as_millis() as u64 + 1_000)
            })
        };
        let know: Vec<&str> = self.pods.iter().filter(knows).map(|pod| pod.peer.pod.as_str()).collect();
        assert!(
            know.is_empty(),
            "session {session} is served at {} after its end, of which {know:?} know",
            self.now
        );
    }

    /// Nobody waits for room where somebody else has had some for a while, and a server that stays.
    pub(super) fn check_room(&self, pod: usize, session: usize) {
        if !self.orderly || self.upgrades {
            return;
        }
        let has_room = |(number, other): &(usize, &Pod)| {
            let stays = other.process.as_ref().is_some_and(|process| !process.replica.is_shaken());
            let has_room = self.serves(*number) && stays && !other.crowded;
            *number != pod && has_room && self.now - other.room_since > KNOWN
        };
        let has_room = self.pods.iter().enumerate().find(has_room).map(|(number, _)| number);
        assert!(
            has_room.is_none(),
            "session {session} waits for room at pod {pod} at {}, {has_room:?} has some",
            self.now
        );
    }

    pub(super) fn check_not_found(&self, session: usize) {
        let truth = &self.sessions[session];
        assert!(truth.end_tried || truth.lost, "session {session} is answered 404 at {}", self.now);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self {
            served,
            forwarded,
            adopted,
            taken_up,
            handed_over,
            failed_to_take,
            broken_off,
            ended,
            not_found,
            unavailable,
            set,
            set_again,
            shaken,
            spared,
            crowded,
            passed_on,
            handed_on,
            had_no_room,
        } = other;
        self.failed_to_take += failed_to_take;
        self.broken_off += broken_off;
        self.served += served;
        self.forwarded += forwarded;
        self.adopted += adopted;
        self.taken_up += taken_up;
        self.handed_over += handed_over;
        self.ended += ended;
        self.not_found += not_found;
        self.unavailable += unavailable;
        self.set += set;
        self.set_again += set_again;
        self.shaken += shaken;
        self.spared += spared;
        self.crowded += crowded;
        self.passed_on += passed_on;
        self.handed_on += handed_on;
        self.had_no_room += had_no_room;
    }
}
