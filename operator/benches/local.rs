//! How long a newcomer waits: from the start of `longshore local` to the line that says that the example serves.
//!
//! `cargo bench -p longshore --bench local`; `LONGSHORE=path` measures another program.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a measurement speaks by printing, and by failing"
)]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 30;

fn main() {
    let program = std::env::var("LONGSHORE").unwrap_or_else(|_| env!("CARGO_BIN_EXE_longshore").to_owned());
    let size = std::fs::metadata(&program).expect("the program").len();
    let mut times: Vec<Duration> = (0..ROUNDS).map(|_| until_it_serves(&program)).collect();
    times.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    println!("program: {program}, {:.1} MB", size as f64 / 1e6);
    println!(
        "`longshore local` started to the example serving: median {:.1} ms, slowest of {ROUNDS} {:.1} ms",
        millis(times[ROUNDS / 2]),
        millis(times[ROUNDS - 1]),
    );
}

fn until_it_serves(program: &str) -> Duration {
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(["local", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let took = began.elapsed();
    assert!(line.starts_with("{\"catalog\""), "{line}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
    assert!(child.wait().expect("its end").success());
    took
}
