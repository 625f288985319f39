//! How session keys are kept in a Secret: the keys in the sidecar's file, and their stories, which are no secret, in an
//! annotation.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use longshore_sidecar_config::{SessionKey, paths};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Held, SECRET_BYTES, SessionKeys, heard};

/// Why the keys in a Secret cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The file is none.
    #[error("{file} in it cannot be read", file = paths::KEYS_FILE)]
    Unreadable,
    /// Two keys have one number, or one is too short, or there is none.
    #[error("the session keys in it are not as Longshore wrote them")]
    Altered,
}

/// What is read of the file. What a later release has added is passed over: an operator that leads after that one, or in turn
/// with it, would take its keys for broken, and end all sessions.
#[derive(Deserialize)]
struct File {
    sessions: Vec<Key>,
}

/// One key.
#[derive(Deserialize)]
struct Key {
    id: u8,
    secret: String,
}

/// The stories of all keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    seal_with: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heard: Option<String>,
    keys: Vec<Story>,
}

/// The story of one key.
#[derive(Serialize, Deserialize)]
struct Story {
    id: u8,
    made: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retired: Option<Time>,
}

// === impl SessionKeys ===

impl SessionKeys {
    /// The keys that a Secret holds. `None`: it is of a release that had none.
    ///
    /// Keys whose story is lost are kept, and it begins anew: whatever came after the oldest follows it again.
    pub(crate) fn read(
        data: &BTreeMap<String, ByteString>,
        record: Option<&str>,
        now: Timestamp,
        wish: Option<&str>,
    ) -> Result<Option<Self>, Broken> {
        let Some(file) = data.get(paths::KEYS_FILE) else { return Err(Broken::Unreadable) };
        let value: serde_json::Value = serde_json::from_slice(&file.0).map_err(|_| Broken::Unreadable)?;
        if value.get("sessions").is_none() {
            return Ok(None);
        }
        let File { sessions } = serde_json::from_value(value).map_err(|_| Broken::Altered)?;
        let keys = sessions.into_iter().map(|Key { id, secret }| SessionKey { id, secret });
        let keys: Vec<SessionKey> = keys.collect();
        let is_alone = |key: &SessionKey| keys.iter().filter(|other| other.id == key.id).count() == 1;
        if !keys.iter().all(|key| is_whole(key) && is_alone(key)) {
            return Err(Broken::Altered);
        }
        let oldest = keys.first().ok_or(Broken::Altered)?.id;
        let known = record.and_then(|record| with_stories(&keys, serde_json::from_str(record).ok()?));
        Ok(Some(known.unwrap_or_else(|| Self {
            held: keys.into_iter().map(|key| Held { key, made: now, retired: None }).collect(),
            seal_with: oldest,
            heard: wish.map(heard),
        })))
    }

    /// The annotation.
    pub(crate) fn record(&self) -> String {
        let story =
            |held: &Held| Story { id: held.key.id, made: Time(held.made), retired: held.retired.map(Time) };
        let record = Record {
            seal_with: self.seal_with,
            heard: self.heard.clone(),
            keys: self.held.iter().map(story).collect(),
        };
        crate::mcp_server::build::to_json(&record)
    }
}

/// The keys with their stories, if those are of them.
fn with_stories(keys: &[SessionKey], record: Record) -> Option<SessionKeys> {
    let Record { seal_with, heard, keys: stories } = record;
    let same =
        keys.len() == stories.len() && keys.iter().zip(&stories).all(|(key, story)| key.id == story.id);
    if !same || !keys.iter().any(|key| key.id == seal_with) {
        return None;
    }
    let held = keys.iter().zip(stories).map(|(key, story)| Held {
        key: key.clone(),
        made: story.made.0,
        retired: story.retired.map(|time| time.0),
    });
    Some(SessionKeys { held: held.collect(), seal_with, heard })
}

fn is_whole(key: &SessionKey) -> bool {
    key.secret.len() == 2 * SECRET_BYTES
        && key.secret.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}
