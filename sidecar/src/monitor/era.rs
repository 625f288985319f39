//! Which revisions the server speaks: it is greeted first, since that is what most servers want, and asked for the rest
//! while it serves already.

use longshore_mcp::probe::Verdict;
use longshore_mcp::revision::Revision;
use longshore_sidecar_config::inventory::ServerDescription;
use tokio::time::Duration;

use super::client::{CallError, Discovery, Face, Server, may_have_no_handshake};
use crate::upstream::{Speaks, Spoken};

/// What a server is given to say what it speaks, besides twice the time that it took for a handshake. Over stdio it has to
/// start once more for that; one that never answers what it does not know holds up nothing but clients of another era.
const AT_LEAST: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(10);
/// The same for one that has refused a handshake: its process may have to load a lot first.
const INSTEAD: Duration = Duration::from_secs(10);

/// How long a server that took so long for a handshake is waited for.
pub(super) fn patience(handshake: Duration) -> Duration {
    (handshake * 2 + AT_LEAST).min(AT_MOST)
}

/// The handshake, or what a server has instead of one; and what the server speaks, as far as that shows.
pub(super) async fn greet(server: &mut Server, speaks: &Speaks) -> Result<ServerDescription, CallError> {
    if let Some(pin) = server.pin() {
        return greet_pinned(server, speaks, pin).await;
    }
    let had_none = speaks.get().is_some_and(|spoken| spoken.legacy.is_none());
    if had_none {
        // It may be another server by now, but is most likely the same.
        let discovery = server.discover(INSTEAD).await;
        if let Verdict::Modern(revision) = discovery.verdict {
            return without_handshake(server, speaks, revision, &discovery).await;
        }
        speaks.set(None);
    }
    match server.initialize(Face::Itself).await {
        Ok((revision, description)) => {
            // What it was known to speak besides is not forgotten while it is asked again.
            let modern = speaks.get().and_then(|spoken| spoken.modern);
            speaks.begin(Spoken { legacy: Some(revision), modern });
            Ok(description)
        }
        Err(error) if may_have_no_handshake(&error) => {
            let discovery = server.discover(INSTEAD).await;
            match discovery.verdict {
                Verdict::Modern(revision) => without_handshake(server, speaks, revision, &discovery).await,
                Verdict::Strange => Err(discovery.stranger()),
                Verdict::Legacy | Verdict::Nothing => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// A server that is to be spoken to in this revision. Nothing else is tried: there are servers that take that ill.
async fn greet_pinned(
    server: &mut Server,
    speaks: &Speaks,
    pin: Revision,
) -> Result<ServerDescription, CallError> {
    if pin.features().handshake {
        // Nobody else is let to it before it has said that it speaks this.
        let (revision, description) = server.initialize(Face::Itself).await?;
        speaks.set(Some(Spoken::only(revision)));
        return Ok(description);
    }
    let discovery = server.discover(INSTEAD).await;
    match discovery.verdict {
        Verdict::Modern(revision) if revision == pin => {
            let mut description = without_handshake(server, speaks, revision, &discovery).await?;
            description.protocol_versions = vec![pin.as_str().to_owned()];
            Ok(description)
        }
        Verdict::Modern(_) | Verdict::Legacy | Verdict::Strange => Err(discovery.other_than(pin)),
        Verdict::Nothing => Err(CallError::Silent),
    }
}

/// A server without a handshake: here it has one all the same.
async fn without_handshake(
    server: &mut Server,
    speaks: &Speaks,
    revision: Revision,
    discovery: &Discovery,
) -> Result<ServerDescription, CallError> {
    speaks.set(Some(Spoken::only(revision)));
    let (_, mut description) = server.initialize(Face::Sessions).await?;
    description.protocol_version = revision.as_str().to_owned();
    description.protocol_versions = vec![description.protocol_version.clone()];
    for known in discovery.known() {
        note(&mut description, known);
    }
    Ok(description)
}

/// Takes in what a server that has shaken hands speaks besides. Says whether that was all there is to know.
pub(super) fn settle(speaks: &Speaks, discovery: &Discovery) -> bool {
    let legacy = speaks.get().and_then(|spoken| spoken.legacy);
    let modern = match discovery.verdict {
        Verdict::Modern(revision) => Some(revision),
        Verdict::Legacy | Verdict::Strange | Verdict::Nothing => None,
    };
    speaks.set(Some(Spoken { legacy, modern }).filter(|_| legacy.is_some() || modern.is_some()));
    discovery.verdict != Verdict::Nothing
}

/// Adds a revision to a description.
pub(super) fn note(description: &mut ServerDescription, revision: Revision) {
    let versions = &mut description.protocol_versions;
    let name = revision.as_str();
    if !versions.iter().any(|version| version == name) {
        versions.push(name.to_owned());
        // Names are dates.
        versions.sort_unstable_by(|one, other| other.cmp(one));
    }
}
