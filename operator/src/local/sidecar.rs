//! A sidecar in this process, on threads of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use longshore_sidecar::{App, AuditLog, Bounds, Inventories, Options, RunError};
use tokio::sync::mpsc;

use super::files::Place;
use super::{Error, Event, ServerId};

/// How long calls under way may go on when all of it ends.
pub(super) const FAREWELL: Duration = Duration::from_secs(1);

/// How long a sidecar may take to end that has been told twice. One whose audit lines nobody reads never does.
const END: Duration = Duration::from_secs(5);
/// How often it is looked whether a thread has ended.
const LOOK: Duration = Duration::from_millis(2);

/// A sidecar that serves.
pub(super) struct Sidecar {
    /// Once: it drains. Twice, or gone: it ends.
    stop: mpsc::UnboundedSender<()>,
    thread: std::thread::JoinHandle<()>,
    /// Where clients connect.
    pub(super) address: SocketAddr,
}

impl Sidecar {
    /// Starts one that listens at this port of loopback and reads its files in this place.
    pub(super) fn start(
        id: &ServerId,
        port: u16,
        place: &Place,
        workers: usize,
        audit: AuditLog,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<(Self, Inventories), Error> {
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let app = App::bind(Options {
            workers,
            mcp: loopback(port),
            admin: loopback(0),
            // There are no other replicas.
            peers: loopback(0),
            pod: None,
            peers_entry: None,
            peers_file: None,
            config_dir: place.config(),
            keys_dir: place.keys(),
            // When this process ends, so do the servers and their sessions.
            program_dir: None,
            sockets_dir: place.sockets(),
            proc_dir: place.proc(),
            own_ports: Vec::new(),
            audit,
            bounds: Bounds::default(),
            longest_call_ms: None,
            // No Service follows with a lag here.
            drain_minimum: Duration::ZERO,
        })?;
        let (address, inventories) = (app.bound().mcp, app.inventories());
        let (stop, mut stopped) = mpsc::unbounded_channel();
        let name = id.clone();
        // Several write into one log: each line says whose it is, at whatever level.
        let span = tracing::error_span!("sidecar", server = %id);
        let run = move || {
            let _span = span.enter();
            let ended = app.run_until(async || {
                // It ends as well when nobody can tell it any more.
                let _ = stopped.recv().await;
            });
            match ended {
                Ok(()) | Err(RunError::Aborted) => {}
                Err(error) => {
                    // Whoever listened has ended, and so does the process.
                    let _ = events.send(Event::SidecarFailed { id: name, error: Box::new(error) });
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("sidecar {}", id.name)).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { source })?;
        Ok((Self { stop, thread, address }, inventories))
    }

    /// Has it end at once, whatever calls are under way. It has ended after [`Self::end`].
    pub(super) fn cut(&self) {
        for _ in 0..2 {
            // A sidecar that has failed hears nothing.
            let _ = self.stop.send(());
        }
    }

    /// Has calls under way end, for a moment. Clients are served until [`Self::end`].
    pub(super) async fn drain(&self) {
        // A sidecar that has failed hears nothing.
        let _ = self.stop.send(());
        let last = Instant::now() + FAREWELL;
        while !self.thread.is_finished() && Instant::now() < last {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends it, after [`Self::drain`], whatever calls are still under way. Its port is free afterwards, unless it could
    /// not be ended.
    pub(super) async fn end(self) {
        // One that has drained is gone.
        let _ = self.stop.send(());
        let last = Instant::now() + END;
        while !self.thread.is_finished() && Instant::now() < last {
            tokio::time::sleep(LOOK).await;
        }
    }
}
