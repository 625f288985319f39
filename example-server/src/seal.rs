//! `requestState`: what the server gives along with its questions, so that it need not remember them itself. It comes
//! back from whoever calls, so it counts only if the server made it, for this very request, a short while ago.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How long a client may take to answer: as long as somebody may need to read a form.
const LIFETIME: Duration = Duration::from_secs(600);

/// What makes and checks it.
#[derive(Debug)]
pub(crate) struct Seal {
    key: hmac::Key,
}

/// What it holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct State {
    /// The request that it belongs to.
    about: String,
    /// When it ends, in seconds since 1970.
    until: u64,
    /// The answers of earlier rounds: a retry has those of the last one alone.
    pub(crate) answers: Map<String, Value>,
}

impl Seal {
    /// A seal with a key of its own, or with one that other processes of the same server have too.
    pub(crate) fn new(shared: Option<&str>) -> Self {
        let random = crate::random::bytes();
        let secret = shared.map_or(&random[..], str::as_bytes);
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }

    pub(crate) fn close(&self, about: &str, answers: Map<String, Value>) -> String {
        let state = State { about: about.to_owned(), until: now() + LIFETIME.as_secs(), answers };
        let text = serde_json::to_string(&state).unwrap_or_default();
        let tag = hmac::sign(&self.key, text.as_bytes());
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&text), URL_SAFE_NO_PAD.encode(tag))
    }

    /// `None` if it was made elsewhere, changed, made for another request, or has ended: nobody needs to know which.
    pub(crate) fn open(&self, about: &str, sealed: &str) -> Option<State> {
        let (text, tag) = sealed.split_once('.')?;
        let (text, tag) = (URL_SAFE_NO_PAD.decode(text).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
        hmac::verify(&self.key, &text, &tag).ok()?;
        let state: State = serde_json::from_slice(&text).ok()?;
        (state.about == about && state.until >= now()).then_some(state)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
