//! Host and origin: whether a request is addressed to this server, and whether a browser may send it.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue};

use super::Head;
use crate::configuration::Snapshot;
use crate::refusal::Refusal;
use crate::worker::Worker;

/// Refuses requests for other hosts and from other origins.
pub(crate) fn check(request: Head, snapshot: &Snapshot) -> Result<Head, Refusal> {
    // A request line may carry an authority too; it would have to be one of the server's as well.
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let host = single(request.headers(), HOST)?;
    if host.is_none() && authority.is_none() {
        return Err(Refusal::ForeignHost);
    }
    if [host, authority].into_iter().flatten().any(|host| !snapshot.hosts.knows(host)) {
        return Err(Refusal::ForeignHost);
    }
    match single(request.headers(), ORIGIN)? {
        Some(origin) if !snapshot.hosts.allows_origin(origin) => Err(Refusal::ForeignOrigin),
        // Programs other than browsers send none.
        _ => Ok(request),
    }
}

/// The request's origin if it is an allowed one: every response to it, errors too, has to be readable there.
pub(crate) fn allowed(worker: &Worker, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let config = worker.shared.config();
    config.as_ref()?.hosts.allows_origin(origin.to_str().ok()?).then(|| origin.clone())
}

fn single(headers: &HeaderMap, name: http::HeaderName) -> Result<Option<&str>, Refusal> {
    let refusal = if name == HOST { Refusal::ForeignHost } else { Refusal::ForeignOrigin };
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| refusal),
        (Some(_), Some(_)) => Err(refusal),
    }
}
