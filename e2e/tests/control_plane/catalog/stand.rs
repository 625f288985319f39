//! Catalogs as processes, with the rights that the chart gives them, and a client that asks.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use longshore_e2e::cluster::{Cluster, direct};
use longshore_e2e::rest;
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::Value;

use crate::operator::stand::{kubeconfig_of, program, show_end_of_log, stop};

/// A catalog of one namespace. It is killed when this goes.
pub(super) struct Catalog {
    process: Child,
    folder: tempfile::TempDir,
}

impl Catalog {
    /// Starts one.
    pub(super) fn start(namespace: &Namespace<'_>, arguments: &[&str]) -> Self {
        Self::start_in(namespace.cluster(), namespace.name(), arguments)
    }

    /// Starts one, for a namespace that need not belong to a test.
    pub(super) fn start_in(cluster: &Cluster, namespace: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "a token for sidecars").unwrap();
        let kubeconfig = kubeconfig_of(cluster, "longshore-catalog");
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let process = direct(program())
            .arg("catalog")
            .args(arguments)
            .arg("--inventory-token-file")
            .arg(folder.path().join("token"))
            .args(["--watch-namespace", namespace, "--log-level", "debug"])
            .args(["--listen-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"])
            .env("KUBECONFIG", folder.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { process, folder }
    }

    /// What it has logged.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Asks it to end, and waits until it has. Returns whether it ended well.
    pub(super) fn stop(&mut self) -> bool {
        stop(&mut self.process)
    }

    /// Asks for a path. Returns the status and the body.
    pub(super) async fn get(&self, path: &str, key: Option<&str>) -> (u16, Value) {
        let address =
            eventually("the catalog listens", async || self.address().ok_or("it has not said where")).await;
        rest::get(address, path, key).await.unwrap_or_else(|error| panic!("{error}: {}", self.log()))
    }

    /// Asks for a path that is there.
    pub(super) async fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Asks until the answer is as it should be, and returns that.
    pub(super) async fn until(&self, path: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{path} {what}"), async || {
            let (status, body) = self.get(path, None).await;
            if status == 200 && is_so(&body) { Ok(body) } else { Err(format!("{status} {body}")) }
        })
        .await
    }

    /// Asks until the answer has this status.
    pub(super) async fn until_status(&self, path: &str, key: Option<&str>, expected: u16) {
        eventually(&format!("{path} is answered with {expected}"), async || {
            match self.get(path, key).await.0 {
                status if status == expected => Ok(()),
                status => Err(status),
            }
        })
        .await;
    }

    /// Where it says that it listens.
    fn address(&self) -> Option<SocketAddr> {
        let log = self.log();
        let mut events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.find_map(|event| event["api"].as_str()?.parse().ok())
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        show_end_of_log("a catalog", &self.log());
    }
}

/// The names of a list's entries.
pub(super) fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["name"].as_str().map(str::to_owned)).collect()
}
