//! The Model Context Protocol as pure code: no I/O, no clock, no async runtime.
//!
//! Five revisions of the protocol are in use, in two eras: until 2025-11-25 a client and a server greet each other
//! and hold a session; since 2026-07-28 every request stands alone (the protocol is *stateless*). This crate knows what
//! a message of each of them looks like, and makes messages of one from messages of another, so that a proxy can join any
//! client to any server. *Era*, *legacy* and *modern* are words of the specification:
//! <https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning#terminology>. Modules name the pages that
//! they follow.
//!
//! Reading goes from the outside in, and borrows from the bytes that came:
//!
//! 1. [`headers`] judges what HTTP says of a message, [`lines`] what a line of stdout is;
//! 2. [`envelope`] tells requests, notifications and responses apart without looking into them, [`batch`] takes the
//!    arrays of 2025-03-26 apart, and [`meta`] reads what a request of 2026-07-28 says of itself;
//! 3. [`detect`] says which conversation an HTTP request belongs to, and exactly what is wrong with it if it belongs
//!    to none; [`session`] does the same within a session;
//! 4. [`method`] and [`params`] find what a request is about, which is what access is decided on, and
//!    [`capabilities`] what its client can do;
//! 5. [`revision`] names the five revisions and has one table of what each of them has.
//!
//! Writing goes the other way: [`error`] makes error responses, [`status`] knows the HTTP status that each of them
//! rides on, [`initialize`], [`listing`] and [`passing`] edit the few messages that may not pass as they are, [`pieces`]
//! one that is not whole, and [`sse`] frames them. Whatever is not edited keeps its bytes.
//!
//! What lies between a client of one revision and a server of another is [`translate`]: functions over single
//! messages. Where a feature of one side is a conversation on the other there is a small state machine, which is told
//! what happened and says what to send: [`parked`] (a call whose server asks back), [`rounds`] (a call whose server
//! wants to be called again), [`listen`] (subscriptions), [`logging`] (log levels) and [`ids`].
//! [`endpoint`] is where a server of 2024-11-05 hears, and [`probe`] judges by a server's first answer which era it
//! belongs to.
//!
//! `examples/translate.rs` is a whole proxy, if a small one: over stdio, between a client and a server of any two revisions.
//! Here is what becomes of a single call over HTTP, of a modern client for a server of 2025-11-25, and of its answer:
//!
//! ```
//! use longshore_mcp::detect::{self, Conversation};
//! use longshore_mcp::envelope::{self, Message};
//! use longshore_mcp::headers::Fields;
//! use longshore_mcp::revision::Revision;
//! use longshore_mcp::translate::requests::{self, Client};
//! use longshore_mcp::translate::responses::{self, Answer, Asked};
//! use longshore_mcp::translate::{Pair, names, results::Hints};
//!
//! let body = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","_meta":{
//!     "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//!     "io.modelcontextprotocol/clientCapabilities":{}}}}"#;
//! let fields = Fields::read([
//!     ("MCP-Protocol-Version", &b"2026-07-28"[..]),
//!     ("Mcp-Method", b"tools/call"),
//!     ("Mcp-Name", b"echo"),
//! ]);
//! let conversation = detect::with_body(body.as_bytes(), &fields, &Revision::ALL).map_err(|mistake| mistake.response());
//! let Ok(Conversation::Modern(call)) = conversation else { panic!("the client gets that response") };
//!
//! let pair = Pair { client: call.revision, server: Revision::V2025_11_25 };
//! let client = Client { capabilities: call.envelope.capabilities, info: None, level: None };
//! let request = requests::request(pair, Some(call.method), body, &client)?;
//! let request = names::with_id(&request, "1")?;
//! assert_eq!(request, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}"#);
//!
//! let message = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#;
//! let Ok(Message::Response(response)) = envelope::read(message.as_bytes()) else { panic!("no response") };
//! let asked = Asked { id: call.request.id.as_json(), method: Some(call.method), uri: None };
//! let answer = responses::response(pair, &asked, &response, message, &Hints::default())?;
//! let expected = r#"{"jsonrpc":"2.0","id":"a","result":{"content":[],"resultType":"complete"}}"#;
//! assert_eq!(answer, Answer::Message(expected.into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod batch;
pub mod capabilities;
pub mod detect;
pub mod endpoint;
pub mod envelope;
pub mod error;
pub mod headers;
pub mod ids;
pub mod initialize;
pub mod level;
pub mod lines;
pub mod listen;
pub mod listing;
pub mod logging;
pub mod lossy_json;
pub mod meta;
pub mod method;
pub mod object;
pub mod params;
pub mod parked;
pub mod passing;
pub mod pieces;
pub mod probe;
pub mod revision;
pub mod rounds;
mod scan;
pub mod session;
mod spelling;
pub mod splice;
pub mod sse;
pub mod status;
pub mod tasks;
mod text;
pub mod translate;

pub use scan::Raw;
pub use text::Text;
