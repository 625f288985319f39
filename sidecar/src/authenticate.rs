//! Who calls. Keys are known by their hashes only, and compared in constant time against every live one.

mod revoked;

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use longshore_sidecar_config::Keys;
use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::access::{Access, Caller};
use crate::headers::API_KEY;
pub(crate) use revoked::Revoked;

/// The principal of everybody where nobody has to prove who they are.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// The longest value of a header that has a key, in bytes. Keys are shorter by far, and are kept to be looked at again.
pub(crate) const MAX_CREDENTIALS: usize = 8 * 1024;

/// How callers prove who they are.
pub(crate) enum Authenticator {
    /// Not at all.
    Anonymous(Caller),
    /// With a key.
    ApiKeys(Vec<Key>),
}

/// One live key.
pub(crate) struct Key {
    sha256: Words,
    caller: Caller,
}

/// A hash in words, which takes an eighth of the time to compare as bytes do.
type Words = [u64; 4];

/// A key of the file that cannot be used.
#[derive(Debug, Error)]
pub(crate) enum KeyError {
    #[error("the hash of a key of {principal:?} is not 64 lower-case hexadecimal digits")]
    Hash { principal: String },
}

/// Why a caller is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// There is no key in the request.
    Missing,
    /// The request has credentials of another kind, more than one key, or one that is too long.
    Unusable,
    /// No live key has this hash.
    NotLive,
}

impl Authenticator {
    pub(crate) fn anonymous(access: &Access) -> Self {
        Self::Anonymous(access.caller(ANONYMOUS))
    }

    pub(crate) fn api_keys(keys: &Keys, access: &Access) -> Result<Self, KeyError> {
        let mut callers = HashMap::new();
        let keys = keys.keys.iter().map(|key| {
            let sha256 =
                bytes_of(&key.sha256).ok_or_else(|| KeyError::Hash { principal: key.principal.clone() })?;
            let caller = callers.entry(&*key.principal).or_insert_with(|| access.caller(&key.principal));
            Ok(Key { sha256: words(&sha256), caller: caller.clone() })
        });
        keys.collect::<Result<_, _>>().map(Self::ApiKeys)
    }

    /// The caller of that name, if its rules are at hand.
    pub(crate) fn caller(&self, principal: &str) -> Option<&Caller> {
        match self {
            Self::Anonymous(caller) => Some(caller).filter(|caller| *caller.principal == *principal),
            Self::ApiKeys(keys) => {
                keys.iter().map(|key| &key.caller).find(|caller| *caller.principal == *principal)
            }
        }
    }

    /// Everybody who is known by name, once for each key.
    fn principals(&self) -> impl Iterator<Item = &Arc<str>> {
        let (everybody, with_keys) = match self {
            Self::Anonymous(caller) => (Some(caller), None),
            Self::ApiKeys(keys) => (None, Some(keys.iter().map(|key| &key.caller))),
        };
        everybody.into_iter().chain(with_keys.into_iter().flatten()).map(|caller| &caller.principal)
    }

    /// Whether callers have to have a key.
    pub(crate) fn wants_keys(&self) -> bool {
        matches!(self, Self::ApiKeys(_))
    }

    /// Whether this principal can prove here who it is, if anybody has to.
    pub(crate) fn admits(&self, principal: &str) -> bool {
        matches!(self, Self::Anonymous(_)) || self.caller(principal).is_some()
    }

    /// Whether there is anybody who could be let in.
    pub(crate) fn admits_anybody(&self) -> bool {
        match self {
            Self::Anonymous(_) => true,
            Self::ApiKeys(keys) => !keys.is_empty(),
        }
    }

    /// Who sent a request with these headers.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<&Caller, Unknown> {
        let keys = match self {
            Self::Anonymous(caller) => return Ok(caller),
            Self::ApiKeys(keys) => keys,
        };
        let presented = words(digest(&SHA256, presented(headers)?).as_ref());
        // All of them, also after a match: how long it takes says nothing about which key it is.
        let mut found = None;
        for key in keys {
            if bool::from(key.sha256.ct_eq(&presented)) {
                found = Some(&key.caller);
            }
        }
        found.ok_or(Unknown::NotLive)
    }
}

fn words(hash: &[u8]) -> Words {
    let (words, _) = hash.as_chunks();
    std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

/// The key in a request. Two of them are refused: who would it be?
fn presented(headers: &HeaderMap) -> Result<&[u8], Unknown> {
    let mut authorization = headers.get_all(AUTHORIZATION).iter();
    let mut api_key = headers.get_all(API_KEY).iter();
    match (authorization.next(), authorization.next(), api_key.next(), api_key.next()) {
        (None, None, None, None) => Err(Unknown::Missing),
        (Some(value), ..) | (_, _, Some(value), _) if value.len() > MAX_CREDENTIALS => Err(Unknown::Unusable),
        (Some(value), None, None, None) => bearer(value.as_bytes()).ok_or(Unknown::Unusable),
        (None, None, Some(value), None) => {
            Some(value.as_bytes()).filter(|key| !key.is_empty()).ok_or(Unknown::Unusable)
        }
        _ => Err(Unknown::Unusable),
    }
}

/// The token of an `Authorization: Bearer` header.
pub(crate) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    let token = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// 32 bytes, written as 64 lower-case hexadecimal digits.
pub(crate) fn bytes_of(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        *byte = digit(digits[0])? * 16 + digit(digits[1])?;
    }
    Some(bytes)
}

// === impl Unknown ===

impl Unknown {
    /// The reason as the log gives it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Missing => "no key",
            Self::Unusable => "no usable key",
            Self::NotLive => "no live key",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use longshore_sidecar_config::{ApiKey, ToolFilter};

    fn hex(key: &str) -> String {
        digest(&SHA256, key.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn every_live_key_of_a_principal_works() {
        let access = Access::compile(&[], &ToolFilter::default()).unwrap();
        let key = |principal: &str, key: &str| ApiKey { principal: principal.to_owned(), sha256: hex(key) };
        let keys =
            Keys { keys: vec![key("a", "one"), key("b", "two"), key("a", "three")], sessions: Vec::new() };
        let authenticator = Authenticator::api_keys(&keys, &access).unwrap();
        for (headers, expected) in [
            (vec![("authorization", "Bearer one")], Ok("a")),
            (vec![("authorization", "bearer  three ")], Ok("a")),
            (vec![("x-api-key", "two")], Ok("b")),
            (vec![], Err(Unknown::Missing)),
            (vec![("authorization", "Basic one")], Err(Unknown::Unusable)),
            (vec![("authorization", "Bearer ")], Err(Unknown::Unusable)),
            (vec![("authorization", "Bearer")], Err(Unknown::Unusable)),
            (vec![("x-api-key", "")], Err(Unknown::Unusable)),
            (vec![("authorization", "Bearer four")], Err(Unknown::NotLive)),
            (vec![("authorization", "Bearer one"), ("x-api-key", "one")], Err(Unknown::Unusable)),
            (vec![("authorization", "Bearer one"), ("authorization", "Bearer one")], Err(Unknown::Unusable)),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in &headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            let who = authenticator.authenticate(&map).map(|caller| &*caller.principal);
            assert_eq!(who, expected, "{headers:?}");
        }
        // However many keys a principal has, its rules are looked for once.
        let Authenticator::ApiKeys(keys) = authenticator else { panic!("keys are asked for") };
        let principals = [0, 2].map(|number: usize| &keys[number].caller.principal);
        assert!(Arc::ptr_eq(principals[0], principals[1]));
    }

    /// It would be known, and not when it is looked at again.
    #[test]
    fn a_key_that_is_too_long_to_be_kept_is_none() {
        let access = Access::compile(&[], &ToolFilter::default()).unwrap();
        for (name, scheme) in [(AUTHORIZATION, "Bearer "), (API_KEY, "")] {
            for (more, expected) in [(0, Ok("a")), (1, Err(Unknown::Unusable))] {
                let key = "k".repeat(MAX_CREDENTIALS - scheme.len() + more);
                let live = ApiKey { principal: "a".to_owned(), sha256: hex(&key) };
                let keys = Keys { keys: vec![live], sessions: Vec::new() };
                let value = HeaderValue::try_from(format!("{scheme}{key}")).unwrap();
                let headers = HeaderMap::from_iter([(name.clone(), value)]);
                let authenticator = Authenticator::api_keys(&keys, &access).unwrap();
                let who = authenticator.authenticate(&headers).map(|caller| &*caller.principal);
                assert_eq!(who, expected, "{name} {more}");
            }
        }
    }

    #[test]
    fn a_hash_that_is_none_refuses_the_file() {
        let access = Access::compile(&[], &ToolFilter::default()).unwrap();
        for sha256 in [String::new(), "ab".to_owned(), hex("x").to_uppercase(), "g".repeat(64)] {
            let keys =
                Keys { keys: vec![ApiKey { principal: "a".to_owned(), sha256 }], sessions: Vec::new() };
            assert!(Authenticator::api_keys(&keys, &access).is_err());
        }
    }
}
