//! Places of connections. Nobody keeps others out: where all are taken, a connection on which nothing is under way makes
//! room for the next. First one that has brought no request yet that was served, whoever it is; then the one that has rested
//! for the longest time. And of one caller no more than a part do not rest.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::task::{AbortHandle, Id};
use tokio::time::{Duration, Instant};

use super::callers::{Caller, Callers};
use super::pace::Pace;
use super::watched::Watch;

/// For how long nothing has to have come, or gone, on one that makes room: its request may be on its way.
const GRACE: Duration = Duration::from_millis(250);

/// The place of a connection.
pub(crate) struct Place {
    /// Whether a request of it is under way.
    busy: Cell<bool>,
    /// Whether some of an answer is still to be taken.
    unsent: Cell<bool>,
    /// Whether that may be an answer to a request that was served.
    owed: Cell<bool>,
    /// When something came last, or was sent. Of a stranger's: when it was taken.
    since: Cell<Instant>,
    /// Whether a request that came on it was served: strangers are refused.
    served: Cell<bool>,
    /// It is counted here.
    pace: Arc<Pace>,
    /// Who has called on it last, if anybody is told from others, and whether it counts among the connections of theirs that
    /// are busy.
    caller: RefCell<Option<Arc<Caller>>>,
    counts: Cell<bool>,
    callers: Arc<Callers>,
}

/// Whoever has it has a request of that connection under way.
pub(super) struct Busy(Rc<Place>);

/// The places of one thread that are taken.
#[derive(Default)]
pub(super) struct Places(HashMap<Id, (AbortHandle, Rc<Place>)>);

// === impl Place ===

impl Place {
    pub(super) fn new(pace: Arc<Pace>, callers: Arc<Callers>) -> Rc<Self> {
        pace.begins();
        let (busy, unsent, owed, served, caller, counts) = Default::default();
        let since = Cell::new(Instant::now());
        Rc::new(Self { busy, unsent, owed, since, served, pace, caller, counts, callers })
    }

    /// A request has come.
    pub(super) fn begin(self: &Rc<Self>) -> Busy {
        self.busy.set(true);
        if !self.unsent.get() {
            self.owed.set(false);
        }
        Busy(self.clone())
    }

    /// It is this caller's.
    pub(crate) fn is_called_on_by(&self, principal: &Arc<str>) {
        if !self.caller.borrow().as_ref().is_some_and(|caller| caller.is(principal)) {
            let before = self.caller.replace(Some(self.callers.of(principal)));
            if let Some(before) = before.filter(|_| self.counts.take()) {
                before.ends();
            }
        }
        self.settle();
    }

    /// How many connections of its caller may be busy, if more are: with one that `makes_room`, or any other.
    pub(crate) fn exceeds(&self, makes_room: bool) -> Option<usize> {
        self.caller.borrow().as_ref().filter(|_| self.counts.get())?.exceeds(makes_room)
    }

    /// Counts it among those of its caller that are busy, if that is so by now, or no more.
    fn settle(&self) {
        let counts = self.rests().is_none();
        if let Some(caller) = &*self.caller.borrow()
            && self.counts.replace(counts) != counts
        {
            if counts { caller.begins() } else { caller.ends() }
        }
    }

    /// Since when nothing is under way, if nothing is. Strangers could keep a place for as long as they like with a byte now
    /// and then, or anybody by not reading that they are refused.
    fn rests(&self) -> Option<Instant> {
        let is_owed = self.unsent.get() && self.owed.get();
        (!self.busy.get() && !is_owed).then(|| self.since.get())
    }

    /// Something has come, or was sent.
    fn moves(&self) {
        if self.served.get() {
            self.since.set(Instant::now());
        }
    }
}

impl Watch for Place {
    fn at_once(&self) -> usize {
        self.pace.at_once()
    }

    fn comes(&self, _: usize) {
        if !self.busy.get() {
            self.moves();
        }
    }

    fn goes(&self) {
        if !self.unsent.replace(true) {
            self.settle();
        }
    }

    fn is_out(&self) {
        if self.unsent.take() {
            self.moves();
            self.settle();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pace.ends();
        self.unsent.set(false);
        self.settle();
    }
}

// === impl Busy ===

impl Busy {
    /// Its answer, with which it goes on until all of the body is handed on, or given up.
    pub(super) fn until_sent<B: Body>(
        self,
        response: Response<B>,
    ) -> Response<impl Body<Data = B::Data, Error = B::Error>> {
        // What anybody is answered does not count, such as a preflight.
        if matches!(response.status(), StatusCode::OK | StatusCode::ACCEPTED) {
            self.0.served.set(true);
            self.0.owed.set(true);
        }
        response.map(|body| {
            body.map_err(move |error| {
                // The body has it until it is dropped.
                let _until_sent = &self;
                error
            })
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.settle();
    }
}

// === impl Places ===

impl Places {
    pub(super) fn take(&mut self, task: AbortHandle, place: Rc<Place>) {
        self.0.insert(task.id(), (task, place));
    }

    /// That of a connection which has ended.
    pub(super) fn free(&mut self, task: Id) {
        self.0.remove(&task);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one could make room.
    pub(super) fn has_rest(&self) -> bool {
        self.longest().is_some()
    }

    /// Closes the connection that is to make room. Says whether there is one.
    pub(super) fn make_room(&mut self) -> bool {
        let Some((task, _)) = self.longest().and_then(|longest| self.0.remove(&longest)) else {
            return false;
        };
        task.abort();
        true
    }

    /// The one that is next to make room, once it may: nobody makes room because those who come before are so new.
    fn longest(&self) -> Option<Id> {
        let rests = |(id, (_, place)): (&Id, &(AbortHandle, Rc<Place>))| {
            Some((place.served.get(), place.rests()?, *id))
        };
        let next = self.0.iter().filter_map(rests).min_by_key(|(served, since, _)| (*served, *since));
        next.filter(|(_, since, _)| since.elapsed() >= GRACE).map(|(_, _, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use bytes::Bytes;
    use prometheus::IntGauge;
    use tokio::io::AsyncWriteExt;
    use tokio::task::{JoinSet, LocalSet};
    use tokio::time::advance;

    use super::*;
    use crate::worker::watched::Watched;

    fn answer(busy: Busy, status: StatusCode) {
        let mut response = Response::new(http_body_util::Empty::<Bytes>::new());
        *response.status_mut() = status;
        drop(busy.until_sent(response));
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_make_room_before_others_and_nobody_does_who_waits() {
        let count = IntGauge::new("connections", "of a test").unwrap();
        let callers = Callers::new(8);
        let (mut places, mut tasks) = (Places::default(), JoinSet::new());
        let local = LocalSet::new();
        let _entered = local.enter();
        let mut connect = async |status: Option<StatusCode>| {
            advance(Duration::from_secs(1)).await;
            let place = Place::new(Pace::of(count.clone(), 8), callers.clone());
            if let Some(status) = status {
                answer(place.begin(), status);
            }
            let task = tasks.spawn_local(pending::<()>());
            let id = task.id();
            places.take(task, place.clone());
            (id, place)
        };
        let known = connect(Some(StatusCode::OK)).await;
        let known_later = connect(Some(StatusCode::ACCEPTED)).await;
        let refused = connect(Some(StatusCode::UNAUTHORIZED)).await;
        let asks = connect(Some(StatusCode::OK)).await;
        let busy = asks.1.begin();
        let silent = connect(None).await;
        let preflight = connect(Some(StatusCode::NO_CONTENT)).await;
        assert_eq!(count.get(), 6);
        advance(GRACE).await;
        for next in [&refused, &silent, &preflight, &known, &known_later] {
            assert_eq!(places.longest(), Some(next.0));
            assert!(places.make_room());
        }
        assert!(!places.has_rest(), "it waits for its answer");
        // Its answer is being taken, and then the next request may be on its way.
        let mut stream = Watched::new(tokio::io::empty(), asks.1.clone());
        assert_eq!(stream.write(b"answer").await.unwrap(), 6);
        answer(busy, StatusCode::OK);
        assert!(!places.has_rest());
        stream.flush().await.unwrap();
        assert!(!places.has_rest());
        advance(GRACE).await;
        assert_eq!(places.longest(), Some(asks.0));
        places.free(asks.0);
        assert!(!places.has_rest());
        drop((known, known_later, refused, asks, silent, preflight, stream));
        assert_eq!(count.get(), 0);
    }

    #[tokio::test]
    async fn connections_count_while_they_do_not_rest() {
        let count = IntGauge::new("connections", "of a test").unwrap();
        let (callers, who) = (Callers::new(1), "a".into());
        // Another one of theirs, so that it is one too many whenever this one counts.
        let other = Place::new(Pace::of(count.clone(), 8), callers.clone());
        let _under_way = other.begin();
        other.is_called_on_by(&who);
        let place = Place::new(Pace::of(count, 8), callers);
        let mut stream = Watched::new(tokio::io::empty(), place.clone());
        let counts = || other.exceeds(false).is_some();
        let busy = place.begin();
        assert!(!counts(), "nobody knows yet whose it is");
        place.is_called_on_by(&who);
        assert!(counts() && place.exceeds(false) == Some(1));
        answer(busy, StatusCode::OK);
        stream.write_all(b"an answer").await.unwrap();
        assert!(counts() && place.rests().is_none(), "it is not taken");
        stream.flush().await.unwrap();
        assert!(!counts() && place.rests().is_some());
        // That it is refused need not be taken, whatever was served before.
        let busy = place.begin();
        place.is_called_on_by(&who);
        answer(busy, StatusCode::TOO_MANY_REQUESTS);
        stream.write_all(b"a refusal").await.unwrap();
        assert!(!counts() && place.rests().is_some());
        // Unless something before it is still to be taken.
        stream.flush().await.unwrap();
        answer(place.begin(), StatusCode::OK);
        stream.write_all(b"an answer").await.unwrap();
        answer(place.begin(), StatusCode::UNAUTHORIZED);
        assert!(counts() && place.rests().is_none());
        place.is_called_on_by(&"b".into());
        assert!(!counts(), "it is somebody else's");
        place.is_called_on_by(&who);
        assert!(counts());
        drop((stream, place));
        assert!(!counts());
    }
}
