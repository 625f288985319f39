//! Tests of the crate from outside.

mod capsule;
mod simulation;
