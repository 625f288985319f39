//! The pieces of a body, put together. Nearly every message comes in one piece, which is not copied.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// What has come so far.
pub(crate) struct Gathered {
    /// How many bytes come at least.
    least: usize,
    /// The first piece, as long as it is the only one.
    first: Bytes,
    /// All of them, when there are more.
    all: BytesMut,
}

/// Why a body is not to be had as a whole.
#[derive(Debug)]
pub(crate) enum NotWhole<E> {
    /// It is more than was to be gathered.
    TooLarge,
    /// The rest will not come.
    Broken(E),
}

impl Gathered {
    /// All of a body, if that is no more than `most` bytes.
    pub(crate) async fn whole<B>(mut body: B, most: usize) -> Result<Bytes, NotWhole<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut gathered = Self::of(&body, most);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(NotWhole::Broken)?.into_data() {
                gathered.push(data);
            }
            if gathered.len() > most {
                return Err(NotWhole::TooLarge);
            }
        }
        Ok(gathered.freeze())
    }

    /// Nothing yet of a body of which no more than `most` bytes are gathered.
    pub(crate) fn of(body: &impl Body, most: usize) -> Self {
        let least = usize::try_from(body.size_hint().lower()).unwrap_or(most).min(most);
        Self { least, first: Bytes::new(), all: BytesMut::new() }
    }

    /// One more piece.
    pub(crate) fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
        } else {
            if self.all.is_empty() {
                // What grows leaves behind what was too small. Memory in which nothing is takes none.
                self.all.reserve(self.least);
            }
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
