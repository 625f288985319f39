//! What goes back to whoever asked, read beside its way: nothing waits for that.

use std::io::{BufReader, Read};
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

use crate::harness::events::{Body, Event};
use crate::harness::{Reply, Request, schemas};

/// The bytes of a connection, as they have come by.
struct Bytes {
    pieces: Receiver<Vec<u8>>,
    left: std::io::Cursor<Vec<u8>>,
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let read = self.left.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            match self.pieces.recv() {
                Ok(piece) => self.left = std::io::Cursor::new(piece),
                // The connection has ended.
                Err(_) => return Ok(0),
            }
        }
    }
}

/// A body that comes by.
type Answer<'a> = Body<&'a mut BufReader<Bytes>>;

/// Reads the answers to these requests, which are given on one connection. Gives the request whose answer broke off, or
/// never came.
fn read(
    requests: &Receiver<Request>,
    pieces: Receiver<Vec<u8>>,
    mut take: impl FnMut(Request, &str, &mut Answer<'_>) -> std::io::Result<()>,
) -> Option<Request> {
    let mut stream = BufReader::new(Bytes { pieces, left: std::io::Cursor::default() });
    while let Ok((status, headers)) = Reply::read_head(&mut stream) {
        if status == 100 {
            continue;
        }
        // What is answered was asked.
        let request = requests.recv().ok()?;
        let mut asked = request.clone();
        let header = |name: &str| headers.iter().find(|(header, _)| header == name).map(|(_, value)| value);
        if let Some(session) = header("mcp-session-id") {
            // It begins one, or is of one already.
            asked = asked.without("mcp-session-id").session(session);
        }
        let kind = header("content-type").map_or("", String::as_str);
        if take(asked, kind, &mut Body::after(&headers, &mut stream)).is_err() {
            return Some(request);
        }
    }
    requests.try_recv().ok()
}

/// What came of the answers on a connection: what is wrong with them, and the request whose answer broke off.
pub(super) type Outcome = (Vec<String>, Option<Request>);

/// Reads the answers of a server, which nobody judges.
pub(super) fn of_a_server(requests: &Receiver<Request>, pieces: Receiver<Vec<u8>>) -> Outcome {
    let skip = |body: &mut Answer<'_>| std::io::copy(body, &mut std::io::sink()).map(drop);
    (Vec::new(), read(requests, pieces, |_, _, body| skip(body)))
}

/// Judges the answers that a sidecar gives.
pub(super) fn of_a_sidecar(
    requests: &Receiver<Request>,
    pieces: Receiver<Vec<u8>>,
    from: SocketAddr,
) -> Outcome {
    let mut faults = Vec::new();
    let mut judge =
        |request: &Request, text: &str| faults.extend(schemas::stranger_reads(request, from, text));
    let broken = read(requests, pieces, |request, kind, body| match kind {
        "text/event-stream" => events(request, body, &mut judge),
        "application/json" => {
            let mut text = String::new();
            body.read_to_string(&mut text).map(|_| judge(&request, &text))
        }
        _ => std::io::copy(body, &mut std::io::sink()).map(drop),
    });
    (faults, broken)
}

fn events(
    mut request: Request,
    body: &mut Answer<'_>,
    mut judge: impl FnMut(&Request, &str),
) -> std::io::Result<()> {
    while let Some(event) = Event::read(body, || false)? {
        if event.event == "endpoint" {
            // What comes is of the session that is known by it.
            request.path = event.data;
        } else if event.has_messages() {
            judge(&request, &event.data);
        }
    }
    Ok(())
}

#[test]
fn what_a_client_of_others_is_told_is_judged_by_what_it_asked_and_speaks() {
    use serde_json::{Value, json};
    // A port that nothing can listen at, and one of a test's own.
    let from = SocketAddr::from(([127, 0, 0, 1], 4));
    schemas::sidecar(from, 4, "/nowhere/at/four".into());
    let json = |message: &Value, headers: &str| {
        let text = message.to_string();
        let length = text.len();
        format!(
            "HTTP/1.1 200 OK\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}"
        )
    };
    let events = |events: &[String]| {
        let chunks: String = events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        format!("{head}{chunks}0\r\n\r\n")
    };
    let event = |message: &Value| format!(": here\n\nevent: message\ndata: {message}\n\n");
    let faults = |asked: &[(Request, String)]| {
        let ((ask, requests), (say, pieces)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        for (request, answer) in asked {
            schemas::stranger_says(request, from);
            ask.send(request.clone()).unwrap();
            // It comes as it comes.
            answer.as_bytes().chunks(7).for_each(|piece| say.send(piece.to_vec()).unwrap());
        }
        drop((ask, say));
        of_a_sidecar(&requests, pieces, from).0.len()
    };
    let ask = |id: u64, method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let greet = |version: &str| {
        let me = json!({"name": "n", "version": "1"});
        ask(0, "initialize", json!({"protocolVersion": version, "capabilities": {}, "clientInfo": me}))
    };
    let greeted = |version: &str| {
        let me = json!({"name": "n", "version": "1"});
        json!({"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": me}})
    };
    let result = |id: u64, result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let called = |session: &str| Request::post(ask(1, "tools/call", json!({"name": "t"}))).session(session);
    let (right, wrong) = (result(1, json!({"content": []})), result(1, json!({"content": 7})));
    let sound = result(1, json!({"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]}));
    let taken = || "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned();
    let post = |session: &str, body: String| {
        Request::new("POST", &format!("/messages?session={session}")).body(body)
    };
    let stream = |session: &str, said: &[Value]| {
        let endpoint = format!("event: endpoint\ndata: /messages?session={session}\n\n");
        let said = std::iter::once(endpoint).chain(said.iter().map(event)).collect::<Vec<_>>();
        (Request::new("GET", "/sse"), events(&said))
    };
    let at = |session: &str| format!("mcp-session-id: {session}\r\n");
    for (begins, is_right, what) in [
        ("2025-11-25", true, &right),
        ("2025-11-25", false, &wrong),
        ("2025-11-25", true, &sound),
        // Sound is of 2025-03-26.
        ("2024-11-05", false, &sound),
    ] {
        let case = format!("{begins} {what}");
        let first = (Request::post(greet(begins)), json(&greeted(begins), &at(&case)));
        let again = |answer: String| faults(&[first.clone(), (called(&case), answer)]);
        assert_eq!(again(json(what, "")) == 0, is_right, "{case}");
        assert_eq!(again(events(&[event(what)])) == 0, is_right, "{case}");
        // What is left of a stream comes in another one.
        let rest = called(&case).with_method("GET").body("");
        let both = [first.clone(), (called(&case), events(&[])), (rest, events(&[event(what)]))];
        assert_eq!(faults(&both) == 0, is_right, "{case}");
        let session = case.replace(' ', "-");
        faults(&[
            (post(&session, greet(begins)), taken()),
            (post(&session, ask(1, "tools/call", json!({"name": "t"}))), taken()),
        ]);
        assert_eq!(faults(&[stream(&session, &[greeted(begins), what.clone()])]) == 0, is_right, "{case}");
    }
    assert_eq!(faults(&[(called("none"), json(&wrong, "")[..90].to_owned())]), 0, "it broke off");
    assert_eq!(faults(&[(called("none"), json(&json!({"id": 1, "result": {}}), ""))]), 1, "of no revision");
    schemas::sidecar_ended(from);
}
