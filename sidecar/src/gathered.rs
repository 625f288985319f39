//! The pieces of a body, put together. Nearly every message comes in one piece, which is not copied.

use bytes::{Bytes, BytesMut};

/// What has come so far.
#[derive(Default)]
pub(crate) struct Gathered {
    /// The first piece, as long as it is the only one.
    first: Bytes,
    /// All of them, when there are more.
    all: BytesMut,
}

impl Gathered {
    /// One more piece.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
        } else {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
            self.all.extend_from_slice(&piece);
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.all.len()
    }

    /// The whole.
    pub(crate) fn freeze(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}
