//! What goes wrong, and gets well again.

use longshore_sessions::membership::State;
use longshore_sessions::{SessionKey, rendezvous};

use super::pods::Process;
use super::world::{FAULTS_END, Happening, World};

/// The number of the fault by which another pod takes the place of one.
const REPLACES: u64 = 6;
/// That of the one by which a server does not stay.
const SHAKES: u64 = 11;

/// A sidecar that is away for less than this is waited for, and so are the sessions of its server, which lives on.
const SOON_BACK: u64 = 4_500;

/// Something that ends later.
pub(super) enum Fault {
    /// A sidecar is down.
    Down(usize),
    Cut(usize, usize),
    Dns,
    /// DNS still lists a pod that is gone.
    Listed(usize),
    /// The server beside a sidecar was lost soon after its handshake.
    Shaken {
        pod: usize,
        life: u32,
    },
    /// A pod has no room for sessions of others.
    Crowded(usize),
}

impl World {
    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return self.all_well();
        }
        let longest = match (self.busy, self.orderly) {
            (true, _) => 2_500,
            (false, true) => 4_000,
            (false, false) => 10_000,
        };
        let pause = self.random.between(500, longest);
        self.after(pause.min(FAULTS_END - self.now), Happening::Fault);
        let there: Vec<usize> = (0..self.pods.len()).filter(|pod| !self.pods[*pod].gone).collect();
        let Some(&pod) = self.random.pick(&there) else { return };
        let pod = if self.orderly { self.leaves_next(&there).unwrap_or(pod) } else { pod };
        if self.random.chance(if self.busy { 900 } else { 500 }) {
            self.crowd(&there);
        }
        self.upset = self.now;
        // A rollout is the only thing that is in order, and one that hangs: the servers of new pods die soon.
        let what = match self.orderly {
            true => self.random.pick(&[REPLACES, REPLACES, SHAKES]).copied().unwrap_or(REPLACES),
            false => self.random.between(0, 13),
        };
        match what {
            0..3 => self.restart(pod, false),
            3 => self.restart(pod, true),
            4 => self.new_sandbox(pod),
            5 => self.vanish(pod),
            REPLACES..8 => {
                self.replace(pod);
                // A rollout may be in a hurry.
                if self.random.chance(500) {
                    self.scale_up();
                }
            }
            8 => self.scale_up(),
            9 => {
                let Some(&other) = self.random.pick(&there) else { return };
                let pair = (pod.min(other), pod.max(other));
                if pair.0 != pair.1 && self.cut.insert(pair) {
                    self.say(|| format!("pods {pair:?} are cut off from each other"));
                    let time = self.random.between(1_000, 20_000);
                    self.after(time, Happening::Heal(Fault::Cut(pair.0, pair.1)));
                }
            }
            SHAKES.. => {
                let newest = there.last().copied().filter(|_| self.orderly);
                self.shake(newest.unwrap_or(pod));
            }
            _ => {
                self.say(|| "DNS is down".to_owned());
                self.names.are_down = true;
                let time = self.random.between(1_000, 12_000);
                self.after(time, Happening::Heal(Fault::Dns));
            }
        }
    }

    /// Who ends next in order. A rollout begins with who has been there for the longest: after two of them nobody is left
    /// from before. But a node may be drained meanwhile, and one of those ends that the rollout has made.
    fn leaves_next(&mut self, there: &[usize]) -> Option<usize> {
        let is_evicted = self.random.chance(200);
        let mut serving = there.iter().filter(|pod| self.serves(**pod));
        let leaves = if is_evicted { serving.next_back() } else { serving.next() };
        leaves.copied()
    }

    /// A pod's server was lost soon after its handshake, and does not stay. Who is told of it at once, and who with the
    /// next heartbeat, is as it comes.
    fn shake(&mut self, pod: usize) {
        let life = self.pods[pod].life;
        if self.is_shaken(pod, true) {
            self.say(|| format!("pod {pod}: its server does not stay"));
            self.tally.shaken += 1;
            let time = self.random.between(1_000, 15_000);
            self.after(time, Happening::Heal(Fault::Shaken { pod, life }));
        }
    }

    /// All places of a pod are taken for a while. Where nothing else goes wrong, another one has some.
    fn crowd(&mut self, there: &[usize]) {
        let Some(&pod) = self.random.pick(there) else { return };
        let has_room = |other: &usize| *other != pod && self.serves(*other) && !self.pods[*other].crowded;
        if self.pods[pod].crowded || self.orderly && !there.iter().any(has_room) {
            return;
        }
        self.say(|| format!("pod {pod} has no more room"));
        self.pods[pod].crowded = true;
        self.tally.crowded += 1;
        let time = self.random.between(2_000, 30_000);
        self.after(time, Happening::Heal(Fault::Crowded(pod)));
    }

    /// Whether that is another word than before.
    fn is_shaken(&mut self, pod: usize, shaken: bool) -> bool {
        let serves = self.serves(pod);
        let Some(replica) = self.replica(pod) else { return false };
        if replica.is_shaken() == shaken || shaken && !serves {
            return false;
        }
        replica.set_shaken(shaken);
        if self.random.chance(500) {
            self.send_heartbeats(pod);
        }
        true
    }

    /// Whether a session is taken by a pod that would have to leave it to another one if all servers stayed.
    pub(super) fn is_spared(&mut self, pod: usize, key: &SessionKey) -> bool {
        let now = self.moment();
        let Some(replica) = self.replica(pod) else { return false };
        let me = (replica.me().clone(), replica.is_shaken());
        let all: Vec<_> = replica.view.that_serve(now).chain([me]).collect();
        let winner = rendezvous::winner(key, all.iter().map(|(peer, _)| peer.clone()));
        all.iter().any(|(peer, shaken)| *shaken && winner.as_ref() == Some(peer))
            && winner.as_ref() != Some(replica.me())
    }

    /// Another pod comes, unless there were many.
    fn scale_up(&mut self) {
        if self.pods.len() < 12 {
            self.add_pod();
        }
    }

    /// The sidecar dies, alone or with the server.
    fn restart(&mut self, pod: usize, with_server: bool) {
        // Where a pod ends, nothing starts again.
        let leaves = |process: &Process| process.replica.state() == State::Leaving;
        if self.pods[pod].process.as_ref().is_none_or(leaves) {
            return;
        }
        self.say(|| {
            format!("pod {pod}: the sidecar dies{}", if with_server { " with the server" } else { "" })
        });
        self.stop(pod);
        let time = self.random.between(300, 9_000);
        if with_server {
            self.pods[pod].server_knows.clear();
        }
        if with_server || time >= SOON_BACK {
            self.lose(pod);
        }
        self.after(time, Happening::Heal(Fault::Down(pod)));
    }

    /// All of the pod's processes die, and it comes back with another address.
    fn new_sandbox(&mut self, pod: usize) {
        self.restart(pod, true);
        if self.pods[pod].process.is_some() {
            return;
        }
        self.pods[pod].peer.address = self.new_address();
        self.list();
    }

    /// The pod is gone without a word; another one comes.
    fn vanish(&mut self, pod: usize) {
        self.say(|| format!("pod {pod} vanishes"));
        self.stop(pod);
        self.lose(pod);
        self.pods[pod].gone = true;
        let time = self.random.between(1, 8_000);
        self.after(time, Happening::Heal(Fault::Listed(pod)));
        self.add_pod();
    }

    /// The pod ends in order; another one comes.
    fn replace(&mut self, pod: usize) {
        let now = self.now;
        if !self.serves(pod) {
            return;
        }
        // The next rollout begins when nobody is left from before the last, or in the middle of it.
        let is_over = self.pods.iter().all(|other| other.gone || other.template == self.template);
        if is_over || self.orderly && self.random.chance(200) {
            self.template += 1;
        }
        let Some(process) = &mut self.pods[pod].process else { return };
        process.replica.set_state(State::Draining);
        process.drains_since = Some(now);
        self.lose_what_is_not_held(pod);
        let life = self.pods[pod].life;
        self.say(|| format!("pod {pod} drains"));
        self.send_heartbeats(pod);
        self.add_pod();
        self.after(200, Happening::Drain { pod, life });
    }

    pub(super) fn drain(&mut self, pod: usize, life: u32) {
        if !self.is_life(pod, life) {
            return;
        }
        self.give_up_idle(pod);
        let since =
            self.pods[pod].process.as_ref().and_then(|process| process.drains_since).unwrap_or(self.now);
        if self.now - since < 6_000 {
            if self.now - since >= 4_500
                && let Some(process) = &mut self.pods[pod].process
            {
                process.replica.set_state(State::Leaving);
                self.lose(pod);
                self.send_heartbeats(pod);
            }
            return self.after(200, Happening::Drain { pod, life });
        }
        self.say(|| format!("pod {pod} ends"));
        self.stop(pod);
        self.lose(pod);
        self.pods[pod].gone = true;
        // DNS is behind.
        let time = self.random.between(1, 8_000);
        self.after(time, Happening::Heal(Fault::Listed(pod)));
    }

    pub(super) fn heal(&mut self, fault: Fault) {
        self.upset = self.now;
        match fault {
            Fault::Down(pod) => {
                if !self.pods[pod].gone && self.pods[pod].process.is_none() {
                    self.start(pod);
                }
            }
            Fault::Cut(one, other) => {
                self.say(|| format!("pods {one} and {other} reach each other again"));
                self.cut.remove(&(one, other));
            }
            Fault::Dns => self.names.are_down = false,
            Fault::Listed(pod) => {
                self.pods[pod].listed = false;
                self.list();
            }
            Fault::Crowded(pod) => {
                self.say(|| format!("pod {pod} has room again"));
                (self.pods[pod].crowded, self.pods[pod].room_since) = (false, self.now);
            }
            Fault::Shaken { pod, life } => {
                if self.is_life(pod, life) && self.is_shaken(pod, false) {
                    self.say(|| format!("pod {pod}: its server stays"));
                    self.pods[pod].room_since = self.now;
                }
            }
        }
    }

    fn all_well(&mut self) {
        self.say(|| "all is well from now on".to_owned());
        self.losses = 0;
        self.cut.clear();
        self.names.are_down = false;
    }
}
