//! `longshore ready`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long between two questions.
const PAUSE: Duration = Duration::from_millis(250);
/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// What is read of an answer, in bytes.
const ANSWER: usize = 4096;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The address of the operator or the catalog. Not a name: the image has nothing to look names up with.
    #[arg(long)]
    address: IpAddr,
    /// The port of /readyz.
    #[arg(long, default_value_t = 8081)]
    port: u16,
    /// How many seconds to wait until it is ready.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let address = SocketAddr::new(args.address, args.port);
    let deadline = Duration::from_secs(args.wait);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_ready(address, deadline))?;
    super::print(&format!("{address} is ready\n"))
}

async fn until_ready(address: SocketAddr, wait: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + wait;
    loop {
        let answer = timeout(PATIENCE, ask(address)).await.context("it did not answer in time").flatten();
        match answer {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("nothing is ready at {address}")));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

async fn ask(address: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/readyz").header("host", address.to_string()).body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        let said =
            body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        anyhow::Ok((status, said))
    };
    // The connection ends when the exchange has; where it breaks, the exchange tells.
    let (answer, _) = tokio::join!(exchange, connection);
    let (status, said) = answer?;
    if status == StatusCode::OK { Ok(()) } else { bail!("it says {status}: {said}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Says no twice and then yes, as an operator does that starts.
    #[tokio::test]
    async fn waits_until_it_is_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let operator = tokio::spawn(async move {
            for status in ["503 Service Unavailable", "503 Service Unavailable", "200 OK"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await.unwrap();
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        until_ready(address, Duration::from_secs(10)).await.unwrap();
        operator.await.unwrap();
    }

    #[tokio::test]
    async fn says_what_it_was_told_in_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let operator = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 8\r\n\r\nstarting")
                .await
                .unwrap();
        });
        let error = until_ready(address, Duration::ZERO).await.unwrap_err();
        operator.await.unwrap();
        let said = format!("{error:#}");
        assert!(said.contains(&address.to_string()) && said.contains("starting"), "{said}");
    }
}
