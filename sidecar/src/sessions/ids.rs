//! The ids that a thread has opened lately. Who calls, calls again, and to open an id takes longer than to know it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use foldhash::fast::RandomState;
use longshore_sessions::Capsule;

use super::{Sessions, is_too_old};
use crate::configuration::Snapshot;

/// How many are known at once, of about a kilobyte each. When there are more, all of them are forgotten.
const MAX: usize = 1024;

/// What was in the ids.
#[derive(Default)]
pub(crate) struct Ids(RefCell<State>);

#[derive(Default)]
struct State {
    /// Under which configuration: another has other keys.
    snapshot: Option<Arc<Snapshot>>,
    /// They are long, and nobody but this server can make any that is kept, so no two are made to collide.
    known: HashMap<Box<str>, Known, RandomState>,
}

struct Known {
    /// Whose it is.
    principal: Arc<str>,
    capsule: Rc<Capsule>,
}

impl Ids {
    /// What is in an id, if it is this principal's and the session has not reached its age.
    pub(super) fn open_current(
        &self,
        sessions: &Sessions,
        snapshot: &Arc<Snapshot>,
        principal: &Arc<str>,
        id: &str,
    ) -> Option<Rc<Capsule>> {
        self.open(sessions, snapshot, principal, id).filter(|capsule| !is_too_old(capsule, snapshot))
    }

    /// The same, however old the session is.
    pub(super) fn open(
        &self,
        sessions: &Sessions,
        snapshot: &Arc<Snapshot>,
        principal: &Arc<str>,
        id: &str,
    ) -> Option<Rc<Capsule>> {
        let mut state = self.0.borrow_mut();
        if !state.snapshot.as_ref().is_some_and(|known| Arc::ptr_eq(known, snapshot)) {
            state.known.clear();
            state.snapshot = Some(snapshot.clone());
        }
        if let Some(known) = state.known.get(id)
            && known.principal == *principal
        {
            return Some(known.capsule.clone());
        }
        let capsule = Rc::new(sessions.open_id(snapshot, principal, id)?);
        if state.known.len() >= MAX {
            state.known.clear();
        }
        state.known.insert(id.into(), Known { principal: principal.clone(), capsule: capsule.clone() });
        Some(capsule)
    }
}
