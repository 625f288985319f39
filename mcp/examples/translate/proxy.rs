//! What becomes of each message between one client and one server of another revision.
//!
//! Ids and progress tokens stay what they are, since nobody else is on this connection; `ids` is for clients that share one.
//! What is a conversation on one of the two sides is left out: batches (`batch`), log messages (`logging`), subscriptions
//! (`listen`), and what servers ask of clients (`parked`, `rounds`). So neither side is told that it is there.

use std::collections::HashMap;
use std::error::Error;

use longshore_mcp::detect::{self, Mistake, Wrong};
use longshore_mcp::envelope::{self, Id, Message, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::initialize;
use longshore_mcp::lines;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::{Method, Subject};
use longshore_mcp::object::{self, Object};
use longshore_mcp::probe::{self, Verdict};
use longshore_mcp::revision::Era;
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::responses::{self, Answer, Asked};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, handshake, names, questions, tools};

/// Why there is no proxy, or no answer.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// Whom a line is from, or for.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A request that the server has not answered: what its response does not say.
struct Call {
    id: String,
    method: Option<Method>,
    tool: Option<String>,
    uri: Option<String>,
}

/// What is known of both sides.
pub(crate) struct Proxy {
    pair: Pair,
    calls: Vec<Call>,
    /// Who the client is, which a modern server is told with each request.
    info: Option<String>,
    /// What a modern client has sent before its server was greeted for it, until then.
    early: Option<Vec<String>>,
    /// The answer to its `server/discover` that came of that, but for the id.
    discovered: String,
    /// The tools, and whether their structured results become members of objects.
    wrapped: HashMap<String, bool>,
    /// The lines to write.
    pub(crate) out: Vec<(Side, String)>,
}

impl Proxy {
    pub(crate) fn new(pair: Pair) -> Result<Self, Failure> {
        let (calls, info, early, discovered) = (Vec::new(), None, None, String::new());
        let (wrapped, out) = (HashMap::new(), Vec::new());
        let mut proxy = Self { pair, calls, info, early, discovered, wrapped, out };
        if pair.eras() == (Era::Modern, Era::Legacy) {
            proxy.early = Some(Vec::new());
            proxy.greet("\"greeting\"")?;
        }
        Ok(proxy)
    }

    /// Whether the client has to wait, since the server has not been greeted.
    pub(crate) fn is_greeting(&self) -> bool {
        self.early.is_some()
    }

    /// Takes a line of the client.
    pub(crate) fn client_says(&mut self, line: &str) {
        if let Some(early) = &mut self.early {
            early.push(line.to_owned());
            return;
        }
        let told = match envelope::read(line.as_bytes()) {
            Ok(Message::Request(request)) => {
                if let Err(refusal) = self.request(&request, line) {
                    self.send(Side::Client, &refusal);
                }
                return;
            }
            Ok(Message::Notification(told)) => notifications::to_server(self.pair, &told.method, line),
            // Nobody has asked the client anything.
            Ok(Message::Response(_)) => Told::Nowhere,
            Err(malformed) => {
                let revision = self.pair.client;
                let mistake = Mistake { wrong: Wrong::Body(malformed.into()), id: None, revision };
                if revision.features().errors_without_id {
                    self.send(Side::Client, &mistake.response());
                }
                return;
            }
        };
        match told {
            Told::On(text) => self.send(Side::Server, &text),
            // Under another id, where the server knows the request by one: `names`.
            Told::Cancels => self.send(Side::Server, line),
            Told::Subscriptions | Told::Log(_) | Told::Nowhere => {}
        }
    }

    /// Takes a line of the server.
    pub(crate) fn server_says(&mut self, line: &str) {
        match envelope::read_servers(line.as_bytes()) {
            Ok(Message::Request(asked)) => {
                let text = questions::outside_of_calls(self.pair.down(), asked.id, &asked.method);
                self.send(Side::Server, &text);
            }
            Ok(Message::Notification(told)) => {
                if let Ok(Told::On(text)) = notifications::to_client(self.pair, &told.method, line) {
                    self.send(Side::Client, &text);
                }
            }
            Ok(Message::Response(response)) => self.respond(&response, line),
            // Servers print other things too.
            Err(_) => {}
        }
    }

    /// Answers a request of the client, or passes it on. `Err` is the error response.
    fn request(&mut self, request: &Request<'_>, line: &str) -> Result<(), String> {
        let (pair, id) = (self.pair, request.id.as_json());
        let refuse = |code, why: &str| error::response(Some(request.id), code, why, None);
        let invalid = |why: &dyn Error| refuse(Code::InvalidParams, &why.to_string());
        if pair.client.era() == Era::Modern {
            detect::without_headers(request.clone(), &[pair.client]).map_err(|wrong| wrong.response())?;
        }
        match destination::of(pair, &request.method) {
            Destination::Server => {
                let method = Method::of(pair.client, &request.method);
                let sent = requests::request(pair, method, line, &self.client());
                let sent = sent.map_err(|error| invalid(&error))?;
                let outline = Outline::read(request.params).map_err(|error| invalid(&error))?;
                let name = |subject| outline.name(subject).map(|name| name.into_owned());
                let (tool, uri) = (name(Subject::Tool), name(Subject::Resource));
                self.calls.push(Call { id: id.to_owned(), method, tool, uri });
                self.send(Side::Server, &sent);
            }
            Destination::Handshake if pair.client.era() == Era::Modern => {
                let found = names::with_id(&self.discovered, id).map_err(|error| invalid(&error))?;
                let found = found.into_owned();
                self.send(Side::Client, &found);
            }
            Destination::Handshake => {
                let info = request.params.and_then(|params| object::at(params.get(), &["clientInfo"]));
                self.info = info.map(str::to_owned);
                self.greet(id).map_err(|error| refuse(Code::InternalError, &error.to_string()))?;
            }
            Destination::Empty => self.send(Side::Client, &done(id, "{}")),
            Destination::Level | Destination::Subscription | Destination::Listen | Destination::Unknown => {
                return Err(refuse(Code::MethodNotFound, "Method not found"));
            }
        }
        Ok(())
    }

    /// Begins with the server, on behalf of whoever waits under this id.
    fn greet(&mut self, id: &str) -> Result<(), Failure> {
        let greeting = match self.pair.server.era() {
            Era::Legacy => handshake::greet(id, self.pair.up(), &self.client())?,
            Era::Modern => handshake::discover(id, self.pair.server, &self.client()),
        };
        let id = id.to_owned();
        self.calls.push(Call { id, method: Some(Method::Initialize), tool: None, uri: None });
        self.send(Side::Server, &greeting);
        Ok(())
    }

    /// What the server hears of the client: nothing that it could ask for.
    fn client(&self) -> Client<'_> {
        Client { capabilities: "{}", info: self.info.as_deref(), level: None }
    }

    /// Passes on what the server answers, if anybody waits for it.
    fn respond(&mut self, response: &Response<'_>, line: &str) {
        let Some(at) = self.calls.iter().position(|call| response.answers(&call.id)) else { return };
        let call = self.calls.swap_remove(at);
        let answer = match &response.outcome {
            Outcome::Result(result) if call.method == Some(Method::Initialize) => {
                self.greeted(result.get(), line).map(|result| done(&call.id, &result))
            }
            _ => self.answer(&call, response, line),
        };
        let answer = answer.unwrap_or_else(|why| {
            error::response(Some(Id::from_json(&call.id)), Code::InternalError, &why.to_string(), None)
        });
        let Some(early) = self.early.take() else {
            self.send(Side::Client, &answer);
            return;
        };
        self.discovered = answer;
        for line in early {
            self.client_says(&line);
        }
    }

    /// What comes of the server's own handshake: the result of the client's.
    fn greeted(&mut self, result: &str, line: &str) -> Result<String, Failure> {
        let (pair, way) = (self.pair, self.pair.down());
        let speaks_it = match pair.server.era() {
            Era::Legacy => initialize::chosen(result) == Some(pair.server),
            Era::Modern => probe::over_stdio(Some(line)) == Verdict::Modern(pair.server),
        };
        if !speaks_it {
            return Err(format!("the server does not speak revision {} of MCP", pair.server).into());
        }
        offered(&match pair.eras() {
            (Era::Legacy, Era::Legacy) => handshake::accept(way, result)?.into_owned(),
            (Era::Legacy, Era::Modern) => handshake::initialized(way, result)?,
            (Era::Modern, _) => {
                self.send(Side::Server, handshake::INITIALIZED);
                handshake::discovered(way, result, &[pair.client], &Hints::default())?
            }
        })
    }

    /// Any other answer, as its client reads it.
    fn answer(&mut self, call: &Call, response: &Response<'_>, line: &str) -> Result<String, Failure> {
        if let (Some(Method::ToolsList), Outcome::Result(result)) = (call.method, &response.outcome) {
            self.wrapped
                .extend(tools::called(result.get()).into_iter().map(|(name, tool)| (name, tool.wrapped)));
        }
        let asked = Asked { id: &call.id, method: call.method, uri: call.uri.as_deref() };
        let wrapped = call.tool.as_ref().and_then(|tool| self.wrapped.get(tool)).copied();
        let hints = Hints { wrapped, ..Hints::default() };
        match responses::response(self.pair, &asked, response, line, &hints)? {
            Answer::Message(text) => Ok(text.into_owned()),
            Answer::InputRequired(_) | Answer::Visit(_) => Err("the server asks, and nobody answers".into()),
        }
    }

    fn send(&mut self, to: Side, message: &str) {
        self.out.push((to, lines::line(message).into_owned()));
    }
}

/// A response with a result, both as JSON.
fn done(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The result of a handshake that offers what is kept here: calls and lists, and no news of them.
fn offered(result: &str) -> Result<String, Failure> {
    let mut kept = Object::empty();
    for name in ["tools", "prompts", "resources", "completions"] {
        if object::at(result, &["capabilities", name]).is_some() {
            kept.set(name, "{}".to_owned());
        }
    }
    let mut result = Object::read(result)?;
    result.set("capabilities", kept.write());
    Ok(result.write())
}
