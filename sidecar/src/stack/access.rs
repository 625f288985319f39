//! The decision.

use std::sync::Arc;

use longshore_mcp::Raw;
use longshore_mcp::detect::Modern;
use longshore_mcp::envelope::{Id, Message};
use longshore_mcp::level::Level;
use longshore_mcp::listen::Filter;
use longshore_mcp::method::{List, Method, NotificationMethod};
use longshore_mcp::object;
use longshore_mcp::params::{Invalid, Params, Target};
use longshore_sessions::bounds::MAX_SUBSCRIPTION;
use serde::Deserialize;

use super::session::InSession;
use super::standing::Standing;
use super::{Authenticated, Trail, tasks};
use crate::access::{Caller, Decision};
use crate::configuration::Snapshot;
use crate::refusal::Refusal;
use crate::sessions::{Change, Telling};
use crate::tasks::Naming;
use crate::worker::Worker;

/// A message that may reach the server. Nothing else can make one.
pub(crate) struct Authorised {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
    pub(crate) headers: http::HeaderMap,
    pub(crate) asks: Asks,
    _decided: Decided,
}

/// A request that stands alone and may reach the server. Nothing else can make one.
pub(crate) struct Stateless {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Caller,
    pub(crate) headers: http::HeaderMap,
    /// If it has no end of its own: what it was permitted for.
    pub(crate) standing: Option<Standing>,
    _decided: Decided,
}

/// Whether what was decided under a configuration holds still.
pub(super) fn is_current(worker: &Worker, snapshot: &Arc<Snapshot>) -> bool {
    worker.shared.snapshot.load().as_ref().is_some_and(|now| Arc::ptr_eq(now, snapshot))
}

/// Proof that the decision was made: it has no constructor outside this file.
struct Decided;

/// What an authorised message wants from the server.
pub(crate) enum Asks {
    /// A session.
    Handshake,
    /// An answer, within a session.
    Answer {
        session: InSession,
        method: Method,
        /// The list that is asked for: its entries are subject to the same decision.
        list: Option<List>,
        /// What it sets in the session, if the server does as it says.
        change: Option<Change>,
    },
    /// Nothing: it only tells.
    Nothing {
        session: InSession,
        /// What it means for that, if anything.
        telling: Option<Telling>,
    },
    /// Nothing, and the server need not hear of it.
    Ignored,
}

/// Reads what the parameters of a message are about.
pub(crate) fn params<'a>(message: &Message<'a>) -> Result<Params<'a>, Refusal> {
    let (params, is_known) = match message {
        Message::Request(request) => (request.params, Method::parse(&request.method).is_some()),
        Message::Notification(notification) => (notification.params, true),
        Message::Response(_) => return Ok(Params::default()),
    };
    match Params::read(params) {
        Ok(params) => Ok(params),
        // A method that is not known may have parameters that are not known either; its name is refused later.
        Err(_) if !is_known => Ok(Params::default()),
        Err(error) => Err(error.into()),
    }
}

/// Decides whether a message may go on.
pub(crate) fn decide(
    caller: Authenticated,
    message: &Message<'_>,
    params: &Params<'_>,
    session: Option<InSession>,
    trail: &mut Trail,
) -> Result<Authorised, Refusal> {
    let Authenticated { request, snapshot, caller, .. } = caller;
    let asks = match (message, session) {
        (Message::Request(request), session) => {
            let method = Method::parse(&request.method).ok_or(Refusal::UnknownMethod)?;
            let target = params.target(method.subject())?;
            let rule = match &target {
                Some(target) => {
                    trail.entry.target(target.as_str());
                    Some(permitted(&snapshot, &caller, target)?)
                }
                // What has no target is for everybody who is known.
                None => None,
            };
            trail.entry.permit(rule);
            match session {
                Some(session) => {
                    let change = change(method, request.params, target.as_ref());
                    Asks::Answer { session, method, list: method.list(), change }
                }
                None => Asks::Handshake,
            }
        }
        // There is no way to refuse these; not to pass them on is the refusal.
        (Message::Notification(notification), Some(session)) => {
            let goes_on = match NotificationMethod::parse(&notification.method) {
                None => Err("unknown notification"),
                Some(NotificationMethod::Cancelled) => match params.request_id().map(Id::from_json) {
                    // Over stdio and SSE what has sent the call ends it too, but a server that reads nothing holds that up.
                    // What is over, or a handshake, which nobody takes back, has another id at the server, and what has this
                    // one there may be anybody's.
                    Some(id) => session.cancels(&id).map(Some).ok_or("no such call"),
                    None if !session.is_known_to_server() => Err("no sessions at the server"),
                    None => Ok(None),
                },
                // Whose a message is such a server does not know: one client would speak for all.
                Some(NotificationMethod::Progress) if !session.is_known_to_server() => {
                    let token = params.reported_token();
                    if token.is_some_and(|token| session.is_asked_under(token)) {
                        Ok(None)
                    } else {
                        Err("nothing asked")
                    }
                }
                Some(NotificationMethod::RootsListChanged | NotificationMethod::TasksStatus)
                    if !session.is_known_to_server() =>
                {
                    Err("no sessions at the server")
                }
                Some(NotificationMethod::TasksStatus) if !tasks::are_in(&session) => {
                    Err("no tasks in common")
                }
                Some(NotificationMethod::Initialized) => {
                    session.greeted();
                    Ok(None)
                }
                Some(_) => Ok(None),
            };
            told(goes_on, session, trail)
        }
        // An answer to a question that the server asked in this very session.
        (Message::Response(response), Some(session)) => {
            let goes_on = match response.id.as_ref().and_then(|id| session.take_answer(id)) {
                // A server that knows sessions finds out by itself.
                None if !session.is_known_to_server() => Err("nothing asked"),
                telling => Ok(telling),
            };
            told(goes_on, session, trail)
        }
        (Message::Notification(_) | Message::Response(_), None) => return Err(Refusal::NoSession),
    };
    let headers = request.into_parts().0.headers;
    Ok(Authorised { snapshot, caller, headers, asks, _decided: Decided })
}

/// A message that nobody answers, and why it does not go on, if it does not.
fn told(goes_on: Result<Option<Telling>, &'static str>, session: InSession, trail: &mut Trail) -> Asks {
    match goes_on {
        Ok(telling) => {
            trail.entry.permit(None);
            Asks::Nothing { session, telling }
        }
        Err(why) => {
            trail.entry.deny(why);
            Asks::Ignored
        }
    }
}

/// Decides whether a request that stands alone may go on. `naming` has the tasks that it is about, which are its caller's.
pub(crate) fn decide_stateless(
    caller: Authenticated,
    modern: &Modern<'_>,
    naming: Option<&Naming>,
    trail: &mut Trail,
) -> Result<Stateless, Refusal> {
    let params = Params::read(modern.request.params)?;
    let rule = match params.target(modern.method.subject())? {
        Some(target) => {
            trail.entry.target(target.as_str());
            Some(permitted(&caller.snapshot, &caller.caller, &target)?)
        }
        None => None,
    };
    let mut standing = None;
    if modern.method == Method::SubscriptionsListen {
        let filter = subscribed(modern.request.params)?;
        // To hear of a resource takes the right to read it.
        for uri in &filter.uris {
            permitted(&caller.snapshot, &caller.caller, &Target::Resource(uri.as_str().into()))
                .inspect_err(|_| trail.entry.target(uri))?;
        }
        let tasks = naming.map_or(&[][..], |naming| &naming.asked);
        standing = Some(Standing::of(&caller, filter, tasks));
    }
    trail.entry.permit(rule);
    let Authenticated { request, snapshot, caller, .. } = caller;
    let headers = request.into_parts().0.headers;
    Ok(Stateless { snapshot, caller, headers, standing, _decided: Decided })
}

/// What a client wants to hear of.
fn subscribed(params: Option<Raw<'_>>) -> Result<Filter, Refusal> {
    let params = params.map(Raw::get).unwrap_or_default();
    let filter = Filter::read(params).ok_or_else(|| match object::at(params, &["notifications"]) {
        Some("null") | None => Invalid::Missing("notifications"),
        Some(_) => Invalid::Unreadable("\"notifications\" is not usable".to_owned()),
    })?;
    Ok(filter.bounded().map_err(Invalid::from)?)
}

/// What a request sets in its session.
fn change(method: Method, params: Option<Raw<'_>>, target: Option<&Target<'_>>) -> Option<Change> {
    #[derive(Deserialize)]
    struct SetLevel {
        level: Level,
    }
    // What no session keeps is not kept for as long as the call lasts either.
    let uri = |target: &Target<'_>| {
        let uri = target.as_str();
        (uri.len() <= MAX_SUBSCRIPTION).then(|| Arc::from(uri))
    };
    match method {
        // One that nobody knows is the server's to refuse.
        Method::LoggingSetLevel => {
            serde_json::from_str(params?.get()).ok().map(|SetLevel { level }| Change::LogLevel(level))
        }
        Method::ResourcesSubscribe => target.and_then(uri).map(Change::Subscribe),
        Method::ResourcesUnsubscribe => target.and_then(uri).map(Change::Unsubscribe),
        _ => None,
    }
}

/// Decides on a target.
pub(super) fn permitted(
    snapshot: &Snapshot,
    caller: &Caller,
    target: &Target<'_>,
) -> Result<Arc<str>, Refusal> {
    let why = match snapshot.access.decide(caller, target) {
        Decision::Permit(rule) => return Ok(rule),
        Decision::Deny(why) => why,
    };
    // The same words as a server has for what does not exist.
    Err(match target {
        Target::Tool(name) => Refusal::UnknownTool { name: name.to_string(), why },
        Target::Prompt(name) => Refusal::UnknownPrompt { name: name.to_string(), why },
        Target::Resource(uri) => Refusal::UnknownResource { uri: uri.to_string(), why },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subscription_changes_a_session_that_would_not_keep_it() {
        for method in [Method::ResourcesSubscribe, Method::ResourcesUnsubscribe] {
            for (length, changes) in [(MAX_SUBSCRIPTION, true), (MAX_SUBSCRIPTION + 1, false)] {
                let target = Target::Resource("x".repeat(length).into());
                assert_eq!(change(method, None, Some(&target)).is_some(), changes, "{method:?} {length}");
            }
        }
    }
}
