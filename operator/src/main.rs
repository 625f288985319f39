//! longshore
fn main() {}
