//! A thread that carries requests: its own listener, its own connections to the server, its own runtime.

mod ahead;
mod callers;
mod heads;
mod linger;
mod pace;
mod places;
mod watched;
mod whole;

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::drain;
use crate::peers::{self, Ways};
use crate::sessions::{self, Ids, Queue};
use crate::shared::Shared;
use crate::stack;
use crate::stack::marks::Marks;
use crate::stack::respond::{OfNoCall, Unread};
use crate::streamed_body::BrokenOff;
use crate::upstream::Pool;
use ahead::{Ahead, Given};
pub(crate) use callers::Callers;
use heads::Head;
pub(crate) use heads::{Heads, Unfinished};
pub(crate) use pace::Pace;
pub(crate) use places::Place;
use places::Places;
pub(crate) use watched::Watched;
pub(crate) use whole::{Reading, Serving};

/// The largest head of a request.
const MAX_HEAD: usize = 64 * 1024;
/// How long accepting pauses when the process has no descriptors left.
const BREATHER: Duration = Duration::from_millis(50);
/// How long connections get to deliver what was answered last. Those that have nothing to deliver end at once, and those
/// that wait for the answer of a call get as long as the drain had for it.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long an idle connection still takes a request once connections are to end: nobody has told its client, and one may
/// be on its way.
const FIRST: Duration = Duration::from_secs(1);
/// How many small messages to the server are under way at once. A server that asks faster than it listens does not get
/// more out of this process.
const ERRANDS: usize = 256;
/// How long a client may leave what it was sent unread.
pub(crate) const UNREAD: Duration = Duration::from_secs(60);
/// How much the kernel takes for a client beyond what is on its way there. Left alone it takes megabytes, and for each
/// client that does not read the thread would have to pass on as much before it could rest.
pub(crate) const UNSENT: u32 = 64 * 1024;

/// What the requests of one thread share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Rc<Pool>,
    /// The ways to the other replicas.
    pub(crate) peers: Ways,
    /// The ids of sessions that came lately.
    pub(crate) ids: Ids,
    /// Which arguments are repeated as headers.
    pub(crate) marks: Marks,
    /// Places for small messages to the server that nobody waits for.
    pub(crate) errands: Arc<Semaphore>,
    /// Whether connections end when they have answered what is under way.
    stop: watch::Receiver<bool>,
    /// Whoever has it delivers an answer still, after connections were told to end.
    pub(crate) delivering: Rc<()>,
}

impl Worker {
    /// Waits until connections end.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + use<> {
        let mut stop = self.stop.clone();
        // Whether the sender is gone or says stop: both mean the end.
        async move { drop(stop.wait_for(|stop| *stop).await) }
    }
}

/// Serves connections until `stop` says so.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    replicas_socket: Socket,
    errands: Queue,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let pool = Rc::new(Pool::of(&shared));
    let peers = Ways::new(shared.peers.clone());
    let worker = Rc::new(Worker {
        shared,
        pool,
        peers,
        ids: Ids::default(),
        marks: Marks::default(),
        errands: Arc::new(Semaphore::new(ERRANDS)),
        stop: stop.clone(),
        delivering: Rc::default(),
    });
    let limit = worker.shared.connections_of_a_thread();
    let mut connections = JoinSet::new();
    let stopped = stop.clone();
    let mut replicas = JoinSet::new();
    replicas.spawn_local(peers::listen(replicas_socket, worker.clone(), stop.clone()));
    // They go on until the thread ends.
    let mut aside = JoinSet::new();
    aside.spawn_local({
        let worker = worker.clone();
        async move { peers::cut_the_silent(&worker.peers).await }
    });
    aside.spawn_local({
        let worker = worker.clone();
        async move { worker.pool.sweep().await }
    });
    aside.spawn_local(sessions::follow(worker.clone(), errands));
    let mut places = Places::default();
    let start = |connections: &mut JoinSet<()>, stream: TcpStream| {
        let place = Place::new(worker.shared.pace.clone(), worker.shared.callers.clone());
        let served = connection(worker.clone(), stream, place.clone(), stopped.clone());
        (connections.spawn_local(served), place)
    };
    // Who has come and has no place yet: somebody had one to give, and needs it after all.
    let mut waits = None;
    loop {
        // What has ended may be among the tasks still.
        let is_full = places.len() >= limit;
        if let Some(stream) = waits.take_if(|_| !is_full || places.make_room()) {
            let (task, place) = start(&mut connections, stream);
            places.take(task, place);
            continue;
        }
        tokio::select! {
            // Whether the sender is gone or says stop: both mean the end.
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = replicas.join_next() => ended.map_err(io::Error::other)??,
            Some(ended) = aside.join_next() => ended.map_err(io::Error::other)?,
            Some(ended) = connections.join_next_with_id() => {
                places.free(ended.map_or_else(|error| error.id(), |(task, ())| task));
            }
            // While all of them are busy, others wait in the kernel's queue.
            accepted = listener.accept(), if waits.is_none() && (!is_full || places.has_rest()) => match accepted {
                Ok((stream, _)) => {
                    worker.shared.arrivals.note();
                    waits = Some(stream);
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(BREATHER).await;
                }
            },
            () = sleep(BREATHER), if is_full => {}
        }
    }
    // Those who are in the kernel's queue believe that they are connected. All of them, also if nothing has told the
    // runtime of them yet.
    waits.map(|stream| start(&mut connections, stream));
    let listener = listener.into_std()?;
    for _ in 0..limit {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(_) => break,
        };
        if let Ok(stream) = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)) {
            start(&mut connections, stream);
        }
    }
    drop(listener);
    let ended = async {
        while connections.join_next().await.is_some() {}
        while replicas.join_next().await.is_some() {}
    };
    let given = tokio::select! {
        () = ended => true,
        () = enough(&worker) => false,
        () = worker.shared.ending.until_cut() => false,
    };
    if !given {
        tracing::info!(connections = connections.len(), "closing connections that did not end");
    }
    Ok(())
}

/// Waits for as long as connections get: the farewell, and while calls are under way or their answers are read, for as
/// long as there is time for them.
async fn enough(worker: &Worker) {
    let shared = &worker.shared;
    let farewell = Instant::now() + FAREWELL;
    let latest = shared.ending.latest().map_or(farewell, |latest| farewell.max(latest + FAREWELL));
    let goes_on = || drain::under_way(shared) > 0 || Rc::strong_count(&worker.delivering) > 1;
    while Instant::now() < if goes_on() { latest } else { farewell } {
        if drain::under_way(shared) == 0 {
            // Some come to listen only now, and there is nothing more to hear.
            shared.streams.part();
        }
        sleep(BREATHER).await;
    }
}

async fn connection(worker: Rc<Worker>, stream: TcpStream, place: Rc<Place>, stop: watch::Receiver<bool>) {
    // Events are small, and each of them matters when it comes.
    // And a client that takes nothing for so long, or is not there any more, holds a place that others want.
    let socket = SockRef::from(&stream);
    let options = stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_notsent_lowat(UNSENT))
        .and_then(|()| socket.set_tcp_user_timeout(Some(UNREAD)))
        .and_then(|()| socket.set_keepalive(true));
    if let Err(error) = options {
        tracing::debug!(%error, "cannot set the options of a connection");
    }
    let shared = worker.shared.clone();
    let delivering = Rc::downgrade(&worker.delivering);
    let stream = Watched::new(stream, place.clone());
    let service = service_fn(move |request| {
        let (worker, busy, place) = (worker.clone(), place.begin(), place.clone());
        Serving::new(|reading| async move {
            let response = stack::serve(&worker, request, reading, place).await;
            Ok::<_, Infallible>(busy.until_sent(response))
        })
    });
    let wait = shared.options.bounds.head;
    let heads = Heads { wait, size: MAX_HEAD, last: FIRST, unfinished: &shared.unfinished };
    if let Err(error) = converse(stream, heads, service, stop, &delivering).await {
        // Heads that are too large, too slow or no HTTP end here; hyper has answered where there is an answer.
        tracing::debug!(%error, "a client's connection ended");
    }
}

/// Answers the requests of one connection until it ends. When `stop` says so it takes no more, and what is under way is
/// answered: it has `delivering` meanwhile, if anybody waits for that.
pub(crate) async fn converse<I, S, B>(
    mut stream: I,
    heads: Heads<'_>,
    service: S,
    stop: watch::Receiver<bool>,
    delivering: &Weak<()>,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes, Error = BrokenOff> + Unpin + 'static,
{
    let is_unread = Cell::new(false);
    let result = answer(&mut stream, heads, service, stop, &is_unread, delivering).await;
    // hyper answers heads that it cannot read, and does not read on either.
    if is_unread.get() || result.as_ref().is_err_and(hyper::Error::is_parse) {
        linger::until_closed(&mut stream).await;
    }
    result
}

/// The same until there is nothing more to answer. `is_unread` then says whether the last request was left unread.
async fn answer<I, S, B>(
    stream: I,
    heads: Heads<'_>,
    service: S,
    mut stop: watch::Receiver<bool>,
    is_unread: &Cell<bool>,
    delivering: &Weak<()>,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes, Error = BrokenOff> + Unpin + 'static,
{
    let (is_new, is_awaited) = (Cell::new(true), Cell::new(true));
    let (head, ahead) = (&Head::of(heads.unfinished), Rc::<Ahead>::default());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(heads.wait)
        .max_buf_size(heads.size)
        .serve_connection(
            TokioIo::new(Watched::new(Watched::new(stream, ahead.clone()), head)),
            service_fn(|request| {
                is_new.set(false);
                is_awaited.set(true);
                let is_last = head.ended(&request);
                let (response, ahead, is_awaited) = (service.call(request), ahead.clone(), &is_awaited);
                async move {
                    let mut response = response.await?;
                    head.begins();
                    if is_last {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    is_awaited.set(response.extensions().get::<OfNoCall>().is_none());
                    // Nor is what may be behind it.
                    is_unread.set(is_last || response.extensions().get::<Unread>().is_some());
                    Ok::<_, Infallible>(response.map(|body| Given::new(body, ahead)))
                }
            }),
        );
    tokio::pin!(connection);
    tokio::select! {
        biased;
        result = connection.as_mut() => return result,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // One on which nothing comes just now would be closed at once, with a request on its way.
    let last = if is_new.get() { FIRST } else { heads.last };
    if !last.is_zero()
        && let Ok(result) = timeout(last, connection.as_mut()).await
    {
        return result;
    }
    if is_new.get() {
        // Nothing is under way. What hyper has of a head that is not whole it would wait for.
        return Ok(());
    }
    let _delivers = delivering.upgrade().filter(|_| is_awaited.get());
    connection.as_mut().graceful_shutdown();
    connection.await
}
