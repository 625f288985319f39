//! One session: of a client with the sidecar, and of the sidecar with the server.

mod held_open;
mod said;
mod set;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use longshore_mcp::envelope::{self, Id, Message, Request};
use longshore_mcp::method::ServerNotification;
use longshore_mcp::params::Params;
use longshore_mcp::revision::Revision;
use longshore_sessions::{Capsule, Moment};

use super::Place;
use super::abandoned::Standing;
use super::aliases::Aliases;
use super::cancelled::Cancellable;
use super::questions::{Questions, Telling};
use crate::configuration::Snapshot;
use crate::held::Share;
use crate::request_copy;
use crate::streams::Streams;
pub(crate) use held_open::Use;
use parking_lot::{Mutex, RwLock};
pub(super) use said::Said;
pub(crate) use set::Change;
pub(super) use set::Next;
use set::Set;

/// The least that is said of how long a kept stream still holds its session open: a stream that is about to be forgotten
/// holds it a moment longer.
const SOON: Duration = Duration::from_secs(1);

/// One session that this replica holds.
pub(crate) struct Session {
    /// What its id says.
    pub(crate) capsule: Capsule,
    /// Whether its id says all of that: capabilities that are too long for it are known to this replica alone.
    pub(super) fits: bool,
    /// Its place among as many sessions as there may be, for as long as anybody uses it.
    pub(super) place: Place,
    /// What its client's capabilities take of the bytes that may be held, if they are long.
    _said: Option<Share>,
    /// What the server here calls it, if it has sessions at all. Not what the id says, if it was begun again.
    upstream: RwLock<Option<HeaderValue>>,
    /// The revision that the client speaks.
    pub(crate) revision: Revision,
    /// The revision that the server speaks in this session.
    pub(crate) server_revision: Revision,
    /// What the client set. Boxed, since most sessions set nothing.
    set: Mutex<Option<Box<Set>>>,
    /// Held while it is begun again with the server, which whoever has it begun need not wait for.
    pub(super) beginning: Arc<tokio::sync::Mutex<()>>,
    /// Nobody can open its id any more: the keys were made anew.
    keyless: AtomicBool,
    /// When it was last used, in milliseconds since the process began.
    used: AtomicU64,
    /// The same of its client's last request alone: whatever is kept of a stream is kept for a client that may have gone.
    spoke: AtomicU64,
    /// Its client has said that it knows of it.
    known: AtomicBool,
    /// Requests under way: while there are any it is not idle, and stays here.
    busy: AtomicUsize,
    /// Streams that are open, or kept for a client that comes back: while there are any it is not idle.
    kept: AtomicUsize,
    /// What its client reads.
    pub(crate) streams: Streams,
    /// What its client was asked: in calls, or anywhere by a server that does not know whom it asks.
    pub(super) questions: Questions,
    /// The calls under way that its client may cancel.
    pub(super) cancellable: Cancellable,
    /// A sidecar before this one has had it: its server may still answer calls that nobody here knows.
    was_before: bool,
    /// It came from another replica, whose server gave it no name: the one here may give names, and know nobody without.
    may_lack_name: AtomicBool,
    /// Which of its requests have other ids at the server.
    pub(super) aliases: Aliases,
}

/// What the server is told of a session that has ended. It takes no place of one.
pub(crate) struct Farewell {
    /// What the server calls it.
    pub(crate) id: HeaderValue,
    pub(crate) revision: Revision,
}

// === impl Session ===

impl Session {
    pub(super) fn new(capsule: Capsule, place: Place, upstream: Option<HeaderValue>, now: u64) -> Self {
        Self {
            revision: capsule.revision,
            server_revision: capsule.server_revision,
            fits: capsule.fits(),
            capsule,
            place,
            _said: None,
            upstream: RwLock::new(upstream.and_then(alone)),
            set: Mutex::default(),
            beginning: Arc::default(),
            keyless: AtomicBool::new(false),
            used: AtomicU64::new(now),
            spoke: AtomicU64::new(now),
            known: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            streams: Streams::default(),
            questions: Questions::default(),
            cancellable: Cancellable::default(),
            was_before: false,
            may_lack_name: AtomicBool::new(false),
            aliases: Aliases::default(),
        }
    }

    /// The same with what is counted of what its client can do.
    pub(super) fn saying(self, said: Option<Share>) -> Self {
        Self { _said: said, ..self }
    }

    /// Whose it is.
    pub(crate) fn principal(&self) -> &Arc<str> {
        self.place.principal()
    }

    /// What the server calls it.
    pub(crate) fn upstream(&self) -> Option<HeaderValue> {
        self.upstream.read().clone()
    }

    /// What the server is to be told once it has ended, if it knows of it.
    pub(super) fn farewell(&self) -> Option<Farewell> {
        Some(Farewell { id: self.upstream()?, revision: self.server_revision })
    }

    /// Whether the server knows whose a message is. One without session ids goes by the ids in messages, whosever they are.
    pub(crate) fn is_known_to_server(&self) -> bool {
        self.upstream.read().is_some()
    }

    /// Takes note of a request or notification on its way to the client, and gives it with the progress token that the client
    /// chose. `None`: it is not for this client.
    pub(crate) fn hears<'a>(&self, message: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let is_known = self.is_known_to_server();
        // There is nothing to note then, and most messages are read for nothing else.
        if is_known && self.questions.is_empty() {
            return Some(Cow::Borrowed(message));
        }
        match envelope::read(message) {
            Ok(Message::Request(question)) if !is_known => self.questions.asked(&question, None),
            Ok(Message::Notification(news)) => match ServerNotification::parse(&news.method) {
                Some(ServerNotification::Cancelled) => {
                    let params = Params::read(news.params).unwrap_or_default();
                    if let Some(id) = params.request_id() {
                        self.questions.taken_back(&Id::from_json(id));
                    }
                }
                Some(ServerNotification::Progress) if !is_known => return self.aliases.progress(message),
                _ => {}
            },
            _ => {}
        }
        Some(Cow::Borrowed(message))
    }

    /// Notes that its client is asked this, and certainly in this call.
    pub(crate) fn note_asked(&self, question: &Request<'_>, call: u64) {
        self.questions.asked(question, Some(call));
    }

    /// Its client will never answer this. Says whether it was noted, and not answered.
    pub(crate) fn ends_question(&self, id: &Id<'_>) -> bool {
        self.questions.taken_back(id)
    }

    /// What it was asked in this call need not be answered any more. The ids of what was not, as JSON.
    pub(crate) fn ends_questions(&self, call: u64) -> Vec<Box<str>> {
        self.questions.over(call)
    }

    /// Whether a server without session ids has asked for reports under this token, as JSON, in this session.
    pub(crate) fn is_asked_under(&self, token: &str) -> bool {
        self.questions.wants(token)
    }

    /// Whether it has reached its age.
    pub(crate) fn is_too_old(&self, snapshot: &Snapshot) -> bool {
        super::is_too_old(&self.capsule, snapshot)
    }

    /// The same session at the same server, of a sidecar before this one.
    pub(super) fn of_before(self) -> Self {
        Self { was_before: true, ..self }
    }

    /// The same session of a replica whose server gave it no name, with the server here.
    pub(super) fn of_nameless(self) -> Self {
        Self { may_lack_name: AtomicBool::new(true), ..self }
    }

    /// Whether the server here may have forgotten it, or never have known it: it gave it a name, or was not asked for one.
    pub(crate) fn may_be_unknown(&self) -> bool {
        self.is_known_to_server() || self.may_lack_name.load(Ordering::Relaxed)
    }

    /// Its client cancels the call with this id. `None`: none is under way, neither here nor at the server.
    pub(crate) fn cancels(&self, id: &Id<'_>) -> Option<Telling> {
        let cancelling = self.cancellable.cancel(id);
        (!cancelling.is_empty() || self.was_before).then_some(Telling::Cancels(cancelling))
    }

    /// What the server calls the request that its client calls so, if that is something else.
    pub(crate) fn alias_of(&self, id: &Id<'_>) -> Option<Arc<str>> {
        self.aliases.find(id)
    }

    /// The server calls it so from now on. Nobody learns of that before `then` is done.
    pub(super) fn set_upstream(&self, upstream: Option<HeaderValue>, then: impl FnOnce()) {
        let mut known = self.upstream.write();
        *known = upstream.and_then(alone);
        self.may_lack_name.store(false, Ordering::Relaxed);
        then();
    }

    /// Whether it can go elsewhere now, or end: no call is under way, and nobody is about to come for an answer. Streams
    /// that are open end then.
    pub(super) fn is_free(&self) -> bool {
        !self.is_busy() && !self.streams.is_awaited()
    }

    /// Nobody can open its id any more.
    pub(super) fn lose_keys(&self) {
        self.keyless.store(true, Ordering::Relaxed);
    }

    /// Whether that is so. Then it takes no more requests, and ends after those that are under way.
    pub(crate) fn is_keyless(&self) -> bool {
        self.keyless.load(Ordering::Relaxed)
    }

    /// Whether requests of it are under way.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Whether nobody has used it for that long.
    pub(super) fn is_idle(&self, now: Moment, time: Duration) -> bool {
        let free = !self.is_busy() && self.kept.load(Ordering::Relaxed) == 0;
        free && now.since(Moment(self.used.load(Ordering::Relaxed))) >= time
    }

    /// Notes that its client knows of it.
    pub(crate) fn greeted(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// How its client stands to it.
    pub(super) fn standing(&self, now: Moment) -> Standing {
        let kept = self.kept.load(Ordering::Relaxed) > 0;
        let free_in = match (self.is_busy(), kept) {
            (true, _) => None,
            (false, true) => self.streams.kept_for().map(|time| time.max(SOON)),
            (false, false) => Some(Duration::ZERO),
        };
        let silent = now.since(Moment(self.spoke.load(Ordering::Relaxed)));
        let left = self.streams.were_listened_to() || !self.known.load(Ordering::Relaxed);
        Standing { free_in, silent, left }
    }
}

/// A value in memory of its own: one that was read from a connection keeps all that was read with it.
fn alone(value: HeaderValue) -> Option<HeaderValue> {
    let mut alone = request_copy::value(&value)?;
    // Keeps it out of debug output.
    alone.set_sensitive(true);
    Some(alone)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use longshore_sessions::capsule::PrincipalDigest;
    use longshore_sessions::{Peer, PodId, ServerSession, SessionKey};

    use super::*;
    use crate::sessions::Places;
    use crate::sessions::aliases::Alias;
    use crate::sessions::places::tests::limits;

    pub(super) fn session(place: Place) -> Session {
        let owner = Peer { pod: PodId::new("pod-1").unwrap(), address: IpAddr::from([127, 0, 0, 1]) };
        let capsule = Capsule {
            owner,
            key: SessionKey::new([0; 16]),
            principal: PrincipalDigest::of(place.principal()),
            revision: Revision::V2025_11_25,
            server_revision: Revision::V2025_11_25,
            server: ServerSession::None,
            capabilities: None,
            issued: 0,
            expires: 0,
        };
        Session::new(capsule, place, None, 0)
    }

    #[test]
    fn progress_is_its_own_clients() {
        let places = Arc::new(Places::default());
        let open = || Arc::new(session(places.take(&"a".into(), &limits()).ok().unwrap()));
        let (session, other) = (open(), open());
        let alias = |session: &Arc<Session>, id, token| {
            Alias::new(session.clone(), &Id::from_json(id), token).unwrap()
        };
        let (call, quiet, others) =
            (alias(&session, "1", Some("\"t\"")), alias(&session, "2", None), alias(&other, "1", Some("9")));
        let news = |token: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
            )
        };
        let heard = |token: &str| {
            let heard = session.hears(news(token).as_bytes()).map(Cow::into_owned);
            heard.map(|heard| String::from_utf8(heard).unwrap())
        };
        let own = call.as_json().to_owned();
        for spelled in [own.clone(), format!("\"{own}\""), format!("{own}.0")] {
            assert_eq!(heard(&spelled), Some(news("\"t\"")), "{spelled}");
        }
        assert_eq!((heard(quiet.as_json()), heard(others.as_json())), (None, None));
        // Of what the server chose itself, or what goes on after its call.
        assert_eq!(heard("\"t\""), Some(news("\"t\"")));
        assert_eq!(session.alias_of(&Id::from_json("1")).as_deref(), Some(&*own));
        drop(call);
        assert_eq!((heard(&own), session.alias_of(&Id::from_json("1"))), (None, None));
        assert_eq!((heard(&format!("\"{own}\"")), heard(&format!("{own}.0"))), (None, None));
    }
}
