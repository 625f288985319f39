//! Which revision a message is of. The client says it in its own way: in each message (2026-07-28 and later), in a
//! header, or once in the handshake.

use longshore_mcp::envelope::Message;
use longshore_mcp::headers::PROTOCOL_VERSION;
use longshore_mcp::method::Method;
use longshore_mcp::params::Params;
use longshore_mcp::revision::{Era, Revision, era_of};

use super::session::InSession;
use super::{Authenticated, Trail};
use crate::rescue::Refusal;

/// Turns modern messages away, in the way that lets such a client fall back, and reads what the others are about. The
/// body decides: a claim in it counts before the header.
pub(crate) fn era<'a>(caller: &Authenticated, message: &Message<'a>) -> Result<Params<'a>, Refusal> {
    let (params, is_request) = match message {
        Message::Request(request) => (request.params, true),
        Message::Notification(notification) => (notification.params, false),
        Message::Response(_) => return Ok(Params::default()),
    };
    let params = match Params::read(params) {
        Ok(params) => params,
        // A method that is not known may have parameters that are not known either; its name is refused later.
        Err(_) if is_request && !is_known(message) => Params::default(),
        Err(error) => return Err(error.into()),
    };
    if let Some(claim) = params.claimed_version()? {
        return Err(Refusal::UnsupportedEra { requested: claim.into_owned() });
    }
    match caller.header(PROTOCOL_VERSION)? {
        Some(version) if era_of(version) == Era::Modern => {
            Err(Refusal::UnsupportedEra { requested: version.to_owned() })
        }
        _ => Ok(params),
    }
}

/// Holds the header, if there is one, to the session's revision. A handshake comes before there is one.
pub(crate) fn agree(
    caller: &Authenticated,
    session: Option<&InSession>,
    trail: &mut Trail,
) -> Result<(), Refusal> {
    let Some(session) = session else { return Ok(()) };
    trail.revision = session.revision;
    match caller.header(PROTOCOL_VERSION)? {
        Some(version) if Revision::parse(version) != Some(session.revision) => Err(Refusal::WrongRevision),
        _ => Ok(()),
    }
}

fn is_known(message: &Message<'_>) -> bool {
    match message {
        Message::Request(request) => Method::parse(&request.method).is_some(),
        Message::Notification(_) | Message::Response(_) => false,
    }
}
