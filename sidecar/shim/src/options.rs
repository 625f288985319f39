//! The arguments of `shim [OPTION VALUE]... -- COMMAND [ARGUMENT]...`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::paths;

/// How many processes may run, where nobody says. Each costs the shim four descriptors, of the 1024 that many runtimes
/// give, and the sidecar has a narrower limit of its own.
const MAX_PROCESSES: usize = 200;

/// How the shim serves.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it listens.
    pub socket: PathBuf,
    /// The user whose connections are served; without one the shim's own.
    pub peer: Option<u32>,
    /// How many processes may run at a time.
    pub max_processes: usize,
    /// What it starts for each connection, looked up in `PATH` where it has no slash.
    pub program: OsString,
    /// With these arguments.
    pub arguments: Vec<OsString>,
}

impl Options {
    /// Reads them, the first of which has been read already. `None`: they are not as they must be.
    pub fn parse(first: OsString, mut rest: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut socket = [paths::SOCKETS_DIR, paths::STDIO_SOCKET].iter().collect();
        let mut peer = None;
        let mut max_processes = MAX_PROCESSES;
        let mut option = first;
        while option != "--" {
            let value = rest.next()?;
            match option.to_str()? {
                "--socket" => socket = PathBuf::from(value),
                "--peer-uid" => peer = Some(value.to_str()?.parse().ok()?),
                "--max-processes" => max_processes = value.to_str()?.parse().ok()?,
                _ => return None,
            }
            option = rest.next()?;
        }
        let program = rest.next()?;
        Some(Self { socket, peer, max_processes, program, arguments: rest.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Options> {
        let mut words = line.split(' ').map(OsString::from);
        Options::parse(words.next()?, words)
    }

    #[test]
    fn reads_its_own_and_leaves_the_commands() {
        let options = parse("--peer-uid 7 --socket /s --max-processes 3 -- run -- --peer-uid").unwrap();
        assert_eq!(
            options,
            Options {
                socket: PathBuf::from("/s"),
                peer: Some(7),
                max_processes: 3,
                program: OsString::from("run"),
                arguments: vec![OsString::from("--"), OsString::from("--peer-uid")],
            }
        );
        let least = parse("-- run").unwrap();
        assert_eq!((least.peer, least.socket.to_str()), (None, Some("/run/longshore/sockets/stdio.sock")));
    }

    #[test]
    fn what_is_not_as_it_must_be_is_refused() {
        for line in ["--", "run", "--peer-uid", "--peer-uid -- run", "--peer-uid x -- run", "--what 1 -- run"]
        {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
