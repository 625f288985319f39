//! Which revisions the server speaks. Over HTTP it is asked first, since a question that it does not know costs nothing
//! there, and is greeted if that is what it wants. Over stdio it is greeted first: the question would need a process of
//! its own, since there are servers that end at it or say nothing any more, and most of them want to be greeted. It is
//! asked for the rest while it serves already. What a server was found to be is where the next handshake begins.

use longshore_mcp::probe::Verdict;
use longshore_mcp::revision::{Era, Revision};
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::ServerDescription;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::client::{CallError, Discovery, Face, Server, may_have_no_handshake};
use crate::upstream::{Speaks, Spoken, starts};

/// What a server is given to say what it speaks, besides twice the time that it took for a handshake, and at most. Over
/// stdio it has to start once more for that; one that never answers what it does not know holds up nothing but clients of
/// another era.
const PROBE_SLACK: Duration = Duration::from_secs(1);
const PROBE_MAX: Duration = Duration::from_secs(10);
/// How soon a server is asked again what it speaks that gave no clear answer.
const PROBE_AGAIN: Duration = Duration::from_secs(60);
/// How often that may be until it is not believed any more to speak what it was known to: it may be another one by now.
const MAX_UNCLEAR_PROBES: u32 = 5;
/// The same for one that said nothing in time over stdio. Many a server takes what it does not know so, and each question
/// costs a process: after these it is believed. But a node on which much begins at once makes any server slow.
const PROBE_AGAIN_AFTER_SILENCE: [Duration; 3] =
    [Duration::from_secs(5), Duration::from_secs(60), Duration::from_secs(600)];
/// What one is given that is asked again after its silence, if its start has taken no longer than half of it.
const PATIENT_PROBE: Duration = Duration::from_secs(30);
/// What a server over HTTP is given to say so where it is not greeted, or has refused to be.
const PROBE_INSTEAD_OF_GREETING: Duration = Duration::from_secs(10);
/// What a server is given to open a session that nobody uses, while a client waits for its own.
const SESSION_PROBE: Duration = Duration::from_secs(3);
/// How soon it is asked again for one if it has no time.
const SESSION_PROBE_AGAIN: Duration = Duration::from_millis(250);

/// The same for one over HTTP of which nothing is known: it is greeted then, and its start takes no longer than that
/// for its silence. Whoever is slow and modern says so when it is greeted.
const FIRST_PROBE: Duration = Duration::from_millis(500);

/// A server that is known by now.
pub(super) struct Greeted {
    pub(super) description: ServerDescription,
    /// Whether it is still to be asked what it speaks besides.
    pub(super) is_unasked: bool,
}

/// The question what a server speaks besides, as often as it has to be asked.
#[derive(Debug)]
pub(super) struct Question {
    /// What the server's start lets expect.
    expected: Duration,
    patience: Duration,
    silences: std::array::IntoIter<Duration, { PROBE_AGAIN_AFTER_SILENCE.len() }>,
    /// How many answers in a row were no clear ones.
    unclear: u32,
    /// How soon it is to be asked at first.
    wait: Duration,
    /// And how soon if it has said that it is older, unless it is believed for good.
    older: Option<Duration>,
}

impl Question {
    /// For a server that took so long for a handshake, if there is anything that it is to be asked. One that is older is
    /// asked again so soon.
    pub(super) fn to(
        server: &Server,
        speaks: &Speaks,
        is_unasked: bool,
        handshake: Duration,
        older: Duration,
    ) -> Option<Self> {
        // Over stdio a process stays what it is.
        let is_http = matches!(server.upstream(), Upstream::StreamableHttp { .. });
        // Of one that is to be spoken to in one revision nothing else is wanted.
        let older = (is_http && server.pin().is_none()).then_some(older);
        let is_older = speaks.get().is_some_and(|spoken| spoken.modern.is_none());
        let wait = if is_unasked { Some(Duration::ZERO) } else { older.filter(|_| is_older) };
        Some(Self::after(handshake, wait?, older))
    }

    fn after(handshake: Duration, wait: Duration, older: Option<Duration>) -> Self {
        let expected = handshake * 2 + PROBE_SLACK;
        Self {
            expected,
            patience: expected.min(PROBE_MAX),
            silences: PROBE_AGAIN_AFTER_SILENCE.into_iter(),
            unclear: 0,
            wait,
            older,
        }
    }

    /// How soon it is to be asked at first.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// How long an answer is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Takes an answer in. Says how soon the question is to be asked again, if it is.
    pub(super) fn answered(&mut self, speaks: &Speaks, discovery: &Discovery) -> Option<Duration> {
        let again = if discovery.is_silence {
            self.patience = self.expected.max(PATIENT_PROBE);
            self.silences.next()
        } else {
            match discovery.verdict {
                Verdict::Nothing => Some(PROBE_AGAIN),
                Verdict::Legacy => self.older,
                Verdict::Modern(_) | Verdict::Strange => None,
            }
        };
        self.unclear = if discovery.verdict == Verdict::Nothing { self.unclear + 1 } else { 0 };
        let before = speaks.get();
        let modern = match discovery.verdict {
            Verdict::Modern(revision) => Some(revision),
            // What is asked again since it has said nothing keeps what it was known to speak.
            Verdict::Nothing if self.unclear <= MAX_UNCLEAR_PROBES => before.and_then(|spoken| spoken.modern),
            _ if discovery.is_silence && again.is_some() => before.and_then(|spoken| spoken.modern),
            Verdict::Legacy | Verdict::Strange | Verdict::Nothing => None,
        };
        let legacy = before.and_then(|spoken| spoken.legacy);
        speaks.set(Some(Spoken { legacy, modern }).filter(|_| legacy.is_some() || modern.is_some()));
        again
    }
}

/// The handshake, or what a server has instead of one; and what the server speaks, as far as that shows.
pub(super) async fn greet(server: &mut Server, speaks: &Speaks) -> Result<Greeted, CallError> {
    if let Some(pin) = server.pin() {
        return greet_pinned(server, speaks, pin).await.map(Greeted::wholly);
    }
    let asked = match speaks.get() {
        // It may be another server by now, but is most likely the same.
        Some(Spoken { legacy: None, .. }) => Some(server.discover(instead(server)).await),
        // What it was known to speak besides is not forgotten while it is asked again.
        Some(Spoken { legacy: Some(_), .. }) => None,
        None if matches!(server.upstream(), Upstream::StreamableHttp { .. }) => {
            Some(server.discover(FIRST_PROBE).await)
        }
        None => None,
    };
    if let Some(discovery) = &asked {
        if let Verdict::Modern(revision) = discovery.verdict {
            return greet_modern(server, speaks, revision, discovery).await.map(Greeted::wholly);
        }
        speaks.set(None);
    }
    let began = Instant::now();
    match server.initialize(Face::Itself).await {
        Ok((revision, description)) => {
            let modern = speaks.get().and_then(|spoken| spoken.modern);
            // One that has said that it is older is not asked the same again.
            let is_unasked = asked.is_none_or(|discovery| discovery.verdict == Verdict::Nothing);
            let spoken = Spoken { legacy: Some(revision), modern };
            if is_unasked {
                speaks.begin(spoken)
            } else {
                speaks.set(Some(spoken))
            }
            Ok(Greeted { description, is_unasked })
        }
        Err(error) if may_have_no_handshake(&error) => {
            server.started_within(began.elapsed());
            let discovery = match asked.filter(|discovery| discovery.verdict != Verdict::Nothing) {
                Some(discovery) => discovery,
                None => server.discover(instead(server)).await,
            };
            match discovery.verdict {
                Verdict::Modern(revision) => {
                    let description = without_handshake(server, speaks, revision, &discovery).await?;
                    // It has refused to be greeted.
                    speaks.set(Some(Spoken::only(revision)));
                    Ok(Greeted::wholly(description))
                }
                Verdict::Strange => Err(discovery.stranger()),
                Verdict::Legacy | Verdict::Nothing => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// What a server is given to say what it speaks instead of a handshake.
fn instead(server: &Server) -> Duration {
    if starts_anew(server) { server.handshake_patience() } else { PROBE_INSTEAD_OF_GREETING }
}

/// Whether a question begins with a process.
fn starts_anew(server: &Server) -> bool {
    matches!(server.upstream(), Upstream::Stdio {})
}

/// A server that has said that requests may stand alone there. If it says that it can be greeted too, it is; if it does
/// not say so, it may have sessions all the same, and is asked when somebody wants one.
async fn greet_modern(
    server: &mut Server,
    speaks: &Speaks,
    revision: Revision,
    discovery: &Discovery,
) -> Result<ServerDescription, CallError> {
    if discovery.known().iter().all(|known| known.era() == Era::Modern) {
        return without_handshake(server, speaks, revision, discovery).await;
    }
    match server.initialize(Face::Itself).await {
        Ok((legacy, mut description)) => {
            speaks.set(Some(Spoken { legacy: Some(legacy), modern: Some(revision) }));
            for known in discovery.known() {
                note(&mut description, known);
            }
            Ok(description)
        }
        // It has promised too much.
        Err(error) if may_have_no_handshake(&error) => {
            let description = without_handshake(server, speaks, revision, discovery).await?;
            speaks.set(Some(Spoken::only(revision)));
            Ok(description)
        }
        Err(error) => Err(error),
    }
}

/// Greets a server that did not say whether it has sessions, since a client wants one. Says whether it has. One that has no
/// time just now is asked again for as long as that client waits, and for the next one; not without end, if it was `vain`
/// so often.
pub(super) async fn ask_for_sessions(server: &Server, speaks: &Speaks, vain: &mut u32) -> bool {
    let Some(Spoken { legacy: None, modern }) = speaks.get() else { return false };
    let mut other = server.another();
    let mut is_unclear = false;
    let asked = async {
        loop {
            let greeted = other.initialize(Face::Itself).await;
            is_unclear = greeted.as_ref().is_err_and(|error| !may_have_no_handshake(error));
            match greeted {
                Ok((revision, _)) => return Some(revision),
                Err(error) => tracing::debug!(%error, is_unclear, "the server has begun no session"),
            }
            if !is_unclear {
                return None;
            }
            // It may have begun one all the same.
            std::mem::replace(&mut other, server.another()).end().await;
            sleep(SESSION_PROBE_AGAIN).await;
        }
    };
    // Who says nothing in time has none.
    let legacy = timeout(SESSION_PROBE, asked).await.ok().flatten();
    *vain = if is_unclear { *vain + 1 } else { 0 };
    if !is_unclear || *vain >= MAX_UNCLEAR_PROBES {
        speaks.set(Some(Spoken { legacy, modern }));
    }
    // Whether it hears of it or not.
    let _ = timeout(SESSION_PROBE, other.end()).await;
    legacy.is_some()
}

impl Greeted {
    /// Of which everything is known.
    fn wholly(description: ServerDescription) -> Self {
        Self { description, is_unasked: false }
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
        return match server.initialize(Face::Itself).await {
            Ok((revision, description)) => {
                speaks.set(Some(Spoken::only(revision)));
                Ok(description)
            }
            // It is not served, but why is worth a question.
            Err(error) if may_have_no_handshake(&error) => {
                let discovery = server.discover(instead(server)).await;
                let has_none = matches!(discovery.verdict, Verdict::Modern(_) | Verdict::Strange);
                Err(if has_none { discovery.other_than(pin) } else { error })
            }
            Err(error) => Err(error),
        };
    }
    let discovery =
        server.discover(if starts_anew(server) { starts::AT_MOST } else { PROBE_INSTEAD_OF_GREETING }).await;
    match discovery.verdict {
        Verdict::Modern(revision) if revision == pin => {
            let mut description = without_handshake(server, speaks, revision, &discovery).await?;
            // Nothing else is tried.
            speaks.set(Some(Spoken::only(revision)));
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
    speaks.begin(Spoken::only(revision));
    let (_, mut description) = server.initialize(Face::Sessions).await?;
    description.protocol_version = revision.as_str().to_owned();
    description.protocol_versions = vec![description.protocol_version.clone()];
    for known in discovery.known() {
        note(&mut description, known);
    }
    Ok(description)
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

#[cfg(test)]
mod tests {
    use super::*;
    use Revision::{V2025_11_25, V2026_07_28};

    #[test]
    fn r065_only_a_server_that_may_become_another_is_asked_again_when_it_is_older() {
        const OLDER: Duration = Duration::from_mins(15);
        let over_http = Some(OLDER);
        let new = Some(V2026_07_28);
        for (older, known, verdict, again, modern) in [
            (over_http, None, Verdict::Legacy, Some(OLDER), None),
            (None, None, Verdict::Legacy, None, None),
            (over_http, None, Verdict::Nothing, Some(PROBE_AGAIN), None),
            (None, None, Verdict::Nothing, Some(PROBE_AGAIN), None),
            (over_http, None, Verdict::Strange, None, None),
            (over_http, None, Verdict::Modern(V2026_07_28), None, new),
            // What says nothing is no evidence that it has changed either.
            (over_http, new, Verdict::Nothing, Some(PROBE_AGAIN), new),
            (over_http, new, Verdict::Legacy, Some(OLDER), None),
            (over_http, new, Verdict::Strange, None, None),
        ] {
            let speaks = Speaks::new();
            speaks.begin(Spoken { legacy: Some(V2025_11_25), modern: known });
            let mut question = Question::after(Duration::ZERO, Duration::ZERO, older);
            let discovery = Discovery::of(verdict, None);
            for times in 1..2 * MAX_UNCLEAR_PROBES {
                assert_eq!(question.answered(&speaks, &discovery), again, "{verdict:?}, {known:?}");
                // Somebody else may have taken its place, and never say anything.
                let modern = modern.filter(|_| verdict != Verdict::Nothing || times <= MAX_UNCLEAR_PROBES);
                let spoken = Spoken { legacy: Some(V2025_11_25), modern };
                assert_eq!(speaks.get(), Some(spoken), "{verdict:?}, {known:?}, {times}");
            }
        }
    }
}
