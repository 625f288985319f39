//! A client that reads a stream of events at its own pace.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::{Reply, connect, whole_line};
use super::{Request, schemas};

/// One event. Comments are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: String,
    pub(crate) retry: Option<u64>,
}

/// A response that is being read.
pub(crate) struct Events {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    body: Body<BufReader<TcpStream>>,
    /// The last id that was seen.
    pub(crate) last: String,
    /// What it answers, and where it comes from.
    asked: (Request, SocketAddr),
}

/// The body of a response, as it comes.
pub(crate) struct Body<S> {
    stream: S,
    /// What is left of a chunk; of a body without chunks all of it.
    left: usize,
    chunked: bool,
}

impl Event {
    /// The next one in a body; none at its end. Nobody waits for one that is late.
    pub(crate) fn read(body: &mut impl Read, is_late: impl Fn() -> bool) -> std::io::Result<Option<Self>> {
        let mut event = Self::default();
        let (mut fields, mut data) = (false, Vec::new());
        loop {
            // Comments keep the connection alive, and are not what is waited for.
            if is_late() {
                return Err(ErrorKind::TimedOut.into());
            }
            let mut line = String::new();
            BufReader::with_capacity(1, &mut *body).read_line(&mut line)?;
            if line.is_empty() {
                assert!(!fields, "half an event: {event:?}");
                return Ok(None);
            }
            let line = line.trim_end_matches('\n');
            if line.is_empty() && fields {
                event.data = data.join("\n");
                return Ok(Some(event));
            }
            let Some((field, value)) = line.split_once(": ").filter(|(field, _)| !field.is_empty()) else {
                continue;
            };
            fields = true;
            match field {
                "id" => value.clone_into(&mut event.id),
                "event" => value.clone_into(&mut event.event),
                "data" => data.push(value.to_owned()),
                "retry" => event.retry = value.parse().ok(),
                _ => panic!("a field: {field}"),
            }
        }
    }

    /// Whether there is a message in it, or several.
    pub(crate) fn has_messages(&self) -> bool {
        self.data.starts_with(['{', '['])
    }

    /// The message in it.
    pub(crate) fn message(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Events {
    /// Sends a request on a connection of its own, and reads the head of the response.
    pub(crate) fn open(request: &Request, to: SocketAddr) -> Self {
        Self::try_open(request, to).expect("a head")
    }

    /// The same where the connection may break.
    pub(crate) fn try_open(request: &Request, to: SocketAddr) -> std::io::Result<Self> {
        let mut stream = connect(to);
        request.write(&mut stream);
        let mut stream = BufReader::new(stream);
        let (status, headers) = Reply::read_head(&mut stream)?;
        let body = Body::after(&headers, stream);
        Ok(Self { status, headers, body, last: String::new(), asked: (request.clone(), to) })
    }

    /// How long to wait for an event.
    pub(crate) fn patience(&self, time: Duration) {
        self.body.stream.get_ref().set_read_timeout(Some(time)).expect("a time-out");
    }

    /// The next event with data; none at the end of the stream.
    pub(crate) fn next(&mut self) -> Option<Event> {
        loop {
            let event = self.any()?;
            if !event.data.is_empty() {
                return Some(event);
            }
        }
    }

    /// The next event, also one without data.
    pub(crate) fn any(&mut self) -> Option<Event> {
        self.try_any().expect("the stream goes on, or ends properly")
    }

    /// The next event, or why there is none.
    pub(crate) fn try_any(&mut self) -> std::io::Result<Option<Event>> {
        let (began, patience) = (Instant::now(), self.body.stream.get_ref().read_timeout()?);
        let is_late = || patience.is_some_and(|patience| began.elapsed() >= patience);
        let event = Event::read(&mut self.body, is_late)?;
        if let Some(event) = &event {
            if event.has_messages() {
                schemas::client_reads(&self.asked.0, self.asked.1, &event.data);
            }
            if !event.id.is_empty() {
                self.last.clone_from(&event.id);
            }
        }
        Ok(event)
    }

    /// All events with data that are still to come.
    pub(crate) fn all(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// The rest of the body as it is.
    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.body.read_to_string(&mut text).expect("text");
        text
    }
}

impl<S: BufRead> Body<S> {
    /// What comes after a head.
    pub(crate) fn after(headers: &[(String, String)], stream: S) -> Self {
        let header = |name: &str| headers.iter().find(|(header, _)| header == name).map(|(_, value)| value);
        let length = header("content-length").map(|length| length.parse().expect("a length"));
        Self { stream, left: length.unwrap_or(0), chunked: header("transfer-encoding").is_some() }
    }
}

impl<S: BufRead> Read for Body<S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.chunked && self.left == 0 {
            let line = whole_line(&mut self.stream)?;
            self.left = usize::from_str_radix(line.trim_end(), 16).expect("a chunk's length");
            if self.left == 0 {
                self.chunked = false;
                // Another response may follow.
                self.stream.read_line(&mut String::new())?;
            }
        }
        let length = buffer.len().min(self.left);
        if length == 0 {
            return Ok(0);
        }
        let read = self.stream.read(&mut buffer[..length])?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read;
        if self.chunked && self.left == 0 {
            self.stream.read_line(&mut String::new())?;
        }
        Ok(read)
    }
}
