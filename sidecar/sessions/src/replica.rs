//! What one replica knows: the sessions that it holds, those that it is about to take, those that are ended, who holds
//! others, and its peers. Everything that two replicas could disagree on changes here, in one step each, so that who
//! keeps a [`Replica`] behind one lock has no race that the simulation does not have.

mod recent;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::bounds::{MAX_COPIED, MAX_DEPARTURES, MAX_REMEMBERED, MAX_TOMBSTONES_A_PAGE};
use crate::identity::{Moment, Peer, PodId, SessionKey};
use crate::membership::{State, View};
use crate::message::{Answer, Copy, HandOver, Holding, Introduction, Message, Question, Word};
use crate::rendezvous;
use crate::tombstones::{Tombstone, Tombstones};
use recent::Recent;

/// One replica. `T` is what its shell keeps for a session that it holds.
#[derive(Debug)]
pub struct Replica<T> {
    me: Peer,
    /// Which process of its pod it is. Of two pods the one whose number is higher began later, as far as their clocks agree.
    process: u64,
    /// How many words it has said.
    said: Cell<u64>,
    state: State,
    /// Its server was lost soon after its handshake, and has not stayed since.
    shaken: bool,
    /// All its places are taken.
    full: bool,
    /// The template that its pod was made of, if that is known.
    template: Option<Arc<str>>,
    /// The others.
    pub view: View,
    held: HashMap<SessionKey, T>,
    /// Sessions that this replica wants to take, while it asks around and begins them with its server.
    claims: HashMap<SessionKey, Claim>,
    next_claim: u64,
    tombstones: Tombstones,
    /// Who holds sessions of others, as far as was heard.
    elsewhere: Recent<SessionKey, Peer>,
    /// Sessions that were given to this replica, and wait for their turn to be taken.
    in_line: Recent<SessionKey, ()>,
    /// What clients set in sessions of others, and in those that were given up.
    copies: Recent<SessionKey, Copy>,
}

/// A mark on a session that this replica wants to take. Whoever has it may take it, or give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(u64);

/// What a question has the shell do, beyond the answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect<T> {
    /// Nothing.
    None,
    /// These tombstones are new here: they are to be kept over a restart. The sessions are ended too.
    Bury(Vec<Tombstone>, Vec<T>),
    /// A session is to be taken over: its id is to be opened, its copy to be kept ([`Replica::keep`]), and itself to be lined
    /// up ([`Replica::line_up`]); in its turn a [`crate::Route`] with [`crate::routing::Entry::HandOver`] is to be followed.
    TakeOver(HandOver),
}

/// The session was ended while this replica took it.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<T>(pub T);

impl<T> Replica<T> {
    /// A replica that starts, in a process whose number no other one of its pod has, and which is higher than those of
    /// processes that began before.
    pub fn new(me: Peer, process: u64, view: View, tombstones: Tombstones) -> Self {
        Self {
            me,
            process,
            said: Cell::new(0),
            state: State::Starting,
            shaken: false,
            full: false,
            template: None,
            view,
            held: HashMap::new(),
            claims: HashMap::new(),
            next_claim: 0,
            tombstones,
            elsewhere: Recent::new(MAX_REMEMBERED),
            in_line: Recent::new(MAX_REMEMBERED),
            copies: Recent::weighing(MAX_REMEMBERED, MAX_COPIED, Copy::size),
        }
    }

    /// The same where the copies that it keeps may take so many bytes, if that is less than they may anywhere.
    #[must_use]
    pub fn copying(self, bytes: usize) -> Self {
        Self { copies: Recent::weighing(MAX_REMEMBERED, bytes.min(MAX_COPIED), Copy::size), ..self }
    }

    /// Who it is.
    pub fn me(&self) -> &Peer {
        &self.me
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        self.state
    }

    /// Begins to serve, or to drain.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// Notes whether its server was lost soon after its handshake, and has not stayed since. Then nothing new is taken here
    /// if somebody else can have it.
    pub fn set_shaken(&mut self, shaken: bool) {
        self.shaken = shaken;
    }

    /// Whether that is so.
    pub fn is_shaken(&self) -> bool {
        self.shaken
    }

    /// Notes whether all places of its sessions, or of their processes, are taken. Then nobody gives it more who knows
    /// somebody with room.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Notes which template its pod was made of.
    pub fn set_template(&mut self, template: Option<Arc<str>>) {
        self.template = template;
    }

    /// How it introduces itself this time.
    pub fn introduction(&self, now: Moment) -> Introduction {
        let number = self.said.get();
        self.said.set(number + 1);
        let mut left: Vec<_> = self.view.left(now).collect();
        left.sort_by_key(|departure| departure.ago);
        left.truncate(MAX_DEPARTURES);
        Introduction {
            pod: self.me.pod.clone(),
            address: self.me.address,
            word: Some(Word { process: self.process, number }),
            state: self.state,
            tombstones: self.tombstones.digest(),
            left,
            knows: self.view.known(now).collect(),
            settled: self.view.is_settled(now),
            shaken: self.shaken,
            full: self.full,
            template: self.template.clone(),
        }
    }

    /// A message of its own.
    pub fn say<M>(&self, body: M, now: Moment) -> Message<M> {
        Message { from: self.introduction(now), body }
    }

    /// What it answers to a question, and what is to be done.
    pub fn answer(&mut self, question: Message<Question>, now: Moment) -> (Message<Answer>, Effect<T>) {
        self.view.heard(&question.from, now);
        let mut effect = Effect::None;
        let answer = match question.body {
            Question::Heartbeat => Answer::Noted,
            Question::Holds(key) => Answer::Holding(self.holding(&key, now), self.copies.get(&key).cloned()),
            Question::Tombstones(after) => Answer::Tombstones(self.tombstones.page(after)),
            Question::Ended(tombstones) => {
                effect = self.bury(&tombstones);
                Answer::Noted
            }
            Question::HandOver(session) => {
                effect = Effect::TakeOver(session);
                Answer::Noted
            }
            Question::Keep(key, copy) => {
                self.keep(key, copy);
                Answer::Noted
            }
        };
        (self.say(answer, now), effect)
    }

    /// How it stands to a session.
    pub fn holding(&self, key: &SessionKey, now: Moment) -> Holding {
        if let Some(tombstone) = self.tombstones.get(key) {
            Holding::Ended(tombstone)
        } else if self.held.contains_key(key) && self.state != State::Leaving {
            Holding::Here
        } else if self.claims.contains_key(key) {
            Holding::Pending
        } else if let Some(peer) = self.remembered(key, now) {
            Holding::At(peer)
        } else {
            Holding::No
        }
    }

    // === sessions ===

    /// A session that it holds.
    pub fn held(&self, key: &SessionKey) -> Option<&T> {
        self.held.get(key)
    }

    /// All that it holds.
    pub fn all_held(&self) -> impl Iterator<Item = (&SessionKey, &T)> {
        self.held.iter()
    }

    /// Whether it wants to take some just now, and may hold them in a moment.
    pub fn is_taking(&self) -> bool {
        !self.claims.is_empty()
    }

    /// How many it holds.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Opens a new session, which nobody else can know of yet.
    pub fn open(&mut self, key: SessionKey, session: T) {
        self.held.insert(key, session);
    }

    /// Ends a session, whether it is held or not. Gives what was held, to tell the server.
    pub fn end(&mut self, tombstone: Tombstone) -> Option<T> {
        self.tombstones.add(tombstone);
        self.forget(&tombstone.key);
        self.held.remove(&tombstone.key)
    }

    /// Gives up a session for its successor, in a drain. From then on it is not served here any more, also if the
    /// successor never hears of it: the next request has somebody adopt it. `copy` is given to who asks.
    pub fn give_up(&mut self, key: &SessionKey, successor: Peer, copy: Copy) -> Option<T> {
        let session = self.held.remove(key)?;
        self.elsewhere.insert(*key, successor);
        self.keep(*key, copy);
        Some(session)
    }

    /// Notes that a session was given to this replica, which takes it in its turn. A request of it that comes before need
    /// not go elsewhere.
    pub fn line_up(&mut self, key: SessionKey) {
        self.in_line.insert(key, ());
    }

    /// Its turn has come, whatever comes of it, or somebody else is at it: from then on it goes by weight, as any other.
    pub fn had_its_turn(&mut self, key: &SessionKey) {
        self.in_line.remove(key);
    }

    /// Loses a session without a trace: its server has forgotten it, and whoever is next may begin it again.
    pub fn lose(&mut self, key: &SessionKey) -> Option<T> {
        self.held.remove(key)
    }

    // === what is kept for others ===

    /// Who would adopt a session if it were lost here: those whose servers die soon after their handshakes do so where
    /// nobody else is. `None`: there is nobody.
    pub fn heir(&self, key: &SessionKey, now: Moment) -> Option<Peer> {
        rendezvous::preferred(key, self.view.that_serve(now))
    }

    /// Whom a session would go to if this replica gave it up now: those that have no room get it where nobody has any, and
    /// before all others those that are younger than this replica and of another template. In a rollout they stay, and the
    /// others are about to end too: sessions that go there move once. Where none is, what is of another template is older,
    /// and ends next if anything does: those of its own come before it. Where its own template is not known, who is younger
    /// does, which fewer sessions leave again. Nobody tells a pod which template is wanted: all pods would have another
    /// configuration in each rollout for that, and it would spare a move only where a rollout is taken back, to the sessions of
    /// the pods that end first then. `None`: there is nobody.
    pub fn successor(&self, key: &SessionKey, now: Moment) -> Option<Peer> {
        let template = self.template.as_deref();
        rendezvous::winner(key, self.view.newer_with_room(self.process, template, now))
            .or_else(|| rendezvous::winner(key, self.view.alike_with_room(template, now)))
            .or_else(|| rendezvous::winner(key, self.view.with_room(now)))
            .or_else(|| rendezvous::winner(key, self.view.serving(now)))
    }

    /// The copy of what a client set in a session that this replica does not hold.
    pub fn copy(&self, key: &SessionKey) -> Option<&Copy> {
        self.copies.get(key)
    }

    /// The sessions of which it keeps copies, in no order. Once it drains, each copy belongs at the [`Replica::heir`].
    pub fn all_copied(&self) -> impl Iterator<Item = &SessionKey> {
        self.copies.keys()
    }

    /// Keeps a copy, if it is newer than what is there.
    pub fn keep(&mut self, key: SessionKey, copy: Copy) {
        if self.tombstones.get(&key).is_none() {
            let kept = self.copies.remove(&key).unwrap_or_default();
            self.copies.insert(key, kept.newer(copy));
        }
    }

    // === endings ===

    /// The sessions that are ended.
    pub fn tombstones(&self) -> &Tombstones {
        &self.tombstones
    }

    /// Notes that sessions are ended, as a peer says. What is held of them ends.
    pub fn bury(&mut self, tombstones: &[Tombstone]) -> Effect<T> {
        let mut new = Vec::new();
        let mut ended = Vec::new();
        for tombstone in tombstones.iter().take(MAX_TOMBSTONES_A_PAGE) {
            if self.tombstones.add(*tombstone) {
                new.push(*tombstone);
            }
            self.forget(&tombstone.key);
            ended.extend(self.held.remove(&tombstone.key));
        }
        if new.is_empty() && ended.is_empty() { Effect::None } else { Effect::Bury(new, ended) }
    }

    /// Leaves out of what is compared what is forgotten soon, `unix` being the time in seconds since 1970.
    pub fn settle_endings(&mut self, unix: u64) {
        self.tombstones.settle(unix);
    }

    /// Forgets endings that do not matter any more, `unix` being the time in seconds since 1970.
    pub fn forget_endings(&mut self, unix: u64) {
        self.tombstones.forget(unix);
    }

    fn forget(&mut self, key: &SessionKey) {
        self.elsewhere.remove(key);
        self.copies.remove(key);
    }

    // === for routing ===

    pub(crate) fn claim(&mut self, key: SessionKey) -> Claim {
        let claim = Claim(self.next_claim);
        self.next_claim += 1;
        self.claims.insert(key, claim);
        claim
    }

    pub(crate) fn release(&mut self, key: &SessionKey, claim: Claim) {
        if self.claims.get(key) == Some(&claim) {
            self.claims.remove(key);
        }
    }

    /// Holds a session from now on, with what is in the copy of that version. A newer one that came meanwhile is kept for
    /// whoever takes it next.
    pub(crate) fn take(
        &mut self,
        key: SessionKey,
        (claim, version): (Claim, u64),
        session: T,
    ) -> Result<(), Ended<T>> {
        self.release(&key, claim);
        if self.tombstones.get(&key).is_some() {
            return Err(Ended(session));
        }
        self.elsewhere.remove(&key);
        if self.copies.get(&key).is_some_and(|copy| copy.version <= version) {
            self.copies.remove(&key);
        }
        self.held.insert(key, session);
        Ok(())
    }

    pub(crate) fn remember(&mut self, key: SessionKey, peer: Peer) {
        if peer.pod != self.me.pod {
            self.had_its_turn(&key);
            self.elsewhere.insert(key, peer);
        }
    }

    /// Who holds a session, as far as was heard of them, and if they are alive. One that starts has forgotten what it
    /// held, and one that is about to end, which says the same of itself, has given it up.
    pub(crate) fn remembered(&self, key: &SessionKey, now: Moment) -> Option<Peer> {
        let pod = &self.elsewhere.get(key)?.pod;
        let (peer, state) = self.view.find(pod, now)?;
        (state != State::Starting).then_some(peer)
    }

    /// Whether a session was given to this replica, and waits for its turn.
    pub(crate) fn is_in_line(&self, key: &SessionKey) -> bool {
        self.in_line.get(key).is_some()
    }

    /// Forgets that a session is at that pod.
    pub(crate) fn forget_at(&mut self, key: &SessionKey, pod: &PodId) {
        if self.elsewhere.get(key).is_some_and(|peer| peer.pod == *pod) {
            self.elsewhere.remove(key);
        }
    }
}
