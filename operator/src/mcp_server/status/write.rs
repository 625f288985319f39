//! Writes a status and says what changed. The only place that does.

use std::sync::Once;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::api::PatchParams;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource};
use longshore_crds::{McpServer, McpServerStatus};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::connected::UNREACHED;
use super::diagnosis::FAILS;
use super::find;
use crate::api::{self, ApiError};
use crate::digest;
use crate::mcp_server::condition::{ConditionType, Reason, Truth};
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::ServerMemory;
use crate::metrics::Write;
use crate::mirror::ServerKey;
use crate::names::MANAGER;
use crate::reading::Lean;
use crate::view::Live;

/// The status before: what was written last, as long as the watch has not shown what came of it.
pub(crate) fn previous(
    memory: &Mutex<ServerMemory>,
    version: u64,
    seen: Option<&McpServerStatus>,
) -> Option<McpServerStatus> {
    match &memory.lock().status {
        Some((written, status)) if version < *written => Some(status.clone()),
        Some(_) | None => seen.cloned(),
    }
}

/// How long a status that tells of a mere step may wait for the next. Most starts are over by then, those of many
/// servers at once included.
const PASSING: Duration = Duration::from_secs(20);

/// The pace of a status that changes for ever, of a server that comes and goes all the time for example.
const PACE: Duration = Duration::from_secs(15);
/// How many changes are written at once before that.
const AT_ONCE: u32 = 20;

/// How long a configuration may be on its way to the sidecars before it is said that clients use the server as it was. Keys
/// that follow each other by themselves are there within a second, and nobody has changed anything.
const ON_ITS_WAY: Duration = Duration::from_secs(3);

/// How long to wait before this status is worth writing: a start has steps that last for moments, and each write costs
/// the API server and everybody who watches. The first is written at once: it says that somebody is at work. So is what
/// follows from another manifest.
pub(crate) fn wait(
    memory: &Mutex<ServerMemory>,
    previous: Option<&McpServerStatus>,
    status: &McpServerStatus,
) -> Option<Duration> {
    let previous = previous?;
    let mut memory = memory.lock();
    let since = memory.behind.unwrap_or_else(Instant::now);
    let behind = falls_behind(previous, status).then_some(since);
    memory.behind = behind;
    if previous == status || previous.observed_generation != status.observed_generation {
        return None;
    }
    let behind = behind.and_then(|since| ON_ITS_WAY.checked_sub(since.elapsed()));
    let paced = memory.status_written.zip(memory.status_pace).and_then(|(written, pace)| {
        let is_step = previous.url == status.url && is_starting(previous) && is_starting(status);
        let step = PASSING.checked_sub(written.elapsed()).filter(|_| is_step);
        let ahead = pace.saturating_duration_since(Instant::now()).checked_sub(PACE * AT_ONCE);
        step.max(ahead)
    });
    behind.max(paced).filter(|left| !left.is_zero())
}

/// Whether all that is new is that clients who used the server as it is use it as it was.
fn falls_behind(previous: &McpServerStatus, status: &McpServerStatus) -> bool {
    let is = |status: &McpServerStatus, reason: Reason| {
        find(&status.conditions, ConditionType::Ready)
            .is_some_and(|ready| ready.status == Truth::True.name() && ready.reason == reason.name())
    };
    let all_else = |status: &McpServerStatus| {
        let mut status = status.clone();
        status.conditions.retain(|condition| condition.type_ != ConditionType::Ready.name());
        status
    };
    is(previous, Reason::Ready)
        && is(status, Reason::ServingPrevious)
        && all_else(previous) == all_else(status)
}

/// Remembers that a status was written now.
fn remember(memory: &mut ServerMemory) {
    let now = Instant::now();
    memory.status_written = Some(now);
    // What manifests changed is written without waiting, and nobody waits longer for it afterwards.
    let pace = memory.status_pace.map_or(now, |pace| pace.max(now)) + PACE;
    memory.status_pace = Some(pace.min(now + PACE * (AT_ONCE + 1)));
}

/// Whether all that is to be said is that the server starts.
fn is_starting(status: &McpServerStatus) -> bool {
    // That the catalog does not list it is somebody's decision, and no part of a start.
    let mut of_the_start =
        status.conditions.iter().filter(|condition| condition.type_ != ConditionType::Published.name());
    let is_on_its_way =
        |condition: &Condition| condition.status == Truth::True.name() || is_passing(&condition.reason);
    of_the_start.all(is_on_its_way)
        && find(&status.conditions, ConditionType::Ready).is_some_and(|ready| is_passing(&ready.reason))
}

/// Says that no status can be written, once: it is the same with every server.
fn tell_of_older_kind(error: &ApiError) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::error!(
            %error,
            "the CustomResourceDefinition is older than this operator, so no status can be written: upgrade the \
             chart longshore-crds to {0}, or apply the output of `longshore crds` of {0}",
            env!("CARGO_PKG_VERSION")
        );
    });
}

/// Writes the status if it is not what it was.
pub(crate) async fn write(
    context: &Context,
    server: &ServerKey,
    observed: &ObjectMeta,
    memory: &Mutex<ServerMemory>,
    previous: Option<&McpServerStatus>,
    status: &McpServerStatus,
) -> Result<(), ApiError> {
    if previous == Some(status) {
        return Ok(());
    }
    let uid = observed.uid.as_deref().unwrap_or_default();
    let body = json!({
        "apiVersion": McpServer::api_version(&()),
        "kind": McpServer::kind(&()),
        // With the UID, so that a server which took the name meanwhile does not get this status.
        "metadata": { "name": server.name, "namespace": server.namespace, "uid": uid },
        "status": status,
    });
    // Of the answer only the metadata is read: the object itself may be unreadable.
    let servers =
        Api::<Lean<PartialObjectMeta<McpServer>>>::namespaced(context.client.clone(), &server.namespace);
    let parameters = PatchParams::apply(MANAGER).force();
    let written =
        async { servers.patch_subresource("status", &server.name, &parameters, &api::applied(&body)?).await };
    let written = match api::call(written).await {
        Ok(Lean(written)) => written,
        // It was deleted meanwhile.
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => {
            if error.is_of_older_kind() {
                tell_of_older_kind(&error);
            }
            return Err(error);
        }
    };
    context.metrics.wrote(Write::Status);
    {
        let mut memory = memory.lock();
        memory.status = Some((Live::of(&written.metadata).version, status.clone()));
        memory.echo = echo(observed, &written.metadata);
        remember(&mut memory);
    }
    for event in events(previous, status) {
        context.tell(server, uid, &event).await;
    }
    Ok(())
}

/// The version of which the status is all that is new. There is none where somebody has changed the manifest meanwhile.
fn echo(observed: &ObjectMeta, written: &ObjectMeta) -> Option<u64> {
    let (observed, written) = (Live::of(observed), Live::of(written));
    (observed == written).then_some(written.version)
}

/// What is worth an event: that a server became ready or no longer is, and every cause of a failure once.
fn events(previous: Option<&McpServerStatus>, status: &McpServerStatus) -> Vec<Event> {
    let before = previous.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let generation = status.observed_generation.unwrap_or_default();
    let mut events: Vec<Event> = Vec::new();
    for condition in &status.conditions {
        let was = before.iter().find(|before| before.type_ == condition.type_);
        let cause = cause_of(condition);
        let is_as_before = |was: &Condition| {
            was.status == condition.status && was.reason == condition.reason && cause_of(was) == cause
        };
        if was.is_some_and(is_as_before) {
            continue;
        }
        if condition.type_ == ConditionType::Published.name() {
            // Somebody's decision, and none of the server's doings.
            continue;
        }
        let is_ready = condition.type_ == ConditionType::Ready.name();
        let fails = has_cause(condition) || condition.reason == Reason::ConfigurationRefused.name();
        let good = condition.status == Truth::True.name() && !fails;
        let became_ready = is_ready && was.is_none_or(|was| was.status != condition.status);
        if (good && !became_ready)
            || condition.status == Truth::Unknown.name()
            || is_passing(&condition.reason)
        {
            continue;
        }
        if events.iter().any(|event| event.reason == condition.reason) {
            continue;
        }
        // Somebody's decision, too.
        let is_stopped = condition.reason == Reason::ScaledToZero.name();
        events.push(Event {
            type_: if good || is_stopped { EventType::Normal } else { EventType::Warning },
            reason: condition.reason.clone(),
            note: Some(condition.message.clone()),
            action: action(condition, generation, cause),
            secondary: None,
        });
    }
    events
}

/// Those of one action are told as one, in the words of the first: whoever corrects a manifest has others, and so has whoever
/// corrects what it names, of which the manifest's generation tells nothing, and what fails for another cause. The API server
/// may word a refusal anew each time.
fn action(condition: &Condition, generation: i64, cause: Option<Reason>) -> String {
    let action = format!("{}OfGeneration{generation}{}", condition.type_, cause.map_or("", Reason::name));
    let is_quoted = [Reason::Rejected, Reason::Unreadable].iter().any(|it| it.name() == condition.reason);
    let is_own = condition.type_ == ConditionType::Accepted.name() && !is_quoted;
    if is_own { format!("{action}/{}", &digest::hex(condition.message.as_bytes())[..16]) } else { action }
}

/// Whether what is wrong may be only part of the server: its message names the reason of that part then.
fn has_cause(condition: &Condition) -> bool {
    [Reason::RolloutFailing, Reason::Degraded].iter().any(|it| it.name() == condition.reason)
}

/// The reason of what fails, where that is only part of the server, by its message.
fn cause_of(condition: &Condition) -> Option<Reason> {
    if !has_cause(condition) {
        return None;
    }
    let mark = if condition.type_ == ConditionType::Connected.name() { UNREACHED } else { FAILS };
    let (_, named) = condition.message.split_once(mark)?;
    Reason::of(named.split(": ").next()?)
}

/// What every server goes through.
fn is_passing(reason: &str) -> bool {
    [
        Reason::Starting,
        Reason::NoPod,
        Reason::Connecting,
        Reason::ConfigurationPending,
        Reason::RollingOut,
        Reason::ReadinessGate,
    ]
    .iter()
    .any(|passing| passing.name() == reason)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn with(conditions: &[(ConditionType, &str, Reason)]) -> McpServerStatus {
        let condition = |(type_, status, reason): &(ConditionType, &str, Reason)| Condition {
            type_: type_.name().to_owned(),
            status: (*status).to_owned(),
            reason: reason.name().to_owned(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let conditions = conditions.iter().map(condition).collect();
        McpServerStatus { observed_generation: Some(1), conditions, ..McpServerStatus::default() }
    }

    fn status(ready: (&str, Reason), url: &str) -> McpServerStatus {
        let conditions = [
            (ConditionType::Accepted, "True", Reason::Accepted),
            (ConditionType::Published, "False", Reason::NotPublished),
            (ConditionType::Ready, ready.0, ready.1),
        ];
        McpServerStatus { url: Some(url.to_owned()), ..with(&conditions) }
    }

    #[test]
    fn a_server_that_becomes_ready_and_each_cause_of_a_failure_are_events() {
        use ConditionType::{Available, Connected, Published, Ready};
        let starts: &[_] = &[(Available, "False", Reason::Starting), (Ready, "False", Reason::Starting)];
        let serves: &[_] = &[(Available, "True", Reason::Serving), (Ready, "True", Reason::Ready)];
        let fails: &[_] =
            &[(Available, "False", Reason::ImagePullFailed), (Ready, "False", Reason::ImagePullFailed)];
        let no_rollout: &[_] =
            &[(Available, "True", Reason::RolloutFailing), (Ready, "True", Reason::ServingPrevious)];
        let refused: &[_] =
            &[(Available, "True", Reason::Serving), (Ready, "True", Reason::ConfigurationRefused)];
        let stopped: &[_] =
            &[(Available, "False", Reason::ScaledToZero), (Ready, "False", Reason::ScaledToZero)];
        let unknown: &[_] = &[(Connected, "Unknown", Reason::SidecarUnreachable)];
        let withheld: &[_] = &[(Published, "False", Reason::NotPublished)];
        for (what, before, now, expected) in [
            ("a start has steps", None, starts, vec![]),
            ("it is ready", Some(starts), serves, vec!["Normal Ready"]),
            ("it goes on", Some(serves), serves, vec![]),
            ("one cause of two conditions", Some(starts), fails, vec!["Warning ImagePullFailed"]),
            ("it goes on failing", Some(fails), fails, vec![]),
            ("it is ready after all", Some(fails), serves, vec!["Normal Ready"]),
            ("it starts again", Some(serves), starts, vec![]),
            ("it serves as before", Some(serves), no_rollout, vec!["Warning RolloutFailing"]),
            ("it keeps its rules", Some(serves), refused, vec!["Warning ConfigurationRefused"]),
            ("it still does", Some(refused), refused, vec![]),
            ("it has the new ones", Some(refused), serves, vec![]),
            ("it is stopped", Some(serves), stopped, vec!["Normal ScaledToZero"]),
            ("it is ready again", Some(stopped), serves, vec!["Normal Ready"]),
            ("nobody knows", None, unknown, vec![]),
            ("it is withheld", None, withheld, vec![]),
        ] {
            let said: Vec<_> = events(before.map(with).as_ref(), &with(now))
                .iter()
                .map(|event| format!("{:?} {}", event.type_, event.reason))
                .collect();
            assert_eq!(said, expected, "{what}");
        }
    }

    /// What is told as one has the words of the first.
    #[test]
    fn what_is_wrong_with_another_manifest_is_an_event_of_its_own() {
        let fails = with(&[(ConditionType::Available, "False", Reason::ImagePullFailed)]);
        let corrected = McpServerStatus { observed_generation: Some(2), ..fails.clone() };
        let action = |status: &McpServerStatus| events(None, status).remove(0).action;
        assert_ne!(action(&fails), action(&corrected));
    }

    /// The reason of these stays the same, whatever it is that fails.
    #[test]
    fn each_cause_of_what_fails_in_part_is_an_event_of_its_own() {
        let fails = |reason, message: &str| {
            let mut status = with(&[(ConditionType::Available, "True", reason)]);
            status.conditions[0].message = message.to_owned();
            status
        };
        let refused = "the previous version goes on serving; the new one (generation 3) fails: ConnectionRefused: nothing \
                       listens on port 3000";
        let exited =
            "the previous version goes on serving; the new one (generation 3) fails: ServerExited: code 2";
        let again =
            "the previous version goes on serving; the new one (generation 3) fails: ServerExited: code 3";
        let sidecar = "2 of 3 pods serve, another fails: SidecarFailed: the sidecar was ended by signal 9";
        let server = "2 of 3 pods serve, another fails: ServerExited: the server was ended by signal 9";
        let (rollout, part) = (Reason::RolloutFailing, Reason::Degraded);
        for (reason, before, now, is_told) in [
            (rollout, refused, exited, true),
            (rollout, exited, again, false),
            (part, sidecar, server, true),
            (part, server, server, false),
            (part, "no cause", "in other words", false),
        ] {
            let (before, now) = (fails(reason, before), fails(reason, now));
            assert_eq!(!events(Some(&before), &now).is_empty(), is_told, "{before:?} {now:?}");
            let [first, second] = [&before, &now].map(|status| events(None, status).remove(0).action);
            assert_eq!(first != second, is_told, "what is told as one has the words of the first");
        }
    }

    #[test]
    fn what_is_wrong_with_another_entry_of_a_secret_is_an_event_of_its_own() {
        use ConditionType::{Accepted, Available};
        for (type_, reason, is_told_apart, why) in [
            (Accepted, Reason::InvalidKeys, true, "somebody has changed the Secret"),
            (Accepted, Reason::Rejected, false, "the API server says something else each time"),
            (Accepted, Reason::Unreadable, false, "so it does here"),
            (Available, Reason::ImagePullFailed, false, "it comes and goes"),
        ] {
            let fails = with(&[(type_, "False", reason)]);
            let mut in_other_words = fails.clone();
            in_other_words.conditions[0].message = "other words".to_owned();
            let action = |status: &McpServerStatus| events(None, status).remove(0).action;
            assert_eq!(action(&fails) != action(&in_other_words), is_told_apart, "{why}");
        }
    }

    #[test]
    fn only_a_status_of_the_manifest_as_it_still_is_is_an_echo() {
        let server = |uid: &str, version: &str, generation: i64, annotation: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            generation: Some(generation),
            annotations: Some([("key".to_owned(), annotation.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let observed = server("a", "7", 1, "x");
        for (written, expected) in [
            (server("a", "8", 1, "x"), Some(8)),
            (server("a", "9", 2, "x"), None),
            (server("a", "9", 1, "y"), None),
            (server("b", "9", 1, "x"), None),
        ] {
            assert_eq!(echo(&observed, &written), expected, "{written:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_steps_of_a_start_wait_and_not_for_long() {
        let starting = status(("Unknown", Reason::Starting), "a");
        let connecting = status(("Unknown", Reason::Connecting), "a");
        let memory = Mutex::new(ServerMemory::default());
        assert_eq!(wait(&memory, Some(&starting), &connecting), None, "nothing was written yet");
        remember(&mut memory.lock());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(wait(&memory, None, &starting), None, "the first word");
        assert_eq!(wait(&memory, Some(&starting), &starting), None, "nothing is to be written");
        assert_eq!(wait(&memory, Some(&starting), &connecting), Some(PASSING - Duration::from_secs(1)));
        for news in [
            status(("Unknown", Reason::Connecting), "b"),
            status(("True", Reason::Ready), "a"),
            status(("False", Reason::ServerExited), "a"),
        ] {
            assert_eq!(wait(&memory, Some(&starting), &news), None, "{news:?}");
            assert_eq!(wait(&memory, Some(&news), &connecting), None, "{news:?}");
        }
        tokio::time::advance(PASSING - Duration::from_secs(1)).await;
        assert_eq!(wait(&memory, Some(&starting), &connecting), None);
    }

    /// As where session keys follow each other by themselves.
    #[tokio::test(start_paused = true)]
    async fn a_configuration_that_arrives_soon_is_not_said_to_be_on_its_way() {
        let ready = status(("True", Reason::Ready), "a");
        let behind = status(("True", Reason::ServingPrevious), "a");
        let memory = Mutex::new(ServerMemory::default());
        let second = Duration::from_secs(1);
        assert_eq!(wait(&memory, Some(&ready), &behind), Some(ON_ITS_WAY), "though nothing was written yet");
        tokio::time::advance(second).await;
        assert_eq!(wait(&memory, Some(&ready), &behind), Some(ON_ITS_WAY - second));
        assert_eq!(wait(&memory, Some(&ready), &ready), None, "it has arrived");
        tokio::time::advance(ON_ITS_WAY).await;
        assert_eq!(wait(&memory, Some(&ready), &behind), Some(ON_ITS_WAY), "this is another one");
        tokio::time::advance(ON_ITS_WAY).await;
        assert_eq!(wait(&memory, Some(&ready), &behind), None, "it does not arrive");
        let other = status(("True", Reason::ServingPrevious), "b");
        let lost = status(("False", Reason::ConnectionLost), "a");
        let changed = McpServerStatus { observed_generation: Some(2), ..behind.clone() };
        for news in [other, lost, changed] {
            memory.lock().behind = None;
            assert_eq!(wait(&memory, Some(&ready), &news), None, "{news:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_changes_for_ever_is_written_at_a_pace() {
        let well = status(("True", Reason::Ready), "a");
        let lost = status(("False", Reason::ConnectionLost), "a");
        let memory = Mutex::new(ServerMemory::default());
        // Once a second for ten minutes.
        let (mut previous, mut next) = (&well, &lost);
        let mut writes = Vec::new();
        for second in 0..600 {
            if wait(&memory, Some(previous), next).is_none() {
                remember(&mut memory.lock());
                writes.push(second);
                (previous, next) = (next, previous);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(writes[..20], Vec::from_iter(0..20), "what changes now and then is said at once");
        assert!(writes.len() <= 20 + 600 / 15 + 1, "{writes:?}");
        let [.., before, last] = writes[..] else { panic!("{writes:?}") };
        assert_eq!(last - before, PACE.as_secs());
        // Another manifest is somebody's doing, and waits for nothing.
        let next = McpServerStatus { observed_generation: Some(2), ..lost.clone() };
        assert_eq!(wait(&memory, Some(previous), &next), None);
        // However often that was.
        for _ in 0..200 {
            remember(&mut memory.lock());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(wait(&memory, Some(&well), &lost) <= Some(PACE));
        // A server that has been quiet since may change again.
        tokio::time::advance(PACE * AT_ONCE).await;
        assert_eq!(wait(&memory, Some(&well), &lost), None);
    }
}
