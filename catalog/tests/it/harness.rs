//! A catalog that serves, and a client that asks it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use longshore_catalog::http::Port;
use longshore_catalog::model::{Health, State};
use longshore_catalog::{About, Catalog, Endpoint, Hosts, Login, Metrics, Reader, ServerKey, ServerRecord};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A catalog with its ports. Everything ends with it.
pub(crate) struct Stand {
    pub(crate) catalog: Catalog,
    pub(crate) reader: Reader,
    api: SocketAddr,
    probes: SocketAddr,
    stop: CancellationToken,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Stand {
    pub(crate) async fn open() -> Self {
        Self::with(Login::OpenBy(Hosts::default())).await
    }

    pub(crate) async fn with(login: Login) -> Self {
        let stand = Self::starting(login).await;
        stand.catalog.set_complete();
        stand
    }

    /// One that has not heard yet which servers there are.
    pub(crate) async fn starting(login: Login) -> Self {
        let (catalog, indexer) = Catalog::new(Metrics::new().unwrap());
        tokio::spawn(async move {
            let Err(error) = indexer.run().await;
            panic!("{error}")
        });
        Self::of(catalog, login).await
    }

    /// One that never comes to read what servers are found by.
    pub(crate) async fn unread() -> Self {
        let (catalog, _) = Catalog::new(Metrics::new().unwrap());
        catalog.set_complete();
        Self::of(catalog, Login::OpenBy(Hosts::default())).await
    }

    async fn of(catalog: Catalog, login: Login) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let api = Port::api(any, catalog.clone(), login).await.unwrap();
        let probes = Port::probes(any, catalog.clone()).await.unwrap();
        let stop = CancellationToken::new();
        let stand = Self {
            catalog,
            reader: Reader::default(),
            api: api.address().unwrap(),
            probes: probes.address().unwrap(),
            stop: stop.clone(),
        };
        tokio::spawn(api.serve(stop.clone()));
        tokio::spawn(probes.serve(stop));
        stand
    }

    /// Feeds a server that is up, and waits until its tools are found.
    pub(crate) async fn serve(&self, namespace: &str, name: &str, about: About, tools: &[Value]) {
        self.feed(record(namespace, name, about), Some(tools)).await;
    }

    /// Feeds a record with these tools, or with nothing new of them, and waits until they are found.
    pub(crate) async fn feed(&self, record: ServerRecord, tools: Option<&[Value]>) {
        self.tell(record, tools);
        timeout(Duration::from_secs(60), self.catalog.caught_up()).await.unwrap();
    }

    /// Feeds a record with these tools, or with nothing new of them.
    pub(crate) fn tell(&self, mut record: ServerRecord, tools: Option<&[Value]>) {
        if let Some(tools) = tools {
            let inventory = inventory(tools).to_string();
            record.offer = Some(Arc::new(self.reader.read(&record.key, inventory.as_bytes()).unwrap()));
        }
        self.catalog.upsert(record);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[]).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {:?}", answer.body);
        answer.json()
    }

    pub(crate) async fn probe(&self, path: &str) -> Answer {
        ask(self.probes, Method::GET, path, &[]).await
    }

    /// Connections to both ports.
    pub(crate) async fn connect(&self) -> [TcpStream; 2] {
        [TcpStream::connect(self.api).await.unwrap(), TcpStream::connect(self.probes).await.unwrap()]
    }

    /// By this name of the catalog.
    pub(crate) async fn get_of(&self, host: &str, path: &str) -> Answer {
        ask_host(self.api, host, Method::GET, path, &[]).await
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(self.api, method, path, headers).await
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Checks that it is an error as RFC 9457 has it, and returns what it says.
    pub(crate) fn problem(&self, status: u16) -> String {
        let problem = self.json();
        assert_eq!(self.status.as_u16(), status, "{problem}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!((&problem["type"], &problem["status"]), (&json!("about:blank"), &json!(status)));
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
        problem["detail"].as_str().unwrap().to_owned()
    }
}

/// The names of a list's entries.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

/// A server that is up, of which nothing else is known.
pub(crate) fn record(namespace: &str, name: &str, about: About) -> ServerRecord {
    ServerRecord {
        key: ServerKey { namespace: namespace.to_owned(), name: name.to_owned() },
        about,
        endpoint: Endpoint {
            url: Some(format!("http://{name}.{namespace}.svc/mcp")),
            public_url: None,
            auth: vec!["apiKeys".to_owned()],
        },
        health: Health {
            state: State::Up,
            since: Some("2026-01-01T00:00:00Z".to_owned()),
            reason: String::new(),
            message: String::new(),
        },
        offer: None,
        known_tools: vec![],
        known_tools_left_out: 0,
    }
}

/// What a sidecar says of a server with these tools.
pub(crate) fn inventory(tools: &[Value]) -> Value {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    Value::from(tools).to_string().hash(&mut hasher);
    json!({
        "config": {"digest": "sha256:c", "generation": 1, "error": null},
        "phase": "Serving",
        "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
        "server": {"info": {"name": "demo", "version": "1"}, "protocolVersion": "2025-11-25",
                   "capabilities": {}, "instructions": null},
        "tools": tools, "hiddenTools": 0, "toolsDigest": format!("sha256:{:x}", hasher.finish()),
        "prompts": [], "resources": [], "resourceTemplates": [], "exposed": [],
    })
}

/// A tool with a name and a description.
pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

async fn ask(address: SocketAddr, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask_host(address, "localhost", method, path, headers).await
}

async fn ask_host(
    address: SocketAddr,
    host: &str,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    Answer { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
}
