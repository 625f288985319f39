//! What a manifest names outside of itself: Secrets, ConfigMaps, a ServiceAccount, and the Secret with the API keys.

use longshore_crds::McpServer;
use longshore_crds::mcp_server::Source;

use super::ValidatedAuth;
use crate::mcp_server::condition::{Problem, Reason};
use crate::mcp_server::dereference::{ApiKeysLookup, Dereferenced, Lookup};
use crate::mcp_server::references::{self, Kind, Need};
use crate::names;

/// Checks all references: whoever names an object of Longshore's own has to name another, and whoever names one that is not
/// there may only have to wait for it.
pub(super) fn check_references(
    server: &McpServer,
    found: &Dereferenced,
    unfit: &mut Vec<Problem>,
    missing: &mut Vec<Problem>,
) {
    let references = references::of(&server.spec);
    if let Some(beyond) = references::beyond(&references) {
        unfit.push(Problem::invalid(
            &beyond.field,
            format_args!(
                "the manifest names more than {} Secrets, ConfigMaps and ServiceAccounts, so none is looked at: name fewer",
                references::MOST
            ),
        ));
        return;
    }
    for problem in references.iter().filter_map(|reference| check_reference(server, reference, found)) {
        if matches!(problem.reason, Reason::Invalid | Reason::SecretReserved | Reason::ConfigMapReserved) {
            unfit.push(problem);
        } else {
            missing.push(problem);
        }
    }
}

/// What is wrong with a reference, if anything is.
fn check_reference(
    server: &McpServer,
    reference: &references::Reference,
    found: &Dereferenced,
) -> Option<Problem> {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let (kind, name, field) = (reference.kind.name(), &reference.name, &reference.field);
    // Where it need not be there it is not there.
    if reference.need == Need::Required && !names::is_possible(name) {
        return Some(Problem::invalid(
            field,
            format_args!(
                "no {kind} can be called {name:?}: write up to 253 lower-case letters, digits, `-` and `.`, with a letter \
                 or digit at both ends and beside each `.`"
            ),
        ));
    }
    let (reserved, not_found, no_key) = match reference.kind {
        references::Kind::Secret => {
            (Reason::SecretReserved, Reason::SecretNotFound, Reason::SecretKeyNotFound)
        }
        references::Kind::ConfigMap => {
            (Reason::ConfigMapReserved, Reason::ConfigMapNotFound, Reason::ConfigMapKeyNotFound)
        }
        // It has no entries, and one of Longshore's own may be named: nobody gains anything by it.
        references::Kind::ServiceAccount => {
            (Reason::Invalid, Reason::ServiceAccountNotFound, Reason::Invalid)
        }
    };
    // The name counts too: on the first reconciliation Longshore's own Secret is not there yet, and it is made at once
    // with the pod.
    let lookup = match reference.kind {
        references::Kind::Secret if names::is_keys_secret(name) => &Lookup::Reserved,
        kind => found.lookup(kind, name),
    };
    match lookup {
        Lookup::Reserved => Some(Problem::new(
            reserved,
            format!(
                "{field}: {kind} {namespace}/{name} is Longshore's own and cannot be used by a server; name another"
            ),
        )),
        // It may be Longshore's own, so this holds for one that need not be there too.
        Lookup::Unreadable(words) => {
            Some(unreadable(kind, namespace, name, &format!("which {field} names"), words))
        }
        Lookup::Missing if reference.need == Need::Required => Some(Problem::new(
            not_found,
            format!(
                "{kind} {namespace}/{name}, which {field} names, does not exist: create it, or correct the name"
            ),
        )),
        Lookup::Missing => None,
        Lookup::Present { keys } => match &reference.key {
            Some(key) if reference.need == Need::Required && !keys.contains(key) => Some(Problem::new(
                no_key,
                format!(
                    "{kind} {namespace}/{name} has no key {key:?}, which {field} names: add it, or correct the name"
                ),
            )),
            Some(_) | None => None,
        },
    }
}

/// Says of an object which cannot be read what the server has to do with it, and what the API server says.
pub(crate) fn unreadable(kind: &str, namespace: &str, name: &str, role: &str, words: &str) -> Problem {
    Problem::new(
        Reason::Unreadable,
        format!(
            "{kind} {namespace}/{name}, {role}, cannot be read, and is asked for again: {words}; give Longshore's \
             ServiceAccount the right to `get` it, or mend what these words name"
        ),
    )
}

/// Whether a server's environment has a home by the manifest, be it out of a Secret or ConfigMap as a whole. (Of no other
/// variable is it known what makes it there.)
pub(super) fn has_home(source: &Source, found: &Dereferenced) -> bool {
    let variable = references::HOME;
    let has = |kind, name: &str, prefix: Option<&str>| {
        let Some(key) = references::entry_of(variable, prefix) else { return false };
        matches!(found.lookup(kind, name), Lookup::Present { keys } if keys.contains(key))
    };
    source.env.iter().any(|one| one.name == variable)
        || source.env_from.iter().any(|from| {
            let prefix = from.prefix.as_deref();
            from.secret_ref.as_ref().is_some_and(|secret| has(Kind::Secret, &secret.name, prefix))
                || from.config_map_ref.as_ref().is_some_and(|map| has(Kind::ConfigMap, &map.name, prefix))
        })
}

/// How callers prove who they are. What is missing keeps pods from being made, what is flawed is only said.
pub(super) fn auth(
    server: &McpServer,
    found: &Dereferenced,
    problems: &mut Vec<Problem>,
    missing: &mut Vec<Problem>,
    flaws: &mut Vec<Problem>,
) -> Option<ValidatedAuth> {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let auth = &server.spec.auth;
    let keys = match (&auth.none, &auth.api_keys) {
        (Some(_), None) => return Some(ValidatedAuth::None),
        (None, Some(keys)) => keys,
        (Some(_), Some(_)) | (None, None) => {
            problems
                .push(Problem::invalid("spec.auth", "choose exactly one: `apiKeys: {...}` or `none: {}`"));
            return None;
        }
    };
    let name = &keys.secret_ref.name;
    let field = "spec.auth.apiKeys.secretRef";
    let lookup = if names::is_keys_secret(name) { &ApiKeysLookup::Reserved } else { &found.api_keys };
    let live = match lookup {
        ApiKeysLookup::Reserved => {
            missing.push(Problem::new(
                Reason::SecretReserved,
                format!(
                    "{field}: Secret {namespace}/{name} is Longshore's own and cannot hold keys; name another"
                ),
            ));
            Vec::new()
        }
        // Whoever deletes the Secret revokes its keys: running sidecars get an empty list.
        ApiKeysLookup::Missing | ApiKeysLookup::NotNamed => {
            missing.push(Problem::new(
                Reason::SecretNotFound,
                format!(
                    "Secret {namespace}/{name}, which {field} names, does not exist: create it (`longshore key new \
                     --secret {name} --namespace {namespace} | kubectl apply -f -` makes one), or correct the name"
                ),
            ));
            Vec::new()
        }
        // Whoever has a key would lose it, or one that was revoked would stay: nothing is made of this.
        ApiKeysLookup::Unreadable(words) => {
            problems.push(unreadable("Secret", namespace, name, &format!("which {field} names"), words));
            return None;
        }
        ApiKeysLookup::Present(parsed) => {
            flaws.extend(parsed.problems.iter().map(|problem| {
                Problem::new(
                    Reason::InvalidKeys,
                    format!("Secret {namespace}/{name}, which {field} names: {problem}"),
                )
            }));
            parsed.keys.clone()
        }
    };
    Some(ValidatedAuth::ApiKeys(live))
}
