//! A server that costs next to nothing: it answers every call with an event, as large as the call says.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_mcp::envelope::{self, Message};
use longshore_mcp::revision::Revision;
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::call::{ALONE, SESSIONS};

/// The argument that makes this program the server.
const ROLE: &str = "echo";
const INITIALIZED: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#;
const DISCOVERED: &str = r#"{"resultType":"complete","ttlMs":60000,"cacheScope":"public","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#;
const TOOLS: &str = r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#;
const TOOLS_ALONE: &str = r#"{"resultType":"complete","ttlMs":60000,"cacheScope":"public","tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#;

/// What such a server is.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) revision: Revision,
    /// Whether it names its sessions, as those of the SDKs do. Where it does not, requests have other ids there.
    pub(crate) names_sessions: bool,
}

impl Kind {
    /// What servers of this revision are like, most of them.
    pub(crate) fn usual(revision: Revision) -> Self {
        Self { revision, names_sessions: revision == SESSIONS }
    }

    /// That of a process with these arguments, if it is to be a server.
    pub(crate) fn of(arguments: &[String]) -> Option<Self> {
        let [role, revision, names_sessions] = arguments else { return None };
        let names_sessions = names_sessions.parse().ok().filter(|_| role == ROLE)?;
        Some(Self { revision: Revision::parse(revision)?, names_sessions })
    }
}

/// The next session's name.
static SESSION: AtomicU64 = AtomicU64::new(1);

/// The server, as a process of its own.
pub(crate) struct Echo {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Echo {
    pub(crate) fn start(kind: Kind) -> Self {
        let own = std::env::current_exe().expect("its own path");
        let mut command = Command::new(own);
        command.args([ROLE, kind.revision.as_str(), &kind.names_sessions.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("its address");
        Self { child, address: line.trim().parse().expect("an address") }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What that process does.
pub(crate) fn serve(kind: Kind) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        println!("{}", listener.local_addr().expect("its address"));
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("an option");
            tokio::task::spawn_local(connection(stream, kind));
        }
    });
}

async fn connection(mut stream: TcpStream, kind: Kind) {
    let (mut request, mut response) = (Vec::with_capacity(4096), Vec::new());
    let mut padding = Vec::new();
    loop {
        request.clear();
        let body = loop {
            if !matches!(stream.read_buf(&mut request).await, Ok(count) if count > 0) {
                return;
            }
            if let Some(body) = body(&request) {
                break body;
            }
        };
        response.clear();
        answer(&request[body..], kind, &mut padding, &mut response);
        if stream.write_all(&response).await.is_err() {
            return;
        }
    }
}

/// Where the body of a request begins that is there as a whole.
fn body(request: &[u8]) -> Option<usize> {
    let body = memmem::find(request, b"\r\n\r\n")? + 4;
    let head = &request[..body];
    let length = memmem::find(head, b"ontent-length: ").or_else(|| memmem::find(head, b"ontent-Length: "));
    let length = length.map_or(0, |at| {
        let digits = head[at + 15..].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    });
    (request.len() >= body + length).then_some(body)
}

fn answer(body: &[u8], kind: Kind, padding: &mut Vec<u8>, response: &mut Vec<u8>) {
    let is_call = memmem::find(body, br#""method":"tools/call""#).is_some();
    let (Some(size), true) = (number(body, br#""size":"#), is_call) else {
        return rarely(body, kind, response);
    };
    padding.resize(size, b'x');
    let id = id(body);
    let result = if kind.revision == ALONE { r#""resultType":"complete","# } else { "" };
    let before = format!(
        "event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{result}\"content\":[{{\"type\":\"text\",\"text\":\""
    );
    let after = "\"}]}}\n\n";
    let length = before.len() + size + after.len();
    response.extend_from_slice(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{before}")
            .as_bytes(),
    );
    response.extend_from_slice(padding);
    response.extend_from_slice(after.as_bytes());
    response.extend_from_slice(b"\r\n0\r\n\r\n");
}

/// The id of a request in which it stands before everything that could look like one, as JSON.
fn id(body: &[u8]) -> &str {
    let id = memmem::find(body, br#""id":"#).map(|at| &body[at + 5..]).unwrap_or_default();
    let end = id.iter().position(|byte| b",}".contains(byte)).unwrap_or_default();
    std::str::from_utf8(&id[..end]).expect("text")
}

fn number(body: &[u8], before: &[u8]) -> Option<usize> {
    let at = memmem::find(body, before)? + before.len();
    let digits = body[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

/// What is asked once.
fn rarely(body: &[u8], kind: Kind, response: &mut Vec<u8>) {
    let Ok(Message::Request(request)) = envelope::read(body) else {
        return response.extend_from_slice(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
    };
    let result = match (request.method.as_str(), kind.revision) {
        ("initialize", SESSIONS) => Some(INITIALIZED),
        ("server/discover", ALONE) => Some(DISCOVERED),
        ("tools/list", SESSIONS) => Some(TOOLS),
        ("tools/list", ALONE) => Some(TOOLS_ALONE),
        ("ping", SESSIONS) => Some("{}"),
        _ => None,
    };
    let (status, said) = match result {
        Some(result) => ("200 OK", format!("\"result\":{result}")),
        None => ("404 Not Found", r#""error":{"code":-32601,"message":"Method not found"}"#.to_owned()),
    };
    let message = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},{said}}}", request.id.as_json());
    let names = kind.names_sessions && request.method.as_str() == "initialize";
    let number = SESSION.fetch_add(1, Ordering::Relaxed);
    let session = if names { format!("mcp-session-id: {number}\r\n") } else { String::new() };
    response.extend_from_slice(
        format!(
            "HTTP/1.1 {status}\r\n{session}content-type: application/json\r\ncontent-length: {}\r\n\r\n{message}",
            message.len()
        )
        .as_bytes(),
    );
}
