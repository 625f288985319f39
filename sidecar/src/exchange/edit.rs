//! What is changed in an answer: entries of lists that the caller may not call are taken out.

use longshore_mcp::envelope::{self, Id, Message, Outcome};
use longshore_mcp::{error, listing};

use super::{Call, Edit};
use crate::rescue::Refusal;

/// An answer, edited.
pub(super) struct Edited {
    /// The message; none if it can go as it is.
    pub(super) text: Option<String>,
    /// The code, if it is an error.
    pub(super) code: Option<i64>,
}

/// Edits a message if it is the answer to this call. `None`: it is something else.
pub(super) fn edit(call: &Call, message: &[u8]) -> Result<Option<Edited>, Refusal> {
    let Ok(Message::Response(response)) = envelope::read(message) else { return Ok(None) };
    let asked = call.id.as_deref().map(Id::from_json);
    match (response.id, asked) {
        (Some(id), Some(asked)) if id.is(&asked) => {}
        _ => return Ok(None),
    }
    let list = match (response.outcome, call.edit) {
        (Outcome::Error(error), _) => {
            return Ok(Some(Edited { text: None, code: error::code_of(error.get()) }));
        }
        (Outcome::Result(_), Edit::Filter(list)) => list,
        (Outcome::Result(_), _) => return Ok(Some(Edited { text: None, code: None })),
    };
    let text = std::str::from_utf8(message).map_err(|_| Refusal::ServerNonsense)?;
    let shows = |name: &str| call.snapshot.access.shows(&call.caller, list, name);
    // What cannot be read cannot be permitted.
    let filtered = listing::filter(text, list, shows).map_err(|_| Refusal::ServerNonsense)?;
    Ok(Some(Edited { text: filtered.rewritten, code: None }))
}
