//! Clients, and their requests on the way through replicas.

use longshore_mcp::revision::Revision;
use longshore_sessions::bounds::MAX_FULL;
use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::membership::State;
use longshore_sessions::message::{Copy, HandOver};
use longshore_sessions::replica::Effect;
use longshore_sessions::routing::{Entry, Event, Failure, NotForwarded, Route, Step, Take};
use longshore_sessions::tombstones::Tombstone;
use longshore_sessions::{Capsule, Peer, PodId, Question, ServerSession, SessionKey};

use super::network::Purpose;
use super::pods::{Held, Pod};
use super::world::{FAULTS_END, Happening, MAX_AGE, Truth, World};

/// How many times of a thousand a server does not begin a session that is taken.
const SERVER_FAILS: u64 = 100;

/// Where requests are to meet on their way, there are no more sessions than that.
const MANY: usize = 9;

/// How long it takes until the Service leads to a pod again, in milliseconds.
const LISTED_AGAIN: u64 = 1_100;

/// A request at one replica.
pub(super) struct Task {
    pub(super) pod: usize,
    pub(super) life: u32,
    session: usize,
    op: Op,
    origin: Origin,
    route: Route,
    take: Option<(Take, Copy)>,
    /// How often it was passed on because there was no room.
    passed_on: usize,
    /// When it has last asked who holds its session.
    pub(super) asked: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Call,
    /// One of the last calls, which must be answered.
    LastCall,
    /// A call that sets something.
    Set,
    Delete,
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    /// A task of another replica.
    Peer(u64),
    HandOver,
}

enum Answered {
    Ok,
    NotFound,
    Unavailable(Failure),
    /// Nobody has room for it.
    Full,
    /// The connection broke after the request was sent.
    Lost,
}

impl World {
    /// A client does something.
    pub(super) fn client(&mut self) {
        if self.now < FAULTS_END {
            let (least, most) = if self.busy { (20, 150) } else { (50, 600) };
            let pause = self.random.between(least, most);
            self.after(pause, Happening::Client);
        }
        let Some(pod) = self.endpoint() else { return };
        let opens = match (self.busy, self.sessions.len()) {
            (false, _) => 150,
            (true, MANY..) => 0,
            (true, _) => 300,
        };
        if self.sessions.is_empty() || self.random.chance(opens) {
            return self.open(pod);
        }
        let session = self.random.between(0, self.sessions.len() as u64) as usize;
        let op = match self.random.between(0, 100) {
            0..6 if !self.busy => Op::Delete,
            6..25 => Op::Set,
            _ => Op::Call,
        };
        self.sessions[session].end_tried |= op == Op::Delete;
        self.begin(pod, session, op, Origin::Client, Some(Vec::new()));
    }

    /// Each session is tried through every replica.
    pub(super) fn last_calls(&mut self) {
        for session in 0..self.sessions.len() {
            let pods: Vec<usize> = (0..self.pods.len()).filter(|pod| self.serves(*pod)).collect();
            assert!(!pods.is_empty(), "nobody serves");
            for pod in pods {
                self.begin(pod, session, Op::LastCall, Origin::Client, Some(Vec::new()));
            }
        }
    }

    /// A pod that the Service leads to.
    pub(super) fn endpoint(&mut self) -> Option<usize> {
        let now = self.now;
        let leads = |pod: &Pod| {
            let Some(process) = &pod.process else { return false };
            match process.replica.state() {
                State::Starting | State::Leaving => false,
                // One that has started again only after a probe, and when proxies have heard of that: by then it has
                // had a heartbeat of everybody who knows it.
                State::Serving => pod.life == 1 || now - process.started > LISTED_AGAIN,
                State::Draining => process.drains_since.is_some_and(|since| now - since < 3_000),
            }
        };
        let pods: Vec<usize> = (0..self.pods.len()).filter(|pod| leads(&self.pods[*pod])).collect();
        self.random.pick(&pods).copied()
    }

    fn open(&mut self, pod: usize) {
        let session = self.sessions.len();
        let has_state = self.random.chance(500);
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.random.next().to_be_bytes());
        bits[8..].copy_from_slice(&self.random.next().to_be_bytes());
        let capsule = Capsule {
            owner: self.pods[pod].peer.clone(),
            key: SessionKey::new(bits),
            principal: PrincipalDigest([0; 32]),
            revision: Revision::V2025_11_25,
            server_revision: Revision::V2025_11_25,
            server: if has_state { ServerSession::Id("id".into()) } else { ServerSession::None },
            capabilities: Some("{}".into()),
            issued: self.unix(),
            expires: self.unix() + MAX_AGE,
        };
        let Some(replica) = self.replica(pod).filter(|replica| replica.state() == State::Serving) else {
            return;
        };
        replica.open(capsule.key, Held::new(session, Copy::default()));
        self.pods[pod].server_knows.insert(session);
        self.say(|| format!("session {session} is opened at pod {pod}"));
        self.sessions.push(Truth {
            capsule,
            owner: pod,
            has_state,
            end_tried: false,
            ended: None,
            lost: false,
            answered: 0,
            times_set: 0,
            keepers: Vec::new(),
        });
    }

    /// A request, with who has passed it on, comes to a replica.
    pub(super) fn begin(
        &mut self,
        pod: usize,
        session: usize,
        op: Op,
        origin: Origin,
        full: Option<Vec<PodId>>,
    ) {
        let entry = match origin {
            Origin::Client => Entry::Client,
            Origin::Peer(_) => Entry::Forwarded,
            Origin::HandOver => Entry::HandOver,
        };
        let route = Route::new(&self.sessions[session].capsule, entry, self.moment(), self.unix());
        let route = match full.filter(|_| !self.pods[pod].earlier) {
            Some(full) => route.past(full),
            None => route,
        };
        let number = self.number();
        let life = self.pods[pod].life;
        let task = Task { pod, life, session, op, origin, route, take: None, passed_on: 0, asked: 0 };
        self.tasks.insert(number, task);
        self.say(|| format!("task {number}: {op:?} of session {session} at pod {pod}, from {origin:?}"));
        // Nobody waits for ever for an answer that a crash took away.
        self.after(40_000, Happening::TaskLost(number));
        self.drive(number, Event::Begin);
    }

    pub(super) fn waited(&mut self, task: u64) {
        self.drive(task, Event::Waited);
    }

    /// Follows a route by one step.
    pub(super) fn drive(&mut self, number: u64, event: Event) {
        let now = self.moment();
        let Some(mut task) = self.tasks.remove(&number) else { return };
        let pod = task.pod;
        let Some(replica) = self.replica(pod) else { return };
        task.passed_on +=
            usize::from(matches!(event, Event::Full | Event::NotForwarded(NotForwarded::Full(_))));
        assert!(task.passed_on <= MAX_FULL + 1, "task {number} goes on and on");
        let step = task.route.step(event, replica, now);
        let (session, op, origin) = (task.session, task.op, task.origin);
        let goes_on = matches!(step, Step::Wait(_) | Step::Ask(_) | Step::Take(..));
        if origin == Origin::HandOver && !goes_on {
            replica.had_its_turn(&task.route.key());
        }
        if !matches!(step, Step::Wait(_)) {
            self.say(|| format!("task {number}: {step:?}"));
        }
        let key = task.route.key();
        match &step {
            Step::Ask(_) => task.asked = self.happenings(),
            Step::Take(take, copy) => {
                self.check_copy(session, copy, task.asked);
                task.take = Some((*take, copy.clone()));
            }
            _ => {}
        }
        let full = task.route.full().unwrap_or_default().to_vec();
        let put_back = |world: &mut Self| world.tasks.insert(number, task);
        match step {
            Step::Serve if origin == Origin::HandOver => {}
            Step::Serve if op == Op::Delete => {
                put_back(self);
                self.end(number);
            }
            Step::Serve => {
                self.check_lives(session);
                if let Some(held) = self.replica(pod).and_then(|replica| replica.held(&key)) {
                    held.busy.set(held.busy.get() + 1);
                }
                put_back(self);
                let time = self.random.between(1, 2_000);
                self.after(time, Happening::TaskServed(number));
            }
            Step::Forward(peer) => {
                assert_eq!(origin, Origin::Client, "only the first replica forwards");
                put_back(self);
                let time = self.random.between(1, 20);
                self.after(time, Happening::Forwarded { task: number, to: peer });
            }
            Step::Ask(peers) => {
                put_back(self);
                self.ask(pod, peers, Question::Holds(key), Purpose::Route(number));
            }
            Step::Wait(until) => {
                put_back(self);
                let time = until.since(now).as_millis() as u64;
                self.after(time, Happening::TaskWaited(number));
            }
            Step::Take(..) => {
                put_back(self);
                let time = self.random.between(1, 1_000);
                self.after(time, Happening::TaskTaken(number));
            }
            Step::Moved(hint) => self.answer_peer(origin, NotForwarded::Moved(hint)),
            Step::Full(next) => self.answer_peer(origin, NotForwarded::Full(next)),
            Step::HandOn(next) => {
                self.tally.handed_on += 1;
                self.hand_over(pod, session, &next, full);
            }
            Step::Ended(tombstone) => {
                let effect = self.replica(pod).map(|replica| replica.bury(&[tombstone]));
                self.follow(pod, effect.unwrap_or(Effect::None));
                self.answer(session, op, origin, Answered::NotFound);
            }
            Step::Fail(Failure::NotFound) => self.answer(session, op, origin, Answered::NotFound),
            Step::Fail(failure) => self.answer(session, op, origin, Answered::Unavailable(failure)),
        }
    }

    /// The server was told, or not, and the session can be taken.
    pub(super) fn taken(&mut self, number: u64) {
        let Some(mut task) = self.tasks.remove(&number) else { return };
        let (pod, session, op, origin) = (task.pod, task.session, task.op, task.origin);
        let truth = &self.sessions[session];
        let tombstone = Tombstone { expires: truth.capsule.expires, key: truth.capsule.key };
        let (take, copy) = task.take.take().unwrap();
        let known = take == Take::Up && self.pods[pod].server_knows.contains(&session);
        let may_go_on = !truth.has_state || known || self.reinitialize;
        if op == Op::Delete {
            let Some(replica) = self.replica(pod) else { return };
            // Nobody else holds it, and it is not begun only to be ended.
            task.route.abandon(replica);
            self.tasks.insert(number, task);
            return self.end(number);
        }
        // The server does not begin it: it is away, or refuses.
        let fails = self.now < FAULTS_END && !self.orderly && self.random.chance(SERVER_FAILS);
        let (crowded, now) = (self.pods[pod].crowded && take == Take::Adopt, self.moment());
        let Some(replica) = self.replica(pod) else { return };
        if crowded && task.route.may_go_on(replica, now) {
            self.tally.passed_on += 1;
            self.tasks.insert(number, task);
            return self.drive(number, Event::Full);
        }
        if crowded {
            task.route.abandon(replica);
            self.tally.had_no_room += 1;
            self.check_room(pod, session);
            return self.answer(session, op, origin, Answered::Full);
        }
        if fails {
            task.route.abandon(replica);
            self.tally.failed_to_take += 1;
            return self.answer(session, op, origin, Answered::Unavailable(Failure::Undecided));
        }
        if !may_go_on {
            replica.end(tombstone);
            task.route.abandon(replica);
            self.pods[pod].file.push(tombstone);
            return self.answer(session, op, origin, Answered::NotFound);
        }
        let sets_again = copy != Copy::default();
        let held = Held::new(session, copy);
        if task.route.take(replica, held).is_err() {
            return self.answer(session, op, origin, Answered::NotFound);
        }
        self.pods[pod].server_knows.insert(session);
        self.tally.set_again += u64::from(sets_again);
        match take {
            Take::Up => self.tally.taken_up += 1,
            Take::Adopt => {
                self.tally.adopted += 1;
                self.tally.before_turn += u64::from(self.in_line.contains(&(pod, session)));
                let key = self.sessions[session].capsule.key;
                self.tally.spared += u64::from(self.is_spared(pod, &key));
            }
        }
        self.check_holders(session);
        self.check_lives(session);
        self.tasks.insert(number, task);
        self.drive(number, Event::Begin);
    }

    pub(super) fn served(&mut self, number: u64) {
        let Some(task) = self.tasks.remove(&number) else { return };
        let key = task.route.key();
        self.check_holders(task.session);
        if let Some(held) = self.replica(task.pod).and_then(|replica| replica.held(&key)) {
            assert_eq!(held.session, task.session);
            held.busy.set(held.busy.get().saturating_sub(1));
            if task.op == Op::Set {
                self.set(task.pod, task.session);
            }
        }
        self.answer(task.session, task.op, task.origin, Answered::Ok);
    }

    // === endings ===

    fn end(&mut self, number: u64) {
        let Some(task) = self.tasks.get(&number) else { return };
        let (pod, session) = (task.pod, task.session);
        let capsule = &self.sessions[session].capsule;
        let tombstone = Tombstone { expires: capsule.expires, key: capsule.key };
        let now = self.moment();
        let Some(replica) = self.replica(pod) else { return };
        replica.end(tombstone);
        let peers = replica.view.to_ask(now);
        self.pods[pod].file.push(tombstone);
        if peers.is_empty() {
            return self.end_told(number, true);
        }
        self.ask(pod, peers, Question::Ended(vec![tombstone]), Purpose::End(number));
    }

    pub(super) fn end_told(&mut self, number: u64, told: bool) {
        let Some(task) = self.tasks.remove(&number) else { return };
        let answered = if told { Answered::Ok } else { Answered::Unavailable(Failure::Unreachable) };
        self.answer(task.session, task.op, task.origin, answered);
    }

    // === between replicas ===

    pub(super) fn forwarded(&mut self, number: u64, to: &Peer) {
        let Some(task) = self.tasks.get(&number) else { return };
        let (from, session, op) = (task.pod, task.session, task.op);
        let full = task.route.full().map(<[PodId]>::to_vec);
        let pod = self.pod_at(to.address).filter(|pod| !self.is_cut(from, *pod));
        let lost = self.random.chance(self.losses);
        let Some(pod) = pod.filter(|_| !lost) else {
            return self.after(2_000, Happening::SentBack { task: number, why: NotForwarded::Silent });
        };
        if self.pods[pod].process.is_none() {
            return self.drive(number, Event::NotForwarded(NotForwarded::Refused));
        }
        if self.pods[pod].peer.pod != to.pod {
            return self.drive(number, Event::NotForwarded(NotForwarded::Moved(None)));
        }
        self.tally.forwarded += 1;
        self.begin(pod, session, op, Origin::Peer(number), full);
    }

    pub(super) fn sent_back(&mut self, task: u64, why: NotForwarded) {
        self.drive(task, Event::NotForwarded(why));
    }

    fn answer_peer(&mut self, origin: Origin, why: NotForwarded) {
        if let Origin::Peer(task) = origin {
            let time = self.random.between(1, 20);
            self.after(time, Happening::SentBack { task, why });
        }
    }

    pub(super) fn task_lost(&mut self, number: u64) {
        let Some(mut task) = self.tasks.remove(&number) else { return };
        if let Some(replica) = self.replica(task.pod) {
            task.route.abandon(replica);
        }
        self.answer(task.session, task.op, task.origin, Answered::Lost);
    }

    /// A request is answered: to its client, or to the replica that forwarded it, which passes it on.
    fn answer(&mut self, session: usize, op: Op, origin: Origin, answered: Answered) {
        match origin {
            Origin::HandOver => return,
            Origin::Peer(first) => {
                let Some(task) = self.tasks.remove(&first) else { return };
                // Done, but the connection breaks before whoever forwarded it hears of that.
                let breaks = self.now < FAULTS_END && self.random.chance(self.losses);
                self.tally.broken_off += u64::from(breaks);
                let answered = if breaks { Answered::Lost } else { answered };
                return self.answer(task.session, task.op, task.origin, answered);
            }
            Origin::Client => {}
        }
        match (op, answered) {
            (Op::Delete, Answered::Ok) => {
                self.say(|| format!("session {session} is ended"));
                self.sessions[session].ended = Some(self.now);
                self.tally.ended += 1;
            }
            (_, Answered::Ok) => {
                self.sessions[session].answered += u32::from(op == Op::LastCall);
                self.tally.served += 1;
            }
            (_, Answered::NotFound) => {
                self.check_not_found(session);
                self.tally.not_found += 1;
            }
            (Op::LastCall, Answered::Unavailable(failure)) => {
                panic!("session {session} is not served though all is well: {failure:?}")
            }
            (Op::LastCall, Answered::Full) => {
                panic!("there is no room for session {session} though all is well")
            }
            (_, Answered::Full) => {}
            (Op::LastCall, Answered::Lost) => panic!("the last call of session {session} is not answered"),
            (_, Answered::Unavailable(failure)) => {
                assert!(!self.orderly, "session {session} is not served at {}: {failure:?}", self.now);
                self.tally.unavailable += 1;
            }
            (_, Answered::Lost) => {}
        }
    }

    // === drains ===

    /// A pod that drains gives up what is idle, and may move.
    pub(super) fn give_up_idle(&mut self, pod: usize) {
        let now = self.moment();
        let reinitialize = self.reinitialize;
        let Some(replica) = self.replica(pod) else { return };
        let idle = replica.all_held().filter(|(_, held)| held.busy.get() == 0);
        let mut idle: Vec<(SessionKey, usize)> = idle.map(|(key, held)| (*key, held.session)).collect();
        // Not in the order of a map, which is another one each time.
        idle.sort_by_key(|(_, session)| *session);
        for (key, session) in idle {
            if self.sessions[session].has_state && !reinitialize {
                continue;
            }
            let Some(replica) = self.replica(pod) else { return };
            let Some(successor) = replica.successor(&key, now) else { continue };
            let with_room: Vec<Peer> = replica.view.with_room(now).collect();
            let copy = replica.held(&key).map(|held| held.copy.borrow().clone()).unwrap_or_default();
            replica.give_up(&key, successor.clone(), copy.clone());
            self.is_kept(pod, &key, &copy);
            self.tally.handed_over += 1;
            self.check_successor(pod, session, &successor, &with_room);
            self.say(|| format!("pod {pod} gives session {session} to {}", successor.pod));
            self.hand_over(pod, session, &successor, Vec::new());
        }
    }

    fn hand_over(&mut self, pod: usize, session: usize, successor: &Peer, full: Vec<PodId>) {
        let key = self.sessions[session].capsule.key;
        let copy = self.replica(pod).and_then(|replica| replica.copy(&key).cloned()).unwrap_or_default();
        let id = session.to_string().into();
        let session = HandOver { id, principal: "somebody".into(), copy, full };
        self.ask(pod, vec![successor.address], Question::HandOver(session), Purpose::Tell);
    }
}
