//! Answers that come as events.

mod first;

use std::borrow::Cow;
use std::pin::pin;

use bytes::Bytes;
pub(super) use first::first_answer;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt;
use longshore_mcp::batch;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::revision::Revision;
use longshore_mcp::sse::{Decoder, Event};
use tokio::time::{Duration, Instant, sleep};

use super::answer::hold_in_time;
use super::carry;
use super::client::Client;
use super::deadline::Deadline;
use super::edit::{Looked, look};
use super::{Call, Done, Edit, request};
use crate::held::{Coming, Share};
use crate::rescue::Refusal;
use crate::stack::standing;
use crate::upstream::missed::{Missed, Told};
use crate::upstream::{self, Answer, EDITABLE, Lease, Pause, Tail};

/// How long to wait before a stream is asked for again, if the server does not say, and at least.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MINIMUM: Duration = Duration::from_millis(50);

/// Whether a server gives its stream of what belongs to no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Stream,
    /// It has one, and does not give it now.
    NotNow,
    /// It has said nothing.
    NotInTime,
    /// It was not there.
    NotThere,
}

/// What its client is to be told of what it may have missed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Due {
    #[default]
    Nothing,
    /// As soon as the server was told what it has set, or that was in vain.
    Missed,
    /// That was in vain: once more when the server knows it.
    InTheEnd,
}

/// A stream of events from the server.
pub(super) struct Source {
    body: upstream::Body,
    lease: Lease,
    decoder: Decoder,
    coming: Coming,
    /// What the server speaks, if it has sessions.
    revision: Option<Revision>,
    /// Where the stream can be taken up again when it ends early: its last event's id.
    last: Option<String>,
    /// What the server called the session when it was asked for the stream, if that is of no call.
    within: Option<HeaderValue>,
    retry: Duration,
    pause: Pause,
    /// How one of no call is not whole, and whether its server may be another one.
    missed: Missed,
    /// Its server gives it.
    is_given: bool,
    /// How often in a row it has said nothing instead.
    mute: u32,
    /// What its client is to be told, once it is.
    due: Due,
    /// When it was not given last, or broke off, and cannot be taken up again.
    pub(super) lost: Option<Instant>,
}

/// Passes events on until the answer has come. Nothing follows it.
pub(super) async fn events(
    call: &Call,
    client: &mut Client,
    body: upstream::Body,
    lease: Lease,
    deadline: Deadline,
) -> Result<Done, Refusal> {
    client.expect_events(call, &body)?;
    let is_own = body.is_of_one_call();
    let mut source = Source::new(body, lease, call.nothing_held());
    if let Some(session) = &call.session {
        source = source.speaking(session.server_revision);
    }
    let code = loop {
        let next = client.wait(call, deadline, pin!(source.next())).await?;
        let (next, is_broken) = match next {
            // A connection that breaks is as good as an early end.
            Err(Refusal::ServerLost) => (None, true),
            next => (next?, false),
        };
        let Some(data) = next else {
            // There has to be an event to go on after, and a session to say so in.
            if source.last.is_none() || request::within_still(call).is_none() {
                return Err(Refusal::ServerLost);
            }
            let again = source.again(async |last| request::resume(call, last?).await);
            let again = Box::pin(call.worker.shared.doubt.unless_gone(is_broken, again));
            let answer = client.wait(call, deadline, again).await?.ok_or(Refusal::ServerLost)?;
            source.go_on(answer);
            continue;
        };
        let mut passed = Ok(None);
        let mut unheld = None;
        source.read(&data, |event| {
            if let Ok(None) = passed {
                passed = pass(call, client, &event, is_own, &mut unheld);
            }
        })?;
        // Its client may take its time.
        drop(data);
        if let Some(event) = unheld {
            let mut share = call.nothing_held();
            // Not while it waits for its client, which could begin a stream meanwhile: this has to be the only event.
            hold_in_time(&mut share, event.len(), deadline).await?;
            client.only_event(share.keep(event));
        }
        if let Some(code) = passed? {
            break code;
        }
        source.settle();
        let waits = Instant::now();
        // Whoever has the turn holds others up, and is waited for no longer than a server would be.
        source.while_it_may(client.room(deadline)).await.ok_or(Refusal::AnswerNotHeld)?;
        source.held_up(waits.elapsed());
    };
    Ok(Done { status: StatusCode::OK.as_u16(), code, rest: Some(Tail::of(source.body, source.lease)) })
}

/// Passes an event on, which certainly is of this call if it `is_own`. If it is the answer: its code, if it is an error. An
/// answer that there is no room for now is left in `unheld`.
///
/// Where the answer is edited, only what certainly is none may pass unedited: the client could recognise as its answer
/// what is none here.
fn pass(
    call: &Call,
    client: &mut Client,
    event: &Event<'_>,
    is_own: bool,
    unheld: &mut Option<Bytes>,
) -> Result<Option<Option<i64>>, Refusal> {
    // Clients ignore types that they do not know, and so does this: what is in them may not be a message.
    let Some(data) = event.message() else { return Ok(None) };
    let is_edited = matches!(call.edit, Edit::Filter(_));
    let looked = look(call, data)?;
    let is_question = matches!(looked, Looked::Question);
    match looked {
        Looked::Answer(edited) => {
            *unheld = match &edited.text {
                Some(text) => client.answer(call, text.as_bytes(), None)?,
                None => client.answer(call, data, event.shared_data())?,
            };
            return Ok(Some(edited.code));
        }
        Looked::Unasked if !is_edited => {
            tracing::debug!("the server answered what nobody asked in this call");
            return Ok(None);
        }
        Looked::Unreadable => {
            if let (Some(session), Some(refusal)) = (&call.session, envelope::refusal_of_number(data)) {
                request::tell(&call.worker, &call.snapshot, session, refusal);
                return Ok(None);
            }
        }
        Looked::Unasked | Looked::Aside | Looked::Question => {}
    }
    if is_edited && !is_aside(data) {
        return Err(Refusal::ServerNonsense);
    }
    // A batch of a server that may not write any: nobody has looked at what is in it.
    if batch::is_array(data) {
        return Ok(None);
    }
    let principal = &call.caller.principal;
    if call.session.is_some() && !standing::may_hear(&call.worker.shared, principal, data) {
        return Ok(None);
    }
    let heard = match &call.session {
        Some(session) => carry::heard(call, session, data),
        None => Some(Cow::Borrowed(data)),
    };
    if let Some(data) = heard {
        match &call.session {
            Some(session) if is_question => client.ask(call, session, &data, is_own)?,
            _ => client.event(call, &data)?,
        }
    }
    Ok(None)
}

impl Source {
    /// That of a call. A server may have its client ask again and again until it has the answer.
    pub(super) fn new(body: upstream::Body, lease: Lease, share: Share) -> Self {
        Self {
            body,
            lease,
            decoder: Decoder::new(EDITABLE),
            coming: Coming::new(Some(share)),
            revision: None,
            last: None,
            within: None,
            retry: RETRY,
            pause: Pause::new(RETRY),
            missed: Missed::default(),
            is_given: true,
            mute: 0,
            due: Due::Nothing,
            lost: None,
        }
    }

    /// One of no call, which nobody waits for: it is asked for after this time at most where it ends again and again
    /// without a word. The server was asked for it in the session that it calls so.
    pub(super) fn of_no_call(self, latest: Duration, within: Option<HeaderValue>) -> Self {
        Self { pause: Pause::new(latest), within, ..self }
    }

    /// In which session that was.
    pub(super) fn within(&self) -> Option<HeaderValue> {
        self.within.clone()
    }

    /// The same of a server that speaks this in a session.
    pub(super) fn speaking(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    /// What comes next. None: the stream has ended in an orderly way.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        if !self.coming.room().await {
            return Err(Refusal::AnswerNotHeld);
        }
        while let Some(frame) = self.coming.more(self.body.frame()).await.ok_or(Refusal::AnswerNotHeld)? {
            self.coming.take_turn(self.body.take_turn());
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Nothing of it is wanted any more.
    pub(super) fn finish(self) {
        Tail::of(self.body, self.lease).leave();
    }

    /// Takes data apart, and remembers where the stream is. What comes in a batch is as if it had come by itself.
    pub(super) fn read(&mut self, data: &[u8], mut each: impl FnMut(Event<'_>)) -> Result<(), Refusal> {
        let Self { decoder, coming, revision, last, retry, pause, .. } = self;
        let read = decoder.push(data, |event| {
            coming.complete();
            if let Some(id) = &event.id {
                // What no header can say is nothing to come back with.
                let can_be_said = |id: &String| !id.is_empty() && HeaderValue::from_str(id).is_ok();
                *last = Some(id.clone().into_owned()).filter(can_be_said);
            }
            if let Some(milliseconds) = event.retry {
                *retry = Duration::from_millis(milliseconds);
            }
            pause.spoke |= data_of(&event).is_some();
            match event.message().and_then(|data| batch::parts(data, *revision)) {
                Some(parts) => parts.into_iter().for_each(|part| {
                    each(Event::of(part.as_bytes()));
                }),
                None => each(event),
            }
        });
        coming.came(decoder.pending());
        read.map_err(|_| Refusal::AnswerTooLarge { limit: EDITABLE })
    }

    /// What was read has found its place, and whoever reads it is waited for.
    pub(super) fn settle(&mut self) {
        self.coming.settle();
    }

    /// Waits for whoever reads: while others wait for the turn that this has, as long as for a server. None: it takes longer.
    pub(super) async fn while_it_may<T>(&self, reads: impl Future<Output = T>) -> Option<T> {
        self.coming.more(reads).await
    }

    /// Closes the connection in the middle: a server that has one stream for a session is asked for it again.
    pub(super) fn leave(&mut self) {
        self.body = upstream::Body::Whole(None);
        self.broke_off();
    }

    /// It has broken off, or ended.
    pub(super) fn broke_off(&mut self) {
        self.missed.gap.broke_off();
        if self.last.is_none() {
            self.lost = Some(Instant::now());
        }
    }

    /// Whether its server gave it when it was asked. Says whether that may be another one than before.
    pub(super) fn note_given(&mut self, given: Given) -> bool {
        self.is_given = given == Given::Stream;
        if given != Given::Stream {
            self.lost = Some(Instant::now());
            self.missed.gap.was_absent();
        }
        // Another one may come, to which the last event says nothing: some wait for what follows such an event, for ever.
        let is_another = given == Given::NotThere || given == Given::Stream && self.begins_anew();
        if is_another && self.within.is_none() {
            self.last = None;
            self.missed.note_gone();
        }
        self.mute = if given == Given::NotInTime { self.mute + 1 } else { 0 };
        is_another
    }

    /// Whether it is asked for as if nothing were known of it. One that says nothing may only have nothing to say, and go on
    /// after its last event; or it is another one, which waits for what follows that. It is asked in both ways in turn.
    fn begins_anew(&self) -> bool {
        self.within.is_none() && self.last.is_some() && self.mute > 0 && self.mute.is_multiple_of(2)
    }

    /// After which event it is asked for.
    fn last(&self) -> Option<&str> {
        self.last.as_deref().filter(|_| !self.begins_anew())
    }

    /// Its client is to be told as soon as the server was told what it has set. Says whether it waits for something else.
    pub(super) fn note_missed(&mut self) -> bool {
        let waited = self.is_due_in_the_end();
        self.due = Due::Missed;
        waited
    }

    /// Whether its client was told, and is told once more when the server knows what it has set.
    pub(super) fn is_due_in_the_end(&self) -> bool {
        self.due == Due::InTheEnd
    }

    /// Whether there is a stream to be told in.
    pub(super) fn is_given(&self) -> bool {
        self.is_given
    }

    /// Whether something may have been said since the one before this one, which is given in the session that the server calls
    /// so, and its client is to be told now.
    pub(super) fn has_missed(&mut self, within: Option<&HeaderValue>) -> bool {
        // It goes on after the last event.
        if self.last().is_some() {
            self.missed.gap.note_whole(within.is_some());
        }
        self.missed.gap.ends() || self.within.as_ref() != within
    }

    /// Returns when its client is to be told of what it has missed, or of what was put off.
    pub(super) fn due(&self) -> impl Future<Output = ()> + use<> {
        let (is_due, due) = (self.due != Due::Nothing && self.is_given, self.missed.gap.due());
        async move {
            if !is_due {
                due.await;
            }
        }
    }

    /// Since when its server may be another one, and is first told what its client has set.
    pub(super) fn lost_for_another(&self) -> Option<Instant> {
        self.lost.filter(|_| self.missed.may_be_anothers(self.within.is_some()))
    }

    /// It is told, and before that its server was `told` what it has set. Where that was in vain, and the server is told that
    /// again by itself (`is_unset`), its client is due as soon as it knows it.
    pub(super) fn note_told(&mut self, told: Told, is_unset: bool) {
        self.due = if told == Told::Nothing && is_unset { Due::InTheEnd } else { Due::Nothing };
        self.missed.note_told(told, self.within.is_some());
        if told != Told::All && self.within.is_none() {
            self.lost.get_or_insert_with(Instant::now);
        }
    }

    /// Whoever reads was waited for, for so long.
    pub(super) fn held_up(&mut self, time: Duration) {
        self.coming.held_up(time);
    }

    /// Asks, after a while, for a stream again that a server ended early, as it may from 2025-11-25 on, or whose connection
    /// broke. The client need not know: its own stream goes on.
    pub(super) async fn again<T>(&mut self, ask: impl AsyncFnOnce(Option<&str>) -> Option<T>) -> Option<T> {
        // Half an event was never sent, and comes again.
        self.decoder = Decoder::new(EDITABLE);
        self.coming.finish();
        sleep(self.retry.max(RETRY_MINIMUM).max(self.pause.ended())).await;
        ask(self.last()).await
    }

    /// Goes on with another answer.
    pub(super) fn go_on(&mut self, answer: Answer) {
        let Answer { response, lease } = answer;
        (self.body, self.lease) = (response.into_body(), lease);
        self.pause.go_on();
    }

    /// The same with one that the server gave in the session that it calls so. Events of the session before are none in it.
    pub(super) fn go_on_within(&mut self, within: Option<HeaderValue>, answer: Answer) {
        if self.within != within {
            (self.within, self.last) = (within, None);
        }
        self.go_on(answer);
    }
}

/// What an event holds, if it holds anything.
fn data_of<'a>(event: &'a Event<'_>) -> Option<&'a [u8]> {
    event.data.as_deref().filter(|data| !data.is_empty())
}

/// Whether data is none that a client could take for an answer: a request or a notification.
pub(super) fn is_aside(data: &[u8]) -> bool {
    matches!(envelope::read(data), Ok(Message::Request(_) | Message::Notification(_)))
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::held::{Bounds, Shares};
    use crate::upstream::gap::SELDOM;

    /// The one that was told may not be the one that is there now.
    #[tokio::test(start_paused = true)]
    async fn a_server_whose_stream_ends_while_it_is_told_what_its_client_has_set_is_told_once_more() {
        let Answer { response, lease } = Answer::nothing();
        let share = Shares::new(Bounds { total: 1, per_principal: 1 }).nothing(&"a".into());
        let mut source = Source::new(response.into_body(), lease, share).of_no_call(RETRY, None);
        for ends in [true, false] {
            source.broke_off();
            assert!(source.has_missed(None) && source.lost_for_another().is_some(), "{ends}");
            tokio::time::advance(RETRY).await;
            let begun = Some(Instant::now());
            tokio::time::advance(RETRY).await;
            if ends {
                source.broke_off();
                let _ = source.has_missed(None);
            }
            let told = if begun < source.lost { Told::InDoubt } else { Told::All };
            source.note_told(told, false);
            let due = timeout(SELDOM * 2, source.due()).await;
            assert_eq!(due.is_ok(), ends);
        }
    }

    /// It was taken over, say, and no stream of it ever broke.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_told_in_vain_is_told_once_more_and_that_is_all() {
        let Answer { response, lease } = Answer::nothing();
        let share = Shares::new(Bounds { total: 1, per_principal: 1 }).nothing(&"a".into());
        let mut source = Source::new(response.into_body(), lease, share).of_no_call(RETRY, None);
        assert!(!source.note_missed());
        source.note_told(Told::Nothing, true);
        assert!(timeout(RETRY, source.due()).await.is_ok() && source.is_due_in_the_end());
        assert!(source.note_missed() && !source.is_due_in_the_end());
        source.note_told(Told::Nothing, false);
        assert!(timeout(RETRY, source.due()).await.is_err());
        source.due().await;
        assert!(source.lost_for_another().is_some());
        source.note_told(Told::All, false);
        assert!(timeout(SELDOM * 2, source.due()).await.is_err());
    }

    #[test]
    fn only_what_is_no_answer_passes_beside_one() {
        for (data, aside) in [
            (r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","id":-0,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","id":1.0,"result":{"tools":[]}}"#, false),
            (r#"{"jsonrpc":"2.0","error":{}}"#, false),
            (r#"{"jsonrpc":"2.0","Id":1,"Result":{"tools":[]}}"#, false),
            (r#"[{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}]"#, false),
            ("hello", false),
        ] {
            assert_eq!(is_aside(data.as_bytes()), aside, "{data}");
        }
    }
}
