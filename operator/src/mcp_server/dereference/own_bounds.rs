//! How many processes the pods of a server may have that were made when it was a stdio server. Its manifest says so no more,
//! and they go by what it said: whoever shared one process must not get one each.

use k8s_openapi::api::core::v1::ConfigMap;
use longshore_sidecar_config::{Config, Processes, Upstream, paths};
use parking_lot::Mutex;

use super::get;
use crate::api::ApiError;
use crate::mcp_server::build::config_map_name;
use crate::mcp_server::context::Context;
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::validate::ValidatedServer;
use crate::view::controller;

/// The bounds of a server's processes. Client required where the manifest has left stdio, pods have not, and it happened
/// under another operator: then their configuration is read, which goes on saying it.
///
/// Where it cannot be read (`patient`: it may be soon), those of a manifest that says nothing have to do.
pub(crate) async fn processes(
    context: &Context,
    memory: &Mutex<ServerMemory>,
    patient: bool,
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
    let found = match get::<ConfigMap>(&context.client, &of.namespace, &name).await {
        Ok(found) => found.filter(|map| controller(&map.metadata).as_deref() == Some(&*of.uid)),
        Err(error) if error.lasting(!patient).is_none() => return Err(error),
        Err(error) => {
            tracing::warn!(server = %of.name, namespace = %of.namespace, %error, "cannot read the bounds of processes");
            return Ok(written);
        }
    };
    let kept = found.and_then(|map| {
        let config = serde_json::from_str::<Config>(map.data?.get(paths::CONFIG_FILE)?).ok()?;
        config.limits.processes
    });
    let kept = kept.or(written);
    memory.lock().processes = kept;
    Ok(kept)
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
        patient: bool,
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
            let processes = processes(&context, memory, patient, server).await.ok();
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
        let there = || (StatusCode::OK, live("7b1c"));
        for (what, answer, patient, looks, expected, reads) in [
            ("it is a stdio server", there(), true, vec![shared(vec![])], Some(200), 0),
            ("it was one just now", there(), true, vec![shared(vec![]), left(stdio())], Some(200), 0),
            ("no pod is from then", there(), true, vec![left(vec![])], Some(32), 0),
            (
                "another operator saw it leave",
                there(),
                true,
                vec![left(stdio()), left(stdio())],
                Some(200),
                1,
            ),
            ("it is another's", (StatusCode::OK, live("a")), true, vec![left(stdio())], Some(32), 1),
            (
                "it cannot be read for long",
                (StatusCode::SERVICE_UNAVAILABLE, failed()),
                false,
                vec![left(stdio())],
                Some(32),
                1,
            ),
            (
                "it may not be read",
                (StatusCode::FORBIDDEN, refused()),
                true,
                vec![left(stdio())],
                Some(32),
                1,
            ),
        ] {
            let read = read(answer, &Mutex::default(), patient, &looks).await;
            assert_eq!(read, (Some(expected), reads), "{what}");
        }
        // A moment is waited out, and nothing is written until then.
        let away = (StatusCode::SERVICE_UNAVAILABLE, failed());
        let memory = Mutex::default();
        assert_eq!(read(away, &memory, true, &[left(stdio())]).await.0, None);
        assert_eq!(read(there(), &memory, true, &[left(stdio())]).await.0, Some(Some(200)));
    }
}
