//! Several pods of one server over stdio: in each a sidecar, and the real shim with its processes.

use longshore_sidecar_config::Config;
use rustix::process::Signal;

use super::config::callers;
use super::replicas::{Network, knows, with_peers};
use super::shim::settled;
use super::{Files, Shim, Sidecar};

/// One pod.
pub(crate) struct Pod {
    pub(crate) sidecar: Sidecar,
    pub(crate) shim: Shim,
}

impl Pod {
    /// Starts so many of them with processes of this command, and waits until they know each other. Alice and Bob have
    /// keys.
    pub(crate) fn start(
        network: &Network,
        config: &Config,
        command: &[impl AsRef<str>],
        count: u8,
    ) -> Vec<Self> {
        network.list(&(1..=count).collect::<Vec<_>>());
        let start = |number| {
            let files = Files::new();
            files.write_with_keys(&with_peers(config), &callers());
            let shim = Shim::start(&files, command);
            Self { sidecar: network.start_again(number, &format!("pod-{number}"), files), shim }
        };
        let pods: Vec<Self> = (1..=count).map(start).collect();
        let ready = |pod: Self| Self { sidecar: pod.sidecar.ready(), ..pod };
        let pods: Vec<Self> = pods.into_iter().map(ready).collect();
        for pod in &pods {
            knows(&pod.sidecar, usize::from(count) - 1);
            settled(&pod.shim, &pod.sidecar, config);
        }
        pods
    }

    /// All its processes die at once.
    pub(crate) fn dies(&mut self) {
        self.sidecar.signal(Signal::KILL);
        self.shim.kill();
    }
}
