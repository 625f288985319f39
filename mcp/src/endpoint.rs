//! Where messages are posted to in 2024-11-05: a server says it in the first event of its stream.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse>

use thiserror::Error;

/// The type of that event.
pub const EVENT: &str = "endpoint";
/// The longest reference, in bytes: each session keeps its own.
const MAX_REFERENCE: usize = 8 * 1024;

/// Why nothing is posted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadEndpoint {
    /// It is no reference that a request could be made of.
    #[error("the endpoint that the server names is not usable")]
    Unusable,
    /// It is somewhere else than the stream. Whoever follows it sends the user's messages there.
    #[error("the endpoint that the server names has another origin than its stream")]
    Foreign,
}

/// The event that names an endpoint: a path, on the server that the stream comes from. It is written as it is, so it may hold
/// no line end.
pub fn event(path: &str) -> String {
    format!("event: {EVENT}\ndata: {path}\n\n")
}

/// The path and query of the endpoint that a stream at `stream` (an absolute URL) names. It is always on the stream's
/// own server.
pub fn resolve(stream: &str, reference: &str) -> Result<String, BadEndpoint> {
    use BadEndpoint::{Foreign, Unusable};
    let reference = reference.trim();
    if !(1..=MAX_REFERENCE).contains(&reference.len())
        || !reference.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\')
    {
        return Err(Unusable);
    }
    let (scheme, authority, base) = split(stream).ok_or(Unusable)?;
    let reference = reference.split('#').next().unwrap_or_default();
    let until_path = reference.find(['/', '?']).unwrap_or(reference.len());
    let path = if reference[..until_path].contains(':') {
        let (named_scheme, named_authority, path) = split(reference).ok_or(Foreign)?;
        let is_same = named_scheme.eq_ignore_ascii_case(scheme)
            && with_port(scheme, named_authority).eq_ignore_ascii_case(&with_port(scheme, authority));
        if !is_same {
            return Err(Foreign);
        }
        path
    } else if let Some(rest) = reference.strip_prefix("//") {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        if !with_port(scheme, &rest[..end]).eq_ignore_ascii_case(&with_port(scheme, authority)) {
            return Err(Foreign);
        }
        &rest[end..]
    } else {
        let base = base.split('?').next().unwrap_or_default();
        return Ok(match reference.as_bytes().first() {
            Some(b'/') => without_dots(reference),
            Some(b'?') => without_dots(&format!("{base}{reference}")),
            _ => {
                let folder = base.rfind('/').map_or("/", |at| &base[..=at]);
                without_dots(&format!("{folder}{reference}"))
            }
        });
    };
    Ok(without_dots(path))
}

/// Scheme, authority, and path with query.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A name before the host makes another host look like this one.
    let is_plain = !authority.is_empty() && !authority.contains('@');
    is_plain.then(|| (scheme, authority, path.split('#').next().unwrap_or_default()))
}

fn with_port(scheme: &str, authority: &str) -> String {
    let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
    match scheme.to_ascii_lowercase().as_str() {
        "http" if !has_port => format!("{authority}:80"),
        "https" if !has_port => format!("{authority}:443"),
        _ => authority.to_owned(),
    }
}

/// A path with query, beginning with a slash, without `.` and `..` in the path.
fn without_dots(path: &str) -> String {
    let (path, query) = match path.find('?') {
        Some(at) => path.split_at(at),
        None => (path, ""),
    };
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    format!("/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_on_the_streams_own_server() {
        use BadEndpoint::{Foreign, Unusable};
        const STREAM: &str = "http://Server:80/app/sse?x=1";
        for (reference, expected) in [
            ("/messages?sessionId=1", Ok("/messages?sessionId=1")),
            (" /m \n", Ok("/m")),
            ("messages?a=/b", Ok("/app/messages?a=/b")),
            ("../m/./n", Ok("/m/n")),
            ("../../../m", Ok("/m")),
            ("?s=1", Ok("/app/sse?s=1")),
            ("http://server/m#f", Ok("/m")),
            ("HTTP://server:80", Ok("/")),
            ("//server/m", Ok("/m")),
            ("http://server:81/m", Err(Foreign)),
            ("https://server/m", Err(Foreign)),
            ("http://other/m", Err(Foreign)),
            ("//other/m", Err(Foreign)),
            ("http://server@other/m", Err(Foreign)),
            ("http:/m", Err(Foreign)),
            ("javascript:alert(1)", Err(Foreign)),
            ("", Err(Unusable)),
            ("/a b", Err(Unusable)),
            ("/a\r\nHost: b", Err(Unusable)),
            ("/\\other", Err(Unusable)),
        ] {
            assert_eq!(
                resolve(STREAM, reference).as_deref(),
                expected.as_ref().map(|path| *path),
                "{reference}"
            );
        }
        for (length, is_usable) in [(MAX_REFERENCE, true), (MAX_REFERENCE + 1, false)] {
            let reference = format!("/{}", "m".repeat(length - 1));
            assert_eq!(resolve(STREAM, &reference).is_ok(), is_usable, "{length}");
        }
        assert_eq!(resolve("http://[::1]:8080/sse", "http://[::1]:8080/m"), Ok("/m".to_owned()));
        assert_eq!(resolve("https://[::1]/sse", "//[::1]:443/m"), Ok("/m".to_owned()));
        assert_eq!(event("/m?s=1"), "event: endpoint\ndata: /m?s=1\n\n");
    }
}
