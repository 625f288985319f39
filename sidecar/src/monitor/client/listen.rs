//! What the server says on its own account, by which the sidecar hears that a list has changed.

use std::cell::Cell;
use std::rc::Rc;

use http::StatusCode;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::sse::Decoder;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep};

use super::wire::heard;
use super::{CallError, MAX_ANSWER, Server};
use crate::upstream::{Answer, Form, Letter, Pause};

/// How long to wait at least before a stream is asked for again, since each costs the server its lists too; and at most where
/// it is of no use time and again, unless the server says so.
const REOPEN: Duration = Duration::from_secs(1);
const REOPEN_AT_MOST: Duration = Duration::from_secs(60);

/// Listening for notifications; it ends when this is dropped.
pub(in crate::monitor) struct Listening(JoinHandle<()>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How the server's streams come and go.
struct Course {
    pause: Pause,
    /// How long the server wants to be left alone between them.
    retry: Duration,
    /// Something may have changed while nobody listened.
    has_missed: bool,
    /// The last one has broken, or nobody was there to give one: the server may be another one by now.
    is_broken: bool,
    /// Nothing has listened at its port meanwhile.
    was_away: bool,
}

/// What a listener tells.
#[derive(Default)]
pub(in crate::monitor) struct News {
    /// A list has changed, or may have while nobody listened.
    pub(in crate::monitor) changed: Notify,
    /// The server does not know the session any more, or is not there: that should be looked for.
    pub(in crate::monitor) doubtful: Notify,
    /// It gives its stream again after one has broken, and may have been restarted meanwhile.
    pub(in crate::monitor) again: Notify,
    /// It was, or another one is there at its port.
    pub(in crate::monitor) was_away: Cell<bool>,
}

impl Server {
    /// Listens to what the server says, if it offers that.
    pub(in crate::monitor) fn listen(&self, told: Rc<News>) -> Listening {
        let server = Self {
            upstream: self.upstream.clone(),
            pool: self.pool.clone(),
            pin: self.pin,
            opener: self.opener.clone(),
            session: self.session.clone(),
            face: self.face,
            hold: None,
            revision: self.revision,
        };
        Listening(tokio::task::spawn_local(async move {
            let pause = Pause::new(REOPEN_AT_MOST);
            let mut course =
                Course { pause, retry: REOPEN, has_missed: false, is_broken: false, was_away: false };
            loop {
                if let Err(error) = server.notifications(&told, &mut course).await {
                    tracing::debug!(%error, "the server's notifications cannot be heard");
                    // It is most likely to be missed now, which nothing else may tell by its next turn.
                    let is_broken = matches!(error, CallError::Lost | CallError::Refused { .. });
                    course.is_broken |= is_broken;
                    course.was_away |= matches!(error, CallError::Refused { .. });
                    if is_broken || matches!(error, CallError::SessionGone) {
                        told.doubtful.notify_one();
                    }
                    // 405: it does not offer it. Anything else shows in the pings too.
                    if !error.may_give_its_stream() {
                        return;
                    }
                }
                sleep(course.retry.max(REOPEN).max(course.pause.ended())).await;
                course.pause.go_on();
                course.has_missed = true;
            }
        }))
    }

    /// What it says in one stream.
    async fn notifications(&self, told: &News, course: &mut Course) -> Result<(), CallError> {
        let stream = self.within().map(|within| Letter::stream(within, None));
        let Answer { status, also, mut body, lease: _lease } =
            self.send(stream.ok_or(CallError::SessionGone)?).await?;
        if status != StatusCode::OK {
            return Err(self.status(status, also));
        }
        // A page for people, say: it has no stream, as clients are told then.
        if body.form() != Form::Events {
            return Err(self.not_mcp("it is no stream of events"));
        }
        // Not before: what changes while it is being opened would be missed again.
        if std::mem::take(&mut course.has_missed) {
            told.changed.notify_one();
        }
        if std::mem::take(&mut course.is_broken) {
            told.was_away.set(told.was_away.get() || std::mem::take(&mut course.was_away));
            told.again.notify_one();
        }
        let mut decoder = Decoder::new(MAX_ANSWER);
        let Course { pause, retry, .. } = course;
        let mut note = |milliseconds| *retry = Duration::from_millis(milliseconds);
        while let Some(messages) = heard(&mut body, &mut decoder, &mut note).await? {
            pause.spoke |= !messages.is_empty();
            for message in messages.iter().flat_map(|said| self.parts(said)) {
                match envelope::read(message) {
                    Ok(Message::Notification(notification))
                        if notification.method.ends_with("/list_changed") =>
                    {
                        told.changed.notify_one();
                    }
                    Ok(Message::Request(request)) => self.reply(&request).await,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
