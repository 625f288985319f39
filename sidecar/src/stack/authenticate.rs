//! Who calls.

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use super::Received;
use crate::access::Caller;
use crate::configuration::Snapshot;
use crate::rescue::Refusal;
use crate::worker::Worker;

/// A request whose caller is known.
pub(crate) struct Authenticated {
    pub(crate) request: Request<Incoming>,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
}

/// Checks the credentials. A key in the query string is not looked at, and the query string never travels on.
pub(crate) fn authenticate(received: Received) -> Result<Authenticated, Refusal> {
    let Received { request, snapshot } = received;
    let caller =
        snapshot.authenticator.authenticate(request.headers()).map_err(Refusal::Unauthenticated)?.clone();
    Ok(Authenticated { request, snapshot, caller })
}

impl Authenticated {
    /// The same request under the configuration that is in force by now. A body may take its time, and neither a key
    /// that was revoked meanwhile nor a rule that was taken back may decide what it does.
    pub(crate) fn once_more(self, worker: &Worker) -> Result<Self, Refusal> {
        let snapshot = worker.shared.snapshot.load_full().ok_or(Refusal::NotConfigured)?;
        if Arc::ptr_eq(&snapshot, &self.snapshot) {
            return Ok(self);
        }
        authenticate(Received { request: self.request, snapshot })
    }

    /// Who calls.
    pub(crate) fn principal(&self) -> &Arc<str> {
        &self.caller.principal
    }

    /// The value of a header that may occur once.
    pub(crate) fn header(&self, name: &'static str) -> Result<Option<&str>, Refusal> {
        let mut values = self.request.headers().get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| Refusal::BadHeader(name)),
            (Some(_), Some(_)) => Err(Refusal::BadHeader(name)),
        }
    }
}
