//! What a manifest may mount, and where.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use longshore_crds::names::VOLUME_PREFIX;

use super::amounts;
use crate::mcp_server::condition::Problem;

/// Directories of the pod that are Longshore's.
const DIRECTORIES: [&str; 2] = ["/run/longshore", "/etc/longshore"];

/// Checks volumes that a manifest adds.
pub(in super::super) fn volumes(path: &str, volumes: &[Volume], problems: &mut Vec<Problem>) {
    for (index, volume) in volumes.iter().enumerate() {
        if volume.name.starts_with(VOLUME_PREFIX) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].name"),
                format_args!("names beginning with {VOLUME_PREFIX:?} are Longshore's; choose another"),
            ));
        }
        if let Some(limit) = volume.empty_dir.as_ref().and_then(|directory| directory.size_limit.as_ref()) {
            amounts::amount(&format!("{path}[{index}].emptyDir.sizeLimit"), limit, problems);
        }
        let claim = volume.ephemeral.as_ref().and_then(|volume| volume.volume_claim_template.as_ref());
        if let Some(resources) = claim.and_then(|claim| claim.spec.resources.as_ref()) {
            let path = format!("{path}[{index}].ephemeral.volumeClaimTemplate.spec.resources");
            amounts::both(&path, resources.limits.as_ref(), resources.requests.as_ref(), problems);
        }
        for (field, _) in foreign(volume).into_iter().filter(|(_, given)| *given) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].{field}"),
                "a server may not mount its node's directories or a file system of its own choice; use a \
                 persistentVolumeClaim or an emptyDir",
            ));
        }
    }
}

/// The kinds of volumes that the Pod Security Standard refuses.
fn foreign(volume: &Volume) -> [(&'static str, bool); 21] {
    // Without `..`: a kind that Kubernetes adds does not compile until it has its place here.
    let Volume {
        name: _,
        config_map: _,
        csi: _,
        downward_api: _,
        empty_dir: _,
        ephemeral: _,
        persistent_volume_claim: _,
        projected: _,
        secret: _,
        // An image is what a container is made of anyway.
        image: _,
        aws_elastic_block_store,
        azure_disk,
        azure_file,
        cephfs,
        cinder,
        fc,
        flex_volume,
        flocker,
        gce_persistent_disk,
        git_repo,
        glusterfs,
        host_path,
        iscsi,
        nfs,
        photon_persistent_disk,
        portworx_volume,
        quobyte,
        rbd,
        scale_io,
        storageos,
        vsphere_volume,
    } = volume;
    [
        ("awsElasticBlockStore", aws_elastic_block_store.is_some()),
        ("azureDisk", azure_disk.is_some()),
        ("azureFile", azure_file.is_some()),
        ("cephfs", cephfs.is_some()),
        ("cinder", cinder.is_some()),
        ("fc", fc.is_some()),
        ("flexVolume", flex_volume.is_some()),
        ("flocker", flocker.is_some()),
        ("gcePersistentDisk", gce_persistent_disk.is_some()),
        ("gitRepo", git_repo.is_some()),
        ("glusterfs", glusterfs.is_some()),
        ("hostPath", host_path.is_some()),
        ("iscsi", iscsi.is_some()),
        ("nfs", nfs.is_some()),
        ("photonPersistentDisk", photon_persistent_disk.is_some()),
        ("portworxVolume", portworx_volume.is_some()),
        ("quobyte", quobyte.is_some()),
        ("rbd", rbd.is_some()),
        ("scaleIO", scale_io.is_some()),
        ("storageos", storageos.is_some()),
        ("vsphereVolume", vsphere_volume.is_some()),
    ]
}

/// Checks where a container mounts volumes.
pub(in super::super) fn mounts(path: &str, mounts: &[VolumeMount], problems: &mut Vec<Problem>) {
    for (index, mount) in mounts.iter().enumerate() {
        if mount.name.starts_with(VOLUME_PREFIX) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].name"),
                format_args!(
                    "volumes whose names begin with {VOLUME_PREFIX:?} are Longshore's; mount one of your own"
                ),
            ));
        }
        if !plain(&mount.mount_path) {
            // Two such paths can name one directory, and their texts would not tell.
            problems.push(Problem::invalid(
                &format!("{path}[{index}].mountPath"),
                format_args!(
                    "{:?} is not a plain path; write it from the root, without empty parts, \".\" and \"..\", such as /data/cache",
                    mount.mount_path
                ),
            ));
        } else if hides_ours(&mount.mount_path) {
            problems.push(Problem::invalid(
                &format!("{path}[{index}].mountPath"),
                format_args!("{} hides a directory of Longshore's; mount it elsewhere", mount.mount_path),
            ));
        }
    }
}

/// Whether a path is absolute and has but one way to be written, save for a slash at its end.
fn plain(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|rest| {
        let rest_without_end = rest.strip_suffix('/').unwrap_or(rest);
        rest.is_empty() || rest_without_end.split('/').all(|part| !matches!(part, "" | "." | ".."))
    })
}

/// Whether a volume at this plain path hides a directory of Longshore's.
fn hides_ours(path: &str) -> bool {
    // In most images /var/run is a link to /run, and volumes are mounted where links lead.
    let linked = path.strip_prefix("/var").filter(|rest| {
        DIRECTORIES.iter().any(|directory| *rest == *directory || rest.starts_with(&format!("{directory}/")))
    });
    linked.is_some() || DIRECTORIES.iter().any(|directory| overlap(path, directory))
}

/// Whether one of two absolute paths lies in the other.
fn overlap(one: &str, other: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let one = if one == "/" { one } else { one.trim_end_matches('/') };
    inside(one, other) || inside(other, one)
}
