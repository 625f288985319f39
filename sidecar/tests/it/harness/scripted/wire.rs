//! What is read and written on a connection, as it is in tests of servers.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Request, schemas};

/// Takes what has no answer.
pub(crate) fn accepted(stream: &mut TcpStream) {
    write(stream, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
}

/// Says that there is no stream.
pub(crate) fn no_stream(stream: &mut TcpStream) {
    write(stream, "HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n");
}

/// A request that a server reads, which is judged.
pub(crate) fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let request = parse(reader)?;
    if let Ok(own) = reader.get_ref().local_addr() {
        schemas::server_reads(own.port(), &request);
    }
    Some(request)
}

/// A request, whoever reads it.
pub(crate) fn parse(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split(' ');
    let mut request = Request::new(words.next()?, words.next()?);
    request.headers.clear();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = request.value("content-length").map_or(0, |length| length.parse().expect("a length"));
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// The message in a request.
pub(crate) fn message(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

pub(crate) fn method_of(request: &Request) -> String {
    message(request)["method"].as_str().unwrap_or_default().to_owned()
}

/// A response to a request.
pub(crate) fn reply_to(request: &Request, result: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": message(request)["id"], "result": result}).to_string()
}

/// The same with a result as it is written.
pub(crate) fn answered(request: &Request, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message(request)["id"])
}

/// Writes text.
pub(crate) fn write(stream: &mut TcpStream, text: &str) {
    schemas::server_says(text);
    // The sidecar may have gone; the test looks at the sidecar.
    let _ = stream.write_all(text.as_bytes());
}

/// Answers with JSON.
pub(crate) fn json(stream: &mut TcpStream, text: &str) {
    json_with(stream, 200, "", text);
}

pub(crate) fn json_with(stream: &mut TcpStream, status: u16, headers: &str, text: &str) {
    let length = text.len();
    write(
        stream,
        &format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n{text}"
        ),
    );
}

/// Answers a request with this result.
pub(crate) fn reply(stream: &mut TcpStream, request: &Request, result: &Value) {
    json(stream, &reply_to(request, result));
}

/// Begins a stream of events.
pub(crate) fn begin_events(stream: &mut TcpStream) {
    begin_events_with(stream, "");
}

pub(super) fn begin_events_with(stream: &mut TcpStream, headers: &str) {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";
    write(stream, &format!("{head}{headers}\r\n"));
}

/// Begins one in which nothing comes, until the other side closes it.
pub(crate) fn stays_open(stream: &mut TcpStream) {
    begin_events(stream);
    until_closed(stream);
}

/// Waits until the other side closes the connection.
pub(crate) fn until_closed(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0]);
}

/// Writes a piece of a stream.
pub(crate) fn chunk(stream: &mut TcpStream, text: &str) {
    write(stream, &format!("{:x}\r\n{text}\r\n", text.len()));
}

/// Says a message in a stream of events.
pub(crate) fn say(stream: &mut TcpStream, message: &impl Display) {
    chunk(stream, &format!("data: {message}\n\n"));
}

/// Asks for the roots of a client in one. The question is called `q`.
pub(crate) fn ask_for_roots(stream: &mut TcpStream) {
    say(stream, &json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}));
}

/// Answers with events.
pub(crate) fn events(stream: &mut TcpStream, events: &[&str]) {
    begin_events(stream);
    for event in events {
        chunk(stream, event);
    }
    write(stream, "0\r\n\r\n");
}
