//! Who calls.

use std::sync::Arc;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use super::{Head, Received};
use crate::access::Caller;
use crate::authenticate::{ANONYMOUS, MAX_CREDENTIALS, Unknown};
use crate::configuration::Snapshot;
use crate::headers::{API_KEY, LAST_EVENT_ID, TRACE};
use crate::peers;
use crate::refusal::Refusal;
use crate::request_copy;
use crate::worker::Worker;

/// A request whose caller is known.
pub(crate) struct Authenticated {
    pub(crate) request: Head,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
    pub(crate) through: Through,
}

/// Which way a request came, and so who has looked at its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    /// From the client.
    Client,
    /// From another replica, which the client called. It is never forwarded again.
    Replica,
    /// The same within something that is answered here, a batch or a stream of HTTP+SSE: nobody but this replica waits for
    /// what comes of it, so it is forwarded like a client's own.
    Within,
}

/// Checks the credentials. A key in the query string is not looked at, and the query string never travels on.
pub(crate) fn authenticate(received: Received) -> Result<Authenticated, Refusal> {
    let Received { request, snapshot } = received;
    by_credentials(request, snapshot)
}

fn by_credentials(request: Head, snapshot: Arc<Snapshot>) -> Result<Authenticated, Refusal> {
    let caller =
        snapshot.authenticator.authenticate(request.headers()).map_err(Refusal::Unauthenticated)?.clone();
    Ok(Authenticated { request, snapshot, caller, through: Through::Client })
}

/// Takes another replica's word for who calls, which may know of a key before this one does. It may as well not have heard
/// yet, for as long as nothing reaches its node, that a key was taken back which this one knew; and one that ends hears of no
/// change at all: a principal without a key here had its keys revoked since. What no key can stand for is nobody's where
/// callers have keys. What they may call is decided here.
pub(crate) fn by_replica(
    request: Head,
    snapshot: Arc<Snapshot>,
    principal: &str,
) -> Result<Authenticated, Refusal> {
    let has_key = snapshot.authenticator.admits(principal);
    let has_none = || {
        principal == ANONYMOUS
            || snapshot.revoked.has(principal)
            || peers::comes_from_one_that_ends(request.headers())
    };
    if !has_key && has_none() {
        return Err(Refusal::Unauthenticated(Unknown::NotLive));
    }
    let caller = snapshot.caller(principal);
    Ok(Authenticated { request, snapshot, caller, through: Through::Replica })
}

impl Authenticated {
    /// The same request under the configuration that is in force by now. A body may take its time, and neither a key
    /// that was revoked meanwhile nor a rule that was taken back may decide what it does.
    pub(crate) fn once_more(self, worker: &Worker) -> Result<Self, Refusal> {
        match self.newer(worker)? {
            None => Ok(self),
            Some(snapshot) => self.under(snapshot),
        }
    }

    /// The same, once something was found that is this principal's: whoever has its key by now has nothing of it.
    pub(crate) fn still(self, worker: &Worker) -> Result<Self, Refusal> {
        let Some(snapshot) = self.newer(worker)? else { return Ok(self) };
        let principal = self.principal().clone();
        let now = self.under(snapshot)?;
        if *now.principal() == principal { Ok(now) } else { Err(Refusal::UnknownSession) }
    }

    /// Whether that is so of a request that somebody else serves, who looks at no key.
    pub(crate) fn check_still(&self, worker: &Worker) -> Result<(), Refusal> {
        if self.newer(worker)?.is_none() { Ok(()) } else { self.caller_alone().still(worker).map(drop) }
    }

    /// The configuration that is in force by now, if it is another one.
    fn newer(&self, worker: &Worker) -> Result<Option<Arc<Snapshot>>, Refusal> {
        let now = worker.shared.snapshot.load();
        let snapshot = now.as_ref().ok_or(Refusal::NotConfigured)?;
        Ok((!Arc::ptr_eq(snapshot, &self.snapshot)).then(|| snapshot.clone()))
    }

    fn under(self, snapshot: Arc<Snapshot>) -> Result<Self, Refusal> {
        match self.through {
            Through::Client => by_credentials(self.request, snapshot),
            through @ (Through::Replica | Through::Within) => {
                let now = by_replica(self.request, snapshot, &self.caller.principal)?;
                Ok(Self { through, ..now })
            }
        }
    }

    /// Another request of the same caller, with the same headers.
    pub(crate) fn another(&self, method: Method) -> Self {
        let mut request = Box::new(Request::new(()));
        *request.method_mut() = method;
        *request.uri_mut() = self.request.uri().clone();
        *request.headers_mut() = self.request.headers().clone();
        let Self { snapshot, caller, through, .. } = self;
        Self { request, snapshot: snapshot.clone(), caller: caller.clone(), through: *through }
    }

    /// The same caller, of whom nothing is kept but what says under another configuration who it is.
    pub(crate) fn caller_alone(&self) -> Self {
        self.copied(|name, value| {
            // Longer ones are none, and may be there where nobody has to prove who they are.
            *name == peers::ENDING
                || (*name == AUTHORIZATION || *name == API_KEY) && value.len() <= MAX_CREDENTIALS
        })
    }

    /// The same request, of which nothing is kept but what somebody reads who serves it.
    pub(crate) fn kept(&self) -> Self {
        self.copied(|name, _| {
            let own = [AUTHORIZATION, API_KEY, ACCEPT, CONTENT_TYPE, LAST_EVENT_ID, peers::ENDING];
            own.contains(name) || TRACE.contains(name) || name.as_str().starts_with("mcp-")
        })
    }

    fn copied(&self, is_needed: impl Fn(&HeaderName, &HeaderValue) -> bool) -> Self {
        let mut request = Box::new(Request::new(()));
        *request.method_mut() = self.request.method().clone();
        // The query named the stream of a letter, which is found by then.
        *request.uri_mut() = Uri::try_from(self.request.uri().path()).unwrap_or_default();
        for (name, value) in self.request.headers().iter().filter(|(name, value)| is_needed(name, value)) {
            if let Some(value) = request_copy::value(value) {
                // One that occurs twice is refused by whoever reads it.
                request.headers_mut().append(name, value);
            }
        }
        let Self { snapshot, caller, through, .. } = self;
        Self { request, snapshot: snapshot.clone(), caller: caller.clone(), through: *through }
    }

    /// The same within something that is answered here.
    pub(crate) fn within(self) -> Self {
        let through = match self.through {
            Through::Client => Through::Client,
            Through::Replica | Through::Within => Through::Within,
        };
        Self { through, ..self }
    }

    /// Who calls.
    pub(crate) fn principal(&self) -> &Arc<str> {
        &self.caller.principal
    }

    /// The value of a header that may occur once.
    pub(crate) fn header(&self, name: HeaderName) -> Result<Option<&str>, Refusal> {
        let mut values = self.request.headers().get_all(&name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| Refusal::BadHeader(name)),
            (Some(_), Some(_)) => Err(Refusal::BadHeader(name)),
        }
    }
}
