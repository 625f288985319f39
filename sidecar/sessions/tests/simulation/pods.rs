//! Pods with their sidecars: how they come and go, and what a sidecar does by itself.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use longshore_sessions::bounds::{HEARTBEAT, RESTART};
use longshore_sessions::membership::{State, View};
use longshore_sessions::message::Copy;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use longshore_sessions::{Peer, PodId, Replica, SessionKey};

use super::world::{Happening, World};

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
    /// Which template it was made of: each rollout has the next one.
    pub(super) template: u32,
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

impl World {
    pub(super) fn add_pod(&mut self) {
        let number = self.pods.len();
        // Sometimes it gets the address of one that is gone, but not as long as answers are kept that may list it.
        let free: Vec<IpAddr> =
            self.pods.iter().filter(|pod| pod.gone && !pod.listed).map(|pod| pod.peer.address).collect();
        let free: Vec<IpAddr> = free.into_iter().filter(|address| self.pod_at(*address).is_none()).collect();
        let used = if self.names.keep_nothing() && self.random.chance(300) {
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
            template: self.template,
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
        let replica = Replica::new(pod.peer.clone(), self.now, View::new(pod.peer.address), tombstones);
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

    /// One that is back and does not serve for as long as others wait for that, DNS being down, counts as gone.
    fn lose_if_late(&mut self, number: usize) {
        let is_late = |process: &Process| {
            let starts = process.replica.state() == State::Starting;
            starts && self.now - process.started >= RESTART.as_millis() as u64
        };
        if self.pods[number].process.as_ref().is_some_and(is_late) {
            self.lose(number);
        }
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

    /// DNS lists whoever is there now.
    pub(super) fn list(&mut self) {
        let listed = self.pods.iter().filter(|pod| pod.listed).map(|pod| pod.peer.address).collect();
        self.names.list(self.now, listed);
    }

    pub(super) fn heartbeat(&mut self, pod: usize, life: u32) {
        if !self.is_life(pod, life) {
            return;
        }
        let now = self.moment();
        let is_first = self.pods[pod].process.as_ref().is_some_and(|process| self.now < process.asks_dns);
        let listed = if is_first { None } else { self.names.look_up(pod, self.now, &mut self.random) };
        let is_full = self.tells && self.pods[pod].crowded && !self.pods[pod].earlier;
        let template = format!("template-{}", self.pods[pod].template);
        let template = (!self.pods[pod].earlier).then(|| Arc::from(template));
        let Some(replica) = self.replica(pod) else { return };
        if let Some(listed) = listed {
            replica.view.listed(&listed, now);
        }
        replica.set_full(is_full);
        replica.set_template(template);
        if replica.state() == State::Starting && (is_first || replica.view.is_greeted()) {
            replica.set_state(State::Serving);
            self.say(|| format!("pod {pod} serves"));
        }
        self.lose_if_late(pod);
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
}
