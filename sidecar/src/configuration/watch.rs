//! Follows the two directories, and swaps the configuration when both files are there and right.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_sidecar_config::inventory::Short;
use rustix::fs::inotify;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::load;
use crate::log;
use crate::shared::Shared;

/// How often the files are read even though nobody said that they changed.
const SAFETY_NET: Duration = Duration::from_secs(10);
/// How long a burst of events is waited out: a mounted volume changes in several steps.
const SETTLE: Duration = Duration::from_millis(5);

/// Loads the configuration now, and again whenever the directories change. Returns only if watching fails.
pub(crate) async fn watch(shared: Arc<Shared>) -> io::Result<()> {
    let events = Arc::new(inotify::init(inotify::CreateFlags::CLOEXEC)?);
    let mut changes = follow(events.clone())?;
    let (config_dir, keys_dir) = (&shared.options.config_dir, &shared.options.keys_dir);
    let mut refused = None;
    loop {
        // Again in each round: a directory that was not there may have come, and one that was replaced is another one.
        for directory in [config_dir, keys_dir] {
            add(&events, directory);
        }
        refused = reload(&shared, refused);
        // The kubelet renames a symbolic link in the directory; that is the event. A time-out is the safety net.
        if let Ok(change) = timeout(SAFETY_NET, changes.recv()).await {
            change.ok_or_else(|| io::Error::other("the events of the file system have ended"))?;
            sleep(SETTLE).await;
            // What came meanwhile is read now.
            let _ = changes.try_recv();
        }
    }
}

/// Waits for events on a thread of its own; one word in the channel stands for any number of them. What they say does
/// not matter: the files are read again in any case.
fn follow(events: Arc<OwnedFd>) -> io::Result<mpsc::Receiver<()>> {
    let (changed, changes) = mpsc::channel(1);
    let wait = move || {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(events.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot read the events of the file system");
                    return;
                }
            }
            if matches!(changed.try_send(()), Err(mpsc::error::TrySendError::Closed(()))) {
                return;
            }
        }
    };
    std::thread::Builder::new().name("file-events".to_owned()).stack_size(64 * 1024).spawn(wait)?;
    Ok(changes)
}

fn add(events: &OwnedFd, directory: &Path) {
    let flags = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::DELETE_SELF
        | inotify::WatchFlags::ONLYDIR;
    if let Err(error) = inotify::add_watch(events, directory, flags) {
        // Without keys the directory need not exist; the safety net reads on.
        tracing::debug!(directory = %directory.display(), %error, "cannot watch the directory");
    }
}

/// Loads and swaps. Returns why the files on disk were refused, so that each reason is logged once.
fn reload(shared: &Shared, refused_before: Option<String>) -> Option<String> {
    let running = shared.snapshot.load();
    match load(&shared.options.config_dir, &shared.options.keys_dir, running.as_deref()) {
        Ok(None) => {
            shared.metrics.config_refused.set(0);
            shared.set_config_error(None);
            None
        }
        Ok(Some(mut snapshot)) => {
            // A longer limit than the pod was made for is the next pods': this one gets no more time for its end.
            let limit = &mut snapshot.config.limits.request_timeout_ms;
            *limit = shared.options.longest_call_ms.map_or(*limit, |longest| longest.min(*limit));
            log::set_level(snapshot.config.log_level);
            snapshot.fit(shared.held.largest() as u64, shared.options.bounds.sessions);
            let Short { request_bytes, sessions } = snapshot.short;
            if let Some(largest) = request_bytes {
                tracing::warn!(
                    permitted = snapshot.config.limits.request_bytes,
                    largest,
                    "the manifest permits larger requests than there is memory for, which are refused: raise \
                     spec.sidecar.resources.limits.memory, or lower spec.limits.requestBytes"
                );
            }
            if let Some(most) = sessions {
                tracing::warn!(
                    most,
                    "the manifest permits more sessions than there is memory for, which are refused: raise \
                     spec.sidecar.resources.limits.memory, or lower spec.sessions.total"
                );
            }
            shared.metrics.config_loaded();
            shared.metrics.config_refused.set(0);
            let snapshot = Arc::new(snapshot);
            shared.swap(snapshot.clone());
            // Whoever reads this finds it in force.
            tracing::info!(
                digest = %snapshot.digest,
                rules = snapshot.config.access.len(),
                "configuration loaded"
            );
            None
        }
        Err(error) => {
            let sentence = log::sentence(&error);
            // The two files come one after the other: until both are there nothing is wrong with either.
            let on_its_way = error.is_pending() && running.is_some();
            // Whoever starts a sidecar may have reason to let its configuration come later.
            let is_incomplete = error.is_pending() || running.is_none() && error.is_absence();
            shared.metrics.config_refused.set((!is_incomplete).into());
            if refused_before.as_ref() != Some(&sentence) {
                if is_incomplete {
                    tracing::info!(reason = %sentence, "configuration is not complete yet");
                } else {
                    shared.metrics.config_failed();
                    tracing::error!(reason = %sentence, "configuration refused, the last good one stays");
                }
                shared.set_config_error((!on_its_way).then(|| sentence.clone()));
            }
            Some(sentence)
        }
    }
}
