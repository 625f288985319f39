//! The shim.
fn main() {}
