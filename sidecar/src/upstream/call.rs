//! The two ends of a call: who waits for it, and the conversation that answers it, where many calls share one way to
//! the server: the pipes of a process, or a stream of events.
//!
//! Between them is one box. Most calls are answered and nothing else, so a call costs one allocation and no channel.

mod events;
mod failure;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use longshore_mcp::envelope::Outcome;
use longshore_mcp::error::code_of;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, timeout};

use super::channel::Control;
use super::waiting::MAX_WAITING;
use crate::held::Came;
pub(crate) use events::Events;
pub(crate) use failure::Failure;

/// How many messages wait for whoever reads a call's events, before the process has to wait too. And so many bytes as wait
/// elsewhere.
const MAX_ASIDES: usize = 64;
/// For how long a reader may be waited for where others wait too, for each message that it has taken and for each byte
/// of it: about four mebibytes in a second. Who reads at that pace loses nothing, and holds up nobody for long.
const EARNED: Duration = Duration::from_micros(50);
const EARNED_A_BYTE: Duration = Duration::from_nanos(250);
/// And the most that it can have at once.
const MAX_CREDIT: Duration = Duration::from_millis(5);
/// What it can have of that at first. What the kernel takes is not read yet: who makes room in this time gets twice as much
/// the next time, and who does not begins anew.
const FIRST_CREDIT: Duration = Duration::from_millis(1);
/// Who has taken nothing for so long, and has missed so many bytes meanwhile, does not read: of a flood that others wait
/// behind it is known sooner.
const DEAF: [(Duration, usize); 2] =
    [(Duration::from_secs(1), 256 * 1024), (Duration::from_millis(500), 1024 * 1024)];
/// How long a response is held back for the case that the answer is the first thing to come.
const SILENCE: Duration = Duration::from_secs(5);

/// How a call ends: with the answer, or, for messages that have none, when it is written.
type Ending = Result<Option<Bytes>, Failure>;

/// What is known of an answer that was read where it came: it is the call's, and under the id that its client knows.
#[derive(Clone, Copy)]
pub(crate) struct Matched {
    /// The code, if it is an error.
    pub(crate) code: Option<i64>,
}

impl Matched {
    pub(super) fn of(outcome: &Outcome<'_>) -> Self {
        let code = match outcome {
            Outcome::Error(error) => code_of(error.get()),
            Outcome::Result(_) => None,
        };
        Self { code }
    }
}

/// What is between the two ends.
#[derive(Default)]
struct Desk(Mutex<State>);

#[derive(Default)]
struct State {
    asides: VecDeque<Bytes>,
    /// How large those are.
    bytes: usize,
    /// The response is to begin though there is nothing in it.
    begun: bool,
    ending: Option<Ending>,
    /// What is known of the answer.
    matched: Option<Matched>,
    /// What counts the answer, if it is large.
    came: Option<Came>,
    /// The conversation has let go of it.
    left: bool,
    /// Nobody waits any more.
    gone: bool,
    /// How long it may be waited for, because it reads.
    credit: Duration,
    /// The most that it gets of that at once, if more than at first.
    trust: Duration,
    /// Since when it has taken nothing though there was more for it, and how much of that it has missed.
    missed: Option<(Instant, usize)>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl State {
    fn has_room(&self) -> bool {
        self.asides.is_empty() || self.asides.len() < MAX_ASIDES && self.bytes < MAX_WAITING
    }

    /// Whoever takes messages at a good pace is worth waiting for.
    fn earn(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.credit = (self.credit + EARNED + EARNED_A_BYTE * bytes).min(MAX_CREDIT);
        self.missed = None;
    }

    /// The most that it gets at once of what it has earned.
    fn trust(&self) -> Duration {
        self.trust.max(FIRST_CREDIT)
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}

/// The conversation's end.
pub(super) struct Caller {
    pub(super) number: u64,
    /// Since when somebody waits.
    pub(super) since: Instant,
    desk: Arc<Desk>,
}

/// The end of whoever waits. Dropped before the call has ended, it tells the conversation so.
pub(crate) struct Waiting {
    number: u64,
    desk: Arc<Desk>,
    control: mpsc::UnboundedSender<Control>,
}

/// What became of a message for somebody who waits for something else.
pub(super) enum Offer {
    /// It will be read.
    Taken,
    /// There is no room for it now.
    Full,
    /// Nobody reads.
    Gone,
}

/// Where there is no room, and will be.
pub(super) struct Reader {
    /// The caller's.
    pub(super) number: u64,
    desk: Arc<Desk>,
}

/// Whether a response has to begin after a while, though there is nothing in it yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It has: proxies give up on those that are silent, and a stream can be kept alive.
    Short,
    /// It has not.
    Endless,
}

/// What comes first.
pub(super) enum First {
    /// The answer, what is known of it, and what counts it.
    Answer(Bytes, Option<Matched>, Option<Came>),
    /// There is none; the message is written.
    Written,
    /// Something else.
    Aside(Bytes),
    /// Nothing, for a while.
    Silence,
}

/// What comes next.
enum Next {
    Aside(Bytes),
    Begin,
    End(Ending, Option<Matched>, Option<Came>),
}

/// Both ends of a new call.
pub(super) fn pair(control: mpsc::UnboundedSender<Control>) -> (Caller, Waiting) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let desk = Arc::<Desk>::default();
    (Caller { number, since: Instant::now(), desk: desk.clone() }, Waiting { number, desk, control })
}

impl Caller {
    /// Ends the call.
    pub(super) fn end(self, ending: Ending) {
        self.desk.0.lock().ending = Some(ending);
        // Whoever waits is woken when this is dropped.
    }

    /// The same with the server's answer, and what counts it.
    pub(super) fn answer(self, answer: Bytes, matched: Matched, came: Option<Came>) {
        let mut state = self.desk.0.lock();
        (state.ending, state.matched, state.came) = (Some(Ok(Some(answer))), Some(matched), came);
    }

    /// Begins the response though there is nothing in it yet. A client that has cancelled a call may go away at any
    /// moment, and some of them cope with the end of a stream then and not with a late response.
    pub(super) fn begin(&self) {
        let mut state = self.desk.0.lock();
        state.begun = true;
        state.wake_reader();
    }

    /// Whether nobody waits any more.
    pub(super) fn is_gone(&self) -> bool {
        self.desk.0.lock().gone
    }

    /// Whoever reads what comes before the answer.
    pub(super) fn reader(&self) -> Reader {
        Reader { number: self.number, desk: self.desk.clone() }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut state = self.desk.0.lock();
        state.left = true;
        state.wake_reader();
    }
}

impl Reader {
    /// Offers it a message.
    pub(super) fn offer(&self, message: &Bytes) -> Offer {
        let mut state = self.desk.0.lock();
        if state.gone {
            return Offer::Gone;
        }
        if !state.has_room() {
            return Offer::Full;
        }
        state.bytes += message.len();
        state.asides.push_back(message.clone());
        state.wake_reader();
        Offer::Taken
    }

    /// Waits until there is room, or nobody who needs any.
    pub(super) async fn room(&self) {
        poll_fn(|cx| {
            let mut state = self.desk.0.lock();
            if state.gone || state.has_room() {
                return Poll::Ready(());
            }
            state.writer = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// How long it may be waited for, because it reads.
    pub(super) fn credit(&self) -> Duration {
        let state = self.desk.0.lock();
        state.credit.min(state.trust())
    }

    /// It was waited for, and has made room or has not. Gives the part of the time that it had not earned.
    pub(super) fn spend(&self, waited: Duration) -> Duration {
        let mut state = self.desk.0.lock();
        let earned = waited.min(state.credit);
        state.credit -= earned;
        state.trust = if state.has_room() { (2 * state.trust()).min(MAX_CREDIT) } else { FIRST_CREDIT };
        waited - earned
    }

    /// A message of this size was for it, and it had no room. Says whether it does not read at all.
    pub(super) fn missed(&self, bytes: usize, now: Instant) -> bool {
        let mut state = self.desk.0.lock();
        let (since, missed) = state.missed.get_or_insert((now, 0));
        *missed = missed.saturating_add(bytes);
        let passed = now.saturating_duration_since(*since);
        DEAF.iter().any(|(time, bytes)| passed >= *time && *missed >= *bytes)
    }
}

impl Waiting {
    pub(super) async fn first(&mut self, patience: Patience) -> Result<First, Failure> {
        let mut next = pin!(poll_fn(|cx| self.desk.poll_next(cx)));
        let next = match patience {
            Patience::Endless => next.await,
            Patience::Short => match timeout(SILENCE, next.as_mut()).await {
                Ok(next) => next,
                Err(_) => Next::Begin,
            },
        };
        match next {
            Next::Begin => Ok(First::Silence),
            Next::Aside(message) => Ok(First::Aside(message)),
            Next::End(ending, matched, came) => {
                Ok(ending?.map_or(First::Written, |answer| First::Answer(answer, matched, came)))
            }
        }
    }
}

impl Desk {
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut state = self.0.lock();
        if let Some(message) = state.asides.pop_front() {
            state.bytes -= message.len();
            state.earn(message.len());
            if state.has_room() {
                state.wake_writer();
            }
            return Poll::Ready(Next::Aside(message));
        }
        if let Some(ending) = state.ending.take() {
            return Poll::Ready(Next::End(ending, state.matched, state.came.take()));
        }
        if state.left {
            return Poll::Ready(Next::End(Err(Failure::Forgotten), None, None));
        }
        if std::mem::take(&mut state.begun) {
            return Poll::Ready(Next::Begin);
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            state.reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let left = {
            let mut state = self.desk.0.lock();
            // First, so that a message that is being taken at this moment is known to be nobody's.
            state.gone = true;
            state.asides.clear();
            state.wake_writer();
            state.left
        };
        // A conversation that has let go of it, or has ended, has forgotten it anyway.
        if !left {
            let _ = self.control.send(Control::Gone(self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn next(waiting: &Waiting) -> String {
        match waiting.desk.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => "pending".to_owned(),
            Poll::Ready(Next::Begin) => "begin".to_owned(),
            Poll::Ready(Next::Aside(message)) => format!("aside of {}", message.len()),
            Poll::Ready(Next::End(ending, ..)) => format!("end {}", ending.is_ok()),
        }
    }

    #[test]
    fn all_that_came_is_read_before_the_end() {
        let (control, mut told) = mpsc::unbounded_channel();
        let (caller, waiting) = pair(control.clone());
        assert_eq!(next(&waiting), "pending");
        caller.begin();
        assert!(matches!(caller.reader().offer(&Bytes::from_static(b"ab")), Offer::Taken));
        caller.end(Ok(None));
        let seen: Vec<_> = (0..2).map(|_| next(&waiting)).collect();
        assert_eq!(seen, ["aside of 2", "end true"]);
        drop(waiting);
        assert!(told.try_recv().is_err(), "nobody has to be told of a call that has ended");

        let (caller, waiting) = pair(control.clone());
        drop(waiting);
        assert!(
            caller.is_gone()
                && matches!(told.try_recv(), Ok(Control::Gone(number)) if number == caller.number)
        );
        let (caller, waiting) = pair(control);
        drop(caller);
        assert_eq!(next(&waiting), "end false");
    }

    #[test]
    fn who_reads_earns_the_time_that_it_is_waited_for() {
        let (control, _told) = mpsc::unbounded_channel();
        let (caller, waiting) = pair(control);
        let reader = caller.reader();
        let message = Bytes::from(vec![b'x'; 1000]);
        reader.offer(&message);
        assert_eq!(reader.credit(), Duration::ZERO, "it has not read yet");
        next(&waiting);
        let each = EARNED + EARNED_A_BYTE * 1000;
        assert_eq!(reader.credit(), each);
        assert_eq!(reader.spend(each / 2), Duration::ZERO);
        assert_eq!(reader.spend(each), each / 2, "the rest is at the cost of the others");
        for _ in 0..1000 {
            reader.offer(&message);
            next(&waiting);
        }
        assert_eq!(reader.credit(), 4 * FIRST_CREDIT, "it has made room twice");
        reader.spend(Duration::ZERO);
        assert_eq!(reader.credit(), MAX_CREDIT);
        while matches!(reader.offer(&message), Offer::Taken) {}
        reader.spend(Duration::ZERO);
        assert_eq!(reader.credit(), FIRST_CREDIT, "it has not made room");
    }

    #[test]
    fn what_waits_is_bounded() {
        let (control, _told) = mpsc::unbounded_channel();
        for (size, most) in [(1, MAX_ASIDES), (MAX_WAITING / 4, 4), (MAX_WAITING, 1), (4 * MAX_WAITING, 1)] {
            let (caller, waiting) = pair(control.clone());
            let message = Bytes::from(vec![b'x'; size]);
            let taken =
                (0..=most).take_while(|_| matches!(caller.reader().offer(&message), Offer::Taken)).count();
            assert_eq!(taken, most, "{size}");
            next(&waiting);
            assert!(matches!(caller.reader().offer(&message), Offer::Taken), "{size}: there is room again");
        }
    }
}
