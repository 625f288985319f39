//! The path of a request that stands alone, from where it is known to be one.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use longshore_mcp::detect::{Modern, Wrong};
use longshore_mcp::headers::{ARGUMENT_PREFIX, Field, NAME, argument, sentinel, standard};
use longshore_mcp::method::{Method, Subject};

use super::access::{self, Stateless};
use super::{Authenticated, Passed, Trail, conversation, parked, respond, tasks};
use crate::exchange::{self, StatelessCall};
use crate::refusal::Refusal;
use crate::upstream::Post;
use crate::upstream::letter::{self, Repeated};
use crate::worker::Worker;

/// Decides on the request, sends it and gives back what the client gets.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    caller: Authenticated,
    modern: &Modern<'_>,
    body: &Bytes,
    trail: &mut Trail,
) -> Result<Passed, Refusal> {
    trail.revision = modern.revision;
    trail.note_request(&modern.request);
    if let Some(again) = parked::again(worker, &caller, &modern.outline) {
        trail.entry.again(again);
    }
    let holder = parked::holder(worker, &caller, modern);
    if let Some(holder) = holder.or_else(|| tasks::holder(worker, &caller, modern))
        && let Some(response) = Box::pin(parked::go_on(worker, &caller, holder, body, trail)).await?
    {
        return Ok(Passed::Handed(response));
    }
    // To ask another replica may have taken its time.
    let caller = caller.once_more(worker)?;
    trail.entry.principal(caller.principal());
    let tasks::OfRequest { naming, body: named } = tasks::stateless(worker, &caller, modern, body, trail)?;
    // The decision. From here on the request may reach the server.
    let mut stateless = access::decide_stateless(caller, modern, naming.as_deref(), trail)?;
    tasks::stateless_may_be_called(worker, &stateless, modern).await?;
    if let Some(standing) = &mut stateless.standing {
        standing.take(worker.shared.sessions.subscriptions())?;
    }
    let mut repeated = match repeated(worker, &stateless, modern) {
        Err(mismatch @ Refusal::Mistake(Wrong::Header(_))) => {
            // The tool may have other marks by now than those that are known.
            worker.shared.relist.ask().await;
            if !access::is_current(worker, &stateless.snapshot) {
                return Err(mismatch);
            }
            repeated(worker, &stateless, modern)?
        }
        repeated => repeated?,
    };
    if let (Some(naming), true) = (&naming, modern.method.subject() == Subject::Task) {
        let id = naming.asked.first().ok_or(Refusal::Internal)?;
        let id = sentinel::encode(&id.id).into_owned().try_into().map_err(|_| Refusal::Internal)?;
        repeated.push((HeaderName::from_static(NAME), id));
    }
    let lone = StatelessCall {
        modern,
        snapshot: stateless.snapshot,
        caller: stateless.caller,
        standing: stateless.standing,
        naming,
        post: Post {
            body: named.unwrap_or_else(|| body.clone()),
            revision: Some(modern.revision),
            trace: letter::trace(&stateless.headers),
            repeated,
        },
    };
    exchange::call_stateless(worker, lone, trail).await.map(Passed::Handed)
}

/// Takes a notification of such a client, which concerns nothing that goes on.
pub(crate) fn drop_notification(body: &Bytes, trail: &mut Trail) -> Passed {
    if let Ok(message) = longshore_mcp::envelope::read(body) {
        trail.note(&message);
    }
    trail.entry.permit(None);
    Passed::Answered(respond::accepted())
}

/// What the head for the server repeats: written anew from the body, which was decided on.
fn repeated(worker: &Worker, stateless: &Stateless, modern: &Modern<'_>) -> Result<Repeated, Refusal> {
    let mut repeated = Repeated::new();
    for (name, value) in standard::headers(modern.method, &modern.outline) {
        let value = value.try_into().map_err(|_| Refusal::Internal)?;
        repeated.push((HeaderName::from_static(name), value));
    }
    if modern.method == Method::ToolsCall {
        for (name, value) in arguments(worker, stateless, modern)? {
            // What is no header is left out, and the server's to miss.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                repeated.push((name, value));
            }
        }
    }
    Ok(repeated)
}

/// The headers that repeat arguments. Those that the tool's schema marks have to say what the body says; what the
/// others are about only the server knows.
fn arguments(
    worker: &Worker,
    stateless: &Stateless,
    modern: &Modern<'_>,
) -> Result<Vec<(String, String)>, Refusal> {
    let tools = worker.marks.of(&worker.shared.view.borrow());
    let name = modern.outline.name(modern.method.subject());
    let marked = name.and_then(|name| tools.marked.get(name.as_str())).map_or(&[][..], Vec::as_slice);
    let repeats = |name: &HeaderName| name.as_str().starts_with(ARGUMENT_PREFIX);
    if marked.is_empty() && !stateless.headers.keys().any(repeats) {
        return Ok(Vec::new());
    }
    let (fields, arguments) = (conversation::fields(&stateless.headers), modern.outline.arguments());
    argument::check(marked, arguments, &fields)
        .map_err(|mismatch| Refusal::Mistake(Wrong::Header(mismatch)))?;
    let mut headers = argument::headers(marked, arguments);
    // What the client did not repeat is what fits into no header.
    headers.retain(|(name, _)| stateless.headers.contains_key(name));
    for (name, field) in &fields.arguments {
        let is_marked = marked.iter().any(|mark| mark.header.eq_ignore_ascii_case(name));
        if let (false, Field::One(value)) = (is_marked, field) {
            headers.push((format!("{ARGUMENT_PREFIX}{name}"), (*value).to_owned()));
        }
    }
    Ok(headers)
}
