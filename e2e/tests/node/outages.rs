//! What goes wrong around the servers, while they serve on: operators that are killed, an upgrade that cannot be
//! finished. On a cluster of their own, one after the other.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use longshore_crds::McpServer;
use longshore_e2e::cluster::{Shape, run};
use longshore_e2e::longshore;
use longshore_e2e::testing::{Namespace, Stage, eventually, kill_container};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::faults::{SERVER, SIDECAR, is_restarted, open, restarts, the_pod};
use crate::may_start_a_node;
use crate::server::{becomes, condition, go_server};

pub(crate) static STAGE: Stage = Stage::to_break(Shape::Node, crate::install);

/// Runs a test when no other of these runs.
fn in_turn(test: impl AsyncFnOnce(&Namespace<'_>) + Send) {
    let Some(_turn) = turn() else { return };
    STAGE.with_namespace(test);
}

/// Waits until no other of these tests runs. `None`: none of them can.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed has left the cluster as it was: the next will say what it thinks of that.
    may_start_a_node().then(|| TURN.lock())
}

/// Operators are killed at moments that nobody chose, while servers come and go: what is wanted comes true in the end,
/// once, and nothing else is left.
#[test]
fn operators_that_are_killed_leave_nothing_undone_and_nothing_done_twice() {
    const ROUNDS: u64 = 5;
    in_turn(async |namespace| {
        let operators = Operators::of(namespace);
        for round in 0..ROUNDS {
            let name = format!("go-{round}");
            namespace.apply(&go_server(&name, &[])).await;
            if let Some(before) = round.checked_sub(2) {
                let servers = namespace.api::<McpServer>();
                let doomed = format!("go-{before}");
                servers.delete(&doomed, &DeleteParams::default()).await.expect("a server can be deleted");
            }
            // From before the first request of a reconciliation until after the last.
            tokio::time::sleep(Duration::from_millis(random(500))).await;
            operators.kill_all().await;
        }
        for round in ROUNDS - 2..ROUNDS {
            becomes(namespace, &format!("go-{round}"), ("Ready", "True", "Ready")).await;
        }
        for round in 0..ROUNDS - 2 {
            namespace.wait_gone(&namespace.api::<Deployment>(), &format!("go-{round}")).await;
        }
        let all = ListParams::default();
        let sets = namespace.api::<ReplicaSet>().list(&all).await.expect("ReplicaSets can be listed");
        assert_eq!(sets.items.len(), 2, "a Deployment was made twice, or changed: {:?}", names(&sets.items));
        for deployment in namespace.api::<Deployment>().list(&all).await.expect("Deployments can be listed") {
            assert_eq!(deployment.metadata.generation, Some(1), "{} was changed", deployment.name_any());
        }
    });
}

/// Of two operators one leads. When it dies the other takes over, without anybody's help.
#[test]
fn another_operator_takes_over_when_the_leader_dies() {
    in_turn(async |namespace| {
        let operators = Operators::of(namespace);
        let leader = operators.leader().await;
        operators.kill(&leader).await;
        let killed = Instant::now();
        namespace.apply(&go_server("go", &[])).await;
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        println!("a server was Ready {:?} after the leader was killed", killed.elapsed());
        assert_ne!(operators.leader().await.name_any(), leader.name_any());
    });
}

/// The new operator wants a new sidecar, which does not come up; the old one restarts and finds what it needs.
#[test]
fn an_old_sidecar_restarts_beside_a_newer_operator() {
    in_turn(async |namespace| {
        namespace.apply(&go_server("go", &[])).await;
        let server = becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        let old = the_pod(namespace, "go").await;
        let chart = longshore::chart();
        let chart = chart.to_string_lossy();
        let newer = "images.sidecar=registry.invalid/longshore-sidecar:newer";
        let back = GoBack(namespace);
        release(
            namespace,
            &["upgrade", longshore::RELEASE, &chart, "--reset-then-reuse-values", "--set", newer, "--wait"],
        );
        let failing = becomes(namespace, "go", ("Available", "True", "RolloutFailing")).await;
        let message = &condition(&failing, "Available").expect("it was waited for").message;
        assert!(message.contains("SidecarFailed") && message.contains("registry.invalid"), "{message}");

        assert_eq!(kill_container(&old, SIDECAR), 1);
        eventually("the old sidecar serves again", async || {
            let client = open(namespace, &server, None).await?;
            client.call("echo", json!({"text": "back"})).await
        })
        .await;
        is_restarted(namespace, &old.name_any(), SIDECAR).await;
        becomes(namespace, "go", ("Ready", "True", "ServingPrevious")).await;
        let now = namespace.api::<Pod>().get(&old.name_any()).await.expect("the old pod is there");
        assert_eq!((restarts(&now, SIDECAR), restarts(&now, SERVER)), (1, 0));

        drop(back);
        becomes(namespace, "go", ("Ready", "True", "Ready")).await;
        // The pod of the newer release may still be on its way out.
        eventually("the old pod is the only one again", async || {
            let mine = ListParams::default().labels("longshore.dev/server=go");
            let pods = namespace.api::<Pod>().list(&mine).await.expect("pods can be listed").items;
            if pods.iter().map(|pod| pod.uid()).eq([old.uid()]) {
                Ok(())
            } else {
                Err(names(&pods).join(", "))
            }
        })
        .await;
    });
}

pub(crate) fn release(namespace: &Namespace<'_>, arguments: &[&str]) {
    let mut helm = longshore::helm(namespace.cluster()).expect("helm can be run");
    helm.args(arguments).args(["--namespace", longshore::NAMESPACE]);
    run(helm).expect("helm does what it is asked to");
}

/// Takes the release back by one, even where a test fails: the next one needs it whole.
pub(crate) struct GoBack<'a>(pub(crate) &'a Namespace<'a>);

impl Drop for GoBack<'_> {
    fn drop(&mut self) {
        release(self.0, &["rollback", longshore::RELEASE, "--wait"]);
    }
}

fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(|object| object.name_any()).collect()
}

/// A number below `limit`.
fn random(limit: u64) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8) % limit
}

/// The pods of the operator, and their lease.
pub(crate) struct Operators {
    pods: Api<Pod>,
    leases: Api<Lease>,
    deployments: Api<Deployment>,
}

impl Operators {
    pub(crate) fn of(namespace: &Namespace<'_>) -> Self {
        Self {
            pods: Api::namespaced(namespace.client(), longshore::NAMESPACE),
            leases: Api::namespaced(namespace.client(), longshore::NAMESPACE),
            deployments: Api::namespaced(namespace.client(), longshore::NAMESPACE),
        }
    }

    async fn all(&self) -> Vec<Pod> {
        let operators = ListParams::default().labels("app.kubernetes.io/component=operator");
        self.pods.list(&operators).await.expect("pods can be listed").items
    }

    /// The pod that holds the lease.
    async fn leader(&self) -> Pod {
        eventually("an operator leads", async || {
            let lease = self.leases.get(longshore::RELEASE).await.map_err(|error| error.to_string())?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
            self.pods.get(&holder).await.map_err(|error| format!("{holder}: {error}"))
        })
        .await
    }

    /// Kills an operator at once, and has it replaced: in the same pod Kubernetes would wait longer with each restart.
    async fn kill(&self, pod: &Pod) {
        // It may be between two lives.
        let _ = kill_container(pod, "operator");
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods.delete(&pod.name_any(), &at_once).await.expect("a pod can be deleted");
    }

    /// Kills all operators. The lease is taken from the dead, which would otherwise hold it a while longer.
    async fn kill_all(&self) {
        for pod in self.all().await {
            self.kill(&pod).await;
        }
        // It may never have been taken.
        let _ = self.leases.delete(longshore::RELEASE, &DeleteParams::default()).await;
        self.available().await;
    }

    /// Waits until as many operators are ready as there should be.
    pub(crate) async fn available(&self) {
        eventually("the operators are ready", async || {
            let operator =
                self.deployments.get(longshore::RELEASE).await.map_err(|error| error.to_string())?;
            let ready = operator.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
            let wanted = operator.spec.as_ref().and_then(|spec| spec.replicas);
            if Some(ready) == wanted { Ok(()) } else { Err(format!("{ready} of {wanted:?} are ready")) }
        })
        .await;
    }
}
