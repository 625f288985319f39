//! How many processes the pods of a server may have that were made when it was a stdio server. Its manifest says so no more,
//! and they go by what it said: whoever shared one process must not get one each.

use k8s_openapi::api::core::v1::ConfigMap;
use longshore_sidecar_config::{Config, Processes, Upstream, paths};
use parking_lot::Mutex;

use super::get;
use crate::api::ApiError;
use crate::mcp_server::build::config_map_name;
use crate::mcp_server::condition::Problem;
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::validate::{ValidatedServer, unreadable};
use crate::view::controller;

/// The bounds of a server's processes. Client required where the manifest has left stdio, pods have not, and it happened
/// under another operator: then their configuration is read, which goes on saying it.
///
/// Where it cannot be read, nothing is written in its place: it is the only one that says so.
pub(crate) async fn processes(
    context: &Context,
    memory: &Mutex<ServerMemory>,
    server: &ValidatedServer,
) -> Result<Option<Processes>, ApiError> {
    let (written, before) = (server.limits.processes, Upstream::Stdio {});
    if server.upstream == before {
        memory.lock().processes = written;
    }
    if server.upstream == before || !server.older_upstreams.contains(&before) {
        return Ok(written);
    }
    let kept = memory.lock().processes;
    if kept.is_some() {
        return Ok(kept);
    }
    let (of, name) = (&server.identity, config_map_name(server, &before));
    let found = get::<ConfigMap>(&context.client, &of.namespace, &name).await?;
    let ours = found.filter(|map| controller(&map.metadata).as_deref() == Some(&*of.uid));
    let kept = ours.and_then(|map| {
        let config = serde_json::from_str::<Config>(map.data?.get(paths::CONFIG_FILE)?).ok()?;
        config.limits.processes
    });
    let kept = kept.or(written);
    memory.lock().processes = kept;
    Ok(kept)
}

/// What to say in the status of a failure that is no passing one.
pub(crate) fn lasting(error: &ApiError, server: &ValidatedServer, patient: bool) -> Option<Problem> {
    let words = error.lasting(!patient)?;
    let name = config_map_name(server, &Upstream::Stdio {});
    let role =
        "which says how many processes the pods may have that are left of the server's time with stdio";
    Some(unreadable("ConfigMap", &server.identity.namespace, &name, role, words))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;
    use axum::{Json, Router};
    use serde_json::{Value, json};

    use super::*;
    use crate::mcp_server::apply::tests::context;
    use crate::mcp_server::build::build;
    use crate::mcp_server::condition::Reason;
    use crate::mcp_server::dereference::Dereferenced;
    use crate::mcp_server::validate::validate;
    use crate::settings::Settings;

    fn server(transport: Value, pods: Vec<Upstream>) -> ValidatedServer {
        let server = serde_json::from_value(json!({
            "apiVersion": "longshore.dev/v1alpha1",
            "kind": "McpServer",
            "metadata": {"name": "demo", "namespace": "tools", "uid": "7b1c", "generation": 1},
            "spec": {
                "source": {"image": "example/demo:1", "command": ["/server"]},
                "transport": transport,
                "auth": {"none": {}},
            },
        }));
        let found = Dereferenced { mounted_upstreams: pods, ..Dereferenced::of_tests() };
        validate(&server.unwrap(), &found).unwrap()
    }

    fn shared(pods: Vec<Upstream>) -> ValidatedServer {
        server(json!({"stdio": {"isolation": "Shared", "maxProcesses": 200, "warm": 3}}), pods)
    }

    fn left(pods: Vec<Upstream>) -> ValidatedServer {
        server(json!({"streamableHttp": {"port": 3000}}), pods)
    }

    /// What counts, and how often that was read, with an API server that answers with this.
    async fn read(
        answer: (StatusCode, Value),
        memory: &Mutex<ServerMemory>,
        looks: &[ValidatedServer],
    ) -> (Option<Option<u32>>, usize) {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let router = Router::new().fallback(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let (status, body) = answer.clone();
            async move { (status, Json(body)).into_response() }
        });
        let context = context(kube::Client::new(router, "tools"));
        let mut last = None;
        for server in looks {
            let processes = processes(&context, memory, server).await.ok();
            last = processes.map(|processes| processes.map(|processes| processes.total));
        }
        (last, reads.load(Ordering::Relaxed))
    }

    fn live(uid: &str) -> Value {
        let (mut resources, _) = build(&shared(vec![]), &Settings::of_tests());
        let mut map = serde_json::to_value(resources.config_maps.remove(0)).unwrap();
        map["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
        map
    }

    #[tokio::test]
    async fn pods_keep_the_bounds_of_their_processes_when_the_manifest_leaves_stdio() {
        let stdio = || vec![Upstream::Stdio {}];
        let failed = || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503});
        let refused = || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403});
        let gone = || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
        let there = || (StatusCode::OK, live("7b1c"));
        let (shared_one, default) = (Some(Some(200)), Some(Some(32)));
        for (what, answer, looks, expected, reads) in [
            ("it is a stdio server", there(), vec![shared(vec![])], shared_one, 0),
            ("it was one just now", there(), vec![shared(vec![]), left(stdio())], shared_one, 0),
            ("no pod is from then", there(), vec![left(vec![])], default, 0),
            ("another operator saw it leave", there(), vec![left(stdio()), left(stdio())], shared_one, 1),
            ("it is another's", (StatusCode::OK, live("a")), vec![left(stdio())], default, 1),
            ("there is none", (StatusCode::NOT_FOUND, gone()), vec![left(stdio())], default, 1),
            // Whoever writes the default then has nothing left to read.
            ("it cannot be read", (StatusCode::SERVICE_UNAVAILABLE, failed()), vec![left(stdio())], None, 1),
            ("it may not be read", (StatusCode::FORBIDDEN, refused()), vec![left(stdio())], None, 1),
        ] {
            let read = read(answer, &Mutex::default(), &looks).await;
            assert_eq!(read, (expected, reads), "{what}");
        }
        // A moment is waited out, and nothing is written until then.
        let away = (StatusCode::SERVICE_UNAVAILABLE, failed());
        let memory = Mutex::default();
        assert_eq!(read(away, &memory, &[left(stdio())]).await.0, None);
        assert_eq!(read(there(), &memory, &[left(stdio())]).await.0, Some(Some(200)));
        // It is said at once where it is refused, and otherwise once that has lasted.
        for (code, patient, is_said) in [(403, true, true), (503, true, false), (503, false, true)] {
            let status = kube::core::Status { code, ..kube::core::Status::failure("no", "") };
            let answer = std::future::ready(Err::<(), _>(kube::Error::Api(Box::new(status))));
            let error = crate::api::call(answer).await.unwrap_err();
            let said = lasting(&error, &left(stdio()), patient).map(|problem| problem.reason);
            assert_eq!(said, is_said.then_some(Reason::Unreadable), "{code}");
        }
    }
}
