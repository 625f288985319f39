//! The arguments of `shim [OPTION VALUE]... -- COMMAND [ARGUMENT]...`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use crate::paths;

/// How the shim serves. Processes get its own environment and its own working directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where it listens.
    pub socket: PathBuf,
    /// The user whose connections are served; without one the shim's own.
    pub peer: Option<u32>,
    /// Whether the end of its own stdin ends it, as SIGTERM does. The program that started it holds the other end of a
    /// pipe then, so that the shim never outlives it, however it ends.
    pub until_stdin_closes: bool,
    /// Where the kernel shows what its container may use.
    pub cgroups: PathBuf,
    /// What it starts for each connection, looked up in `PATH` where it has no slash.
    pub program: OsString,
    /// With these arguments.
    pub arguments: Vec<OsString>,
}

impl Options {
    /// Those of a shim that starts `program` and is told nothing else.
    pub fn new(program: OsString, arguments: Vec<OsString>) -> Self {
        Self {
            socket: [paths::SOCKETS_DIR, paths::STDIO_SOCKET].iter().collect(),
            peer: None,
            until_stdin_closes: false,
            cgroups: PathBuf::from("/sys/fs/cgroup"),
            program,
            arguments,
        }
    }

    /// Reads them, the first of which has been read already. `None`: they are not as they must be.
    pub fn parse(first: OsString, mut rest: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut options = Self::new(OsString::new(), Vec::new());
        let mut option = first;
        while option != "--" {
            match option.to_str()? {
                "--socket" => options.socket = PathBuf::from(rest.next()?),
                "--peer-uid" => options.peer = Some(number(rest.next()?)?),
                "--cgroups" => options.cgroups = PathBuf::from(rest.next()?),
                "--until-stdin-closes" => options.until_stdin_closes = true,
                _ => return None,
            }
            option = rest.next()?;
        }
        options.program = rest.next()?;
        options.arguments = rest.collect();
        Some(options)
    }
}

fn number<N: FromStr>(value: OsString) -> Option<N> {
    value.to_str()?.parse().ok()
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
        let options =
            parse("--peer-uid 7 --socket /s --until-stdin-closes --cgroups /c -- run -- --peer-uid").unwrap();
        assert_eq!(
            options,
            Options {
                socket: PathBuf::from("/s"),
                peer: Some(7),
                until_stdin_closes: true,
                cgroups: PathBuf::from("/c"),
                program: OsString::from("run"),
                arguments: vec![OsString::from("--"), OsString::from("--peer-uid")],
            }
        );
        let least = parse("-- run").unwrap();
        assert_eq!(least, Options::new(OsString::from("run"), Vec::new()));
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
