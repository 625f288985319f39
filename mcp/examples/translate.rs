//! The crate's tour: a proxy that starts a server of one revision and serves it to one client of another, over stdin and
//! stdout.
//!
//! ```text
//! cargo run -p longshore-mcp --example translate -- 2025-06-18 2026-07-28 \
//!     longshore example-server --revision 2026-07-28 --transport stdio
//! ```
//!
//! Ids and progress tokens stay what they are, since nobody else is on this connection; `ids` is for clients that share one.
//! What is a conversation on one of the two sides is left out: batches (`batch`), log messages (`logging`), subscriptions
//! (`listen`), and what servers ask of clients (`parked`, `rounds`). So neither side is told that it is there.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the crate does no I/O, so who uses it has to"
)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use longshore_mcp::detect::{self, Mistake, Wrong};
use longshore_mcp::envelope::{self, Id, Message, Outcome, Request, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::initialize;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::Method;
use longshore_mcp::object::{self, Object};
use longshore_mcp::probe::{self, Verdict};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::translate::destination::{self, Destination};
use longshore_mcp::translate::notifications::{self, Told};
use longshore_mcp::translate::requests::{self, Client};
use longshore_mcp::translate::responses::{self, Answer, Asked};
use longshore_mcp::translate::results::Hints;
use longshore_mcp::translate::{Pair, handshake, questions, tools};

type Failure = Box<dyn Error + Send + Sync>;

/// What servers hear of the client: they are greeted before it says who it is, and can ask it for nothing.
const CLIENT: Client<'_> = Client { capabilities: "{}", info: None, level: None };

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, server, program, rest @ ..] = arguments.as_slice() else {
        return Err("usage: translate REVISION-OF-CLIENT REVISION-OF-SERVER PROGRAM [ARGUMENT...]".into());
    };
    let revision = |name: &str| Revision::parse(name).ok_or("there is no such revision");
    let pair = Pair { client: revision(client)?, server: revision(server)? };
    let mut server = Command::new(program).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let served = serve(pair, &mut server, io::stdin(), io::stdout());
    server.wait()?;
    served
}

/// Whom a line is from, or for.
#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

/// Serves the server to the client until it ends: it hears that the client has gone by the end of its stdin.
pub(crate) fn serve(
    pair: Pair,
    server: &mut Child,
    client: impl Read + Send + 'static,
    mut answers: impl Write,
) -> Result<(), Failure> {
    let mut input = server.stdin.take().ok_or("the server has no stdin")?;
    let output = server.stdout.take().ok_or("the server has no stdout")?;
    let (tell, heard) = channel();
    read(Side::Server, output, tell.clone());

    writeln!(input, "{}", greeting(pair)?)?;
    let mut lines = heard.iter().map_while(|(_, line)| line);
    let answer =
        lines.find(|line| matches!(envelope::read_servers(line.as_bytes()), Ok(Message::Response(_))));
    let hello = hello(pair, &answer.ok_or("the server does not answer")?)?;
    if pair.eras() == (Era::Modern, Era::Legacy) {
        // A legacy client says that itself.
        writeln!(input, "{}", handshake::INITIALIZED)?;
    }

    read(Side::Client, client, tell);
    let mut proxy = Proxy { pair, hello, calls: Vec::new(), wrapped: HashMap::new() };
    let mut input = Some(input);
    loop {
        let said = match heard.recv()? {
            (Side::Client, Some(line)) => proxy.client_says(&line),
            (Side::Server, Some(line)) => proxy.server_says(&line),
            (Side::Client, None) => {
                input = None;
                None
            }
            (Side::Server, None) => return Ok(()),
        };
        match (said, &mut input) {
            (Some((Side::Client, line)), _) => writeln!(answers, "{line}")?,
            // One that does not read any more ends, which comes next.
            (Some((Side::Server, line)), Some(input)) => drop(writeln!(input, "{line}")),
            _ => {}
        }
    }
}

/// Has a thread tell of each line of a side, and of its end. What is no text is told as an empty line: it is no message
/// either.
fn read(side: Side, from: impl Read + Send + 'static, tell: Sender<(Side, Option<String>)>) {
    let lines = BufReader::new(from).split(b'\n').map_while(Result::ok);
    let mut lines = lines.map(|line| Some(String::from_utf8(line).unwrap_or_default())).chain([None]);
    std::thread::spawn(move || lines.try_for_each(|line| tell.send((side, line))));
}

/// How a conversation with the server begins.
fn greeting(pair: Pair) -> Result<String, Failure> {
    Ok(match pair.server.era() {
        Era::Legacy => handshake::greet("0", pair.up(), &CLIENT)?,
        Era::Modern => handshake::discover("0", pair.server, &CLIENT),
    })
}

/// What the client hears when it begins one, made of what the server answered.
fn hello(pair: Pair, answer: &str) -> Result<String, Failure> {
    let (way, result) = (pair.down(), object::at(answer, &["result"]).unwrap_or("{}"));
    let speaks_it = match pair.server.era() {
        Era::Legacy => initialize::chosen(result) == Some(pair.server),
        Era::Modern => probe::over_stdio(Some(answer)) == Verdict::Modern(pair.server),
    };
    if !speaks_it {
        return Err(format!("the server does not speak revision {} of MCP", pair.server).into());
    }
    let hello = match pair.eras() {
        (Era::Legacy, Era::Legacy) => handshake::accept(way, result)?.into_owned(),
        (Era::Legacy, Era::Modern) => handshake::initialized(way, result)?,
        (Era::Modern, _) => handshake::discovered(way, result, &[pair.client], &Hints::default())?,
    };
    // Calls and lists are served here, and no news of them.
    let mut offered = Object::empty();
    for name in ["tools", "prompts", "resources", "completions"] {
        if object::at(&hello, &["capabilities", name]).is_some() {
            offered.set(name, "{}".to_owned());
        }
    }
    let mut hello = Object::read(&hello)?;
    hello.set("capabilities", offered.write());
    Ok(hello.write())
}

/// What there is to know of the two sides.
struct Proxy {
    pair: Pair,
    /// The result of the client's handshake.
    hello: String,
    /// The requests that the server has not answered.
    calls: Vec<Call>,
    /// The tools, and whether their structured results become members of objects.
    wrapped: HashMap<String, bool>,
}

/// What the response to a request does not say.
struct Call {
    id: String,
    method: Option<Method>,
    /// Of the tool, or the URI of the resource.
    name: Option<String>,
}

impl Proxy {
    /// Takes a line of the client, and says which line comes of it, if any.
    fn client_says(&mut self, line: &str) -> Option<(Side, String)> {
        match envelope::read(line.as_bytes()) {
            Ok(Message::Request(request)) => {
                Some(self.request(&request, line).unwrap_or_else(|refusal| (Side::Client, refusal)))
            }
            Ok(Message::Notification(told)) => {
                match notifications::to_server(self.pair, &told.method, line) {
                    Told::On(text) => Some((Side::Server, text.into_owned())),
                    Told::Cancels => Some((Side::Server, line.to_owned())),
                    Told::Subscriptions | Told::Log(_) | Told::Nowhere => None,
                }
            }
            // Nobody has asked it anything.
            Ok(Message::Response(_)) => None,
            Err(malformed) => {
                let revision = self.pair.client;
                let mistake = Mistake { wrong: Wrong::Body(malformed.into()), id: None, revision };
                revision.features().errors_without_id.then(|| (Side::Client, mistake.response()))
            }
        }
    }

    /// The same of the server's.
    fn server_says(&mut self, line: &str) -> Option<(Side, String)> {
        match envelope::read_servers(line.as_bytes()) {
            Ok(Message::Request(asked)) => {
                let refusal = questions::outside_of_calls(self.pair.down(), asked.id, &asked.method);
                Some((Side::Server, refusal))
            }
            Ok(Message::Notification(told)) => {
                match notifications::to_client(self.pair, &told.method, line) {
                    Ok(Told::On(text)) => Some((Side::Client, text.into_owned())),
                    _ => None,
                }
            }
            Ok(Message::Response(response)) => Some((Side::Client, self.response(&response, line)?)),
            // Servers print other things too.
            Err(_) => None,
        }
    }

    /// A request goes on, or is answered here. `Err` is an answer too.
    fn request(&mut self, request: &Request<'_>, line: &str) -> Result<(Side, String), String> {
        let (pair, id) = (self.pair, request.id);
        let refuse = |code, why: &str| error::response(Some(id), code, why, None);
        if pair.client.era() == Era::Modern {
            detect::without_headers(request.clone(), &[pair.client]).map_err(|wrong| wrong.response())?;
        }
        match destination::of(pair, &request.method) {
            Destination::Server => {
                let method = Method::of(pair.client, &request.method);
                let sent = requests::request(pair, method, line, &CLIENT)
                    .map_err(|why| refuse(Code::InvalidParams, &why.to_string()))?
                    .into_owned();
                let outline = Outline::read(request.params).unwrap_or_default();
                let name = method.and_then(|method| outline.name(method.subject()));
                let name = name.map(|name| name.into_owned());
                self.calls.push(Call { id: id.as_json().to_owned(), method, name });
                Ok((Side::Server, sent))
            }
            Destination::Handshake => Ok((Side::Client, success(id, &self.hello))),
            Destination::Empty => Ok((Side::Client, success(id, "{}"))),
            Destination::Level | Destination::Subscription | Destination::Listen | Destination::Unknown => {
                Err(refuse(Code::MethodNotFound, "Method not found"))
            }
        }
    }

    /// The answer to a request, as the client reads it. `None` if nobody waits for it.
    fn response(&mut self, response: &Response<'_>, line: &str) -> Option<String> {
        let at = self.calls.iter().position(|call| response.answers(&call.id))?;
        let Call { id, method, name } = self.calls.swap_remove(at);
        if let (Some(Method::ToolsList), Outcome::Result(list)) = (method, &response.outcome) {
            let tools = tools::called(list.get());
            self.wrapped.extend(tools.map(|(name, tool)| (name, tool.wrapped)));
        }
        let uri = name.as_deref().filter(|_| method == Some(Method::ResourcesRead));
        let wrapped = name.as_ref().and_then(|name| self.wrapped.get(name)).copied();
        let (asked, hints) = (Asked { id: &id, method, uri }, Hints { wrapped, ..Hints::default() });
        let fail = |why: &str| error::response(Some(Id::from_json(&id)), Code::InternalError, why, None);
        Some(match responses::response(self.pair, &asked, response, line, &hints) {
            Ok(Answer::Message(text)) => text.into_owned(),
            Ok(Answer::InputRequired(_) | Answer::Visit(_)) => fail("the server asks, and nobody answers"),
            Err(why) => fail(&why.to_string()),
        })
    }
}

fn success(id: Id<'_>, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.as_json())
}
