//! The files that an operator would write.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_sidecar_config::{
    AccessRule, ApiKey, Auth, CONTRACT_VERSION, Config, InventoryAccess, Isolation, Keys, Limits, LogLevel,
    OnOwnerLoss, Processes, Resume, ServerIdentity, SessionKey, Sessions, ToolFilter, Upstream, paths,
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
        protocol: None,
        keys_digest: String::new(),
        auth: Auth::None,
        access: vec![rule("all", &["*"], &["*"], &["*"])],
        tools: ToolFilter::default(),
        limits: Limits { request_bytes: 4 << 20, request_timeout_ms: 60_000, processes: None },
        sessions: Sessions {
            idle_timeout_ms: 30 * 60 * 1000,
            max_age_ms: 24 * 60 * 60 * 1000,
            total: 10_000,
            per_principal: 10_000,
            streams: 16,
            on_owner_loss: OnOwnerLoss::NotFound,
            resume: Resume { max_bytes: 1 << 20, ttl_ms: 5 * 60 * 1000 },
            seal_with: 1,
        },
        peers: None,
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

/// The same with sessions that end when nobody uses them for so long.
pub(crate) fn idle(mut config: Config, milliseconds: u64) -> Config {
    config.sessions.idle_timeout_ms = milliseconds;
    config
}

/// The same with this for sessions that are lost with their server or their replica.
pub(crate) fn on_loss(mut config: Config, what: OnOwnerLoss) -> Config {
    config.sessions.on_owner_loss = what;
    config
}

/// So many processes, each of them of one session.
pub(crate) fn processes(total: u32, per_principal: u32) -> Processes {
    Processes {
        isolation: Isolation::Session,
        total,
        per_principal,
        warm: 0,
        queue_ms: 0,
        idle_ms: 60_000,
        max_age_ms: None,
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
    Keys { keys: keys.iter().map(key).collect(), sessions: vec![session_key(1)] }
}

/// Alice's key, as a client shows it.
pub(crate) const ALICE: Option<&str> = Some("key-a");

/// The keys of Alice and of Bob.
pub(crate) fn callers() -> Keys {
    keys(&[("alice", "key-a"), ("bob", "key-b")])
}

/// The key of this number that seals sessions.
pub(crate) fn session_key(id: u8) -> SessionKey {
    SessionKey { id, secret: hex(&[id]) }
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

    /// The port of the server in the configuration; 0 if there is none, or it has none.
    pub(crate) fn server_port(&self) -> u16 {
        let text = std::fs::read(self.path("config").join(paths::CONFIG_FILE)).unwrap_or_default();
        match serde_json::from_slice::<Config>(&text).map(|config| config.upstream) {
            Ok(Upstream::StreamableHttp { port, .. } | Upstream::Sse { port, .. }) => port,
            _ => 0,
        }
    }

    /// Where a sidecar (`--cgroups-dir`) finds that its container may have so many bytes of memory.
    pub(crate) fn container(&self, memory: u64) -> String {
        let cgroups = self.path("cgroups");
        std::fs::create_dir(&cgroups).expect("a directory");
        std::fs::write(cgroups.join("memory.max"), format!("{memory}\n")).expect("a file");
        cgroups.to_string_lossy().into_owned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Writes a configuration, and no API keys.
    pub(crate) fn write(&self, config: &Config) -> String {
        self.write_both(config.clone(), &keys(&[]))
    }

    /// Writes a configuration that asks for keys, and the keys.
    pub(crate) fn write_with_keys(&self, config: &Config, keys: &Keys) -> String {
        self.write_both(Config { auth: Auth::ApiKeys {}, ..config.clone() }, keys)
    }

    /// The digest of the keys that are there.
    pub(crate) fn keys_digest(&self) -> String {
        let bytes = std::fs::read(self.path("keys").join(paths::KEYS_FILE)).expect("keys");
        format!("sha256:{}", hex(&bytes))
    }

    /// Writes both files; the keys come second, as they may.
    fn write_both(&self, mut config: Config, keys: &Keys) -> String {
        let keys = serde_json::to_vec(keys).expect("JSON");
        config.keys_digest = format!("sha256:{}", hex(&keys));
        let config = serde_json::to_vec(&config).expect("JSON");
        let digest = self.write_raw("config", paths::CONFIG_FILE, &config);
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
