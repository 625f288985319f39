//! A line to the API server that a test can cut, for exactly as long as it likes: how long a killed one takes to come
//! back is up to the machine. And one that can lose connections without a word.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore_e2e::testing::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longer than the operator's pauses between two looks at its lease, and than whatever one request takes.
const IDLE: Duration = Duration::from_secs(4);
/// Whoever has said something for so long is not idle, and nobody has been kept from saying anything.
const BUSY: Duration = Duration::from_secs(1);

/// It leads from an address of its own to the API server, until this goes.
pub(super) struct Line {
    kubeconfig: String,
    is_whole: watch::Sender<bool>,
    /// When connections that carried nothing for a while were lost.
    lost: watch::Sender<Option<Instant>>,
    /// When something was said last, over whichever connection.
    said: Arc<Mutex<Instant>>,
    carrying: JoinHandle<()>,
}

impl Line {
    /// A line to the API server of a kubeconfig.
    pub(super) async fn to(kubeconfig: &str) -> Self {
        let mut config: Value = serde_json::from_str(kubeconfig).unwrap();
        let server = &mut config["clusters"][0]["cluster"]["server"];
        let target: SocketAddr = server.as_str().unwrap().strip_prefix("https://").unwrap().parse().unwrap();
        // The address that the API server's certificate is for.
        let listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        *server = json!(format!("https://{}", listener.local_addr().unwrap()));
        let (is_whole, cut) = watch::channel(true);
        let (lost, losing) = watch::channel(None);
        let said = Arc::new(Mutex::new(Instant::now()));
        let anywhere = said.clone();
        let carrying = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(carry(client, target, cut.clone(), losing.clone(), anywhere.clone()));
            }
        });
        Self { kubeconfig: config.to_string(), is_whole, lost, said, carrying }
    }

    /// The kubeconfig of whoever is to use it.
    pub(super) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Breaks all connections, and lets none come about until [`Self::mend`].
    pub(super) fn cut(&self) {
        self.is_whole.send_replace(false);
    }

    /// Carries nothing more of connections over which nothing was said for a while, and tells neither end: as when one of
    /// several API servers has lost its power. Not while the whole machine stands still, when all of them look so.
    pub(super) async fn lose_those_that_are_idle(&self) {
        eventually("something is said", async || {
            let now = Instant::now();
            if now.duration_since(*self.said.lock().unwrap()) >= BUSY {
                return Err("all are idle");
            }
            self.lost.send_replace(Some(now));
            Ok(())
        })
        .await;
    }

    /// Lets connections come about again.
    pub(super) fn mend(&self) {
        self.is_whole.send_replace(true);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

/// Carries what both ends of a connection say, while the line is whole.
async fn carry(
    client: TcpStream,
    target: SocketAddr,
    mut is_whole: watch::Receiver<bool>,
    mut lost: watch::Receiver<Option<Instant>>,
    anywhere: Arc<Mutex<Instant>>,
) {
    let said = Mutex::new(Instant::now());
    lost.mark_unchanged();
    let is_lost = async {
        while lost.changed().await.is_ok() {
            let since = *said.lock().unwrap();
            if lost.borrow_and_update().is_some_and(|lost| lost.duration_since(since) >= IDLE) {
                return;
            }
        }
        std::future::pending().await
    };
    let both = async {
        let Ok(server) = TcpStream::connect(target).await else { return };
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let _ = tokio::try_join!(
            pass(&mut from_client, &mut to_server, [&said, &*anywhere]),
            pass(&mut from_server, &mut to_client, [&said, &*anywhere])
        );
    };
    let carried = async {
        tokio::pin!(both);
        tokio::select! {
            // Both ends stay open.
            () = is_lost => std::future::pending().await,
            // Whoever is connected to a line that breaks by itself notices.
            () = &mut both => {}
        }
    };
    tokio::select! {
        biased;
        _ = is_whole.wait_for(|is_whole| !is_whole) => {}
        () = carried => {}
    }
}

/// Passes on what one end says, and notes when.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    said: [&Mutex<Instant>; 2],
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        let now = Instant::now();
        said.iter().for_each(|said| *said.lock().unwrap() = now);
        to.write_all(&buffer[..length]).await?;
    }
}
