//! What the server asks is put to the client, which comes back with the answers.

use std::time::SystemTime;

use longshore_mcp::error::Code;
use longshore_mcp::parked::Next;
use longshore_sessions::RequestState;
use longshore_sessions::request_state::CallNumber;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Call;
use super::stage::{Stage, Waiting};
use crate::upstream::Failure;
use crate::upstream::legacy_as_modern::asked::Asked;
use crate::upstream::legacy_as_modern::client::Client;
use crate::upstream::legacy_as_modern::failure::Failure as Unusable;
use crate::upstream::legacy_as_modern::listening::LATE;
use crate::upstream::legacy_as_modern::session::ERRAND;
use crate::upstream::legacy_as_modern::state::expiry;

impl Call {
    /// Puts what is open to the client, and waits for it.
    pub(super) async fn ask(&mut self, mut client: Client) {
        if !self.parked.is_waiting() {
            // The server has taken it back.
            return self.go_on(client).await;
        }
        match self.park(&client.asked) {
            Ok((waiting, result)) => {
                self.stage = Stage::Waiting(Box::new(waiting));
                client.result(&result).await;
            }
            Err(Failure::LegacyAsModern(Unusable::TooManyRounds(many))) => {
                self.abandon("the client was asked too often").await;
                client.refuse(Code::InternalError, &many.to_string()).await;
            }
            Err(failure) => {
                self.abandon("the client cannot be asked").await;
                client.fail(failure).await;
            }
        }
    }

    /// A place to wait at, and what the client is asked.
    fn park(&mut self, asked: &Asked) -> Result<(Waiting, String), Failure> {
        let snapshot = self.way.legacy_as_modern.snapshot().ok_or(Unusable::Internal)?;
        let (mut bits, mut nonce) = ([0; 16], [0; 12]);
        getrandom::fill(&mut bits).map_err(|_| Unusable::Internal)?;
        getrandom::fill(&mut nonce).map_err(|_| Unusable::Internal)?;
        let (call, principal) = (CallNumber(bits), self.way.principal());
        let (to, back) = mpsc::channel(1);
        let place = self.way.legacy_as_modern.parking.park(call, principal, to)?;
        let patience = self.way.legacy_as_modern.patience;
        let expires = expiry(SystemTime::now(), patience);
        let owner = self.way.legacy_as_modern.me.clone();
        let plain = RequestState { owner, call, principal, request: asked.digest(), expires };
        let state = snapshot.keyring.seal_request_state(&plain, nonce).map_err(|_| Unusable::Internal)?;
        let info = self.session.info.as_deref();
        let result = self.parked.round(&state, info).map_err(Unusable::TooManyRounds)?;
        Ok((Waiting { place, back, until: Instant::now() + patience, ended: None }, result))
    }

    /// The client is back.
    pub(super) async fn back(&mut self, mut client: Client, mut waiting: Box<Waiting>) {
        if let Some(ended) = waiting.ended.take() {
            return self.finish(ended, client).await;
        }
        let can = client.asked.can.clone();
        let next = match self.parked.answered(client.asked.responses.as_deref(), can) {
            Ok(next) => next,
            Err(bad) => {
                waiting.place.wait_again();
                self.stage = Stage::Waiting(waiting);
                return client.refuse(Code::InvalidParams, &bad.to_string()).await;
            }
        };
        drop(waiting);
        if !self.parked.is_waiting() {
            self.forget_questions();
        }
        self.lacks = self.parked.lacking();
        if !self.is_unsent {
            self.number.set_level(&self.way.transport, client.asked.level).await;
        }
        match next {
            Next::Tell(messages) => {
                if let Some(client) = self.deliver(&messages, client).await {
                    self.go_on(client).await;
                }
            }
            Next::AskAgain(messages) => {
                if let Some(client) = self.deliver(&messages, client).await {
                    self.ask(client).await;
                }
            }
            Next::CallAgain => self.make_again(client).await,
            Next::Declined(error) => client.error(&error).await,
        }
    }

    /// Gives the server what it has asked for, or ends the call.
    async fn deliver(&mut self, answers: &[String], mut client: Client) -> Option<Client> {
        for answer in answers {
            if self.is_unsent {
                // Whether it is lost, or has forgotten the session, the call finds out.
                let _ = self.hand(answer).await;
                continue;
            }
            if let Err(failure) = self.hand_over(answer).await {
                client.fail(failure).await;
                return None;
            }
        }
        Some(client)
    }

    /// Gives the server an answer. One that takes its time to say that it has it may go on by then, or may not have it yet:
    /// it is not withdrawn.
    async fn hand(&self, answer: &str) -> Result<(), Failure> {
        let (session, way, answer) = (self.session.clone(), self.way.clone(), answer.to_owned());
        let mut handed = Box::pin(async move { session.hand_over_patiently(&way.transport, &answer).await });
        let Ok(sent) = timeout(ERRAND, &mut handed).await else {
            tokio::task::spawn_local(timeout(LATE, handed));
            return Ok(());
        };
        sent
    }

    /// The same in the middle of the call. A server that cannot have it would wait for ever, and its client with it: the call
    /// is over.
    pub(super) async fn hand_over(&mut self, answer: &str) -> Result<(), Failure> {
        let Err(failure) = self.hand(answer).await else { return Ok(()) };
        self.abandon("an answer did not reach the server").await;
        // It has seen the call, which must not be made again.
        Err(if failure.is_absence() { Unusable::Gone.into() } else { failure })
    }

    /// Goes on with the call. If the server has not heard of it, it does now.
    async fn go_on(&mut self, mut client: Client) {
        if std::mem::take(&mut self.is_unsent) {
            // What its client has brought back is good for one call, as after a visit.
            self.is_again = true;
            self.number.set_level(&self.way.transport, client.asked.level).await;
            if let Err(failure) = self.send(&client.asked) {
                return client.fail(failure).await;
            }
        }
        self.stage = Stage::Serving(client);
    }

    /// None is open any more.
    pub(super) fn forget_questions(&mut self) {
        if let Some(share) = &mut self.questions {
            share.shrink(0);
        }
    }

    /// Makes the call from the start in the same session, in which the server knows what its user has done.
    pub(super) async fn make_again(&mut self, mut client: Client) {
        self.is_again = true;
        match self.call_again(&client.asked).await {
            Ok(()) => self.stage = Stage::Serving(client),
            Err(failure) => client.fail(failure).await,
        }
    }

    async fn call_again(&mut self, asked: &Asked) -> Result<(), Failure> {
        (self.number, self.inbox) = self.session.number(&asked.id)?;
        self.number.set_level(&self.way.transport, asked.level).await;
        self.parked.sent_again(&self.number.number.to_string());
        self.send(asked)
    }
}
