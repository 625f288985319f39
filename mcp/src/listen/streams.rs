//! Modern clients that listen, and one session with a legacy server to hear from.

use std::collections::BTreeMap;

use super::{Filter, Full, MAX_STREAMS, Offers, acknowledged, ended, topic};
use crate::meta::SUBSCRIPTION_ID;
use crate::object::{Object, quote};

/// The streams of modern clients, and what the server is subscribed to for them.
#[derive(Debug, Default)]
pub struct Streams {
    next: u64,
    open: BTreeMap<u64, Stream>,
    /// How many streams want each resource.
    uris: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Stream {
    /// The id of `subscriptions/listen`, as JSON.
    id: String,
    filter: Filter,
}

/// A stream that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What it is known by here.
    pub stream: u64,
    /// Its first message: what it will hear of.
    pub acknowledgement: String,
    /// What the server has to be subscribed to for it, and is not yet.
    pub subscribe: Vec<String>,
}

impl Streams {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a stream for a `subscriptions/listen` with this id (as JSON), which hears of what is both wanted and
    /// offered.
    pub fn open(&mut self, id: &str, wanted: Filter, offers: Offers) -> Result<Opened, Full> {
        if self.open.len() >= MAX_STREAMS {
            return Err(Full::Streams);
        }
        let filter = wanted.bounded()?.honoured(offers);
        let mut subscribe = Vec::new();
        for uri in &filter.uris {
            let count = self.uris.entry(uri.clone()).or_default();
            if *count == 0 {
                subscribe.push(uri.clone());
            }
            *count += 1;
        }
        let acknowledgement = acknowledged(id, &filter);
        let stream = self.next;
        self.next += 1;
        self.open.insert(stream, Stream { id: id.to_owned(), filter });
        Ok(Opened { stream, acknowledgement, subscribe })
    }

    /// A stream's client has gone. Says what nobody wants any more.
    pub fn close(&mut self, stream: u64) -> Vec<String> {
        let Some(closed) = self.open.remove(&stream) else { return Vec::new() };
        let mut unsubscribe = Vec::new();
        for uri in closed.filter.uris {
            if let Some(count) = self.uris.get_mut(&uri) {
                *count -= 1;
                if *count == 0 {
                    self.uris.remove(&uri);
                    unsubscribe.push(uri);
                }
            }
        }
        unsubscribe
    }

    /// The last message of a stream that the server's side ends: the response to its request. `server_info` says who
    /// the server is, as JSON.
    pub fn end(&self, stream: u64, server_info: Option<&str>) -> Option<String> {
        Some(ended(&self.open.get(&stream)?.id, server_info))
    }

    /// A server's notification, for each stream that asked for it, marked as that stream's.
    pub fn deliver(&self, message: &str) -> Vec<(u64, String)> {
        let Some(topic) = topic(message) else { return Vec::new() };
        let wanting = self.open.iter().filter(|(_, stream)| stream.filter.wants(&topic));
        wanting.filter_map(|(number, stream)| Some((*number, marked(message, &stream.id)?))).collect()
    }

    /// What each stream is told when nobody has heard the server for a while: that all that it asked for may have changed.
    pub fn missed(&self) -> impl Iterator<Item = (u64, Vec<String>)> {
        self.open.iter().map(|(number, Stream { id, filter })| (*number, filter.missed_in(id)))
    }

    /// All that the server is subscribed to: a server that was started anew has forgotten it.
    pub fn subscribed(&self) -> impl Iterator<Item = &str> {
        self.uris.keys().map(String::as_str)
    }

    /// The open streams.
    pub fn streams(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }
}

/// A notification that says which subscription it belongs to.
pub(super) fn marked(message: &str, id: &str) -> Option<String> {
    let mut notification = Object::read(message).ok()?;
    let mut params = Object::read(notification.map("params").unwrap_or("{}")).ok()?;
    let mut meta = Object::read(params.map("_meta").unwrap_or("{}")).ok()?;
    meta.set(SUBSCRIPTION_ID, id.to_owned());
    params.set("_meta", meta.write());
    notification.set("params", params.write());
    if notification.get("jsonrpc").is_none() {
        notification.set("jsonrpc", quote("2.0"));
    }
    Some(notification.write())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::MAX_URIS;

    const ALL: Offers = Offers { tools: true, prompts: true, resources: true, updates: true };

    fn wants(notifications: &str) -> Filter {
        Filter::read(&format!(r#"{{"notifications":{notifications}}}"#)).unwrap()
    }

    #[test]
    fn each_stream_hears_of_what_it_asked_for() {
        let mut streams = Streams::new();
        let one = streams
            .open("1", wants(r#"{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#), ALL)
            .unwrap();
        let two = streams.open("\"x\"", wants(r#"{"resourceSubscriptions":["a","b"]}"#), ALL).unwrap();
        assert_eq!(
            one.acknowledgement,
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]},"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
        );
        assert_eq!((one.subscribe, two.subscribe), (vec!["a".to_owned()], vec!["b".to_owned()]));
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(
            streams.deliver(changed),
            [(
                one.stream,
                r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
                    .to_owned()
            )]
        );
        for nothing in ["null", "[]", r#"{"_meta":null}"#, r#"{"_meta":[]}"#] {
            let changed = changed.replace("}", &format!(r#","params":{nothing}}}"#));
            assert_eq!(streams.deliver(&changed).len(), 1, "{changed}");
        }
        let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"\u0061","_meta":{"v":1.0}}}"#;
        let delivered = streams.deliver(updated);
        assert_eq!(delivered.iter().map(|(stream, _)| *stream).collect::<Vec<_>>(), [one.stream, two.stream]);
        assert!(delivered[1].1.contains(r#""_meta":{"v":1.0,"io.modelcontextprotocol/subscriptionId":"x"}"#));
        assert!(streams.deliver(r#"{"method":"notifications/progress","params":{}}"#).is_empty());
        let missed: Vec<_> = streams.missed().map(|(stream, messages)| (stream, messages.len())).collect();
        assert_eq!(missed, [(one.stream, 2), (two.stream, 2)]);
        let of_two = streams.missed().last().unwrap().1;
        assert_eq!(
            of_two[1],
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"b","_meta":{"io.modelcontextprotocol/subscriptionId":"x"}}}"#
        );
        assert_eq!(
            streams.end(two.stream, None).unwrap(),
            r#"{"jsonrpc":"2.0","id":"x","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"x"}}}"#
        );
        assert_eq!(streams.close(one.stream), Vec::<String>::new());
        assert_eq!(streams.subscribed().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(streams.close(two.stream), ["a", "b"]);
        assert_eq!(streams.close(two.stream), Vec::<String>::new());
        assert_eq!(streams.streams().count(), 0);
    }

    #[test]
    fn streams_and_uris_are_bounded() {
        let mut streams = Streams::new();
        for _ in 0..MAX_STREAMS {
            streams.open("1", Filter::default(), ALL).unwrap();
        }
        assert_eq!(streams.open("1", Filter::default(), ALL), Err(Full::Streams));
        let uris = (0..=MAX_URIS).map(|number| number.to_string()).collect();
        let wanted = Filter { uris, ..Filter::default() };
        assert_eq!(Streams::new().open("1", wanted, ALL), Err(Full::Uris));
    }
}
