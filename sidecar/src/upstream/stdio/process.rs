//! A process of the server: the shim starts it, hands over its stdin and stdout, and tells how it ended.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_shim::protocol::{
    Cause, Ended, Left, MAX_PACKET, Outcome, Patience, Refusal, Report, Request, Resident, Session,
};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::yield_now;
use tokio::time::{Duration, sleep, timeout};

use super::Why;
use crate::metrics::Metrics;

/// How long the shim may take to start a process.
const START: Duration = Duration::from_secs(10);
/// How long to wait before connecting again where too many connect at once.
const BREATHER: Duration = Duration::from_millis(5);
/// How long to wait before asking again for a number whose last process is about to end.
const TAKEN: Duration = Duration::from_millis(100);
/// What a process is given to end by itself: from the end of its stdin, and from SIGTERM.
pub(super) const PATIENCE: Patience =
    Patience { input: Duration::from_secs(2), terminate: Duration::from_secs(3) };
/// What one is given that does harm.
pub(super) const IMPATIENCE: Patience = Patience { input: Duration::ZERO, terminate: Duration::from_secs(1) };
/// How much longer than that the shim is waited for.
pub(super) const MARGIN: Duration = Duration::from_secs(2);
/// How much of what a process writes while it ends is read away, so that it is not stopped by a pipe that is full.
const LAST_WORDS: usize = 1024 * 1024;

/// A process, and what it is reached by, on the thread that it was made on.
pub(super) struct Process {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: pipe::Receiver,
    pub(super) lifeline: Lifeline,
    pub(super) running: Running,
}

/// A process on its way to the thread that will use it.
pub(super) struct Parts {
    /// How many sidecars had it before this one.
    pub(super) life: u16,
    stdin: OwnedFd,
    stdout: OwnedFd,
    lifeline: OwnedFd,
    running: Running,
}

/// A process that nobody talks to yet.
pub(super) struct Idle {
    life: u16,
    stdin: OwnedFd,
    stdout: OwnedFd,
    lifeline: Lifeline,
    running: Running,
}

/// What the shim has under a number.
enum Granted {
    Process(Idle),
    /// Nothing.
    Unknown,
    /// A process that is not to be had.
    Taken,
}

/// Counts it, and how much memory it takes.
pub(super) struct Running {
    metrics: Arc<Metrics>,
    pub(super) number: u32,
    kilobytes: AtomicU64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.metrics.processes.dec();
        self.metrics.resident(self.number, None);
    }
}

/// What the shim says of a process that runs.
pub(super) enum Heard {
    /// It has ended.
    Ended(Ended),
    /// The shim itself is gone.
    Lost,
}

impl Idle {
    /// Has the shim start one under this number. Where that is taken, the shim has started one when nobody waited for
    /// it any more, and ends it: in less time than is waited here.
    pub(super) async fn start(socket: &Path, number: u128, metrics: &Arc<Metrics>) -> Result<Self, Why> {
        let starting = async {
            loop {
                match Self::ask(socket, Request::Start(Session(number)), metrics).await? {
                    Granted::Process(process) => return Ok(process),
                    Granted::Unknown => return Err(refused_itself()),
                    Granted::Taken => sleep(TAKEN).await,
                }
            }
        };
        timeout(START, starting).await.unwrap_or(Err(Why::Slow(START.as_secs())))
    }

    /// Takes over the one of this number, whose sidecar has died. `None`: there is none.
    pub(super) async fn adopt(
        socket: &Path,
        number: u128,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<Self>, Why> {
        match timeout(START, Self::ask(socket, Request::Adopt(Session(number)), metrics)).await {
            Ok(Ok(Granted::Process(process))) => Ok(Some(process)),
            Ok(Ok(Granted::Unknown)) => Ok(None),
            Ok(Ok(Granted::Taken)) => Err(refused_itself()),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(Why::Slow(START.as_secs())),
        }
    }

    async fn ask(socket: &Path, request: Request, metrics: &Arc<Metrics>) -> Result<Granted, Why> {
        let unavailable = |error: io::Error| Why::Unavailable(error.to_string());
        let lifeline = Lifeline::connect(socket).await.map_err(unavailable)?;
        lifeline.say(&request).map_err(unavailable)?;
        let (report, pipes) = lifeline.hear().await.map_err(unavailable)?.ok_or_else(|| {
            Why::Unavailable("it does not talk to this sidecar: the shim serves another user".to_owned())
        })?;
        match (report, pipes) {
            (Report::Started { number, life }, Some([stdin, stdout])) => {
                tracing::debug!(number, life, "a process of the server is there");
                metrics.process_started();
                let running = Running { metrics: metrics.clone(), number, kilobytes: AtomicU64::new(0) };
                Ok(Granted::Process(Self { life, stdin, stdout, lifeline, running }))
            }
            (Report::Refused { reason: Refusal::Unknown, .. }, _) => Ok(Granted::Unknown),
            (Report::Refused { reason: Refusal::Taken, .. }, _) => Ok(Granted::Taken),
            (Report::Refused { reason, errno, words }, _) => Err(refused(reason, errno, words)),
            (Report::Started { .. } | Report::Ended(_) | Report::Resident(_), _) => Err(refused_itself()),
        }
    }

    /// Writes a line to it, before anybody reads what it says, if that can be written at once.
    pub(super) fn tell(&self, line: &[u8]) -> bool {
        rustix::io::ioctl_fionbio(&self.stdin, true).is_ok()
            && rustix::io::write(&self.stdin, line).is_ok_and(|written| written == line.len())
    }

    /// Waits for its end.
    pub(super) async fn heard(&self) -> Heard {
        self.running.heard(&self.lifeline).await
    }

    /// Waits until it has said something, if that can be waited for. Nobody reads it.
    pub(super) async fn said(&self) {
        if let Ok(stdout) = self.stdout.try_clone().and_then(pipe::Receiver::from_owned_fd) {
            let _ = stdout.readable().await;
        }
    }

    /// Lets go of it on this thread.
    pub(super) fn into_parts(self) -> io::Result<Parts> {
        let Self { life, stdin, stdout, lifeline, running } = self;
        Ok(Parts { life, stdin, stdout, lifeline: lifeline.0.into_std()?.into(), running })
    }

    /// Ends one that nobody has used.
    pub(super) async fn end(self) {
        if let Ok(process) = self.into_parts().and_then(Process::from_parts) {
            process.end(IMPATIENCE).await;
        }
    }
}

/// Has the shim keep the processes whose sidecars have died.
pub(super) async fn keep(socket: &Path) -> io::Result<()> {
    Lifeline::connect(socket).await?.say(&Request::Keep)
}

/// Has the shim end these of them: nobody will come for them.
pub(super) async fn leave(socket: &Path, left: Left) -> io::Result<()> {
    Lifeline::connect(socket).await?.say(&Request::Leave(left))
}

impl Running {
    /// How many mebibytes it had in memory when that was last measured.
    pub(super) fn mebibytes(&self) -> u64 {
        self.kilobytes.load(Ordering::Relaxed) / 1024
    }

    /// Waits for its end.
    pub(super) async fn heard(&self, lifeline: &Lifeline) -> Heard {
        loop {
            match lifeline.hear().await {
                Ok(Some((Report::Resident(Resident { kilobytes, .. }), _))) => {
                    self.kilobytes.store(kilobytes, Ordering::Relaxed);
                    self.metrics.resident(self.number, Some(kilobytes));
                }
                Ok(Some((Report::Ended(ended), _))) => return Heard::Ended(ended),
                // Nothing else can be said here; who does is no shim.
                Ok(_) | Err(_) => return Heard::Lost,
            }
        }
    }
}

fn refused_itself() -> Why {
    Why::NotStarted("the shim answered with something else than a process".to_owned())
}

impl Process {
    /// Takes it to this thread.
    pub(super) fn from_parts(parts: Parts) -> io::Result<Self> {
        let Parts { stdin, stdout, lifeline, running, .. } = parts;
        let stdin = pipe::Sender::from_owned_fd(stdin)?;
        let stdout = pipe::Receiver::from_owned_fd(stdout)?;
        let lifeline = Lifeline(UnixStream::from_std(StdUnixStream::from(lifeline))?);
        Ok(Self { stdin, stdout, lifeline, running })
    }

    /// Ends it, and waits until it has ended, or until it should have long ago.
    pub(super) async fn end(self, patience: Patience) {
        let Self { stdin, stdout, lifeline, running } = self;
        // Where the shim is gone, the process is too.
        let _ = lifeline.say(&Request::End(patience));
        drop(stdin);
        let ended = async {
            tokio::select! {
                _ = running.heard(&lifeline) => {}
                () = read_away(stdout) => { running.heard(&lifeline).await; }
            }
        };
        if timeout(patience.input + patience.terminate + MARGIN, ended).await.is_err() {
            tracing::warn!("a process of the server did not end in time");
        }
        drop(running);
    }
}

async fn read_away(stdout: pipe::Receiver) {
    let mut buffer = [0; 4096];
    let mut left = LAST_WORDS;
    while left > 0 && stdout.readable().await.is_ok() {
        match stdout.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => left = left.saturating_sub(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        yield_now().await;
    }
}

fn refused(reason: Refusal, errno: i32, words: String) -> Why {
    // Compared as they came: zero is no error, and not everything else is one either.
    let is = |error: Errno| error.raw_os_error() == errno;
    match reason {
        Refusal::NotStarted if is(Errno::NOENT) => Why::NotFound(words),
        Refusal::NotStarted if is(Errno::ACCESS) || is(Errno::NOEXEC) || is(Errno::ISDIR) => {
            Why::NotExecutable(words)
        }
        Refusal::Stopping => Why::Stopping,
        Refusal::NotStarted | Refusal::Taken | Refusal::Unknown | Refusal::Misunderstood => {
            Why::NotStarted(words)
        }
    }
}

/// How a process ended, as a reason.
pub(super) fn why(ended: &Ended) -> Why {
    match (ended.cause, ended.outcome) {
        (Cause::Own, Outcome::Exited(status)) => Why::Exited(status),
        (Cause::Own, Outcome::Killed(signal)) => Why::Killed(signal),
        (Cause::Asked, _) => Why::Asked,
        (Cause::Flood, _) => Why::StderrFlood,
        (Cause::Stopping, _) => Why::Stopping,
    }
}

/// The connection to the shim. It is a socket of packets; what is used of its type here is only that it can be waited
/// for.
pub(super) struct Lifeline(UnixStream);

impl Lifeline {
    async fn connect(path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => return Ok(Self(UnixStream::from_std(StdUnixStream::from(socket))?)),
                // Its queue is full.
                Err(Errno::AGAIN) => sleep(BREATHER).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn say(&self, request: &Request) -> io::Result<()> {
        rustix::net::send(&self.0, &request.encode(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// What the shim says next, and the pipes that come with it. `None`: it closed the connection.
    async fn hear(&self) -> io::Result<Option<(Report, Option<[OwnedFd; 2]>)>> {
        loop {
            self.0.readable().await?;
            match self.0.try_io(Interest::READABLE, || receive(&self.0)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                heard => return heard,
            }
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<Option<(Report, Option<[OwnedFd; 2]>)>> {
    let mut packet = [0; MAX_PACKET + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?
    .bytes;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if length == 0 {
        return Ok(None);
    }
    let report = Report::decode(&packet[..length]).map_err(io::Error::other)?;
    Ok(Some((report, descriptors.try_into().ok())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_become_reasons() {
        let words = || "cannot start /x: no".to_owned();
        for (reason, errno, expected) in [
            (Refusal::NotStarted, 2, Why::NotFound(words())),
            (Refusal::NotStarted, 13, Why::NotExecutable(words())),
            (Refusal::NotStarted, 8, Why::NotExecutable(words())),
            (Refusal::NotStarted, 12, Why::NotStarted(words())),
            (Refusal::NotStarted, -7, Why::NotStarted(words())),
            (Refusal::Taken, 0, Why::NotStarted(words())),
            (Refusal::Stopping, 0, Why::Stopping),
        ] {
            assert_eq!(refused(reason, errno, words()), expected);
        }
    }

    #[test]
    fn ends_become_reasons() {
        for (outcome, cause, expected) in [
            (Outcome::Exited(3), Cause::Own, Why::Exited(3)),
            (Outcome::Killed(9), Cause::Own, Why::Killed(9)),
            (Outcome::Killed(15), Cause::Asked, Why::Asked),
            (Outcome::Killed(15), Cause::Flood, Why::StderrFlood),
            (Outcome::Exited(0), Cause::Stopping, Why::Stopping),
        ] {
            assert_eq!(why(&Ended { outcome, cause, stderr: Vec::new() }), expected);
        }
    }
}
