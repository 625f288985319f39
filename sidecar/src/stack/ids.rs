//! Under which id the server hears of a request. Those whose answers are edited get one of the sidecar's own
//! (`sessions::aliases`), and so do handshakes and all that goes to a server which gives no session ids; that is undone in what
//! comes back (`exchange::edit`), and what takes one of them back names it by that too. Others keep their client's.

use longshore_mcp::envelope::{self, Id, Message};
use longshore_mcp::method::NotificationMethod;
use longshore_mcp::params::Params;
use longshore_mcp::splice::replaced;
use longshore_mcp::translate::names;
use longshore_sessions::ServerSession;
use longshore_sidecar_config::Upstream;

use super::access::{Asks, Authorised};
use super::translate::Outgoing;
use crate::refusal::Refusal;
use crate::sessions::Alias;
use crate::tasks::Naming;

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
    let text = || outgoing.text(body);
    let (text, alias) = match (&authorised.asks, message) {
        (Asks::Handshake, Message::Request(request)) => {
            let alias = Alias::of_handshake(&request.id).ok_or(Refusal::Internal)?;
            (with(text()?, None, None, alias.as_json())?, Some(alias))
        }
        (Asks::Answer { session, list, .. }, Message::Request(request))
            if session.capsule.server != ServerSession::KeptHere =>
        {
            let by_ids_alone = !session.is_known_to_server();
            let is_edited = list.is_some() || naming.is_some();
            // A server may tell its clients what it was asked, and how that is called.
            if !by_ids_alone && !is_edited && !Alias::may_be(&request.id) {
                return Ok((outgoing, None));
            }
            // What is said of a task goes on after the call that begins it.
            let token = if by_ids_alone && naming.is_none() { params.wanted_token()? } else { None };
            let alias = session.alias(&request.id, token).ok_or(Refusal::Internal)?;
            // Between equals the message is read already.
            let id = matches!(outgoing, Outgoing::AsItIs).then(|| request.id.as_json());
            (with(text()?, id, token, alias.as_json())?, Some(alias))
        }
        (Asks::Nothing { session, .. }, Message::Notification(notification))
            if NotificationMethod::parse(&notification.method) == Some(NotificationMethod::Cancelled) =>
        {
            let alias = params.request_id().and_then(|id| session.alias_of(&Id::from_json(id)));
            let Some(alias) = alias else { return Ok((outgoing, None)) };
            let text = names::with_cancelled_id(text()?, &alias).map_err(|_| Refusal::Internal)?;
            (text.into_owned(), None)
        }
        _ => return Ok((outgoing, None)),
    };
    Ok((Outgoing::Rewritten(text), alias))
}

/// A request under another id, and with that for the token of its progress if it has one that is to be replaced. `id` is where
/// it has its own, if that is known; the token is from the same text then.
fn with(text: &str, id: Option<&str>, token: Option<&str>, other: &str) -> Result<String, Refusal> {
    let Some(id) = id else {
        let message = envelope::read(text.as_bytes()).map_err(Refusal::Malformed)?;
        let Message::Request(request) = message else { return Err(Refusal::Internal) };
        let token = if token.is_some() { Params::read(request.params)?.wanted_token()? } else { None };
        return with(text, Some(request.id.as_json()), token, other);
    };
    replaced(text, [Some((id, other)), token.map(|token| (token, other))]).ok_or(Refusal::Internal)
}
