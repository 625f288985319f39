//! The end of a call: answered, given up, or left behind.

use bytes::Bytes;
use futures::future::OptionFuture;
use longshore_mcp::Text;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Message, Outcome, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::object::{self, elements, string};
use longshore_mcp::parked::{Parked, UNDECLARED};
use longshore_mcp::status;
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{errors, responses};
use tokio::time::{Duration, sleep};

use super::Call;
use super::stage::Stage;
use crate::upstream::Failure;
use crate::upstream::legacy_as_modern::client::Client;
use crate::upstream::legacy_as_modern::failure::Failure as Unusable;
use crate::upstream::legacy_as_modern::source::Heard;
use crate::upstream::source::Unread;

/// How long a session that a call has alone is kept from the next one after that call was given up. Most servers hear of
/// it at once, and few say that they have.
const LINGERS: Duration = Duration::from_secs(2);

impl Call {
    /// The server has ended the call.
    pub(super) async fn end(&mut self, ended: Result<Bytes, Failure>, stage: Stage) {
        match stage {
            Stage::Serving(client) | Stage::Gathering(client, _) => self.finish(ended, client).await,
            Stage::Waiting(mut waiting) => {
                // The first end is the one: after its answer a server's stream ends too.
                if waiting.ended.is_none() && !self.parked.has_ended() {
                    waiting.ended = Some(self.keep(ended).await);
                }
                self.stage = Stage::Waiting(waiting);
            }
            Stage::Over => {}
        }
    }

    /// Keeps the end of a call whose client is still to come back, and nothing of the server, which has done with it: another
    /// call may have its session. One that is to be made again goes on there.
    async fn keep(&mut self, ended: Result<Bytes, Failure>) -> Result<Bytes, Failure> {
        if !ended.as_deref().is_ok_and(has_to_visit) {
            let unanswered = self.last_words(&ended, "the call was over before the client answered");
            self.forget_questions();
            self.tell_all(&unanswered).await;
            self.number.end();
            self.lease = None;
        }
        let (transport, opener) = (&self.way.transport, &self.way.opener);
        ended
            .and_then(|message| transport.hold(opener, message).ok_or(Unusable::from(Unread::NotHeld).into()))
    }

    /// Answers the client, and then the server whatever it has asked and did not wait for.
    pub(super) async fn finish(&mut self, ended: Result<Bytes, Failure>, client: Client) {
        self.reading = None;
        let unanswered = self.last_words(&ended, "the call was over before the client was asked");
        self.answer(ended, client).await;
        self.tell_all(&unanswered).await;
    }

    /// What the server still hears in the end: an answer to whatever it has asked, and that nobody waits where it goes on,
    /// unless it has done with the call.
    fn last_words(&mut self, ended: &Result<Bytes, Failure>, why: &str) -> Vec<String> {
        let mut words = self.parked.ended(why);
        if self.lease.is_some()
            && let Err(Failure::LegacyAsModern(Unusable::Unread(unread))) = ended
            && matches!(**unread, Unread::NotHeld | Unread::TooLarge)
        {
            words.push(self.parked.cancelled("what it says cannot be read"));
        }
        words
    }

    async fn answer(&mut self, ended: Result<Bytes, Failure>, mut client: Client) {
        let message = match ended {
            Ok(message) => message,
            Err(failure) => {
                if matches!(failure, Failure::LegacyAsModern(Unusable::Forgotten)) {
                    self.session.end();
                }
                // Nobody is to make it once more: what its client has brought back is good for one call.
                let is_lost = self.is_again && failure.is_absence();
                return client.fail(if is_lost { Unusable::Gone.into() } else { failure }).await;
            }
        };
        let text = std::str::from_utf8(&message).unwrap_or_default();
        let Ok(Message::Response(response)) = envelope::read(&message) else {
            return client.fail(Unusable::Nonsense.into()).await;
        };
        if let Some(need) = self.lacks
            && let Some(words) = failure(&response)
        {
            let words = words.as_ref().map(Text::as_str);
            return client.error(&errors::lacking_says(need, self.pair.down(), words)).await;
        }
        let hints = Hints { server_info: self.session.info.as_deref(), ..Hints::default() };
        let asked = responses::Asked {
            id: &client.asked.id,
            method: Some(client.asked.method),
            uri: client.asked.uri.as_deref(),
        };
        match responses::response(self.pair, &asked, &response, text, &hints) {
            Ok(responses::Answer::Message(answer)) => {
                let code = match response.outcome {
                    // As it is for the client, which may be another one than the server's.
                    Outcome::Error(_) => object::at(&answer, &["error"]).and_then(error::code_of),
                    Outcome::Result(_) => None,
                };
                let status = code.map_or(200, |code| status::of_error(code, client.asked.revision));
                let answer = answer.into_owned();
                client.answer(status, answer).await;
            }
            Ok(responses::Answer::Visit(urls)) => {
                // They are kept until the client is back. What was asked before is over.
                let size = urls.iter().map(|url| url.len()).sum();
                let has_room = self.questions.as_mut().is_none_or(|share| {
                    share.shrink(0);
                    share.reach(size)
                });
                if !has_room {
                    return client.fail(Unusable::from(Unread::NotHeld).into()).await;
                }
                match self.parked.visit(&urls, &client.asked.can) {
                    Ok(()) => Box::pin(self.ask(client)).await,
                    Err(error) => client.error(&error).await,
                }
            }
            // No server of these revisions has such results.
            Ok(responses::Answer::InputRequired(_)) => client.fail(Unusable::Nonsense.into()).await,
            Err(untranslatable) => client.refuse(Code::InternalError, &untranslatable.to_string()).await,
        }
    }

    /// Another server is configured: whoever waits for this one hears it, and so does this one.
    pub(super) async fn leave(&mut self, stage: Stage) {
        match stage {
            Stage::Serving(mut client) | Stage::Gathering(mut client, _) => {
                client.fail(Unusable::Left.into()).await;
            }
            // Its client hears it when it comes back.
            Stage::Waiting(waiting) => drop(waiting),
            Stage::Over => {}
        }
        self.abandon("another server is configured").await;
    }

    /// Nobody waits any more: the server is told so, if it has not done with the call.
    pub(super) async fn abandon(&mut self, why: &str) {
        self.stage = Stage::Over;
        if self.lease.is_none() {
            return;
        }
        let can = ClientCapabilities::default();
        let mut parked = std::mem::replace(&mut self.parked, Parked::new(self.pair, "0", can));
        let words = if self.has_left.get() {
            parked.abandon(why)
        } else {
            // It does not leave any more, and there is nothing to be taken back.
            self.reading = None;
            parked.ended(why)
        };
        self.tell_all(&words).await;
    }

    /// Keeps the session for a while from the next call if the server has not done with this one, which was given up:
    /// what it asks still, where nothing says in which call, is for the client of no other. A session in which it does
    /// goes on asking, and is left.
    pub(super) async fn linger(&mut self) {
        let lease = self.lease.take_if(|lease| lease.is_alone() && self.reading.is_some());
        let Some(lease) = lease else { return };
        let over = sleep(LINGERS);
        tokio::pin!(over);
        loop {
            let heard = tokio::select! {
                biased;
                heard = self.inbox.1.recv() => heard,
                Some(()) = OptionFuture::from(self.reading.as_mut()) => None,
                () = &mut over => return,
            };
            match heard {
                Some(Heard::Answer(_)) => return,
                Some(Heard::Own(message) | Heard::Aside(message)) => {
                    if let Ok(Message::Request(question)) = envelope::read(&message) {
                        self.session.refuse(&self.way.transport, &question).await;
                        lease.session.leave();
                    }
                }
                // Whoever answers for the server gave the call up too; the server may not have.
                Some(Heard::Over(_)) => {}
                // What it has said is heard all the same.
                None => self.reading = None,
            }
        }
    }

    pub(super) async fn tell_all(&mut self, messages: &[String]) {
        for message in messages {
            self.tell(message).await;
        }
    }

    pub(super) async fn tell(&mut self, message: &str) {
        self.session.tell(&self.way.transport, message).await;
    }
}

/// Whether an answer says where the user has to go before the call is made again.
fn has_to_visit(message: &[u8]) -> bool {
    match envelope::read(message) {
        Ok(Message::Response(Response { outcome: Outcome::Error(error), .. })) => {
            errors::urls_to_visit(error.get()).is_some()
        }
        _ => false,
    }
}

/// What a server says of a call that came to nothing since its client lacks something. `None`: it did not. A tool that does
/// without may fail of something else, which is for the client to read as it is, and a call whose client has to visit a
/// URL first goes on.
fn failure<'a>(response: &Response<'a>) -> Option<Option<Text<'a>>> {
    match response.outcome {
        Outcome::Error(error) if errors::urls_to_visit(error.get()).is_some() => None,
        Outcome::Error(error) => Some(object::at(error.get(), &["message"]).and_then(string)),
        Outcome::Result(result) if object::at(result.get(), &["isError"]) == Some("true") => {
            let blocks = object::at(result.get(), &["content"]).and_then(|blocks| elements(blocks).ok());
            let mut texts = blocks
                .into_iter()
                .flatten()
                .filter_map(|block| object::at(block, &["text"]).and_then(string));
            texts.find(|text| text.contains(UNDECLARED)).map(Some)
        }
        Outcome::Result(_) => None,
    }
}
