//! A server that does what a test says, byte for byte. Everything that it got can be looked at.

mod wire;

use std::collections::VecDeque;
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::schemas::Watch;
use super::{Gate, Request, eventually};
use wire::begin_events_with;
pub(crate) use wire::{
    accepted, begin_events, chunk, events, json, json_with, message, method_of, no_stream, parse, read,
    reply_to, write,
};

/// The server.
pub(crate) struct Scripted {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Heard>>>,
    _watch: Watch,
}

/// What it got.
struct Heard {
    request: Request,
    /// It belongs to the sidecar's own session.
    own: bool,
}

/// How a server greets.
#[derive(Clone)]
struct Manners {
    capabilities: Value,
    /// Who it says that it is.
    info: Value,
    /// The revision that it speaks; without one, whatever it is asked for.
    revision: Option<&'static str>,
    /// It serves requests that stand alone too.
    modern: bool,
    /// How it answers a handshake that is not the sidecar's own, if not at once.
    greets: Option<Greeting>,
    /// What is waited for before it takes `notifications/roots/list_changed`.
    hears: Option<Gate>,
    /// What is waited for before it ends a session.
    ends: Option<Gate>,
    /// It refuses handshakes for other revisions than its own, and says which that is.
    strict: bool,
    /// Or does not say which, but this.
    says: Option<&'static str>,
    /// It gives sessions no names.
    nameless: bool,
    /// Nor the sidecar's own.
    knows_nobody: bool,
    /// It gives clients' sessions this name.
    name: Option<String>,
    /// What it does with answers is for the test to say.
    answered: bool,
    /// And what it does with notifications and the ends of sessions.
    told: bool,
    /// And with pings.
    pinged: bool,
    /// How it answers the pings of the sidecar's own, one after the other, by status and error; those that follow well.
    pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
    /// How it answers a handshake of the sidecar's own in this revision, if not as any other.
    greets_again: Option<(&'static str, Greeting)>,
    /// Such a handshake in this revision begins a client's session again, which has a name of its own.
    begins_again: Option<&'static str>,
    /// How many sessions it has given to clients, each of which has a name of its own.
    counts: Option<Arc<AtomicUsize>>,
}

/// How a handshake is answered.
#[derive(Clone)]
pub(crate) enum Greeting {
    /// When the gate is open.
    At(Gate),
    /// The answer begins, and does not go on.
    Half,
    /// And then there is nobody any more.
    BrokenOff,
    /// With a result that is none.
    Nonsense,
    /// With an error.
    Refusal,
    /// The same when the gate is open.
    RefusalAt(Gate),
    /// As an event, after these.
    After(Vec<Value>),
}

impl Manners {
    fn of(capabilities: Value) -> Self {
        Self {
            capabilities,
            info: json!({"name": "scripted", "version": "1"}),
            revision: None,
            modern: false,
            greets: None,
            hears: None,
            ends: None,
            strict: false,
            says: None,
            nameless: false,
            knows_nobody: false,
            name: None,
            answered: false,
            told: false,
            pinged: false,
            pings: Arc::default(),
            greets_again: None,
            begins_again: None,
            counts: None,
        }
    }
}

/// The session id that the server gives out.
pub(crate) const UPSTREAM_SESSION: &str = "upstream-session-7";
/// The one of a session that is begun again, where a test tells.
pub(crate) const AGAIN_SESSION: &str = "upstream-session-8";
/// And the one of the sidecar's own session.
pub(crate) const OWN_SESSION: &str = "own-session";

impl Scripted {
    /// A server that answers handshakes, pings and notifications by itself, and everything else by `answer`. It has no
    /// stream for what belongs to no call.
    pub(crate) fn start(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::listening(without_streams(answer))
    }

    /// A server that answers every GET by `answer` too.
    pub(crate) fn listening(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::offering(json!({"tasks": {"list": {}}}), answer)
    }

    /// A server whose only tool has a description of so many bytes, and answers nothing in particular.
    pub(crate) fn listing(bytes: usize) -> Self {
        Self::start(move |request, stream| {
            let tool =
                json!({"name": "t", "description": "x".repeat(bytes), "inputSchema": {"type": "object"}});
            let result = match method_of(request).as_str() {
                "tools/list" => json!({"tools": [tool]}),
                _ => json!({"content": []}),
            };
            self::json(stream, &reply_to(request, &result));
        })
    }

    /// A server of both eras, otherwise like that of [`Scripted::start`].
    pub(crate) fn of_both(
        capabilities: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { modern: true, ..Manners::of(capabilities) }, without_streams(answer))
    }

    /// A server of one revision, which answers every GET by `answer` too.
    pub(crate) fn of(
        revision: &'static str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::of_with(revision, json!({"logging": {}}), answer)
    }

    /// The same with these capabilities.
    pub(crate) fn of_with(
        revision: &'static str,
        capabilities: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { revision: Some(revision), ..Manners::of(capabilities) }, answer)
    }

    /// A server with these capabilities, which answers every GET by `answer` too.
    pub(crate) fn offering(
        capabilities: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners::of(capabilities), answer)
    }

    /// A server that lists its tools once, and answers pings of the sidecar's own with these statuses and errors, as they are
    /// added.
    pub(crate) fn unlisting(
        pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners = Manners { pings, ..Manners::of(json!({"tools": {}})) };
        let has_listed = AtomicBool::new(false);
        Self::with(0, manners, move |request, stream| {
            if method_of(request) != "tools/list" {
                return answer(request, stream);
            }
            if !has_listed.swap(true, Ordering::Relaxed) {
                return json(stream, &reply_to(request, &json!({"tools": []})));
            }
            let error = json!({"code": -32603, "message": "no"});
            let id = &message(request)["id"];
            json(stream, &json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        })
    }

    /// A server that says that it is this.
    pub(crate) fn being(
        info: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { info, ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that answers the handshakes of clients when the gate is open.
    pub(crate) fn greeting(
        gate: &Gate,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let greets = Some(Greeting::At(gate.clone()));
        Self::with(0, Manners { greets, ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that answers the handshakes of clients so, and nothing else.
    pub(crate) fn greeting_so(greeting: Greeting, revision: Option<&'static str>) -> Self {
        let manners = Manners { greets: Some(greeting), revision, ..Manners::of(json!({})) };
        Self::with(0, manners, |_, stream| no_stream(stream))
    }

    /// A server that refuses handshakes for other revisions than this.
    pub(crate) fn strict(
        revision: &'static str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners = Manners { strict: true, revision: Some(revision), ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that refuses them in these words.
    pub(crate) fn strict_saying(
        revision: &'static str,
        words: &'static str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners =
            Manners { says: Some(words), strict: true, revision: Some(revision), ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that takes `notifications/roots/list_changed` when the gate is open.
    pub(crate) fn hearing(
        gate: &Gate,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let hears = Some(gate.clone());
        Self::with(0, Manners { hears, ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that does not know clients apart.
    pub(crate) fn nameless(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let manners = Manners { nameless: true, ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// The same that does not know the sidecar either, and answers every GET by `answer` too.
    pub(crate) fn nameless_listening(
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { nameless: true, knows_nobody: true, ..Manners::of(json!({})) }, answer)
    }

    /// That of [`Scripted::nameless`] that answers pings of the sidecar's own with these statuses and errors, as they are
    /// added.
    pub(crate) fn nameless_pinging(
        pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners = Manners { nameless: true, pings, ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// That of [`Scripted::nameless`] where `answer` also says what becomes of clients' answers.
    pub(crate) fn nameless_answered(
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners = Manners { nameless: true, answered: true, ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// The same with these capabilities, where `answer` answers every GET too.
    pub(crate) fn nameless_offering(
        capabilities: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { nameless: true, ..Manners::of(capabilities) }, answer)
    }

    /// A server that gives clients' sessions this name.
    pub(crate) fn naming(
        name: String,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { name: Some(name), ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that gives clients' sessions the names `session-1` and so on, also those that are begun again for clients
    /// that can do something.
    pub(crate) fn counting(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let manners = Manners { counts: Some(Arc::default()), ..Manners::of(json!({"tasks": {"list": {}}})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that ends sessions when the gate is open.
    pub(crate) fn ending(gate: &Gate) -> Self {
        Self::ending_too(gate, |_, stream| no_stream(stream))
    }

    /// The same where `answer` says how it answers.
    pub(crate) fn ending_too(
        gate: &Gate,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let ends = Some(gate.clone());
        Self::with(0, Manners { ends, ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that answers handshakes and pings by itself, and everything else by `answer`.
    pub(crate) fn told(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let manners = Manners { told: true, ..Manners::of(json!({"logging": {}})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that answers handshakes and notifications by itself, and everything else by `answer`.
    pub(crate) fn pinged(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let manners = Manners { pinged: true, ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that answers the first pings of the sidecar's own with these statuses and errors.
    pub(crate) fn pinging(
        pings: impl IntoIterator<Item = (u16, &'static str)>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let pings = Arc::new(Mutex::new(pings.into_iter().collect()));
        Self::with(0, Manners { pings, ..Manners::of(json!({})) }, without_streams(answer))
    }

    /// A server that breaks off in the middle of its answer to a handshake of the sidecar's own in this revision.
    pub(crate) fn breaking_off(
        revision: &'static str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::greeting_again(revision, Greeting::BrokenOff, answer)
    }

    /// A server that answers a handshake of the sidecar's own in this revision so.
    pub(crate) fn greeting_again(
        revision: &'static str,
        greeting: Greeting,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let manners = Manners { greets_again: Some((revision, greeting)), ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// The same where `answer` also says what becomes of pings; as any other without a greeting.
    pub(crate) fn pinged_greeting_again(
        revision: &'static str,
        greeting: Option<Greeting>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let greets_again = greeting.map(|greeting| (revision, greeting));
        let manners = Manners { greets_again, pinged: true, ..Manners::of(json!({})) };
        Self::with(0, manners, without_streams(answer))
    }

    /// A server that answers handshakes and notifications by itself, and everything else by `answer`, every GET too. A
    /// session that the sidecar begins in this revision is a client's, and has a name of its own.
    pub(crate) fn beginning_again(
        revision: &'static str,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let begins_again = Some(revision);
        Self::with(0, Manners { begins_again, pinged: true, ..Manners::of(json!({})) }, answer)
    }

    /// A server with these capabilities at this port, as soon as it is free.
    pub(crate) fn at(
        port: u16,
        capabilities: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(port, Manners::of(capabilities), answer)
    }

    fn with(
        port: u16,
        manners: Manners,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, into) = (Arc::new(answer), seen.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, into, manners) = (answer.clone(), into.clone(), manners.clone());
                std::thread::spawn(move || serve(stream, &manners, &*answer, &into));
            }
        });
        Self { port, seen, _watch: Watch::over(port) }
    }

    /// What it got, without the requests of the sidecar's own session.
    pub(crate) fn seen(&self, method: &str) -> Vec<Request> {
        let seen = self.seen.lock().expect("no panic");
        let others = seen.iter().filter(|heard| !heard.own).map(|heard| &heard.request);
        let wanted = |request: &&Request| method_of(request) == method || request.method == method;
        others.filter(wanted).cloned().collect()
    }

    /// Everything that it got.
    pub(crate) fn seen_all(&self) -> Vec<Request> {
        let seen = self.seen.lock().expect("no panic");
        seen.iter().map(|heard| heard.request.clone()).collect()
    }
}

fn serve(
    mut stream: TcpStream,
    manners: &Manners,
    answer: &dyn Fn(&Request, &mut TcpStream),
    seen: &Mutex<Vec<Heard>>,
) {
    // Its answers go out in pieces, none of which is to wait for the other side to have read the last one.
    stream.set_nodelay(true).expect("an option");
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    while let Some(request) = read(&mut reader) {
        let method = method_of(&request);
        let asked = method == "initialize" || method == "server/discover";
        let version = &message(&request)["params"]["protocolVersion"];
        let begins_again = manners.begins_again.is_some_and(|revision| version == revision);
        let own = asked && String::from_utf8_lossy(&request.body).contains("longshore-sidecar")
            || request.headers.iter().any(|(_, value)| value == OWN_SESSION);
        seen.lock().expect("no panic").push(Heard { request: request.clone(), own });
        match method.as_str() {
            "initialize"
                if manners.strict
                    && message(&request)["params"]["protocolVersion"] != json!(manners.revision) =>
            {
                let requested = &message(&request)["params"]["protocolVersion"];
                let error = match manners.says {
                    Some(words) => json!({"code": -32602, "message": words}),
                    None => json!({"code": -32602, "message": "Unsupported protocol version", "data": {
                        "supported": [manners.revision, "2199-01-01"], "requested": requested,
                    }}),
                };
                let refusal = json!({"jsonrpc": "2.0", "id": message(&request)["id"], "error": error});
                json_with(&mut stream, 200, "", &refusal.to_string());
            }
            "initialize" => {
                let asked = message(&request)["params"]["protocolVersion"].clone();
                let again = manners.greets_again.as_ref().filter(|(revision, _)| own && asked == *revision);
                let others = manners.greets.as_ref().filter(|_| !own);
                let greeting = again.map(|(_, greeting)| greeting).or(others);
                if let Some(Greeting::At(gate) | Greeting::RefusalAt(gate)) = greeting {
                    gate.pass();
                }
                let version = match manners.revision {
                    Some(revision) => json!(revision),
                    None => message(&request)["params"]["protocolVersion"].clone(),
                };
                let result = json!({
                    "protocolVersion": version, "capabilities": manners.capabilities,
                    "serverInfo": manners.info,
                });
                let can_do_nothing = message(&request)["params"]["capabilities"] == json!({});
                let counted = manners.counts.as_ref().filter(|_| !own || !can_do_nothing);
                let counted =
                    counted.map(|count| format!("session-{}", count.fetch_add(1, Ordering::SeqCst) + 1));
                let session = match counted.as_deref().or(manners.name.as_deref()) {
                    Some(name) if counted.is_some() => name,
                    _ if own && begins_again => AGAIN_SESSION,
                    _ if own => OWN_SESSION,
                    name => name.unwrap_or(UPSTREAM_SESSION),
                };
                let headers = if manners.nameless && (!own || manners.knows_nobody) {
                    String::new()
                } else {
                    format!("mcp-session-id: {session}\r\n")
                };
                match greeting {
                    Some(half @ (Greeting::Half | Greeting::BrokenOff)) => {
                        let head =
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n";
                        write(&mut stream, &format!("{head}{headers}\r\n{{\"jsonrpc\":"));
                        if matches!(half, Greeting::BrokenOff) {
                            return;
                        }
                    }
                    Some(Greeting::Nonsense) => {
                        json_with(&mut stream, 200, &headers, &reply_to(&request, &json!({})));
                    }
                    Some(Greeting::Refusal | Greeting::RefusalAt(_)) => {
                        let id = &message(&request)["id"];
                        // Cut off within a character, as programs do whose texts are of UTF-16.
                        let error = r#"{"code":-32000,"message":"no seat is free \ud83d"}"#;
                        let refusal = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                        json_with(&mut stream, 200, "", &refusal);
                    }
                    Some(Greeting::After(before)) => {
                        begin_events_with(&mut stream, &headers);
                        for early in before {
                            chunk(&mut stream, &format!("data: {early}\n\n"));
                        }
                        chunk(&mut stream, &format!("data: {}\n\n", reply_to(&request, &result)));
                        chunk(&mut stream, "");
                    }
                    Some(Greeting::At(_)) | None => {
                        json_with(&mut stream, 200, &headers, &reply_to(&request, &result));
                    }
                }
            }
            "server/discover" if own && manners.modern => {
                let result = json!({
                    "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": manners.capabilities,
                    "ttlMs": 0, "cacheScope": "private",
                });
                json(&mut stream, &reply_to(&request, &result));
            }
            "server/discover" if own => json_with(&mut stream, 400, "", "{}"),
            "ping"
                if own && let Some((status, error)) = manners.pings.lock().expect("no panic").pop_front() =>
            {
                let error = error.replace("ID", &message(&request)["id"].to_string());
                json_with(&mut stream, status, "", &error);
            }
            "ping" if own || !manners.pinged => json(&mut stream, &reply_to(&request, &json!({}))),
            "notifications/roots/list_changed" if manners.hears.is_some() => {
                manners.hears.iter().for_each(Gate::pass);
                accepted(&mut stream);
            }
            _ if method.starts_with("notifications/") && !manners.told
                || method.is_empty() && request.method == "POST" && !manners.answered =>
            {
                accepted(&mut stream);
            }
            _ if request.method == "DELETE" && !manners.told => {
                manners.ends.iter().for_each(Gate::pass);
                write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
            _ if request.method == "GET" && own => no_stream(&mut stream),
            _ => answer(&request, &mut stream),
        }
    }
}

/// The same, but that there is no stream for what belongs to no call.
fn without_streams(
    answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
) -> impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static {
    move |request, stream| {
        let resumes = request.value("last-event-id").is_some();
        if request.method == "GET" && !resumes { no_stream(stream) } else { answer(request, stream) }
    }
}
