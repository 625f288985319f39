//! The files that an operator would write.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_sidecar_config::{
    AccessRule, ApiKey, Auth, CONTRACT_VERSION, Config, InventoryAccess, Keys, Limits, LogLevel,
    ServerIdentity, ToolFilter, Upstream, paths,
};
use sha2::{Digest, Sha256};

/// A configuration in front of a server at this port: everybody may call everything.
pub(crate) fn config(port: u16) -> Config {
    Config {
        version: CONTRACT_VERSION,
        server: ServerIdentity {
            namespace: "tools".to_owned(),
            name: "peer".to_owned(),
            uid: "u-1".to_owned(),
        },
        generation: 1,
        upstream: Upstream::StreamableHttp { port, path: "/mcp".to_owned() },
        auth: Auth::None,
        access: vec![rule("all", &["*"], &["*"], &["*"])],
        tools: ToolFilter::default(),
        limits: Limits { request_bytes: 4 << 20, request_timeout_ms: 20_000, processes: None },
        hosts: vec!["peer.tools.svc".to_owned()],
        allowed_origins: vec!["https://app.example".to_owned()],
        inventory: InventoryAccess {
            issuer: "https://cluster.example".to_owned(),
            subjects: vec!["system:serviceaccount:longshore:operator".to_owned()],
            jwks: serde_json::json!({"keys": []}),
        },
        log_level: LogLevel::Debug,
    }
}

/// A rule for everybody.
pub(crate) fn rule(name: &str, tools: &[&str], prompts: &[&str], resources: &[&str]) -> AccessRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    AccessRule {
        name: name.to_owned(),
        principals: None,
        tools: owned(tools),
        prompts: owned(prompts),
        resources: owned(resources),
    }
}

/// Keys as (principal, key).
pub(crate) fn keys(keys: &[(&str, &str)]) -> Keys {
    let key = |(principal, key): &(&str, &str)| ApiKey {
        principal: (*principal).to_owned(),
        sha256: hex(key.as_bytes()),
    };
    Keys { keys: keys.iter().map(key).collect() }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The two directories, mounted as the kubelet mounts them: the files are behind a symbolic link that is renamed.
pub(crate) struct Files {
    root: tempfile::TempDir,
    version: AtomicU32,
}

impl Files {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        for directory in ["config", "keys", "sockets", "program"] {
            std::fs::create_dir(root.path().join(directory)).expect("a directory");
        }
        Self { root, version: AtomicU32::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a configuration without keys.
    pub(crate) fn write(&self, config: &Config) -> String {
        self.write_raw("config", paths::CONFIG_FILE, &serde_json::to_vec(config).expect("JSON"))
    }

    /// Writes a configuration and its keys; the keys come second, as they may.
    pub(crate) fn write_with_keys(&self, config: &Config, keys: &Keys) -> String {
        let keys = serde_json::to_vec(keys).expect("JSON");
        let mut config = config.clone();
        config.auth = Auth::ApiKeys { keys_digest: format!("sha256:{}", hex(&keys)) };
        let digest = self.write(&config);
        self.write_raw("keys", paths::KEYS_FILE, &keys);
        digest
    }

    /// Puts bytes where the file is, in the kubelet's way, and gives their digest.
    pub(crate) fn write_raw(&self, directory: &str, file: &str, bytes: &[u8]) -> String {
        let directory = self.path(directory);
        let data = format!("..data_{}", self.version.fetch_add(1, Ordering::Relaxed));
        std::fs::create_dir(directory.join(&data)).expect("a directory");
        std::fs::write(directory.join(&data).join(file), bytes).expect("a file");
        link(&data, &directory.join("..data_tmp"));
        std::fs::rename(directory.join("..data_tmp"), directory.join("..data")).expect("a rename");
        if !directory.join(file).exists() {
            link(&format!("..data/{file}"), &directory.join(file));
        }
        format!("sha256:{}", hex(bytes))
    }
}

fn link(target: &str, at: &Path) {
    std::os::unix::fs::symlink(target, at).expect("a symbolic link");
}
