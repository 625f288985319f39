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
mod refused;
mod rollout;
mod served;
mod server;
mod sessions;
mod stdio;

use longshore_e2e::cluster::{Cluster, Shape};
use longshore_e2e::longshore;
use longshore_e2e::testing::Stage;

/// The node that the tests share, with Longshore installed.
static STAGE: Stage = Stage::prepared(Shape::Node, install);

/// Whether a test may have a node of its own, as where all others are on a cluster that was there already. Says so where
/// it may not.
#[expect(clippy::print_stdout, reason = "this is how a test speaks")]
fn may_start_a_node() -> bool {
    let may = Cluster::may_start(Shape::Node);
    if !may {
        println!("left out: a node of its own needs root");
    }
    may
}

fn install(cluster: &Cluster) -> Result<(), String> {
    longshore::install(cluster).map_err(|error| error.to_string())
}
