//! `longshore local`: the servers of manifests on this machine, without a cluster.
//!
//! It is made of the parts of the cluster: the operator's validation and the configuration that it builds, the sidecar,
//! the shim, the catalog. What is its own:
//!
//! * [`manifests`] are read from files, or are the [`builtin`] one;
//! * [`plan`] says what is to run: which [`program`], in which [`environment`], with which [`keys`]; what is
//!   [`cluster_only`], and where [`access`] is nobody's, is said;
//! * [`running`] is kept to that: a [`process`] under its [`guard`], a [`sidecar`] before each, whose [`files`] are in a
//!   folder of the run's own, and the [`catalog`] of all;
//! * [`report`] says what there is, and [`output`] is how that gets out.

mod access;
mod builtin;
mod catalog;
mod cluster_only;
mod environment;
mod files;
pub(crate) mod guard;
mod keys;
mod manifests;
pub(crate) mod output;
mod plan;
mod process;
mod program;
mod report;
mod running;
mod sidecar;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use longshore_crds::McpServer;
use longshore_sidecar::AuditLog;
use longshore_sidecar::log::sentence;
use longshore_sidecar_config::inventory::Inventory;
use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval};

use manifests::Reader;
use report::Report;
use running::Local;

/// How often it is looked whether files have changed. A change is taken up when nothing has changed for as long.
const LOOK: Duration = Duration::from_millis(250);
/// It is taken up all the same when files have gone on changing for so long: a server may keep what it knows beside its
/// manifest.
const RESTLESS: Duration = Duration::from_secs(2);
/// Whoever executes this executes the program that it is itself.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The exit code for a wrong command line, and for manifests that cannot be used at the start.
const USAGE: u8 = 2;

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Files and folders with manifests. None: the example.
    pub paths: Vec<PathBuf>,
    /// The first server's port. `None`: whatever is free from the usual one on.
    pub port: Option<u16>,
    /// One line of JSON instead of words.
    pub json: bool,
    /// The key to show for servers whose Secret holds hashes.
    pub key: Option<String>,
    /// Where the sidecars write a line for each request.
    pub audit: AuditLog,
}

/// A server, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Why none of it can go on.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// There is no room for the sidecars' files.
    #[error(
        "cannot write the sidecars' files: set TMPDIR to a folder that can be written (in a container: --tmpfs /tmp)"
    )]
    Files(#[source] io::Error),
    /// A port that was asked for is taken.
    #[error("port {port} is taken: choose another with --port, or leave it out to take whatever is free")]
    PortTaken {
        /// Which.
        port: u16,
    },
    /// A sidecar cannot listen.
    #[error(transparent)]
    Bind(#[from] longshore_sidecar::BindError),
    /// A thread could not be made.
    #[error("cannot start a sidecar's thread")]
    Thread {
        /// Why.
        source: io::Error,
    },
    /// A sidecar ended by itself.
    #[error("the sidecar of {id} ended")]
    Sidecar {
        /// Whose.
        id: ServerId,
        /// Why.
        source: Box<longshore_sidecar::RunError>,
    },
    /// The catalog cannot listen, or no longer.
    #[error("the catalog cannot be served")]
    Catalog(#[source] io::Error),
    /// The catalog's index broke.
    #[error(transparent)]
    Index(#[from] longshore_catalog::IndexError),
    /// The catalog's metrics contradict each other.
    #[error("cannot register the catalog's metrics")]
    Metrics(#[from] prometheus::Error),
    /// A sidecar's inventory is none.
    #[error("an inventory cannot be read")]
    Inventory(#[source] serde_json::Error),
    /// No key can be made.
    #[error(transparent)]
    NoRandomness(#[from] crate::api_keys::NoRandomness),
    /// The manifest of the example is wrong.
    #[error("the example's manifest cannot be read")]
    Builtin(#[source] serde_json::Error),
}

/// What happens while it runs.
enum Event {
    /// A sidecar knows something new of its server.
    Inventory { id: ServerId, run: u64, inventory: Box<Inventory> },
    /// A server that listens at a port was started.
    Started { id: ServerId, run: u64 },
    /// A server's process ended, or could not be started, also because something else has its port.
    Process { id: ServerId, run: u64, message: String, port_taken: bool },
    /// A server that was to end has ended, with its sidecar.
    Ended { run: u64 },
    /// A sidecar ended by itself.
    SidecarFailed { id: ServerId, error: Box<longshore_sidecar::RunError> },
}

/// Serves until `stop` is done, then ends everything that it started. When `stop` is done once more, that is not waited
/// for: what is left ends by itself, since nobody holds its pipes any longer.
pub(crate) async fn run(options: Options, mut stop: impl AsyncFnMut()) -> Result<ExitCode, Error> {
    let report = if options.json { Report::Json } else { Report::People };
    let mut reader = Reader::new(options.paths.clone());
    // Before it is read, so that a change meanwhile is one.
    let mut seen = reader.fingerprint();
    let documents = if options.paths.is_empty() {
        builtin::documents()?
    } else {
        let (documents, problems) = reader.read();
        if !problems.is_empty() {
            problems.iter().for_each(|problem| Report::Json.line(&sentence(problem)));
            return Ok(ExitCode::from(USAGE));
        }
        documents
    };
    let (mut local, indexer) = Local::new(options, report)?;
    let catalog = match local.start(&documents).await? {
        Ok(catalog) => catalog,
        Err(refused) => {
            refused.iter().for_each(|line| Report::Json.line(line));
            return Ok(ExitCode::from(USAGE));
        }
    };
    let serving = local.serve_catalog(catalog);
    let indexing = catalog::index(indexer);
    tokio::pin!(serving, indexing);
    let mut over = async || {
        tokio::select! {
            () = stop() => Ok(()),
            ended = &mut serving => ended.map_err(Error::Catalog),
            ended = &mut indexing => ended.map(|never| match never {}).map_err(Error::from),
        }
    };
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changing: Option<Instant> = None;
    let outcome = loop {
        tokio::select! {
            outcome = over() => break outcome,
            event = local.next() => if let Err(error) = local.hear(event) {
                break Err(error);
            },
            _ = look.tick() => {
                let now = reader.fingerprint();
                let is_still = now == seen;
                if !is_still {
                    seen = now;
                    changing.get_or_insert_with(Instant::now);
                }
                if changing.take_if(|since| is_still || since.elapsed() >= RESTLESS).is_some() {
                    let (documents, problems) = reader.read();
                    for problem in &problems {
                        local.say(&format!("{}; what was there before goes on", sentence(problem)));
                    }
                    if documents.servers.is_empty() {
                        continue;
                    }
                    if let Err(error) = local.update(&documents) {
                        break Err(error);
                    }
                }
            }
        }
    };
    tokio::select! {
        () = local.end() => {}
        () = stop() => {}
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Where clients connect to a sidecar.
fn url(address: SocketAddr) -> String {
    format!("http://{address}/mcp")
}

// === impl ServerId ===

impl ServerId {
    /// Of this manifest.
    pub(crate) fn of(manifest: &McpServer) -> Self {
        let metadata = &manifest.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
