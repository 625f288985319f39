//! An answer that is too large to be held: what is edited in it is edited while it passes.

use std::borrow::Cow;

use bytes::Bytes;
use longshore_mcp::pieces::{IdInPieces, ScopeInPieces};

use crate::exchange::answer::under_clients_id;
use crate::refusal::Refusal;

/// What looks at an answer in pieces, as [`Judge::look`](super::judge::Judge::look) does at whole ones.
pub(super) struct Passing {
    ids: IdInPieces,
    /// If nobody but its client may keep it.
    scope: Option<ScopeInPieces>,
}

impl Passing {
    /// For the answer to the request of this id, as JSON.
    pub(super) fn of(id: &str, is_private: bool) -> Self {
        Self { ids: IdInPieces::new(id, id), scope: is_private.then(ScopeInPieces::default) }
    }

    /// What to pass on for the next one.
    pub(super) fn pass(&mut self, piece: Bytes) -> Result<Bytes, Refusal> {
        let piece = under_clients_id(&mut self.ids, &piece)?.unwrap_or(piece);
        let edited = self.scope.as_mut().and_then(|scope| match scope.push(&piece) {
            Cow::Owned(edited) => Some(edited.into()),
            Cow::Borrowed(_) => None,
        });
        Ok(edited.unwrap_or(piece))
    }

    /// Whether what passed was the answer.
    pub(super) fn was_the_answer(&self) -> bool {
        self.ids.is_replaced()
    }
}
