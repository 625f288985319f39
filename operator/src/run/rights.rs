//! What the operator has to be let see before it is ready. Of two releases the older one goes on until the newer one is: where
//! that lacks a right, nobody would look after any server.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Client, Resource};
use longshore_crds::McpServer;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::api::{self, ApiError};
use crate::lease::Candidate;
use crate::reading::Lean;
use crate::scope::{self, Scope};

/// The time between two tries.
const RETRY: Duration = Duration::from_secs(2);

/// Waits until the API server answers, lets the Lease be read and written, and lists every kind that is watched in one
/// namespace at least. What keeps it from that is said once, however long it lasts.
pub(super) async fn wait_for_rights(client: &Client, scopes: &[Scope], candidate: &Candidate) {
    let mut said = BTreeSet::new();
    loop {
        let mut lacks: Vec<ApiError> = candidate.look().await.err().into_iter().collect();
        let may_lead = lacks.is_empty();
        let mut may_see = false;
        for scope in scopes {
            let of_scope = look(client, scope).await;
            may_see = of_scope.is_empty();
            lacks.extend(of_scope);
            if may_see {
                break;
            }
        }
        let news = lacks.iter().filter(|error| said.insert(error.to_string()));
        news.for_each(say);
        if may_lead && may_see {
            return;
        }
        sleep(RETRY).await;
    }
}

fn say(error: &ApiError) {
    match error {
        error if error.is_not_found() => tracing::warn!(
            "the cluster does not know the kind McpServer: install the chart longshore-crds, or apply the \
             output of `longshore crds`; waiting for it"
        ),
        ApiError::Refused(_) => tracing::warn!(%error, "lacks a right that it needs; waiting for it"),
        ApiError::Conflict(_) | ApiError::Unavailable(_) | ApiError::TimedOut => {
            tracing::warn!(%error, "cannot see the cluster yet; waiting");
        }
    }
}

/// Why something that is watched cannot be listed in a scope. Where servers cannot be, nothing else is asked for: there may
/// be many scopes of which nothing is to be seen yet.
async fn look(client: &Client, scope: &Scope) -> Vec<ApiError> {
    if let Err(error) = list_one::<McpServer>(client, scope).await {
        return vec![error];
    }
    let kinds = [
        list_one::<Deployment>(client, scope).boxed(),
        list_one::<ReplicaSet>(client, scope).boxed(),
        list_one::<Pod>(client, scope).boxed(),
        list_one::<Service>(client, scope).boxed(),
        list_one::<ConfigMap>(client, scope).boxed(),
        list_one::<Secret>(client, scope).boxed(),
        list_one::<ServiceAccount>(client, scope).boxed(),
        list_one::<NetworkPolicy>(client, scope).boxed(),
        list_one::<PodDisruptionBudget>(client, scope).boxed(),
    ];
    join_all(kinds).await.into_iter().filter_map(Result::err).collect()
}

async fn list_one<K>(client: &Client, scope: &Scope) -> Result<(), ApiError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let objects = scope::api::<Lean<PartialObjectMeta<K>>>(client, scope);
    api::call(objects.list(&ListParams::default().limit(1))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::http::{Method, StatusCode, Uri};
    use axum::response::{IntoResponse as _, Response};
    use axum::{Json, Router};
    use kube::client::ClientBuilder;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::lease::Timings;
    use crate::rbac;

    /// What was asked for, each as `NAMESPACE RESOURCE`, what of that is refused, and whether somebody has made the Lease.
    #[derive(Default)]
    struct Cluster {
        asked: BTreeSet<String>,
        refused: &'static str,
        has_lease: bool,
    }

    fn answer(cluster: &Mutex<Cluster>, method: &Method, path: &str) -> Response {
        let status = |code: StatusCode, reason: &str| {
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "reason": reason,
                "code": code.as_u16(),
            });
            (code, Json(status)).into_response()
        };
        let parts: Vec<_> = path.split('/').collect();
        let namespace = parts.iter().skip_while(|part| **part != "namespaces").nth(1).unwrap_or(&"");
        let is_lease = parts.contains(&"leases");
        let resource = if is_lease { "leases" } else { parts[parts.len() - 1] };
        let verb = if *method == Method::GET { String::new() } else { format!(" by {method}") };
        let what = format!("{namespace} {resource}{verb}");
        let mut cluster = cluster.lock();
        let is_refused = !cluster.refused.is_empty() && what.contains(cluster.refused);
        cluster.asked.insert(what);
        if is_refused {
            return status(StatusCode::FORBIDDEN, "Forbidden");
        }
        if is_lease && (cluster.has_lease || *method != Method::GET) {
            return Json(json!({"metadata": {"name": "longshore", "resourceVersion": "1"}})).into_response();
        }
        if is_lease {
            // The first operator makes it.
            return status(StatusCode::NOT_FOUND, "NotFound");
        }
        let kind = "PartialObjectMetadataList";
        let nothing = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": {}, "items": []});
        Json(nothing).into_response()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_may_not_list_a_kind_anywhere_or_take_the_lease_waits_until_it_may() {
        for (refused, namespaces, waits) in [
            ("", &[][..], false),
            (" secrets", &[], true),
            (" poddisruptionbudgets", &["tools"], true),
            ("own leases", &[], true),
            ("own leases by POST", &[], true),
            ("own leases by PUT", &[], true),
            ("gone ", &["gone", "tools"], false),
            ("tools pods", &["gone", "tools"], false),
            (" pods", &["gone", "tools"], true),
        ] {
            let has_lease = refused.ends_with("PUT");
            let cluster = Arc::new(Mutex::new(Cluster { refused, has_lease, ..Cluster::default() }));
            let asked = cluster.clone();
            let answer = async move |method: Method, uri: Uri| answer(&asked, &method, uri.path());
            let client = ClientBuilder::new(Router::new().fallback(answer), "own").build();
            let candidate = Candidate::new(client.clone(), "own", "longshore", "me", Timings::default());
            let namespaces: Vec<_> = namespaces.iter().map(|name| (*name).to_owned()).collect();
            let scopes = scope::scopes(&namespaces);
            let mut waiting = Box::pin(wait_for_rights(&client, &scopes, &candidate));
            let is_waiting = timeout(RETRY * 5, &mut waiting).await.is_err();
            assert_eq!(is_waiting, waits, "{refused} in {namespaces:?}");
            cluster.lock().refused = "";
            if is_waiting {
                assert!(timeout(RETRY * 2, waiting).await.is_ok(), "{refused} is granted");
            }
        }
    }

    /// They may be many, and each kind of each would be a request and a line of the log, again and again.
    #[tokio::test]
    async fn where_servers_cannot_be_listed_nothing_else_is_asked_for() {
        let refused = "gone mcpservers";
        let cluster = Arc::new(Mutex::new(Cluster { refused, ..Cluster::default() }));
        let asked = cluster.clone();
        let answer = async move |method: Method, uri: Uri| answer(&asked, &method, uri.path());
        let client = ClientBuilder::new(Router::new().fallback(answer), "own").build();
        assert_eq!(look(&client, &Some("gone".to_owned())).await.len(), 1);
        assert_eq!(cluster.lock().asked, BTreeSet::from([refused.to_owned()]));
    }

    /// What is missing here would be found out by nobody before the older operator has gone.
    #[tokio::test]
    async fn each_kind_that_is_listed_by_its_right_is_asked_for() {
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let asked = cluster.clone();
        let answer = async move |method: Method, uri: Uri| answer(&asked, &method, uri.path());
        let client = ClientBuilder::new(Router::new().fallback(answer), "own").build();
        assert!(look(&client, &None).await.is_empty());
        let listed = rbac::SERVERS.iter().filter(|rule| rule.verbs.contains(&"list"));
        let listed: BTreeSet<_> = listed.map(|rule| format!(" {}", rule.resource)).collect();
        assert_eq!(cluster.lock().asked, listed);
    }
}
