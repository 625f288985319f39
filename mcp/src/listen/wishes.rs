//! What one legacy client is subscribed to, as the `subscriptions/listen` that a modern server is asked for.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::{Filter, Full, MAX_URIS, Offers, topic};
use crate::object::Object;
use crate::revision::Revision;
use crate::translate::notifications::without_subscription;
use crate::translate::requests::{Client, envelope};

/// What a legacy client wants to hear of: every list change that its server tells, and the resources that it has
/// subscribed to. It takes one `subscriptions/listen` to hear of it, and another one whenever it changes.
#[derive(Debug)]
pub struct Wishes {
    wanted: Filter,
    offers: Offers,
}

impl Wishes {
    /// Those of a client that has just begun a session.
    pub fn new(offers: Offers) -> Self {
        let Offers { tools, prompts, resources, updates: _ } = offers;
        Self { wanted: Filter { tools, prompts, resources, ..Filter::default() }, offers }
    }

    /// `resources/subscribe`. Says whether the server has to be asked anew.
    pub fn subscribe(&mut self, uri: &str) -> Result<bool, Full> {
        if self.wanted.uris.contains(uri) {
            return Ok(false);
        }
        if self.wanted.uris.len() >= MAX_URIS {
            return Err(Full::Uris);
        }
        self.wanted.uris.insert(uri.to_owned());
        Ok(self.offers.updates)
    }

    /// `resources/unsubscribe`. Says whether the server has to be asked anew.
    pub fn unsubscribe(&mut self, uri: &str) -> bool {
        self.wanted.uris.remove(uri) && self.offers.updates
    }

    /// Whether the client has subscribed to this resource.
    pub fn has(&self, uri: &str) -> bool {
        self.wanted.uris.contains(uri)
    }

    /// To which it has.
    pub fn uris(&self) -> &BTreeSet<String> {
        &self.wanted.uris
    }

    /// What the client is told when nobody has listened for a while: that everything may have changed.
    pub fn missed(&self) -> Vec<String> {
        self.wanted.clone().honoured(self.offers).missed()
    }

    /// What the server is asked, under this id (as JSON): the whole message. `None` if it would be for nothing.
    pub fn request(&self, id: &str, revision: Revision, client: &Client<'_>) -> Option<String> {
        let filter = self.wanted.clone().honoured(self.offers);
        if filter.is_empty() {
            return None;
        }
        let mut meta = Object::empty();
        // No log message ever comes this way.
        envelope(&mut meta, revision, &Client { level: None, ..*client });
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{},"_meta":{}}}}}"#,
            filter.write(),
            meta.write()
        ))
    }

    /// A notification of the server's stream, for the client. `None` if it is not for it: the acknowledgement, or
    /// what a server sends unasked.
    pub fn deliver<'a>(&self, message: &'a str) -> Option<Cow<'a, str>> {
        let topic = topic(message)?;
        self.wanted.wants(&topic).then(|| without_subscription(message)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_what_the_client_wants() {
        let client = Client { capabilities: "{}", info: None, level: None };
        let ask = |wishes: &Wishes| wishes.request("1", Revision::V2026_07_28, &client);
        assert_eq!(ask(&Wishes::new(Offers::default())), None);
        let mut wishes = Wishes::new(Offers { tools: true, updates: true, ..Offers::default() });
        assert_eq!(wishes.subscribe("a"), Ok(true));
        assert_eq!(wishes.subscribe("a"), Ok(false));
        assert_eq!(
            ask(&wishes).unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#
        );
        let updated = |uri: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}","_meta":{{"io.modelcontextprotocol/subscriptionId":1}}}}}}"#
            )
        };
        assert_eq!(
            wishes.deliver(&updated("a")).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}"#
        );
        assert_eq!(wishes.deliver(&updated("b")), None);
        assert!(wishes.deliver(&updated("a/part")).is_some());
        assert_eq!(
            wishes.missed(),
            [
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}"#,
            ]
        );
        assert_eq!((wishes.has("a"), wishes.has("b"), wishes.uris().len()), (true, false, 1));
        assert!(wishes.unsubscribe("a"));
        assert!(!wishes.unsubscribe("a"));
        assert_eq!(wishes.deliver(&updated("a")), None);
        for number in 0..MAX_URIS {
            wishes.subscribe(&number.to_string()).unwrap();
        }
        assert_eq!(wishes.subscribe("one more"), Err(Full::Uris));
    }
}
