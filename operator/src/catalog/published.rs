//! What of an `McpServer` goes into the catalog. Pure.
//!
//! The messages of its status and of its sidecar quote what the server wrote and answered. That is for those who may read
//! the `McpServer`; whoever may read the catalog gets Longshore's own words, and where there is more.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;
use longshore_catalog::model::{Health, State};
use longshore_catalog::{About, Endpoint, Link, Offer, ServerKey, ServerRecord};
use longshore_crds::McpServer;
use longshore_sidecar_client::Observation;
use longshore_sidecar_config::ToolFilter;
use longshore_sidecar_config::inventory::{Connection, ConnectionState};

use super::hiding::Tools;
use crate::mcp_server::condition::{ConditionType, Reason};
use crate::mcp_server::status::find;
use crate::mcp_server::validate::tool_filter;
use crate::view::PodView;

/// A published server, as its manifest and its status have it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Published {
    /// Which object it is.
    pub(super) uid: String,
    about: About,
    endpoint: Endpoint,
    ready: Option<Condition>,
    /// Where there is more to read of how it is.
    more: String,
    known_tools: Vec<String>,
    known_tools_left_out: usize,
    /// Which tools exist.
    pub(super) filter: ToolFilter,
}

impl Published {
    /// Of a server that is to be in the catalog; `None` of one that is not.
    pub(super) fn of(server: &McpServer) -> Option<Self> {
        let catalog = &server.spec.catalog;
        if !catalog.publish {
            return None;
        }
        let status = server.status.as_ref();
        let known_tools = status.and_then(|status| status.tools.clone()).unwrap_or_default();
        Some(Self {
            uid: server.uid().unwrap_or_default(),
            about: about(catalog),
            endpoint: Endpoint {
                url: status.and_then(|status| status.url.clone()),
                public_url: status.and_then(|status| status.public_url.clone()),
                auth: server.spec.auth.api_keys.iter().map(|_| "apiKeys".to_owned()).collect(),
            },
            ready: status.and_then(|status| find(&status.conditions, ConditionType::Ready)).cloned(),
            more: format!(
                "`kubectl get lmcp -n {} {} -o wide`",
                server.namespace().unwrap_or_default(),
                server.name_any()
            ),
            known_tools_left_out: (known_tools.count as usize).saturating_sub(known_tools.names.len()),
            known_tools: known_tools.names,
            filter: tool_filter(&server.spec.tools, &mut Vec::new()),
        })
    }

    /// All of its tools, as it was heard last: also those that do not exist for clients.
    pub(super) fn tools(&self, heard: Option<Arc<Offer>>) -> Tools {
        let known = if heard.is_none() { self.known_tools.clone() } else { Vec::new() };
        Tools { offer: heard, known }
    }

    /// What the catalog is told, with what the sidecar of one of its pods says, how the server was by another's, and which
    /// tools are listed.
    pub(super) fn record(
        &self,
        key: ServerKey,
        pod: Option<(&PodView, Observation<Offer>)>,
        before: Option<Health>,
        tools: Tools,
    ) -> ServerRecord {
        let health = match (&pod, before) {
            // A pod that has just taken over is in service; how it is, it says in a moment.
            (Some((pod, said)), Some(before)) if pod.ready && *said == Observation::default() => before,
            _ => self.health(pod.as_ref().map(|(_, said)| said)),
        };
        // Its server may answer the sidecar: no client comes there while all pods start, or are kept out of the Service.
        let is_out = pod.is_some_and(|(pod, _)| !pod.ready);
        let health = if is_out && health.state == State::Up {
            self.by_status(State::Unknown, Reason::Starting, "no pod of this server is in its Service")
        } else {
            health
        };
        ServerRecord {
            key,
            about: self.about.clone(),
            endpoint: self.endpoint.clone(),
            health,
            offer: tools.offer,
            known_tools: tools.known,
            known_tools_left_out: self.known_tools_left_out,
        }
    }

    /// The sidecar knows best how its server is; where none can be asked, the status says why.
    fn health(&self, said: Option<&Observation<Offer>>) -> Health {
        let Some(said) = said else {
            return self.by_status(State::Down, Reason::NoPod, "no pod of this server runs");
        };
        if said.unreachable.is_some() {
            let message = "its sidecar does not answer the catalog, whose log says why";
            return self.by_status(State::Unknown, Reason::SidecarUnreachable, message);
        }
        let Some(offer) = &said.summary else {
            return self.by_status(State::Unknown, Reason::Connecting, "its sidecar has not been heard yet");
        };
        // Its server may be well, and nobody can call it.
        if !offer.lets_in {
            return self.by_status(State::Down, Reason::InvalidKeys, "its sidecar lets nobody in");
        }
        // Nor one that has no address, since something went wrong.
        if self.endpoint.url.is_none() && self.ready.as_ref().is_some_and(|ready| ready.status == "False") {
            return self.by_status(State::Unknown, Reason::Starting, "it has no address");
        }
        let health = health(&offer.connection, &self.more);
        match &self.ready {
            // That nobody answers is all that a sidecar sees of a server whose process does not run.
            Some(ready)
                if ready.status == "False" && is_unanswered(&health) && does_not_run(&ready.reason) =>
            {
                Health { reason: ready.reason.clone(), message: self.words(&ready.reason), ..health }
            }
            _ => health,
        }
    }

    /// By the condition `Ready`, if that names something that has gone wrong; else as given.
    fn by_status(&self, state: State, reason: Reason, message: &str) -> Health {
        let passing =
            [Reason::Starting, Reason::NoPod, Reason::Connecting, Reason::ReadinessGate].map(Reason::name);
        match &self.ready {
            Some(ready) if ready.status == "False" => Health {
                // What every server goes through is no failure.
                state: if passing.contains(&ready.reason.as_str()) { State::Unknown } else { State::Down },
                since: Some(ready.last_transition_time.0.to_string()),
                reason: ready.reason.clone(),
                message: self.words(&ready.reason),
            },
            Some(_) => {
                Health { state, since: None, reason: reason.name().to_owned(), message: message.to_owned() }
            }
            None => Health {
                state: State::Unknown,
                since: None,
                reason: Reason::Starting.name().to_owned(),
                message: "the operator has not looked at it yet".to_owned(),
            },
        }
    }

    /// What a reason in the status means. A newer operator may have given one that is not known here.
    fn words(&self, reason: &str) -> String {
        match Reason::of(reason) {
            Some(known) => words(known, &self.more),
            None => format!("it is not ready; {} says more", self.more),
        }
    }
}

/// What a server's owner says of it.
pub(crate) fn about(catalog: &longshore_crds::mcp_server::Catalog) -> About {
    let link =
        |link: &longshore_crds::mcp_server::Link| Link { title: link.title.clone(), url: link.url.clone() };
    About {
        title: catalog.title.clone(),
        description: catalog.description.clone(),
        owner: catalog.owner.clone(),
        tags: catalog.tags.clone(),
        links: catalog.links.iter().map(link).collect(),
    }
}

/// How a server is, by its sidecar's word, and where there is `more`.
pub(crate) fn health(connection: &Connection, more: &str) -> Health {
    let since = Some(connection.since.clone()).filter(|since| !since.is_empty());
    match connection.state {
        ConnectionState::Connected if connection.is_steady() => {
            Health { state: State::Up, since, reason: String::new(), message: String::new() }
        }
        ConnectionState::Connecting => Health {
            state: State::Unknown,
            since,
            reason: Reason::Connecting.name().to_owned(),
            message: "the first handshake with the server is still to come".to_owned(),
        },
        // It does not answer, or is back since a moment ago after it died soon.
        ConnectionState::Connected | ConnectionState::Failed => {
            let reason = Reason::of_connection(connection.reason);
            Health {
                state: State::Down,
                since,
                reason: reason.name().to_owned(),
                message: words(reason, more),
            }
        }
    }
}

/// Whether nobody answers at the server's port.
fn is_unanswered(health: &Health) -> bool {
    [Reason::ConnectionRefused, Reason::ConnectionLost].iter().any(|reason| health.reason == reason.name())
}

/// Whether a reason of the status is that the server's process does not run.
fn does_not_run(reason: &str) -> bool {
    matches!(
        Reason::of(reason),
        Some(
            Reason::ImagePullFailed
                | Reason::ContainerRefused
                | Reason::CommandNotFound
                | Reason::CommandNotExecutable
                | Reason::ServerExited
                | Reason::OutOfMemory
        )
    )
}

fn words(reason: Reason, more: &str) -> String {
    let mut letters = reason.meaning().trim_end_matches('.').chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    let meaning: String = first.into_iter().chain(letters).collect();
    format!("{meaning}; {more} says more")
}

#[cfg(test)]
mod tests {
    use longshore_catalog::Reader;
    use serde_json::{Value, json};

    use super::*;

    /// What no reader of the catalog is to see.
    const STDERR: &str = "it wrote to stderr: postgres://user:secret@db";

    fn server(publish: bool, status: Value) -> McpServer {
        serde_json::from_value(json!({
            "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "uid": "u"},
            "spec": {
                "source": {"image": "x"}, "transport": {"streamableHttp": {"port": 1}},
                "auth": {"apiKeys": {"secretRef": {"name": "keys"}}},
                "catalog": {"publish": publish, "title": "Demo", "owner": "Team A", "tags": ["x"],
                            "links": [{"title": "Runbook", "url": "https://example.dev"}]},
            },
            "status": status,
        }))
        .unwrap()
    }

    fn ready(status: &str, reason: &str) -> Value {
        json!({"url": "http://demo", "tools": {"count": 3, "digest": "d", "names": ["echo"]}, "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": STDERR,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]})
    }

    fn said(state: &str, reason: Value) -> Observation<Offer> {
        said_by(state, reason, json!({}))
    }

    /// The same of a sidecar of this configuration.
    fn said_by(state: &str, reason: Value, config: Value) -> Observation<Offer> {
        let inventory = json!({
            "config": config,
            "phase": "Serving",
            "connection": {"state": state, "since": "2026-02-02T00:00:00Z", "reason": reason, "message": STDERR},
            "server": {"info": {"name": "s"}, "protocolVersion": "1"}, "tools": [{"name": "echo"}],
        });
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let offer = Reader::default().read(&key, inventory.to_string().as_bytes()).unwrap();
        Observation { summary: Some(Arc::new(offer)), unreachable: None }
    }

    #[test]
    fn only_published_servers_are_listed() {
        assert_eq!(Published::of(&server(false, ready("True", "Ready"))), None);
        let published = Published::of(&server(true, ready("True", "Ready"))).unwrap();
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let record = published.record(key, None, None, published.tools(None));
        assert_eq!(record.about.title.as_deref(), Some("Demo"));
        assert_eq!(
            (record.endpoint.url.as_deref(), &*record.endpoint.auth),
            (Some("http://demo"), &["apiKeys".to_owned()][..])
        );
        assert_eq!((record.known_tools, record.known_tools_left_out), (vec!["echo".to_owned()], 2));
    }

    #[test]
    fn a_pod_in_service_that_was_not_heard_yet_leaves_a_server_as_it_was() {
        let published = Published::of(&server(true, ready("True", "Ready"))).unwrap();
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        let before = published.health(Some(&said("Connected", Value::Null)));
        for (in_service, said, before, expected) in [
            (true, Observation::default(), Some(&before), State::Up),
            (true, Observation::default(), None, State::Unknown),
            (false, Observation::default(), Some(&before), State::Unknown),
            (true, said("Connecting", Value::Null), Some(&before), State::Unknown),
            (true, said("Failed", json!("ConnectionLost")), Some(&before), State::Down),
            // It died soon after its handshake, and is back since a moment ago.
            (true, said("Connected", json!("ConnectionLost")), Some(&before), State::Down),
        ] {
            let pod = PodView { ready: in_service, ..PodView::default() };
            let record = published.record(key.clone(), Some((&pod, said)), before.cloned(), Tools::default());
            assert_eq!(record.health.state, expected);
        }
    }

    #[test]
    fn a_server_that_no_client_comes_to_is_not_up() {
        let key = ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
        for (status, in_service, expected, reason) in [
            (ready("False", "Connecting"), true, State::Up, ""),
            (ready("False", "Connecting"), false, State::Unknown, "Connecting"),
            (ready("False", "ReadinessGate"), false, State::Unknown, "ReadinessGate"),
            (ready("False", "NodeNotReady"), false, State::Down, "NodeNotReady"),
            (ready("True", "Ready"), false, State::Unknown, "Starting"),
        ] {
            let published = Published::of(&server(true, status.clone())).unwrap();
            let pod = PodView { ready: in_service, ..PodView::default() };
            let said = said("Connected", Value::Null);
            let record = published.record(key.clone(), Some((&pod, said)), None, Tools::default());
            assert_eq!((record.health.state, &*record.health.reason), (expected, reason), "{status}");
        }
    }

    #[test]
    fn the_sidecar_says_how_a_server_is_and_the_status_where_none_can_be_asked() {
        let up = said("Connected", Value::Null);
        let down = said("Failed", json!("ConnectionRefused"));
        let lost = said("Failed", json!("ConnectionLost"));
        let refused = said("Failed", json!("InitializeRefused"));
        let starting = said("Connecting", Value::Null);
        let silent = Observation::default();
        let exited = said("Failed", json!("ProcessExited"));
        let closed = said_by("Connected", Value::Null, json!({"callers": false}));
        let mut taken = ready("False", "NameTaken");
        taken["url"].take();
        let unreachable =
            Observation { unreachable: Some("no route".to_owned()), ..said("Connected", Value::Null) };
        let (first, second) = (Some("2026-01-01T00:00:00Z"), Some("2026-02-02T00:00:00Z"));
        for (status, said, state, since, reason) in [
            (ready("True", "Ready"), Some(&up), State::Up, second, ""),
            (ready("False", "ServerExited"), Some(&up), State::Up, second, ""),
            (ready("True", "Ready"), Some(&closed), State::Down, None, "InvalidKeys"),
            (ready("False", "InvalidKeys"), Some(&closed), State::Down, first, "InvalidKeys"),
            (taken, Some(&up), State::Down, first, "NameTaken"),
            (ready("True", "Ready"), Some(&down), State::Down, second, "ConnectionRefused"),
            (ready("False", "Starting"), Some(&down), State::Down, second, "ConnectionRefused"),
            (ready("False", "ListFailed"), Some(&down), State::Down, second, "ConnectionRefused"),
            (ready("False", "ImagePullFailed"), Some(&down), State::Down, second, "ImagePullFailed"),
            (ready("False", "OutOfMemory"), Some(&down), State::Down, second, "OutOfMemory"),
            (ready("False", "ServerExited"), Some(&lost), State::Down, second, "ServerExited"),
            (ready("False", "ServerExited"), Some(&refused), State::Down, second, "InitializeRefused"),
            (ready("True", "ImagePullFailed"), Some(&down), State::Down, second, "ConnectionRefused"),
            (ready("True", "Ready"), Some(&exited), State::Down, second, "ServerExited"),
            (ready("True", "Ready"), Some(&starting), State::Unknown, second, "Connecting"),
            (ready("True", "Ready"), Some(&silent), State::Unknown, None, "Connecting"),
            (ready("True", "Ready"), Some(&unreachable), State::Unknown, None, "SidecarUnreachable"),
            (ready("False", "PodFailed"), Some(&unreachable), State::Down, first, "PodFailed"),
            (ready("False", "ImagePullFailed"), Some(&silent), State::Down, first, "ImagePullFailed"),
            (ready("False", "ImagePullFailed"), None, State::Down, first, "ImagePullFailed"),
            (ready("False", "OfANewerRelease"), None, State::Down, first, "OfANewerRelease"),
            (ready("False", "Starting"), None, State::Unknown, first, "Starting"),
            (ready("True", "Ready"), None, State::Down, None, "NoPod"),
            (json!({}), None, State::Unknown, None, "Starting"),
        ] {
            let published = Published::of(&server(true, status.clone())).unwrap();
            let health = published.health(said);
            assert_eq!(
                (health.state, health.since.as_deref(), &*health.reason),
                (state, since, reason),
                "{status}"
            );
            assert_eq!(health.message.is_empty(), state == State::Up, "{status}");
        }
    }

    #[test]
    fn what_a_server_wrote_is_not_in_the_catalog_and_where_it_is_is_said() {
        let more = "`kubectl get lmcp -n tools demo -o wide` says more";
        let down = said("Failed", json!("ConnectionRefused"));
        let unreachable = Observation { unreachable: Some(STDERR.to_owned()), ..Observation::default() };
        for (status, said, expected) in [
            (ready("True", "Ready"), Some(&down), format!("nothing listens at the server's port; {more}")),
            (ready("False", "ServerExited"), None, format!("the server's process ends; {more}")),
            (ready("False", "ServerExited"), Some(&down), format!("the server's process ends; {more}")),
            (
                ready("False", "InvalidKeys"),
                None,
                format!(
                    "the Secret with the API keys has none, entries that are no keys, or too many; {more}"
                ),
            ),
            (ready("False", "OfANewerRelease"), None, format!("it is not ready; {more}")),
            (
                ready("True", "Ready"),
                Some(&unreachable),
                "its sidecar does not answer the catalog, whose log says why".to_owned(),
            ),
        ] {
            let published = Published::of(&server(true, status)).unwrap();
            assert_eq!(published.health(said).message, expected);
        }
    }
}
