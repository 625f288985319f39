//! Under which id the server hears of a request. Most keep their client's. Those whose answers are edited get one of the
//! sidecar's own (`sessions::aliases`), which is undone in the answer (`exchange::edit`); what takes one of them back names it by
//! that too.

use longshore_mcp::envelope::{self, Id, Malformed, Message};
use longshore_mcp::method::NotificationMethod;
use longshore_mcp::params::Params;
use longshore_sessions::ServerSession;
use longshore_sidecar_config::Upstream;

use super::access::{Asks, Authorised};
use super::translate::Outgoing;
use crate::rescue::Refusal;
use crate::sessions::Alias;
use crate::tasks::Naming;
use crate::upstream::replaced;

/// A client's message with the id that the server hears, and that one if it is another than the client's.
pub(crate) fn outgoing(
    authorised: &Authorised,
    message: &Message<'_>,
    params: &Params<'_>,
    naming: Option<&Naming>,
    outgoing: Outgoing,
    body: &[u8],
) -> Result<(Outgoing, Option<Alias>), Refusal> {
    // All other ways to a server number what goes there.
    let Upstream::StreamableHttp { .. } = authorised.snapshot.config.upstream else {
        return Ok((outgoing, None));
    };
    match (&authorised.asks, message) {
        (Asks::Answer { session, list, .. }, Message::Request(request))
            if (list.is_some() || naming.is_some()) && session.capsule.server != ServerSession::KeptHere =>
        {
            let alias = session.alias(&request.id).ok_or(Refusal::Internal)?;
            let text = with(&outgoing, body, id, alias.as_json())?;
            Ok((Outgoing::Rewritten(text), Some(alias)))
        }
        (Asks::Nothing { session, .. }, Message::Notification(notification))
            if NotificationMethod::parse(&notification.method) == Some(NotificationMethod::Cancelled) =>
        {
            let alias = params.request_id().and_then(|id| session.alias_of(&Id::from_json(id)));
            let Some(alias) = alias else { return Ok((outgoing, None)) };
            Ok((Outgoing::Rewritten(with(&outgoing, body, cancelled, &alias)?), None))
        }
        _ => Ok((outgoing, None)),
    }
}

/// What goes to the server, with another id.
fn with(
    outgoing: &Outgoing,
    body: &[u8],
    id: impl for<'a> Fn(&Message<'a>) -> Option<&'a str>,
    other: &str,
) -> Result<String, Refusal> {
    let text = match outgoing {
        Outgoing::AsItIs => std::str::from_utf8(body).map_err(|_| Refusal::Malformed(Malformed::NotJson))?,
        Outgoing::Rewritten(text) => text,
    };
    let message = envelope::read(text.as_bytes()).map_err(Refusal::Malformed)?;
    let id = id(&message).ok_or(Refusal::Internal)?;
    Ok(replaced(text, id, other))
}

fn id<'a>(message: &Message<'a>) -> Option<&'a str> {
    Some(message.request_id()?.as_json())
}

fn cancelled<'a>(message: &Message<'a>) -> Option<&'a str> {
    let Message::Notification(notification) = message else { return None };
    Params::read(notification.params).ok()?.request_id()
}
