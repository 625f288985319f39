//! What clients have set, in a file of the volume that only the sidecar writes: so the sidecar that comes after one that died
//! beside its living server knows it, also where no other replica keeps a copy. A line for each session and each time that
//! something was set, of which the last counts. It is sealed, since the server's container mounts the volume too, and written
//! once a second, where nobody waits for it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_sessions::bounds::HEARTBEAT;
use longshore_sessions::note::Note;
use longshore_sessions::{Keyring, SessionKey};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::journal::write_anew;
use super::{Sessions, unix};
use crate::configuration::Snapshot;
use crate::shared::Shared;

/// The file's name.
const NAME: &str = "set-in-sessions";
/// How many bytes it has at most. One that would have more is written anew.
const MOST: usize = 4 << 20;
/// How many bytes of it are left then: those of the sessions in which something was set last.
const LEFT: usize = MOST / 2;
/// When so many bytes are to be written at once, the rest has to wait a second.
const AT_ONCE: usize = 1 << 20;

/// The file, if there is a directory for it.
pub(super) struct Notes {
    path: Option<PathBuf>,
    /// The sessions in which something was set that is yet to be written.
    unwritten: Mutex<HashSet<SessionKey>>,
    open: Mutex<Option<Open>>,
}

struct Open {
    file: File,
    bytes: usize,
}

// === impl Notes ===

impl Notes {
    pub(super) fn new(directory: Option<&Path>) -> Self {
        let path = directory.map(|directory| directory.join(NAME));
        Self { path, unwritten: Mutex::default(), open: Mutex::default() }
    }

    /// Something was set in this session, which is to be written down.
    pub(super) fn note(&self, session: SessionKey) {
        if self.path.is_some() {
            self.unwritten.lock().insert(session);
        }
    }

    fn has_more(&self) -> bool {
        !self.unwritten.lock().is_empty()
    }

    /// What was written down, as far as it matters.
    fn read(&self, keyring: &Keyring, matters: impl Fn(&Note) -> bool) -> Vec<Note> {
        let text = self.path.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        newest(text.lines(), keyring, matters).into_iter().map(|(_, note)| note).collect()
    }

    /// Adds these lines. Where the file is too large then, or cannot be added to, what does not matter any more goes. Says
    /// whether they are in it.
    fn add(&self, lines: &str, keyring: &Keyring, matters: impl Fn(&Note) -> bool) -> bool {
        let Some(path) = &self.path else { return false };
        let mut open = self.open.lock();
        if open.as_mut().is_some_and(|open| open.add(lines)) {
            return true;
        }
        let renewed = renew(path, lines, keyring, matters).inspect_err(|error| {
            tracing::warn!(%error, "what clients have set is forgotten when this container restarts");
        });
        *open = renewed.ok();
        open.is_some()
    }
}

// === impl Open ===

impl Open {
    /// Adds lines, if there is room. If not, or if that may have left half of one, the file is to be written anew.
    fn add(&mut self, lines: &str) -> bool {
        self.bytes += lines.len();
        self.bytes <= MOST && self.file.write_all(lines.as_bytes()).is_ok()
    }
}

/// Writes the file anew, with these lines too.
fn renew(path: &Path, lines: &str, keyring: &Keyring, matters: impl Fn(&Note) -> bool) -> io::Result<Open> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line of a process that died may be half of one: what follows is no part of it.
    let all = text.lines().chain(lines.lines());
    let left: String = newest(all, keyring, matters).iter().flat_map(|(line, _)| [*line, "\n"]).collect();
    Ok(Open { file: write_anew(path, &left)?, bytes: left.len() })
}

/// The last line of each session that opens and matters, in their order: of as many bytes as are left, the last ones.
fn newest<'a>(
    lines: impl DoubleEndedIterator<Item = &'a str>,
    keyring: &Keyring,
    matters: impl Fn(&Note) -> bool,
) -> Vec<(&'a str, Note)> {
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    let opened = lines.rev().filter_map(|line| Some((line, keyring.open_note(line)?)));
    let last = opened.filter(|(_, note)| seen.insert(note.key) && matters(note));
    let mut newest: Vec<_> = last
        .take_while(|(line, _)| {
            bytes += line.len() + 1;
            bytes <= LEFT
        })
        .collect();
    newest.reverse();
    newest
}

// === impl Sessions ===

impl Sessions {
    /// Takes what a sidecar before this one has written down.
    pub(super) fn take_notes(&self, keyring: &Keyring) {
        let now = unix();
        let notes = self.notes.read(keyring, |note| note.expires > now);
        let mut replica = self.lock();
        for Note { key, copy, .. } in notes {
            replica.keep(key, copy);
        }
    }

    /// Writes down what was set since the last time.
    fn write_down(&self) {
        let Some(snapshot) = self.snapshot.load_full() else { return };
        let (mut lines, mut versions) = (String::new(), Vec::new());
        let unwritten = std::mem::take(&mut *self.notes.unwritten.lock());
        for session in unwritten {
            if lines.len() >= AT_ONCE {
                self.notes.note(session);
            } else if let Some((line, version)) = self.line(&session, &snapshot) {
                lines.push_str(&line);
                lines.push('\n');
                versions.push(version);
            }
        }
        let now = unix();
        let is_ended = |session: &SessionKey| self.lock().tombstones().get(session).is_some();
        let matters = |note: &Note| note.expires > now && !is_ended(&note.key);
        if !lines.is_empty() && self.notes.add(&lines, &snapshot.keyring, matters) {
            for changes in versions {
                tracing::debug!(changes, "what a client has set is written down");
            }
        }
    }

    /// What is written of a session, if it is here and may go on after this process, and of which version that is.
    fn line(&self, session: &SessionKey, snapshot: &Snapshot) -> Option<(String, u64)> {
        let session = self.lock().held(session).cloned()?;
        if !self.may_go_on(&session) {
            return None;
        }
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).ok()?;
        let (key, expires, copy) = (session.capsule.key, session.capsule.expires, session.copy());
        let version = copy.version;
        let line = snapshot.keyring.seal_note(&Note { key, expires, copy }, nonce).ok()?;
        Some((line, version))
    }
}

/// Writes down what clients set, for as long as the process lives.
pub(crate) async fn keep_notes(shared: Arc<Shared>) -> io::Result<()> {
    let mut tick = interval(HEARTBEAT);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if shared.sessions.notes.has_more() {
            let sessions = shared.sessions.clone();
            // A disk may be slow.
            spawn_blocking(move || sessions.write_down()).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::PermissionsExt;

    use longshore_sessions::keys::Secret;
    use longshore_sessions::message::Copy;

    use super::*;

    fn ring() -> Keyring {
        Keyring::new("uid", [Secret { id: 1, bytes: [1; 32] }], 1).unwrap()
    }

    /// A line of the session of that number, with so many subscriptions.
    fn line(session: u8, version: u64, subscriptions: usize) -> String {
        let subscriptions =
            (0..subscriptions).map(|number| format!("file:///{number:0>1000}").into()).collect();
        let copy = Copy { version, subscriptions, ..Copy::default() };
        let note = Note { key: SessionKey::new([session; 16]), expires: 10, copy };
        ring().seal_note(&note, [0; 12]).unwrap() + "\n"
    }

    fn read(directory: &Path) -> Vec<(u8, u64)> {
        let notes = Notes::new(Some(directory)).read(&ring(), |note| note.expires > 0);
        notes.iter().map(|note| (note.key.as_bytes()[0], note.copy.version)).collect()
    }

    #[test]
    fn what_was_set_last_counts_and_half_a_line_takes_no_other_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Notes::new(Some(directory.path()));
        assert!(read(directory.path()).is_empty());
        let notes = open();
        notes.add(&(line(1, 1, 1) + &line(2, 1, 1)), &ring(), |_| true);
        notes.add(&line(1, 2, 0), &ring(), |_| true);
        let path = directory.path().join(NAME);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        // As if it had died while it wrote.
        let half = &line(2, 2, 1).into_bytes()[..99];
        OpenOptions::new().append(true).open(&path).unwrap().write_all(half).unwrap();
        assert_eq!(read(directory.path()), [(2, 1), (1, 2)]);
        open().add(&line(3, 1, 1), &ring(), |note| note.key != SessionKey::new([2; 16]));
        assert_eq!(read(directory.path()), [(1, 2), (3, 1)]);
        // The volume is full.
        let notes = open();
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        *notes.open.lock() = Some(Open { file, bytes: 0 });
        assert!(notes.add(&line(4, 1, 1), &ring(), |_| true));
        assert_eq!(read(directory.path()), [(1, 2), (3, 1), (4, 1)]);
    }

    #[test]
    fn the_file_is_bounded_and_what_is_newest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::new(Some(directory.path()));
        for session in 0..100 {
            notes.add(&line(session, 1, 64), &ring(), |_| true);
            let bytes = directory.path().join(NAME).metadata().unwrap().len();
            assert!(bytes <= MOST as u64, "{bytes}");
        }
        let left = read(directory.path());
        assert!(left.len() > 10 && left.last() == Some(&(99, 1)), "{left:?}");
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_nothing_fails() {
        let nowhere = Notes::new(None);
        nowhere.note(SessionKey::new([1; 16]));
        assert!(!nowhere.has_more());
        for notes in [nowhere, Notes::new(Some(Path::new("/nowhere/at/all")))] {
            assert!(!notes.add(&line(1, 1, 1), &ring(), |_| true));
            assert!(notes.read(&ring(), |_| true).is_empty());
        }
    }
}
