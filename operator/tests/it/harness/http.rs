//! Requests over HTTP, by hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// The answer to a POST, as far as it was read. The rest comes while this is there.
pub(crate) struct Posted {
    _stream: TcpStream,
    text: String,
}

impl Posted {
    /// A field of its head.
    pub(crate) fn head(&self, name: &str) -> String {
        let field = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        self.text.lines().find_map(field).unwrap_or_else(|| panic!("no {name}: {}", self.text))
    }
}

/// The status and the body of the answer to a GET.
pub(crate) fn get(url: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut stream = send("GET", url, headers, "");
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Sends a message of MCP, and reads what comes back until these words are in it.
pub(crate) fn post(url: &str, headers: &[(&str, &str)], message: &Value, words: &str) -> Posted {
    let of_mcp = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let mut stream = send("POST", url, &[&of_mcp, headers].concat(), &message.to_string());
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(words) {
            return Posted { text: text.into_owned(), _stream: stream };
        }
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "not said: {words:?}\n{text}");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
    let (authority, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = format!("{method} /{path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        head.push_str(&format!("host: {authority}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    stream
}
