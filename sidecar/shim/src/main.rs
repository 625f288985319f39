//! The program; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore_shim::main(std::env::args_os().skip(1))
}
