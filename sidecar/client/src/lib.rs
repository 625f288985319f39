//! Reads what sidecars know of their servers: the client's side of [`longshore_sidecar_config::inventory`].
//!
//! For every sidecar that its user names ([`Inventories::track`]) a long poll of the inventory runs: the request waits
//! at the sidecar until something changes, so a change is known within milliseconds and a settled cluster costs one
//! request a pod and half a minute. What came last is kept as the user's own type, which reads from the JSON as much
//! of an [`Inventory`](longshore_sidecar_config::inventory::Inventory) as it wants; when it changes, the server that
//! the sidecar belongs to is named on the stream of [`Changes`].
//!
//! Nothing is ever asked but the addresses that the user gave. What answers there may be anything, so answers are
//! bounded in size, in number at a time, and in how often they are read ([`Bounds`]).
//!
//! All polls run inside the one future [`Poller::run`]: no task can end unseen.

mod address;
mod bounds;
mod inventories;
mod poll;
mod request;
mod token;

pub use address::AdminAddress;
pub use bounds::Bounds;
pub use inventories::{
    Changes, Inventories, Observation, PodUid, Poller, Read, inventories, inventories_with,
};
pub use poll::jittered;
pub use request::ANSWERED;
pub use token::TokenFile;
