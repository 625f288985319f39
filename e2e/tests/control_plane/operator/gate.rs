//! A gate before the API server that knows what is asked. It can have watches tell nothing of what happens, and then expire, as
//! an API server does that no longer knows what happened since: a real one forgets when it has had very many changes. And it
//! can keep what is written for later, as a network may.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stand::until;

/// How whoever watches hears that it cannot go on.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Expiry {
    /// In the middle, where an event would be.
    Told,
    /// When it asks to go on: the watch before has ended as they all do.
    Refused,
}

/// What becomes of watches.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// They are as they are.
    Open,
    /// Those that there are tell nothing of what happens.
    Hushed,
    /// Those that told nothing end.
    Expired(Expiry),
}

struct Passage {
    client: Client,
    state: watch::Receiver<State>,
    /// Of which kind writes are kept back.
    kept: watch::Receiver<Option<&'static str>>,
    /// How many are, or were.
    came: AtomicUsize,
    /// How many of them the API server has answered.
    answered: AtomicUsize,
    /// The kinds whose watches have yet to be refused.
    refused: Mutex<BTreeSet<String>>,
}

/// It stands open at an address of its own, until this goes.
pub(super) struct Gate {
    kubeconfig: String,
    state: watch::Sender<State>,
    kept: watch::Sender<Option<&'static str>>,
    passage: Arc<Passage>,
    passing: JoinHandle<()>,
}

impl Gate {
    /// A gate before the API server of a kubeconfig.
    pub(super) async fn to(kubeconfig: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        config.proxy_url = None;
        let (state, states) = watch::channel(State::Open);
        let (kept, keeps) = watch::channel(None);
        let client = Client::try_from(config).unwrap();
        let passage = Arc::new(Passage {
            client,
            state: states,
            kept: keeps,
            came: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            refused: Mutex::default(),
        });
        let mut kubeconfig: Value = serde_json::from_str(kubeconfig).unwrap();
        kubeconfig["clusters"][0]["cluster"] =
            json!({"server": format!("http://{}", listener.local_addr().unwrap())});
        let passes = passage.clone();
        let passing = tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let passage = passes.clone();
                // Whoever hangs up need not be answered.
                tokio::spawn(async move { passage.pass(connection).await });
            }
        });
        Self { kubeconfig: kubeconfig.to_string(), state, kept, passage, passing }
    }

    /// The kubeconfig of whoever is to use it.
    pub(super) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// From now on the watches that there are tell nothing.
    pub(super) fn hush(&self) {
        self.passage.refused.lock().unwrap().clear();
        self.state.send_replace(State::Hushed);
    }

    /// They expire. Others are as they are.
    pub(super) fn expire(&self, how: Expiry) {
        self.state.send_replace(State::Expired(how));
    }

    /// From now on what is written to objects of a kind is kept.
    pub(super) fn keep(&self, resource: &'static str) {
        self.kept.send_replace(Some(resource));
    }

    /// Waits until something is kept.
    pub(super) async fn keeps_something(&self) {
        until("something is written", || self.passage.came.load(Ordering::Relaxed) > 0).await;
    }

    /// Passes on what was kept, whether or not somebody still waits for what comes of it, and waits until it is done.
    pub(super) async fn let_go(&self) {
        self.kept.send_replace(None);
        let Passage { came, answered, .. } = &*self.passage;
        until("it is answered", || answered.load(Ordering::Relaxed) == came.load(Ordering::Relaxed)).await;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

impl Passage {
    /// Passes one request on, and its answer back.
    async fn pass(&self, mut connection: TcpStream) -> io::Result<()> {
        let request = read(&mut connection).await?;
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let mut state = self.state.clone();
        // One that went on just now hears of it later.
        let was_hushed = is_watch && *state.borrow_and_update() == State::Hushed;
        let _ = state.wait_for(|now| !was_hushed || *now != State::Hushed).await;
        if was_hushed || is_watch && self.is_refused(&request) {
            begin(&mut connection, StatusCode::GONE).await?;
            return connection.write_all(expired().to_string().as_bytes()).await;
        }
        let answer = if self.is_kept(&request) {
            self.came.fetch_add(1, Ordering::Relaxed);
            let _ = self.kept.clone().wait_for(Option::is_none).await;
            let answer = self.client.send(request).await;
            self.answered.fetch_add(1, Ordering::Relaxed);
            answer
        } else {
            self.client.send(request).await
        };
        let answer = answer.map_err(io::Error::other)?;
        begin(&mut connection, answer.status()).await?;
        let mut body = answer.into_body();
        if !is_watch {
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            return connection.write_all(&body).await;
        }
        let mut was_hushed = false;
        let mut lines = Vec::new();
        loop {
            tokio::select! {
                changed = state.changed() => {
                    changed.map_err(io::Error::other)?;
                    let now = *state.borrow_and_update();
                    was_hushed |= now == State::Hushed;
                    if was_hushed && now == State::Expired(Expiry::Told) {
                        let event = json!({"type": "ERROR", "object": expired()});
                        connection.write_all(format!("{event}\n").as_bytes()).await?;
                    }
                    if was_hushed && now != State::Hushed {
                        return Ok(());
                    }
                }
                frame = body.frame() => {
                    let Some(frame) = frame else { return Ok(()) };
                    lines.extend(frame.map_err(io::Error::other)?.into_data().unwrap_or_default());
                    let whole = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    let events: Vec<u8> = lines.drain(..whole).collect();
                    if !was_hushed {
                        connection.write_all(&events).await?;
                    }
                }
            }
        }
    }

    fn is_kept(&self, request: &Request<Body>) -> bool {
        let of = |resource| request.uri().path().contains(&format!("/{resource}/"));
        request.method() != Method::GET && self.kept.borrow().is_some_and(of)
    }

    /// Whether this is the first of its kind that would go on since watches have expired.
    fn is_refused(&self, request: &Request<Body>) -> bool {
        let kind = format!("{:?} {:?}", request.uri().path(), selector(request));
        *self.state.borrow() == State::Expired(Expiry::Refused) && self.refused.lock().unwrap().insert(kind)
    }
}

/// Which objects of a kind are asked for: there may be several watches of one.
fn selector(request: &Request<Body>) -> Option<String> {
    let query = request.uri().query()?;
    query.split('&').find(|it| it.starts_with("labelSelector=")).map(str::to_owned)
}

/// What an API server says.
fn expired() -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version: 1 (2)",
    })
}

/// Reads a request, as kube sends one over a connection without TLS.
async fn read(connection: &mut TcpStream) -> io::Result<Request<Body>> {
    let mut read = Vec::new();
    let end = loop {
        if let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            break end;
        }
        if connection.read_buf(&mut read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut body = read.split_off(end + 4);
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = Request::builder().method(method).uri(path);
    let mut length = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match &*name.to_ascii_lowercase() {
            "content-length" => length = value.parse().unwrap(),
            name @ ("accept" | "content-type" | "user-agent") => request = request.header(name, value),
            _ => {}
        }
    }
    while body.len() < length {
        if connection.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(request.body(Body::from(body)).unwrap())
}

/// Begins an answer, which is over when the connection is.
async fn begin(connection: &mut TcpStream, status: StatusCode) -> io::Result<()> {
    let more = "content-type: application/json\r\nconnection: close";
    connection.write_all(format!("HTTP/1.1 {status}\r\n{more}\r\n\r\n").as_bytes()).await
}
