//! The node itself: pods run, Services lead to them, names are looked up, and nothing is left of it.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use longshore_e2e::cluster::{Cluster, Shape, run};
use longshore_e2e::images;
use longshore_e2e::peers::Peers;

use crate::STAGE;

/// This is how a test on the node is written: manifests in, a real client against what they made.
#[test]
fn a_server_in_a_pod_is_reached_by_the_name_of_its_service() {
    let peers = Peers::install().unwrap();
    let image = images::peers().unwrap().go.reference;
    STAGE.with_namespace(async |namespace| {
        namespace
            .apply(&format!(
                r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: server}}
spec:
  selector: {{matchLabels: {{app: server}}}}
  template:
    metadata: {{labels: {{app: server}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: server
          image: {image}
          imagePullPolicy: Never
          args: [-listen, "0.0.0.0:3000"]
          readinessProbe: {{tcpSocket: {{port: 3000}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: server}}
spec: {{selector: {{app: server}}, ports: [{{port: 80, targetPort: 3000}}]}}
"#
            ))
            .await;
        namespace.wait(&namespace.api::<Deployment>(), "server", "to be available", is_available).await;

        let url = format!("http://server.{}.svc.cluster.local/mcp", namespace.name());
        let mut inspector = namespace.command(peers.program("mcp-inspector").to_str().unwrap());
        inspector.args(["--cli", &url, "--transport", "http", "--method", "tools/list"]);
        let answer = tokio::task::spawn_blocking(|| run(inspector)).await.unwrap().unwrap();
        assert!(answer.contains("\"slow\""), "{answer}");
    });
}

#[test]
fn a_node_starts_beside_another_and_leaves_no_trace() {
    STAGE.cluster();
    let cluster = Cluster::start(Shape::Node).unwrap();
    let spec = cluster.spec().unwrap().clone();
    let cgroups = format!("find /sys/fs/cgroup -maxdepth 2 -name 'longshore-{}' | wc -l", spec.name);
    let count = || {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &cgroups]);
        run(command).unwrap().trim().to_owned()
    };
    assert_ne!(count(), "0");

    // Killing the first process of its namespaces is the worst that can happen to it.
    let first = std::fs::read_to_string(spec.folder.join("first-process")).unwrap();
    let mut kill = std::process::Command::new("kill");
    kill.args(["-9", &first]);
    run(kill).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while spec.folder.exists() {
        assert!(Instant::now() < deadline, "{} was left behind", spec.folder.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(count(), "0");
}

fn is_available(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(1))
}
