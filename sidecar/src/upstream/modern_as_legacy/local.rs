//! What a client of an older revision asks of its session, and the server knows nothing of.

use longshore_mcp::envelope::Request;
use longshore_mcp::error::{self, Code};
use longshore_mcp::logging;
use longshore_mcp::method::Method;
use longshore_mcp::object::{self, string};
use longshore_sessions::bounds::MAX_SUBSCRIPTION;
use tokio::time::{Duration, timeout};

use super::session::{Session, Turn};
use super::way::Way;
use super::{Failure, message};
use crate::upstream::{Answer, Failure as Any, Opener};

/// How long a subscription waits for the server to take it. It is longer than the server may take to answer for another
/// resource: only then is it asked for what is left.
const TOLD: Duration = Duration::from_secs(6);

const UNSAID: &str = "the server does not say that it will tell of changes of this resource";
const REFUSED: &str = "the server refuses to tell of changes of this resource";

/// A subscription that the server has not taken. It is taken back when this is dropped: what is refused, or what nobody
/// waits for any more, must not be asked for with every other one.
struct Untaken<'a> {
    session: &'a Session,
    uri: &'a str,
    turn: Turn,
}

/// `ping`. A client asks whether anybody is there, and somebody is; the sidecar itself asks for the server.
pub(super) async fn ping(way: &Way, request: &Request<'_>) -> Result<Answer, Any> {
    if matches!(way.session.opener, Opener::Own) && !way.is_modern().await? {
        return Err(Failure::Forgotten.into());
    }
    Ok(done(request))
}

/// `logging/setLevel`.
pub(super) fn set_level(way: &Way, request: &Request<'_>) -> Answer {
    if !way.session.logs {
        return unknown(request);
    }
    match logging::level_of(params(request)) {
        Some(level) => {
            way.session.set_level(level);
            done(request)
        }
        None => refused(request, Code::InvalidParams, "\"level\" has to be a level of log messages"),
    }
}

/// `resources/subscribe` and `resources/unsubscribe`.
pub(super) async fn subscription(way: &Way, request: &Request<'_>) -> Result<Answer, Any> {
    let session = &way.session;
    if !session.offers.updates {
        return Ok(unknown(request));
    }
    let Some(uri) = object::at(params(request), &["uri"]).and_then(string) else {
        return Ok(refused(request, Code::InvalidParams, "\"uri\" has to be a text"));
    };
    if request.is(Method::ResourcesUnsubscribe) {
        session.unsubscribe(&uri);
        return Ok(done(request));
    }
    // Another replica would not keep it, nor is it kept while others have their turn.
    if uri.len() > MAX_SUBSCRIPTION {
        return Err(Failure::LongSubscription.into());
    }
    let is_asked = session.is_heard() && (!session.has(&uri) || session.is_refused(&uri));
    let _subscribing = if is_asked { Some(session.subscribing.lock().await) } else { None };
    let untaken = Untaken { session, turn: session.subscribe(&uri)?, uri: &uri };
    if session.is_heard() {
        let wanted = *session.wishes.borrow();
        let mut heard = session.heard.subscribe();
        let mut over = session.over.subscribe();
        let taken = async {
            tokio::select! {
                told = heard.wait_for(|heard| heard.wishes >= wanted) => {
                    told.is_ok_and(|told| told.granted.contains(&*uri))
                }
                _ = over.wait_for(|over| *over) => true,
            }
        };
        // Who does not listen any more is as one who does not listen yet.
        if !timeout(TOLD, taken).await.unwrap_or_else(|_| !session.is_heard()) {
            let why = if session.is_refused(&uri) { REFUSED } else { UNSAID };
            return Ok(refused(request, Code::InternalError, why));
        }
    }
    untaken.taken();
    Ok(done(request))
}

impl Untaken<'_> {
    fn taken(self) {
        self.session.taken(self.uri, &self.turn);
    }
}

impl Drop for Untaken<'_> {
    fn drop(&mut self) {
        self.session.take_back(self.uri, &self.turn);
    }
}

/// There is no such method.
pub(super) fn unknown(request: &Request<'_>) -> Answer {
    refused(request, Code::MethodNotFound, "Method not found")
}

/// An error response.
pub(super) fn refused(request: &Request<'_>, code: Code, why: &str) -> Answer {
    message(error::response(Some(request.id), code, why, None))
}

fn done(request: &Request<'_>) -> Answer {
    message(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, request.id.as_json()))
}

fn params<'a>(request: &Request<'a>) -> &'a str {
    request.params.map_or("{}", |params| params.get())
}
