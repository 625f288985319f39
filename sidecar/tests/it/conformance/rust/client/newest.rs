//! A client on the newest release, which speaks 2026-07-28, or older revisions as it does by default.

#![expect(deprecated, reason = "what later revisions advise against is what some servers ask")]

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequestParams, ElicitResult, ErrorData, GetPromptRequestParams, Implementation,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceExt};
use serde_json::Value;

use super::{Client, Failure, Heard, of};

pub(super) struct User(Arc<Heard>);

impl ClientHandler for User {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_sampling().enable_elicitation().build();
        ClientConfig::new(capabilities, Implementation::new("rust", "1"))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(of(self.0.sampled()))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(of(self.0.elicited()))
    }

    async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.step();
    }
}

pub(super) async fn connect(
    mode: &str,
    url: &str,
    socket: &str,
    heard: Arc<Heard>,
) -> Result<RunningService<RoleClient, User>, Failure> {
    let http = UnixSocketHttpClient::new(socket, url);
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let transport = StreamableHttpClientTransport::with_client(http, config);
    Ok(match mode {
        "rust-modern" => {
            let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
            let mode = ClientLifecycleMode::Discover { preferred_versions };
            User(heard).serve_with_lifecycle(transport, mode).await?
        }
        _ => User(heard).serve(transport).await?,
    })
}

fn tool(name: &str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("no arguments: {arguments}") };
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

impl Client for RunningService<RoleClient, User> {
    async fn tools(&self) -> Result<Vec<String>, Failure> {
        Ok(self.list_all_tools().await?.into_iter().map(|tool| tool.name.into_owned()).collect())
    }

    async fn call(&self, name: &str, arguments: Value) -> Result<Value, Failure> {
        Ok(serde_json::to_value(self.call_tool(tool(name, arguments)).await?)?)
    }

    /// A call that nobody waits for any more is given up.
    async fn give_up(&self, name: &str, then: impl Future<Output = ()>) -> Result<bool, Failure> {
        tokio::select! {
            // A step comes before the answer, and is looked for first.
            biased;
            () = then => Ok(true),
            _ = self.call_tool(tool(name, Value::Object(serde_json::Map::new()))) => Ok(false),
        }
    }

    async fn read(&self, uri: &str) -> Result<Value, Failure> {
        Ok(serde_json::to_value(self.read_resource(ReadResourceRequestParams::new(uri)).await?)?)
    }

    async fn prompt(&self, name: &str) -> Result<Value, Failure> {
        Ok(serde_json::to_value(self.get_prompt(GetPromptRequestParams::new(name)).await?)?)
    }

    async fn close(self) {
        let _ = self.cancel().await;
    }
}
