//! Tests on a real node with Longshore installed from this checkout, as a user would have it. They need root.
//!
//! All tests share [`STAGE`] and run at once, each in a namespace of its own. What disturbs others (killing a component
//! of the cluster, say) needs a cluster of its own.

mod harness;

use longshore_e2e::cluster::Shape;
use longshore_e2e::longshore;
use longshore_e2e::testing::Stage;

/// The node that all tests of this binary share.
static STAGE: Stage =
    Stage::prepared(Shape::Node, |cluster| longshore::install(cluster).map_err(|error| error.to_string()));
