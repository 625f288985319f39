//! What a forwarded request looks like between two replicas: the client's own request, with these headers in place of
//! its credentials.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use longshore_sessions::bounds::MAX_FULL;
use longshore_sessions::{Peer, PodId};

/// What replicas call each other in `Host`, which HTTP wants; it means nothing.
pub(super) const NAME: &str = "peer";
/// Where questions are asked.
pub(super) const ASK: &str = "/peers/v1/ask";
/// Where requests are forwarded to.
pub(super) const FORWARD: &str = "/peers/v1/mcp";

/// The pod that a request is for. Another one that has its address by now must not answer it.
const POD: HeaderName = HeaderName::from_static("longshore-pod");
/// Who the caller is, as base64url: the name may have any character in it.
const PRINCIPAL: HeaderName = HeaderName::from_static("longshore-principal");
/// The replica that forwards ends. Nobody brings new keys to its pod any more.
pub(crate) const ENDING: HeaderName = HeaderName::from_static("longshore-ending");
/// In an answer: the replica does not serve the session, and this one may. `POD@ADDRESS`, or `?`.
const MOVED: HeaderName = HeaderName::from_static("longshore-moved");
/// In a request: it goes on to somebody else where there is no room for its session; these pods have none. Earlier releases
/// do not say so, and hear of no room what a client would hear. In an answer: there is none, and the other one may have some.
const FULL: HeaderName = HeaderName::from_static("longshore-full");

/// The status of answers that are for the replica that forwarded, and not for the client.
const NOT_HERE: StatusCode = StatusCode::MISDIRECTED_REQUEST;

/// What of a client's request goes to another replica. Everything else stays, credentials above all.
fn travels(name: &HeaderName) -> bool {
    if *name == ACCEPT || *name == CONTENT_TYPE {
        return true;
    }
    let name = name.as_str();
    name.starts_with("mcp-") || matches!(name, "last-event-id" | "traceparent" | "tracestate" | "baggage")
}

/// The headers of a request on its way to that pod, from a replica that ends or does not. If it goes on where there is no
/// room, `full` is who has none.
pub(super) fn outgoing(
    client: &HeaderMap,
    to: &PodId,
    principal: &str,
    ends: bool,
    full: Option<&[PodId]>,
) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(client.len() + 4);
    if ends {
        headers.insert(ENDING, HeaderValue::from_static("true"));
    }
    if let Some(full) = full {
        let pods: Vec<&str> = full.iter().map(PodId::as_str).collect();
        headers.insert(FULL, HeaderValue::try_from(pods.join(",")).ok()?);
    }
    headers.insert(HOST, HeaderValue::from_static(NAME));
    headers.insert(POD, HeaderValue::from_str(to.as_str()).ok()?);
    headers.insert(PRINCIPAL, HeaderValue::try_from(URL_SAFE_NO_PAD.encode(principal)).ok()?);
    for (name, value) in client.iter().filter(|(name, _)| travels(name)) {
        // A header that occurs twice is refused by whoever reads it, so it has to arrive twice.
        headers.append(name, value.clone());
    }
    Some(headers)
}

/// Whether a forwarded request is for that pod.
pub(super) fn is_for(headers: &HeaderMap, pod: &PodId) -> bool {
    headers.get(POD).is_some_and(|named| named.as_bytes() == pod.as_str().as_bytes())
}

/// Who the caller of a forwarded request is.
pub(super) fn principal(headers: &HeaderMap) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(headers.get(PRINCIPAL)?).ok()?).ok()
}

/// Who has no room for the session of a forwarded request. None: it does not go on to anybody else.
pub(crate) fn full(headers: &HeaderMap) -> Option<Vec<PodId>> {
    let pods = headers.get(FULL)?.to_str().ok()?;
    let pods: Vec<&str> = pods.split(',').filter(|pod| !pod.is_empty()).collect();
    if pods.len() > MAX_FULL {
        return None;
    }
    pods.into_iter().map(|pod| PodId::new(pod).ok()).collect()
}

/// Whether a request was forwarded by a replica that ends, and that may know keys which are live no more.
pub(crate) fn comes_from_one_that_ends(headers: &HeaderMap) -> bool {
    headers.contains_key(ENDING)
}

/// What a replica answers in the place of a response for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The request was for another pod.
    OtherPod,
    /// It does not serve the session; perhaps this one does. One that names itself leaves the call to its next process.
    Moved(Option<Peer>),
    /// It is to take the session, and has no room for it; perhaps this one has.
    Full(Option<Peer>),
}

impl Notice {
    /// The notice in an answer, if it is one.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap) -> Option<Self> {
        if status != NOT_HERE {
            return None;
        }
        let Some(moved) = headers.get(MOVED) else { return Some(Self::OtherPod) };
        let holder = moved.to_str().ok().and_then(|text| text.split_once('@'));
        let holder = holder.and_then(|(pod, address)| {
            Some(Peer { pod: PodId::new(pod).ok()?, address: address.parse().ok()? })
        });
        Some(if headers.contains_key(FULL) { Self::Full(holder) } else { Self::Moved(holder) })
    }

    /// Writes it into the head of an answer.
    pub(super) fn write(&self, status: &mut StatusCode, headers: &mut HeaderMap) {
        *status = NOT_HERE;
        if let Self::Full(_) = self {
            headers.insert(FULL, HeaderValue::from_static("true"));
        }
        if let Self::Moved(holder) | Self::Full(holder) = self {
            let value = holder
                .as_ref()
                .and_then(|peer| HeaderValue::try_from(format!("{}@{}", peer.pod, peer.address)).ok());
            headers.insert(MOVED, value.unwrap_or(HeaderValue::from_static("?")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_stay_and_the_message_travels() {
        let mut client = HeaderMap::new();
        for (name, travels) in [
            ("host", false),
            ("authorization", false),
            ("x-api-key", false),
            ("cookie", false),
            ("origin", false),
            ("connection", false),
            ("transfer-encoding", false),
            ("content-length", false),
            ("longshore-pod", false),
            ("longshore-principal", false),
            ("longshore-ending", false),
            ("longshore-full", false),
            ("x-forwarded-for", false),
            ("accept", true),
            ("content-type", true),
            ("mcp-session-id", true),
            ("mcp-protocol-version", true),
            ("mcp-param-a", true),
            ("last-event-id", true),
            ("traceparent", true),
        ] {
            client.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
            assert_eq!(super::travels(&HeaderName::from_static(name)), travels, "{name}");
        }
        client.append("mcp-session-id", HeaderValue::from_static("y"));
        let pod = PodId::new("pod-1").unwrap();
        let headers = outgoing(&client, &pod, "team ä\n", false, None).unwrap();
        assert_eq!(headers.get_all("mcp-session-id").iter().count(), 2);
        assert_eq!(headers.len(), 8 + 3);
        assert!(!comes_from_one_that_ends(&headers));
        assert!(comes_from_one_that_ends(&outgoing(&client, &pod, "a", true, None).unwrap()));
        assert!(is_for(&headers, &pod));
        assert!(!is_for(&headers, &PodId::new("pod-2").unwrap()));
        assert!(!is_for(&HeaderMap::new(), &pod));
        assert_eq!(principal(&headers).unwrap(), "team ä\n");
    }

    #[test]
    fn who_has_no_room_travels_with_a_request() {
        let pod = |number: usize| PodId::new(&format!("pod-{number}")).unwrap();
        let read = |full: Option<&[PodId]>| {
            super::full(&outgoing(&HeaderMap::new(), &pod(0), "a", false, full).unwrap())
        };
        assert_eq!(read(None), None);
        for count in 0..=MAX_FULL {
            let full: Vec<PodId> = (0..count).map(pod).collect();
            assert_eq!(read(Some(&full)), Some(full));
        }
        let too_many: Vec<PodId> = (0..=MAX_FULL).map(pod).collect();
        assert_eq!(read(Some(&too_many)), None);
        let mut strange = HeaderMap::new();
        strange.insert(FULL, HeaderValue::from_static("pod-1,a b"));
        assert_eq!(super::full(&strange), None);
    }

    #[test]
    fn notices_are_read_as_they_were_written() {
        let holder = Peer { pod: PodId::new("pod-1").unwrap(), address: "fd00::1".parse().unwrap() };
        let (moved, full) = (Notice::Moved(Some(holder.clone())), Notice::Full(Some(holder)));
        for notice in [Notice::OtherPod, Notice::Moved(None), moved, Notice::Full(None), full] {
            let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
            notice.write(&mut status, &mut headers);
            assert_eq!(Notice::read(status, &headers), Some(notice));
        }
        assert_eq!(Notice::read(StatusCode::NOT_FOUND, &HeaderMap::new()), None);
    }
}
