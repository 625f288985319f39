//! The DNS domain of the cluster's Services: what pods find each other by, and a part of the URLs in statuses.

use std::fs;

/// What kubeadm and most others give a cluster.
const USUAL: &str = "cluster.local";
/// Where the kubelet writes which domains a pod looks names up in.
const RESOLVER: &str = "/etc/resolv.conf";

/// The domain that was given; else the one that this pod looks names up in; else the usual one.
pub(crate) fn or_found(given: Option<String>) -> String {
    let resolver = fs::read_to_string(RESOLVER).unwrap_or_default();
    let found = of_resolver(&resolver);
    match (given.filter(|given| !given.is_empty()), found) {
        (Some(given), Some(found)) if given != found => {
            tracing::warn!(
                given,
                found,
                "the cluster's DNS domain seems to be another one: pods of servers may not find each other"
            );
            given
        }
        (Some(given), _) => given,
        (None, Some(found)) => found.to_owned(),
        (None, None) => USUAL.to_owned(),
    }
}

/// The domain in `search NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN`, as the kubelet writes it. The last such line counts.
fn of_resolver(resolver: &str) -> Option<&str> {
    let searched = resolver.lines().rev().find_map(|line| line.trim().strip_prefix("search"))?;
    let searched: Vec<_> = searched.split_whitespace().map(|domain| domain.trim_end_matches('.')).collect();
    // A namespace may have the name `svc`, too.
    let domains = searched.iter().filter_map(|domain| domain.strip_prefix("svc."));
    domains.filter(|domain| searched.contains(domain)).min_by_key(|domain| domain.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_the_one_that_pods_look_names_up_in() {
        for (resolver, domain) in [
            (
                "search tools.svc.corp.lan svc.corp.lan corp.lan lan\nnameserver 10.96.0.10\noptions ndots:5\n",
                Some("corp.lan"),
            ),
            (
                "nameserver 10.96.0.10\nsearch tools.svc.cluster.local. svc.cluster.local. cluster.local.",
                Some("cluster.local"),
            ),
            ("search example.org\nsearch a.svc.b svc.b b", Some("b")),
            ("search svc.b\nsearch example.org", None),
            ("nameserver 10.0.0.1", None),
            ("search svc.svc.cluster.local svc.cluster.local cluster.local", Some("cluster.local")),
            ("search svc.", None),
            ("", None),
        ] {
            assert_eq!(of_resolver(resolver), domain, "{resolver}");
        }
    }
}
