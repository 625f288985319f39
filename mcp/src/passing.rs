//! Edits of responses between two sides of 2026-07-28. Little changes there: what a proxy knows better than the server
//! behind it.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/server/discover>,
//! <https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching>

use crate::object::{Object, array, elements, quote};
use crate::revision::Revision;

/// The response to `server/discover` with the revisions that clients can speak at the proxy's address, newest first;
/// `None` if it says so already, or if the server does not speak the revision that it was asked in: then its answer is
/// all that its client can know.
pub fn discovered(
    message: &str,
    asked: Revision,
    served: &[Revision],
) -> Result<Option<String>, serde_json::Error> {
    let mut versions = served.to_vec();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    let versions = array(versions.iter().map(|revision| quote(revision.as_str())));
    in_result(message, |result| {
        let spoken = result.get("supportedVersions").and_then(|versions| elements(versions).ok());
        let asked = quote(asked.as_str());
        if !spoken.is_some_and(|spoken| spoken.contains(&asked.as_str())) {
            return false;
        }
        let differs = result.get("supportedVersions") != Some(versions.as_str());
        if differs {
            result.set("supportedVersions", versions);
        }
        differs
    })
}

/// A response that nobody but its client may keep, since it depends on who asks; `None` if it says so already, or is
/// not to be kept at all.
pub fn private(message: &str) -> Result<Option<String>, serde_json::Error> {
    in_result(message, |result| {
        let is_shared = result.get("cacheScope").is_some_and(|scope| scope != "\"private\"");
        if is_shared {
            result.set("cacheScope", quote("private"));
        }
        is_shared
    })
}

/// Changes the result of a response. What has none stays as it is.
fn in_result(
    message: &str,
    change: impl FnOnce(&mut Object<'_>) -> bool,
) -> Result<Option<String>, serde_json::Error> {
    let mut response = Object::read(message)?;
    let Some(result) = response.original("result") else { return Ok(None) };
    let mut result = Object::read(result)?;
    Ok(change(&mut result).then(|| {
        response.set("result", result.write());
        response.write()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Revision = Revision::V2026_07_28;

    #[test]
    fn only_what_is_known_better_changes() {
        let message = r#"{"jsonrpc":"2.0","id":1,"result":{"x":1.0,"supportedVersions":["2026-07-28"],"cacheScope":"public","ttlMs":7}}"#;
        assert_eq!(
            discovered(message, NEW, &Revision::ALL[3..]).unwrap().unwrap(),
            message.replace(r#"["2026-07-28"]"#, r#"["2026-07-28","2025-11-25"]"#)
        );
        assert_eq!(discovered(message, NEW, &Revision::ALL[4..]).unwrap(), None);
        let older = message.replace("2026-07-28", "2025-11-25");
        assert_eq!(discovered(&older, NEW, &Revision::ALL).unwrap(), None);
        let kept = private(message).unwrap().unwrap();
        assert_eq!(kept, message.replace("public", "private"));
        assert_eq!(private(&kept).unwrap(), None);
        for none in [r#"{"id":1,"error":{}}"#, r#"{"id":1,"result":{"resultType":"input_required"}}"#] {
            assert_eq!(private(none).unwrap(), None, "{none}");
        }
        assert!(private(r#"{"id":1,"result":{"cacheScope":"public","cacheScope":"private"}}"#).is_err());
    }
}
