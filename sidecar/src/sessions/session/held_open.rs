//! What holds a session open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_mcp::envelope::Id;

use super::Session;
use crate::sessions::Sessions;
use crate::sessions::aliases::Alias;
use crate::sessions::cancelled::Cancellation;
use crate::sessions::questions::{Questions, Telling};

/// Holds a session open while a request of it is under way, or a stream is kept.
pub(crate) struct Use {
    what: What,
    pub(in super::super) session: Arc<Session>,
    pub(in super::super) sessions: Arc<Sessions>,
}

/// What a session is held open for.
#[derive(Clone, Copy)]
enum What {
    Request,
    Stream,
    /// What is kept of a stream, which by itself is no use of the session.
    Kept,
}

impl Session {
    fn uses(&self, what: What) -> &AtomicUsize {
        match what {
            What::Request => &self.busy,
            What::Stream | What::Kept => &self.kept,
        }
    }
}

impl Use {
    /// To be made while the replica is locked, so that nobody gives the session up in between.
    pub(in super::super) fn new(session: Arc<Session>, sessions: Arc<Sessions>) -> Self {
        Self::of(What::Request, session, sessions)
    }

    /// Another one for a request.
    pub(in super::super) fn for_request(&self) -> Self {
        Self::new(self.session.clone(), self.sessions.clone())
    }

    /// Another one for a stream, which may outlast the request.
    pub(crate) fn for_stream(&self) -> Self {
        Self::of(What::Stream, self.session.clone(), self.sessions.clone())
    }

    /// Another one for what is kept of a stream that its client has left, for as long as it may be resumed. That counts as use
    /// of the session only where its holder says so ([`Self::is_used`]).
    pub(crate) fn for_kept(&self) -> Self {
        Self::of(What::Kept, self.session.clone(), self.sessions.clone())
    }

    /// It is used until now.
    pub(crate) fn is_used(&self) {
        self.session.used.store(self.sessions.now().0, Ordering::Relaxed);
    }

    /// Takes an answer of the client's to a question that is open: nobody else answers it meanwhile.
    pub(crate) fn take_answer(&self, id: &Id<'_>) -> Option<Telling> {
        Questions::answered(&self.session, id).map(Telling::Answers)
    }

    /// The call with this id, which its client may cancel.
    pub(crate) fn cancellation(&self, id: &Id<'_>) -> Cancellation {
        Cancellation::of(self.session.clone(), id)
    }

    /// Another id at the server for the request that its client calls so, also for the token of its progress, if it is
    /// named here. `None`: there are no random numbers.
    pub(crate) fn alias(&self, id: &Id<'_>, token: Option<&str>) -> Option<Alias> {
        Alias::new(self.session.clone(), id, token)
    }

    fn of(what: What, session: Arc<Session>, sessions: Arc<Sessions>) -> Self {
        session.uses(what).fetch_add(1, Ordering::Relaxed);
        Self { what, session, sessions }
    }
}

impl std::ops::Deref for Use {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !matches!(self.what, What::Kept) {
            self.is_used();
        }
        if let What::Request = self.what {
            self.session.spoke.store(self.session.used.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if self.session.uses(self.what).fetch_sub(1, Ordering::Relaxed) == 1 {
            self.sessions.freed();
        }
    }
}
