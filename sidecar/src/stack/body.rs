//! Reads the body, within its bounds, or leaves it.

use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use longshore_mcp::batch::Batch;
use longshore_mcp::envelope::{self, Malformed, Message};
use longshore_mcp::headers;
use longshore_mcp::method::Method;
use tokio::time::{Duration, timeout};

use super::respond::{self, Body};
use super::{Authenticated, Through, Trail, crowd};
use crate::refusal::Refusal;
use crate::request_copy;
use crate::whole_body::Gathered;
use crate::worker::Worker;

/// How long a body may take whose caller has too many connections.
const MOMENT: Duration = Duration::from_secs(1);
/// How bodies are compressed. Whatever else "Content-Encoding" says, the body may be JSON all the same.
const COMPRESSIONS: [&str; 6] = ["br", "compress", "deflate", "gzip", "x-gzip", "zstd"];
/// What is read of a body that nobody needs, so that its connection can go on: more than most messages are.
const LITTLE: u64 = 64 * 1024;
/// How long that may take. Most of it has come with the head.
const SOON: Duration = Duration::from_millis(200);

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
    caller: &Authenticated,
    trail: &mut Trail,
) -> Result<Bytes, Refusal> {
    // Whoever forwarded it has looked at these.
    if caller.through == Through::Client {
        if !headers::accepts_both(joined(caller).as_deref()) {
            return Err(Refusal::NotAcceptable);
        }
        if !headers::is_type(caller.header(CONTENT_TYPE)?, headers::JSON) {
            return Err(Refusal::UnsupportedMediaType);
        }
        // As a proxy may do. Otherwise its client would hear that its JSON is none.
        let coding = caller.request.headers().get(CONTENT_ENCODING).and_then(|coding| coding.to_str().ok());
        if coding.is_some_and(|coding| COMPRESSIONS.iter().any(|known| known.eq_ignore_ascii_case(coding))) {
            return Err(Refusal::Compressed);
        }
    }
    // Who has too many connections gets no more of each than what a message takes that has come with its head, or nearly.
    let crowds = crowd::judge(trail, false).err();
    // For more than one principal may hold there is no room later either.
    let largest = worker.shared.held.largest() as u64;
    let limit = caller.snapshot.config.limits.request_bytes.min(largest);
    let refusal = Refusal::BodyTooLarge { limit };
    let principal = &caller.caller.principal;
    let Some(body) = &mut trail.body else { return Err(Refusal::Internal) };
    // What is declared too large is not read at all.
    if body.size_hint().lower() > limit {
        return Err(refusal);
    }
    let collect = async {
        let mut gathered = Gathered::of(body, usize::MAX);
        let mut share = worker.shared.held.nothing(principal);
        let mut spare = Some(&worker.shared.told);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Refusal::BodyBroken)?.into_data() else { continue };
            if (gathered.len() + data.len()) as u64 > limit {
                return Err(Refusal::BodyTooLarge { limit });
            }
            // Its client may take its time, and the call afterwards, and there may be many of them.
            let bytes = gathered.len() + data.len();
            if !share.reach(bytes) {
                // It may be what a call waits for.
                let told = spare.take().ok_or(Refusal::TooMuchHeld)?;
                share = told.nothing(principal);
                if !share.reach(bytes) {
                    return Err(Refusal::TooMuchHeld);
                }
            }
            gathered.push(data);
        }
        let whole = gathered.freeze();
        if spare.is_none() && !only_tells(&whole) {
            return Err(Refusal::TooMuchHeld);
        }
        Ok(share.keep(request_copy::body(caller.request.headers(), whole)))
    };
    let time = worker.shared.options.bounds.body;
    let time = if crowds.is_some() { time.min(MOMENT) } else { time };
    let whole = timeout(time, collect).await.map_err(|_| crowds.unwrap_or(Refusal::BodyTooSlow))??;
    trail.body = None;
    Ok(whole)
}

/// Whether a message is none that is answered, or all of a batch are.
pub(super) fn only_tells(body: &[u8]) -> bool {
    match envelope::read(body) {
        Ok(message) => matches!(message, Message::Notification(_) | Message::Response(_)),
        Err(Malformed::Batch) => Batch::read(body).is_ok_and(|batch| batch.answers().is_none()),
        Err(_) => false,
    }
}

/// Whether it is the first message of a session.
pub(super) fn shakes_hands(body: &[u8]) -> bool {
    matches!(envelope::read(body), Ok(Message::Request(request)) if request.is(Method::Initialize))
}

/// Leaves what is unread of a body. Little is read and dropped, and the connection goes on; otherwise it ends with the
/// response, which says so. A client that `waits` has not begun to send: reading would ask it to.
pub(crate) async fn leave(unread: Option<Incoming>, waits: bool, response: &mut Response<Body>) {
    let Some(mut body) = unread.filter(|body| !body.is_end_stream()) else { return };
    let is_little = !waits && body.size_hint().lower() <= LITTLE;
    let rest = async {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
            if read > LITTLE {
                return None;
            }
        }
        Some(())
    };
    if !is_little || timeout(SOON, rest).await != Ok(Some(())) {
        respond::end_unread(response);
    }
}

/// All `Accept` headers as one.
fn joined(caller: &Authenticated) -> Option<Cow<'_, str>> {
    let mut values = caller.request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let first = Cow::Borrowed(values.next()?);
    Some(values.fold(first, |all, value| all + "," + value))
}
