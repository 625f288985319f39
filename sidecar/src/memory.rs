//! How much of everything there may be, by the memory that the sidecar's container may have. Where there is much, as much as
//! anybody needs; where there is less, each has a part of it, and all of them together leave the program what it takes. What
//! is told on the command line is as it is told.

use std::fs;
use std::path::Path;

use longshore_sessions::bounds::MAX_COPIED;

use crate::app;
use crate::held::Bounds;
use crate::upstream::{self, EDITABLE};
use crate::worker::UNSENT;

const MIB: usize = 1024 * 1024;
const KIB: usize = 1024;

/// What is no limit, in files that have a number for that too.
const NO_LIMIT: u64 = 1 << 60;

/// What the program itself takes, with [`SESSIONS`].
const PROGRAM: usize = 20 * MIB;
/// As many sessions, and ends of sessions that are remembered, as a manifest permits by default.
const SESSIONS: usize = 10_000;
/// What each beyond those takes.
const SESSION: usize = KIB;
/// What a connection takes while its client waits for something: buffers at both sides, and what is known of the request. One
/// on which nothing is under way takes a quarter of it. A client that reads nothing has its server's words wait beside that
/// (`worker::ahead`, and what is read of a server ahead of its client).
const CONNECTION: usize = 44 * KIB + KERNEL;
/// What the kernel holds for one. It counts as the container's memory, and cannot be taken back. At the client's side that is
/// what it has sent and nobody has read, for which it needs no key, and what it was sent and has yet to take. At the server's it
/// is the part of an answer that waits for room, or for the client. Both sides are full only where somebody calls, and reads
/// nothing, and sends on; of one principal that is half of the connections, and what the clients of the other half leave free
/// is as much as that takes beyond this. (With `auth.none` it may be all of them, and more than there is.)
const KERNEL: usize = if OF_CLIENT > OF_SERVER { OF_CLIENT } else { OF_SERVER };
const OF_CLIENT: usize = 2 * app::RECEIVED + UNSENT as usize;
const OF_SERVER: usize = 2 * upstream::RECEIVED;

/// What each may have of what the program leaves, in parts of [`PARTS`].
mod part {
    pub(super) const CONNECTIONS: usize = 172;
    pub(super) const HELD: usize = 36;
    pub(super) const STREAMS: usize = 12;
    pub(super) const PARKED: usize = 4;
    pub(super) const SUBSCRIPTIONS: usize = 3;
    pub(super) const COPIED: usize = 3;
    pub(super) const TOLD: usize = 2;
    pub(super) const HEADS: usize = 2;
    pub(super) const LETTERS: usize = 1;
}
/// With 256 MiB each of them is a mebibyte.
const PARTS: usize = 236;

/// How much there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// Connections of clients; and calls, of which each has one to the server.
    pub(crate) connections: usize,
    /// What is kept of events, or waits for clients.
    pub(crate) streams: usize,
    /// Messages that have to be whole. Of a principal never less than one message may need, if there is as much.
    pub(crate) held: Bounds,
    /// What messages of clients hold that are no calls, where calls have taken up all that there is for messages.
    pub(crate) told: Bounds,
    /// What sessions hold for as long as they last, which is their subscriptions and, where that is much, what their clients
    /// say that they can do; and subscriptions without a session: nothing that messages would lack.
    pub(crate) subscriptions: Bounds,
    /// The copies of that which other replicas have made here.
    pub(crate) copied: usize,
    /// Calls and answers of calls whose server has asked back.
    pub(crate) parked: Bounds,
    /// The heads of requests that are not whole yet.
    pub(crate) heads: usize,
    /// What clients of HTTP+SSE post, of requests and of other messages each.
    pub(crate) letters: Bounds,
    /// Sessions: those that there is always room for, and more in what nobody else takes.
    pub(crate) sessions: u32,
}

/// How many bytes of memory a container may have, as the kernel shows it. `None`: nobody limits it.
pub fn of_container(cgroups: &Path) -> Option<u64> {
    ["memory.max", "memory/memory.limit_in_bytes"].iter().find_map(|file| {
        let text = fs::read_to_string(cgroups.join(file)).ok()?;
        text.trim().parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT)
    })
}

impl Amounts {
    /// Those of a sidecar that may have so much memory.
    pub(crate) fn within(memory: Option<u64>) -> Self {
        let memory = memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        // With very little it serves a few, and may be killed.
        let room = memory.map(|bytes| bytes.saturating_sub(PROGRAM).max(bytes / 4));
        let part = |part: usize| room.map_or(usize::MAX, |room| (room / PARTS).saturating_mul(part));
        let of = |own: usize, most: usize| most.min(part(own));
        let each = |own: usize, total: usize, per_principal: usize| {
            let total = of(own, total);
            Bounds { total, per_principal: per_principal.min(total / 2) }
        };
        let held = of(part::HELD, 48 * MIB);
        let mut amounts = Self {
            connections: of(part::CONNECTIONS, 4096 * CONNECTION) / CONNECTION,
            streams: of(part::STREAMS, 48 * MIB),
            held: Bounds { total: held, per_principal: EDITABLE.min(held - held / 9) },
            told: each(part::TOLD, 16 * MIB, 8 * MIB),
            subscriptions: each(part::SUBSCRIPTIONS, MAX_COPIED, MAX_COPIED / 4),
            copied: of(part::COPIED, MAX_COPIED),
            parked: each(part::PARKED, 64 * MIB, 16 * MIB),
            heads: of(part::HEADS, 16 * MIB),
            letters: each(part::LETTERS, 32 * MIB, 8 * MIB),
            sessions: u32::MAX,
        };
        if let Some(room) = room {
            let more = room.saturating_sub(amounts.taken()) / SESSION;
            amounts.sessions = u32::try_from(SESSIONS + more).unwrap_or(u32::MAX);
        }
        amounts
    }

    /// What all of it takes beside the program, where everybody takes all that there is.
    fn taken(&self) -> usize {
        let Self {
            connections,
            streams,
            held,
            told,
            subscriptions,
            copied,
            parked,
            heads,
            letters,
            sessions: _,
        } = self;
        let kept = streams + held.total + told.total + subscriptions.total + copied + parked.total;
        connections * CONNECTION + kept + heads + 2 * letters.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_it_together_fits() {
        for mebibytes in [32, 48, 64, 128, 256, 512, 1024, 4096] {
            let amounts = Amounts::within(Some(mebibytes << 20));
            let sessions = (amounts.sessions as usize - SESSIONS) * SESSION;
            let sum = PROGRAM + amounts.taken() + sessions;
            assert!(sum <= (mebibytes << 20) as usize, "{mebibytes}: {amounts:?}");
            // A request of the largest size that there may be where nobody says so.
            assert!(mebibytes < 64 || amounts.held.per_principal >= 4 * MIB, "{mebibytes}: {amounts:?}");
        }
        let few = Amounts::within(Some(16 << 20));
        assert!(few.connections > 16 && few.held.per_principal > MIB / 2, "{few:?}");
    }

    #[test]
    fn more_memory_is_more_of_everything() {
        let unlimited = Amounts::within(None);
        assert_eq!((unlimited.connections, unlimited.streams), (4096, 48 * MIB));
        assert_eq!(unlimited.held, Bounds { total: 48 * MIB, per_principal: EDITABLE });
        assert_eq!(unlimited.parked, Bounds { total: 64 * MIB, per_principal: 16 * MIB });
        // What a sidecar has where nobody says otherwise.
        let usual = Amounts::within(Some(256 << 20));
        assert_eq!((usual.connections, usual.streams), (1024, 12 * MIB));
        assert_eq!(usual.held, Bounds { total: 36 * MIB, per_principal: EDITABLE });
        assert_eq!(usual.subscriptions, Bounds { total: 3 * MIB, per_principal: 3 * MIB / 2 });
        assert_eq!(usual.sessions as usize / 100, SESSIONS / 100);
        let much = Amounts::within(Some(1024 << 20));
        assert_eq!((much.connections, much.streams, much.held), (4096, 48 * MIB, unlimited.held));
        let most = Amounts::within(Some(8 << 30));
        // As many as a manifest may permit.
        assert!(most.sessions >= 100_000 && unlimited.sessions >= most.sessions, "{most:?}");
        assert_eq!(Amounts { sessions: unlimited.sessions, ..most }, unlimited);
    }

    /// Whoever sizes a sidecar reads it there.
    #[test]
    fn the_page_says_what_follows_from_memory() {
        let page = include_str!("../../docs/sessions.md");
        let row = |of: &str| -> Vec<f64> {
            let row =
                page.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(of)?.strip_prefix(" | "));
            let row = row.unwrap_or_else(|| panic!("nothing is said of {of}"));
            let numbers =
                row.trim_end_matches(" |").split(" | ").map(|cell| cell.trim_end_matches(" MiB").parse());
            numbers.map(Result::unwrap).collect()
        };
        let columns = [Some(128), Some(256), Some(512), Some(1024), None];
        let amounts =
            columns.map(|mebibytes: Option<u64>| Amounts::within(mebibytes.map(|number| number << 20)));
        let connections: Vec<_> = amounts.iter().map(|amounts| amounts.connections as f64).collect();
        assert_eq!(row("connections, and as many calls"), connections);
        let sessions = amounts.map(|amounts| f64::from(amounts.sessions.min(100_000) / 100 * 100));
        assert_eq!(row("sessions"), sessions);
        for (of, bytes) in [
            ("answers that have to be whole", (|amounts| amounts.held.total) as fn(&Amounts) -> usize),
            ("of it one principal's, and so the largest of them", |amounts| amounts.held.per_principal),
            ("what is kept of streams", |amounts| amounts.streams),
            ("calls that ask their clients", |amounts| amounts.parked.total),
            ("subscriptions, and as much of other pods'", |amounts| amounts.subscriptions.total),
            ("messages that are no calls, where calls take up all room", |amounts| amounts.told.total),
            ("heads of requests that are not whole", |amounts| amounts.heads),
            ("what clients of HTTP+SSE post", |amounts| amounts.letters.total),
        ] {
            for (said, amounts) in row(of).into_iter().zip(&amounts) {
                let is = bytes(amounts) as f64 / MIB as f64;
                assert!(
                    said <= is && is - said < 1.0 && (is > 1.0 || is - said < 0.1),
                    "{of}: {said} for {is}"
                );
            }
        }
    }

    #[test]
    fn the_kernel_shows_what_a_container_may_have() {
        let cgroups = tempfile::tempdir().unwrap();
        assert_eq!(of_container(cgroups.path()), None);
        fs::create_dir(cgroups.path().join("memory")).unwrap();
        for (file, text, limit) in [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
            ("memory/memory.limit_in_bytes", "134217728\n", Some(134_217_728)),
            ("memory.max", "268435456\n", Some(268_435_456)),
        ] {
            fs::write(cgroups.path().join(file), text).unwrap();
            assert_eq!(of_container(cgroups.path()), limit, "{file} {text}");
        }
        fs::remove_dir_all(cgroups.path().join("memory")).unwrap();
        fs::write(cgroups.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(of_container(cgroups.path()), None);
    }
}
