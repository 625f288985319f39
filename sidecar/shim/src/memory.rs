//! How much memory processes have. The sidecar cannot see that from its own container.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::param::page_size;
use rustix::process::Pid;

/// How often it is measured. Whoever looks at a graph sees no more.
const EVERY: Duration = Duration::from_secs(5);
/// The share of the container's limit at which one process is worth a line, and below which it may become so again.
const MUCH: (u64, u64) = (80, 70);
/// What is no limit, in files that have a number for that too.
const NO_LIMIT: u64 = 1 << 60;

/// What is measured, and when.
pub(crate) struct Memory {
    /// What the container may have, in kilobytes; 0 if nobody limits it.
    limit: u64,
    next: Instant,
}

/// How much a process has, and what was said of that.
#[derive(Default)]
pub(crate) struct Share {
    pub(crate) kilobytes: u64,
    reported: u64,
    much: bool,
}

impl Memory {
    /// `cgroups` is where the kernel shows the limits of the container.
    pub(crate) fn new(cgroups: &Path, now: Instant) -> Self {
        let limit = ["memory.max", "memory/memory.limit_in_bytes"].iter().find_map(|file| {
            let text = fs::read_to_string(cgroups.join(file)).ok()?;
            text.trim().parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT)
        });
        Self { limit: limit.unwrap_or(0) / 1024, next: now + EVERY }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// When it is to be measured again.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    /// What each group of processes has, in kilobytes, if it is time.
    pub(crate) fn measure(&mut self, now: Instant) -> Option<Vec<(Pid, u64)>> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let mut groups: Vec<(Pid, u64)> = Vec::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let is_process = entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit);
            let stat = is_process.then(|| fs::read(entry.path().join("stat")).ok()).flatten();
            let Some((group, pages)) = stat.as_deref().and_then(parse) else { continue };
            let kilobytes = pages.saturating_mul(page_size() as u64 / 1024);
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, sum)) => *sum += kilobytes,
                None => groups.push((group, kilobytes)),
            }
        }
        Some(groups)
    }
}

impl Share {
    /// Somebody listens from now on who was told nothing. What is in the log is there.
    pub(crate) fn begin_anew(&mut self) {
        self.reported = 0;
    }

    /// Takes a new number. Says whether it is worth a report, and whether it is worth a line.
    pub(crate) fn take(&mut self, kilobytes: u64, limit: u64) -> (bool, bool) {
        self.kilobytes = kilobytes;
        let news = kilobytes.abs_diff(self.reported) > self.reported / 16;
        if news {
            self.reported = kilobytes;
        }
        let share = kilobytes.saturating_mul(100).checked_div(limit).unwrap_or(0);
        let line = share >= MUCH.0 && !self.much;
        self.much = share >= MUCH.0 || self.much && share >= MUCH.1;
        (news, line)
    }
}

/// The group and the resident pages in a line of `/proc/PID/stat`. The program's name in it may hold anything.
fn parse(stat: &[u8]) -> Option<(Pid, u64)> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace();
    // The state and the parent come first. A process that has gone since the line was asked for has the group -1.
    let group = fields.nth(2)?.parse().ok().filter(|group| *group > 0).and_then(Pid::from_raw)?;
    Some((group, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let stat = b"712 (a) b (c)) S 1 700 712 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123 99999 345 18446744073709551615\n";
        assert_eq!(parse(stat), Some((Pid::from_raw(700).unwrap(), 345)));
        let gone = b"712 (a) X 0 -1 -1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 0 0 123 0 0 18446744073709551615\n";
        for stat in [&b""[..], b"1 (x", b"1 (x) S", b"1 (x) S 1 0 0", gone] {
            assert_eq!(parse(stat), None);
        }
        let own = fs::read("/proc/self/stat").unwrap();
        let (_, pages) = parse(&own).unwrap();
        assert!((10..10_000_000).contains(&pages), "{pages}");
    }

    #[test]
    fn what_has_changed_is_told_and_what_is_much_is_said_once() {
        let mut share = Share::default();
        for (kilobytes, told) in [
            (100, (true, false)),
            (103, (false, false)),
            (120, (true, false)),
            (800, (true, true)),
            (900, (true, false)),
            (750, (true, false)),
            (810, (true, false)),
            (600, (true, false)),
            (850, (true, true)),
            (0, (true, false)),
        ] {
            assert_eq!(share.take(kilobytes, 1000), told, "{kilobytes}");
        }
        assert_eq!(share.take(900, 1000), (true, true));
        share.begin_anew();
        assert_eq!(share.take(900, 1000), (true, false), "another sidecar is told of it, and the log is not");
        assert_eq!(share.take(1 << 40, 0), (true, false), "of no limit nothing is much");
    }

    #[test]
    fn limits_of_both_kinds_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let limit = || Memory::new(folder.path(), Instant::now()).limit();
        assert_eq!(limit(), 0);
        fs::create_dir(folder.path().join("memory")).unwrap();
        fs::write(folder.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(limit(), 0);
        fs::write(folder.path().join("memory/memory.limit_in_bytes"), "4096\n").unwrap();
        assert_eq!(limit(), 4);
        fs::write(folder.path().join("memory.max"), "8192\n").unwrap();
        assert_eq!(limit(), 8);
    }
}
