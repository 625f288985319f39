//! The chart gives the operator the rights that the operator says it needs, and no other; and its pods the patience that
//! sidecars get.

use std::collections::{BTreeMap, BTreeSet};

use longshore::rbac::{self, Rule};
use serde::Deserialize;

/// Group and resource, to what may be done with it.
type Rights = BTreeMap<(String, String), BTreeSet<String>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RoleRule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Role {
    rules: Vec<RoleRule>,
}

#[test]
fn the_chart_gives_the_rights_that_are_needed() {
    let template = include_str!("../../../charts/longshore/templates/rbac.yaml");
    // Both lists are plain YAML in the template, so no Helm is needed to read them.
    let servers = between(template, "{{- define \"longshore.rules\" }}", "{{- end }}");
    let own_namespace = between(template, "name: {{ $name }}-leader\n", "---");
    let own_namespace = &own_namespace[own_namespace.find("rules:").unwrap()..];

    assert_eq!(granted(servers, &[]), needed(rbac::SERVERS));
    assert_eq!(granted(own_namespace, &[]), needed(rbac::OWN_NAMESPACE));
    assert_eq!(granted(own_namespace, &["{{ $name }}"]), needed(rbac::OWN_LEASE));
    let deployment = include_str!("../../../charts/longshore/templates/deployment.yaml");
    assert!(deployment.contains("--lease-name={{ $name }}"), "the Lease has another name");

    let catalog = include_str!("../../../charts/longshore/templates/catalog/rbac.yaml");
    let catalog = between(catalog, "{{- define \"longshore.catalog.rules\" }}", "{{- end }}");
    assert_eq!(granted(catalog, &[]), needed(rbac::CATALOG));
}

/// Kubernetes' own second is too short on a node that has too much to do.
#[test]
fn the_chart_gives_its_pods_time_to_answer() {
    for template in [
        include_str!("../../../charts/longshore/templates/deployment.yaml"),
        include_str!("../../../charts/longshore/templates/catalog/deployment.yaml"),
    ] {
        for (probe, end, seconds) in
            [("livenessProbe:", "readinessProbe:", 10), ("readinessProbe:", "securityContext:", 3)]
        {
            let probe = between(template, probe, end);
            assert!(probe.contains(&format!("\n            timeoutSeconds: {seconds}\n")), "{probe}");
        }
    }
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("{start:?} is not in the template"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end:?} does not follow {start:?}")).0
}

/// What may be done with objects of these names alone, or with all.
fn granted(yaml: &str, names: &[&str]) -> Rights {
    let role: Role = serde_saphyr::from_str(yaml).unwrap();
    let mut rights = Rights::new();
    for rule in role.rules.iter().filter(|rule| rule.resource_names == names) {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                let before =
                    rights.insert((group.clone(), resource.clone()), rule.verbs.iter().cloned().collect());
                assert!(before.is_none(), "{resource} has two rules");
            }
        }
    }
    rights
}

fn needed(rules: &[Rule]) -> Rights {
    rules
        .iter()
        .map(|rule| {
            let verbs = rule.verbs.iter().map(|&verb| verb.to_owned()).collect();
            ((rule.group.to_owned(), rule.resource.to_owned()), verbs)
        })
        .collect()
}
