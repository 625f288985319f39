//! The program with the fuzzer in it. `fuzz/run.sh` builds it so that the fuzzer sees which code an input runs, and
//! says by `LONGSHORE_FUZZ` which target it is for.
//!
//! Before the fuzzer begins, the kept inputs go to the directory `LONGSHORE_FUZZ_CORPUS`, which is where it reads.

#![no_main]
#![expect(clippy::expect_used, clippy::panic, reason = "a fuzzer speaks by failing")]
#![expect(unsafe_code, reason = "the fuzzer calls this program, by the names that it knows")]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use longshore_fuzz::{Target, corpus, explain, target};
use parking_lot::Mutex;

static TARGET: OnceLock<Target> = OnceLock::new();
static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn begin() {
    let name = std::env::var("LONGSHORE_FUZZ").expect("LONGSHORE_FUZZ names a target");
    let target = *TARGET.get_or_init(|| target(&name));
    // The fuzzer ends the process at a panic, so whatever is to be said is said first.
    let next = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        explain(target, &INPUT.lock());
        next(panic);
    }));
    if let Some(directory) = std::env::var_os("LONGSHORE_FUZZ_CORPUS") {
        for (at, input) in corpus::read(target).iter().enumerate() {
            let file = Path::new(&directory).join(format!("kept-{at}"));
            std::fs::write(&file, input).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        }
    }
}

fuzz_target!(init: begin(), |input: &[u8]| {
    let Some(target) = TARGET.get() else { return };
    input.clone_into(&mut INPUT.lock());
    target.run(input);
});
