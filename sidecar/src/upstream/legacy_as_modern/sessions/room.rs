//! Room for one more process: where no place is free, one of a session goes that nobody uses just now.

use std::pin::pin;

use longshore_sidecar_config::Upstream;

use super::{Entry, Sessions};
use crate::upstream::{Failure, Opener, Transport, call};

impl Sessions {
    /// Opens what may need a process, for which one goes that nobody uses, as long as somebody `wants` it. Is to be told if
    /// `one_goes` already.
    pub(in super::super) async fn open_with_room<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        transport: &Transport,
        upstream: &Upstream,
        opener: &Opener,
        mut one_goes: bool,
        wants: impl Fn() -> bool,
        open: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let opened = {
            let (mut opening, mut begun) = (pin!(open()), false);
            loop {
                let freed = self.freed.notified();
                // It would wait for as long as a place is waited for, beside a process that nobody uses.
                if !one_goes
                    && wants()
                    && let Some(lacking) = transport.lacks_place(upstream, opener, begun)
                {
                    one_goes = self.make_room(&lacking, opener, transport).await;
                }
                begun = true;
                tokio::select! {
                    opened = opening.as_mut() => break opened,
                    () = freed, if !one_goes => {}
                }
            }
        };
        match opened {
            // Nobody's has to go for one that is nobody's either. What goes may take longer to end than is left of the
            // time that a place is waited for.
            Err(failure)
                if wants()
                    && (self.make_room(&failure, opener, transport).await || one_goes && lacks(&failure)) =>
            {
                open().await
            }
            opened => opened,
        }
    }

    /// A process that nobody uses just now has to go for this opener's, if that is what is wrong. Says whether one did.
    async fn make_room(&self, failure: &Failure, opener: &Opener, transport: &Transport) -> bool {
        let Some(idle) = self.in_the_way(failure, opener) else { return false };
        idle.session.close(transport).await;
        true
    }

    /// Takes out a session whose process stands in the way of another one, if that is what is wrong.
    fn in_the_way(&self, failure: &Failure, opener: &Opener) -> Option<Entry> {
        let is_own = matches!(failure, Failure::Call(call::Failure::FullForPrincipal { .. }));
        let may_go = |entry: &Entry| !is_own || Some(&entry.place.principal) == opener.principal();
        lacks(failure).then(|| self.table.lock().idlest(may_go))?
    }
}

/// Whether it is a place that is lacking.
fn lacks(failure: &Failure) -> bool {
    use call::Failure::{Full, FullForPrincipal, Queue};
    matches!(failure, Failure::Call(Full { .. } | FullForPrincipal { .. } | Queue))
}
