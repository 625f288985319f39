//! The sidecar's program.
fn main() {}
