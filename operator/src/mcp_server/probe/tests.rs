use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse as _;
use longshore_sidecar_config::inventory::ConfigState;
use parking_lot::Mutex;
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::*;
use crate::inventory::Summary;
use crate::mcp_server::apply::tests::context;
use crate::view::{ContainerView, Told};

fn said(digest: &str, error: Option<&str>) -> Report {
    let error = error.map(str::to_owned);
    let config = ConfigState { digest: digest.to_owned(), generation: 1, error, callers: None };
    Report::Answered(Arc::new(Summary { config, ..Summary::of_config(digest) }))
}

fn pod() -> PodView {
    let sidecar = ContainerView { state: ContainerState::Running, ..ContainerView::default() };
    let config_maps = ["theirs".to_owned(), "map".to_owned()].into();
    PodView { uid: "1".to_owned(), config_maps, sidecar, ..PodView::default() }
}

fn desired() -> Desired {
    Desired {
        template: "t".to_owned(),
        configs: BTreeMap::from([("map".to_owned(), "new".to_owned())]),
        replicas: 1,
        recreates: false,
    }
}

/// With an API server that answers when all have come, and for one of them badly.
#[tokio::test(start_paused = true)]
async fn no_pod_waits_for_another_one_that_cannot_be_touched() {
    let all = Arc::new(Barrier::new(3));
    let answer = move |uri: Uri| {
        let all = all.clone();
        async move {
            all.wait().await;
            let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            match &*name {
                "0" => (StatusCode::SERVICE_UNAVAILABLE, "not now").into_response(),
                name => axum::Json(json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": name, "namespace": "tools", "uid": name},
                }))
                .into_response(),
            }
        }
    };
    let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = Mutex::new(ServerMemory::default());
    let pods = ["0", "1", "2"].map(|name| {
        let pod = PodView { name: name.to_owned(), uid: name.to_owned(), ..pod() };
        PodFacts { pod: Arc::new(pod), report: said("old", None) }
    });
    let desired = desired();
    // Nobody is asked again before the time.
    for _ in 0..2 {
        let touched = touch(&context, &key, &memory, &desired, &pods, true);
        let touched = timeout(Duration::from_secs(10), touched).await.unwrap();
        let again = touched.again.unwrap();
        assert!(touched.failed && again <= FIRST_RETRY, "{touched:?}");
        let memory = memory.lock();
        let tries = ["0", "1", "2"].map(|pod| &memory.touches[pod]).map(|it| (it.attempts, it.failures));
        assert_eq!(tries, [(0, 1), (1, 0), (1, 0)]);
    }
}

/// With an API server that answers for all but one.
#[tokio::test(start_paused = true)]
async fn no_pod_waits_for_one_of_which_nothing_is_answered_and_none_is_touched_again_late_for_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let answer = move |uri: Uri| {
        let counted = counted.clone();
        async move {
            let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
            if name == "0" {
                pending::<()>().await;
            }
            counted.fetch_add(1, Ordering::Relaxed);
            axum::Json(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": name, "namespace": "tools", "uid": name},
            }))
        }
    };
    let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = Mutex::new(ServerMemory::default());
    let pods: Vec<_> = (0..40)
        .map(|number: u32| {
            let pod = PodView { name: number.to_string(), uid: number.to_string(), ..pod() };
            PodFacts { pod: Arc::new(pod), report: said("old", None) }
        })
        .collect();
    let desired = desired();
    let mut touches = Box::pin(touch(&context, &key, &memory, &desired, &pods, true));
    assert!(timeout(Duration::from_secs(1), &mut touches).await.is_err());
    assert_eq!(asked.load(Ordering::Relaxed), 39);
    let touched = touches.await;
    assert!(touched.failed);
    assert_eq!(touched.again, Some(Duration::ZERO), "the others' second touch is due");
}

/// With an API server that refuses so many changes. Returns what was written on a pod at so many looks, each of which comes when
/// the one before asked for it.
async fn written(refusals: usize, looks: usize, pod: PodView, report: Report) -> Vec<String> {
    let (left, log) = (Arc::new(AtomicUsize::new(refusals)), Arc::new(Mutex::new(Vec::new())));
    let values = log.clone();
    let answer = move |body: String| {
        let (left, log) = (left.clone(), log.clone());
        async move {
            if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                return (StatusCode::FORBIDDEN, "not now").into_response();
            }
            let patch: serde_json::Value = serde_json::from_str(&body).unwrap();
            let value = patch["metadata"]["annotations"][CONFIG_ANNOTATION].as_str();
            log.lock().push(value.unwrap().to_owned());
            axum::Json(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "demo", "namespace": "tools", "uid": "1"},
            }))
            .into_response()
        }
    };
    let context = context(kube::Client::new(Router::new().fallback(answer), "tools"));
    let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let memory = Mutex::new(ServerMemory::default());
    let pods = [PodFacts { pod: Arc::new(PodView { name: "demo".to_owned(), ..pod }), report }];
    for look in 1..=looks {
        let touched = touch(&context, &key, &memory, &desired(), &pods, true).await;
        let again = touched.again.filter(|again| *again <= LAST_RETRY);
        assert!(look == looks || again.is_some(), "look {look}: {touched:?}");
        tokio::time::advance(again.unwrap_or_default()).await;
    }
    values.lock().clone()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_may_not_be_touched_is_told_once_it_may_where_nothing_else_says_what_it_runs() {
    let unheard = Report::Unreachable("refused".to_owned());
    let values = written(12, 13, pod(), unheard).await;
    assert!(matches!(&values[..], [value] if value.starts_with("new.")), "{values:?}");
}

/// Whether it was told of it first at the second at which this was written.
fn is_told_anew(value: &str) -> bool {
    let [digest, since, second, _] = value.split('.').collect::<Vec<_>>()[..] else { panic!("{value}") };
    digest == "new" && since == second
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_is_told_anew_where_it_is_heard_to_run_another_configuration_all_the_same() {
    let now = Timestamp::now().as_second();
    let unheard = || Report::Unreachable("refused".to_owned());
    for (name, digest, since, report, is_anew) in [
        ("it is heard", "new", now - 150, said("old", None), true),
        ("it is not, and was told before", "new", now - 10, unheard(), false),
        ("it was told of another one", "old", now - 10, unheard(), true),
        ("whoever told it had a clock that is ahead", "new", now + 3600, unheard(), true),
    ] {
        let pod = PodView { told: Some(Told { digest: digest.to_owned(), since }), ..pod() };
        let values = written(0, 1, pod, report).await;
        let [value] = &values[..] else { panic!("{name}: {values:?}") };
        assert_eq!(is_told_anew(value), is_anew, "{name}: {value}");
        assert!(is_anew || value.starts_with(&format!("new.{since}.")), "{name}: {value}");
    }
}

#[test]
fn pods_are_touched_that_run_another_configuration_or_may() {
    let desired = desired();
    let unreachable = || Report::Unreachable("refused".to_owned());
    let told =
        |digest: &str, since| PodView { told: Some(Told { digest: digest.to_owned(), since }), ..pod() };
    let of_before = || PodView { config_maps: vec!["map-of-before".to_owned()], ..pod() };
    let starting = || PodView { sidecar: ContainerView::default(), ..pod() };
    for (name, pod, report, expected) in [
        ("runs it", pod(), said("new", None), false),
        ("runs the one before", pod(), said("old", None), true),
        ("and was told of the new one long ago", told("new", 0), said("old", None), true),
        ("says nothing yet", pod(), Report::Pending, false),
        ("cannot be asked", pod(), unreachable(), true),
        ("cannot be asked, and was told of the one before", told("old", 0), unreachable(), true),
        ("cannot be asked, and was told just now", told("new", 990), unreachable(), true),
        ("cannot be asked, and was told long ago", told("new", 0), unreachable(), false),
        ("does not run yet", starting(), unreachable(), false),
        ("ends", PodView { ending: true, ..pod() }, said("old", None), false),
        ("has ended", PodView { failed: Some("Evicted".to_owned()), ..pod() }, unreachable(), false),
        ("reads what is not written any more", of_before(), said("old", None), false),
        ("reads that, and cannot be asked", of_before(), unreachable(), false),
    ] {
        let facts = PodFacts { pod: Arc::new(pod), report };
        assert_eq!(stale(&facts, &desired, true, 1000).is_some(), expected, "{name}");
        let is_heard = facts.report.summary().is_some();
        assert_eq!(stale(&facts, &desired, false, 1000).is_some(), expected && is_heard, "not there: {name}");
    }
    assert_eq!(
        [false, true].map(|told| most_touches(&unreachable(), told)),
        [u32::MAX, TOUCHES_OF_THE_UNHEARD]
    );
    assert_eq!(most_touches(&said("old", Some("broken")), true), MOST_TOUCHES_OF_A_REFUSAL);
    assert_eq!(most_touches(&said("old", None), true), u32::MAX);
}

#[test]
fn no_touch_is_like_another() {
    let values = [(10, 1), (10, 2), (700, 1)].map(|(second, it)| touched("sha256:ab", 10, second, it));
    assert_eq!(values, ["ab.10.10.1", "ab.10.10.2", "ab.10.700.1"]);
}
