//! Questions and answers on their way, and what is done with the answers that no request waits for.

use std::net::IpAddr;

use longshore_sessions::bounds::QUESTION;
use longshore_sessions::replica::Effect;
use longshore_sessions::routing::{Event, Outcome};
use longshore_sessions::{Answer, Message, Question};

use super::copies::Kept;
use super::pods::Held;
use super::requests::{Op, Origin};
use super::world::{Happening, World};

/// A question that is under way, to one peer or several.
pub(super) struct Ask {
    pub(super) pod: usize,
    pub(super) life: u32,
    purpose: Purpose,
    peers: Vec<IpAddr>,
    outcomes: Vec<(IpAddr, Outcome)>,
}

/// What it is asked for.
pub(super) enum Purpose {
    Heartbeat,
    /// Whoever the Service leads to is to say whom it knows.
    Enter,
    Fetch,
    /// A request waits for who holds its session.
    Route(u64),
    /// A request waits for its session's end to be noted.
    End(u64),
    /// A copy of what the client of a session has set is to be kept.
    Keep(Kept),
    /// Nobody waits.
    Tell,
}

pub(super) enum Packet {
    Question { ask: u64, from: usize, to: IpAddr, message: Box<Message<Question>> },
    Answer { ask: u64, from: IpAddr, outcome: Outcome },
}

impl World {
    /// Asks peers all at once.
    pub(super) fn ask(&mut self, pod: usize, peers: Vec<IpAddr>, question: Question, purpose: Purpose) {
        let (life, now) = (self.pods[pod].life, self.moment());
        let Some(replica) = self.replica(pod) else { return };
        let message = Box::new(replica.say(question, now));
        let ask = self.number();
        for to in &peers {
            let packet = || Packet::Question { ask, from: pod, to: *to, message: message.clone() };
            self.send(packet);
        }
        self.asks.insert(ask, Ask { pod, life, purpose, peers, outcomes: Vec::new() });
        self.after(QUESTION.as_millis() as u64, Happening::AskEnds(ask));
    }

    fn send(&mut self, packet: impl Fn() -> Packet) {
        if self.random.chance(self.losses) {
            return;
        }
        let copies = if self.random.chance(self.losses) { 2 } else { 1 };
        for _ in 0..copies {
            // Now and then it comes after it was given up.
            let late = self.random.chance(self.losses);
            let time = if late { self.random.between(100, 4_000) } else { self.random.between(1, 20) };
            self.after(time, Happening::Packet(packet()));
        }
    }

    pub(super) fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::Question { ask, from, to, message } => {
                // Nobody has the address, or nobody can reach it: nothing comes back.
                let Some(pod) = self.pod_at(to).filter(|pod| !self.is_cut(from, *pod)) else { return };
                let now = self.moment();
                let Some(replica) = self.replica(pod) else {
                    self.send(|| Packet::Answer { ask, from: to, outcome: Outcome::Refused });
                    return;
                };
                let kept = match &message.body {
                    Question::Keep(key, copy) => Some((*key, copy.clone())),
                    _ => None,
                };
                let (answer, effect) = replica.answer(*message, now);
                if let Some((key, copy)) = kept {
                    self.is_kept(pod, &key, &copy);
                }
                self.follow(pod, effect);
                self.send(|| Packet::Answer {
                    ask,
                    from: to,
                    outcome: Outcome::Said(Box::new(answer.clone())),
                });
            }
            Packet::Answer { ask, from, outcome } => {
                let Some(waiting) = self.asks.get_mut(&ask) else { return };
                if !waiting.outcomes.iter().any(|(address, _)| *address == from) {
                    waiting.outcomes.push((from, outcome));
                }
                if waiting.outcomes.len() == waiting.peers.len() {
                    self.ask_ends(ask);
                }
            }
        }
    }

    /// Does what a message wants done beyond the answer.
    pub(super) fn follow(&mut self, pod: usize, effect: Effect<Held>) {
        match effect {
            Effect::None => {}
            Effect::Bury(tombstones, _) => self.pods[pod].file.extend(tombstones),
            Effect::TakeOver(session) => {
                let number: usize = session.id.parse().unwrap();
                let (key, earlier) = (self.sessions[number].capsule.key, self.pods[pod].earlier);
                if let Some(replica) = self.replica(pod) {
                    replica.keep(key, session.copy.clone());
                    if !earlier {
                        replica.line_up(key);
                    }
                }
                self.is_kept(pod, &key, &session.copy);
                if !session.full.is_empty() {
                    return self.begin(pod, number, Op::Call, Origin::HandOver, Some(session.full));
                }
                // A pod that ends gives many at once, which are taken one after the other.
                self.in_line.insert((pod, number));
                let (life, time) = (self.pods[pod].life, self.random.between(1, 3_000));
                self.after(time, Happening::Turn { pod, life, session: number });
            }
        }
    }

    /// The turn has come of a session that was given to a pod.
    pub(super) fn turn(&mut self, pod: usize, life: u32, session: usize) {
        self.in_line.remove(&(pod, session));
        if self.is_life(pod, life) {
            self.begin(pod, session, Op::Call, Origin::HandOver, Some(Vec::new()));
        }
    }

    pub(super) fn ask_ends(&mut self, ask: u64) {
        let Some(Ask { pod, life, purpose, peers, mut outcomes }) = self.asks.remove(&ask) else { return };
        if !self.is_life(pod, life) {
            return;
        }
        for peer in peers {
            if !outcomes.iter().any(|(address, _)| *address == peer) {
                outcomes.push((peer, Outcome::Silent));
            }
        }
        match purpose {
            Purpose::Tell => {}
            Purpose::Keep(kept) => self.copied(pod, kept, &outcomes),
            Purpose::Route(task) => self.drive(task, Event::Asked(outcomes)),
            Purpose::End(task) => {
                // Who is down learns it before it serves, and nobody takes a session without asking all who may know.
                let noted = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Said(_)));
                let told = noted || !outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Silent));
                self.end_told(task, told);
            }
            Purpose::Enter => {
                for (_, outcome) in outcomes {
                    self.entered(pod, outcome);
                }
            }
            Purpose::Heartbeat | Purpose::Fetch => {
                for (address, outcome) in outcomes {
                    self.heard(pod, address, outcome);
                }
            }
        }
    }

    fn heard(&mut self, pod: usize, address: IpAddr, outcome: Outcome) {
        let now = self.moment();
        let Some(replica) = self.replica(pod) else { return };
        match outcome {
            Outcome::Refused => replica.view.refused(address, now),
            Outcome::Silent => replica.view.silent(address, now),
            Outcome::Declined => {}
            Outcome::Said(message) => {
                replica.view.heard(&message.from, now);
                match message.body {
                    Answer::Tombstones(page) => {
                        let effect = replica.bury(&page);
                        replica.view.fetched(address);
                        self.follow(pod, effect);
                    }
                    _ if message.from.tombstones == replica.tombstones().digest() => {
                        replica.view.fetched(address)
                    }
                    _ => self.ask(pod, vec![address], Question::Tombstones(None), Purpose::Fetch),
                }
            }
        }
    }

    pub(super) fn send_heartbeats(&mut self, pod: usize) {
        let now = self.moment();
        let Some(replica) = self.replica(pod) else { return };
        for address in replica.view.to_greet(now) {
            self.ask(pod, vec![address], Question::Heartbeat, Purpose::Heartbeat);
        }
    }

    /// Asks whoever the Service leads to.
    pub(super) fn enter(&mut self, pod: usize) {
        let Some(to) = self.endpoint().map(|other| self.pods[other].peer.address) else { return };
        self.ask(pod, vec![to], Question::Heartbeat, Purpose::Enter);
    }

    fn entered(&mut self, pod: usize, outcome: Outcome) {
        let now = self.moment();
        let (Some(replica), Outcome::Said(message)) = (self.replica(pod), outcome) else { return };
        replica.view.heard(&message.from, now);
        self.send_heartbeats(pod);
    }

    pub(super) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cut.contains(&(one.min(other), one.max(other)))
    }
}
