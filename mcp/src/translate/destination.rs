//! Who answers a method: for some, the other era has nothing to pass on to.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning>

use super::Pair;
use crate::method::Method;
use crate::revision::Era;
use crate::tasks;

/// Where a client's request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To the server, through [`super::requests::request`].
    Server,
    /// To the server or not: the handshake has rules of its own, in [`super::handshake`].
    Handshake,
    /// Nowhere: the proxy answers `{}`.
    Empty,
    /// Nowhere: the proxy keeps the level, and puts it into every request. See [`crate::logging`].
    Level,
    /// Nowhere: the proxy keeps the subscription, and listens for it. See [`crate::listen`].
    Subscription,
    /// Nowhere: the proxy answers with notifications. See [`crate::listen`].
    Listen,
    /// Nowhere: the client's own revision does not have it.
    Unknown,
}

/// Where a request of this method goes. Methods that nobody knows go to the server.
pub fn of(pair: Pair, method: &str) -> Destination {
    let known = Method::ALL.into_iter().find(|known| known.as_str() == method);
    let Some(method) = known else { return Destination::Server };
    if !method.is_in(pair.client) {
        return Destination::Unknown;
    }
    match (pair.eras(), method) {
        // What a session keeps, and what the server of that revision keeps no session for.
        ((Era::Legacy, Era::Modern), Method::Ping) => Destination::Empty,
        ((Era::Legacy, Era::Modern), Method::LoggingSetLevel) => Destination::Level,
        ((Era::Legacy, Era::Modern), Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
            Destination::Subscription
        }
        ((Era::Modern, Era::Legacy), Method::SubscriptionsListen) => Destination::Listen,
        ((Era::Modern, Era::Legacy), Method::ServerDiscover) => Destination::Handshake,
        (_, Method::Initialize) => Destination::Handshake,
        // The tasks of the extension are not those of 2025-11-25.
        _ if method.is_about_tasks() && !tasks::are_carried(pair) => Destination::Unknown,
        _ if !method.is_in(pair.server) => Destination::Unknown,
        _ => Destination::Server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::Revision;

    #[test]
    fn each_method_has_one_destination() {
        use Destination::{Empty, Handshake, Level, Listen, Server, Subscription, Unknown};
        let (old, mid, new) = (Revision::V2024_11_05, Revision::V2025_11_25, Revision::V2026_07_28);
        for (method, legacy, down, up, modern) in [
            // legacy to legacy, modern client to legacy server, legacy client to modern server, modern to modern
            ("initialize", Handshake, Unknown, Handshake, Unknown),
            ("server/discover", Unknown, Handshake, Unknown, Server),
            ("ping", Server, Unknown, Empty, Unknown),
            ("tools/call", Server, Server, Server, Server),
            ("completion/complete", Server, Server, Server, Server),
            ("logging/setLevel", Server, Unknown, Level, Unknown),
            ("resources/subscribe", Server, Unknown, Subscription, Unknown),
            ("resources/unsubscribe", Server, Unknown, Subscription, Unknown),
            ("subscriptions/listen", Unknown, Listen, Unknown, Server),
            ("tasks/update", Unknown, Unknown, Unknown, Server),
            ("tasks/get", Unknown, Unknown, Unknown, Server),
            ("tasks/list", Unknown, Unknown, Unknown, Unknown),
            ("com.example/thing", Server, Server, Server, Server),
        ] {
            for (client, server, expected) in
                [(old, mid, legacy), (new, mid, down), (old, new, up), (new, new, modern)]
            {
                assert_eq!(of(Pair { client, server }, method), expected, "{method} {client} {server}");
            }
        }
    }
}
