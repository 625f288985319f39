//! How a session begins: `initialize` is answered with what the server says of itself.

use std::rc::Rc;
use std::sync::Arc;

use http::StatusCode;
use longshore_mcp::capabilities::ClientCapabilities;
use longshore_mcp::envelope::{self, Message};
use longshore_mcp::error::Code;
use longshore_mcp::listen::Offers;
use longshore_mcp::method::Method;
use longshore_mcp::object::{self, Object, string};
use longshore_mcp::probe::Verdict;
use longshore_mcp::revision::Revision;
use longshore_mcp::session;
use longshore_mcp::translate::requests::Client;
use longshore_mcp::translate::{Pair, capabilities, handshake};
use longshore_sessions::bounds::MAX_CAPABILITIES;
use longshore_sidecar_config::Upstream;

use super::registry::ModernAsLegacy;
use super::session::{Parts, Session};
use super::way::Server;
use super::{Failure, local, message};
use crate::upstream::hold::Hold;
use crate::upstream::{Also, Answer, Failure as Any, Opener, Post, Speaks, Transport, random};

/// The longest that a server hears of who a client is, in bytes: each request to it repeats that, and what the client can do.
const MAX_INFO: usize = 16 * 1024;

/// What became of a handshake.
pub(in crate::upstream) enum Opened {
    /// It is answered, and something may have to be ended again.
    Answered(Box<Answer>, Hold),
    /// The server is one that has to be greeted itself. With it, what the client hears where that is not to be done.
    Legacy(Box<Answer>),
}

/// Answers the message that opens a session with a server of this revision.
pub(in crate::upstream) async fn open(
    modern_as_legacy: &Arc<ModernAsLegacy>,
    transport: &Rc<Transport>,
    speaks: &Arc<Speaks>,
    upstream: &Upstream,
    opener: &Opener,
    Post { body, trace, .. }: Post,
    revision: Revision,
) -> Result<Opened, Any> {
    let answered = |answer| Ok(Opened::Answered(Box::new(answer), Hold::nothing()));
    let Ok(Message::Request(request)) = envelope::read(&body) else {
        return answered(Answer::empty(StatusCode::BAD_REQUEST));
    };
    if !request.is(Method::Initialize) {
        return answered(Answer::empty(StatusCode::BAD_REQUEST));
    }
    let params = request.params.map_or("{}", |params| params.get());
    let refused = |why: &str| answered(local::refused(&request, Code::InvalidParams, why));
    let member = |name| object::at(params, &[name]);
    let asked = member("protocolVersion").and_then(string);
    // All that have a handshake: the choice is the client's.
    let client = session::negotiate(asked.as_deref().unwrap_or_default(), &Revision::ALL)
        .unwrap_or(Revision::NEWEST_WITH_INITIALIZE);
    let pair = Pair { client, server: revision };
    let theirs = member("capabilities").unwrap_or("{}");
    let info = member("clientInfo").filter(|info| info.len() <= MAX_INFO && Object::read(info).is_ok());
    if theirs.len() > MAX_CAPABILITIES {
        return refused("\"capabilities\" may be 16 KiB long");
    }
    let (Ok(can), Ok(ours)) = (ClientCapabilities::read(theirs), capabilities::client(pair.up(), theirs))
    else {
        return refused("\"capabilities\" cannot be read");
    };
    let server = Server::new(transport, speaks, upstream, trace);
    let says = Client { capabilities: &ours, info, level: None };
    let mut found = server.discover(opener, revision, &says).await?;
    if found.verdict == Verdict::Legacy && !matches!(opener, Opener::Own) {
        // Of another era, or it cannot read what this client says of itself, which is nobody else's business.
        found = server.discover_plainly(opener, revision).await?;
        if matches!(found.verdict, Verdict::Modern(_)) {
            return refused(
                "the server refuses what the client says of itself: its capabilities, or who it is",
            );
        }
    }
    let other = || {
        let why = format!(
            "the server was asked for revision {revision} of MCP on behalf of a client of revision {client}, and \
             does not say that it speaks it"
        );
        Box::new(local::refused(&request, Code::InternalError, &why))
    };
    match (found.verdict, &found.message) {
        (Verdict::Legacy, _) => return Ok(Opened::Legacy(other())),
        (_, None) => return Err(Failure::Status(found.status).into()),
        (Verdict::Modern(_) | Verdict::Strange | Verdict::Nothing, Some(_)) => {}
    }
    let text = found.message.unwrap_or_default();
    let Some(result) = object::at(&text, &["result"]).filter(|_| found.verdict == Verdict::Modern(revision))
    else {
        return Ok(Opened::Answered(other(), Hold::nothing()));
    };
    let Ok(initialized) = handshake::initialized(pair.down(), result) else {
        return Err(Failure::Nonsense.into());
    };
    let offered = object::at(result, &["capabilities"]).filter(|can| can.starts_with('{')).unwrap_or("{}");
    let initialized = if matches!(opener, Opener::Own) { with(initialized, offered) } else { initialized };
    let said = ours.len() + info.map_or(0, str::len);
    let share = modern_as_legacy.keep(opener, said).ok_or(Failure::NotKept)?;
    let parts = Parts {
        name: random().ok_or(Failure::NoNumbers)?,
        pair,
        opener: opener.clone(),
        capabilities: ours.into_owned(),
        can,
        info: info.map(str::to_owned),
        offers: Offers::read(offered),
        logs: object::at(offered, &["logging"]).is_some_and(|logging| logging != "null"),
    };
    let (id, hold) = modern_as_legacy.add(Session::new(parts, share)).ok_or(Failure::NoNumbers)?;
    let id_of_request = request.id.as_json();
    let answer = message(format!(r#"{{"jsonrpc":"2.0","id":{id_of_request},"result":{initialized}}}"#));
    Ok(Opened::Answered(Box::new(Answer { also: Also::BeginsHere(id), ..answer }), hold))
}

/// What the sidecar hears itself: it tells others what the server can do, and not what older clients hear of that.
fn with(initialized: String, offered: &str) -> String {
    let Ok(mut result) = Object::read(&initialized) else { return initialized };
    result.set("capabilities", offered.to_owned());
    result.write()
}

/// Whether what a server answers to `initialize` may come from one that has no handshake.
pub(in crate::upstream) fn may_be_modern(answer: &Answer) -> bool {
    !matches!(answer.also, Also::Begins(_))
        && matches!(
            answer.status,
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
        )
}
