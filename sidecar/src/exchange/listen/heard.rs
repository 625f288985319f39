//! The server's stream of what belongs to no call, from one to the next, and what the client that listens has missed between
//! them.

use http::HeaderValue;
use longshore_mcp::revision::Revision;
use tokio::time::{Duration, Instant};

use super::opened::{Given, Opened};
use crate::held::{Coming, Share};
use crate::upstream::missed::{Missed, Told};
use crate::upstream::source::Source;

/// After how long it is asked for again at most where the server ends it time and again without a word.
const LATEST: Duration = Duration::from_secs(10);

/// What the client is to be told of what it may have missed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Due {
    #[default]
    Nothing,
    /// As soon as the server was told what the client has set, or that was in vain.
    Missed,
    /// That was in vain: once more when the server knows it.
    InTheEnd,
}

/// What one client hears.
pub(super) struct Heard {
    pub(super) source: Source,
    /// What the server called the session when it was asked for the stream.
    within: Option<HeaderValue>,
    missed: Missed,
    /// The server gives it.
    is_given: bool,
    /// How often in a row it has said nothing instead.
    mute: u32,
    due: Due,
    /// When it was not given last, or broke off, and cannot be taken up again.
    pub(super) lost: Option<Instant>,
}

impl Heard {
    /// What the server has given first, or not.
    pub(super) fn new(opened: Opened, share: Share, revision: Revision) -> Self {
        let Opened { answer, within, given } = opened;
        let source = Source::new(answer.body, answer.lease, Coming::new(Some(share)));
        let mut heard = Self {
            source: source.asked_for_within(LATEST).speaking(revision),
            within,
            missed: Missed::default(),
            is_given: true,
            mute: 0,
            due: Due::Nothing,
            lost: None,
        };
        heard.note_given(given);
        heard
    }

    /// It has broken off, or ended, or is left in the middle.
    pub(super) fn broke_off(&mut self) {
        self.missed.gap.broke_off();
        if self.source.last().is_none() {
            self.lost = Some(Instant::now());
        }
    }

    /// After which event it is asked for, of those in the session that the server called so.
    pub(super) fn place(&self) -> Option<(&str, Option<HeaderValue>)> {
        self.last().zip(Some(self.within.clone()))
    }

    /// Goes on with what the server answers. Says whether what it is being told meanwhile says nothing any more.
    pub(super) fn go_on(&mut self, opened: Opened) -> bool {
        let Opened { answer, within, given } = opened;
        // Once it is heard: what changes before that is to be read.
        let waited = given == Given::Stream && self.has_missed(within.as_ref()) && self.note_missed();
        // Another one knows nothing of it.
        let is_another = self.note_given(given);
        if self.within != within {
            // Events of the session before are none in this one.
            self.within = within;
            self.source.forget_last();
        }
        self.source.go_on(answer);
        waited || is_another
    }

    /// The client is to be told as soon as the server was told what it has set. Says whether it waits for something else.
    pub(super) fn note_missed(&mut self) -> bool {
        let waited = self.is_due_in_the_end();
        self.due = Due::Missed;
        waited
    }

    /// Whether the client was told, and is told once more when the server knows what it has set.
    pub(super) fn is_due_in_the_end(&self) -> bool {
        self.due == Due::InTheEnd
    }

    /// Whether there is a stream to be told in.
    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Returns when the client is to be told of what it has missed, or of what was put off.
    pub(super) fn due(&self) -> impl Future<Output = ()> + use<> {
        let (is_due, due) = (self.due != Due::Nothing && self.is_given, self.missed.gap.due());
        async move {
            if !is_due {
                due.await;
            }
        }
    }

    /// Since when the server may be another one, and is first told what the client has set.
    pub(super) fn lost_for_another(&self) -> Option<Instant> {
        self.lost.filter(|_| self.missed.may_be_anothers(self.within.is_some()))
    }

    /// The client is told, and before that the server was `told` what it has set. Where that was in vain, and the server is told
    /// that again by itself (`is_unset`), the client is due as soon as it knows it.
    pub(super) fn note_told(&mut self, told: Told, is_unset: bool) {
        // What it has taken counts from the first time on, which was before now, and is not lost because it gives no stream.
        let goes_on = told == Told::Nothing && is_unset;
        self.due = if goes_on { Due::InTheEnd } else { Due::Nothing };
        self.missed.note_told(if goes_on { Told::InDoubt } else { told }, self.within.is_some());
        if told != Told::All && !goes_on && self.within.is_none() {
            self.lost.get_or_insert_with(Instant::now);
        }
    }

    /// Whether something may have been said since the one before this one, which is given in the session that the server calls
    /// so, and the client is to be told now.
    fn has_missed(&mut self, within: Option<&HeaderValue>) -> bool {
        // It goes on after the last event.
        if self.last().is_some() {
            self.missed.gap.note_whole(within.is_some());
        }
        self.missed.gap.ends() || self.within.as_ref() != within
    }

    /// Whether the server gave it when it was asked. Says whether that may be another one than before.
    fn note_given(&mut self, given: Given) -> bool {
        self.is_given = given == Given::Stream;
        if given != Given::Stream {
            self.lost = Some(Instant::now());
            self.missed.gap.was_absent();
        }
        // Another one may come, to which the last event says nothing: some wait for what follows such an event, for ever.
        let is_another = given == Given::NotThere || given == Given::Stream && self.begins_anew();
        if is_another && self.within.is_none() {
            self.source.forget_last();
            self.missed.note_gone();
        }
        self.mute = if given == Given::NotInTime { self.mute + 1 } else { 0 };
        is_another
    }

    /// Whether it is asked for as if nothing were known of it. One that says nothing may only have nothing to say, and go on
    /// after its last event; or it is another one, which waits for what follows that. It is asked in both ways in turn.
    fn begins_anew(&self) -> bool {
        let has_place = self.within.is_none() && self.source.last().is_some();
        has_place && self.mute > 0 && self.mute.is_multiple_of(2)
    }

    fn last(&self) -> Option<&str> {
        self.source.last().filter(|_| !self.begins_anew())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::held::{Bounds, Shares};
    use crate::upstream::gap::SELDOM;

    const SECOND: Duration = Duration::from_secs(1);

    /// One that the server gives in a session without a name.
    fn given() -> Heard {
        let share = Shares::new(Bounds { total: 1, per_principal: 1 }).nothing(&"a".into());
        Heard::new(Opened::nothing(None, Given::Stream), share, Revision::NEWEST_WITH_INITIALIZE)
    }

    /// The one that was told may not be the one that is there now.
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_stream_ends_while_it_is_told_what_its_client_has_set_is_told_once_more() {
        let mut heard = given();
        for ends in [true, false] {
            heard.broke_off();
            assert!(heard.has_missed(None) && heard.lost_for_another().is_some(), "{ends}");
            advance(SECOND).await;
            let begun = Some(Instant::now());
            advance(SECOND).await;
            if ends {
                heard.broke_off();
                let _ = heard.has_missed(None);
            }
            let told = if begun < heard.lost { Told::InDoubt } else { Told::All };
            heard.note_told(told, false);
            let due = timeout(SELDOM * 2, heard.due()).await;
            assert_eq!(due.is_ok(), ends);
        }
    }

    /// It was taken over, say, and no stream of it ever broke.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_told_in_vain_is_told_once_more_and_that_is_all() {
        let mut heard = given();
        assert!(!heard.note_missed());
        heard.note_told(Told::Nothing, true);
        assert!(timeout(SECOND, heard.due()).await.is_ok() && heard.is_due_in_the_end());
        assert!(heard.note_missed() && !heard.is_due_in_the_end());
        heard.note_told(Told::Nothing, false);
        assert!(timeout(SECOND, heard.due()).await.is_err());
        heard.due().await;
        assert!(heard.lost_for_another().is_some());
        heard.note_told(Told::All, false);
        assert!(timeout(SELDOM * 2, heard.due()).await.is_err());
    }

    /// All that it has taken counts from its first turn on, which was before the client was told that that was in vain.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_taken_all_in_the_end_is_told_no_more() {
        let mut heard = given();
        assert!(!heard.note_missed());
        let first_turn = Some(Instant::now());
        advance(SECOND).await;
        heard.note_told(Told::Nothing, true);
        assert!(heard.is_due_in_the_end());
        advance(SECOND).await;
        let told = if first_turn < heard.lost { Told::InDoubt } else { Told::All };
        heard.note_told(told, false);
        assert!(timeout(SELDOM * 2, heard.due()).await.is_err(), "{told:?}");
    }

    /// It was there, and is told the rest by itself: it may refuse its stream because it is asked for so much.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_its_stream_while_it_is_told_the_rest_is_not_told_all_anew() {
        let mut heard = given();
        let again = |heard: &mut Heard, given| {
            heard.broke_off();
            for given in [given, Given::Stream] {
                let _ = heard.go_on(Opened::nothing(None, given));
            }
            heard.lost_for_another().is_some()
        };
        assert!(again(&mut heard, Given::NotThere), "it may be another one");
        heard.note_told(Told::Nothing, true);
        advance(SECOND).await;
        assert!(!again(&mut heard, Given::NotNow), "what it has taken it has");
        assert!(again(&mut heard, Given::NotThere), "it was gone once more");
    }
}
