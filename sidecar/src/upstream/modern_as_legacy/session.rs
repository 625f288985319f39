//! What is known of one session.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::Id;
use longshore_mcp::level::Level;
use longshore_mcp::listen::{Offers, Wishes};
use longshore_mcp::logging;
use longshore_mcp::translate::requests::Client;
use longshore_mcp::translate::{Pair, names};
use longshore_sessions::bounds::MAX_SUBSCRIPTIONS;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::Failure;
use super::registry::Name;
use crate::held::{Share, subscription};
use crate::upstream::Opener;

/// How many questions of a session wait for answers. A call has sixteen at most.
const MAX_QUESTIONS: usize = 64;

/// One session.
pub(in crate::upstream) struct Session {
    parts: Parts,
    state: Mutex<State>,
    /// Counts the changes of what the client wants to hear.
    pub(super) wishes: watch::Sender<u64>,
    /// What the server has been told of them.
    pub(super) heard: watch::Sender<Heard>,
    /// Whether it is ended.
    pub(super) over: watch::Sender<bool>,
    /// Held while the server is asked for another resource: one for which it does not answer is taken back before the next.
    pub(super) subscribing: tokio::sync::Mutex<()>,
}

struct State {
    level: Option<Level>,
    wishes: Wishes,
    /// What those hold, and what the client says of itself.
    share: Share,
    /// How often a resource was subscribed to, and which times those are of each that the server has not taken yet.
    turn: u64,
    turns: HashMap<String, Vec<u64>>,
    /// Those of the resources that the server refuses to tell of.
    refused: BTreeSet<String>,
    /// Who listens to what belongs to no call.
    listeners: usize,
    /// The calls under way, by the client's id.
    calls: HashMap<String, Ear>,
    /// What the client was asked, and for which call.
    questions: HashMap<String, mpsc::UnboundedSender<Word>>,
}

/// Where a call hears of its client.
struct Ear {
    say: mpsc::UnboundedSender<Word>,
    /// It was told that its client does not want it any more. It may not come to read that for long.
    is_cancelled: bool,
}

/// What a client wants to hear of.
pub(super) struct Wanted {
    /// After so many changes.
    pub(super) wishes: u64,
    /// All resources that it has subscribed to.
    pub(super) all: BTreeSet<String>,
    /// Those of them that the server is not known to refuse.
    pub(super) known: BTreeSet<String>,
}

/// What a server has been asked to tell.
#[derive(Default)]
pub(super) struct Heard {
    /// After so many changes.
    pub(super) wishes: u64,
    /// The resources that it tells of.
    pub(super) granted: BTreeSet<String>,
}

/// What a call hears of its client: each of the last two once, and one for each of its questions.
pub(super) enum Word {
    /// The client has answered this question.
    Answered(String, Result<String, String>),
    /// The client does not want the answer any more.
    Cancelled,
    /// The session is over.
    Ended,
}

/// A call under way. It is forgotten when this is dropped.
pub(super) struct UnderWay {
    session: Arc<Session>,
    key: String,
    questions: Vec<String>,
    say: mpsc::UnboundedSender<Word>,
    pub(super) words: mpsc::UnboundedReceiver<Word>,
}

/// One of the times that a resource was subscribed to.
pub(super) struct Turn(u64);

/// Listens to what belongs to no call, until it is dropped.
pub(super) struct Listening(Arc<Session>);

/// What a session is from its beginning to its end.
pub(in crate::upstream) struct Parts {
    pub(super) name: Name,
    /// What the client speaks, and the server.
    pub(super) pair: Pair,
    /// For whom it is.
    pub(super) opener: Opener,
    /// What the client can do, in the words of the server's revision.
    pub(super) capabilities: String,
    /// The same, read.
    pub(super) can: ClientCapabilities,
    /// Who the client says that it is.
    pub(super) info: Option<String>,
    /// What the server tells.
    pub(super) offers: Offers,
    /// Whether it has log messages.
    pub(super) logs: bool,
}

impl Deref for Session {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Session {
    pub(super) fn new(parts: Parts, share: Share) -> Self {
        let wishes = Wishes::new(parts.offers);
        let state = State {
            level: None,
            wishes,
            share,
            turn: 0,
            turns: HashMap::new(),
            refused: BTreeSet::new(),
            listeners: 0,
            calls: HashMap::new(),
            questions: HashMap::new(),
        };
        Self {
            parts,
            state: Mutex::new(state),
            wishes: watch::Sender::new(0),
            heard: watch::Sender::default(),
            over: watch::Sender::new(false),
            subscribing: tokio::sync::Mutex::default(),
        }
    }

    /// What it is called.
    pub(in crate::upstream) fn name(&self) -> Name {
        self.name
    }

    /// What each request says of the client.
    pub(super) fn client(&self) -> Client<'_> {
        let level = self.logs.then(|| self.state.lock().level.unwrap_or(logging::UNASKED));
        Client { capabilities: &self.capabilities, info: self.info.as_deref(), level }
    }

    /// `logging/setLevel`.
    pub(super) fn set_level(&self, level: Level) {
        self.state.lock().level = Some(level);
    }

    /// What the server is asked to tell of its lists, and these resources: the whole request under this id, unless it would
    /// be for nothing.
    pub(super) fn listen_to(&self, id: &str, uris: &BTreeSet<String>) -> Option<String> {
        let mut wishes = Wishes::new(self.offers);
        for uri in uris {
            // There are no more than may be.
            let _ = wishes.subscribe(uri);
        }
        let client = Client { capabilities: &self.capabilities, info: self.info.as_deref(), level: None };
        wishes.request(id, self.pair.server, &client)
    }

    /// What its client wants by now.
    pub(super) fn wanted(&self) -> Wanted {
        let state = self.state.lock();
        let (wishes, all) = (*self.wishes.borrow(), state.wishes.uris());
        Wanted { wishes, known: all - &state.refused, all: all.clone() }
    }

    /// The server refuses to tell of these.
    pub(super) fn note_refused(&self, uris: &BTreeSet<String>) {
        let mut state = self.state.lock();
        // Its client may have unsubscribed from some meanwhile.
        let had: Vec<_> = uris.iter().filter(|uri| state.wishes.has(uri)).cloned().collect();
        state.refused.extend(had);
    }

    /// It tells of these.
    pub(super) fn note_taken(&self, uris: &BTreeSet<String>) {
        self.state.lock().refused.retain(|uri| !uris.contains(uri));
    }

    /// Whether it refuses to tell of a resource.
    pub(super) fn is_refused(&self, uri: &str) -> bool {
        self.state.lock().refused.contains(uri)
    }

    /// Whether the client has been told of one of these that it is subscribed to.
    pub(super) fn has_promised(&self, uris: &BTreeSet<String>) -> bool {
        let state = self.state.lock();
        uris.iter().any(|uri| !state.turns.contains_key(uri))
    }

    /// The server has been asked after so many changes, and tells of these.
    pub(super) fn note_heard(&self, wishes: u64, granted: &BTreeSet<String>) {
        self.heard.send_if_modified(|heard| {
            let is_new = wishes >= heard.wishes;
            if is_new {
                *heard = Heard { wishes, granted: granted.clone() };
            }
            is_new
        });
    }

    /// A notification of the server's, if the client wants it, for the client.
    pub(super) fn deliver(&self, message: &str) -> Option<String> {
        self.state.lock().wishes.deliver(message).map(|message| message.into_owned())
    }

    /// What the client has to be told if it may have missed something.
    pub(super) fn missed(&self) -> Vec<String> {
        self.state.lock().wishes.missed()
    }

    /// `resources/subscribe`. What would not be taken over by another replica is refused: it would be lost unseen.
    pub(super) fn subscribe(&self, uri: &str) -> Result<Turn, Failure> {
        let mut state = self.state.lock();
        let had = state.wishes.has(uri);
        if !had && state.wishes.uris().len() >= MAX_SUBSCRIPTIONS {
            return Err(Failure::TooManySubscriptions);
        }
        // Other sessions take it up: this one need not have any to give up.
        if !had && !state.share.add(subscription(uri)) {
            return Err(Failure::NotKept);
        }
        let is_new = state.wishes.subscribe(uri).map_err(|_| Failure::TooManySubscriptions)?;
        // The server may take by now what it has refused.
        if state.refused.remove(uri) || is_new {
            self.wishes.send_modify(|count| *count += 1);
        }
        state.turn += 1;
        let turn = state.turn;
        // One that the server has taken stays, whatever comes of asking for it again.
        if !had || state.turns.contains_key(uri) {
            state.turns.entry(uri.to_owned()).or_default().push(turn);
        }
        Ok(Turn(turn))
    }

    /// The server has taken a subscription.
    pub(super) fn taken(&self, uri: &str, turn: &Turn) {
        let mut state = self.state.lock();
        if state.turns.get(uri).is_some_and(|turns| turns.contains(&turn.0)) {
            state.turns.remove(uri);
        }
    }

    /// Whether the client has subscribed to a resource.
    pub(super) fn has(&self, uri: &str) -> bool {
        self.state.lock().wishes.has(uri)
    }

    /// Takes a subscription back, unless the server has taken it, or somebody else waits for that still.
    pub(super) fn take_back(&self, uri: &str, turn: &Turn) {
        let is_last = self.state.lock().turns.get_mut(uri).is_some_and(|turns| {
            let count = turns.len();
            turns.retain(|other| *other != turn.0);
            turns.is_empty() && count > 0
        });
        if is_last {
            self.unsubscribe(uri);
        }
    }

    /// `resources/unsubscribe`.
    pub(super) fn unsubscribe(&self, uri: &str) {
        let mut state = self.state.lock();
        state.turns.remove(uri);
        state.refused.remove(uri);
        if state.wishes.has(uri) {
            drop(state.share.split(subscription(uri)));
        }
        if state.wishes.unsubscribe(uri) {
            self.wishes.send_modify(|count| *count += 1);
        }
    }

    /// Somebody listens from now on.
    pub(super) fn begin_listening(self: &Arc<Self>) -> Listening {
        self.state.lock().listeners += 1;
        Listening(self.clone())
    }

    /// Whether anybody does.
    pub(super) fn is_heard(&self) -> bool {
        self.state.lock().listeners > 0
    }

    /// A call begins.
    pub(super) fn begin(self: &Arc<Self>, id: Id<'_>) -> Result<UnderWay, Failure> {
        let (say, words) = mpsc::unbounded_channel();
        let key = id.in_one_spelling().into_owned();
        let mut state = self.state.lock();
        if *self.over.borrow() {
            return Err(Failure::Forgotten);
        }
        if state.calls.contains_key(&key) {
            return Err(Failure::IdInUse);
        }
        state.calls.insert(key.clone(), Ear { say: say.clone(), is_cancelled: false });
        Ok(UnderWay { session: self.clone(), key, questions: Vec::new(), say, words })
    }

    /// `notifications/cancelled`.
    pub(super) fn cancel(&self, notification: &str) {
        let Some(id) = names::cancelled_id(notification) else { return };
        if let Some(call) = self.state.lock().calls.get_mut(&*Id::from_json(id).in_one_spelling())
            && !std::mem::replace(&mut call.is_cancelled, true)
        {
            // One that has just ended need not be cancelled.
            let _ = call.say.send(Word::Cancelled);
        }
    }

    /// The client has answered a question. Answers to what was never asked, or twice, are nobody's.
    pub(super) fn answered(&self, id: Id<'_>, outcome: Result<String, String>) {
        let key = id.in_one_spelling().into_owned();
        let asker = self.state.lock().questions.remove(&key);
        if let Some(asker) = asker {
            // Nor are those to calls that have ended.
            let _ = asker.send(Word::Answered(key, outcome));
        }
    }

    /// Ends what is under way.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        self.over.send_replace(true);
        for (_, call) in state.calls.drain() {
            let _ = call.say.send(Word::Ended);
        }
        state.questions.clear();
    }
}

impl UnderWay {
    /// The client is about to be asked these. Says whether it may be.
    pub(super) fn ask<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> bool {
        let mut state = self.session.state.lock();
        for id in ids {
            if state.questions.len() >= MAX_QUESTIONS {
                return false;
            }
            let key = Id::from_json(id).in_one_spelling().into_owned();
            state.questions.insert(key.clone(), self.say.clone());
            self.questions.push(key);
        }
        true
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.calls.remove(&self.key);
        for key in &self.questions {
            state.questions.remove(key);
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.state.lock().listeners -= 1;
    }
}
