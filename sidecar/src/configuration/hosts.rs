//! The names that a server is known by, and the origins that browsers may call it from.

use std::net::IpAddr;

/// Who a request may be addressed to, and where a browser's request may come from.
pub(crate) struct Hosts {
    names: Vec<String>,
    origins: Vec<String>,
}

impl Hosts {
    pub(crate) fn new(names: &[String], origins: &[String]) -> Self {
        Self { names: names.to_vec(), origins: origins.to_vec() }
    }

    /// Whether the server is known by this `Host` (with or without a port). Loopback always is: a name that resolves
    /// to loopback in a browser (the trick that this check is for) is not itself a loopback name.
    pub(crate) fn knows(&self, host: &str) -> bool {
        let Some(name) = host_of(host) else { return false };
        let name = name.strip_suffix('.').unwrap_or(name);
        is_one_of(&self.names, name) || is_loopback(name)
    }

    /// Whether browsers may call from this origin.
    pub(crate) fn allows_origin(&self, origin: &str) -> bool {
        is_one_of(&self.origins, origin)
    }
}

/// Without regard to case. There are few, and each request has one.
fn is_one_of(known: &[String], name: &str) -> bool {
    known.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The name or address in a `Host`, without port and brackets. `None` if it is neither.
fn host_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']')?;
            (address, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let port_is_number = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    (!name.is_empty() && port_is_number).then_some(name)
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_port_and_case() {
        let hosts = Hosts::new(&["github.tools.svc".to_owned()], &["https://App.example".to_owned()]);
        for (host, known) in [
            ("github.tools.svc", true),
            ("GitHub.tools.svc:15380", true),
            ("github.tools.svc.", true),
            ("github.tools.svc.:80", true),
            ("localhost", true),
            ("localhost:3000", true),
            ("127.0.0.1:3000", true),
            ("127.9.9.9", true),
            ("[::1]:3000", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("10.0.0.7", false),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("github.tools.svc:80@evil.example", false),
            ("github.tools.svc@evil.example", false),
            ("[::1", false),
            ("[::1]x", false),
            (":80", false),
            ("", false),
        ] {
            assert_eq!(hosts.knows(host), known, "{host}");
        }
        for (origin, allowed) in [
            ("https://app.example", true),
            ("HTTPS://APP.EXAMPLE", true),
            ("https://app.example:443", false),
            ("http://app.example", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(hosts.allows_origin(origin), allowed, "{origin}");
        }
    }
}
