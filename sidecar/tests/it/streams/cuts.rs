//! Streams that are cut at random bytes, again and again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{answer, event, note, said};
use crate::harness::http::connect;
use crate::harness::{Client, Events, Gate, Request, Scripted, Sidecar, config, eventually, scripted};

/// Random numbers that are the same in every run with the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// How often streams are cut, and from which number on chance is counted.
fn plan() -> (usize, u64) {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    (usize::try_from(number("LONGSHORE_CUTS", 1000)).unwrap(), number("LONGSHORE_SEED", 0x5eed) | 1)
}

/// A way to the sidecar that breaks after so many bytes of a response.
pub(super) struct Cutter {
    pub(super) port: u16,
    left: Arc<AtomicI64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cutter {
    pub(super) fn start(to: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicI64::new(0));
        let bytes = left.clone();
        let open = Arc::new(Mutex::new(Vec::new()));
        let all = open.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(to).unwrap();
                all.lock().unwrap().push(client.try_clone().unwrap());
                let bytes = bytes.clone();
                std::thread::spawn(move || Self::carry(client, server, &bytes));
            }
        });
        Self { port, left, open }
    }

    /// Cuts nothing by itself.
    pub(super) fn unlimited(&self) {
        self.left.store(i64::MAX, Ordering::SeqCst);
    }

    /// A port: whoever connects to it cuts all connections that are open.
    pub(super) fn switch(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = self.open.clone();
        std::thread::spawn(move || {
            for _ in listener.incoming().map_while(Result::ok) {
                for stream in open.lock().unwrap().drain(..) {
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                }
            }
        });
        port
    }

    fn carry(client: TcpStream, server: TcpStream, left: &AtomicI64) {
        let (mut up, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut up, &mut to));
        let (mut from, mut down) = (server, client);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let length = i64::try_from(length).unwrap();
            let before = left.fetch_sub(length, Ordering::SeqCst);
            let passes = usize::try_from(before.clamp(0, length)).unwrap();
            if down.write_all(&buffer[..passes]).is_err() || before <= length {
                break;
            }
        }
        for stream in [from, down] {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Sends a request through the cutter. None: it was cut before the head had come.
fn through(cutter: &Cutter, bytes: u64, request: &Request) -> Option<Events> {
    cutter.left.store(i64::try_from(bytes).unwrap(), Ordering::SeqCst);
    let request = request.clone();
    let port = cutter.port;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    Events::try_open(&request, address).ok()
}

#[test]
fn r055_every_event_comes_once_and_in_order() {
    let (cuts, seed) = plan();
    let mut random = Random(seed);
    // So much of a stream that it is cut many times.
    const NOTES: usize = 400;
    let server = Scripted::listening(|request, stream| {
        scripted::begin_events(stream);
        for number in 0..NOTES {
            scripted::chunk(stream, &event(&note(number)));
            if number % 16 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        if request.method == "POST" {
            scripted::chunk(stream, &event(&answer(request)));
            scripted::write(stream, "0\r\n\r\n");
        } else {
            scripted::until_closed(stream);
        }
    });
    let sidecar = Sidecar::start(&config(server.port));
    let cutter = Cutter::start(sidecar.mcp);
    let mut done = 0;
    let mut rounds = 0;
    while done < cuts {
        let client = Client::of(&sidecar, None, if rounds % 2 == 0 { "2025-11-25" } else { "2025-06-18" });
        let own = rounds % 4 >= 2;
        rounds += 1;
        let mut expected: Vec<_> = (0..NOTES).map(|number| number.to_string()).collect();
        if !own {
            expected.push("answer".to_owned());
        }
        let message = client.message("tools/call", &json!({"name": "t", "arguments": {}}));
        let mut request = if own { client.get() } else { client.request(message) };
        let (mut got, mut last) = (Vec::new(), String::new());
        while got.len() < expected.len() {
            // The first one has to show an id, so that there is something to come back with.
            let bytes = if last.is_empty() { 800 + random.below(4000) } else { random.below(4000) };
            done += 1;
            let Some(mut stream) = through(&cutter, bytes, &request) else { continue };
            assert_eq!(stream.status, 200, "seed {seed}, {} of {}", got.len(), expected.len());
            while got.len() < expected.len()
                && let Ok(Some(event)) = stream.try_any()
            {
                last.clone_from(&event.id);
                if !event.data.is_empty() {
                    got.push(said(&event));
                }
            }
            assert!(!last.is_empty(), "seed {seed}: nothing came");
            request = client.rest(&last);
        }
        assert_eq!(got, expected, "seed {seed}");
        assert_eq!(server.seen("notifications/cancelled").len(), 0);
    }
}

/// Its connection may have been lost while the server was asked, which is known a moment later.
#[test]
fn who_comes_back_while_the_stream_is_opened_gets_it() {
    let (opens, ends) = (Gate::default(), Gate::default());
    let (opened, ended) = (opens.clone(), ends.clone());
    let server = Scripted::listening(move |request, stream| {
        if request.method == "POST" {
            scripted::json(stream, &answer(request));
            return;
        }
        opened.pass();
        scripted::begin_events(stream);
        scripted::chunk(stream, &event(&note(1)));
        ended.pass();
    });
    let sidecar = Sidecar::start(&config(server.port));
    let client = Client::open(&sidecar, None);
    let mut lost = connect(sidecar.mcp);
    client.get().write(&mut lost);
    eventually("the server is asked", || !server.seen("GET").is_empty());
    let connections = || sidecar.metric("longshore_connections");
    eventually("it alone is connected", || connections() == 1.0);
    let (back, mcp) = (client.get(), sidecar.mcp);
    let mut again = std::thread::scope(|scope| {
        let again = scope.spawn(move || Events::open(&back, mcp));
        eventually("the client comes back", || connections() == 2.0);
        drop(lost);
        opens.open();
        again.join().unwrap()
    });
    assert_eq!(again.status, 200);
    assert_eq!(said(&again.next().unwrap()), "1");
    ends.open();
}
