//! The cluster itself: what the other tests stand on.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use longshore_e2e::cluster::{Cluster, Component, Shape};
use longshore_e2e::testing::{Kind, PATIENCE, Room};

#[test]
fn clusters_run_beside_each_other_and_do_not_meet() {
    let _room = Room::take(Kind::Cluster);
    let clusters = std::thread::scope(|scope| {
        [0, 1]
            .map(|_| scope.spawn(|| Cluster::start(Shape::Api).unwrap()))
            .map(|thread| thread.join().unwrap())
    });
    let [one, other] = clusters.each_ref();
    one.block_on(async || {
        let object = ConfigMap {
            metadata: ObjectMeta { name: Some("box".into()), ..ObjectMeta::default() },
            ..ConfigMap::default()
        };
        boxes(one).await.create(&PostParams::default(), &object).await.unwrap();
        assert!(boxes(one).await.get_opt("box").await.unwrap().is_some());
        assert!(boxes(other).await.get_opt("box").await.unwrap().is_none());
    })
    .unwrap();

    let folders = clusters.each_ref().map(folder);
    drop(clusters);
    for folder in folders {
        assert!(!folder.exists(), "{} was left behind", folder.display());
    }
}

#[test]
fn a_component_can_be_killed_and_revived_and_nothing_is_lost() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::Api).unwrap();
    cluster
        .block_on(async || {
            let object = ConfigMap {
                metadata: ObjectMeta { name: Some("box".into()), ..ObjectMeta::default() },
                ..ConfigMap::default()
            };
            boxes(&cluster).await.create(&PostParams::default(), &object).await.unwrap();
            cluster.kill(Component::ApiServer).await.unwrap();
            cluster.kill(Component::Etcd).await.unwrap();
            assert!(
                boxes(&cluster).await.get("box").await.is_err(),
                "the API server answers after its death"
            );
            cluster.revive(Component::Etcd).await.unwrap();
            cluster.revive(Component::ApiServer).await.unwrap();
            boxes(&cluster).await.get("box").await.unwrap();
            assert_eq!(cluster.failure(), None);
        })
        .unwrap();
}

#[test]
fn a_component_that_dies_fails_the_cluster_with_the_end_of_its_log() {
    let _room = Room::take(Kind::Cluster);
    let cluster = Cluster::start(Shape::Api).unwrap();
    let folder = folder(&cluster);
    for (_, pid) in
        processes_of(&folder).into_iter().filter(|(command, _)| command.contains("kube-apiserver"))
    {
        kill(pid);
    }
    until(|| cluster.failure().is_some());
    let message = cluster.failure().unwrap().to_string();
    assert!(message.contains("kube-apiserver was ended by SIGKILL"), "{message}");
    assert!(message.contains("the end of kube-apiserver.log:\n  | "), "{message}");

    let kept = cluster.failure().unwrap().logs.unwrap();
    drop(cluster);
    assert!(kept.join("etcd.log").is_file(), "no logs in {}", kept.display());
    assert!(!folder.exists());
    std::fs::remove_dir_all(kept).unwrap();
}

/// The test starts itself once more, as the process that is killed.
#[test]
fn nothing_is_left_when_the_process_that_started_a_cluster_is_killed() {
    const STARTER: &str = "LONGSHORE_E2E_STARTER";
    if std::env::var_os(STARTER).is_some() {
        let cluster = Cluster::start(Shape::Api).unwrap();
        println!("\nfolder: {}", folder(&cluster).display());
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    let _room = Room::take(Kind::Cluster);
    let start = || {
        let mut starter = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", std::thread::current().name().unwrap()])
            .env(STARTER, "1")
            // As on a machine that is left by a proxy. What makes programs heeds the latter, and clients of the API do not.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "*")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(starter.stdout.take().unwrap()).lines().map(Result::unwrap);
        let folder: PathBuf = lines
            .filter_map(|line| line.strip_prefix("folder: ").map(PathBuf::from))
            .next()
            .expect("the starter's cluster");
        assert!(!processes_of(&folder).is_empty());
        (starter, folder)
    };

    // The keeper sees that the lifeline is cut.
    let (mut starter, folder) = start();
    starter.kill().unwrap();
    starter.wait().unwrap();
    until(|| processes_of(&folder).is_empty() && !folder.exists());

    // The keeper is killed too: the kernel ends the rest, and the next start sweeps the folder up.
    let (mut starter, folder) = start();
    kill(std::fs::read_to_string(folder.join("keeper")).unwrap().parse().unwrap());
    starter.kill().unwrap();
    starter.wait().unwrap();
    until(|| processes_of(&folder).is_empty());
    drop(Cluster::start(Shape::Api).unwrap());
    assert!(!folder.exists());
}

async fn boxes(cluster: &Cluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.client().await.unwrap(), "default")
}

fn folder(cluster: &Cluster) -> PathBuf {
    cluster.spec().unwrap().folder.clone()
}

/// The programs that have something in a cluster's folder on their command line, with their process ids.
fn processes_of(folder: &Path) -> Vec<(String, i32)> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).into_owned();
        command.contains(folder.to_str()?).then_some((command, pid))
    })
    .collect()
}

fn kill(pid: i32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come true in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}
