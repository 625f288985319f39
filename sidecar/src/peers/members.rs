//! Keeps up with who there is: DNS is asked each second, and everybody in it gets a heartbeat.
//!
//! A replica that starts is ready only when it has greeted all others and knows which sessions they know to be ended,
//! so that none of these lives again. One that cannot be reached does not hold it up for long.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use longshore_sessions::bounds::{HEARTBEAT, MAX_TOMBSTONES, MAX_TOMBSTONES_A_PAGE};
use longshore_sessions::membership::State;
use longshore_sessions::tombstones::Digest;
use longshore_sessions::{Answer, Question};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, sleep, sleep_until};

use super::connection::Failure;
use super::entry::{self, Entry};
use super::names::Names;
use super::overlooked::Overlooked;
use super::{Errands, News, Peers, Ways, ask};
use crate::shared::Shared;

/// How long greetings hold up readiness at most: enough for a question that gets no answer, and another one.
const GREETING: Duration = Duration::from_secs(5);
/// What is said where DNS answers, and never with this replica.
const NOT_LISTED: &str = "DNS does not list this pod";
/// More pages than this a replica cannot have.
const MAX_PAGES: usize = MAX_TOMBSTONES.div_ceil(MAX_TOMBSTONES_A_PAGE);

/// Asks, listens and keeps up for as long as the process lives.
pub(crate) async fn watch(shared: Arc<Shared>, errands: Errands) -> io::Result<()> {
    let Errands(asked) = errands;
    let mut tasks = JoinSet::new();
    tasks.spawn_local({
        let shared = shared.clone();
        async move {
            ask::serve(shared, asked).await;
            Ok(())
        }
    });
    tasks.spawn_local(states(shared.clone()));
    tasks.spawn_local(keep_up(shared));
    // None of them ends by itself.
    match tasks.join_next().await {
        Some(Ok(result)) => result,
        Some(Err(error)) => Err(io::Error::other(error)),
        None => Ok(()),
    }
}

/// Says what this replica is doing: it starts until everybody is greeted and its server was there once, and drains from
/// the moment the process is told to end. From the beginning it says whether its server was lost soon after its handshake:
/// clients are not sent to such a one, and neither are they by other replicas.
async fn states(shared: Arc<Shared>) -> io::Result<()> {
    let (mut view, mut draining) = (shared.view.subscribe(), shared.draining.subscribe());
    let mut greeted = shared.peers.greeted();
    let mut was_shaken = false;
    loop {
        let state = if *draining.borrow_and_update() {
            State::Draining
        } else if *greeted.borrow_and_update() && view.borrow_and_update().ever_connected {
            State::Serving
        } else {
            State::Starting
        };
        let shaken = {
            let view = view.borrow_and_update();
            view.ever_connected && !view.is_ready
        };
        let heard_else = std::mem::replace(&mut was_shaken, shaken) != shaken;
        if heard_else {
            shared.peers.0.local.set_shaken(shaken);
        }
        shared.peers.0.changed.send_if_modified(|current| {
            let changed = *current != state;
            if changed {
                *current = state;
                shared.peers.0.local.set_state(state);
            }
            changed || heard_else
        });
        let changed = tokio::select! {
            result = view.changed() => result,
            result = draining.changed() => result,
            result = greeted.changed() => result,
        };
        changed.map_err(io::Error::other)?;
    }
}

async fn keep_up(shared: Arc<Shared>) -> io::Result<()> {
    let names = Arc::new(Names::start(shared.options.peers_file.clone())?);
    let mut config = shared.config_changed.subscribe();
    while shared.config().is_none() {
        config.changed().await.map_err(io::Error::other)?;
    }
    let mut round = Round::new(shared.clone(), names);
    round.begin();
    let mut state = shared.peers.0.changed.subscribe();
    let mut tick = interval(HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let latest = Instant::now() + GREETING;
    loop {
        let service =
            shared.config().as_ref().and_then(|snapshot| Some(snapshot.replicas.as_ref()?.service.clone()));
        if !*shared.peers.0.greeted.borrow()
            && (service.is_none() || round.is_first || round.is_greeted() || Instant::now() >= latest)
        {
            shared.peers.0.greeted.send_replace(true);
        }
        let greeted = *shared.peers.0.greeted.borrow();
        tokio::select! {
            _ = tick.tick(), if round.dns_waits.is_none() => {
                if let Some(service) = service {
                    round.look_up(service);
                    round.greet();
                }
            }
            () = sleep_until(round.dns_waits.unwrap_or(latest)), if round.dns_waits.is_some() => {
                round.dns_waits = None;
            }
            result = state.changed() => {
                result.map_err(io::Error::other)?;
                round.greet();
            }
            done = round.tasks.join_next(), if !round.tasks.is_empty() => {
                if let Some(Ok(done)) = done {
                    round.done(done);
                }
            }
            () = sleep_until(latest), if !greeted => {}
        }
    }
}

/// What is under way towards the others: one look at DNS at a time, and one conversation with each of them.
struct Round {
    shared: Arc<Shared>,
    names: Arc<Names>,
    entry: Option<Entry>,
    /// Until when DNS is asked nothing.
    dns_waits: Option<Instant>,
    /// Nobody was ready when this replica came.
    is_first: bool,
    tasks: JoinSet<Done>,
    looking: bool,
    /// Why DNS failed last, so that it is logged once.
    failed: Option<String>,
    overlooked: Overlooked,
    entering: bool,
    talking: HashSet<IpAddr>,
    /// Whose ended sessions were fetched, and what this replica knew then: again only if something has changed.
    fetched: HashMap<IpAddr, (Digest, Digest)>,
}

enum Done {
    LookedUp(io::Result<Vec<IpAddr>>),
    Entered(Result<bool, Failure>),
    Talked { to: IpAddr, fetched: Option<(Digest, Digest)> },
}

impl Round {
    fn new(shared: Arc<Shared>, names: Arc<Names>) -> Self {
        Self {
            names,
            entry: shared.options.peers_entry.clone().map(Entry::new),
            dns_waits: None,
            is_first: false,
            shared,
            tasks: JoinSet::new(),
            looking: false,
            failed: None,
            overlooked: Overlooked::default(),
            entering: false,
            talking: HashSet::new(),
            fetched: HashMap::new(),
        }
    }

    /// Asks first of all at the way in, where there is one. DNS lists a pod already whose sidecar restarts.
    fn begin(&mut self) {
        if !self.shared.peers.is_resumed() && self.enter_if_due(true) {
            self.dns_waits = Some(Instant::now() + entry::PATIENCE);
        }
    }

    /// Whether all others were reached, or cannot be, and none of them is still being talked to.
    fn is_greeted(&self) -> bool {
        self.talking.is_empty() && self.shared.peers.0.local.is_greeted()
    }

    fn look_up(&mut self, service: String) {
        if std::mem::replace(&mut self.looking, true) {
            return;
        }
        let names = self.names.clone();
        self.tasks.spawn_local(async move { Done::LookedUp(names.look_up(&service).await) });
    }

    fn greet(&mut self) {
        self.shared.peers.0.local.set_full(self.shared.has_no_room());
        let to_greet = self.shared.peers.0.local.to_greet();
        self.fetched.retain(|address, _| to_greet.contains(address));
        for to in to_greet {
            if self.talking.insert(to) {
                let (peers, known) = (self.shared.peers.clone(), self.fetched.get(&to).copied());
                self.tasks
                    .spawn_local(async move { Done::Talked { to, fetched: talk(&peers, to, known).await } });
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::LookedUp(Ok(addresses)) => {
                self.looking = false;
                self.shared.peers.0.local.note(News::Listed(&addresses));
                // Whoever is new is greeted now, not in a second.
                self.greet_the_new();
                let overlooked = self.shared.peers.0.local.is_overlooked();
                self.enter_if_due(overlooked);
                let is_late = self.overlooked.note(overlooked, Instant::now());
                self.say(is_late.then(|| NOT_LISTED.to_owned()));
            }
            Done::LookedUp(Err(error)) => {
                self.looking = false;
                self.say(Some(error.to_string()));
            }
            Done::Entered(entered) => {
                self.entering = false;
                self.entered(entered);
            }
            Done::Talked { to, fetched } => {
                self.talking.remove(&to);
                if let Some(fetched) = fetched {
                    self.fetched.insert(to, fetched);
                }
            }
        }
    }

    /// Says why DNS is of no use, if it is of none: once, until there is another reason or none.
    fn say(&mut self, failed: Option<String>) {
        if let Some(reason) = &failed
            && self.failed != failed
        {
            tracing::warn!(%reason, "cannot find out which other replicas there are");
        }
        self.failed = failed;
    }

    /// Asks at the way in, if it is time. Says so.
    fn enter_if_due(&mut self, overlooked: bool) -> bool {
        let is_due = self.entry.as_mut().is_some_and(|entry| entry.is_due(overlooked, Instant::now()));
        is_due && self.enter(Duration::ZERO)
    }

    fn enter(&mut self, after: Duration) -> bool {
        let Some(entry) = self.entry.as_ref().filter(|_| !self.entering) else { return false };
        self.entering = true;
        let (shared, names, name) = (self.shared.clone(), self.names.clone(), entry.name().to_owned());
        self.tasks.spawn_local(async move {
            sleep(after).await;
            Done::Entered(entry::enter(&shared, &names, &name).await)
        });
        true
    }

    fn entered(&mut self, entered: Result<bool, Failure>) {
        if let Err(failure) = entered {
            tracing::debug!(%failure, "the Service leads to no other replica yet");
        }
        let Some(until) = self.dns_waits else { return self.greet() };
        self.dns_waits = match entered {
            Err(Failure::Refused) => {
                self.enter(entry::AGAIN);
                let was_first = std::mem::replace(&mut self.is_first, true);
                Some(if was_first { until } else { Instant::now() + entry::MOST })
            }
            // The Service may be newer than what its proxies and the name servers know.
            Err(_) if !self.is_first => {
                self.enter(entry::AGAIN);
                Some(until)
            }
            // It leads somewhere, be it that nothing comes from there.
            Err(_) | Ok(false) => Some(Instant::now() + entry::LISTED),
            Ok(true) => None,
        };
        // Whoever was named there is greeted now.
        self.greet();
    }

    fn greet_the_new(&mut self) {
        if !self.shared.peers.0.local.is_greeted() {
            self.greet();
        }
    }
}

/// A heartbeat, and what the other one knows to be ended and this one does not. Gives what both knew, if it was
/// fetched.
async fn talk(peers: &Peers, to: IpAddr, known: Option<(Digest, Digest)>) -> Option<(Digest, Digest)> {
    let theirs = peers.ask(to, Question::Heartbeat).await.ok()?.from.tombstones;
    let ours = peers.0.local.introduction().tombstones;
    // What is forgotten soon is in neither: whoever comes learns it once.
    if known.is_some() && theirs == ours || known == Some((ours, theirs)) {
        peers.0.local.note(News::Fetched(to));
        return None;
    }
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let Answer::Tombstones(page) = peers.ask(to, Question::Tombstones(after)).await.ok()?.body else {
            return None;
        };
        peers.0.local.bury(&page);
        if page.len() < MAX_TOMBSTONES_A_PAGE {
            break;
        }
        after = page.last().copied();
    }
    peers.0.local.note(News::Fetched(to));
    Some((peers.0.local.introduction().tombstones, theirs))
}

/// Ends the connections of a thread to replicas that have been silent for so long that nothing is to be waited for:
/// whoever waits for an answer there is told so.
pub(crate) async fn cut_the_silent(ways: &Ways) {
    let mut tick = interval(HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        ways.connections.tidy(|address| !ways.peers.0.local.is_lost(address));
    }
}
