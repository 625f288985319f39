//! A line to the API server that a test can cut, for exactly as long as it likes: how long a killed one takes to come
//! back is up to the machine.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// It leads from an address of its own to the API server, until this goes.
pub(super) struct Line {
    kubeconfig: String,
    is_whole: watch::Sender<bool>,
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
        let carrying = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(carry(client, target, cut.clone()));
            }
        });
        Self { kubeconfig: config.to_string(), is_whole, carrying }
    }

    /// The kubeconfig of whoever is to use it.
    pub(super) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Breaks all connections, and lets none come about until [`Self::mend`].
    pub(super) fn cut(&self) {
        self.is_whole.send_replace(false);
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
async fn carry(mut client: TcpStream, target: SocketAddr, mut is_whole: watch::Receiver<bool>) {
    let both = async {
        let mut server = TcpStream::connect(target).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        _ = is_whole.wait_for(|is_whole| !is_whole) => {}
        // Whoever is connected to a line that breaks by itself notices.
        _ = both => {}
    }
}
