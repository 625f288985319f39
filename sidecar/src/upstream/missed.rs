//! What those who listen to a server may have missed. One that gives no session ids may be another one by then, which knows
//! nothing of what the one before was told: it is told that again first, before anybody reads what may have changed.

use tokio::time::Instant;

use super::gap::{Gap, SELDOM};

/// What is known of both.
#[derive(Default)]
pub(crate) struct Missed {
    /// What those who listen have missed since they were told last.
    pub(crate) gap: Gap,
    /// The server was not there since it was told last.
    was_gone: bool,
    /// It did not take all that it was told last.
    took_not_all: bool,
    /// When it was told last.
    told: Option<Instant>,
}

/// What the server was told before those who listen are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    All,
    /// The same, and it may be another one since.
    InDoubt,
    /// Not now, or not all.
    Nothing,
}

impl Missed {
    /// The server was not there, and may be another one when it is.
    pub(crate) fn note_gone(&mut self) {
        self.was_gone = true;
    }

    /// It was told, and does not say that it has taken all of it.
    pub(crate) fn note_doubtful(&mut self) {
        (self.was_gone, self.took_not_all, self.told) = (false, true, Some(Instant::now()));
    }

    /// Whether it was not there, or has not taken all of it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.was_gone || self.took_not_all
    }

    /// Whether the server of a session that it may give a name (`is_named`) may be another one. One that only does not give its
    /// stream now was there, and is told seldom: it may refuse just because it is asked for so much.
    pub(crate) fn may_be_anothers(&self, is_named: bool) -> bool {
        !is_named && (self.was_gone || self.told.is_none_or(|told| told.elapsed() >= SELDOM))
    }

    /// Those who listen are told, and the server was before. Where it has no name for the session (`is_named`) and not all was
    /// said, or not for certain to the one that is there now, both are told later.
    pub(crate) fn note_told(&mut self, told: Told, is_named: bool) {
        if told != Told::Nothing {
            (self.was_gone, self.took_not_all, self.told) = (false, false, Some(Instant::now()));
        }
        self.gap.note_told();
        if told != Told::All && !is_named {
            self.gap.broke_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_there_is_told_seldom() {
        let mut missed = Missed::default();
        assert!(missed.may_be_anothers(false) && !missed.is_doubtful(), "nobody knows");
        missed.note_told(Told::Nothing, false);
        assert!(missed.may_be_anothers(false), "it was not told");
        missed.note_told(Told::All, false);
        assert!(!missed.may_be_anothers(false));
        missed.note_gone();
        assert!(missed.may_be_anothers(false) && missed.is_doubtful());
        assert!(!missed.may_be_anothers(true), "it would not know the session");
        missed.note_told(Told::InDoubt, false);
        assert!(!missed.may_be_anothers(false) && !missed.is_doubtful());
        missed.note_doubtful();
        assert!(!missed.may_be_anothers(false) && missed.is_doubtful());
        advance(SELDOM).await;
        assert!(missed.may_be_anothers(false) && missed.is_doubtful());
        missed.note_told(Told::All, false);
        advance(SELDOM).await;
        assert!(missed.may_be_anothers(false) && !missed.is_doubtful());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_listen_are_told_once_more_where_the_server_may_not_know_it() {
        for (told, is_named, once_more) in [
            (Told::All, false, false),
            (Told::InDoubt, false, true),
            (Told::Nothing, false, true),
            (Told::InDoubt, true, false),
            (Told::Nothing, true, false),
        ] {
            let mut missed = Missed::default();
            missed.gap.broke_off();
            assert!(missed.gap.ends());
            missed.note_told(told, is_named);
            let due = timeout(SELDOM * 2, missed.gap.due()).await;
            assert_eq!(due.is_ok(), once_more, "{told:?} {is_named}");
            assert!(!once_more || missed.may_be_anothers(is_named), "and the server before, by then");
        }
    }
}
