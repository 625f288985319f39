//! Reads the body, within its bounds.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use longshore_mcp::headers;
use tokio::time::timeout;

use super::{Authenticated, Through};
use crate::gathered::Gathered;
use crate::rescue::Refusal;
use crate::worker::Worker;

/// Whether the caller takes a stream of events.
pub(crate) fn accepts_events(caller: &Authenticated) -> Result<(), Refusal> {
    if headers::accepts(joined(caller).as_deref(), headers::EVENT_STREAM) {
        Ok(())
    } else {
        Err(Refusal::NoEvents)
    }
}

/// Reads what a request carries.
pub(crate) async fn read(
    worker: &Worker,
    mut caller: Authenticated,
) -> Result<(Authenticated, Bytes), Refusal> {
    // Whoever forwarded it has looked at these.
    if caller.through == Through::Client {
        if !headers::accepts_both(joined(&caller).as_deref()) {
            return Err(Refusal::NotAcceptable);
        }
        if !headers::is_type(caller.header(CONTENT_TYPE)?, headers::JSON) {
            return Err(Refusal::UnsupportedMediaType);
        }
    }
    let limit = caller.snapshot.config.limits.request_bytes;
    let refusal = Refusal::BodyTooLarge { limit };
    let principal = &caller.caller.principal;
    let Some(body) = caller.request.body_mut() else { return Err(Refusal::Internal) };
    // What is declared too large is not read at all.
    if body.size_hint().lower() > limit {
        return Err(refusal);
    }
    let collect = async {
        let mut gathered = Gathered::default();
        let mut share = worker.shared.held.nothing(principal);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else { continue };
            if (gathered.len() + data.len()) as u64 > limit {
                return Err(Refusal::BodyTooLarge { limit });
            }
            // Its client may take its time, and the call afterwards, and there may be many of them.
            if !share.reach(gathered.len() + data.len()) {
                return Err(Refusal::TooMuchHeld);
            }
            gathered.push(data);
        }
        Ok(share.keep(gathered.freeze()))
    };
    let body =
        timeout(worker.shared.options.bounds.body, collect).await.map_err(|_| Refusal::BodyTooSlow)??;
    Ok((caller, body))
}

/// All `Accept` headers as one.
fn joined(caller: &Authenticated) -> Option<Cow<'_, str>> {
    let mut values = caller.request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = Cow::Borrowed(values.next()?);
    Some(values.fold(first, |all, value| all + "," + value))
}
