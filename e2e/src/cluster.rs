//! Real Kubernetes clusters, on this machine.
//!
//! A [`Cluster`] is kept by a process of its own, the keeper, which is started from the binary `longshore-cluster`:
//!
//! ```text
//! test ── lifeline ── keeper ─┬─ etcd, kube-apiserver, …        Shape::Api, Shape::ControlPlane: on a loopback address
//!                             └─ supervisor ─┬─ etcd, …          Shape::Node: in its own network, mount and
//!                                            └─ kubelet, …       process namespaces, with 10.10.0.1 as the node
//! ```
//!
//! When the test's process ends, however it ends, the lifeline closes, and the keeper ends the cluster and clears away
//! its folder and cgroups. If the keeper is killed too, the kernel ends the cluster, and the next start sweeps up what
//! is left. No packet of a node can leave the machine: no route leads out of its network.

mod api_server;
mod certificates;
mod cgroups;
mod client;
mod component;
mod containerd;
mod controllers;
mod crew;
mod direct;
mod dns;
mod etcd;
mod keeper;
mod kubeconfig;
mod kubelet;
mod messages;
mod namespaces;
mod network;
mod policies;
mod poll;
mod process;
mod programs;
mod proxy;
mod registry;
mod scheduler;
mod spec;
mod supervisor;

pub(crate) mod command_line;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub use certificates::CertificateError;
pub use client::ClientError;
pub use component::Component;
pub use direct::direct;
pub use messages::{Failure, LogTail};
pub use policies::enforces_policies;
pub use programs::Programs;
pub use registry::RegistryError;
pub use spec::{
    API_SERVICE_ADDRESS, DNS_SERVICE_ADDRESS, NODE_ADDRESS, NODE_NAME, POD_RANGE, SERVICE_RANGE, Shape, Spec,
};

pub use crate::checkout::ScriptError;
use crate::images::Image;
use process::Keeper;
use programs::Scope;
use spec::Plan;
use supervisor::Lifetime;

/// What a node takes with the images of all tests in it, in bytes, and some to spare.
const DISK: u64 = 2 << 30;

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A node needs rights that this process does not have.
    #[error("a node needs root")]
    NotRoot,
    /// Its images would not fit.
    #[error(
        "a node needs {} MiB, and the disk of {} has {} left: make room (`cargo clean`), or have LONGSHORE_CACHE name a \
         folder on another disk", DISK >> 20, folder.display(), free >> 20
    )]
    Disk {
        /// Where clusters are kept.
        folder: PathBuf,
        /// How many bytes are free there.
        free: u64,
    },
    /// What a cluster is made of could not be installed.
    #[error("cannot install the cluster's programs: {0}")]
    Programs(#[from] ScriptError),
    /// The keeper could not be started.
    #[error("cannot start longshore-cluster, which keeps the cluster: {0}")]
    Keeper(io::Error),
    /// It came up and failed, or did not come up.
    #[error("the cluster failed: {0}")]
    Failed(Failure),
}

/// Why something could not be done to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The cluster is not one of ours, and is not to be touched.
    #[error("this needs a cluster of our own; LONGSHORE_E2E_KUBECONFIG names another one")]
    NotOurs,
    /// It has failed.
    #[error("the cluster failed: {0}")]
    Failed(Failure),
    /// It could not be talked to.
    #[error("cannot talk to the cluster's keeper: {0}")]
    Keeper(#[from] io::Error),
    /// A program that was run for it failed.
    #[error("{command} failed with {status}: {stderr}")]
    Command {
        /// The command.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        stderr: String,
    },
}

/// A cluster that runs.
#[derive(Debug)]
pub struct Cluster {
    kubeconfig: PathBuf,
    own: Option<Own>,
}

/// What there is to know of a cluster of our own.
#[derive(Debug)]
struct Own {
    spec: Spec,
    /// `None` for one that somebody else keeps: `longshore-cluster up` has left it.
    keeper: Option<Arc<Keeper>>,
}

impl Cluster {
    /// Whether this process may start a cluster of this shape.
    #[must_use]
    pub fn may_start(shape: Shape) -> bool {
        shape != Shape::Node || nix::unistd::geteuid().is_root()
    }

    /// Starts a cluster that lives as long as this value, and not longer than this process. Returns when everything in
    /// it is ready, which takes seconds; the first time on a machine its programs are built, which takes minutes.
    pub fn start(shape: Shape) -> Result<Self, StartError> {
        let (spec, keeper) = Keeper::start(&plan(shape, None)?, Lifetime::Lifeline)?;
        Ok(Self { kubeconfig: spec.kubeconfig(), own: Some(Own { spec, keeper: Some(Arc::new(keeper)) }) })
    }

    /// Starts a cluster that outlives this process.
    pub(crate) fn start_detached(name: &str) -> Result<Self, StartError> {
        let plan = plan(Shape::Node, Some(name.to_owned()))?;
        let (spec, _) = Keeper::start(&plan, Lifetime::Detached)?;
        Ok(Self { kubeconfig: spec.kubeconfig(), own: Some(Own { spec, keeper: None }) })
    }

    /// The cluster of that name that `longshore-cluster up` has left running, if there is one.
    pub fn running(name: &str) -> io::Result<Option<Self>> {
        let spec = registry::find(name)?;
        Ok(spec.map(|spec| Self { kubeconfig: spec.kubeconfig(), own: Some(Own { spec, keeper: None }) }))
    }

    /// A cluster that somebody else runs.
    #[must_use]
    pub fn existing(kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, own: None }
    }

    /// The kubeconfig of an administrator. It works where the cluster's network is: see [`Cluster::block_on`].
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What is known of it, if it is one of our own.
    #[must_use]
    pub fn spec(&self) -> Option<&Spec> {
        self.own.as_ref().map(|own| &own.spec)
    }

    /// An administrator's client. It works where the cluster's network is: see [`Cluster::block_on`].
    pub async fn client(&self) -> Result<kube::Client, ClientError> {
        client::of(&self.kubeconfig).await
    }

    /// Runs `test` in the cluster's network, on a runtime of its own. Its threads can reach every address in the
    /// cluster, and no other: Services, pods, the node. (Names are looked up outside of it: for programs that need
    /// them there is [`Cluster::command`].)
    pub fn block_on<T: Send>(&self, test: impl AsyncFnOnce() -> T + Send) -> io::Result<T> {
        let network = self.first_process()?;
        std::thread::scope(|scope| {
            let name = std::thread::current().name().unwrap_or("cluster").to_owned();
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, move || {
                if let Some(process) = network {
                    namespaces::enter_network(process)?;
                }
                // The runtime's threads are made by this one, and inherit its network.
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
                Ok(runtime.block_on(test()))
            })?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that runs on the node: in its network, with its DNS, among its processes, `KUBECONFIG` set, and
    /// `kubectl`, `helm` and the rest first on the `PATH`. It shares the machine's files, and ends with the cluster.
    pub fn command(&self, program: impl AsRef<Path>) -> io::Result<Command> {
        let program = program.as_ref();
        let mut command = match self.first_process()? {
            Some(process) => namespaces::command(process, program)?,
            None if self.own.is_some() => direct(program),
            None => Command::new(program),
        };
        command.env("KUBECONFIG", &self.kubeconfig);
        if let Some(own) = &self.own {
            let mut path = own.spec.programs.folder().as_os_str().to_owned();
            path.push(":");
            path.push(std::env::var_os("PATH").unwrap_or_default());
            command.env("PATH", path);
            // kubectl would leave what it has found out of this cluster in the user's own folder.
            command.env("KUBECACHEDIR", own.spec.folder.join("kubectl"));
        }
        Ok(command)
    }

    /// The process whose namespaces the cluster lives in, where it has any of its own.
    fn first_process(&self) -> io::Result<Option<u32>> {
        match self.spec() {
            Some(spec) if spec.shape == Shape::Node => {
                let text = std::fs::read_to_string(spec.first_process_file())?;
                text.trim().parse().map(Some).map_err(io::Error::other)
            }
            _ => Ok(None),
        }
    }

    /// Brings images in, where they are not yet. Into a cluster of somebody else's that is done by the command
    /// `LONGSHORE_E2E_LOAD`, or by nobody.
    pub fn load<'a>(&self, images: impl IntoIterator<Item = &'a Image>) -> Result<(), ClusterError> {
        for image in images {
            match (&self.own, std::env::var("LONGSHORE_E2E_LOAD")) {
                (Some(own), _) => self.import(&own.spec, image)?,
                (None, Ok(load)) => {
                    let mut command = Command::new("sh");
                    command.args(["-c", &format!("{load} \"$0\"")]).arg(&image.archive);
                    run(command)?;
                }
                (None, Err(_)) => {}
            }
        }
        Ok(())
    }

    fn import(&self, spec: &Spec, image: &Image) -> Result<(), ClusterError> {
        // Unpacking takes seconds. An archive's name tells its content, so what is remembered is the name.
        let folder = spec.state("imported");
        std::fs::create_dir_all(&folder)?;
        let name = folder.join(image.archive.file_name().unwrap_or_default());
        let mut remembered = File::options().create(true).append(true).open(name)?;
        // Of two that bring in the same image at once, containerd refuses one.
        remembered.lock()?;
        if remembered.metadata()?.len() > 0 {
            return Ok(());
        }
        let import = containerd::import(&image.archive);
        let mut command = self.command(import.get_program())?;
        command.args(import.get_args());
        run(command)?;
        Ok(remembered.write_all(b"imported\n")?)
    }

    /// Gives an image that was brought in another name, under which pods find it too.
    pub fn tag(&self, image: &str, name: &str) -> Result<(), ClusterError> {
        self.spec().ok_or(ClusterError::NotOurs)?;
        let tag = containerd::tag(image, name);
        let mut command = self.command(tag.get_program())?;
        command.args(tag.get_args());
        run(command).map(drop)
    }

    /// Kills a component as `kill -9` would, and leaves it dead.
    pub async fn kill(&self, component: Component) -> Result<(), ClusterError> {
        self.order(messages::Order::Stop(component)).await
    }

    /// Starts a killed component again, and waits until it is ready.
    pub async fn revive(&self, component: Component) -> Result<(), ClusterError> {
        self.order(messages::Order::Start(component)).await
    }

    /// Keeps the components' logs when the cluster ends, and says where they will be.
    pub async fn keep_logs(&self) -> Result<PathBuf, ClusterError> {
        self.order(messages::Order::KeepLogs).await?;
        Ok(registry::kept_logs(self.spec().ok_or(ClusterError::NotOurs)?))
    }

    async fn order(&self, order: messages::Order) -> Result<(), ClusterError> {
        let keeper = self.own.as_ref().and_then(|own| own.keeper.clone()).ok_or(ClusterError::NotOurs)?;
        tokio::task::spawn_blocking(move || keeper.order(order)).await.map_err(io::Error::other)?
    }

    /// Why it failed, if it did since it came up.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.own.as_ref().and_then(|own| own.keeper.as_ref()).and_then(|keeper| keeper.failure())
    }
}

fn plan(shape: Shape, name: Option<String>) -> Result<Plan, StartError> {
    let scope = match shape {
        Shape::Api | Shape::ControlPlane => Scope::ControlPlane,
        Shape::Node if Cluster::may_start(shape) => Scope::Whole,
        Shape::Node => return Err(StartError::NotRoot),
    };
    let programs = Programs::install(scope)?;
    if shape == Shape::Node {
        let (folder, free) = registry::room().map_err(StartError::Keeper)?;
        if free < DISK {
            return Err(StartError::Disk { folder, free });
        }
    }
    let pause = match shape {
        Shape::Api | Shape::ControlPlane => None,
        Shape::Node => Some(programs.pause_image()?),
    };
    Ok(Plan { name, shape, programs, pause })
}

/// Runs a command to its end, and returns what it printed.
pub fn run(mut command: Command) -> Result<String, ClusterError> {
    let output = command.stdin(std::process::Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ClusterError::Command {
        command: show(&command),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A command as one would type it, without the environment that is set for it.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
