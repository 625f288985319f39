//! 2026-07-28: a request, its answer, and nothing in between that outlives them.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use longshore_mcp::detect::{self, Conversation, Wrong};
use longshore_mcp::envelope::Request;
use longshore_mcp::headers::argument;
use longshore_mcp::meta::Outline;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::events::{self, Events};
use super::{Reply, accepted, fields, json, refuse};
use crate::modern::Lone;
use crate::server::Server;
use crate::stream::{Answer, Stream};

/// Ends what it holds when it is dropped: a client that has gone has cancelled what it asked for.
struct Ending(JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) async fn post(server: &Arc<Server>, headers: &HeaderMap, body: &[u8]) -> Reply {
    let fields = fields(headers);
    let conversation = match detect::with_body(body, &fields, &[server.revision]) {
        Ok(conversation) => conversation,
        Err(mistake) => {
            let status = StatusCode::from_u16(mistake.answer().status).unwrap_or(StatusCode::BAD_REQUEST);
            return json(status, mistake.response());
        }
    };
    let modern = match conversation {
        Conversation::Modern(modern) => modern,
        // It is about nothing that goes on.
        _ => return accepted(),
    };
    let id = modern.request.id.as_json();
    let wrong = |wrong: Wrong| {
        let (problem, data) = (wrong.problem(server.revision), wrong.data());
        refuse(Some(id), problem, &wrong.to_string(), data.as_ref(), server.revision)
    };
    let lone = match Lone::of(&modern) {
        Ok(lone) => lone,
        Err(error) => return wrong(error),
    };
    if let Err(mismatch) = judge_arguments(lone.input_schema(server), &modern.request, &fields) {
        return wrong(mismatch);
    }
    let stream = Arc::new(Stream::answering(1));
    let ending = Ending(tokio::spawn(lone.serve(server.clone(), stream.clone())));
    match stream.begins().await {
        Some(entries) => match entries.into_iter().next() {
            Some(entry) => {
                let status = match entry.answer {
                    Some(Answer::Error(status)) => StatusCode::from_u16(status).unwrap_or(StatusCode::OK),
                    _ => StatusCode::OK,
                };
                json(status, entry.message)
            }
            None => accepted(),
        },
        None => match stream.read(Some(0)) {
            Some(reader) => events::respond(stream.clone(), reader, Events::Plain, Some(Box::new(ending))),
            None => accepted(),
        },
    }
}

fn judge_arguments(
    schema: Option<Value>,
    request: &Request<'_>,
    fields: &longshore_mcp::headers::Fields<'_>,
) -> Result<(), Wrong> {
    let Some(marked) = schema.and_then(|schema| argument::marked(&schema.to_string()).ok()) else {
        return Ok(());
    };
    let outline = Outline::read(request.params)?;
    Ok(argument::check(&marked, outline.arguments(), fields)?)
}
