//! What the server asks back is put to the client.

use std::pin::pin;

use longshore_mcp::envelope::Id;
use longshore_mcp::rounds::{Next, Rounds};
use tokio::time::{Duration, sleep, timeout};

use crate::held::Share;
use crate::upstream::Failure as Any;
use crate::upstream::made::Out;
use crate::upstream::modern_as_legacy::Failure;
use crate::upstream::modern_as_legacy::registry::ALONE;
use crate::upstream::modern_as_legacy::session::{UnderWay, Word};
use crate::upstream::modern_as_legacy::way::Way;
use crate::upstream::waiting::Unread;

/// How long a server is left alone that only wants to be called again.
const PAUSE: Duration = Duration::from_secs(1);

/// Has the client answer until the call can be sent again, or gives the answer that ends it.
pub(super) async fn ask(
    way: &Way,
    under_way: &mut UnderWay,
    id: &str,
    rounds: &mut Rounds,
    parked: &mut Share,
    mut next: Next,
    out: &Out,
) -> Result<Option<String>, Any> {
    // What the client has said nothing to.
    let mut open: Vec<String> = Vec::new();
    let (member, outcome) = loop {
        next = match next {
            Next::Ask(messages) => {
                // They are there until their client has read them, which it need not do.
                let messages = way.hold(messages).ok_or(Failure::NotHeld)?;
                if !under_way.ask(rounds.unanswered()) {
                    return Err(Failure::TooManyQuestions.into());
                }
                open.extend(rounds.unanswered().map(str::to_owned));
                for message in messages {
                    out.aside(message).await?;
                }
                Next::Wait
            }
            Next::Wait => match timeout(way.modern_as_legacy.patience, under_way.words.recv()).await {
                Ok(Some(Word::Answered(question, outcome))) => {
                    open.retain(|id| *id != question);
                    let size = outcome.as_ref().map_or_else(String::len, String::len);
                    if !parked.add_alone(size, ALONE) {
                        withdraw(&open, out).await?;
                        return Err(Failure::TooManyQuestions.into());
                    }
                    let outcome = outcome.as_deref().map_err(String::as_str);
                    rounds.answered(Id::from_json(&question), outcome).unwrap_or(Next::Wait)
                }
                Ok(Some(Word::Cancelled)) => {
                    withdraw(&open, out).await?;
                    return Err(Failure::Cancelled.into());
                }
                Ok(Some(Word::Ended) | None) => return Err(Failure::Ended.into()),
                Err(_) => rounds.refuse("the client did not answer in time what the server asked"),
            },
            Next::Again => return Ok(None),
            Next::AgainLater => {
                let pause = pin!(async {
                    sleep(PAUSE).await;
                    Ok(())
                });
                under_way.during(pause).await?;
                return Ok(None);
            }
            Next::Result(result) => break ("result", result),
            Next::Error(error) => break ("error", error),
        };
    };
    withdraw(&open, out).await?;
    tracing::debug!(client = %way.session.pair.client, "a call ended because its client could not be asked");
    Ok(Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{outcome}}}"#)))
}

/// Tells a client that it need not answer these questions any more.
async fn withdraw(questions: &[String], out: &Out) -> Result<(), Unread> {
    for id in questions {
        let params = format!(r#"{{"requestId":{id}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#);
        out.aside(message).await?;
    }
    Ok(())
}
