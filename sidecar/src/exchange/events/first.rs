//! The answer to a handshake that comes as an event, and what comes before it.

use std::pin::pin;

use bytes::Bytes;

use crate::exchange::Call;
use crate::exchange::answer::hold_in_time;
use crate::exchange::client::Client;
use crate::exchange::deadline::Deadline;
use crate::exchange::edit::{Looked, look};
use crate::held::Coming;
use crate::refusal::Refusal;
use crate::upstream::source::Source;
use crate::upstream::{self, EDITABLE, Lease};

/// Reads events until the answer: the requests and notifications before it, and the answer. What else comes is for nobody:
/// the client could take it for its answer. A process that is only begun for a client is given up with it here too.
pub(in crate::exchange) async fn first_answer(
    call: &Call,
    client: &mut Client,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<(Vec<Vec<u8>>, Bytes), Refusal> {
    let mut source = Source::new(body, lease, Coming::new(Some(call.nothing_held())));
    let (mut before, mut bytes_before, mut share) = (Vec::new(), 0, call.nothing_held());
    let mut answer = None;
    loop {
        let data = client.wait(call, deadline, pin!(source.next())).await??.ok_or(Refusal::ServerLost)?;
        let mut failure = None;
        source.read(&data, |event| {
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
        })?;
        if bytes_before > EDITABLE {
            return Err(Refusal::AnswerTooLarge { limit: EDITABLE });
        }
        if let Some(refusal) = failure {
            return Err(refusal);
        }
        hold_in_time(&mut share, bytes_before + answer.as_ref().map_or(0, Bytes::len), deadline).await?;
        source.settle();
        if let Some(answer) = answer.take() {
            source.into_tail().leave();
            return Ok((before, share.keep(answer)));
        }
    }
}
