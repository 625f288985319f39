//! How much memory processes have. The sidecar cannot see that from its own container.

use std::collections::HashMap;
use std::fs;
use std::iter::successors;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::param::page_size;
use rustix::process::{Pid, getpid};

/// How often it is measured. Whoever looks at a graph sees no more.
const EVERY: Duration = Duration::from_secs(5);
/// The share of the container's limit at which one process is worth a line, and below which it may become so again.
const MUCH: (u64, u64) = (80, 70);
/// What is no limit, in files that have a number for that too.
const NO_LIMIT: u64 = 1 << 60;
/// How many parents are looked for above a process. They are read one after the other, while others come and go.
const PARENTS: usize = 64;

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

    /// What each group of processes has, in kilobytes, if it is time: with what it has started in groups of their own, as
    /// launchers do, and what drives a browser.
    pub(crate) fn measure(&mut self, now: Instant) -> Option<HashMap<Pid, u64>> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let mut all = HashMap::new();
        for file in fs::read_dir("/proc").ok()?.flatten() {
            // Not all that is there is a process.
            let Some(pid) = file.file_name().to_str().and_then(number) else { continue };
            let stat = fs::read(file.path().join("stat")).ok();
            if let Some(entry) = stat.as_deref().and_then(parse) {
                all.insert(pid, entry);
            }
        }
        Some(sums(&all, getpid()))
    }
}

/// What the kernel says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// None where nobody here is.
    parent: Option<Pid>,
    group: Pid,
    /// What it has in memory.
    pages: u64,
}

/// What they have, in kilobytes, each counted in the group of the child of the shim that it comes from. What has lost its
/// parents is such a child too, or one of the first process, and still in its group.
fn sums(all: &HashMap<Pid, Entry>, shim: Pid) -> HashMap<Pid, u64> {
    let mut sums: HashMap<Pid, u64> = HashMap::new();
    for entry in all.values() {
        let is_started = |parent: &Pid| *parent != shim && !parent.is_init();
        let above = |entry: &&Entry| all.get(&entry.parent.filter(is_started)?);
        let first = successors(Some(entry), above).take(PARENTS).last().unwrap_or(entry);
        let kilobytes = entry.pages.saturating_mul(page_size() as u64 / 1024);
        *sums.entry(first.group).or_default() += kilobytes;
    }
    sums
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

/// A line of `/proc/PID/stat`. The program's name in it may hold anything.
fn parse(stat: &[u8]) -> Option<Entry> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[name + 1..]).ok()?.split_ascii_whitespace();
    // The state comes first.
    let parent = number(fields.nth(1)?);
    // A process that has gone since the line was asked for has the group -1.
    let group = number(fields.next()?)?;
    Some(Entry { parent, group, pages: fields.nth(18)?.parse().ok()? })
}

/// The number of a process or of a group.
fn number(text: &str) -> Option<Pid> {
    text.parse().ok().filter(|number: &i32| *number > 0).and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let stat = b"712 (a) b (c)) S 1 700 712 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123 99999 345 18446744073709551615\n";
        let expected = Entry { parent: number("1"), group: number("700").unwrap(), pages: 345 };
        assert_eq!(parse(stat), Some(expected));
        let gone = b"712 (a) X 0 -1 -1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 0 0 123 0 0 18446744073709551615\n";
        for stat in [&b""[..], b"1 (x", b"1 (x) S", b"1 (x) S 1 0 0", gone] {
            assert_eq!(parse(stat), None);
        }
        let own = fs::read("/proc/self/stat").unwrap();
        let Entry { pages, .. } = parse(&own).unwrap();
        assert!((10..10_000_000).contains(&pages), "{pages}");
    }

    #[test]
    fn what_a_process_starts_counts_with_it() {
        const SHIM: &str = "7";
        let pid = |text: &str| number(text).unwrap();
        let sums = |all: &[[&str; 3]]| {
            let entry = |[of, parent, group]: &[&str; 3]| {
                (pid(of), Entry { parent: number(parent), group: pid(group), pages: 1 })
            };
            sums(&all.iter().map(entry).collect(), pid(SHIM))
        };
        let all = sums(&[
            ["1", "0", "1"],
            [SHIM, "1", SHIM],
            ["10", SHIM, "10"],
            ["11", "10", "10"],
            // In a group of its own, with what it has started itself.
            ["12", "11", "12"],
            ["13", "12", "12"],
            // Whose parents have ended.
            ["14", SHIM, "10"],
            ["15", "1", "10"],
            ["20", SHIM, "20"],
        ]);
        let each = page_size() as u64 / 1024;
        let has = |group| all.get(&pid(group)).map(|kilobytes| kilobytes / each);
        assert_eq!(["10", "12", "20"].map(has), [Some(6), None, Some(1)]);
        // Nobody's parents are followed for ever.
        let circle = sums(&[["30", "31", "30"], ["31", "30", "31"]]);
        assert_eq!(circle.values().sum::<u64>(), 2 * each);
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
