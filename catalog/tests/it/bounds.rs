//! Hostile servers: what they cost, and whom.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use longshore_catalog::http::Port;
use longshore_catalog::{About, Catalog, Metrics, Reader};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::harness::{Stand, inventory, names, record, tool};

/// How many connections a port has at once.
const PLACES: usize = 512;

/// Many tools with hostile text and schemas that are too long, and a server beside that notices nothing.
#[tokio::test]
async fn a_flood_of_hostile_tools_is_cut_to_its_bounds() {
    let stand = Stand::open().await;
    stand.serve("a", "good", About::default(), &[tool("echo", "Says it again")]).await;
    let long = "<script>\u{202e}\u{0}".repeat(1000);
    let schema = json!({"type": "object", "title": "x".repeat(100_000)});
    let tools: Vec<_> = (0..2000)
        .map(|n| {
            let mut tool =
                json!({"name": format!("tool-{n}"), "title": long, "description": format!("{n} {long}")});
            if n % 100 == 0 {
                tool["inputSchema"] = schema.clone();
            }
            tool
        })
        .collect();
    stand.serve("a", "hostile", About::default(), &tools).await;
    let server = stand.json("/v1/servers/a/hostile").await;
    let listed = server["tools"].as_u64().unwrap();
    assert_eq!(listed + server["toolsLeftOut"].as_u64().unwrap(), 2000);
    let shown = stand.json("/v1/tools/a/hostile/tool-0").await;
    assert!(shown["description"].as_str().unwrap().len() <= 4096);
    assert!(!shown["description"].as_str().unwrap().contains('\u{202e}'));
    assert_eq!(shown["omitted"][0]["field"], "inputSchema");
    assert!(shown["inputSchema"].is_null());
    let page = stand.get("/v1/tools?namespace=a&limit=200").await;
    assert!(page.body.len() < 2 << 20, "{}", page.body.len());
    assert_eq!(names(&stand.json("/v1/tools?q=says+again").await)[0], "echo");
}

/// Who connects and asks nothing keeps nobody out: neither readers nor the kubelet.
#[tokio::test]
async fn connections_that_ask_nothing_make_room() {
    have_descriptors();
    let stand = Stand::open().await;
    let mut idle = Vec::new();
    for _ in 0..600 {
        idle.push(stand.connect().await);
    }
    let answered = async {
        assert_eq!(stand.get("/v1/servers").await.status, StatusCode::OK);
        assert_eq!(stand.probe("/livez").await.status, StatusCode::OK);
    };
    // Each of them may stay for half a minute if nobody needs its place.
    timeout(Duration::from_secs(20), answered).await.unwrap();
}

/// Nor does who asks all the time, on all connections that there may be.
#[tokio::test]
async fn connections_that_are_never_quiet_make_room() {
    have_descriptors();
    let stand = Stand::open().await;
    let asks = async |mut stream: TcpStream| {
        let mut answer = [0; 4096];
        while stream.write_all(b"GET /v1/servers HTTP/1.1\r\nhost: catalog\r\n\r\n").await.is_ok() {
            if !matches!(stream.read(&mut answer).await, Ok(1..)) {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let mut busy = JoinSet::new();
    for _ in 0..PLACES {
        let [api, _] = stand.connect().await;
        busy.spawn(asks(api));
    }
    let answered = timeout(Duration::from_secs(20), stand.get("/v1/servers")).await;
    assert_eq!(answered.expect("nobody makes room").status, StatusCode::OK);
    // Those that were told to go have found out by then.
    sleep(Duration::from_millis(500)).await;
    while busy.try_join_next().is_some() {}
    let gone = PLACES - busy.len();
    assert!(gone < PLACES / 20, "{gone} went, where one had to");
}

/// A slow reader gets all of its answer, also where others want its place. First to go is who never was given anything,
/// and then who had its answer longest ago.
#[tokio::test]
async fn an_answer_that_is_being_taken_is_not_cut_off() {
    // More than the system takes for a reader, who takes some of it now and then.
    const LARGE: usize = 32 << 20;
    const SOME: usize = LARGE / 2 / PLACES;
    have_descriptors();
    let router = Router::new()
        .route("/large", get(|| async { vec![b'x'; LARGE] }))
        .route("/small", get(|| async { "ok" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(Port::over(listener, router).serve(stop.clone()));
    let ask = async |stream: &mut TcpStream, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: catalog\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.map(|_| assert_eq!(&first, b"HTTP/1.1 200"))
    };
    let connect = async || TcpStream::connect(address).await.unwrap();
    let ends = async |mut stream: TcpStream| {
        let mut rest = Vec::new();
        timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await.expect("it goes on").unwrap();
    };

    let mut slow = connect().await;
    ask(&mut slow, "/large").await.unwrap();
    let mut others = std::collections::VecDeque::new();
    for _ in 1..PLACES {
        let mut other = connect().await;
        ask(&mut other, "/small").await.unwrap();
        others.push_back(other);
        slow.read_exact(&mut [0; SOME]).await.unwrap();
    }
    let mut late = connect().await;
    ask(&mut late, "/small").await.unwrap();
    ends(others.pop_front().unwrap()).await;
    let silent = connect().await;
    ends(others.pop_front().unwrap()).await;
    ask(&mut connect().await, "/small").await.unwrap();
    ends(silent).await;

    let mut left = vec![0; LARGE - SOME * (PLACES - 1)];
    slow.read_exact(&mut left).await.unwrap();
    assert!(left.ends_with(b"xxx"));
    stop.cancel();
}

/// A tenant that takes all that it can get leaves the others what they have, through every change of it.
#[tokio::test]
async fn a_tenant_that_fills_the_room_costs_the_others_nothing() {
    let mut stand = Stand::open().await;
    stand.reader = Reader::new(1 << 20, 100);
    let many: Vec<_> = (0..100).map(|n| tool(&format!("tool-{n}"), "one of many")).collect();
    stand.serve("honest", "demo", About::default(), &many[..20]).await;
    for name in ["one", "two", "three"] {
        stand.serve("hostile", name, About::default(), &many).await;
    }
    let hostile = stand.json("/v1/tools?namespace=hostile").await;
    assert_eq!(hostile["total"], 50, "half of the room");
    stand.serve("others", "demo", About::default(), &many).await;
    let key = record("honest", "demo", About::default()).key;
    let mut list = many[..20].to_vec();
    for round in 0..3 {
        // Another pod of it says the same, and a third one has not heard its server yet.
        stand.serve("honest", "demo", About::default(), &list).await;
        let mut starting = inventory(&[]);
        starting["server"] = json!(null);
        let _starting = stand.reader.read(&key, starting.to_string().as_bytes()).unwrap();
        list[0] = tool("changed", &format!("round {round}"));
        stand.serve("honest", "demo", About::default(), &list).await;
        let honest = stand.json("/v1/servers/honest/demo").await;
        assert_eq!((&honest["tools"], &honest["toolsLeftOut"]), (&json!(20), &json!(0)), "{round}");
    }
}

/// A tenant with more words than anybody can remember leaves the others theirs.
#[tokio::test]
async fn a_tenant_that_is_found_by_every_word_keeps_nobody_else_from_being_found() {
    const TOOLS: u32 = 120;
    let stand = Stand::open().await;
    let mut number = 0;
    let mut words = |count: u32| -> Vec<String> {
        number += count;
        (number - count..number).map(|number| format!("w{number:05x}")).collect()
    };
    // One server is found by 30,000 words, and all together by 400,000.
    for server in 0..14 {
        let tools: Vec<_> = (0..TOOLS)
            .map(|tool| {
                let properties: serde_json::Map<_, _> =
                    words(64).into_iter().map(|word| (word, json!({}))).collect();
                json!({
                    "name": format!("tool-{tool}"), "title": words(32).join(" "), "description": words(160).join(" "),
                    "inputSchema": {"type": "object", "properties": properties},
                })
            })
            .collect();
        stand.serve("hostile", &format!("server-{server}"), About::default(), &tools).await;
    }
    stand.serve("honest", "demo", About::default(), &[tool("transmogrify", "Turns it into a tiger")]).await;
    assert_eq!(names(&stand.json("/v1/tools?q=tiger").await), ["transmogrify"]);
    let left_out =
        async |server: &str| stand.json(&format!("/v1/servers/{server}")).await["wordsLeftOut"].take();
    assert_eq!(left_out("honest/demo").await, 0);
    assert!(left_out("hostile/server-13").await.as_u64().unwrap() > 10_000);
}

/// What a server is not found by is counted, also where nobody but itself has taken the room.
#[tokio::test]
async fn a_server_with_too_many_words_says_how_many_it_is_not_found_by() {
    const EACH: u32 = 150;
    let stand = Stand::open().await;
    let text = |tool: u32| (0..EACH).map(|word| format!("w{:05x} ", tool * EACH + word)).collect::<String>();
    // The last says what the first says.
    let tools: Vec<_> = (0..=201).map(|number| tool(&format!("n{number}"), &text(number % 201))).collect();
    stand.serve("a", "wordy", About::default(), &tools).await;
    // 201 descriptions with words of their own, one of them twice; the names, and the server's; and room for 30,000.
    let server = stand.json("/v1/servers/a/wordy").await;
    assert_eq!((&server["tools"], &server["wordsLeftOut"]), (&json!(202), &json!(150 + 202 + 2)));
}

/// What a server says in between is not read, what it says at last is; and the others do not wait for it.
#[tokio::test]
async fn a_server_that_never_settles_costs_the_others_nothing() {
    let stand = Stand::open().await;
    let began = std::time::Instant::now();
    let many: Vec<_> = (0..500).map(|n| tool(&format!("tool-{n}"), "one of many words")).collect();
    for round in 0..300 {
        let mut restless = record("a", "restless", About::default());
        let mut tools = many.clone();
        tools.push(tool(&format!("round-{round}"), "x"));
        let json = inventory(&tools).to_string();
        restless.offer = Some(Arc::new(stand.reader.read(&restless.key, json.as_bytes()).unwrap()));
        stand.catalog.upsert(restless);
        if round == 100 {
            stand.serve("a", "calm", About::default(), &[tool("echo", "x")]).await;
            assert_eq!(names(&stand.json("/v1/tools?q=echo").await), ["echo"]);
        }
    }
    stand.catalog.caught_up().await;
    assert_eq!(names(&stand.json("/v1/tools?q=round").await), ["round-299"]);
    let indexed = readings(&stand.catalog);
    // One reading in a tenth of a second, and those of the calm server and of the first word.
    let most = 3 + began.elapsed().as_millis() / 100;
    assert!(indexed <= most, "{indexed} readings, where {most} were due");
}

/// Nor is it read more often for what it says while it is read.
#[tokio::test(start_paused = true)]
async fn what_comes_during_a_reading_waits_its_time() {
    let (catalog, indexer) = Catalog::new(Metrics::new().unwrap());
    let indexing = tokio::spawn(indexer.run());
    let reader = Reader::default();
    let mut says = 0;
    for _ in 0..1000 {
        for _ in 0..10 {
            let mut restless = record("a", "restless", About::default());
            says += 1;
            let json = inventory(&[tool(&format!("tool-{says}"), "x")]).to_string();
            restless.offer = Some(Arc::new(reader.read(&restless.key, json.as_bytes()).unwrap()));
            catalog.upsert(restless);
            yield_now().await;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let indexed = readings(&catalog);
    assert!((9..=11).contains(&indexed), "{indexed} readings in a second");
    indexing.abort();
}

/// How often the words of servers were read.
fn readings(catalog: &Catalog) -> u128 {
    let metrics = catalog.metrics().text().unwrap();
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("longshore_catalog_indexing_duration_seconds_count "));
    count.unwrap().parse().unwrap()
}

fn have_descriptors() {
    let mut descriptors = getrlimit(Resource::Nofile);
    descriptors.current = descriptors.maximum;
    setrlimit(Resource::Nofile, descriptors).unwrap();
}
