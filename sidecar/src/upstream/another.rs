//! Whether a server that gives no session ids may be another one by now, which knows nothing of what the one before was told.
//! It is told that again then, before anybody reads what may have changed.

use tokio::time::Instant;

use super::gap::SELDOM;

/// What is known of that since it was told last.
#[derive(Default)]
pub(crate) struct Another {
    was_gone: bool,
    told: Option<Instant>,
}

impl Another {
    /// It was not there.
    pub(crate) fn note_gone(&mut self) {
        self.was_gone = true;
    }

    /// Whether it was not there.
    pub(crate) fn was_gone(&self) -> bool {
        self.was_gone
    }

    /// Whether it may be another one. One that only does not give its stream now was there, and is told seldom: it may refuse
    /// just because it is asked for so much.
    pub(crate) fn may_be_there(&self) -> bool {
        self.was_gone || self.told.is_none_or(|told| told.elapsed() >= SELDOM)
    }

    /// It is told.
    pub(crate) fn note_told(&mut self) {
        *self = Self { was_gone: false, told: Some(Instant::now()) };
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_there_is_told_seldom() {
        let mut another = Another::default();
        assert!(another.may_be_there() && !another.was_gone(), "nobody knows");
        another.note_told();
        assert!(!another.may_be_there());
        another.note_gone();
        assert!(another.may_be_there() && another.was_gone());
        another.note_told();
        assert!(!another.may_be_there() && !another.was_gone());
        advance(SELDOM).await;
        assert!(another.may_be_there() && !another.was_gone());
    }
}
