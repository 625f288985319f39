//! The client against a server on loopback that behaves like a sidecar, or does not.

#![expect(clippy::unwrap_used, reason = "a failed assertion is a test's way to speak")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use longshore_sidecar_client::{Bounds, Changes, Inventories, Read, TokenFile, inventories_with};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

const TOKEN: &str = "the-token-of-the-control-plane";
const SOON: Duration = Duration::from_secs(20);
/// For how long a sidecar holds a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is kept here: the whole answer.
type Kept = serde_json::Value;

/// A sidecar that says what it is told to, and holds requests while it is told nothing new.
#[derive(Clone)]
struct Sidecar {
    says: watch::Receiver<String>,
    asked: Arc<AtomicUsize>,
    tokens: Arc<Mutex<Vec<String>>>,
    patience: Duration,
}

async fn answer(State(mut sidecar): State<Sidecar>, headers: HeaderMap) -> Response {
    sidecar.asked.fetch_add(1, Ordering::Relaxed);
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    sidecar.tokens.lock().unwrap().push(text("authorization"));
    if sidecar.says.borrow().is_empty() {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let known = text("if-none-match");
    let wait = text("prefer").strip_prefix("wait=").and_then(|seconds| seconds.parse().ok());
    assert!(known.is_empty() || wait.is_some());
    let patience = wait.map_or(sidecar.patience, Duration::from_secs).min(sidecar.patience);
    let news = sidecar.says.wait_for(|says| tag(says) != known);
    match timeout(patience, news).await {
        Ok(Ok(says)) => {
            let says = says.clone();
            ([("etag", tag(&says))], says).into_response()
        }
        _ => StatusCode::NOT_MODIFIED.into_response(),
    }
}

fn tag(says: &str) -> String {
    let mut hasher = DefaultHasher::new();
    says.hash(&mut hasher);
    format!("\"{:x}\"", hasher.finish())
}

struct Served {
    address: SocketAddr,
    says: watch::Sender<String>,
    asked: Arc<AtomicUsize>,
    tokens: Arc<Mutex<Vec<String>>>,
}

async fn serve(says: &str) -> Served {
    serve_with(says, PATIENCE).await
}

async fn serve_with(says: &str, patience: Duration) -> Served {
    let (send, says) = watch::channel(says.to_owned());
    let sidecar = Sidecar { says, asked: Arc::default(), tokens: Arc::default(), patience };
    let (asked, tokens) = (sidecar.asked.clone(), sidecar.tokens.clone());
    let router = Router::new().route("/v1/inventory", get(answer)).with_state(sidecar);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Served { address, says: send, asked, tokens }
}

struct Client {
    inventories: Inventories<&'static str, Kept>,
    changes: Changes<&'static str>,
    _token: tempfile::NamedTempFile,
}

fn client(bounds: Bounds) -> Client {
    client_that(bounds, |_, json| serde_json::from_slice(json), |_| false)
}

fn client_that(
    bounds: Bounds,
    keep: impl Fn(&&'static str, &[u8]) -> serde_json::Result<Kept> + Send + Sync + 'static,
    is_short: impl Fn(&Kept) -> bool + Send + Sync + 'static,
) -> Client {
    let read: Read<&'static str, Kept> = Read {
        keep: Arc::new(keep),
        is_short: Arc::new(is_short),
        namespace: |server| server.split('/').next().unwrap_or_default(),
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    let (inventories, changes, poller) =
        inventories_with(TokenFile::new(file.path().to_owned()), bounds, read);
    tokio::spawn(poller.run());
    Client { inventories, changes, _token: file }
}

impl Client {
    fn track(&self, pods: &[(&str, SocketAddr)]) {
        self.track_of("server", pods);
    }

    fn track_of(&self, server: &'static str, pods: &[(&str, SocketAddr)]) {
        let pods: BTreeMap<_, _> = pods.iter().map(|(pod, address)| ((*pod).to_owned(), *address)).collect();
        self.inventories.track(server, pods);
    }

    /// Waits for changes until what is known of the pod is as wanted.
    async fn until(&mut self, pod: &str, wanted: impl Fn(Option<&Kept>, Option<&str>) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let known = self.inventories.of(pod);
            if wanted(known.summary.as_deref(), known.unreachable.as_deref()) {
                return;
            }
            let change = tokio::time::timeout_at(deadline, self.changes.recv()).await;
            assert!(change.is_ok(), "not so in time: {known:?}");
        }
    }
}

#[tokio::test]
async fn news_come_at_once_and_quiet_costs_nothing() {
    let sidecar = serve("[1]").await;
    let mut client = client(Bounds::default());
    client.track(&[("pod", sidecar.address)]);
    client.until("pod", |kept, _| kept == Some(&serde_json::json!([1]))).await;

    // Otherwise they would come with the end of the wait.
    assert!(SOON < PATIENCE);
    sidecar.says.send("[1,2]".to_owned()).unwrap();
    client.until("pod", |kept, _| kept == Some(&serde_json::json!([1, 2]))).await;
    // One answer each, and the request that waits now.
    assert!(sidecar.asked.load(Ordering::Relaxed) <= 3);
    assert!(sidecar.tokens.lock().unwrap().iter().all(|token| *token == format!("Bearer {TOKEN}")));
}

#[tokio::test]
async fn an_answer_is_read_again_when_more_of_it_can_be_kept() {
    let sidecar = serve_with("[1,2,3]", Duration::from_millis(50)).await;
    let room = Arc::new(AtomicUsize::new(1));
    let (reading, looking) = (room.clone(), room.clone());
    let keep = move |_: &&'static str, json: &[u8]| {
        let all: Vec<Kept> = serde_json::from_slice(json)?;
        Ok(all.into_iter().take(reading.load(Ordering::Relaxed)).collect())
    };
    let is_short = move |kept: &Kept| kept.as_array().unwrap().len() < looking.load(Ordering::Relaxed).min(3);
    let mut client = client_that(Bounds::default(), keep, is_short);
    client.track(&[("pod", sidecar.address)]);
    for (size, expected) in [(1, "[1]"), (2, "[1,2]"), (9, "[1,2,3]")] {
        room.store(size, Ordering::Relaxed);
        let expected: Kept = serde_json::from_str(expected).unwrap();
        client.until("pod", |kept, _| kept == Some(&expected)).await;
    }
}

/// Whoever makes something of this answer waits for the one thread that everything else has.
#[tokio::test]
async fn nothing_waits_for_what_is_made_of_a_long_answer() {
    let sidecar = serve(&format!("\"{}\"", "x".repeat(1 << 20))).await;
    let (begins, mut began) = mpsc::unbounded_channel();
    let (goes_on, told) = std::sync::mpsc::channel();
    let told = Mutex::new(told);
    let keep = move |_: &&'static str, _: &[u8]| {
        begins.send(()).unwrap();
        Ok(Kept::from(told.lock().unwrap().recv_timeout(SOON).is_ok()))
    };
    let mut client = client_that(Bounds::default(), keep, |_| false);
    client.track(&[("pod", sidecar.address)]);
    began.recv().await.unwrap();
    goes_on.send(()).unwrap();
    client.until("pod", |kept, _| kept.is_some()).await;
    assert_eq!(client.inventories.of("pod").summary.as_deref(), Some(&Kept::from(true)));
}

#[tokio::test]
async fn a_sidecar_that_always_has_news_is_read_at_the_pace_of_the_bounds() {
    let sidecar = serve("0").await;
    let mut client = client(Bounds { burst: 2, interval: Duration::from_millis(200), ..Bounds::default() });
    client.track(&[("pod", sidecar.address)]);
    let began = Instant::now();
    let says = sidecar.says.clone();
    let storm = tokio::spawn(async move {
        for length in 1..150 {
            says.send_replace("1".repeat(length % 15 + 1));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        says.send_replace("[\"the last\"]".to_owned());
    });
    client.until("pod", |kept, _| kept == Some(&serde_json::json!(["the last"]))).await;
    storm.await.unwrap();
    let (asked, most) = (sidecar.asked.load(Ordering::Relaxed), began.elapsed().as_millis() / 200 + 4);
    assert!(asked as u128 <= most, "{asked} requests in {:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_too_long_or_no_inventory_is_a_failure_with_a_reason() {
    for (says, because) in [("\"long\"", "too long"), ("{", "not an inventory"), ("", "answered 401")] {
        let sidecar = serve(says).await;
        let mut client = client(Bounds { answer_bytes: 5, ..Bounds::default() });
        client.track(&[("pod", sidecar.address)]);
        client.until("pod", |_, unreachable| unreachable.is_some_and(|it| it.contains(because))).await;
        if says.is_empty() {
            assert_eq!(timeout(SOON, client.inventories.unauthorized()).await.unwrap(), "pod");
        }
    }
}

/// The parser quotes what it cannot use, and whatever answers at the address of a pod may have written that.
#[tokio::test]
async fn of_what_is_no_inventory_little_is_repeated() {
    let sidecar = serve(&format!("\"{}\"", "\u{e9}".repeat(2000))).await;
    let keep = |_: &&'static str, json: &[u8]| serde_json::from_slice::<bool>(json).map(Kept::from);
    let mut client = client_that(Bounds::default(), keep, |_| false);
    client.track(&[("pod", sidecar.address)]);
    client.until("pod", |_, unreachable| unreachable.is_some_and(|it| it.contains("not an inventory"))).await;
    let words = client.inventories.of("pod").unreachable.unwrap();
    assert!((500..600).contains(&words.len()), "{words}");
}

/// Begins answers of so many bytes, and never ends them. Says of each that it has begun.
async fn serve_without_end(bytes: usize) -> (SocketAddr, mpsc::UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (begins, begun) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", bytes + 1);
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&vec![b' '; bytes]).await.unwrap();
            held.push(stream);
            let _ = begins.send(());
        }
    });
    (address, begun)
}

/// Else one tenant's pods could keep all others from being heard.
#[tokio::test]
async fn answers_that_never_end_take_nobodys_place() {
    let long = format!("[{}]", vec!["1"; 100_000].join(","));
    for (bytes, places, says) in [(1, 1, "[1]"), (100_000, 2, &*long)] {
        let bounds = Bounds { concurrent_answers: places, ..Bounds::default() };
        let mut client = client(bounds);
        let (slow, mut begun) = serve_without_end(bytes).await;
        // In one namespace there may be any number of servers, and each has any number of pods.
        for server in ["slow/0", "slow/1", "slow/2", "slow/3", "slow/4", "slow/5"] {
            let pods: Vec<String> = (0..5).map(|pod| format!("{server}-{pod}")).collect();
            let pods: Vec<_> = pods.iter().map(|pod| (pod.as_str(), slow)).collect();
            client.track_of(server, &pods);
            for _ in &pods {
                timeout(SOON, begun.recv()).await.unwrap().unwrap();
            }
        }
        let sidecar = serve(says).await;
        client.track(&[("pod", sidecar.address)]);
        let expected: Kept = serde_json::from_str(says).unwrap();
        client.until("pod", |kept, _| kept == Some(&expected)).await;
    }
}

/// It would hold the request that asks for something else, and would seem to be away for all that time.
#[tokio::test]
async fn a_sidecar_that_is_back_with_nothing_new_is_known_to_be_back_at_once() {
    let sidecar = serve_with("[1]", Duration::from_secs(3600)).await;
    let mut client = client(Bounds::default());
    client.track(&[("pod", sidecar.address)]);
    client.until("pod", |kept, _| kept.is_some()).await;
    sidecar.says.send(String::new()).unwrap();
    client.until("pod", |_, unreachable| unreachable.is_some()).await;
    sidecar.says.send("[1]".to_owned()).unwrap();
    client.until("pod", |kept, unreachable| kept.is_some() && unreachable.is_none()).await;
}

#[tokio::test]
async fn who_is_no_longer_tracked_is_forgotten_and_not_asked() {
    let [first, second] = [serve("1").await, serve("22").await];
    let mut client = client(Bounds::default());
    client.track(&[("first", first.address), ("second", second.address)]);
    client.until("first", |kept, _| kept.is_some()).await;
    client.until("second", |kept, _| kept.is_some()).await;
    client.track(&[("second", second.address)]);
    let deadline = Instant::now() + SOON;
    while client.inventories.of("first").summary.is_some() {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    first.says.send("333".to_owned()).unwrap();
    second.says.send("4444".to_owned()).unwrap();
    client.until("second", |kept, _| kept == Some(&serde_json::json!(4444))).await;
    // The first request, and the one that waited when it was forgotten.
    assert!(first.asked.load(Ordering::Relaxed) <= 2);
}
