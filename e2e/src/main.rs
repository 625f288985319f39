//! `longshore-cluster`: a Kubernetes cluster on this machine, with Longshore installed from this checkout.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore_e2e::main()
}
