//! The volumes, and who mounts them.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, DownwardAPIProjection, DownwardAPIVolumeFile, EmptyDirVolumeSource, KeyToPath,
    ObjectFieldSelector, ProjectedVolumeSource, SecretProjection, ServiceAccountTokenProjection, Volume,
    VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use longshore_sidecar_config::Upstream;

use crate::mcp_server::build::config_map;
use crate::mcp_server::validate::ValidatedServer;

pub(super) const CONFIG_VOLUME: &str = "longshore-config";
pub(super) const PROGRAM_VOLUME: &str = "longshore-program";
pub(super) const SOCKETS_VOLUME: &str = "longshore-sockets";
pub(super) const TMP_VOLUME: &str = "longshore-tmp";
pub(super) const TOKEN_VOLUME: &str = "longshore-token";

/// Where programs look for temporary files, and for a home that they can write to.
pub(super) const TMP: &str = "/tmp";
/// Read-only for owner and group: the sidecar is in the group of the pod's files.
const GROUP_READABLE: i32 = 0o440;

/// Whether the server's container opens sockets of its own for the sidecar: that of a stdio server does, in a volume that
/// both may write. Otherwise the sidecar's one socket lies beside the shim, where the server may connect and not write:
/// each volume in memory is a mount on the node and two in the pod, and every mount makes the next one slower.
pub(super) fn has_sockets(server: &ValidatedServer) -> bool {
    matches!(server.upstream, Upstream::Stdio {})
}

pub(super) fn needs_tmp(server: &ValidatedServer) -> bool {
    !server.container.volume_mounts.iter().any(|mount| mount.mount_path.trim_end_matches('/') == TMP)
}

pub(super) fn volumes(server: &ValidatedServer) -> Vec<Volume> {
    let mut volumes = vec![
        config_volume(server),
        // The sidecar alone writes here, so it need not count as memory; a mount less is also a faster start.
        disk(PROGRAM_VOLUME, "32Mi"),
    ];
    if has_sockets(server) {
        volumes.push(memory(SOCKETS_VOLUME, "1Mi"));
    }
    if needs_tmp(server) {
        volumes.push(memory(TMP_VOLUME, "256Mi"));
    }
    if server.pod.service_account.is_some() {
        volumes.push(token_volume());
    }
    volumes.extend(server.pod.volumes.iter().cloned());
    volumes
}

/// What the sidecar reads: the configuration, and the keys that belong to it. One volume of both is one mount less, and
/// the two change in one step.
fn config_volume(server: &ValidatedServer) -> Volume {
    let config = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: config_map::name(server, &server.upstream),
            ..ConfigMapProjection::default()
        }),
        ..VolumeProjection::default()
    };
    let keys = VolumeProjection {
        secret: Some(SecretProjection { name: server.names.keys_secret(), ..SecretProjection::default() }),
        ..VolumeProjection::default()
    };
    Volume {
        name: CONFIG_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![config, keys]),
            default_mode: Some(GROUP_READABLE),
        }),
        ..Volume::default()
    }
}

fn memory(name: &str, limit: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(limit.to_owned())),
        }),
        ..Volume::default()
    }
}

fn disk(name: &str, limit: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource { medium: None, size_limit: Some(Quantity(limit.to_owned())) }),
        ..Volume::default()
    }
}

/// What Kubernetes itself mounts where a token is wanted, but for one container only.
fn token_volume() -> Volume {
    let token = VolumeProjection {
        service_account_token: Some(ServiceAccountTokenProjection {
            path: "token".to_owned(),
            expiration_seconds: Some(3607),
            audience: None,
        }),
        ..VolumeProjection::default()
    };
    let authority = VolumeProjection {
        config_map: Some(ConfigMapProjection {
            name: "kube-root-ca.crt".to_owned(),
            items: Some(vec![KeyToPath { key: "ca.crt".to_owned(), path: "ca.crt".to_owned(), mode: None }]),
            optional: None,
        }),
        ..VolumeProjection::default()
    };
    let namespace = VolumeProjection {
        downward_api: Some(DownwardAPIProjection {
            items: Some(vec![DownwardAPIVolumeFile {
                path: "namespace".to_owned(),
                field_ref: Some(ObjectFieldSelector {
                    field_path: "metadata.namespace".to_owned(),
                    api_version: Some("v1".to_owned()),
                }),
                ..DownwardAPIVolumeFile::default()
            }]),
        }),
        ..VolumeProjection::default()
    };
    Volume {
        name: TOKEN_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource {
            sources: Some(vec![token, authority, namespace]),
            default_mode: None,
        }),
        ..Volume::default()
    }
}

pub(super) fn mount(volume: &str, path: &str) -> VolumeMount {
    VolumeMount { name: volume.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

pub(super) fn read_only(mount: VolumeMount) -> VolumeMount {
    VolumeMount { read_only: Some(true), ..mount }
}
