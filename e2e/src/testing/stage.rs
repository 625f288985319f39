//! The cluster that the tests of one binary share.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::OnceLock;

use futures::FutureExt as _;

use super::{Kind, Namespace, Room};
use crate::cluster::{Cluster, Shape};

/// A cluster that is started when the first test wants it, and shared by all: a `static` of the test binary.
pub struct Stage {
    shape: Shape,
    /// Whether a cluster of somebody else's will do.
    shared: bool,
    prepare: fn(&Cluster) -> Result<(), String>,
    cluster: OnceLock<Result<Cluster, String>>,
}

impl Stage {
    /// A cluster as it comes.
    #[must_use]
    pub const fn new(shape: Shape) -> Self {
        Self::prepared(shape, |_| Ok(()))
    }

    /// A cluster that is prepared once, before the first test sees it.
    #[must_use]
    pub const fn prepared(shape: Shape, prepare: fn(&Cluster) -> Result<(), String>) -> Self {
        Self { shape, shared: true, prepare, cluster: OnceLock::new() }
    }

    /// The same for tests that break the cluster, or Longshore as a whole: never a cluster of somebody else's.
    #[must_use]
    pub const fn to_break(shape: Shape, prepare: fn(&Cluster) -> Result<(), String>) -> Self {
        Self { shape, shared: false, prepare, cluster: OnceLock::new() }
    }

    /// The cluster. The first caller starts it, the others wait. It ends with this process.
    ///
    /// # Panics
    /// If it could not be started or prepared, for everyone who asks, with the end of the log that tells why.
    pub fn cluster(&self) -> &Cluster {
        match self.cluster.get_or_init(|| self.start()) {
            Ok(cluster) => cluster,
            Err(error) => panic!("{error}"),
        }
    }

    fn start(&self) -> Result<Cluster, String> {
        let cluster = match self.given()? {
            Some(cluster) => cluster,
            None => Cluster::start(self.shape).map_err(|error| error.to_string())?,
        };
        match (self.prepare)(&cluster) {
            Ok(()) => Ok(cluster),
            Err(error) => Err(match cluster.failure() {
                Some(failure) => format!("{error}\nthe cluster failed: {failure}"),
                None => error,
            }),
        }
    }

    /// The cluster that the environment names, where this stage may be on one that others use too.
    fn given(&self) -> Result<Option<Cluster>, String> {
        // On such a cluster Longshore is installed: no place for tests that run parts of it themselves.
        if !self.shared || self.shape != Shape::Node {
            return Ok(None);
        }
        if let Ok(name) = std::env::var("LONGSHORE_E2E_CLUSTER") {
            let running = Cluster::running(&name).map_err(|error| error.to_string())?;
            let missing = || format!("no cluster {name} is running; `make cluster` starts one named dev");
            return running.ok_or_else(missing).map(Some);
        }
        Ok(std::env::var_os("LONGSHORE_E2E_KUBECONFIG")
            .map(|kubeconfig| Cluster::existing(kubeconfig.into())))
    }

    /// Runs a test in a namespace of its own, in the cluster's network, once there is room for it. If the test fails, it is told what the
    /// namespace held; then the namespace is deleted, unless `LONGSHORE_E2E_KEEP` is set.
    ///
    /// # Panics
    /// If the test does.
    pub fn with_namespace(&self, test: impl AsyncFnOnce(&Namespace<'_>) + Send) {
        self.with_namespace_and_room(&Room::take(self.kind()), test);
    }

    /// The same for a test that takes far longer than others of its kind: it goes before all of them that wait.
    ///
    /// # Panics
    /// If the test does.
    pub fn with_namespace_first(&self, test: impl AsyncFnOnce(&Namespace<'_>) + Send) {
        self.with_namespace_and_room(&Room::take_first(self.kind()), test);
    }

    /// What a test there does to the machine, if it does not say so itself.
    fn kind(&self) -> Kind {
        match self.shape {
            Shape::Node if self.shared => Kind::Pods,
            Shape::Node => Kind::Cluster,
            Shape::Api | Shape::ControlPlane => Kind::Objects,
        }
    }

    /// The same for a test that was given its room already.
    ///
    /// # Panics
    /// If the test does.
    pub fn with_namespace_and_room(&self, _room: &Room, test: impl AsyncFnOnce(&Namespace<'_>) + Send) {
        let cluster = self.cluster();
        let outcome = cluster.block_on(async || {
            let namespace = Namespace::create(cluster).await;
            let outcome = AssertUnwindSafe(test(&namespace)).catch_unwind().await;
            if outcome.is_err() {
                namespace.report().await;
            }
            if outcome.is_ok() || std::env::var_os("LONGSHORE_E2E_KEEP").is_none() {
                namespace.delete().await;
            }
            outcome
        });
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => resume_unwind(panic),
            Err(error) => panic!("cannot enter the cluster's network: {error}"),
        }
    }
}
