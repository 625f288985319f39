//! HTTP/1.1 by hand, so that a test decides every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::schemas;

/// When an answer that is read whole is taken for a stream that stays open, in which there is always something to read.
const ENDLESS: Duration = Duration::from_secs(120);

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A connection, known by its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wire {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// What is read from a connection.
pub(crate) trait Wired {
    /// Which one it is.
    fn wire(&self) -> Option<Wire>;
}

impl Request {
    /// A message to the MCP endpoint.
    pub(crate) fn post(body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", "/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body)
    }

    pub(crate) fn new(method: &str, path: &str) -> Self {
        let host = ("host".to_owned(), "localhost".to_owned());
        Self { method: method.to_owned(), path: path.to_owned(), headers: vec![host], body: Vec::new() }
    }

    /// Adds a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the method.
    pub(crate) fn with_method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// Removes a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| header != name);
        self
    }

    /// Replaces a header.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn session(self, id: &str) -> Self {
        self.header("mcp-session-id", id)
    }

    /// What a header says.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The head as it is sent.
    pub(crate) fn head(&self) -> String {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text
    }

    /// Sends it on a connection of its own and reads the whole response.
    pub(crate) fn send(&self, to: SocketAddr) -> Reply {
        let mut stream = connect(to);
        self.write(&mut stream);
        Reply::on(stream)
    }

    /// Writes it.
    pub(crate) fn write(&self, stream: &mut TcpStream) {
        if let Some(wire) = Wire::of(stream) {
            schemas::client_says(self, wire);
        }
        stream.write_all(&self.bytes()).expect("write a request");
    }

    /// All of it as it is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head().into_bytes();
        bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", self.body.len()).as_bytes());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A connection on which nothing is waited for without end.
pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("connect");
    Wire::of(&stream).into_iter().for_each(schemas::connected);
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set a time-out");
    stream
}

impl Wire {
    fn of(stream: &TcpStream) -> Option<Self> {
        Some(Self { from: stream.local_addr().ok()?, to: stream.peer_addr().ok()? })
    }
}

impl Wired for BufReader<TcpStream> {
    fn wire(&self) -> Option<Wire> {
        Wire::of(self.get_ref())
    }
}

impl Wired for BufReader<&TcpStream> {
    fn wire(&self) -> Option<Wire> {
        Wire::of(self.get_ref())
    }
}

impl Reply {
    /// The one response that is read on a connection.
    #[track_caller]
    pub(crate) fn on<S: Read>(stream: S) -> Self
    where
        BufReader<S>: Wired,
    {
        Self::read(&mut BufReader::new(stream)).expect("a response")
    }

    /// Reads a response to its end. It fails if a message in it is not what its reader's revision says.
    #[track_caller]
    pub(crate) fn read(stream: &mut (impl BufRead + Wired)) -> std::io::Result<Self> {
        let reply = Self::read_whole(stream)?;
        if let Some(wire) = stream.wire() {
            reply.judge(wire);
        }
        Ok(reply)
    }

    fn read_whole(stream: &mut impl BufRead) -> std::io::Result<Self> {
        let (status, headers) = Self::read_head(stream)?;
        let mut reply = Self { status, headers, body: Vec::new() };
        reply.body = if reply.header("transfer-encoding") == Some("chunked") {
            let (mut body, began) = (Vec::new(), Instant::now());
            while let Some(chunk) = read_chunk(stream)? {
                body.extend_from_slice(&chunk);
                assert!(began.elapsed() < ENDLESS, "the answer has no end: it is one to be read as events");
            }
            body
        } else {
            let length = reply.header("content-length").map_or(0, |length| length.parse().expect("a length"));
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            body
        };
        Ok(reply)
    }

    #[track_caller]
    fn judge(&self, wire: Wire) {
        if let Some(id) = self.header("mcp-session-id") {
            let version = self.text().contains("protocolVersion").then(|| self.message());
            schemas::session(
                id,
                version.and_then(|it| it["result"]["protocolVersion"].as_str().map(str::to_owned)).as_deref(),
            );
        }
        let messages = match self.header("content-type") {
            Some("application/json") => vec![self.text().to_owned()],
            Some("text/event-stream") => self.events(),
            _ => Vec::new(),
        };
        let request = schemas::asked(wire, &messages);
        for message in &messages {
            match &request {
                Some(request) => schemas::client_reads(request, wire.to, message),
                None => schemas::somebody_reads(wire.to, message),
            }
        }
    }

    /// Reads the head of a response.
    pub(crate) fn read_head(stream: &mut impl BufRead) -> std::io::Result<(u16, Vec<(String, String)>)> {
        let mut line = whole_line(stream)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        let mut headers = Vec::new();
        loop {
            line = whole_line(stream)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok((status, headers))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The message in the body, or in the last event of it.
    pub(crate) fn message(&self) -> serde_json::Value {
        let text = match self.header("content-type") {
            Some("text/event-stream") => self.events().pop().expect("an event"),
            _ => self.text().to_owned(),
        };
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// The data of the events in the body that hold any.
    pub(crate) fn events(&self) -> Vec<String> {
        let lines = self.text().lines();
        let data = lines.filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| !data.is_empty()).map(str::to_owned).collect()
    }
}

/// A line that does not break off.
pub(crate) fn whole_line(stream: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// The next chunk of a body; none at the end.
pub(crate) fn read_chunk(stream: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let length = usize::from_str_radix(line.trim_end(), 16).expect("a chunk's length");
    let mut chunk = vec![0; length];
    stream.read_exact(&mut chunk)?;
    stream.read_line(&mut line)?;
    Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
}
