//! What heads of requests hold that are not whole yet. Nothing is known then of whoever sends them, so it is bounded for
//! all of them together: each connection may have a head as large as anybody needs, and not all of them at once.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;

use super::pace::PIECE;
use super::watched::Watch;
use crate::request_copy;

/// What is not counted of one head, in bytes: every connection has buffers of about that size anyway.
const FREE: usize = 4 * 1024;

/// Bounds on the heads of requests at one connection.
pub(crate) struct Heads<'a> {
    /// How long one may take, and a connection may be idle.
    pub(crate) wait: Duration,
    /// How large one may be, in bytes.
    pub(crate) size: usize,
    /// How long another one is waited for when connections end.
    pub(crate) last: Duration,
    /// What they all hold.
    pub(crate) unfinished: &'a Unfinished,
}

/// What the unfinished heads of a process hold beyond what is not counted.
#[derive(Debug)]
pub(crate) struct Unfinished {
    held: AtomicUsize,
    /// How much that may be, in bytes. One more piece may be read at each of a few threads.
    most: usize,
}

/// The head that is being read at one connection.
pub(super) struct Head<'a> {
    all: &'a Unfinished,
    /// How much of it there is. `None`: something else is read.
    read: Cell<Option<usize>>,
}

// === impl Unfinished ===

impl Unfinished {
    /// None yet, which may hold so much.
    pub(crate) fn new(most: usize) -> Self {
        Self { held: AtomicUsize::new(0), most }
    }

    fn is_full(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.most
    }
}

// === impl Head ===

impl<'a> Head<'a> {
    pub(super) fn of(all: &'a Unfinished) -> Self {
        Self { all, read: Cell::new(Some(0)) }
    }

    /// It is whole, and so large that its connection would hold as much of it while nothing is under way there, if that is
    /// returned: it had better end.
    pub(super) fn ended<B>(&self, request: &Request<B>) -> bool {
        let read = self.give_back();
        // What was read may be the beginning of a body too.
        let uri = request.uri().path_and_query().map_or(0, |uri| uri.as_str().len());
        read > PIECE && uri + request_copy::size(request.headers()) > PIECE
    }

    /// Counts it no longer. Returns how much of it was read.
    fn give_back(&self) -> usize {
        let read = self.read.take();
        self.all.held.fetch_sub(counted(read), Ordering::Relaxed);
        read.unwrap_or(0)
    }

    /// Whatever is read from now on may be the next one.
    pub(super) fn begins(&self) {
        self.give_back();
        self.read.set(Some(0));
    }
}

/// What is read counts as long as it may be a head.
impl Watch for Head<'_> {
    /// Where the others hold too much it is no more than a small head needs: how much of what comes is the head only hyper
    /// finds out, and the rest is read when it is.
    fn room(&self) -> usize {
        match self.read.get() {
            Some(read) if self.all.is_full() => FREE.saturating_sub(read),
            _ => usize::MAX,
        }
    }

    fn comes(&self, bytes: usize) {
        let Some(read) = self.read.get() else { return };
        let more = counted(Some(read + bytes)) - counted(Some(read));
        self.read.set(Some(read + bytes));
        self.all.held.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn counted(read: Option<usize>) -> usize {
    read.unwrap_or(0).saturating_sub(FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_together_hold_no_more_than_there_is_room_for() {
        const MOST: usize = 16 * 1024 * 1024;
        let all = Unfinished::new(MOST);
        let heads: Vec<Head<'_>> = (0..MOST / (64 * 1024)).map(|_| Head::of(&all)).collect();
        for head in &heads {
            assert_eq!(head.room(), usize::MAX);
            head.comes(FREE);
            head.comes(64 * 1024);
        }
        let one_more = Head::of(&all);
        assert_eq!(one_more.room(), FREE, "small heads always have room");
        one_more.comes(FREE);
        assert_eq!((one_more.room(), heads[0].room()), (0, 0));
        // What follows a whole head does not count, and the next head does.
        heads[0].ended(&Request::new(()));
        heads[0].comes(1 << 20);
        assert_eq!((heads[0].room(), one_more.room()), (usize::MAX, usize::MAX));
        heads[0].begins();
        heads[0].comes(FREE + 64 * 1024);
        assert_eq!(one_more.room(), 0);
        drop((one_more, heads));
        assert_eq!(all.held.into_inner(), 0);
    }
}
