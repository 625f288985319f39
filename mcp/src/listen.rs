//! Subscriptions: `resources/subscribe` and list changes for everybody until 2025-11-25, `subscriptions/listen` since
//! 2026-07-28.
//!
//! [`Streams`] serves modern clients from one session with a legacy server. [`Wishes`] serves one legacy client from a
//! modern server. Both hold their bounds in [`MAX_STREAMS`] and [`MAX_URIS`].
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions>

mod streams;
mod wishes;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use memchr::memmem;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::meta::{SERVER_INFO, SUBSCRIPTION_ID};
use crate::method::ServerNotification;
use crate::object::{self, Object, array, quote, string};
use crate::spelling;
use crate::tasks::may_be_spelled_otherwise;

pub use streams::{Opened, Streams};
pub use wishes::Wishes;

/// The most streams of one session. Each is an open connection of somebody.
pub const MAX_STREAMS: usize = 256;
/// The most resources of one subscription: each is remembered, and told to a server.
pub const MAX_URIS: usize = 1024;
/// The longest URI among them, in bytes.
pub const MAX_URI: usize = 4096;

/// There are as many as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Streams.
    #[error("there may be {MAX_STREAMS} subscriptions at most")]
    Streams,
    /// Resources.
    #[error("a subscription may name {MAX_URIS} resources at most")]
    Uris,
    /// One that is too long.
    #[error("a subscription may name resources by URIs of {MAX_URI} bytes at most")]
    Uri,
}

/// What somebody wants to hear of, or a server can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `notifications/tools/list_changed`.
    pub tools: bool,
    /// `notifications/prompts/list_changed`.
    pub prompts: bool,
    /// `notifications/resources/list_changed`.
    pub resources: bool,
    /// `notifications/resources/updated`, for these. Where there are more than [`MAX_URIS`], for one more than that: no
    /// more are read.
    pub uris: BTreeSet<String>,
}

/// What a server says that it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// `notifications/tools/list_changed`.
    pub tools: bool,
    /// `notifications/prompts/list_changed`.
    pub prompts: bool,
    /// `notifications/resources/list_changed`.
    pub resources: bool,
    /// `notifications/resources/updated`.
    pub updates: bool,
}

/// What a notification is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Topic {
    Tools,
    Prompts,
    Resources,
    Uri(String),
}

/// URIs in any order, as far as they may be too many.
#[derive(Default)]
struct Uris(BTreeSet<String>);

impl<'de> Deserialize<'de> for Uris {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Uris;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of URIs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Uris, A::Error> {
                let mut uris = BTreeSet::new();
                while let Some(uri) = list.next_element::<String>()? {
                    if uris.len() <= MAX_URIS {
                        uris.insert(uri);
                    }
                }
                Ok(Uris(uris))
            }
        }
        deserializer.deserialize_seq(Reader)
    }
}

impl Offers {
    /// Reads a server's capabilities. What cannot be read is not offered.
    pub fn read(capabilities: &str) -> Self {
        // Each by itself: what is wrong with one says nothing of the others.
        let offers = |of: &str, what: &str| object::at(capabilities, &[of, what]) == Some("true");
        Self {
            tools: offers("tools", "listChanged"),
            prompts: offers("prompts", "listChanged"),
            resources: offers("resources", "listChanged"),
            updates: offers("resources", "subscribe"),
        }
    }
}

impl Filter {
    /// Reads the parameters of `subscriptions/listen`. `None` if they are no such parameters. What is null in them is not
    /// there.
    pub fn read(params: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            tools_list_changed: Option<bool>,
            prompts_list_changed: Option<bool>,
            resources_list_changed: Option<bool>,
            resource_subscriptions: Option<Uris>,
        }
        const MEMBERS: [&str; 5] = [
            "toolsListChanged",
            "promptsListChanged",
            "resourcesListChanged",
            "resourceSubscriptions",
            "taskIds",
        ];
        // What is decided on here must not be read otherwise by the server.
        let [notifications] = spelling::read(params, ["notifications"], &["notifications"]).ok()?;
        let notifications = notifications?.get();
        spelling::read(notifications, [], &MEMBERS).ok()?;
        let notifications: Wire = serde_json::from_str(notifications).ok()?;
        Some(Self {
            tools: notifications.tools_list_changed.unwrap_or_default(),
            prompts: notifications.prompts_list_changed.unwrap_or_default(),
            resources: notifications.resources_list_changed.unwrap_or_default(),
            uris: notifications.resource_subscriptions.unwrap_or_default().0,
        })
    }

    /// Whether there are no more of them than there may be, and none is longer than it may be.
    pub fn bounded(self) -> Result<Self, Full> {
        if self.uris.len() > MAX_URIS {
            Err(Full::Uris)
        } else if self.uris.iter().any(|uri| uri.len() > MAX_URI) {
            Err(Full::Uri)
        } else {
            Ok(self)
        }
    }

    /// What of it a server tells.
    #[must_use]
    pub fn honoured(self, offers: Offers) -> Self {
        Self {
            tools: self.tools && offers.tools,
            prompts: self.prompts && offers.prompts,
            resources: self.resources && offers.resources,
            uris: if offers.updates { self.uris } else { BTreeSet::new() },
        }
    }

    /// Whether it is nothing at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// That all of it may have changed.
    fn missed(&self) -> Vec<String> {
        let changed = [
            (self.tools, ServerNotification::ToolsListChanged),
            (self.prompts, ServerNotification::PromptsListChanged),
            (self.resources, ServerNotification::ResourcesListChanged),
        ];
        let changed = changed
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .map(|(_, method)| format!(r#"{{"jsonrpc":"2.0","method":"{}"}}"#, method.as_str()));
        let updated = self.uris.iter().map(|uri| {
            let (method, uri) = (ServerNotification::ResourcesUpdated.as_str(), quote(uri));
            format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"uri":{uri}}}}}"#)
        });
        changed.chain(updated).collect()
    }

    /// The same as whole messages of a stream, each marked as that of the request with this id (as JSON).
    pub fn missed_in(&self, id: &str) -> Vec<String> {
        self.missed().iter().filter_map(|message| streams::marked(message, id)).collect()
    }

    /// As `notifications` of a message.
    fn write(&self) -> String {
        let mut members = Vec::new();
        for (name, wanted) in [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ] {
            if wanted {
                members.push(format!("\"{name}\":true"));
            }
        }
        if !self.uris.is_empty() {
            members
                .push(format!("\"resourceSubscriptions\":{}", array(self.uris.iter().map(|uri| quote(uri)))));
        }
        format!("{{{}}}", members.join(","))
    }

    fn wants(&self, topic: &Topic) -> bool {
        match topic {
            Topic::Tools => self.tools,
            Topic::Prompts => self.prompts,
            Topic::Resources => self.resources,
            Topic::Uri(uri) => self.uris.iter().any(|subscribed| is_in(uri, subscribed)),
        }
    }
}

/// What a notification of a server is about, if somebody can subscribe to it.
fn topic(message: &str) -> Option<Topic> {
    let method = object::at(message, &["method"]).and_then(string)?;
    match ServerNotification::parse(&method)? {
        ServerNotification::ToolsListChanged => Some(Topic::Tools),
        ServerNotification::PromptsListChanged => Some(Topic::Prompts),
        ServerNotification::ResourcesListChanged => Some(Topic::Resources),
        ServerNotification::ResourcesUpdated => {
            let uri = object::at(message, &["params", "uri"]).and_then(string)?;
            Some(Topic::Uri(uri.into_owned()))
        }
        _ => None,
    }
}

/// Whether a resource is the one that somebody is subscribed to, or a part of it: servers may tell of either
/// (`notifications/resources/updated`).
pub fn is_in(uri: &str, subscribed: &str) -> bool {
    uri.strip_prefix(subscribed)
        .is_some_and(|rest| rest.is_empty() || subscribed.ends_with('/') || rest.starts_with(['/', '?', '#']))
}

/// What a message says of a resource that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// It is this one.
    Of(String),
    /// Nobody can say which one it is, so nobody can say who may hear of it.
    Unreadable,
}

/// The resource of which a message says that it has changed. `None` if it says no such thing.
pub fn updated(message: &str) -> Option<Update> {
    // Nearly no message does, and none is read for that. Without what is before the slash, which some programs escape.
    static MARK: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("/updated"));
    if MARK.find(message.as_bytes()).is_none() && !may_be_spelled_otherwise(message.as_bytes()) {
        return None;
    }
    let Ok(notification) = Object::read(message) else { return Some(Update::Unreadable) };
    let method = notification.original("method").and_then(string)?;
    if ServerNotification::parse(&method) != Some(ServerNotification::ResourcesUpdated) {
        return None;
    }
    let uri = object::at(message, &["params", "uri"]).and_then(string);
    Some(uri.map_or(Update::Unreadable, |uri| Update::Of(uri.into_owned())))
}

/// The first message of a subscription, whose request has this id (as JSON): what it will hear of.
pub fn acknowledged(id: &str, filter: &Filter) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"notifications":{},"_meta":{{"{SUBSCRIPTION_ID}":{id}}}}}}}"#,
        filter.write()
    )
}

/// The last message of a subscription that the server's side ends: the response to its request, which has this id (as
/// JSON). `server_info` says who the server is, as JSON.
pub fn ended(id: &str, server_info: Option<&str>) -> String {
    let mut meta = Object::empty();
    meta.set(SUBSCRIPTION_ID, id.to_owned());
    if let Some(info) = server_info {
        meta.set(SERVER_INFO, info.to_owned());
    }
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{}}}}}"#, meta.write())
}

/// `resources/subscribe`: the whole message. The id is JSON, and the URI a text.
pub fn subscribe(id: &str, uri: &str) -> String {
    let uri = quote(uri);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/subscribe","params":{{"uri":{uri}}}}}"#)
}

/// `resources/unsubscribe`: the whole message. The id is JSON, and the URI a text.
pub fn unsubscribe(id: &str, uri: &str) -> String {
    let uri = quote(uri);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/unsubscribe","params":{{"uri":{uri}}}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_of_a_resource_says_of_which() {
        let of = |uri: &str| Some(Update::Of(uri.to_owned()));
        let unreadable = || Some(Update::Unreadable);
        for (message, expected) in [
            (r#"{"method":"notifications/resources/updated","params":{"uri":"a"}}"#, of("a")),
            (r#"{"method":"notifications\/resources\/upd\u0061ted","params":{"uri":"\u0061"}}"#, of("a")),
            (r#"{"method":"notifications/resources/updated","params":{}}"#, unreadable()),
            (r#"{"method":"notifications/resources/updated","params":{"uri":"a","uri":"a"}}"#, unreadable()),
            (
                r#"{"method":"x","method":"notifications/resources/updated","params":{"uri":"a"}}"#,
                unreadable(),
            ),
            (r#"{"method":"notifications/resources/list_changed","params":{"uri":"/updated"}}"#, None),
            (r#"{"id":1,"result":{"uri":"/updated"}}"#, None),
        ] {
            assert_eq!(updated(message), expected, "{message}");
        }
    }

    #[test]
    fn filters_are_cut_to_what_is_offered() {
        let params = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["b","a","a"],"taskIds":["t"]}}"#;
        let filter = Filter::read(params).unwrap();
        assert_eq!(
            filter.write(),
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a","b"]}"#
        );
        for (capabilities, expected) in [
            (r#"{"tools":{"listChanged":true},"resources":{}}"#, r#"{"toolsListChanged":true}"#),
            (r#"{"resources":{"subscribe":true}}"#, r#"{"resourceSubscriptions":["a","b"]}"#),
            (
                r#"{"tools":{"listChanged":true},"prompts":null,"resources":{"subscribe":null}}"#,
                r#"{"toolsListChanged":true}"#,
            ),
            ("{}", "{}"),
            ("7", "{}"),
        ] {
            let honoured = filter.clone().honoured(Offers::read(capabilities));
            assert_eq!(honoured.write(), expected, "{capabilities}");
            assert_eq!(honoured.is_empty(), expected == "{}");
        }
        for (count, bounded) in [(MAX_URIS, true), (2 * MAX_URIS, false)] {
            let uris = array((0..count).map(|number| format!("\"{number}\"")));
            let params = format!(r#"{{"notifications":{{"resourceSubscriptions":{uris}}}}}"#);
            let filter = Filter::read(&params).unwrap();
            assert!(filter.uris.len() <= MAX_URIS + 1, "no more are read than decide on it");
            assert_eq!(filter.bounded().map(drop), if bounded { Ok(()) } else { Err(Full::Uris) });
        }
        for (length, bounded) in [(MAX_URI, Ok(())), (MAX_URI + 1, Err(Full::Uri))] {
            let uri = "x".repeat(length);
            let params = format!(r#"{{"notifications":{{"resourceSubscriptions":["a","{uri}"]}}}}"#);
            assert_eq!(Filter::read(&params).unwrap().bounded().map(drop), bounded);
        }
        let nulls = r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":null,"resourceSubscriptions":null}}"#;
        assert_eq!(Filter::read(nulls).unwrap().write(), r#"{"toolsListChanged":true}"#);
        for params in [
            "{}",
            r#"{"notifications":[7]}"#,
            r#"{"notifications":{"toolsListChanged":"yes"}}"#,
            // Some servers would read these as what was not decided on.
            r#"{"notifications":{"resourceSubscriptions":["a"],"ResourceSubscriptions":["b"]}}"#,
            r#"{"notifications":{},"Notifications":{"resourceSubscriptions":["b"]}}"#,
        ] {
            assert_eq!(Filter::read(params), None, "{params}");
        }
    }
}
