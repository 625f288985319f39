//! A server over HTTP+SSE that does what a test says.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use longshore_sidecar_config::{Config, Upstream};
use serde_json::{Value, json};

use super::schemas::Watch;
use super::scripted::{begin_events, chunk, message, read, write};
use super::{Request, config};

/// The server.
pub(crate) struct SseServer {
    pub(crate) port: u16,
    state: Arc<State>,
    _watch: Watch,
}

#[derive(Default)]
struct State {
    /// The streams, by session.
    streams: Mutex<HashMap<String, TcpStream>>,
    seen: Mutex<Vec<Request>>,
    /// The revision that it speaks; without one, whatever it is asked for.
    revision: Mutex<Option<&'static str>>,
}

/// The stream of one session, for what is said in it.
pub(crate) struct Say<'a> {
    state: &'a State,
    pub(crate) session: String,
    /// What it is said to, as it was written.
    pub(crate) posted: &'a Request,
}

impl Say<'_> {
    /// Says a message.
    pub(crate) fn say(&self, message: &Value) {
        self.raw(&format!("event: message\ndata: {message}\n\n"));
    }

    /// Answers a request.
    pub(crate) fn answer(&self, request: &Value, result: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    /// Writes these bytes.
    pub(crate) fn raw(&self, text: &str) {
        let stream =
            self.state.streams.lock().expect("no panic").get(&self.session).map(TcpStream::try_clone);
        // Nobody else waits for a stream that is not read.
        if let Some(stream) = stream {
            chunk(&mut stream.expect("a clone"), text);
        }
    }

    /// Breaks the stream off.
    pub(crate) fn end(&self) {
        if let Some(stream) = self.state.streams.lock().expect("no panic").remove(&self.session) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl SseServer {
    /// A server that answers handshakes and pings by itself, and everything else by `hear`.
    pub(crate) fn start(hear: impl Fn(&Value, &Say<'_>) + Send + Sync + 'static) -> Self {
        Self::naming(|session| format!("/messages?session={session}"), hear)
    }

    /// One that names this endpoint.
    pub(crate) fn naming(
        endpoint: impl Fn(&str) -> String + Send + Sync + 'static,
        hear: impl Fn(&Value, &Say<'_>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (state, rules) = (Arc::new(State::default()), Arc::new((endpoint, hear)));
        let own = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (state, rules) = (own.clone(), rules.clone());
                std::thread::spawn(move || serve(stream, &state, &rules.0, &rules.1));
            }
        });
        Self { port, state, _watch: Watch::over(port) }
    }

    /// A configuration in front of it.
    pub(crate) fn config(&self) -> Config {
        Config { upstream: Upstream::Sse { port: self.port, path: "/sse".to_owned() }, ..config(self.port) }
    }

    /// The messages with this method that were posted, without those of the sidecar's own session.
    pub(crate) fn seen(&self, method: &str) -> Vec<Request> {
        let seen = self.state.seen.lock().expect("no panic");
        let own =
            |request: &&Request| message(request)["params"]["clientInfo"]["name"] == "longshore-sidecar";
        let own: Vec<_> = seen.iter().filter(own).map(|request| request.path.clone()).collect();
        let wanted =
            |request: &&Request| message(request)["method"] == method && !own.contains(&request.path);
        seen.iter().filter(wanted).cloned().collect()
    }

    /// Everything that was posted.
    pub(crate) fn seen_all(&self) -> Vec<Request> {
        self.state.seen.lock().expect("no panic").clone()
    }

    /// It speaks this revision from now on, and whatever was open has ended: as after a restart.
    pub(crate) fn restarts_with(&self, revision: &'static str) {
        *self.state.revision.lock().expect("no panic") = Some(revision);
        for (_, stream) in self.streams().drain() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// The streams that are open.
    pub(crate) fn streams(&self) -> MutexGuard<'_, HashMap<String, TcpStream>> {
        self.state.streams.lock().expect("no panic")
    }
}

fn serve(
    mut stream: TcpStream,
    state: &State,
    endpoint: &dyn Fn(&str) -> String,
    hear: &dyn Fn(&Value, &Say<'_>),
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    while let Some(request) = read(&mut reader) {
        if request.method == "GET" {
            let session = format!("{:x}", stream.peer_addr().expect("a peer").port());
            begin_events(&mut stream);
            chunk(&mut stream, ": welcome\n\n");
            let clone = stream.try_clone().expect("a clone");
            state.streams.lock().expect("no panic").insert(session.clone(), clone);
            chunk(&mut stream, &format!("event: endpoint\r\ndata: {}\r\n\r\n", endpoint(&session)));
            // Nothing more comes here but the end.
            while read(&mut reader).is_some() {}
            state.streams.lock().expect("no panic").remove(&session);
            return;
        }
        state.seen.lock().expect("no panic").push(request.clone());
        let session = request.path.split_once('=').map_or("", |(_, session)| session).to_owned();
        if !state.streams.lock().expect("no panic").contains_key(&session) {
            write(&mut stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
            continue;
        }
        if message(&request)["params"]["name"] == "held" {
            // Some servers answer the POST when they answer the call, and this one does neither.
            while read(&mut reader).is_some() {}
            return;
        }
        write(&mut stream, "HTTP/1.1 202 Accepted\r\ncontent-length: 8\r\n\r\nAccepted");
        let _ = stream.flush();
        let (heard, say) = (message(&request), Say { state, session, posted: &request });
        match heard["method"].as_str() {
            Some("initialize") => {
                let revision = *state.revision.lock().expect("no panic");
                let version =
                    revision.map_or_else(|| heard["params"]["protocolVersion"].clone(), Value::from);
                let result = json!({
                    "protocolVersion": version, "capabilities": {"logging": {}},
                    "serverInfo": {"name": "scripted", "version": "1"},
                });
                say.answer(&heard, &result);
            }
            Some("ping") => say.answer(&heard, &json!({})),
            _ => hear(&heard, &say),
        }
    }
}
