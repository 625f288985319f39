//! Whether a server that gives no session ids may be another one by now, which knows nothing of what the one before was told.
//! It is told that again then, before anybody reads what may have changed.

use tokio::time::Instant;

use super::gap::SELDOM;

/// What is known of that since it was told last.
#[derive(Default)]
pub(crate) struct Another {
    was_gone: bool,
    /// It did not take all that it was told last.
    took_not_all: bool,
    told: Option<Instant>,
}

impl Another {
    /// It was not there.
    pub(crate) fn note_gone(&mut self) {
        self.was_gone = true;
    }

    /// It was told, and does not say that it has taken all of it.
    pub(crate) fn note_doubtful(&mut self) {
        *self = Self { was_gone: false, took_not_all: true, told: Some(Instant::now()) };
    }

    /// Whether it was not there, or has not taken all of it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.was_gone || self.took_not_all
    }

    /// Whether it may be another one. One that only does not give its stream now was there, and is told seldom: it may refuse
    /// just because it is asked for so much.
    pub(crate) fn may_be_there(&self) -> bool {
        self.was_gone || self.told.is_none_or(|told| told.elapsed() >= SELDOM)
    }

    /// It is told.
    pub(crate) fn note_told(&mut self) {
        *self = Self { told: Some(Instant::now()), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_there_is_told_seldom() {
        let mut another = Another::default();
        assert!(another.may_be_there() && !another.is_doubtful(), "nobody knows");
        another.note_told();
        assert!(!another.may_be_there());
        another.note_gone();
        assert!(another.may_be_there() && another.is_doubtful());
        another.note_told();
        assert!(!another.may_be_there() && !another.is_doubtful());
        another.note_doubtful();
        assert!(!another.may_be_there() && another.is_doubtful());
        advance(SELDOM).await;
        assert!(another.may_be_there() && another.is_doubtful());
        another.note_told();
        advance(SELDOM).await;
        assert!(another.may_be_there() && !another.is_doubtful());
    }
}
