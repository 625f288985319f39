//! Calls on many connections, one behind the other on each.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::call::Prepared;

/// Calls for so long, and says how often and how long that was.
pub(crate) fn run(address: SocketAddr, prepared: &Prepared, time: Duration) -> (u64, Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let mut streams = Vec::new();
        for _ in &prepared.0 {
            let stream = TcpStream::connect(address).await.expect("a connection");
            stream.set_nodelay(true).expect("an option");
            streams.push(stream);
        }
        let count = Rc::new(Cell::new(0));
        let began = Instant::now();
        let lanes: Vec<_> = streams
            .into_iter()
            .zip(&prepared.0)
            .map(|(stream, call)| {
                tokio::task::spawn_local(lane(stream, call.clone(), began + time, count.clone()))
            })
            .collect();
        for lane in lanes {
            lane.await.expect("its end");
        }
        (count.get(), began.elapsed())
    })
}

async fn lane(mut stream: TcpStream, call: Vec<u8>, until: Instant, count: Rc<Cell<u64>>) {
    let mut response = Vec::with_capacity(1 << 16);
    while Instant::now() < until {
        stream.write_all(&call).await.expect("somebody who listens");
        response.clear();
        while !is_whole(&response) {
            let read = stream.read_buf(&mut response).await.expect("an answer");
            assert!(read > 0, "the connection was closed");
        }
        let start = &response[..response.len().min(1024)];
        let is_result = start.starts_with(b"HTTP/1.1 200") && memmem::find(start, b"\"error\"").is_none();
        assert!(is_result, "{}", String::from_utf8_lossy(start));
        count.set(count.get() + 1);
    }
}

/// Whether a response is there as a whole: its chunks have come to their end, or it is as long as it says.
fn is_whole(response: &[u8]) -> bool {
    if response.ends_with(b"\r\n0\r\n\r\n") {
        return true;
    }
    let head = &response[..response.len().min(1024)];
    let (Some(body), Some(at)) = (memmem::find(head, b"\r\n\r\n"), memmem::find(head, b"content-length: "))
    else {
        return false;
    };
    let digits = head[at + 16..].iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'));
    at < body && response.len() >= body + 4 + length
}
