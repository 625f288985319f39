//! What the server says in a session that belongs to no call, or does not say to which.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::{Method, StatusCode};
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::method::{ServerNotification, ServerRequest};
use longshore_mcp::params::Params;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::listening::deliver;
use super::missed::make_up;
use super::session::Session;
use super::source::{Heard, get};
use crate::upstream::forgotten::{Says, says};
use crate::upstream::missed::Missed;
use crate::upstream::source::Source;
use crate::upstream::waiting::Sender;
use crate::upstream::{Answer, Transport};

/// How long a call waits for the stream to be there before it is sent: a server that begins its stream with the first
/// event must not hold it up.
pub(super) const OPEN: Duration = Duration::from_secs(1);
/// The same of a call that nothing said there is put to its client of. What the server asks has to be refused all the same,
/// and many ask nobody, and wait for an answer, where there is no stream yet; those that give one do so at once.
pub(super) const SOON: Duration = Duration::from_millis(250);
/// How often in a row the server is asked for the stream in vain.
const AGAIN: u32 = 8;
/// After how long it is asked again at most that has its stream asked for again and again, without a word in it.
const LATEST: Duration = Duration::from_secs(2);
/// How long it is left after it did not give one.
const BREATHER: Duration = Duration::from_secs(1);
/// How long a call, or a stream, is waited for that is busy with what it has heard.
pub(super) const BUSY: Duration = Duration::from_secs(1);
/// After how long without an event many proxies close a stream.
const QUIET: Duration = Duration::from_secs(10);

/// The task that hears, if there is one.
#[derive(Default)]
pub(super) struct Hearing {
    task: Mutex<Option<AbortHandle>>,
    /// When it was begun, and what closes once its stream is there, or there is none.
    beginning: Mutex<Option<(Instant, watch::Receiver<()>)>>,
}

/// The calls that were waited for in vain: their clients read slowly, or not at all, and what else the server says does
/// not wait for them again until they have taken something.
#[derive(Default)]
pub(super) struct Deaf(Vec<Sender<Heard>>);

/// What asking for the stream has come to.
enum Opened {
    Stream,
    /// The server has none.
    None,
    /// The server does not know the session.
    Forgotten,
    /// It was not reached, or does not give it now.
    Failed,
    /// It was not reached, and another one may be there next, which gave no session ids either.
    Gone,
}

impl Hearing {
    /// Ends it.
    pub(super) fn end(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }

    /// Whether anybody hears.
    pub(super) fn goes_on(&self) -> bool {
        self.task.lock().as_ref().is_some_and(|task| !task.is_finished())
    }

    /// There is no stream to be had. Gives it up, unless somebody wants it: who does later may ask once more. Says whether
    /// it is given up.
    ///
    /// Whoever wants it says so before they look whether it is begun, perhaps on another thread: they are seen here, or see
    /// that it is not.
    fn give_up_unless(&self, is_wanted: impl FnOnce() -> bool) -> bool {
        let mut task = self.task.lock();
        if is_wanted() {
            return false;
        }
        *task = None;
        true
    }

    /// Begins it, unless it is begun. Says whether it was not.
    fn begin_with(&self, spawn: impl FnOnce() -> Option<AbortHandle>) -> bool {
        let mut task = self.task.lock();
        if task.is_some() {
            return false;
        }
        *task = spawn();
        task.is_some()
    }
}

impl Deaf {
    /// Gives a message to a call. Says whether there was room for it.
    pub(super) async fn give(&mut self, inbox: Sender<Heard>, heard: Heard) -> bool {
        self.0.retain(|deaf| !deaf.is_closed());
        let deaf = self.0.iter().position(|deaf| deaf.is_same(&inbox));
        let given = match deaf {
            Some(_) => inbox.try_send(heard),
            None => timeout(BUSY, inbox.send(heard)).await.is_ok_and(|sent| sent.is_ok()),
        };
        match deaf {
            Some(deaf) if given => drop(self.0.swap_remove(deaf)),
            None if !given => self.0.push(inbox),
            _ => {}
        }
        given
    }
}

/// Begins to hear what the server says in a session, if nobody does yet, and waits until its stream is there, for so long
/// after it was begun, by whomever. It goes on until the session is over, or there is nothing to be had; a stream of the
/// session is open before this, or could be left without it.
pub(super) async fn begin(session: &Arc<Session>, transport: &Rc<Transport>, patience: Duration) {
    let hearing = &session.hearing;
    hearing.begin_with(|| {
        // One that ends after this looked ends what is begun here.
        if session.is_over() {
            return None;
        }
        let (told, there) = watch::channel(());
        *hearing.beginning.lock() = Some((Instant::now(), there));
        let hears = hear(Arc::downgrade(session), transport.clone(), told);
        Some(tokio::task::spawn_local(hears).abort_handle())
    });
    // Whoever began it may have had less patience.
    let beginning = hearing.beginning.lock().clone();
    if let Some((since, mut there)) = beginning {
        let _ = timeout_at(since + patience, there.changed()).await;
    }
}

async fn hear(session: Weak<Session>, transport: Rc<Transport>, told: watch::Sender<()>) {
    let mut told = Some(told);
    let none_yet = |session: Arc<Session>| {
        let Answer { body, lease, .. } = Answer::nothing();
        Source::new(body, lease, transport.coming_for(&session.opener))
            .asked_for_within(LATEST)
            .speaking(session.revision)
    };
    let Some(mut source) = session.upgrade().map(none_yet) else { return };
    let mut deaf = Deaf::default();
    let mut missed = Missed::default();
    let (mut vain, mut failed, mut was_there) = (0, 0, false);
    // What it numbers it has to give later too: a server may end its stream as often as it likes, and be asked again.
    while vain <= AGAIN || source.last().is_some() {
        let opened = match session.upgrade() {
            Some(session) => open(&session, &transport, &mut source).await,
            None => return,
        };
        // Nobody waits any more if it took long.
        drop(told.take());
        match opened {
            Opened::Stream => {
                (failed, was_there) = (0, true);
                let began = Instant::now();
                // What it numbers comes in this one, if it is the one before that numbers it.
                if source.last().is_some() {
                    missed.gap.note_whole(session.upgrade().is_some_and(|session| session.is_named()));
                }
                if missed.gap.ends() && !make_up(&session, &transport, &mut missed).await {
                    return;
                }
                loop {
                    let next = tokio::select! {
                        // A server that always has something to say puts it off no further.
                        biased;
                        () = missed.gap.due() => None,
                        next = source.messages() => Some(next),
                    };
                    let messages = match next {
                        Some(Ok(Some(messages))) => messages,
                        Some(Ok(None) | Err(_)) => break,
                        None if make_up(&session, &transport, &mut missed).await => {
                            continue;
                        }
                        None => return,
                    };
                    vain = 0;
                    let Some(session) = session.upgrade() else { return };
                    for message in messages {
                        route(&session, &transport, message, &mut deaf).await;
                    }
                }
                missed.gap.broke_off();
                // One that is closed for being quiet was not in vain.
                if began.elapsed() >= QUIET {
                    vain = 0;
                }
                source.ended().await;
            }
            // What it has said before is not to be had any more; what it says from now on may be.
            Opened::None if source.last().is_some() => {
                source.forget_last();
                sleep(BREATHER).await;
            }
            // Who has had one and gives none any more may be another server, which tells in another way.
            Opened::None if was_there => break,
            Opened::None => return,
            Opened::Forgotten => {
                if let Some(session) = session.upgrade() {
                    session.end();
                }
                return;
            }
            opened @ (Opened::Failed | Opened::Gone) => {
                missed.gap.was_absent();
                failed += 1;
                let is_gone = matches!(opened, Opened::Gone);
                if is_gone {
                    missed.note_gone();
                }
                if failed > AGAIN || is_gone {
                    source.forget_last();
                }
                sleep(BREATHER).await;
            }
        }
        vain += 1;
    }
    let Some(session) = session.upgrade() else { return };
    if !session.hearing.give_up_unless(|| session.with_streams(|_, listeners| !listeners.is_empty())) {
        // Whoever listens is told by the end of their streams.
        session.leave();
    }
}

async fn open(session: &Session, transport: &Transport, source: &mut Source) -> Opened {
    let Ok(answer) = get(session, transport, source.last()).await else {
        return if session.is_named() { Opened::Failed } else { Opened::Gone };
    };
    if answer.is_stream() {
        source.go_on(answer);
        return Opened::Stream;
    }
    let status = answer.status;
    drop(answer);
    if session.is_forgotten(transport, &Method::GET, status).await {
        return Opened::Forgotten;
    }
    match status {
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Opened::None,
        status if status.is_success() || says(&Method::GET, status) == Says::Perhaps => Opened::None,
        // Not now: it may be busy, or think that the stream before is still there.
        _ => Opened::Failed,
    }
}

/// Gives a message to whom it is for.
async fn route(session: &Arc<Session>, transport: &Transport, message: Bytes, deaf: &mut Deaf) {
    match envelope::read(&message) {
        Ok(Message::Notification(notification)) => {
            let params = Params::read(notification.params).unwrap_or_default();
            match ServerNotification::parse(&notification.method) {
                Some(ServerNotification::Progress) => {
                    if let Some(token) = params.reported_token() {
                        session.report(token, message.clone(), deaf).await;
                    }
                }
                Some(
                    ServerNotification::ToolsListChanged
                    | ServerNotification::PromptsListChanged
                    | ServerNotification::ResourcesListChanged
                    | ServerNotification::ResourcesUpdated,
                ) => {
                    if let Ok(text) = std::str::from_utf8(&message) {
                        deliver(session, text).await;
                    }
                }
                // What could be about several calls is about none.
                Some(ServerNotification::Message | ServerNotification::Cancelled) => {
                    session.aside(message.clone(), deaf).await;
                }
                _ => {}
            }
        }
        Ok(Message::Request(request)) => {
            if ServerRequest::parse(&request.method) != Some(ServerRequest::Ping) {
                session.note_question_aside();
            }
            session.asked(transport, message.clone(), &request, deaf).await;
        }
        // An answer belongs to a call's own stream; what is no message belongs nowhere.
        Ok(Message::Response(_)) => {}
        Err(_) => {
            if let Some(refusal) = envelope::refusal_of_number(&message) {
                session.tell(transport, &refusal).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// A client on another thread opens its stream while it is decided here that nobody has one.
    #[tokio::test]
    async fn a_stream_that_is_given_up_is_begun_for_who_comes_meanwhile() {
        let task = tokio::spawn(pending::<()>()).abort_handle();
        let hearing = Arc::new(Hearing::default());
        assert!(hearing.begin_with(|| Some(task.clone())));
        let is_open = Arc::new(AtomicBool::new(false));
        let (opened, comes) = channel();
        let mut client = None;
        let given_up = hearing.give_up_unless(|| {
            let nobody = !is_open.load(Ordering::SeqCst);
            let (hearing, is_open, task) = (hearing.clone(), is_open.clone(), task.clone());
            client = Some(thread::spawn(move || {
                is_open.store(true, Ordering::SeqCst);
                opened.send(()).unwrap();
                hearing.begin_with(|| Some(task))
            }));
            comes.recv().unwrap();
            // Long enough for one that does not wait for this.
            thread::sleep(Duration::from_millis(50));
            !nobody
        });
        assert!(given_up);
        assert!(client.unwrap().join().unwrap(), "it is begun once more");
        assert!(
            !hearing.give_up_unless(|| is_open.load(Ordering::SeqCst)),
            "and not given up for that client"
        );
    }
}
