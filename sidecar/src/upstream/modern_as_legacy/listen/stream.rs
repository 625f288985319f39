//! One stream of a server's: how it is asked for it, and what its refusal says.

use std::collections::BTreeSet;
use std::pin::pin;

use futures::{StreamExt, stream};
use http::StatusCode;
use longshore_mcp::envelope::{self, Message, Outcome, Response};
use longshore_mcp::error::{self, Code};
use longshore_mcp::listen::Filter;
use longshore_mcp::meta::Outline;
use longshore_mcp::method::{Method, ServerNotification};
use longshore_mcp::object;
use tokio::time::{Duration, timeout};

use crate::upstream::Failure as Any;
use crate::upstream::forgotten::is_not_now;
use crate::upstream::modern_as_legacy::Failure;
use crate::upstream::modern_as_legacy::source::{Source, is_answer};
use crate::upstream::modern_as_legacy::way::{Way, repeat};

/// How long a server may take to say that it has understood. Nobody computes anything for it.
pub(super) const UNDERSTOOD: Duration = Duration::from_secs(5);

/// A stream, if there was anything to ask for, and the resources that the server tells of in it.
pub(super) struct Told {
    pub(super) source: Option<Source>,
    pub(super) uris: BTreeSet<String>,
}

/// The server's stream of its lists and these resources, understood in time. Where it does not say which of them it tells
/// of, it tells of all.
pub(super) async fn open(way: &Way, uris: &BTreeSet<String>) -> Result<Told, Any> {
    let id = way.modern_as_legacy.question();
    let Some(request) = way.session.listen_to(&id, uris) else {
        return Ok(Told { source: None, uris: BTreeSet::new() });
    };
    let opened = timeout(UNDERSTOOD, ask(way, &id, request)).await;
    let (source, granted) = opened.unwrap_or(Err(Failure::Late.into()))?;
    // Whatever it says, it was asked for no others.
    let uris = granted.map_or_else(|| uris.clone(), |granted| &granted & uris);
    Ok(Told { source: Some(source), uris })
}

/// Which of these resources a server does not tell of: it is asked for each by itself, so many `at_once`, and the stream is
/// given up that it gives. What it refuses is noted at once, and what it takes is `found`: whatever ends this, that need not
/// be found again.
pub(super) async fn untold(
    way: &Way,
    uris: BTreeSet<String>,
    at_once: usize,
    found: &mut BTreeSet<String>,
) -> Result<BTreeSet<String>, Any> {
    let ask_for = async |uri: String| {
        let alone = BTreeSet::from([uri]);
        (open(way, &alone).await.map(|told| told.uris == alone), alone)
    };
    let mut answers = pin!(stream::iter(uris).map(ask_for).buffer_unordered(at_once));
    let mut untold = BTreeSet::new();
    while let Some((answer, alone)) = answers.next().await {
        match answer {
            Ok(true) => {
                way.session.note_taken(&alone);
                found.extend(alone);
            }
            Err(failure) if !says_no(&failure) => return Err(failure),
            Ok(false) | Err(_) => {
                way.session.note_refused(&alone);
                untold.extend(alone);
            }
        }
    }
    Ok(untold)
}

async fn ask(way: &Way, id: &str, request: String) -> Result<(Source, Option<BTreeSet<String>>), Any> {
    let repeated = repeat(Method::SubscriptionsListen, &Outline::default(), None);
    let mut source = way.call(request.into(), &repeated).await?;
    if !source.streams || !source.status.is_success() {
        let (status, said) = (source.status, source.answer(id).await.ok().flatten());
        source.finish();
        return Err(refused(status, said.as_deref()).into());
    }
    while let Some(message) = source.next().await? {
        if is_answer(&message, id) {
            // An end before the beginning is none.
            return Err(refused(source.status, Some(&message)).into());
        }
        if is(&message, ServerNotification::SubscriptionsAcknowledged) {
            let granted = object::at(&message, &["params"]).and_then(Filter::read).map(|filter| filter.uris);
            return Ok((source, granted));
        }
    }
    Err(Failure::BrokenOff.into())
}

/// Why there is no stream: with 405 if the server has none, whatever it says that with. What else it may answer it may
/// answer otherwise the next time.
fn refused(status: StatusCode, answer: Option<&str>) -> Failure {
    let has_none = match answer.map(|answer| envelope::read_servers(answer.as_bytes())) {
        Some(Ok(Message::Response(Response { outcome: Outcome::Error(error), .. }))) => {
            error::code_of(error.get()).and_then(Code::of) == Some(Code::MethodNotFound)
        }
        Some(_) => false,
        None => is_for_good(status),
    };
    let status = if has_none { StatusCode::METHOD_NOT_ALLOWED } else { status };
    Failure::Status(status.as_u16())
}

/// Whether the server has a stream, and none of what it was asked for. One that fails at it, or has no answer to it, may have
/// one to less.
pub(super) fn says_no(failure: &Any) -> bool {
    match failure {
        Any::ModernAsLegacy(Failure::Late | Failure::BrokenOff) => true,
        Any::ModernAsLegacy(Failure::Status(status)) => {
            let status = StatusCode::from_u16(*status).unwrap_or_default();
            let fails = status == StatusCode::INTERNAL_SERVER_ERROR;
            fails || status != StatusCode::METHOD_NOT_ALLOWED && !is_not_now(status)
        }
        _ => false,
    }
}

/// Whether a status refuses something once and for all.
pub(super) fn is_for_good(status: StatusCode) -> bool {
    (status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED) && !is_not_now(status)
}

pub(super) fn is(message: &str, method: ServerNotification) -> bool {
    matches!(
        envelope::read(message.as_bytes()),
        Ok(Message::Notification(notification)) if notification.method.as_str() == method.as_str()
    )
}
