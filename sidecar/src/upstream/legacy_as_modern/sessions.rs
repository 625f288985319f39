//! The sessions with the server that requests share, which stand alone.
//!
//! A server may tell sessions apart by who opened them and what that client can do, so requests share one only if
//! these are the same ([`keys`]). There is no end that anybody says, so a session ends when nobody has used it for a while.

mod keys;
mod room;
mod spare;

use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_mcp::revision::Revision;
use longshore_sidecar_config::Upstream;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};
use tokio::time::{Duration, Instant, timeout_at};

use super::asked::Asked;
use super::failure::Failure as Unusable;
use super::habits::Habits;
use super::session::Session;
use crate::counts_by_owner::Tally;
use crate::upstream::{Failure, Opener, Transport};
use keys::{Key, Keys, Told};

/// After how long without a call a session ends. A process may be behind it; to open another one costs the next call
/// a moment.
const IDLE: Duration = Duration::from_secs(120);

/// How long a handshake goes on whose client has gone. A server over HTTP may have opened the session by then, and only
/// its answer says which one is to be ended.
const UNHEARD: Duration = Duration::from_secs(30);

/// All of them.
#[derive(Default)]
pub(super) struct Sessions {
    table: Mutex<Table>,
    /// One was given back, or is new, or its place is free.
    freed: Notify,
    habits: Arc<Habits>,
}

#[derive(Default)]
struct Table {
    keys: Keys,
    open: HashMap<Key, Vec<Entry>>,
    /// Held while one is being opened that several may share.
    opening: HashMap<Key, Arc<tokio::sync::Mutex<()>>>,
    /// Where one is being opened whose call has found another, or is over, and whether nobody waits for it again by now.
    spare: HashMap<Key, Arc<AtomicBool>>,
    /// How many there are, those included that are being opened.
    total: u32,
    of_principals: Tally<Arc<str>>,
}

struct Entry {
    session: Arc<Session>,
    place: Place,
    /// How many use it.
    users: usize,
    /// How many of them for a call.
    calls: usize,
    /// One call has it alone.
    taken: bool,
    used: Instant,
}

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) total: u32,
    pub(super) per_principal: u32,
    /// After how long without a call one ends.
    pub(super) idle: Duration,
}

/// What a session is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A call that may run beside others.
    Call,
    /// A call that has to be the only one, since the server does not say which call it asks something in.
    Alone,
    /// To hear what the server says: whatever calls there are.
    Listen,
}

/// How a request wants its session.
pub(super) struct Wanted<'a> {
    /// The request.
    pub(super) asked: &'a Arc<Asked>,
    /// The newest revision with a handshake that the server speaks.
    pub(super) speaks: Revision,
    pub(super) purpose: Purpose,
    pub(super) bounds: Bounds,
    /// How long its session may take to begin, where a process has to start for it.
    pub(super) patience: Duration,
}

/// What a session takes of the bounds.
struct Place {
    principal: Arc<str>,
    sessions: Arc<Sessions>,
}

/// A session that is being opened.
struct Opening {
    sessions: Arc<Sessions>,
    transport: Rc<Transport>,
    upstream: Upstream,
    opener: Opener,
    asked: Arc<Asked>,
    speaks: Revision,
    principal: Arc<str>,
    key: Key,
    purpose: Purpose,
    bounds: Bounds,
    /// Until then it goes on where a process starts for it, also if its request is over by then.
    until: Instant,
    /// Nobody waits for it just now.
    unwanted: Arc<AtomicBool>,
}

/// A session in use.
pub(super) struct Lease {
    pub(super) session: Arc<Session>,
    key: Key,
    purpose: Purpose,
    sessions: Arc<Sessions>,
}

impl Bounds {
    /// Those of sessions of clients count here too: the server bears as much for either.
    pub(super) fn of(config: &longshore_sidecar_config::Sessions) -> Self {
        let idle = Duration::from_millis(config.idle_timeout_ms).min(IDLE);
        Self { total: config.total, per_principal: config.per_principal, idle }
    }
}

impl Purpose {
    /// That of a call.
    pub(super) fn of(asked: &Asked, upstream: &Upstream, opener: &Opener, parts_calls: bool) -> Self {
        // Over HTTP a question should come on the stream of its call. With several SDKs it comes on that of the session.
        let parts_calls = parts_calls || !matches!(upstream, Upstream::StreamableHttp { .. });
        let needs = asked.can_be_asked() && asked.method.may_need_input() || asked.level.is_some();
        if parts_calls && !opener.shares_process() && needs { Self::Alone } else { Self::Call }
    }
}

impl Sessions {
    /// A session for a request: one that there is, or another one.
    pub(super) async fn lease(
        self: &Arc<Self>,
        transport: &Rc<Transport>,
        upstream: &Upstream,
        opener: &Opener,
        wanted: Wanted<'_>,
    ) -> Result<Lease, Failure> {
        let Wanted { asked, speaks, purpose, bounds, patience } = wanted;
        let principal = opener.principal().cloned().unwrap_or_default();
        let key = self.table.lock().keys.of(&Told {
            principal: &principal,
            capabilities: &asked.capabilities,
            info: asked.info.as_deref(),
            revisions: [asked.revision, speaks],
            upstream,
            isolation: opener.isolation(),
        });
        if let Some(lease) = self.find(key, purpose) {
            return Ok(lease);
        }
        if purpose == Purpose::Alone
            && let Some(lease) = self.find_spare(key).await
        {
            return Ok(lease);
        }
        // Those who can share one wait for it; those who cannot open one each.
        let turn = if purpose == Purpose::Alone {
            None
        } else {
            let opening = self.table.lock().opening.entry(key).or_default().clone();
            let mut coming = pin!(opening.lock_owned());
            let mut turn = None;
            loop {
                let freed = self.freed.notified();
                if let Some(lease) = self.find(key, purpose) {
                    return Ok(lease);
                }
                if turn.is_some() {
                    break turn;
                }
                tokio::select! {
                    it = coming.as_mut() => turn = Some(it),
                    () = freed => {}
                }
            }
        };
        let opening = Opening {
            sessions: self.clone(),
            transport: transport.clone(),
            upstream: upstream.clone(),
            opener: opener.clone(),
            asked: asked.clone(),
            speaks,
            principal,
            key,
            purpose,
            bounds,
            until: Instant::now() + patience,
            unwanted: Arc::default(),
        };
        let unwanted = opening.unwanted.clone();
        let (told, mut opened) = oneshot::channel();
        // It ends with the handshake, or with who waits for it.
        tokio::task::spawn_local(opening.run(turn, told));
        loop {
            // It is told of everything from now on, whether it waits yet or not.
            let freed = self.freed.notified();
            // Another call may be done sooner than a place comes free.
            if purpose == Purpose::Alone
                && let Some(lease) = self.find(key, purpose)
            {
                self.spare(key, opened, unwanted);
                return Ok(lease);
            }
            tokio::select! {
                lease = &mut opened => return lease.unwrap_or_else(|_| Err(Unusable::Internal.into())),
                () = freed, if purpose == Purpose::Alone => {}
            }
        }
    }

    fn find(self: &Arc<Self>, key: Key, purpose: Purpose) -> Option<Lease> {
        let mut table = self.table.lock();
        let entries = table.open.get_mut(&key)?;
        let entry = entries.iter_mut().find(|entry| entry.suits(purpose))?;
        entry.users += 1;
        entry.calls += usize::from(purpose != Purpose::Listen);
        entry.taken |= purpose == Purpose::Alone;
        Some(Lease { session: entry.session.clone(), key, purpose, sessions: self.clone() })
    }

    /// Keeps a place for one more. If there is none, one that nobody uses has to go. Says whether one goes.
    fn place(
        self: &Arc<Self>,
        transport: &Rc<Transport>,
        principal: &Arc<str>,
        bounds: Bounds,
    ) -> Result<(Place, bool), Failure> {
        let mut table = self.table.lock();
        let own = table.of_principals.of(principal);
        let evicted = if own >= bounds.per_principal as usize {
            let limit = bounds.per_principal;
            let idle = table.idlest(|entry| entry.place.principal == *principal);
            Some(idle.ok_or(Unusable::FullForPrincipal { limit })?)
        } else if table.total >= bounds.total {
            Some(table.idlest(|_| true).ok_or(Unusable::Full)?)
        } else {
            None
        };
        table.total += 1;
        table.of_principals.more(principal.clone(), 1);
        drop(table);
        let goes = evicted.is_some();
        close(evicted.into_iter().collect(), transport);
        Ok((Place { principal: principal.clone(), sessions: self.clone() }, goes))
    }

    /// Whether there is a place for one more, or would be without those that nobody uses.
    fn has_place(&self, principal: &Arc<str>, bounds: Bounds) -> bool {
        let table = self.table.lock();
        let own = table.of_principals.of(principal);
        let mut idle = table.open.values().flatten().filter(|entry| entry.users == 0);
        if own >= bounds.per_principal as usize {
            idle.any(|entry| entry.place.principal == *principal)
        } else {
            table.total < bounds.total || idle.next().is_some()
        }
    }

    fn add(self: &Arc<Self>, key: Key, place: Place, session: Arc<Session>, purpose: Purpose) -> Lease {
        let entry = Entry {
            session: session.clone(),
            place,
            users: 1,
            calls: usize::from(purpose != Purpose::Listen),
            taken: purpose == Purpose::Alone,
            used: Instant::now(),
        };
        self.table.lock().open.entry(key).or_default().push(entry);
        self.freed.notify_waiters();
        Lease { session, key, purpose, sessions: self.clone() }
    }

    /// Whether such calls cannot share a session, as was seen in any: the server asks beside its calls, and nothing says in
    /// which. Or it asks for roots as soon as it is greeted, and each of the first calls would have to wait for the answer.
    pub(super) fn part_calls(&self, asked: &Asked) -> bool {
        self.habits.asks_aside() || asked.can.roots && self.habits.asks_at_once()
    }

    /// Ends all of them, those that somebody uses as soon as nobody does.
    pub(super) fn end_all(&self, transport: &Rc<Transport>) {
        self.habits.forget();
        for entry in self.table.lock().open.values().flatten() {
            entry.session.leave();
        }
        self.expire(transport, Duration::MAX);
    }

    /// Leaves those that the server knows from no others, and is not heard in, or is for nobody just now. It may be another
    /// one by now, which has forgotten what it was told in them, their handshakes too, and nothing else would say so.
    pub(super) fn leave_unheard(&self) {
        for entry in self.table.lock().open.values().flatten() {
            let is_heard = entry.users > 0 && entry.session.hearing.goes_on();
            if !entry.session.is_named() && !is_heard {
                entry.session.leave();
            }
        }
    }

    /// Ends those that nobody uses: those that have been idle for so long, and those that the server has forgotten.
    pub(super) fn expire(&self, transport: &Rc<Transport>, idle: Duration) {
        let now = Instant::now();
        let over = {
            let mut table = self.table.lock();
            let mut over = Vec::new();
            for entries in table.open.values_mut() {
                over.extend(entries.extract_if(.., |entry| {
                    let is_idle = now.saturating_duration_since(entry.used) >= idle;
                    entry.users == 0 && (entry.session.is_over() || is_idle)
                }));
            }
            table.open.retain(|_, entries| !entries.is_empty());
            table.opening.retain(|_, opening| Arc::strong_count(opening) > 1);
            over
        };
        close(over, transport);
    }

    /// Tells the server that nobody is asked any more what has waited for so long.
    pub(super) fn give_up_late(&self, transport: &Rc<Transport>, patience: Duration) {
        let table = self.table.lock();
        let sessions = table.open.values().flatten().map(|entry| &entry.session);
        for session in sessions.filter(|session| session.early.has_waited(patience)) {
            let (session, transport) = (session.clone(), transport.clone());
            tokio::task::spawn_local(async move { session.give_up_early(&transport).await });
        }
    }
}

/// Tells the server that some have ended. What they take of the bounds is given back when it knows.
fn close(over: Vec<Entry>, transport: &Rc<Transport>) {
    for Entry { session, place, .. } in over {
        let transport = transport.clone();
        tokio::task::spawn_local(async move {
            session.close(&transport).await;
            drop(place);
        });
    }
}

impl Table {
    /// Takes out the one that nobody has used for the longest time.
    fn idlest(&mut self, which: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let idle = |entry: &&Entry| entry.users == 0 && which(entry);
        let all = self.open.iter().flat_map(|(key, entries)| entries.iter().map(move |entry| (key, entry)));
        let (key, used) = all
            .filter(|(_, entry)| idle(entry))
            .map(|(key, entry)| (*key, entry.used))
            .min_by_key(|it| it.1)?;
        let entries = self.open.get_mut(&key)?;
        let at = entries.iter().position(|entry| idle(&entry) && entry.used == used)?;
        Some(entries.swap_remove(at))
    }
}

impl Opening {
    /// Opens the session, for whoever waits for it, and for those who wait for their turn.
    async fn run(
        self,
        mut turn: Option<OwnedMutexGuard<()>>,
        mut told: oneshot::Sender<Result<Lease, Failure>>,
    ) {
        let mut open = pin!(self.open());
        let mut kept = None;
        let lease = tokio::select! {
            lease = open.as_mut() => lease,
            () = told.closed() => match self.upstream {
                Upstream::StreamableHttp { .. } => {
                    let until = Instant::now() + UNHEARD;
                    loop {
                        let freed = self.sessions.freed.notified();
                        // The server may have lost it: others do not wait for it, unless it has the last place that there
                        // is for them.
                        drop(turn.take_if(|_| self.sessions.has_place(&self.principal, self.bounds)));
                        tokio::select! {
                            opened = timeout_at(until, open.as_mut()) => match opened {
                                Ok(lease) => break lease,
                                Err(_) => return,
                            },
                            () = freed, if turn.is_some() => {}
                        }
                    }
                }
                // The next request would only have to wait for as long again, and for ever where a process starts for
                // longer than a request may take.
                Upstream::Stdio {} if self.is_kept() => {
                    kept = self.sessions.keep(self.key, &self.unwanted);
                    if kept.is_none() {
                        return;
                    }
                    match timeout_at(self.until, open.as_mut()).await {
                        Ok(lease) => lease,
                        Err(_) => return,
                    }
                }
                // What was begun there ends when nobody holds it.
                Upstream::Stdio {} | Upstream::Sse { .. } => return,
            },
        };
        // If nobody is there it is the next call's, or ends when there is none for a while.
        let _ = told.send(lease);
        // Only now: whoever waits for it finds it.
        drop(kept);
    }

    /// Whether it goes on for the next request when its own is over. A place for its process is not waited for without one,
    /// nor is it kept once more.
    fn is_kept(&self) -> bool {
        let waits = || self.transport.lacks_place(&self.upstream, &self.opener, true).is_some();
        !self.unwanted.load(Ordering::Relaxed) && !waits()
    }

    async fn open(&self) -> Result<Lease, Failure> {
        let Self { sessions, transport, upstream, opener, asked, speaks, principal, .. } = self;
        let (place, one_goes) = sessions.place(transport, principal, self.bounds)?;
        let habits = &sessions.habits;
        let open = || Session::open(transport, upstream, opener.clone(), asked, *speaks, habits.clone());
        let wants = || !self.unwanted.load(Ordering::Relaxed);
        let session = sessions.open_with_room(transport, upstream, opener, one_goes, wants, open).await?;
        Ok(sessions.add(self.key, place, session, self.purpose))
    }
}

impl Entry {
    fn suits(&self, purpose: Purpose) -> bool {
        !self.session.is_over()
            && match purpose {
                Purpose::Call => !self.taken,
                Purpose::Alone => self.calls == 0,
                Purpose::Listen => true,
            }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.sessions.table.lock();
        table.total -= 1;
        table.of_principals.less(&self.principal, 1);
        drop(table);
        self.sessions.freed.notify_waiters();
    }
}

impl Lease {
    /// The server has forgotten the session, and so probably those like it that nobody uses either.
    pub(super) fn leave_unused(&self) {
        let table = self.sessions.table.lock();
        let entries = table.open.get(&self.key).into_iter().flatten();
        entries.filter(|entry| entry.users == 0).for_each(|entry| entry.session.leave());
    }

    /// The server asks aside in the session: no other call may join it from now on, if none has by now.
    pub(super) fn take_alone(&mut self) {
        let mut table = self.sessions.table.lock();
        let entries = table.open.get_mut(&self.key).into_iter().flatten();
        let entry = entries.into_iter().find(|entry| Arc::ptr_eq(&entry.session, &self.session));
        if let Some(entry) = entry.filter(|entry| entry.calls == 1 && self.purpose == Purpose::Call) {
            entry.taken = true;
            self.purpose = Purpose::Alone;
        }
    }

    /// Whether no other call may use the session meanwhile.
    pub(super) fn is_alone(&self) -> bool {
        self.purpose == Purpose::Alone
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = self.sessions.table.lock();
        let entries = table.open.get_mut(&self.key);
        let entry = entries
            .and_then(|entries| entries.iter_mut().find(|entry| Arc::ptr_eq(&entry.session, &self.session)));
        if let Some(entry) = entry {
            entry.users -= 1;
            entry.calls -= usize::from(self.purpose != Purpose::Listen);
            entry.taken &= self.purpose != Purpose::Alone;
            entry.used = Instant::now();
        }
        drop(table);
        self.sessions.freed.notify_waiters();
    }
}
