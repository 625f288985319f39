//! Longshore on a real node: installed with its chart from this checkout, in front of servers that others wrote, used
//! by clients that others wrote.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation is how a test speaks"
)]

mod catalog;
mod chart;
mod failing;
mod faults;
mod harness;
mod outages;
mod policies;
mod refused;
mod rollout;
mod served;
mod server;
mod sessions;
mod stdio;

use std::io::Write as _;

use longshore_e2e::cluster::{Cluster, Shape};
use longshore_e2e::longshore;
use longshore_e2e::testing::Stage;

/// The node that the tests share, with Longshore installed.
static STAGE: Stage = Stage::prepared(Shape::Node, install);

/// Whether a test may have a node of its own, as where all others are on a cluster that was there already. Says so where
/// it may not.
fn may_start_a_node() -> bool {
    let may = Cluster::may_start(Shape::Node);
    if !may {
        left_out("a node of its own needs root");
    }
    may
}

/// Whether tests may kill what runs on the cluster's nodes. Says so where they may not.
fn may_kill() -> bool {
    let may = STAGE.cluster().spec().is_some();
    if !may {
        left_out("the processes of this cluster's nodes are out of reach");
    }
    may
}

/// Says that this test shows nothing here. What a test that passes prints is not shown, but for what goes past its harness.
fn left_out(reason: &str) {
    let thread = std::thread::current();
    // Whoever does not listen is not told.
    let _ = writeln!(std::io::stderr(), "left out: {}: {reason}", thread.name().unwrap_or_default());
}

fn install(cluster: &Cluster) -> Result<(), String> {
    longshore::install(cluster).map_err(|error| error.to_string())
}
