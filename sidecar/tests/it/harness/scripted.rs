//! A server that does what a test says, byte for byte. Everything that it got can be looked at.

mod manners;
mod serve;
mod wire;

use std::collections::VecDeque;
use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::replicas::Listens;
use super::schemas::Watch;
use super::{Gate, Request, eventually};
pub(crate) use manners::Greeting;
use manners::Manners;
use serve::serve;
pub(crate) use wire::{
    accepted, answered, ask_for_roots, begin_events, chunk, events, json, json_with, message, method_of,
    no_stream, parse, read, reply, reply_to, say, stays_open, until_closed, write,
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
            reply(stream, request, &result);
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
                return reply(stream, request, &json!({"tools": []}));
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

    /// That of [`Scripted::nameless`] with these capabilities that answers pings of the sidecar's own with these statuses and
    /// errors, as they are added.
    pub(crate) fn nameless_pinging(
        capabilities: Value,
        pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::nameless_pinging_listening(capabilities, pings, without_streams(answer))
    }

    /// The same that answers every GET by `answer` too.
    pub(crate) fn nameless_pinging_listening(
        capabilities: Value,
        pings: Arc<Mutex<VecDeque<(u16, &'static str)>>>,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Manners { nameless: true, pings, ..Manners::of(capabilities) }, answer)
    }

    /// That of [`Scripted::start`] where `answer` also says what becomes of clients' answers.
    pub(crate) fn answered(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let manners = Manners { answered: true, ..Manners::of(json!({})) };
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

impl Listens for Scripted {
    fn port(&self) -> u16 {
        self.port
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

/// A server that does nothing by itself: `answer` writes all that it says. Gives its port.
pub(crate) fn bare(answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
                while let Some(request) = read(&mut reader) {
                    answer(&request, &mut stream);
                }
            });
        }
    });
    port
}
