//! Ways to a server, for clients of others: where each connection leads is known, and event streams break off in them. A
//! client that chose for itself would reach whichever replica the Service leads to, and nobody would know which.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use super::random::Random;

/// So much of a response passes at least: the head, and an event with the id that a client comes back with.
const LEAST: u64 = 1_200;
/// So much more passes at most.
const MOST: u64 = 1_500;
/// How long nobody may be there that takes a connection: nodes follow the pods with a lag.
const PATIENCE: Duration = Duration::from_secs(20);

/// A way. It is closed when this value goes.
pub(super) struct Way {
    /// Where a client begins.
    pub(super) url: String,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

/// Where connections lead, and what became of them.
#[derive(Debug)]
struct State {
    /// The first one.
    first: Option<SocketAddr>,
    /// The others, in turn.
    then: Vec<SocketAddr>,
    turn: usize,
    /// So many streams break off still.
    cuts: usize,
    random: Random,
    cut: Vec<SocketAddr>,
    resumed: Vec<SocketAddr>,
    /// The server has said something that is no answer.
    said: bool,
}

impl Way {
    /// The first connection leads to `first`, the others to `then`.
    pub(super) async fn to(path: &str, first: SocketAddr, then: SocketAddr) -> Self {
        Self::start(path, first, vec![then], 0).await
    }

    /// Connections lead to each of these in turn, and so many event streams break off in the middle. The next connection
    /// after that leads elsewhere.
    pub(super) async fn that_breaks(path: &str, to: &[SocketAddr], cuts: usize) -> Self {
        let [first, others @ ..] = to else { panic!("it leads nowhere") };
        Self::start(path, *first, [others, &[*first]].concat(), cuts).await
    }

    async fn start(path: &str, first: SocketAddr, then: Vec<SocketAddr>, cuts: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it listens");
        let (random, cut, resumed) = (Random::new(), Vec::new(), Vec::new());
        let state = State { first: Some(first), then, turn: 0, cuts, random, cut, resumed, said: false };
        let state = Arc::new(Mutex::new(state));
        let accepting = tokio::spawn(accept(listener, state.clone()));
        Self { url: format!("http://{address}{path}"), state, accepting }
    }

    /// How many streams broke off.
    pub(super) fn cuts(&self) -> usize {
        self.state.lock().cut.len()
    }

    /// Whether the server has said something that is no answer.
    pub(super) fn hears(&self) -> bool {
        self.state.lock().said
    }

    /// How many came back for the rest of a stream, and how many of them elsewhere than where the first that broke off
    /// led.
    pub(super) fn resumptions(&self) -> (usize, usize) {
        let state = self.state.lock();
        let began = state.cut.first();
        let elsewhere = state.resumed.iter().filter(|to| began.is_some_and(|began| began != *to)).count();
        (state.resumed.len(), elsewhere)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl State {
    fn next(&mut self) -> SocketAddr {
        if let Some(first) = self.first.take() {
            return first;
        }
        let mut to = self.then[self.turn % self.then.len()];
        if self.cut.last() == Some(&to) {
            self.turn += 1;
            to = self.then[self.turn % self.then.len()];
        }
        self.turn += 1;
        to
    }

    /// Whether a stream breaks off that has come so far.
    fn breaks(&mut self, to: SocketAddr) -> bool {
        if self.cuts == 0 {
            return false;
        }
        self.cuts -= 1;
        self.cut.push(to);
        true
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(carry(client, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Carries what both say until either has nothing more to say, or the way breaks.
async fn carry(client: TcpStream, state: Arc<Mutex<State>>) {
    let Some((server, to)) = connect(&state).await else { return };
    let (mut requests, mut to_client) = client.into_split();
    let (mut responses, mut to_server) = server.into_split();
    let up = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = requests.read(&mut buffer).await {
            let data = &buffer[..length];
            if holds(data, b"last-event-id:") {
                state.lock().resumed.push(to);
            }
            if to_server.write_all(data).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 16 * 1024];
        // Of an event stream.
        let mut left = None;
        while let Ok(length @ 1..) = responses.read(&mut buffer).await {
            let data = &buffer[..length];
            if holds(data, b"\"method\":\"notifications/") {
                state.lock().said = true;
            }
            if holds(data, b"content-type: text/event-stream") {
                left = Some(LEAST + state.lock().random.below(MOST));
            }
            if let Some(most) = left
                && most <= length as u64
                && state.lock().breaks(to)
            {
                let most = usize::try_from(most).expect("a small number");
                let _ = to_client.write_all(&data[..most]).await;
                return;
            }
            left = left.map(|left: u64| left.saturating_sub(length as u64));
            // The end of it: what comes next is another response.
            if data.ends_with(b"\r\n0\r\n\r\n") || data == b"0\r\n\r\n" {
                left = None;
            }
            if to_client.write_all(data).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// Whoever takes the connection.
async fn connect(state: &Mutex<State>) -> Option<(TcpStream, SocketAddr)> {
    let deadline = Instant::now() + PATIENCE;
    let to = state.lock().next();
    loop {
        match TcpStream::connect(to).await {
            Ok(server) => return Some((server, to)),
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
            Err(_) => return None,
        }
    }
}

/// Whether a text is in it, in whatever case: some write the names of headers in capitals.
fn holds(data: &[u8], text: &[u8]) -> bool {
    data.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text))
}
