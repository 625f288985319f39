//! A client that listens to what the server says on its own account.

use std::rc::Rc;
use std::sync::Arc;

use futures::future::join_all;
use longshore_mcp::error::Code;
use longshore_mcp::listen::{self, Filter, Full, Opened};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::asked::Asked;
use super::client::Client;
use super::failure::Failure as Unusable;
use super::hearing::{self, BUSY};
use super::session::{ERRAND, Session};
use super::sessions::{Lease, Purpose};
use super::way::Way;
use crate::upstream::Transport;
use crate::upstream::waiting::{Sender, channel};

/// How many notifications wait for a client that reads slowly, before the server has to wait too.
const WAITING: usize = 256;
/// How long the server may take to be told of all that one client wants to hear, or does not any more. Others wait
/// meanwhile.
const TOLD: Duration = Duration::from_secs(10);

/// How late a server may take what it was asked for: later than this it has forgotten the question.
pub(super) const LATE: Duration = Duration::from_secs(60);

/// What the server of a session is told for those who listen.
#[derive(Default)]
pub(super) struct Subscribing {
    /// Held while it is told: one who listens must not be told of what another one is still asking for.
    turn: tokio::sync::Mutex<()>,
    /// What it has taken when nobody waited for that any more.
    late: Mutex<Vec<String>>,
}

/// What a server does not tell of.
#[derive(Default)]
pub(super) struct Untaken {
    uris: Vec<String>,
    /// It has said so of one of them. The others it may not have had time for.
    pub(super) is_refused: bool,
}

/// A stream of a session. It is closed when this is dropped; what the server is subscribed to for it alone is left to
/// [`unsubscribe`].
struct Stream<'a> {
    lease: &'a Lease,
    number: u64,
    closed: bool,
}

/// Serves `subscriptions/listen` until the client goes, the session ends, or the sidecar does.
pub(super) async fn run(way: Way, mut client: Client) {
    let Some(filter) = Filter::read(&client.asked.params()) else {
        let why = "\"notifications\" has to say what is to be heard of";
        return client.refuse(Code::InvalidParams, why).await;
    };
    let asked = client.asked.clone();
    let lease = tokio::select! {
        lease = way.lease(&asked, Purpose::Listen) => lease,
        () = client.gone() => return,
        () = way.left() => Err(Unusable::Left.into()),
    };
    let lease = match lease {
        Ok(lease) => lease,
        Err(failure) => return client.fail(failure).await,
    };
    let session = lease.session.clone();
    let (to, mut news) = channel(WAITING);
    let turn = tokio::select! {
        turn = session.subscribing.turn.lock() => turn,
        () = client.gone() => return,
    };
    // To its end, even if the client goes: what the server was told has to be taken back then.
    let opened = open(&way, &lease, &asked, filter, to).await;
    drop(turn);
    let (mut stream, acknowledgement) = match opened {
        Ok(opened) => opened,
        // Not for what it asks.
        Err(Full::Streams) => return client.fail(Unusable::Listeners.into()).await,
        Err(full) => return client.refuse(Code::InvalidParams, &full.to_string()).await,
    };
    client.event(&acknowledgement).await;
    let mut sent_away = way.legacy_as_modern.sent_away.clone();
    let ended = loop {
        tokio::select! {
            () = client.gone() => break false,
            message = news.recv() => match message {
                Some(message) => client.event(&message).await,
                // It does not read.
                None => break true,
            },
            () = session.ended() => break true,
            () = way.left() => break true,
            // Whether it says so or is gone itself.
            _ = sent_away.wait_for(|sent_away| *sent_away) => break true,
        }
    };
    if ended {
        let info = session.info.as_deref();
        if let Some(end) = session.with_streams(|streams, _| streams.end(stream.number, info)) {
            client.answer(200, end).await;
        }
    }
    let _turn = session.subscribing.turn.lock().await;
    let unwanted = stream.close();
    if !session.is_over() {
        unsubscribe(&session, &way.transport, &unwanted).await;
    }
}

/// Gives a notification to all streams that asked for it, to each as soon as there is room: a server may say many things in
/// one breath. Who takes nothing for as long as calls are waited for is let go: its stream ends, and it can ask again.
pub(super) async fn deliver(session: &Session, message: &str) {
    let given: Vec<_> = session.with_streams(|streams, listeners| {
        let to = |(stream, text)| Some((stream, listeners.get(&stream)?.clone(), text));
        streams.deliver(message).into_iter().filter_map(to).collect()
    });
    let give =
        given.into_iter().map(|(stream, to, text)| async move { give(session, stream, &to, text).await });
    join_all(give).await;
}

/// Gives a notification to one stream. Says whether it was taken; if it was not, the stream ends.
pub(super) async fn give(session: &Session, stream: u64, to: &Sender<String>, text: String) -> bool {
    let mut giving = Giving { session, stream, is_taken: false };
    giving.is_taken = timeout(BUSY, to.send(text)).await.is_ok_and(|sent| sent.is_ok());
    giving.is_taken
}

/// Opens a stream, and has the server told what it has to tell for it. What the server does not, is not promised. It
/// is the only one that does this in its session.
async fn open<'a>(
    way: &Way,
    lease: &'a Lease,
    asked: &Asked,
    mut filter: Filter,
    to: Sender<String>,
) -> Result<(Stream<'a>, String), Full> {
    let Opened { stream, acknowledgement, subscribe } = enter(lease, asked, &filter, &to, None)?;
    let mut stream = Stream { lease, number: stream, closed: false };
    // Now that it is open: one of the server's that cannot be had is given up when nobody listens.
    hearing::begin(&lease.session, &way.transport, hearing::OPEN).await;
    let untaken = subscribe_to(&lease.session, &way.transport, subscribe).await;
    if untaken.uris.is_empty() {
        return Ok((stream, acknowledgement));
    }
    for uri in &untaken.uris {
        filter.uris.remove(uri);
    }
    // All that is left the server tells of already.
    let Opened { stream: number, acknowledgement, .. } =
        enter(lease, asked, &filter, &to, Some(stream.number))?;
    stream.number = number;
    Ok((stream, acknowledgement))
}

/// Adds a stream, perhaps in the place of another one.
fn enter(
    lease: &Lease,
    asked: &Asked,
    filter: &Filter,
    to: &Sender<String>,
    before: Option<u64>,
) -> Result<Opened, Full> {
    let offers = lease.session.offers;
    lease.session.with_streams(|streams, listeners| {
        if let Some(before) = before {
            listeners.remove(&before);
            streams.close(before);
        }
        let opened = streams.open(&asked.id, filter.clone(), offers)?;
        listeners.insert(opened.stream, to.clone());
        Ok(opened)
    })
}

/// Has a server told once more of all that those who listen have asked for. What it does not take is
/// the error.
pub(super) async fn subscribe_again(
    session: &Arc<Session>,
    transport: &Rc<Transport>,
) -> Result<(), Untaken> {
    let _turn = session.subscribing.turn.lock().await;
    let uris = session.with_streams(|streams, _| streams.subscribed().map(str::to_owned).collect());
    let untaken = subscribe_to(session, transport, uris).await;
    if untaken.uris.is_empty() { Ok(()) } else { Err(untaken) }
}

/// Has the server told of these resources. Says of which it does not tell, or has not said so in time.
async fn subscribe_to(session: &Arc<Session>, transport: &Rc<Transport>, uris: Vec<String>) -> Untaken {
    let until = Instant::now() + TOLD;
    let mut untaken = Untaken::default();
    for uri in uris {
        // What is asked for goes on for a while: it is not begun for nobody.
        let patience = until.min(Instant::now() + ERRAND);
        if Instant::now() < until {
            let (asking, by, wanted) = (session.clone(), transport.clone(), uri.clone());
            let mut told =
                Box::pin(async move { asking.ask_patiently(&by, |id| listen::subscribe(id, &wanted)).await });
            match timeout_at(patience, &mut told).await {
                Ok(Some(true)) => continue,
                Ok(said) => untaken.is_refused |= said.is_some(),
                Err(_) => take_back(session, transport, told, &uri),
            }
        }
        untaken.uris.push(uri);
    }
    untaken
}

/// Takes a subscription back which the server takes late, unless somebody wants it by then.
fn take_back(
    session: &Arc<Session>,
    transport: &Rc<Transport>,
    told: impl Future<Output = Option<bool>> + 'static,
    uri: &str,
) {
    let (session, transport, uri) = (session.clone(), transport.clone(), uri.to_owned());
    tokio::task::spawn_local(async move {
        if timeout(LATE, told).await != Ok(Some(true)) {
            return;
        }
        session.subscribing.late.lock().push(uri);
        let _turn = session.subscribing.turn.lock().await;
        // Whoever comes first takes all of them back: others wait for it once.
        let mut unwanted = std::mem::take(&mut *session.subscribing.late.lock());
        session.with_streams(|streams, _| {
            unwanted.retain(|uri| !streams.subscribed().any(|wanted| wanted == uri));
        });
        if !session.is_over() {
            unsubscribe(&session, &transport, &unwanted).await;
        }
    });
}

/// Tells the server what nobody wants to hear of any more.
async fn unsubscribe(session: &Session, transport: &Transport, unwanted: &[String]) {
    let until = Instant::now() + TOLD;
    for uri in unwanted {
        let told = session.ask(transport, |id| listen::unsubscribe(id, uri));
        if Instant::now() >= until || timeout_at(until, told).await != Ok(Ok(true)) {
            tracing::debug!("the server could not be told that nobody wants to hear of a resource");
        }
    }
}

/// A notification that waits until a stream has room for it. Where it is not taken the stream ends, also if whoever gives it
/// goes away: nobody misses one without a word.
struct Giving<'a> {
    session: &'a Session,
    stream: u64,
    is_taken: bool,
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.session.with_streams(|_, listeners| listeners.remove(&self.stream));
        }
    }
}

impl Stream<'_> {
    fn close(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.closed, true) {
            return Vec::new();
        }
        self.lease.session.with_streams(|streams, listeners| {
            listeners.remove(&self.number);
            streams.close(self.number)
        })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
