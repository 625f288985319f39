//! What `longshore local` prints. Nobody has to read it.

use std::io;
use std::time::{Duration, Instant};

use longshore_sidecar::output::Output;

/// How long the last words may take.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// While so much waits, more is lost: as much as a process of a server may say at once.
const ROOM: usize = 1 << 20;

/// Standard output.
pub(crate) static STDOUT: Output = Output::new("stdout", ROOM, || Box::new(io::stdout()), lost);
/// Standard error.
pub(crate) static STDERR: Output = Output::new("stderr", ROOM, || Box::new(io::stderr()), lost);

/// Waits a moment until all is written.
pub(crate) fn flush() {
    let until = Instant::now() + LAST_WORDS;
    for output in [&STDOUT, &STDERR] {
        output.flush(until);
    }
}

fn lost(lines: u64) -> String {
    format!("longshore: {lines} lines are lost here: nobody read in time")
}
