//! The catalog as the chart installs it, asked as somebody in the cluster asks it.

use k8s_openapi::api::core::v1::Service;
use kube::Api;
use longshore_e2e::longshore;
use longshore_e2e::rest;
use longshore_e2e::testing::{Namespace, eventually};
use serde_json::Value;

use crate::STAGE;
use crate::server::{becomes, go_server};

#[test]
fn a_server_is_in_the_catalog_with_its_tools_until_it_goes() {
    STAGE.with_namespace(async |namespace| {
        namespace.apply(&go_server("listed", &[])).await;
        becomes(namespace, "listed", ("Published", "True", "Published")).await;
        becomes(namespace, "listed", ("Ready", "True", "Ready")).await;
        let server = format!("/v1/servers/{}/listed", namespace.name());
        // The server and its pods are watched apart.
        let url = format!("http://listed.{}.svc.cluster.local/mcp", namespace.name());
        let is_up = |server: &Value| {
            server["health"]["state"] == "Up" && server["tools"] != 0 && server["url"] == url.as_str()
        };
        until(namespace, &server, is_up).await;
        let tools = format!("/v1/tools?namespace={}&q=add", namespace.name());
        let found = until(namespace, &tools, |list| list["total"] != 0).await;
        assert_eq!(found["items"][0]["name"], "add", "{found}");
        let tool = format!("/v1/tools/{}/listed/add", namespace.name());
        let shown = until(namespace, &tool, |tool| tool["inputSchema"].is_object()).await;
        assert_eq!(shown["server"]["auth"], serde_json::json!([]));

        // Its pod goes and cannot come back.
        namespace
            .apply(&go_server("listed", &[]).replace("localhost/go-server:", "localhost/no-such-server:"))
            .await;
        becomes(namespace, "listed", ("Ready", "True", "ServingPrevious")).await;
        // The version before would come back in another pod.
        namespace.kubectl(&["delete", "replicasets", "--all"]).await.expect("replica sets can be deleted");
        let down = until(namespace, &server, |server| server["health"]["state"] == "Down").await;
        assert!(down["health"]["since"].is_string() && down["tools"] != 0, "{down}");
        namespace.kubectl(&["delete", "lmcp", "listed"]).await.expect("kubectl delete works");
        until(namespace, "/v1/servers", |list| {
            !list["items"].as_array().is_some_and(|items| items.iter().any(|it| it["name"] == "listed"))
        })
        .await;
    });
}

/// Asks through the catalog's Service until the answer is as it should be.
async fn until(namespace: &Namespace<'_>, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let services: Api<Service> = Api::namespaced(namespace.client(), longshore::NAMESPACE);
    let service = services.get("longshore-catalog").await.expect("the catalog has a Service");
    let address = service.spec.and_then(|spec| spec.cluster_ip).expect("the Service has an address");
    let address = std::net::SocketAddr::new(address.parse().expect("it is one"), 80);
    eventually(&format!("{path} is as it should be"), async || match rest::get(address, path, None).await {
        Ok((200, answer)) if is_so(&answer) => Ok(answer),
        Ok((status, answer)) => Err(format!("{status} {answer}")),
        Err(error) => Err(error.to_string()),
    })
    .await
}
