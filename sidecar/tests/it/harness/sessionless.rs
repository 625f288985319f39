//! A server of 2026-07-28 that does what a test says, and holds every request to that revision: its envelope, its
//! headers, and the marks of its tools.

use std::io::BufReader;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_mcp::detect::{self, Conversation};
use longshore_mcp::headers::{Fields, argument};
use longshore_mcp::meta::Outline;
use longshore_mcp::revision::Revision;
use serde_json::{Value, json};

use super::replicas::Listens;
use super::schemas::Watch;
use super::scripted::{json_with, message, method_of, read, reply_to, write};
use super::{Request, eventually};

/// The server.
pub(crate) struct Sessionless {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    says: Arc<Mutex<Says>>,
    /// How many connections are open.
    open: Arc<AtomicU64>,
    stopped: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<Open>>>,
    _watch: Watch,
}

/// A connection, and whether something is answered in it.
type Open = (TcpStream, Arc<AtomicBool>);

/// What it says of itself.
#[derive(Clone)]
pub(crate) struct Says {
    pub(crate) capabilities: Value,
    pub(crate) tools: Value,
    /// It does not answer `tools/list` any more.
    pub(crate) lists_nothing: bool,
    /// It refuses clients that have experimental capabilities.
    pub(crate) is_particular: bool,
    /// How many times more it does not want to say who it is.
    pub(crate) is_shy: u32,
}

/// The longest head of a request that is read, as servers on Node do.
const MAX_HEAD: usize = 16 * 1024;

impl Sessionless {
    /// A server that answers `server/discover` and `tools/list` by itself, and everything else by `answer`.
    pub(crate) fn start(
        capabilities: Value,
        tools: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::at(0, capabilities, tools, answer)
    }

    /// The same at this port.
    pub(crate) fn at(
        port: u16,
        capabilities: Value,
        tools: Value,
        answer: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = eventually("the port is free", || TcpListener::bind(("127.0.0.1", port)).ok());
        let port = listener.local_addr().expect("an address").port();
        let (seen, open) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::<AtomicU64>::default());
        let says = Says { capabilities, tools, lists_nothing: false, is_particular: false, is_shy: 0 };
        let says = Arc::new(Mutex::new(says));
        let (stopped, streams) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        let server = Self {
            port,
            seen: seen.clone(),
            says: says.clone(),
            open: open.clone(),
            stopped: stopped.clone(),
            streams: streams.clone(),
            _watch: Watch::over(port),
        };
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let is_answering = Arc::<AtomicBool>::default();
                let kept = (stream.try_clone().expect("a clone"), is_answering.clone());
                streams.lock().expect("no panic").push(kept);
                let (answer, seen, says) = (answer.clone(), seen.clone(), says.clone());
                let (open, stopped) = (open.clone(), stopped.clone());
                std::thread::spawn(move || {
                    open.fetch_add(1, Ordering::SeqCst);
                    let end = stream.try_clone().expect("a clone");
                    // What comes once it is stopped can still be read.
                    let next = |reader: &mut _| read(reader).filter(|_| !stopped.load(Ordering::SeqCst));
                    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
                    let mut stream = stream;
                    while let Some(request) = next(&mut reader) {
                        is_answering.store(true, Ordering::SeqCst);
                        seen.lock().expect("no panic").push(request.clone());
                        serve(&request, &mut stream, &*answer, &says);
                        is_answering.store(false, Ordering::SeqCst);
                    }
                    // Whoever else has a hold of it does not keep it open.
                    let _ = end.shutdown(Shutdown::Both);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// Ends it, and all that is under way.
    pub(crate) fn stop(&self) {
        self.end(false);
    }

    /// Ends it, but that it goes on with what it answers already. Nothing listens when this returns.
    pub(crate) fn leave(&self) {
        self.end(true);
        eventually("nothing listens", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    fn end(&self, goes_on: bool) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener, which closes then.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let soon = Instant::now() + Duration::from_millis(100);
        for (stream, is_answering) in self.streams.lock().expect("no panic").drain(..) {
            // What is written already may have its thread wait for a processor.
            while goes_on && is_answering.load(Ordering::SeqCst) && Instant::now() < soon {
                std::thread::sleep(Duration::from_millis(1));
            }
            let goes_on = goes_on && is_answering.load(Ordering::SeqCst);
            let _ = stream.shutdown(if goes_on { Shutdown::Read } else { Shutdown::Both });
        }
    }

    /// All that it got of this method.
    pub(crate) fn all(&self, method: &str) -> Vec<Request> {
        let seen = self.seen.lock().expect("no panic");
        seen.iter().filter(|request| method_of(request) == method).cloned().collect()
    }

    /// What it got of this method, without what the sidecar asked on its own account.
    pub(crate) fn seen(&self, method: &str) -> Vec<Request> {
        let seen = self.seen.lock().expect("no panic");
        let is_own = |request: &Request| {
            String::from_utf8_lossy(&request.body).contains(r#""name":"longshore-sidecar""#)
        };
        seen.iter().filter(|request| method_of(request) == method && !is_own(request)).cloned().collect()
    }

    /// What it says of itself from now on.
    pub(crate) fn says(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.says.lock().expect("no panic"));
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }
}

impl Listens for Sessionless {
    fn port(&self) -> u16 {
        self.port
    }
}

fn serve(
    request: &Request,
    stream: &mut TcpStream,
    answer: &dyn Fn(&Request, &mut TcpStream),
    says: &Mutex<Says>,
) {
    if request.method != "POST" {
        write(stream, "HTTP/1.1 405 X\r\nallow: POST\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let head: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if head > MAX_HEAD {
        json_with(stream, 431, "", "");
        return;
    }
    let says = {
        let mut says = says.lock().expect("no panic");
        if says.is_shy > 0 && method_of(request) == "server/discover" {
            says.is_shy -= 1;
            json_with(stream, 400, "", "{}");
            return;
        }
        says.clone()
    };
    if let Err((status, text)) = judge(request, &says) {
        json_with(stream, status, "", &text);
        return;
    }
    if says.lists_nothing && method_of(request) == "tools/list" {
        return;
    }
    let result = match method_of(request).as_str() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
            "capabilities": says.capabilities, "instructions": "be kind",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "modern", "version": "1"}},
        }),
        "tools/list" => {
            json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": says.tools})
        }
        "prompts/list" => empty("prompts"),
        "resources/list" => empty("resources"),
        "resources/templates/list" => empty("resourceTemplates"),
        _ => {
            answer(request, stream);
            return;
        }
    };
    json_with(stream, 200, "", &reply_to(request, &result));
}

/// A list without entries.
fn empty(member: &str) -> Value {
    json!({"resultType": "complete", "ttlMs": 5, "cacheScope": "public", member: []})
}

/// What is wrong with a request, if anything is.
fn judge(request: &Request, says: &Says) -> Result<(), (u16, String)> {
    let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let fields = Fields::read(headers);
    let conversation = detect::with_body(&request.body, &fields, &[Revision::V2026_07_28]);
    let modern = match conversation {
        Ok(Conversation::Modern(modern)) => modern,
        Ok(_) => {
            let method = method_of(request);
            let text = json!({"jsonrpc": "2.0", "id": message(request)["id"],
                "error": {"code": -32601, "message": format!("no {method} here")}});
            return Err((404, text.to_string()));
        }
        Err(mistake) => {
            return Err((mistake.answer().status, mistake.response()));
        }
    };
    assert!(
        ["mcp-session-id", "last-event-id"].iter().all(|name| request.value(name).is_none()),
        "what belongs to sessions goes nowhere"
    );
    let can = &message(request)["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    if says.is_particular && can["experimental"].is_object() {
        let text = json!({"jsonrpc": "2.0", "id": message(request)["id"],
            "error": {"code": -32602, "message": "invalid capabilities"}});
        return Err((400, text.to_string()));
    }
    let tool = says.tools.as_array().into_iter().flatten().find(|tool| {
        Some(tool["name"].as_str().unwrap_or_default()) == message(request)["params"]["name"].as_str()
    });
    if let Some(tool) = tool.filter(|_| modern.method.as_str() == "tools/call") {
        let marked = argument::marked(&tool["inputSchema"].to_string()).unwrap_or_default();
        let outline = Outline::read(modern.request.params).expect("read before");
        if let Err(mismatch) = argument::check(&marked, outline.arguments(), &fields) {
            let text = json!({"jsonrpc": "2.0", "id": message(request)["id"],
                "error": {"code": -32020, "message": mismatch.to_string()}});
            return Err((400, text.to_string()));
        }
    }
    Ok(())
}
