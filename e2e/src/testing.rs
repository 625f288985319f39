//! What the tests of Longshore are written with.
//!
//! ```no_run
//! use longshore_e2e::cluster::Shape;
//! use longshore_e2e::testing::Stage;
//!
//! static STAGE: Stage = Stage::new(Shape::Node);
//!
//! #[test]
//! fn a_config_map_can_be_read_back() {
//!     STAGE.with_namespace(async |namespace| {
//!         namespace.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: box}, data: {key: value}}").await;
//!         let boxes = namespace.api::<k8s_openapi::api::core::v1::ConfigMap>();
//!         namespace.wait(&boxes, "box", "to hold its key", |found| found.data.is_some()).await;
//!     });
//! }
//! ```
//!
//! Everything in here panics where it cannot do its work, with all that is known about why: a failed expectation is how
//! a test speaks.
#![expect(clippy::panic, reason = "see above")]

mod eventually;
mod form;
mod kill;
mod namespace;
mod report;
mod room;
mod stage;
mod wait;

pub use eventually::eventually;
pub use form::{SOAK, form};
pub use kill::{
    Partition, container_memory, container_processes, end_container, exhaust_memory, kill_container, kill_pod,
};
pub use namespace::Namespace;
pub use room::{Kind, Room};
pub use stage::Stage;
pub use wait::PATIENCE;
