//! The socket at which the server's `preStop` hook waits.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::Path;
use std::sync::Arc;

use longshore_sidecar_config::paths;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};

use super::is_gone;
use crate::shared::Shared;

/// Within this time SIGTERM follows a hook if the pod ends.
const SIGTERM_FOLLOWS: Duration = Duration::from_secs(1);
/// How long calls are waited for when the server does not answer any more.
const UNRESPONSIVE: Duration = Duration::from_secs(5);
/// Both containers are in the volume's group; nobody else has any business here.
const MODE: u32 = 0o660;
/// More hooks than this at once are not the kubelet's.
const MAX_HOOKS: usize = 16;

/// How long accepting pauses when the process has no descriptors left.
const BREATHER: Duration = Duration::from_millis(50);

/// What hooks wait for.
#[derive(Clone)]
pub(crate) struct Hooks {
    pub(crate) shared: Arc<Shared>,
    /// The drain is done, and the processes of a stdio server have ended.
    pub(crate) released: watch::Receiver<bool>,
}

/// Opens the socket, in place of one that an earlier process left. Without the volume there is no hook.
pub(crate) fn bind(directory: &Path) -> io::Result<Option<StdUnixListener>> {
    if !directory.is_dir() {
        return Ok(None);
    }
    let path = directory.join(paths::DRAIN_SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdUnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(MODE))?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// Serves hooks.
pub(crate) async fn serve(listener: StdUnixListener, hooks: Hooks) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let mut waiting = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = waiting.join_next() => {}
            accepted = listener.accept(), if waiting.len() < MAX_HOOKS => {
                match accepted {
                    Ok((stream, _)) => {
                        waiting.spawn(hold(stream, hooks.clone()));
                    }
                    Err(error) => {
                        // For want of descriptors, say: the calls that hold them end.
                        tracing::warn!(%error, "cannot accept the server's hook");
                        sleep(BREATHER).await;
                    }
                }
            }
        }
    }
}

/// Holds one hook until the server may go. To return is to let it go.
async fn hold(mut stream: UnixStream, hooks: Hooks) {
    let Hooks { shared, mut released } = hooks;
    let _open = Open::new(&shared);
    let mut draining = shared.draining.subscribe();
    let may_go = async {
        let ends = async { draining.wait_for(|draining| *draining).await.is_ok() };
        if timeout(SIGTERM_FOLLOWS, ends).await.is_ok() {
            let _ = released.wait_for(|released| *released).await;
            return "the pod ends and its calls have ended";
        }
        tracing::info!(calls = shared.calls.count(), "the server alone is being restarted");
        // Finds out whether it still answers.
        shared.doubt.raise();
        // A SIGTERM that comes late says that the pod ends all the same.
        let pod_ends = async {
            let _ = draining.wait_for(|draining| *draining).await;
        };
        tokio::select! {
            // What ends at the same moment as the pod begins to is no reason to go.
            biased;
            () = pod_ends => {}
            () = shared.calls.current_ended() => return "its calls have ended",
            () = unresponsive(&shared) => return "it does not answer",
        }
        let _ = released.wait_for(|released| *released).await;
        "the pod ends and its calls have ended"
    };
    tokio::select! {
        why = may_go => tracing::info!(why, "preStop hook released"),
        () = gone(&mut stream) => tracing::info!("the server's preStop hook closed its connection"),
    }
}

/// Counts a hook that is open.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.hooks.send_modify(|hooks| *hooks += 1);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.hooks.send_modify(|hooks| *hooks -= 1);
    }
}

/// Returns when the other end is closed. What the hook says does not matter.
async fn gone(stream: &mut UnixStream) {
    let mut ignored = [0; 64];
    while matches!(stream.read(&mut ignored).await, Ok(1..)) {}
}

async fn unresponsive(shared: &Shared) {
    sleep(UNRESPONSIVE).await;
    let mut view = shared.view.subscribe();
    // The other end lives as long as this does.
    let _ = view.wait_for(|view| is_gone(&view.connection)).await;
}
