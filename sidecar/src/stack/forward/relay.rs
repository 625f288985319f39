//! An answer on its way from another replica.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::revision::Revision;
use longshore_mcp::{listen, sse};

use super::{Ends, Over};
use crate::audit::Entry;
use crate::calls::CallGuard;
use crate::metrics::Forward;
use crate::peers::Lease;
use crate::refusal::{self, Kind, Refusal};
use crate::sessions::Place;
use crate::stack::Trail;
use crate::streamed_body::{BrokenOff, UnderWay};
use crate::streams;
use crate::worker::Worker;

/// An answer on its way from another replica to the client. Dropped early, it closes the connection, so that the
/// other replica sees that its client has gone.
pub(crate) struct Relay {
    pub(super) worker: Rc<Worker>,
    pub(super) from: Incoming,
    /// None once the answer is over.
    pub(super) lease: Option<Lease>,
    /// Whether it is a stream of events, in which an error can still be told.
    pub(super) events: bool,
    /// The last byte of it so far.
    pub(super) last: u8,
    /// The request, for the case that there has to be an error.
    pub(super) request: Bytes,
    /// The audit line, for the same case.
    pub(super) line: Elsewhere,
    /// It is only listened to, by a GET.
    pub(super) is_get: bool,
    /// Its client can come back to it.
    pub(super) in_session: bool,
    /// Its client comes back only where it breaks off.
    pub(super) breaks: bool,
    /// It breaks off next, once what came of it before is written: its client may come back for no more than the rest.
    pub(super) breaks_off: bool,
    /// What that is.
    pub(super) under_way: UnderWay,
    /// When it ends, if nothing else ends it before.
    pub(super) ends: Option<Ends>,
    /// A drain waits for it.
    pub(super) _call: Option<CallGuard>,
    /// It is one of so many.
    pub(super) _place: Place,
}

impl Relay {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.breaks_off {
            return self.under_way.poll_written(cx).map(|()| Some(Err(BrokenOff)));
        }
        if self.lease.is_none() {
            return Poll::Ready(None);
        }
        if let Some(Poll::Ready(over)) = self.ends.as_mut().map(|ends| ends.as_mut().poll(cx)) {
            self.lease = None;
            if let Some(end) = self.end_of_subscription() {
                return Poll::Ready(Some(Ok(Frame::data(end))));
            }
            self.breaks_off = matches!(over, Over::Elsewhere) && self.breaks;
            return if self.breaks_off { self.poll_frame(cx) } else { Poll::Ready(None) };
        }
        Poll::Ready(match ready!(Pin::new(&mut self.from).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(last) = frame.data_ref().and_then(|data| data.last()) {
                    self.last = *last;
                }
                let is_counted = self.events;
                Some(Ok(frame.map_data(|bytes| if is_counted { self.under_way.give(bytes) } else { bytes })))
            }
            Some(Err(_)) => {
                self.lease = None;
                let error = self.error();
                self.breaks_off = error.is_none();
                match error {
                    Some(error) => Some(Ok(Frame::data(error))),
                    None => return self.poll_frame(cx),
                }
            }
            None => {
                if let Some(lease) = self.lease.take() {
                    lease.give_back();
                }
                None
            }
        })
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.lease.is_none() && !self.breaks_off
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.from.size_hint()
    }

    /// What ends a subscription of 2026-07-28 in an orderly way: its client makes another, which leads elsewhere. None: it is
    /// something else.
    fn end_of_subscription(&self) -> Option<Bytes> {
        if self.is_get || !self.events {
            return None;
        }
        let Ok(Message::Request(request)) = envelope::read(&self.request) else { return None };
        let info = self.worker.shared.view.borrow().server_info();
        let end = listen::ended(request.id.as_json(), info.as_deref());
        Some([sse::abandon_after(self.last).as_bytes(), &sse::message(end.as_bytes())].concat().into())
    }

    /// What the client hears when the other replica is gone in the middle, if it can be told there.
    fn error(&mut self) -> Option<Bytes> {
        // So it is too where that one sends its listeners away. They come back, and hear then what is the matter.
        if self.is_get {
            return None;
        }
        self.worker.shared.metrics.forwarded(Forward::Lost);
        let refusal = Refusal::ReplicaLost;
        let message = envelope::read(&self.request).ok();
        let request = match &message {
            Some(Message::Request(request)) => Some(request),
            _ => None,
        };
        let id = request.map(|request| request.id.as_json().to_owned());
        let answer = refusal::error_response(
            &refusal,
            id.as_deref().map(Id::from_json),
            Kind::Request,
            Revision::NEWEST_WITH_INITIALIZE,
        );
        if let Some(mut entry) = self.line.of_one_lost() {
            if let Some(request) = request {
                entry.method(&request.method);
            }
            entry.reason(refusal.reason());
            entry.answered(StatusCode::OK.as_u16(), self.events.then_some(answer.code));
        }
        if !self.events || id.is_none() {
            return None;
        }
        let abandon = sse::abandon_after(self.last);
        let json = answer.json.as_bytes();
        // Some clients come back in a session after an error that has no id.
        let end = if self.in_session { sse::numbered(streams::LAST, json) } else { sse::message(json) };
        Some([abandon.as_bytes(), &end].concat().into())
    }
}

/// The audit line of a request that another replica has: that one writes it, also where the client goes meanwhile.
pub(super) struct Elsewhere(pub(super) Option<Entry>);

impl Elsewhere {
    /// The other replica did not take the request.
    pub(super) fn comes_back(&mut self, trail: &mut Trail) {
        if let Some(entry) = self.0.take() {
            trail.entry = entry;
        }
    }

    /// The line where the other replica is lost. What that one decided is not known; the request was past the door.
    pub(super) fn of_one_lost(&mut self) -> Option<Entry> {
        let mut entry = self.0.take()?;
        entry.permit(None);
        Some(entry)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            entry.leave();
        }
    }
}
