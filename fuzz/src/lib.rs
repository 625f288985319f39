//! Whatever reads what comes from outside, under fire.
//!
//! A target ([`TARGETS`]) is a function over bytes that fails if something does not hold which has to hold for every
//! input: nothing panics, nothing grows without bound, what is read agrees with a second reader, what is written is read
//! again, messages between equals keep their bytes, and ids are never taken for one another.
//!
//! `corpora/TARGET.txt` keeps inputs, one a line, as Rust writes bytes in a string: some by hand, some that the fuzzer
//! found new ways with, and each that ever failed. `cargo test` runs them all; `run.sh` goes on from them with libFuzzer,
//! which watches the code that it runs (`make test` for some seconds, `make soak` for long).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a target speaks by failing"
)]

pub mod corpus;
mod input;
mod targets;

pub use targets::TARGETS;

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    run: fn(&[u8]),
}

impl Target {
    /// Fails if something is wrong. Inputs with numbers and halves of characters that the second reader cannot hold are
    /// passed over: they are JSON, and pass as they were written.
    pub fn run(&self, input: &[u8]) {
        if !input::has_vast_number(input) && !input::has_half_character(input) {
            (self.run)(input);
        }
    }
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Target {
    let found = TARGETS.into_iter().find(|target| target.name == name);
    found.unwrap_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(" ");
        panic!("there is no target {name:?}; there are: {names}")
    })
}

/// Says, when a target fails, which input it was and how to see it again.
pub fn explain(target: Target, input: &[u8]) {
    let name = target.name;
    eprintln!("\n{name} failed. As a line of fuzz/corpora/{name}.txt:\n\n{}\n", corpus::line(input));
    eprintln!(
        "With that line in the file, `cargo test -p longshore-fuzz` fails in the same way. Keep it there."
    );
}
