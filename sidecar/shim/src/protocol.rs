//! What the shim and the sidecar say to each other. This file is the contract; both sides use it.
//!
//! They meet at a Unix socket of type `SOCK_SEQPACKET`: one packet is one message, so there is no framing, and a
//! packet past [`MAX_PACKET`] is nobody's. One connection is one process, and is its **lifeline**:
//!
//! ```text
//! sidecar                                   shim
//!   Start(session)  ------------------------>        a new process
//!   <------------------  Started(number, life)       with two descriptors: its stdin (to write), its stdout (to read)
//!         ... both talk through the pipes; the shim reads and writes none of it ...
//!   <------------------------------  Resident(..)    now and then, when it has become another number
//!   End(patience)   ------------------------>        stdin closed, then SIGTERM, then SIGKILL, to its group
//!   <-------------  Ended(outcome, cause, stderr)    also without End; then the shim closes the connection
//! ```
//!
//! * The shim may answer `Refused` instead of `Started`, and closes the connection then.
//! * The shim keeps its own copies of both pipes, so the process sees the end of its stdin when the sidecar has closed
//!   its descriptor **and** said `End`, in whichever order; one of the two alone changes nothing for the process. Only
//!   SIGTERM ends one whose sidecar keeps the descriptor.
//! * `Ended` comes when the process has been reaped. What it wrote to stdout before is still in the pipe, so read on to
//!   its end; but not for ever, since a process of another group may have it open.
//! * A lifeline that closes before `End` means that the sidecar died. The process lives on for [`ADOPTION`], and a new
//!   connection gets it with `Adopt(session)` and the number that it was started under. What its writer had half
//!   written, and what its reader had half read, is lost: write a line first that may be lost too, and expect half a line. `life` says
//!   how many had the process before, so that what they called their calls is never used again.
//! * A sidecar that begins, and cannot ask for them yet, says `Keep` now and then: all that wait do so for [`ADOPTION`] from
//!   then on. It has no answer.
//! * One that will never ask for them says `Leave`: all that wait end, or those whose numbers say that [nobody comes for
//!   them](Session::of_nobody). It has no answer either.
//! * `End` may come again with less patience, never with more.
//!
//! A packet is the version, the kind, and the kind's fields; integers are little-endian:
//!
//! | kind | | fields |
//! |---|---|---|
//! | 1 | `Start` | session: 16 bytes |
//! | 2 | `Adopt` | session: 16 bytes |
//! | 3 | `End` | milliseconds after closing stdin: 4, milliseconds after SIGTERM: 4 |
//! | 4 | `Keep` | |
//! | 5 | `Leave` | 0 all or 1 those of nobody: 1 |
//! | 129 | `Started` | number: 4, life: 2 |
//! | 130 | `Refused` | reason: 1, errno or 0: 4, words in UTF-8: the rest, at most [`MAX_WORDS`] |
//! | 131 | `Ended` | 0 exited or 1 killed: 1, status or signal: 4, cause: 1, stderr: the rest, at most [`MAX_STDERR`] |
//! | 132 | `Resident` | kilobytes: 8, limit or 0: 8 |
//!
//! The first byte is the version in every version to come. Who gets another than its own closes the connection.

use std::fmt;
use std::time::Duration;

/// The version of this contract.
pub const VERSION: u8 = 3;
/// The longest packet, with room for fields to come.
pub const MAX_PACKET: usize = 4096;
/// How much of the end of a process's stderr is reported.
pub const MAX_STDERR: usize = 2048;
/// How long the words of a refusal may be.
pub const MAX_WORDS: usize = 512;
/// How many sidecars may have a process, one after the other. Their calls have numbers below 2^53 in all, so that every
/// reader keeps them as they are, and 2^40 of these are each sidecar's.
pub const MAX_LIVES: u16 = 1 << 13;
/// How long a process waits for another sidecar when its own has died, or when that one has said last that it begins.
pub const ADOPTION: Duration = Duration::from_secs(10);

/// The number that a sidecar starts a process under and finds it again by. The sidecar chooses it, at random, so that
/// two sidecars, one after the other, never mean two processes by one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session(pub u128);

/// What the number of a process has that belongs to no session: whoever comes after its sidecar does not know the number.
const OF_NOBODY: u128 = 1 << 127;

impl Session {
    /// One that another sidecar asks for by this number.
    pub fn of_somebody(number: u128) -> Self {
        Self(number & !OF_NOBODY)
    }

    /// One that no other sidecar asks for.
    pub fn of_nobody(number: u128) -> Self {
        Self(number | OF_NOBODY)
    }

    /// Whether no other sidecar asks for it.
    pub fn is_of_nobody(self) -> bool {
        self.0 & OF_NOBODY != 0
    }
}

/// Those that no sidecar comes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// All whose sidecars have died.
    All,
    /// Those of them that are of nobody.
    OfNobody,
}

/// How long a process is given to end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the end of its stdin to SIGTERM.
    pub input: Duration,
    /// From SIGTERM to SIGKILL.
    pub terminate: Duration,
}

/// What the sidecar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start a process.
    Start(Session),
    /// Give me the process that was started under this number, whose sidecar has died.
    Adopt(Session),
    /// End it.
    End(Patience),
    /// Let those wait on whose sidecars have died.
    Keep,
    /// End these, whose sidecars have died: nobody comes for them.
    Leave(Left),
}

/// What the shim says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The process runs, and its pipes come with this packet.
    Started {
        /// The process's number in the container's log.
        number: u32,
        /// How many sidecars had it before.
        life: u16,
    },
    /// There is no process for this connection.
    Refused {
        /// Why, for a program.
        reason: Refusal,
        /// The system's error number where the system refused, else 0.
        errno: i32,
        /// Why, for people.
        words: String,
    },
    /// The process is gone, and its process group with it.
    Ended(Ended),
    /// How much memory the process has.
    Resident(Resident),
}

/// How much memory a process has, and all of its process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// What is resident of it, in kilobytes.
    pub kilobytes: u64,
    /// What its whole container may have, in kilobytes; 0 if nobody limits it.
    pub limit: u64,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its status.
    pub outcome: Outcome,
    /// Who wanted it.
    pub cause: Cause,
    /// The end of what it wrote to stderr, as it wrote it.
    pub stderr: Vec<u8>,
}

/// The status that a process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
}

/// Why there is no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// One runs under this number already.
    Taken,
    /// None waits under this number.
    Unknown,
    /// The container is about to end.
    Stopping,
    /// The system would not start it: no such file, not executable, no memory.
    NotStarted,
    /// The request was none, or none of this version.
    Misunderstood,
}

/// Who wanted a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended by itself, or somebody else ended it (the kernel, for memory).
    Own,
    /// The sidecar asked.
    Asked,
    /// It wrote to stderr without measure.
    Flood,
    /// The container is about to end.
    Stopping,
}

/// Why a packet is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It is of another version.
    Version(u8),
    /// It is of no kind that goes this way.
    Kind(u8),
    /// It is too short or too long for its kind.
    Length,
    /// A field has a value that means nothing.
    Value,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "a packet of version {version}, where {VERSION} was expected")
            }
            Self::Kind(kind) => write!(f, "a packet of the unknown kind {kind}"),
            Self::Length => f.write_str("a packet of the wrong length"),
            Self::Value => f.write_str("a packet with a value that means nothing"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit status {status}"),
            Self::Killed(signal) => write!(f, "signal {signal}"),
        }
    }
}

// === Request ===

impl Request {
    /// The packet that says so.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Start(session) => packet(1, &[&session.0.to_le_bytes()]),
            Self::Adopt(session) => packet(2, &[&session.0.to_le_bytes()]),
            Self::End(patience) => {
                packet(3, &[&milliseconds(patience.input), &milliseconds(patience.terminate)])
            }
            Self::Keep => packet(4, &[]),
            Self::Leave(Left::All) => packet(5, &[&[0]]),
            Self::Leave(Left::OfNobody) => packet(5, &[&[1]]),
        }
    }

    /// What a packet says.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        let (kind, mut fields) = Fields::open(packet)?;
        let request = match kind {
            1 => Self::Start(Session(u128::from_le_bytes(fields.take()?))),
            2 => Self::Adopt(Session(u128::from_le_bytes(fields.take()?))),
            3 => Self::End(Patience { input: fields.duration()?, terminate: fields.duration()? }),
            4 => Self::Keep,
            5 => {
                let [left] = fields.take()?;
                Self::Leave(match left {
                    0 => Left::All,
                    1 => Left::OfNobody,
                    _ => return Err(DecodeError::Value),
                })
            }
            kind => return Err(DecodeError::Kind(kind)),
        };
        if fields.0.is_empty() { Ok(request) } else { Err(DecodeError::Length) }
    }
}

// === Report ===

impl Report {
    /// The packet that says so. Words and stderr that are too long lose what matters least: the end of the former, the
    /// beginning of the latter.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Started { number, life } => packet(129, &[&number.to_le_bytes(), &life.to_le_bytes()]),
            Self::Resident(Resident { kilobytes, limit }) => {
                packet(132, &[&kilobytes.to_le_bytes(), &limit.to_le_bytes()])
            }
            Self::Refused { reason, errno, words } => {
                let words = &words[..words.floor_char_boundary(MAX_WORDS)];
                packet(130, &[&[reason.code()], &errno.to_le_bytes(), words.as_bytes()])
            }
            Self::Ended(Ended { outcome, cause, stderr }) => {
                let (how, value) = match outcome {
                    Outcome::Exited(status) => (0, status),
                    Outcome::Killed(signal) => (1, signal),
                };
                let stderr = &stderr[stderr.len().saturating_sub(MAX_STDERR)..];
                packet(131, &[&[how], &value.to_le_bytes(), &[cause.code()], stderr])
            }
        }
    }

    /// What a packet says.
    pub fn decode(packet: &[u8]) -> Result<Self, DecodeError> {
        let (kind, mut fields) = Fields::open(packet)?;
        match kind {
            129 => {
                let number = u32::from_le_bytes(fields.take()?);
                let life = u16::from_le_bytes(fields.take()?);
                if fields.0.is_empty() {
                    Ok(Self::Started { number, life })
                } else {
                    Err(DecodeError::Length)
                }
            }
            130 => {
                let [reason] = fields.take()?;
                let reason = Refusal::of(reason).ok_or(DecodeError::Value)?;
                let errno = i32::from_le_bytes(fields.take()?);
                let words = String::from_utf8_lossy(fields.rest(MAX_WORDS)?).into_owned();
                Ok(Self::Refused { reason, errno, words })
            }
            131 => {
                let [how] = fields.take()?;
                let value = i32::from_le_bytes(fields.take()?);
                let outcome = match how {
                    0 => Outcome::Exited(value),
                    1 => Outcome::Killed(value),
                    _ => return Err(DecodeError::Value),
                };
                let [cause] = fields.take()?;
                let cause = Cause::of(cause).ok_or(DecodeError::Value)?;
                Ok(Self::Ended(Ended { outcome, cause, stderr: fields.rest(MAX_STDERR)?.to_vec() }))
            }
            132 => {
                let kilobytes = u64::from_le_bytes(fields.take()?);
                let limit = u64::from_le_bytes(fields.take()?);
                let resident = Resident { kilobytes, limit };
                if fields.0.is_empty() { Ok(Self::Resident(resident)) } else { Err(DecodeError::Length) }
            }
            kind => Err(DecodeError::Kind(kind)),
        }
    }
}

impl Refusal {
    const ALL: [Self; 5] =
        [Self::Taken, Self::Unknown, Self::Stopping, Self::NotStarted, Self::Misunderstood];

    const fn code(self) -> u8 {
        match self {
            Self::Taken => 2,
            Self::Unknown => 3,
            Self::Stopping => 4,
            Self::NotStarted => 5,
            Self::Misunderstood => 6,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }
}

impl Cause {
    const ALL: [Self; 4] = [Self::Own, Self::Asked, Self::Flood, Self::Stopping];

    const fn code(self) -> u8 {
        match self {
            Self::Own => 1,
            Self::Asked => 2,
            Self::Flood => 3,
            Self::Stopping => 4,
        }
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }
}

// === Packets ===

fn packet(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut packet = vec![VERSION, kind];
    for field in fields {
        packet.extend_from_slice(field);
    }
    packet
}

fn milliseconds(duration: Duration) -> [u8; 4] {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).to_le_bytes()
}

/// The fields that have not been read yet.
struct Fields<'packet>(&'packet [u8]);

impl<'packet> Fields<'packet> {
    fn open(packet: &'packet [u8]) -> Result<(u8, Self), DecodeError> {
        match packet {
            [VERSION, kind, fields @ ..] if packet.len() <= MAX_PACKET => Ok((*kind, Self(fields))),
            [version, ..] if *version != VERSION => Err(DecodeError::Version(*version)),
            _ => Err(DecodeError::Length),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(DecodeError::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    fn duration(&mut self) -> Result<Duration, DecodeError> {
        Ok(Duration::from_millis(u32::from_le_bytes(self.take()?).into()))
    }

    fn rest(&self, most: usize) -> Result<&'packet [u8], DecodeError> {
        if self.0.len() <= most { Ok(self.0) } else { Err(DecodeError::Length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let patience = Patience { input: Duration::from_millis(1500), terminate: Duration::ZERO };
        let of_one = [Request::Start(Session(7)), Request::Adopt(Session(u128::MAX)), Request::End(patience)];
        let of_all = [Request::Keep, Request::Leave(Left::All), Request::Leave(Left::OfNobody)];
        of_one.into_iter().chain(of_all).collect()
    }

    fn reports() -> Vec<Report> {
        let mut reports = vec![
            Report::Started { number: 17, life: 3 },
            Report::Resident(Resident { kilobytes: 1 << 40, limit: 0 }),
        ];
        for reason in Refusal::ALL {
            reports.push(Report::Refused { reason, errno: 2, words: "no such fïle".to_owned() });
        }
        for cause in Cause::ALL {
            for outcome in [Outcome::Exited(255), Outcome::Killed(9)] {
                reports.push(Report::Ended(Ended { outcome, cause, stderr: b"\xff\0 bytes".to_vec() }));
            }
        }
        reports
    }

    #[test]
    fn what_one_side_says_the_other_hears() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        for report in reports() {
            assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
    }

    #[test]
    fn nothing_else_is_a_message() {
        for packet in requests().iter().map(Request::encode) {
            assert!(Report::decode(&packet).is_err(), "a request is not a report");
            for length in 0..packet.len() {
                assert_eq!(Request::decode(&packet[..length]), Err(DecodeError::Length));
            }
            assert_eq!(Request::decode(&[&packet[..], &[0]].concat()), Err(DecodeError::Length));
            assert_eq!(Request::decode(&[&[1], &packet[1..]].concat()), Err(DecodeError::Version(1)));
        }
        assert_eq!(Request::decode(&[VERSION, 99]), Err(DecodeError::Kind(99)));
        assert_eq!(Request::decode(&[VERSION, 5, 2]), Err(DecodeError::Value));
        assert_eq!(Report::decode(&[VERSION, 130, 0, 0, 0, 0, 0]), Err(DecodeError::Value));
        assert_eq!(Report::decode(&[VERSION, 131, 2, 0, 0, 0, 0, 1]), Err(DecodeError::Value));
        assert_eq!(Report::decode(&[VERSION, 131, 0, 0, 0, 0, 0, 9]), Err(DecodeError::Value));
    }

    #[test]
    fn a_number_says_whether_anybody_comes_for_it() {
        for number in [0, 1, u128::MAX, u128::MAX >> 1] {
            assert!(Session::of_nobody(number).is_of_nobody());
            assert!(!Session::of_somebody(number).is_of_nobody());
        }
    }

    #[test]
    fn text_is_cut_where_it_matters_least() {
        let words = "é".repeat(MAX_WORDS);
        let refused = Report::Refused { reason: Refusal::NotStarted, errno: 0, words };
        let Ok(Report::Refused { words, .. }) = Report::decode(&refused.encode()) else {
            panic!("not refused")
        };
        assert_eq!(words, "é".repeat(MAX_WORDS / 2));

        let stderr = [vec![b'a'; MAX_STDERR], vec![b'z'; MAX_STDERR]].concat();
        let ended = Report::Ended(Ended { outcome: Outcome::Exited(0), cause: Cause::Own, stderr });
        let Ok(Report::Ended(ended)) = Report::decode(&ended.encode()) else { panic!("not ended") };
        assert_eq!(ended.stderr, vec![b'z'; MAX_STDERR]);
    }
}
