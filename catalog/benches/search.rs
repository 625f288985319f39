//! How fast the catalog searches 10,000 tools, and what they cost: `cargo bench -p longshore-catalog --bench search`. With
//! words behind `--` only those fleets that have one of them in their names.
//!
//! Two corpora of 1,000 servers with ten tools each: ordinary descriptions, and hostile ones, of 4 KiB of words that
//! nobody else has and with a schema of 1 MB each. Another has nearly as many tools as there may be, with descriptions as
//! long as there is room for. Each query has one to four words of the corpus, of which the last is cut as somebody types it.
//! They are asked again with a letter of the first word wrong. A last one has 300,000 words that are nearly what is typed:
//! by a letter, or by their ends.
//! Beside the time on the clock stands the time on the processor, which is what counts on a machine that others use too.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "figures are printed, and a bench that fails is to stop"
)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_catalog::http::Port;
use longshore_catalog::model::{Health, State};
use longshore_catalog::{
    About, Catalog, Endpoint, Hosts, Login, Metrics, Offer, Page, Reader, ServerKey, ServerRecord,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

const SERVERS: usize = 1000;
const TOOLS: usize = 10;
const QUERIES: usize = 5000;
/// What is typed where many words are nearly the same.
const TYPED: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";

/// Xorshift: the same corpus each time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }

    /// A word of a language of 4,000, some much more usual than others.
    fn word(&mut self) -> String {
        let part = self.next(1_000_000) as f64 / 1e6;
        spell(4000_f64.powf(part) as u64)
    }

    fn words(&mut self, count: u64) -> String {
        (0..count).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

/// A number as letters.
fn spell(mut number: u64) -> String {
    let mut word = String::from("w");
    for _ in 0..4 {
        let letter = b'a' + u8::try_from(number % 16).unwrap();
        word.push(char::from(letter));
        number /= 16;
    }
    word
}

fn ordinary(random: &mut Random) -> String {
    let mut properties = String::new();
    for _ in 0..5 {
        let _ = write!(
            properties,
            "\"{}\":{{\"type\":\"string\",\"description\":\"{}\"}},",
            random.word(),
            random.words(8)
        );
    }
    properties.pop();
    format!(
        "{{\"name\":\"{}_{}\",\"description\":\"{}\",\"inputSchema\":{{\"type\":\"object\",\"properties\":{{{properties}}}}}}}",
        random.words(2).replace(' ', "_"),
        random.next(1 << 40),
        random.words(25),
    )
}

fn hostile(random: &mut Random, schema: &str) -> String {
    let mut text = String::new();
    while text.len() < 5000 {
        let _ = write!(text, "{}{} \u{202e}<script>", random.word(), random.next(1 << 40));
    }
    format!(
        "{{\"name\":\"tool_{}\",\"title\":\"{text}\",\"description\":\"{text}\",\"inputSchema\":{schema}}}",
        random.next(1 << 40)
    )
}

fn wordy(random: &mut Random) -> String {
    format!("{{\"name\":\"tool_{}\",\"description\":\"{}\"}}", random.next(1 << 40), random.words(130))
}

fn nearly_the_same(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..90 {
        let mut word = TYPED.to_owned();
        if random.next(2) == 0 {
            // A letter of a script that has very many, before another or in its place.
            let letter = char::from_u32(0xa000 + u32::try_from(random.next(1165)).unwrap()).unwrap();
            let at = place(random);
            let end = at + usize::try_from(random.next(2)).unwrap();
            word.replace_range(at..end, letter.encode_utf8(&mut [0; 4]));
        } else {
            word.truncate(TYPED.len() / 2);
            while word.len() < TYPED.len() {
                word.push(char::from(b'a' + u8::try_from(random.next(26)).unwrap()));
            }
        }
        let _ = write!(text, "{word} ");
    }
    format!("{{\"name\":\"tool_{}\",\"description\":\"{text}\"}}", random.next(1 << 40))
}

/// That of a letter of [`TYPED`].
fn place(random: &mut Random) -> usize {
    usize::try_from(random.next(TYPED.len() as u64)).unwrap()
}

fn inventory(tools: &[String]) -> String {
    format!(
        "{{\"phase\":\"Serving\",\"connection\":{{\"state\":\"Connected\",\"since\":\"2026-01-01T00:00:00Z\",\"reason\":null,\
         \"message\":\"\"}},\"server\":{{\"info\":{{\"name\":\"x\"}},\"protocolVersion\":\"2025-11-25\"}},\"tools\":[{}],\
         \"toolsDigest\":\"x\"}}",
        tools.join(",")
    )
}

/// Resident memory, in MB.
fn resident() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / 1e6
}

/// How long this thread has been on a processor.
fn on_processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

fn percentiles(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() * part / 1000).min(times.len() - 1)].as_secs_f64() * 1e3;
    println!("  {what}: p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms", at(500), at(990), at(999));
}

fn record(key: ServerKey, offer: Arc<Offer>) -> ServerRecord {
    ServerRecord {
        about: About { owner: Some(key.namespace.clone()), ..About::default() },
        key,
        endpoint: Endpoint::default(),
        health: Health { state: State::Up, since: None, reason: String::new(), message: String::new() },
        offer: Some(offer),
        known_tools: vec![],
        known_tools_left_out: 0,
    }
}

/// One to four words, of which the last may go on.
fn usual_query(random: &mut Random) -> String {
    let count = 1 + random.next(4);
    let mut words = random.words(count);
    words.truncate(words.len() - usize::try_from(random.next(3)).unwrap());
    words
}

/// As many words as are forgiven, one of which very many differ from by a letter.
fn hostile_query(random: &mut Random) -> String {
    let mut query = TYPED.to_owned();
    for _ in 0..3 {
        let mut word = TYPED.to_owned();
        let at = place(random);
        word.replace_range(at..=at, "m");
        let _ = write!(query, " {word}");
    }
    query
}

fn queries(count: usize, query: impl Fn(&mut Random) -> String) -> Vec<String> {
    let mut random = Random(12_345_678_910_111_213);
    (0..count).map(|_| query(&mut random)).collect()
}

async fn measure(
    what: &str,
    tools: usize,
    queries: &[String],
    mut corpus: impl FnMut(&mut Random) -> String,
) {
    println!("{what}");
    let before = resident();
    let (catalog, indexer) = Catalog::new(Metrics::new().unwrap());
    catalog.set_complete();
    let indexing = tokio::spawn(indexer.run());
    let reader = Reader::default();
    let mut random = Random(88_172_645_463_325_252);
    let began = Instant::now();
    let mut reading = Duration::ZERO;
    for number in 0..SERVERS {
        let tools: Vec<String> = (0..tools).map(|_| corpus(&mut random)).collect();
        let json = inventory(&tools);
        drop(tools);
        let key = ServerKey { namespace: format!("team-{}", number % 50), name: format!("server-{number}") };
        let start = Instant::now();
        let offer = reader.read(&key, json.as_bytes()).unwrap();
        reading += start.elapsed();
        drop(json);
        catalog.upsert(record(key, Arc::new(offer)));
        // What is to be indexed is not to queue up behind what is read.
        tokio::task::yield_now().await;
    }
    let all = Page { limit: 1, ..Page::default() };
    catalog.caught_up().await;
    println!(
        "  {} tools listed, all of it read and indexed in {:.1} s, of which reading {:.1} s",
        catalog.list_tools(&all).total,
        began.elapsed().as_secs_f64(),
        reading.as_secs_f64()
    );
    println!("  resident: {:.0} MB, {:.0} MB before", resident(), before);

    search(&catalog, "search", queries);
    let slips: Vec<String> = queries.iter().map(|query| format!("{}z{}", &query[..2], &query[3..])).collect();
    search(&catalog, "search with a slip", &slips);
    over_http(catalog.clone(), queries).await;

    let mut random = Random(12_345_678_910_111_213);
    let mut times = Vec::new();
    for number in 0..200 {
        let mut tools: Vec<String> = (0..tools).map(|_| corpus(&mut random)).collect();
        tools.push(format!("{{\"name\":\"new-{number}\"}}"));
        let key = ServerKey { namespace: format!("team-{}", number % 50), name: format!("server-{number}") };
        let offer = Arc::new(reader.read(&key, inventory(&tools).as_bytes()).unwrap());
        let start = Instant::now();
        catalog.upsert(record(key, offer));
        catalog.caught_up().await;
        times.push(start.elapsed());
    }
    percentiles("a server's new tools to their being found, on the clock", times);
    indexing.abort();
}

fn search(catalog: &Catalog, what: &str, queries: &[String]) {
    let (mut clock, mut processor, mut found) = (Vec::new(), Vec::new(), 0);
    for query in queries {
        let page = Page { query: Some(query.clone()), limit: 50, ..Page::default() };
        let (start, start_processor) = (Instant::now(), on_processor());
        found += std::hint::black_box(catalog.list_tools(&page)).total;
        processor.push(on_processor() - start_processor);
        clock.push(start.elapsed());
    }
    println!("  {what}: {} found a query", found / queries.len());
    percentiles(&format!("{what}, on the clock"), clock);
    percentiles(&format!("{what}, on the processor"), processor);
}

/// The same over one connection that stays, with the answer written as JSON.
async fn over_http(catalog: Catalog, queries: &[String]) {
    let port =
        Port::api("127.0.0.1:0".parse().unwrap(), catalog, Login::OpenBy(Hosts::default())).await.unwrap();
    let mut stream = tokio::net::TcpStream::connect(port.address().unwrap()).await.unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(port.serve(stop.clone()));
    let mut times = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    for query in queries {
        let request = format!(
            "GET /v1/tools?limit=20&q={} HTTP/1.1\r\nhost: localhost\r\n\r\n",
            query.replace(' ', "+")
        );
        let start = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut read = 0;
        loop {
            read += stream.read(&mut buffer[read..]).await.unwrap();
            let Some(head) = buffer[..read].windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            let text = std::str::from_utf8(&buffer[..head]).unwrap().to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if read >= head + 4 + length.parse::<usize>().unwrap() {
                break;
            }
        }
        times.push(start.elapsed());
    }
    percentiles("search over HTTP, 20 tools a page, on the clock", times);
    stop.cancel();
    serving.await.unwrap();
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |what: &str| chosen.is_empty() || chosen.iter().any(|word| what.contains(word.as_str()));
    runtime.block_on(async {
        let usual = queries(QUERIES, usual_query);
        if wants("ordinary") {
            measure("ordinary", TOOLS, &usual, ordinary).await;
        }
        if wants("hostile") {
            let schema = format!("{{\"type\":\"object\",\"title\":\"{}\"}}", "x".repeat(1 << 20));
            measure("hostile", TOOLS, &usual, |random| hostile(random, &schema)).await;
        }
        let many = "nearly as many as there may be";
        if wants(many) {
            // Some room is left, for those that come. Each search takes as much longer as there are more tools.
            measure(many, 9 * TOOLS, &usual[..QUERIES / 10], wordy).await;
        }
        let same = "words that are nearly the same";
        if wants(same) {
            // Each takes long.
            measure(same, TOOLS / 2, &queries(QUERIES / 50, hostile_query), nearly_the_same).await;
        }
    });
}
