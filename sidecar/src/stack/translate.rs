//! The point where a message of one revision becomes one of another. Today both sides of a session speak the same,
//! and only the handshake is edited.

use longshore_mcp::envelope::Malformed;
use longshore_mcp::initialize::{self, Offer};

use super::SERVED;
use super::access::{Asks, Authorised};
use crate::rescue::Refusal;

/// What goes to the server.
pub(crate) enum Outgoing {
    /// The client's own bytes.
    AsItIs,
    /// Other ones.
    Rewritten(String),
}

/// Makes the server's message of a client's.
pub(crate) fn translate(authorised: &Authorised, body: &[u8]) -> Result<Outgoing, Refusal> {
    match &authorised.asks {
        Asks::Handshake => {
            let body = std::str::from_utf8(body).map_err(|_| Malformed::NotJson)?;
            let Offer { rewritten, .. } = initialize::offer(body, &SERVED).map_err(Refusal::Handshake)?;
            Ok(rewritten.map_or(Outgoing::AsItIs, Outgoing::Rewritten))
        }
        Asks::Answer { session, .. } | Asks::Nothing { session } => {
            if session.revision == session.server_revision {
                Ok(Outgoing::AsItIs)
            } else {
                Err(Refusal::Untranslatable { client: session.revision, server: session.server_revision })
            }
        }
        Asks::Ignored => Ok(Outgoing::AsItIs),
    }
}
