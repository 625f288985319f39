//! Brings up real Kubernetes clusters, and tests all of Longshore on them from outside.
//!
//! * [`cluster`]: etcd and kube-apiserver alone, or a whole node with a kubelet; supervised, several at once, gone
//!   without a trace when whoever started them is gone;
//! * [`images`]: Longshore's images from this checkout, and images of servers that others wrote;
//! * [`peers`]: servers and clients of others, as programs on this machine;
//! * [`load`]: many clients at once, who notice everything that goes wrong;
//! * [`mcp_client`]: a client that shows every status, header and message;
//! * [`rest`]: a plain HTTP request, for the catalog's API;
//! * [`longshore`]: Longshore on a cluster, installed with Helm as a stranger would;
//! * [`testing`]: what a test is written with: a namespace of its own, waiting, and a report when it fails.
//!
//! `longshore-cluster` is the same for people: a cluster that stays until it is told to go.
//!
//! | variable | means |
//! |---|---|
//! | `LONGSHORE_E2E_CLUSTER` | use the cluster of this name that `longshore-cluster up` left running (`make cluster`: `dev`) |
//! | `LONGSHORE_E2E_KUBECONFIG` | use the cluster of this kubeconfig, that somebody else runs |
//! | `LONGSHORE_E2E_LOAD` | with it: the command that brings an image archive into that cluster; the archive's path is appended |
//! | `LONGSHORE_E2E_IMAGES` | a file with what `make images` printed: use those images of Longshore, build none |
//! | `LONGSHORE_E2E_POLICIES` | have the network of a node enforce NetworkPolicies (`make soak`) |
//! | `LONGSHORE_E2E_SOAK` | run tests of sessions in their full form, and append what came of it to this file (`make soak`) |
//! | `LONGSHORE_E2E_KEEP` | leave the namespaces of failed tests where they are; a cluster that ends with the tests takes them along |
//! | `LONGSHORE_CACHE` | where programs, images and running clusters are kept (`~/.cache/longshore`) |

pub mod cluster;
pub mod images;
pub mod load;
pub mod longshore;
pub mod mcp_client;
pub mod peers;
pub mod rest;
pub mod testing;

mod checkout;

/// `longshore-cluster`: does what the command line says.
#[must_use]
pub fn main() -> std::process::ExitCode {
    cluster::command_line::main()
}
