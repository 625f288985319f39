//! By which names the catalog may be asked where nobody needs a key.
//!
//! A browser takes a page for one with whatever has the page's name, and its owner can have that name point anywhere: at
//! a `kubectl port-forward` on its reader's machine, for example. What the browser asks there still bears the name.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, Uri};

/// Names beside `localhost` and every IP address, which no stranger's page has for its name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<BTreeSet<String>>);

impl Hosts {
    /// These names, whatever their case.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(Arc::new(names.into_iter().map(|name| plain(&name).to_ascii_lowercase()).collect()))
    }

    /// Whether a request asks one of them.
    pub(crate) fn are_asked(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut said = headers.get_all(HOST).iter();
        // Of two, whoever is in front may have gone by the other one.
        let (said, None) = (said.next(), said.next()) else { return false };
        let said = || said?.to_str().ok()?.parse::<Authority>().ok();
        let Some(authority) = uri.authority().cloned().or_else(said) else { return false };
        let name = plain(authority.host()).to_ascii_lowercase();
        name == "localhost" || name.parse::<IpAddr>().is_ok() || self.0.contains(&name)
    }

    /// What whoever asks by another name is told: where there is no cluster, there is no Service and no chart.
    pub(crate) fn refusal(&self) -> &'static str {
        if self.0.is_empty() {
            return "the catalog is not known by the name that this was sent to: ask for localhost or an IP address";
        }
        "the catalog is not known by the name that this was sent to: ask for its Service, localhost or an IP address, or \
         add the name to the chart's value catalog.hosts"
    }
}

/// Without the brackets of an IPv6 address and the dot at the end of a whole name.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name).trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_names_of_its_own_are_known() {
        let hosts = Hosts::new(["catalog.tools".to_owned(), "Catalog.Example.".to_owned()]);
        for (uri, host, expected) in [
            ("/", Some("localhost"), true),
            ("/", Some("LOCALHOST:8080"), true),
            ("/", Some("127.0.0.1:8080"), true),
            ("/", Some("10.0.0.7"), true),
            ("/", Some("[::1]:8080"), true),
            ("/", Some("catalog.tools"), true),
            ("/", Some("catalog.example:80"), true),
            ("/", Some("catalog.example."), true),
            ("/", Some("stranger.example"), false),
            ("/", Some("catalog.tools.stranger.example"), false),
            ("/", Some("localhost.stranger.example"), false),
            ("/", Some("127.0.0.1.stranger.example"), false),
            ("/", Some("127.0.0.1@stranger.example"), false),
            ("/", Some(""), false),
            ("/", None, false),
            // As requests to proxies have it; the header does not count then.
            ("http://stranger.example/", Some("localhost"), false),
            ("http://localhost/", Some("stranger.example"), true),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, HeaderValue::from_static(host));
            }
            assert_eq!(hosts.are_asked(&uri.parse().unwrap(), &headers), expected, "{uri} {host:?}");
        }
    }

    #[test]
    fn whoever_names_two_is_not_answered() {
        for (first, second) in [("localhost", "stranger.example"), ("localhost", "localhost")] {
            let mut headers = HeaderMap::new();
            headers.append(HOST, HeaderValue::from_static(first));
            headers.append(HOST, HeaderValue::from_static(second));
            for uri in ["/", "http://localhost/"] {
                let asked = Hosts::default().are_asked(&uri.parse().unwrap(), &headers);
                assert!(!asked, "{uri} {first} {second}");
            }
        }
    }
}
