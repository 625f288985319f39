//! What replicas say to each other. Every message, question or answer, introduces its sender, so any of them is as
//! good as a heartbeat.
//!
//! Whatever is a list or text here has a bound, and what is over it does not deserialise.
//!
//! During a rollout replicas of two releases say this to each other. So unknown fields are ignored, and whatever is new
//! is a field that may be missing, or a question that older ones decline.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use longshore_mcp::level::Level;
use serde::de::value::StringDeserializer;
use serde::de::{self, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::{
    MAX_DEPARTURES, MAX_FULL, MAX_ID, MAX_MEMBERS, MAX_PRINCIPAL, MAX_SUBSCRIPTION, MAX_SUBSCRIPTIONS,
    MAX_TEMPLATE, MAX_TOMBSTONES_A_PAGE,
};
use crate::identity::{Peer, PodId, SessionKey};
use crate::membership::State;
use crate::tombstones::{Digest, Tombstone};

/// A question or an answer, with who says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message<T> {
    /// Who.
    pub from: Introduction,
    /// What.
    pub body: T,
}

/// Who somebody is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// The pod.
    pub pod: PodId,
    /// Its address.
    pub address: IpAddr,
    /// Which of its words this is. Releases that do not say so are believed as their words come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<Word>,
    /// What it is doing.
    #[serde(deserialize_with = "a_state")]
    pub state: State,
    /// What it knows to be ended.
    pub tombstones: Digest,
    /// Who has told it that they leave. A replica that came later hears it from those who were there.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "departures")]
    pub left: Vec<Departure>,
    /// Whom it has heard, and would ask before it takes a session. DNS may list those of them later who are new.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "acquaintances")]
    pub knows: Vec<Peer>,
    /// It knows enough of the others to vouch for whom it knows ([`View::is_settled`](crate::membership::View::is_settled)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
    /// Its server was lost soon after its handshake, and has not stayed since: it serves what it holds, and who has the
    /// choice takes nothing new there. Earlier releases do not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shaken: bool,
    /// All places of its sessions, or of their processes, are taken: who has the choice gives it no more. Earlier releases
    /// do not say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// The template that its pod was made of. In a rollout pods of another one follow it. Earlier releases do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "a_template")]
    pub template: Option<Arc<str>>,
}

/// Somebody who has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Who.
    #[serde(flatten)]
    pub peer: Peer,
    /// How many seconds ago, so that it is forgotten everywhere at some time. Releases that do not say so have heard it
    /// themselves.
    #[serde(default)]
    pub ago: u64,
}

/// A place in the order of what a process says. Its questions and its answers come by different connections, so that
/// an older word may be heard after a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The process, by a number that no other one in its pod has.
    pub process: u64,
    /// How many words it has said before.
    pub number: u64,
}

/// What one replica asks another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// I am here; are you? Sent every second, and first of all by a replica that starts. Answered with
    /// [`Answer::Noted`].
    Heartbeat,
    /// Do you hold that session? Answered with [`Answer::Holding`].
    Holds(SessionKey),
    /// What do you know to be ended? From here on in the order of who is asked. Answered with [`Answer::Tombstones`].
    Tombstones(Option<Tombstone>),
    /// These are ended. Answered with [`Answer::Noted`], which says that it is kept.
    Ended(#[serde(deserialize_with = "a_page")] Vec<Tombstone>),
    /// I have given up this session, or have no room for it, and you are its successor. Answered with [`Answer::Noted`] when it is understood:
    /// if nothing comes of it, the session's next request finds its way without.
    HandOver(HandOver),
    /// You are the buddy of this session: keep that for whoever adopts it. Answered with [`Answer::Noted`].
    Keep(SessionKey, Copy),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It is noted.
    Noted,
    /// How the replica stands to a session, and its copy of what the client set, if it has one.
    Holding(Holding, Option<Copy>),
    /// Ended sessions. If they are as many as go into a message, the last of them is where to ask on from.
    Tombstones(#[serde(deserialize_with = "a_page")] Vec<Tombstone>),
}

/// How a replica stands to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holding {
    /// It holds the session.
    Here,
    /// It wants to, and is asking around.
    Pending,
    /// It does not.
    No,
    /// It does not, and has given it to, or seen it at, somebody else.
    At(Peer),
    /// The session is ended.
    Ended(Tombstone),
}

/// What a client set in its session, which whoever adopts it has to set again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// Counts the changes: the highest is the newest.
    pub version: u64,
    /// The level of log messages. One that only later releases know is none.
    #[serde(default, deserialize_with = "a_level")]
    pub log_level: Option<Level>,
    /// The resources that it wants to hear of.
    #[serde(deserialize_with = "subscriptions")]
    pub subscriptions: BTreeSet<Arc<str>>,
}

/// A session that moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// Its id, sealed as the client has it.
    #[serde(deserialize_with = "an_id")]
    pub id: Box<str>,
    /// Whose it is.
    #[serde(deserialize_with = "a_principal")]
    pub principal: Arc<str>,
    /// What the client set.
    pub copy: Copy,
    /// Who was given it before and has no room for it. Earlier releases give it to nobody else.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "those_without_room")]
    pub full: Vec<PodId>,
}

// === impl Copy ===

impl Copy {
    /// About how many bytes of memory it takes.
    pub(crate) fn size(&self) -> usize {
        // A set holds more than its texts.
        const EACH: usize = 48;
        size_of::<Self>() + self.subscriptions.iter().map(|uri| uri.len() + EACH).sum::<usize>()
    }

    /// The newer of two.
    #[must_use]
    pub fn newer(self, other: Self) -> Self {
        if other.version > self.version { other } else { self }
    }
}

/// One that does what only later releases know is thought to serve what it holds, and to take nothing new.
fn a_state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<State, D::Error> {
    let state: StringDeserializer<D::Error> = String::deserialize(deserializer)?.into_deserializer();
    Ok(State::deserialize(state).unwrap_or(State::Draining))
}

fn a_level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Level>, D::Error> {
    let level = Option::<String>::deserialize(deserializer)?;
    Ok(level.and_then(|level| Level::parse(&level)))
}

// === bounds ===

fn departures<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Departure>, D::Error> {
    let left = Vec::deserialize(deserializer)?;
    within(left.len(), MAX_DEPARTURES, "replicas that left")?;
    Ok(left)
}

fn a_template<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    let template = Option::<Arc<str>>::deserialize(deserializer)?;
    within(template.as_deref().map_or(0, str::len), MAX_TEMPLATE, "bytes in the name of a template")?;
    Ok(template)
}

fn acquaintances<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Peer>, D::Error> {
    let knows = Vec::deserialize(deserializer)?;
    within(knows.len(), MAX_MEMBERS, "replicas that are known")?;
    Ok(knows)
}

fn a_page<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Tombstone>, D::Error> {
    let page = Vec::deserialize(deserializer)?;
    within(page.len(), MAX_TOMBSTONES_A_PAGE, "tombstones in a message")?;
    Ok(page)
}

fn subscriptions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<Arc<str>>, D::Error> {
    let uris = BTreeSet::<Arc<str>>::deserialize(deserializer)?;
    within(uris.len(), MAX_SUBSCRIPTIONS, "subscriptions")?;
    within(uris.iter().map(|uri| uri.len()).max().unwrap_or(0), MAX_SUBSCRIPTION, "bytes in a subscription")?;
    Ok(uris)
}

fn an_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    let id = Box::<str>::deserialize(deserializer)?;
    within(id.len(), MAX_ID, "bytes in a session id")?;
    Ok(id)
}

fn a_principal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let principal = Arc::<str>::deserialize(deserializer)?;
    within(principal.len(), MAX_PRINCIPAL, "bytes in the name of a principal")?;
    Ok(principal)
}

fn those_without_room<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PodId>, D::Error> {
    let full = Vec::deserialize(deserializer)?;
    within(full.len(), MAX_FULL, "replicas without room")?;
    Ok(full)
}

fn within<E: de::Error>(found: usize, limit: usize, of: &str) -> Result<(), E> {
    if found > limit { Err(E::custom(format_args!("more than {limit} {of}"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn introduction() -> Introduction {
        Introduction {
            pod: PodId::new("pod-1").unwrap(),
            address: [10, 0, 0, 1].into(),
            word: Some(Word { process: u64::MAX, number: 7 }),
            state: State::Serving,
            tombstones: Digest::default(),
            left: vec![Departure {
                peer: Peer { pod: PodId::new("pod-0").unwrap(), address: [10, 0, 0, 9].into() },
                ago: 7,
            }],
            knows: vec![Peer { pod: PodId::new("pod-2").unwrap(), address: [10, 0, 0, 2].into() }],
            settled: true,
            shaken: true,
            full: true,
            template: Some("5d8f7c9b64".into()),
        }
    }

    fn key() -> SessionKey {
        SessionKey::new([7; 16])
    }

    fn tombstone() -> Tombstone {
        Tombstone { expires: 5, key: key() }
    }

    fn copy() -> Copy {
        let subscriptions = ["file:///a", "a \"quoted\" one"].map(Arc::from).into();
        Copy { version: 3, log_level: Some(Level::Warning), subscriptions }
    }

    /// One of each kind.
    fn questions() -> Vec<Question> {
        let hand_over =
            HandOver { id: "id".into(), principal: "team \u{e4}\n".into(), copy: copy(), full: Vec::new() };
        let handed_on = HandOver { full: vec![PodId::new("pod-1").unwrap()], ..hand_over.clone() };
        vec![
            Question::Heartbeat,
            Question::Holds(key()),
            Question::Tombstones(Some(tombstone())),
            Question::Ended(vec![tombstone(); 3]),
            Question::HandOver(hand_over),
            Question::HandOver(handed_on),
            Question::Keep(key(), copy()),
        ]
    }

    /// One of each kind.
    fn answers() -> Vec<Answer> {
        let Introduction { pod, address, .. } = introduction();
        let holding = [
            Holding::Here,
            Holding::Pending,
            Holding::No,
            Holding::At(Peer { pod, address }),
            Holding::Ended(tombstone()),
        ];
        let holding = holding.map(|holding| Answer::Holding(holding, Some(copy())));
        [Answer::Noted, Answer::Tombstones(vec![tombstone(); 2])].into_iter().chain(holding).collect()
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        for body in questions() {
            let message = Message { from: introduction(), body };
            let text = serde_json::to_vec(&message).unwrap();
            assert_eq!(serde_json::from_slice::<Message<Question>>(&text).unwrap(), message);
        }
        for body in answers() {
            let message = Message { from: introduction(), body };
            let text = serde_json::to_vec(&message).unwrap();
            assert_eq!(serde_json::from_slice::<Message<Answer>>(&text).unwrap(), message);
        }
    }

    /// What is written here is said by a release: during a rollout its replicas hear others, and are heard.
    #[test]
    fn messages_of_earlier_releases_are_understood() {
        let texts: Vec<String> = questions()
            .iter()
            .map(serde_json::to_string)
            .chain(answers().iter().map(serde_json::to_string))
            .chain([serde_json::to_string(&introduction())])
            .map(Result::unwrap)
            .collect();
        let said: Vec<&str> = include_str!("message/said.jsonl").lines().collect();
        assert_eq!(texts, said);
        // The first of them said no more of themselves than this.
        let least =
            r#"{"pod":"pod-1","address":"10.0.0.1","state":"serving","tombstones":{"count":0,"sum":0}}"#;
        let from: Introduction = serde_json::from_str(least).unwrap();
        assert_eq!((from.pod, from.state, from.template), (introduction().pod, State::Serving, None));
    }

    /// As a later release may write it: with a field more in everything that has fields.
    fn with_later_fields(message: &impl Serialize) -> Value {
        fn add(value: &mut Value) {
            match value {
                Value::Object(fields) => {
                    fields.values_mut().for_each(add);
                    // The name of a variant is no field.
                    if fields.keys().all(|name| name.starts_with(char::is_lowercase)) {
                        fields.insert("later".to_owned(), json!({"of": ["another", "release"]}));
                    }
                }
                Value::Array(values) => values.iter_mut().for_each(add),
                _ => {}
            }
        }
        let mut value = serde_json::to_value(message).unwrap();
        add(&mut value);
        value
    }

    #[test]
    fn what_a_later_release_adds_is_passed_over() {
        for question in questions() {
            let message = Message { from: introduction(), body: question };
            let later = with_later_fields(&message);
            assert!(later["from"]["tombstones"]["later"].is_object(), "{later}");
            assert_eq!(serde_json::from_str::<Message<Question>>(&later.to_string()).unwrap(), message);
        }
        for answer in answers() {
            let message = Message { from: introduction(), body: answer };
            let later = with_later_fields(&message);
            assert_eq!(serde_json::from_str::<Message<Answer>>(&later.to_string()).unwrap(), message);
        }
        let mut later = with_later_fields(&Message { from: introduction(), body: Question::Heartbeat });
        later["from"]["state"] = json!("resting");
        let message: Message<Question> = serde_json::from_str(&later.to_string()).unwrap();
        assert_eq!(message.from, Introduction { state: State::Draining, ..introduction() });
        // What else was set in the session is not lost with it, nor who has the session.
        let body = Answer::Holding(Holding::No, Some(copy()));
        let mut later = with_later_fields(&Message { from: introduction(), body });
        later["body"]["Holding"][1]["log_level"] = json!("fatal");
        let message: Message<Answer> = serde_json::from_str(&later.to_string()).unwrap();
        let copy = Copy { log_level: None, ..copy() };
        assert_eq!(message.body, Answer::Holding(Holding::No, Some(copy)));
    }

    #[test]
    fn what_is_over_a_bound_is_refused() {
        let tombstone = tombstone();
        let many: BTreeSet<Arc<str>> =
            (0..=MAX_SUBSCRIPTIONS).map(|number| number.to_string().into()).collect();
        let long: BTreeSet<Arc<str>> = ["x".repeat(MAX_SUBSCRIPTION + 1).into()].into();
        let copy = |subscriptions| Copy { subscriptions, ..Copy::default() };
        for question in [
            Question::Ended(vec![tombstone; MAX_TOMBSTONES_A_PAGE + 1]),
            Question::Keep(tombstone.key, copy(many)),
            Question::Keep(tombstone.key, copy(long)),
            Question::HandOver(HandOver {
                id: "x".repeat(MAX_ID + 1).into(),
                principal: "a".into(),
                copy: Copy::default(),
                full: Vec::new(),
            }),
            Question::HandOver(HandOver {
                id: "x".into(),
                principal: "a".into(),
                copy: Copy::default(),
                full: vec![PodId::new("pod-1").unwrap(); MAX_FULL + 1],
            }),
        ] {
            let text = serde_json::to_vec(&question).unwrap();
            let error = serde_json::from_slice::<Question>(&text).unwrap_err();
            assert!(error.to_string().contains("more than"), "{error}");
        }
        let template = Some("x".repeat(MAX_TEMPLATE + 1).into());
        let text = serde_json::to_vec(&Introduction { template, ..introduction() }).unwrap();
        let error = serde_json::from_slice::<Introduction>(&text).unwrap_err();
        assert!(error.to_string().contains("more than"), "{error}");
    }
}
