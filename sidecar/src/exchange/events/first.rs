//! The answer to a handshake that comes as an event, and what comes before it.

use bytes::Bytes;
use http_body_util::BodyExt;
use longshore_mcp::sse::Decoder;

use crate::exchange::Call;
use crate::exchange::client::Client;
use crate::exchange::deadline::Deadline;
use crate::exchange::edit::{Looked, look};
use crate::rescue::Refusal;
use crate::upstream::{self, EDITABLE, Lease, Tail};

/// Reads events until the answer: the requests and notifications before it, and the answer. What else comes is for nobody:
/// the client could take it for its answer. A process that is only begun for a client is given up with it here too.
pub(in crate::exchange) async fn first_answer(
    call: &Call,
    client: &mut Client,
    mut body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<(Vec<Vec<u8>>, Bytes), Refusal> {
    let (mut decoder, mut share) = (Decoder::new(EDITABLE), call.nothing_held());
    let (mut before, mut bytes_before) = (Vec::new(), 0);
    let mut answer = None;
    loop {
        let data = client.wait(call, deadline, body.frame()).await?.ok_or(Refusal::ServerLost)??.into_data();
        let Ok(data) = data else { continue };
        let mut failure = None;
        let looked = decoder.push(&data, |event| {
            let (None, Some(message)) = (&answer, event.message()) else { return };
            match look(call, message) {
                Ok(Looked::Answer(_)) => answer = event.into_message().map(Bytes::from),
                Ok(Looked::Aside | Looked::Question) => {
                    bytes_before += message.len();
                    before.push(message.to_vec());
                }
                Ok(Looked::Unasked | Looked::Unreadable) => {
                    tracing::debug!("the server answered what nobody asked in this handshake");
                }
                Err(refusal) => failure = Some(refusal),
            }
        });
        if looked.is_err() || bytes_before > EDITABLE {
            return Err(Refusal::AnswerTooLarge { limit: EDITABLE });
        }
        if let Some(refusal) = failure {
            return Err(refusal);
        }
        let held = bytes_before + answer.as_ref().map_or(decoder.pending(), Bytes::len);
        share.shrink(held);
        if !share.reach(held) {
            return Err(Refusal::AnswerNotHeld);
        }
        if let Some(answer) = answer.take() {
            Tail::of(body, lease).leave();
            return Ok((before, share.keep(answer)));
        }
    }
}
