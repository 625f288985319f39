//! Tests against a real API server without a node: nothing in here needs root.

mod admission;
mod chart;
mod harness;
mod operator;
