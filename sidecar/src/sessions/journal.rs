//! The endings that this replica knows of, in a file of the volume that only the sidecar writes: so a session that was
//! ended stays so when this container restarts. A line for each: until when it matters, and which session.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use longshore_sessions::SessionKey;
use longshore_sessions::bounds::MAX_TOMBSTONES;
use longshore_sessions::tombstones::{Tombstone, Tombstones};
use parking_lot::Mutex;

/// The file's name.
const NAME: &str = "ended-sessions";
/// Nobody else reads which sessions there were.
const MODE: u32 = 0o600;

/// The file, if there is one.
pub(super) struct Journal {
    open: Mutex<Option<Open>>,
    /// Another process of this pod was there before.
    is_resumed: bool,
}

struct Open {
    path: PathBuf,
    file: File,
    /// How many lines it has. It is written anew when most of them are old.
    lines: usize,
    /// Its last line may be half of one, to which nothing can be added.
    is_torn: bool,
    /// What came last could not be written, as has been told.
    is_failing: bool,
}

impl Journal {
    /// Opens the file in that directory, if there is a directory, and reads what matters still.
    pub(super) fn open(directory: Option<&Path>, unix: u64, tombstones: &mut Tombstones) -> Self {
        let Some(directory) = directory else { return Self { open: Mutex::default(), is_resumed: false } };
        let path = directory.join(NAME);
        let is_resumed = path.exists();
        // What it cannot read it cannot know: the file is the sidecar's own, so half a line is a crash's.
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines().filter_map(parse).filter(|line| line.expires > unix).for_each(|tombstone| {
            tombstones.add(tombstone);
        });
        let open = rewrite(path, tombstones.iter()).inspect_err(|error| {
            tracing::warn!(%error, "sessions that are ended are forgotten when this container restarts");
        });
        Self { open: Mutex::new(open.ok()), is_resumed }
    }

    /// Whether another process of this pod was there before, as far as can be seen.
    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Keeps some more. `all` gives everything that matters, these included.
    pub(super) fn add(&self, tombstones: &[Tombstone], all: impl FnOnce() -> Vec<Tombstone>) {
        if tombstones.is_empty() {
            return;
        }
        let mut guard = self.open.lock();
        let Some(open) = guard.as_mut() else { return };
        let mut result = Ok(());
        if !open.is_torn {
            let text: String = tombstones.iter().map(line).collect();
            result = open.file.write_all(text.as_bytes());
            open.is_torn = result.is_err();
            open.lines += tombstones.len();
        }
        if open.is_torn || open.lines > 2 * MAX_TOMBSTONES {
            result = rewrite(open.path.clone(), all().into_iter()).map(|new| *open = new);
        }
        let was_failing = std::mem::replace(&mut open.is_failing, result.is_err());
        if let Err(error) = result
            && !was_failing
        {
            tracing::warn!(%error, "cannot write down that sessions are ended: they live again if this container restarts");
        }
    }
}

/// Writes the file anew and opens it.
fn rewrite(path: PathBuf, tombstones: impl Iterator<Item = Tombstone>) -> io::Result<Open> {
    let mut lines = 0;
    let text: String = tombstones.inspect(|_| lines += 1).map(|tombstone| line(&tombstone)).collect();
    let file = write_anew(&path, &text)?;
    Ok(Open { path, file, lines, is_torn: false, is_failing: false })
}

/// Writes a file with this text and opens it, for more. It is renamed into its place, so that it is never half there.
pub(super) fn write_anew(path: &Path, text: &str) -> io::Result<File> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(MODE).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&temporary, path)?;
    Ok(file)
}

fn line(tombstone: &Tombstone) -> String {
    format!("{} {}\n", tombstone.expires, tombstone.key.to_hex())
}

fn parse(line: &str) -> Option<Tombstone> {
    let (expires, key) = line.split_once(' ')?;
    Some(Tombstone { expires: expires.parse().ok()?, key: SessionKey::try_from(key).ok()? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn stone(key: u8, expires: u64) -> Tombstone {
        Tombstone { expires, key: SessionKey::new([key; 16]) }
    }

    fn read(directory: &Path, unix: u64) -> Vec<Tombstone> {
        let mut tombstones = Tombstones::default();
        Journal::open(Some(directory), unix, &mut tombstones);
        tombstones.iter().collect()
    }

    #[test]
    fn endings_are_there_again_after_a_restart_until_they_do_not_matter() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Journal::open(Some(directory.path()), 0, &mut Tombstones::default());
        let journal = open();
        assert!(!journal.is_resumed());
        journal.add(&[stone(1, 10), stone(2, 20)], Vec::new);
        journal.add(&[stone(3, 30)], Vec::new);
        let path = directory.path().join(NAME);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, MODE);
        // As if it had died while it wrote.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"40 0404").unwrap();
        assert_eq!(read(directory.path(), 10), [stone(2, 20), stone(3, 30)]);
        assert_eq!(read(directory.path(), 25), [stone(3, 30)]);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 1, "old lines are gone");
        assert!(open().is_resumed());
    }

    #[test]
    fn half_a_line_takes_no_other_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::open(Some(directory.path()), 0, &mut Tombstones::default());
        let all = || vec![stone(1, 10), stone(2, 20)];
        // The volume is full, and for what takes the file's place too.
        let place = directory.path().join(NAME).with_extension("new");
        std::fs::create_dir(&place).unwrap();
        journal.open.lock().as_mut().unwrap().file =
            OpenOptions::new().write(true).open("/dev/full").unwrap();
        journal.add(&[stone(1, 10)], all);
        std::fs::remove_dir(&place).unwrap();
        journal.add(&[stone(2, 20)], all);
        assert_eq!(read(directory.path(), 0), all());
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_nothing_fails() {
        Journal::open(None, 0, &mut Tombstones::default()).add(&[stone(1, 10)], Vec::new);
        let nowhere = Path::new("/nowhere/at/all");
        Journal::open(Some(nowhere), 0, &mut Tombstones::default()).add(&[stone(1, 10)], Vec::new);
    }
}
