//! What was given to connections of which nobody knows whether their clients have received it.

use super::Stream;

impl Stream {
    /// Somebody reads on who says of no event that they have seen it. If there were some, those may have been lost with the
    /// connection that they were given to. Who never says of any is told so now and then only; `is_told` says that they are
    /// in any case.
    pub(in super::super) fn joined_anew(&self, is_told: bool) {
        let mut state = self.state.lock();
        if is_told {
            state.unheard.note_told();
        } else if !self.terms.polls && !state.once && state.cursor > 1 {
            // From 2025-11-25 on a client has an id before there is anything to be lost.
            state.unheard.broke_off();
        }
        drop(state);
        self.joined.notify_one();
    }

    /// Returns when whoever reads is to be told so, which is then taken for done.
    pub(in super::super) async fn is_unheard(&self) {
        loop {
            let joined = self.joined.notified();
            let due = {
                let mut state = self.state.lock();
                if state.unheard.ends_at_once() {
                    return;
                }
                state.unheard.due()
            };
            tokio::select! {
                () = due => {}
                () = joined => {}
            }
        }
    }
}
