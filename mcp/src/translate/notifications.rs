//! Notifications: what passes, and what is the proxy's own business.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions>

use std::borrow::Cow;

use super::{Pair, Untranslatable};
use crate::meta::SUBSCRIPTION_ID;
use crate::method::{NotificationMethod, ServerNotification};
use crate::object::Object;
use crate::revision::{Elicitation, Era};
use crate::tasks;

/// What becomes of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// It goes on, like this.
    On(Cow<'a, str>),
    /// It goes to the subscriptions that asked for it, see [`crate::listen`].
    Subscriptions,
    /// It is a log message: who gets it is a question of levels, see [`crate::logging`].
    Log(Cow<'a, str>),
    /// It ends a request, see [`crate::ids`].
    Cancels,
    /// The other side has no use for it.
    Nowhere,
}

/// A server's notification for its client. One that nobody knows goes on.
pub fn to_client<'a>(pair: Pair, method: &str, message: &'a str) -> Result<Told<'a>, Untranslatable> {
    use ServerNotification as N;
    let known = N::parse(method);
    if known == Some(N::Cancelled) {
        return Ok(Told::Cancels);
    }
    if pair.is_same() {
        return Ok(Told::On(Cow::Borrowed(message)));
    }
    Ok(match (known, pair.client.era()) {
        (Some(N::Message), Era::Modern) => Told::Log(Cow::Borrowed(message)),
        (
            Some(N::ResourcesUpdated | N::ResourcesListChanged | N::ToolsListChanged | N::PromptsListChanged),
            Era::Modern,
        ) => Told::Subscriptions,
        // The user's visit is over: a modern client finds out by asking again.
        (Some(N::ElicitationComplete), _)
            if pair.client.era() == Era::Modern
                || pair.client.features().elicitation < Elicitation::FormAndUrl =>
        {
            Told::Nowhere
        }
        (Some(N::SubscriptionsAcknowledged), Era::Legacy) => Told::Nowhere,
        // Tasks are not carried between revisions.
        (None, _) if matches!(method, "notifications/tasks" | "notifications/tasks/status") => Told::Nowhere,
        _ => Told::On(plain(pair, message)?),
    })
}

/// A client's notification for its server. One that nobody knows goes nowhere, as no rule could permit it.
pub fn to_server<'a>(pair: Pair, method: &str, message: &'a str) -> Told<'a> {
    let known = NotificationMethod::parse(method);
    match (known, pair.eras()) {
        (Some(NotificationMethod::Cancelled), _) => Told::Cancels,
        (None, _) => Told::Nowhere,
        // It has no stream that anything could come on.
        (_, (_, Era::Modern)) if !pair.is_same() => Told::Nowhere,
        (Some(NotificationMethod::TasksStatus), _) if !tasks::are_carried(pair) => Told::Nowhere,
        // A modern client has no session that these would be about.
        (Some(_), (Era::Modern, Era::Legacy)) => Told::Nowhere,
        _ => Told::On(Cow::Borrowed(message)),
    }
}

/// A notification without the id of a subscription, which a legacy client has never heard of.
fn plain(pair: Pair, message: &str) -> Result<Cow<'_, str>, Untranslatable> {
    if pair.server.era() == Era::Legacy {
        return Ok(Cow::Borrowed(message));
    }
    without_subscription(message).ok_or_else(|| pair.down().unreadable("a notification"))
}

/// A notification without the id of the subscription that it came on.
pub(crate) fn without_subscription(message: &str) -> Option<Cow<'_, str>> {
    let mut notification = Object::read(message).ok()?;
    // What is not there some servers write as `null` or `[]`, which no client need understand.
    if notification.map("params").is_none() {
        notification.remove("params");
    }
    let edited = notification.edit("params", |params| {
        let mut params = Object::read(params)?;
        let Some(meta) = params.map("_meta") else {
            params.remove("_meta");
            return Ok(params.into_text());
        };
        let mut meta = Object::read(meta)?;
        let was_there = meta.remove(SUBSCRIPTION_ID);
        if was_there && meta.is_empty() {
            params.remove("_meta");
        } else if was_there {
            params.set("_meta", meta.write());
        }
        Ok::<_, serde_json::Error>(params.into_text())
    });
    edited.ok()?;
    Some(notification.into_text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision::{self, V2025_06_18, V2025_11_25, V2026_07_28};

    #[test]
    fn what_a_server_wrote_as_nothing_is_left_out() {
        let with = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed"{params}}}"#)
        };
        for (params, expected) in [
            ("", ""),
            (r#","params":null"#, ""),
            (r#","params":[]"#, ""),
            (r#","params":{"_meta":null}"#, r#","params":{}"#),
            (r#","params":{"_meta":[]}"#, r#","params":{}"#),
            (r#","params":{"_meta":{}}"#, r#","params":{"_meta":{}}"#),
            (r#","params":{"_meta":{ "x":1}}"#, r#","params":{"_meta":{ "x":1}}"#),
        ] {
            assert_eq!(without_subscription(&with(params)).unwrap(), with(expected), "{params}");
        }
    }

    fn down(client: Revision, server: Revision, method: &str) -> String {
        let message = format!(
            r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"a":[ ],"_meta":{{"io.modelcontextprotocol/subscriptionId":1}}}}}}"#
        );
        match to_client(Pair { client, server }, method, &message).unwrap() {
            Told::On(text) if text == message => "on".to_owned(),
            Told::Log(_) => "log".to_owned(),
            Told::On(text) => {
                assert_eq!(text, format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"a":[ ]}}}}"#));
                "plain".to_owned()
            }
            other => format!("{other:?}").to_lowercase(),
        }
    }

    #[test]
    fn each_notification_has_its_way() {
        for (method, modern_client, legacy_client, older_client) in [
            ("notifications/cancelled", "cancels", "cancels", "cancels"),
            ("notifications/progress", "on", "plain", "on"),
            ("notifications/tools/list_changed", "subscriptions", "plain", "on"),
            ("notifications/resources/updated", "subscriptions", "plain", "on"),
            ("notifications/message", "log", "plain", "on"),
            ("notifications/elicitation/complete", "nowhere", "plain", "nowhere"),
            ("notifications/subscriptions/acknowledged", "on", "nowhere", "nowhere"),
            ("notifications/tasks/status", "nowhere", "nowhere", "nowhere"),
            ("com.example/thing", "on", "plain", "on"),
        ] {
            assert_eq!(down(V2026_07_28, V2025_11_25, method), modern_client, "{method}");
            assert_eq!(down(V2025_11_25, V2026_07_28, method), legacy_client, "{method}");
            assert_eq!(down(V2025_06_18, V2025_11_25, method), older_client, "{method}");
        }
        for (method, client, server, expected) in [
            ("notifications/initialized", V2025_11_25, V2026_07_28, Told::Nowhere),
            ("notifications/roots/list_changed", V2025_11_25, V2026_07_28, Told::Nowhere),
            ("notifications/cancelled", V2025_11_25, V2026_07_28, Told::Cancels),
            ("notifications/progress", V2026_07_28, V2025_11_25, Told::Nowhere),
            ("notifications/roots/list_changed", V2025_06_18, V2025_11_25, Told::On("{}".into())),
            ("com.example/thing", V2025_11_25, V2025_11_25, Told::Nowhere),
            ("com.example/thing", V2025_06_18, V2025_11_25, Told::Nowhere),
            ("com.example/thing", V2025_06_18, V2026_07_28, Told::Nowhere),
        ] {
            assert_eq!(to_server(Pair { client, server }, method, "{}"), expected, "{method}");
        }
    }
}
