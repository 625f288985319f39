//! Whatever the sidecar says, to clients and to servers, follows the schema of their revision. Every test of the sidecar
//! looks, since what they send and read goes through here, and what servers of others read is heard on its way
//! ([`super::recorder`]). In a cluster the client of the tests looks at what it is answered (`e2e/src/mcp_client.rs`).
//!
//! The sidecar passes nonsense on where it is not asked to look. What a test's client says wrong is therefore not held
//! against what the server gets, and the other way round: a method that one side used wrongly is from then on judged as
//! JSON-RPC alone, between these two. Of clients that others wrote only the very messages that were wrong are let pass.

mod tests;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;

use longshore_mcp::revision::Revision;
use longshore_mcp_schemas::{Side, Spoken};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::Request;
use super::http::Wire;

/// Two sides that a test has: known by the port of the server over HTTP, or of the sidecar where it is another kind.
type Path = u16;

#[derive(Default)]
struct Known {
    /// The path that a sidecar is on.
    paths: HashMap<SocketAddr, Path>,
    /// And those of the sidecars that have a shim at this socket.
    shims: HashMap<PathBuf, Vec<Path>>,
    /// What was used wrongly.
    nonsense: HashSet<(Path, Side_, String)>,
    /// What clients that others wrote said wrong: the method and what it was called with.
    wrong: HashSet<(Path, String)>,
    /// The methods of requests, by their ids.
    asked: HashMap<(Path, Side_, String), BTreeSet<String>>,
    /// The same of clients that others wrote, by their sessions: see [`session_of`].
    told: HashMap<String, HashMap<String, String>>,
    /// What sessions speak.
    sessions: HashMap<String, Revision>,
    /// What the server on a path spoke last in a handshake.
    servers: HashMap<Path, Revision>,
    /// What is wrong with what servers got.
    faults: HashMap<Path, Vec<String>>,
    /// What servers were answered. What they had asked is read beside its way, and may be known only afterwards.
    answers: HashMap<Path, Vec<(Revision, Value)>>,
    /// The servers that somebody watches.
    watched: HashSet<Path>,
    /// What was asked on connections of clients, and is not answered yet.
    open: HashMap<Wire, VecDeque<Request>>,
}

/// A side, as part of a name.
type Side_ = bool;
const CLIENT: Side_ = false;
const SERVER: Side_ = true;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock()
}

thread_local! {
    /// What a scripted server is answering.
    static ANSWERING: RefCell<Option<(Path, Request)>> = const { RefCell::new(None) };
}

/// A sidecar listens, in front of a server at this port (0: it speaks over something else), and a shim may be at that
/// socket.
pub(crate) fn sidecar(at: SocketAddr, port: u16, shim: PathBuf) {
    let path = if port == 0 { at.port() } else { port };
    let mut known = known();
    known.paths.insert(at, path);
    known.shims.entry(shim).or_default().push(path);
}

/// What is wrong with the lines that a process behind a shim has read. A last one that broke off is not one. `asked` has
/// what it asked itself and its answer to the handshake, where it keeps those.
pub(crate) fn process_heard(shim: &std::path::Path, text: &[u8], asked: &[u8]) -> Vec<String> {
    let known = known();
    let paths = known.shims.get(shim).cloned().unwrap_or_default();
    let (questions, agreed) = questions(asked);
    let (mut faults, mut offered) = (Vec::new(), None);
    for line in lines(text) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            faults.push(format!("no JSON: {}", String::from_utf8_lossy(line)));
            continue;
        };
        let method = message["method"].as_str();
        let claimed = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
        if method == Some("initialize") {
            offered = message["params"]["protocolVersion"].as_str().and_then(Revision::parse);
        }
        let spoken = if method == Some("initialize") { offered } else { offered.and(agreed).or(offered) };
        let Some(revision) = claimed.and_then(Revision::parse).or(spoken) else { continue };
        let answers = |id: String| questions.get(&id).cloned().unwrap_or_default();
        let mut asked: Vec<_> = match (method, message.get("result")) {
            (None, Some(result)) => {
                answers(message["id"].to_string()).into_iter().chain(form(result)).collect()
            }
            _ => Vec::new(),
        };
        asked.dedup();
        let is_nonsense = |about: &str| {
            paths.iter().any(|path| {
                known.nonsense.contains(&(*path, CLIENT, about.to_owned()))
                    || known.wrong.contains(&(*path, said(&message)))
            })
        };
        if is_nonsense(method.unwrap_or_default()) || asked.iter().any(|asked| is_nonsense(asked)) {
            continue;
        }
        let judged = |asked: Option<&str>| {
            let found = Spoken { revision, by: Side::Client, message: &message, asked }.faults();
            let about = method.or(asked).unwrap_or_default().to_owned();
            let told = |fault| format!("{revision}, {about}: {fault}\n{message}");
            found.into_iter().map(told).collect::<Vec<_>>()
        };
        // Under one id it may have asked several things, one after the other.
        let mut found: Vec<_> = asked.iter().map(|asked| judged(Some(asked))).collect();
        if found.is_empty() {
            found.push(judged(None));
        }
        faults.extend(found.into_iter().min_by_key(Vec::len).unwrap_or_default());
    }
    faults
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"))
}

/// What a process asked, by its ids, and the revision that it has chosen.
fn questions(asked: &[u8]) -> (HashMap<String, BTreeSet<String>>, Option<Revision>) {
    let (mut questions, mut agreed) = (HashMap::<_, BTreeSet<_>>::new(), None);
    for message in lines(asked).filter_map(|line| serde_json::from_slice::<Value>(line).ok()) {
        let chosen = message["result"]["protocolVersion"].as_str().and_then(Revision::parse);
        agreed = chosen.or(agreed);
        if let Some(method) = message["method"].as_str() {
            questions.entry(message["id"].to_string()).or_default().insert(method.to_owned());
        }
    }
    (questions, agreed)
}

/// What a client answers so, where nobody has kept what it was asked: each kind of answer has a member that no other has.
fn form(result: &Value) -> Option<String> {
    let forms =
        [("roots", "roots/list"), ("action", "elicitation/create"), ("role", "sampling/createMessage")];
    let found = forms.into_iter().find(|(member, _)| result.get(member).is_some());
    found.map(|(_, method)| method.to_owned())
}

/// Looks at what a server gets: it fails, when the server is gone, if anything was not right.
pub(crate) struct Watch {
    port: u16,
}

impl Watch {
    /// A server begins at a port, which another one may have had before.
    pub(crate) fn over(port: u16) -> Self {
        let mut known = known();
        known.nonsense.retain(|(path, ..)| *path != port);
        known.wrong.retain(|(path, _)| *path != port);
        known.asked.retain(|(path, ..), _| *path != port);
        known.faults.remove(&port);
        known.answers.remove(&port);
        known.servers.remove(&port);
        known.watched.insert(port);
        Self { port }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut known = known();
        known.watched.remove(&self.port);
        let faults = known.take_faults(self.port);
        drop(known);
        fail_for("a server", &faults);
    }
}

/// Fails if anything was wrong with what somebody got.
pub(crate) fn fail_for(whom: &str, faults: &[String]) {
    // Whoever fails already may fail because of it.
    if std::thread::panicking() && !faults.is_empty() {
        eprintln!("{whom} got what is not right: {faults:#?}");
    } else {
        assert!(faults.is_empty(), "{whom} got what is not right: {faults:#?}");
    }
}

/// A sidecar has ended: it fails if anything was not right that a server behind it got which nobody watches.
pub(crate) fn sidecar_ended(at: SocketAddr) {
    let mut known = known();
    // Another one may listen there next, for something else.
    let path = known.paths.remove(&at).filter(|path| !known.watched.contains(path));
    let faults = path.map(|path| known.take_faults(path)).unwrap_or_default();
    drop(known);
    fail_for("a server", &faults);
}

/// A client has a connection, at a port that another one may have had before.
pub(crate) fn connected(wire: Wire) {
    known().open.remove(&wire);
}

/// Which request on this connection these messages answer. None: one that was written by hand.
pub(crate) fn asked(wire: Wire, messages: &[String]) -> Option<Request> {
    let mut known = known();
    let open = known.open.get_mut(&wire)?;
    let id = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default()["id"].clone();
    let answers = |request: &Request| {
        let of_request = id(&request.body);
        messages.is_empty()
            || of_request.is_null()
            || messages.iter().any(|it| id(it.as_bytes()) == of_request)
    };
    let at = open.iter().position(answers)?;
    open.drain(..=at).next_back()
}

/// A client sends this.
pub(crate) fn client_says(request: &Request, wire: Wire) {
    let mut known = known();
    let Some(path) = known.paths.get(&wire.to).copied() else { return };
    known.open.entry(wire).or_default().push_back(request.clone());
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else { return };
    let revision = known.revision(request, &message);
    for message in each(&message) {
        known.note(path, CLIENT, revision, message);
    }
}

/// A client that somebody else wrote sends this.
pub(crate) fn stranger_says(request: &Request, to: SocketAddr) {
    let mut known = known();
    let Some(path) = known.paths.get(&to).copied() else { return };
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else { return };
    let revision = known.revision(request, &message);
    for message in each(&message) {
        if let (Some(session), Some(id), Some(method)) =
            (session_of(request), message.get("id"), message["method"].as_str())
        {
            known.told.entry(session.to_owned()).or_default().insert(id.to_string(), method.to_owned());
        }
        let is_right = revision.is_some_and(|revision| {
            Spoken { revision, by: Side::Client, message, asked: None }.faults().is_empty()
        });
        if !is_right {
            known.wrong.insert((path, said(message)));
        }
    }
}

/// What a message says, but for its id and for what every request has beside it.
fn said(message: &Value) -> String {
    let mut params = message["params"].clone();
    if let Some(params) = params.as_object_mut() {
        params.remove("_meta");
    }
    json!([message["method"], params, message["result"]]).to_string()
}

/// A client reads this message, in the answer to that request.
#[track_caller]
pub(crate) fn client_reads(request: &Request, to: SocketAddr, text: &str) {
    drop_and_fail(&stranger_reads(request, to, text));
}

/// What is wrong with a message that a client reads, whoever wrote that, in the answer to this request.
pub(crate) fn stranger_reads(request: &Request, to: SocketAddr, text: &str) -> Vec<String> {
    let mut known = known();
    let Some(path) = known.paths.get(&to).copied() else { return Vec::new() };
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match serde_json::from_str::<Value>(text) {
        Ok(whole) => each(&whole).flat_map(|message| known.read(path, request, &asked, message)).collect(),
        Err(error) => vec![format!("no JSON ({error}): {text}")],
    }
}

/// A client reads this message, in the answer to a request that was written by hand, or to none.
#[track_caller]
pub(crate) fn somebody_reads(to: SocketAddr, text: &str) {
    if !known().paths.contains_key(&to) {
        return;
    }
    let whole: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"));
    for message in each(&whole) {
        drop_and_fail(&of_any_revision(message));
    }
}

/// What is wrong with an answer whichever revision it is of: an error is the same in all of them, but that the newer ones
/// let one go without an id.
fn of_any_revision(message: &Value) -> Vec<String> {
    let revision = Revision::NEWEST_WITH_INITIALIZE;
    if message.get("method").is_some() {
        return Vec::new();
    }
    let mut message = message.clone();
    if message.get("result").is_some() {
        message["result"] = json!({});
    }
    let faults = Spoken { revision, by: Side::Server, message: &message, asked: None }.faults();
    faults.into_iter().map(|fault| format!("{fault}\n{message}")).collect()
}

#[track_caller]
fn drop_and_fail(faults: &[String]) {
    assert!(faults.is_empty(), "a client got what is not right: {faults:#?}");
}

/// A client has this session now.
pub(crate) fn session(id: &str, version: Option<&str>) {
    if let Some(revision) = version.and_then(Revision::parse) {
        known().sessions.insert(id.to_owned(), revision);
    }
}

/// A server reads this, and is about to answer it.
pub(crate) fn server_reads(port: u16, request: &Request) {
    ANSWERING.set(Some((port, request.clone())));
    let Ok(message) = serde_json::from_slice::<Value>(&request.body) else { return };
    let mut known = known();
    if let Some(revision) = message["params"]["protocolVersion"].as_str().and_then(Revision::parse)
        && message["method"] == "initialize"
    {
        known.servers.insert(port, revision);
    }
    let Some(revision) = known.server_revision(port, request, &message) else { return };
    for message in each(&message) {
        if message.get("method").is_none() {
            known.answers.entry(port).or_default().push((revision, message.clone()));
            continue;
        }
        let faults = known.judge(port, SERVER, revision, message, None);
        known.faults.entry(port).or_default().extend(faults);
    }
}

/// A server writes this, or a part of it.
pub(crate) fn server_says(text: &str) {
    let Some((port, request)) = ANSWERING.with_borrow(Clone::clone) else { return };
    let asked: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let mut known = known();
    let revision = known.server_revision(port, &request, &asked);
    let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    for line in lines.filter(|line| line.starts_with(['{', '[', '"'])) {
        match serde_json::from_str::<Value>(line) {
            Ok(message) => each(&message).for_each(|message| known.note(port, SERVER, revision, message)),
            // A part of a message: whatever it is.
            Err(_) => known.is_nonsense(port, SERVER, asked["method"].as_str().unwrap_or_default()),
        }
    }
}

/// The messages of a batch, or the one that it is.
fn each(message: &Value) -> impl Iterator<Item = &Value> {
    message.as_array().map_or(std::slice::from_ref(message), Vec::as_slice).iter()
}

/// What a session is known by: its id or, over HTTP+SSE, where its messages are posted to.
fn session_of(request: &Request) -> Option<&str> {
    let endpoint = || Some(request.path.as_str()).filter(|path| path.starts_with(MESSAGES));
    request.value("mcp-session-id").or_else(endpoint)
}
/// Where messages over HTTP+SSE are posted to.
const MESSAGES: &str = "/messages?";

fn header(request: &Request) -> Option<Revision> {
    request.value("mcp-protocol-version").and_then(Revision::parse)
}

impl Known {
    /// What is spoken where a client sends this.
    fn revision(&self, request: &Request, message: &Value) -> Option<Revision> {
        let in_session = session_of(request).and_then(|session| self.sessions.get(session)).copied();
        let asked = message["params"]["protocolVersion"].as_str().and_then(Revision::parse);
        let claimed = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
        claimed.and_then(Revision::parse).or(in_session).or_else(|| header(request)).or(asked)
    }

    /// What is spoken where a server reads this. What says nothing of that after a handshake is of a revision that has no
    /// header for it.
    fn server_revision(&self, port: u16, request: &Request, message: &Value) -> Option<Revision> {
        let last = || self.servers.get(&port).copied();
        let is_handshake = message["method"] == "initialize";
        let older = |last: Revision| if is_handshake { last } else { last.min(Revision::V2025_03_26) };
        header(request).or_else(|| last().map(older))
    }

    /// What is wrong with what the server on this path got.
    fn take_faults(&mut self, path: Path) -> Vec<String> {
        let mut faults = self.faults.remove(&path).unwrap_or_default();
        for (revision, answer) in self.answers.remove(&path).unwrap_or_default() {
            faults.extend(self.judge(path, SERVER, revision, &answer, None));
        }
        faults
    }

    fn is_nonsense(&mut self, path: Path, by: Side_, method: &str) {
        self.nonsense.insert((path, by, method.to_owned()));
    }

    /// Remembers what a side of the test said, and whether it was right.
    fn note(&mut self, path: Path, by: Side_, revision: Option<Revision>, message: &Value) {
        let id = message["id"].to_string();
        let method = message["method"].as_str();
        // The sidecar asks on its own account too, under ids that clients use: it may be the answer to any of them.
        let mut asked: Vec<_> =
            self.asked.get(&(path, !by, id.clone())).into_iter().flatten().cloned().map(Some).collect();
        if let Some(method) = method {
            self.asked.entry((path, by, id)).or_default().insert(method.to_owned());
        }
        if method.is_some() || asked.is_empty() {
            asked = vec![None];
        }
        let side = if by == CLIENT { Side::Client } else { Side::Server };
        for asked in asked {
            let is_right = revision.is_some_and(|revision| {
                Spoken { revision, by: side, message, asked: asked.as_deref() }.faults().is_empty()
            });
            if !is_right {
                self.is_nonsense(path, by, method.or(asked.as_deref()).unwrap_or_default());
            }
        }
    }

    /// What is wrong with what a client reads, in the answer to a request with this message.
    fn read(&mut self, path: Path, request: &Request, asked: &Value, message: &Value) -> Vec<String> {
        // Other clients at the same address may use the same ids.
        let own = each(asked).find(|asked| asked["id"] == message["id"]).and_then(|it| it["method"].as_str());
        let session = session_of(request);
        let before = || self.told.get(session?)?.get(&message["id"].to_string()).map(String::as_str);
        let to = own.or_else(before).map(str::to_owned);
        let version = message["result"]["protocolVersion"].as_str();
        if let (Some("initialize"), Some(version)) = (to.as_deref(), version) {
            self.servers.entry(path).or_insert(Revision::V2025_11_25);
            let Some(revision) = Revision::parse(version) else { return Vec::new() };
            if let Some(session) = session {
                self.sessions.insert(session.to_owned(), revision);
            }
            return self.judge(path, CLIENT, revision, message, to.as_deref());
        }
        match self.revision(request, asked) {
            Some(revision) => self.judge(path, CLIENT, revision, message, to.as_deref()),
            None => of_any_revision(message),
        }
    }

    /// What is wrong with what the sidecar said to one of the sides.
    fn judge(
        &mut self,
        path: Path,
        to: Side_,
        revision: Revision,
        message: &Value,
        asked: Option<&str>,
    ) -> Vec<String> {
        let method = message["method"].as_str();
        let id = message["id"].to_string();
        let known = self.asked.get(&(path, to, id.clone()));
        // Of one of several it is right for one of them at least, or it could not be told.
        let only = known.filter(|known| known.len() == 1).and_then(|known| known.first());
        let asked = asked.map(str::to_owned).or_else(|| only.cloned()).filter(|_| method.is_none());
        if asked.is_none() && method.is_none() && known.is_some() {
            return Vec::new();
        }
        let about = method.map(str::to_owned).or_else(|| asked.clone()).unwrap_or_default();
        if let Some(method) = method {
            // Ids of the sidecar's own requests are found again when they are answered.
            self.asked.entry((path, !to, id)).or_default().insert(method.to_owned());
        }
        let is_nonsense =
            [CLIENT, SERVER].into_iter().any(|by| self.nonsense.contains(&(path, by, about.clone())));
        let by = if to == CLIENT { Side::Server } else { Side::Client };
        // The least that is a result in every revision.
        let result = json!({"resultType": "complete"});
        let plain = json!({"jsonrpc": message["jsonrpc"], "id": message["id"], "result": result});
        let message = match (is_nonsense, method, message.get("result")) {
            (false, ..) => message,
            (true, None, Some(_)) => &plain,
            (true, None, None) if message.get("error").is_some() && to == CLIENT => message,
            (true, ..) => return Vec::new(),
        };
        if to == SERVER && self.wrong.contains(&(path, said(message))) {
            return Vec::new();
        }
        let asked = asked.filter(|_| !is_nonsense);
        let faults = Spoken { revision, by, message, asked: asked.as_deref() }.faults();
        faults.into_iter().map(|fault| format!("{revision}, {about}: {fault}\n{message}")).collect()
    }
}
