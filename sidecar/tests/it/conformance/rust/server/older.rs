//! The same on the last releases before revisions. What they are made of has other names in each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{PROMPT, TEXT, TOOLS, form, schema};
use crate::harness::own;

#[test]
#[ignore = "a server, which another test runs"]
fn serve() {
    let told = own::told();
    let [revision, _, port] = &told[..] else { panic!("{told:?}") };
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match revision.as_str() {
            "2025-11-25" => before_2026_07_28::serve(address).await,
            "2025-06-18" => before_2025_11_25::serve(address).await,
            _ => before_2025_06_18::serve(address).await,
        }
    });
}

/// What stands in a message, in the words of a release.
fn of<T: serde::de::DeserializeOwned>(message: Value) -> T {
    serde_json::from_value(message).expect("the release knows it")
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// What is served on this release, which says that it speaks this revision. The names are those of the parameters of
/// `tools/call`, `resources/read`, `prompts/get` and of lists. `ELICITS`, `elicit` and `step` stand beside it.
macro_rules! fixtures {
    ($sdk:ident, $revision:literal, $call:ty, $read:ty, $get:ty, $page:ty) => {
        use $sdk::model::*;
        use $sdk::service::RequestContext;
        use $sdk::{RoleServer, ServerHandler};

        use super::*;

        type Context = RequestContext<RoleServer>;
        type Answer<T> = Result<T, ErrorData>;

        #[derive(Clone)]
        struct Fixtures;

        fn failed(error: impl std::fmt::Display) -> ErrorData {
            ErrorData::internal_error(error.to_string(), None)
        }

        impl ServerHandler for Fixtures {
            fn get_info(&self) -> ServerInfo {
                let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}});
                let info = json!({"name": "rust", "version": "1"});
                of(json!({"protocolVersion": $revision, "capabilities": capabilities, "serverInfo": info}))
            }

            async fn list_tools(&self, _: $page, _: Context) -> Answer<ListToolsResult> {
                let tools = TOOLS.iter().filter(|(name, _)| ELICITS || *name != "test_elicitation");
                let tools = tools.map(|(name, argument)| {
                    let schema = schema(*argument);
                    json!({"name": name, "description": format!("Tests {name}"), "inputSchema": schema})
                });
                Ok(of(json!({"tools": tools.collect::<Vec<_>>()})))
            }

            async fn call_tool(&self, request: $call, context: Context) -> Answer<CallToolResult> {
                let argument = |name: &str| request.arguments.as_ref().and_then(|all| all.get(name)).cloned();
                match request.name.as_ref() {
                    "test_simple_text" => Ok(of(text("This is a simple text response for testing."))),
                    "test_tool_with_progress" => {
                        for progress in [0.0, 50.0, 100.0] {
                            step(&context, progress).await?;
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                        Ok(of(text("done")))
                    }
                    "test_elicitation" => {
                        let question = json!({"message": argument("message"), "requestedSchema": form()});
                        elicit(&context, question).await?;
                        Ok(of(text("It was answered.")))
                    }
                    "test_sampling" => {
                        let content = json!({"type": "text", "text": argument("prompt")});
                        let messages = json!([{"role": "user", "content": content}]);
                        let question = of(json!({"messages": messages, "maxTokens": 100}));
                        context.peer.create_message(question).await.map_err(failed)?;
                        Ok(of(text("It was answered.")))
                    }
                    other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
                }
            }

            async fn list_resources(&self, _: $page, _: Context) -> Answer<ListResourcesResult> {
                Ok(of(json!({"resources": [{"uri": TEXT, "name": "text"}]})))
            }

            async fn read_resource(&self, request: $read, _: Context) -> Answer<ReadResourceResult> {
                if request.uri != TEXT {
                    return Err(ErrorData::resource_not_found("there is no such resource", None));
                }
                let text = "This is the content of the resource.";
                Ok(of(json!({"contents": [{"uri": TEXT, "text": text}]})))
            }

            async fn list_prompts(&self, _: $page, _: Context) -> Answer<ListPromptsResult> {
                Ok(of(json!({"prompts": [{"name": PROMPT, "description": "Tests prompts"}]})))
            }

            async fn get_prompt(&self, request: $get, _: Context) -> Answer<GetPromptResult> {
                if request.name != PROMPT {
                    return Err(ErrorData::invalid_params("there is no such prompt", None));
                }
                let content = json!({"type": "text", "text": "This is a simple prompt for testing."});
                Ok(of(json!({"messages": [{"role": "user", "content": content}]})))
            }
        }
    };
}

/// What the releases with Streamable HTTP have in common besides.
macro_rules! over_streamable_http {
    ($sdk:ident) => {
        use $sdk::transport::streamable_http_server::session::local::LocalSessionManager;
        use $sdk::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

        const ELICITS: bool = true;

        async fn step(context: &Context, progress: f64) -> Answer<()> {
            let Some(token) = context.meta.get_progress_token() else { return Ok(()) };
            let step = of(json!({"progressToken": token, "progress": progress, "total": 100.0}));
            context.peer.notify_progress(step).await.map_err(failed)
        }

        async fn elicit(context: &Context, question: Value) -> Answer<()> {
            let request = of(json!({"method": "elicitation/create", "params": question}));
            context.peer.send_request(request).await.map_err(failed)?;
            Ok(())
        }

        pub(super) async fn serve(address: SocketAddr) {
            let sessions = Arc::new(LocalSessionManager::default());
            let config = StreamableHttpServerConfig::default();
            let service = StreamableHttpService::new(|| Ok(Fixtures), sessions, config);
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
        }
    };
}

mod before_2026_07_28 {
    #![expect(deprecated, reason = "what later revisions advise against is what clients of older ones know")]

    fixtures!(
        rmcp_2,
        "2025-11-25",
        CallToolRequestParams,
        ReadResourceRequestParams,
        GetPromptRequestParams,
        Option<PaginatedRequestParams>
    );
    over_streamable_http!(rmcp_2);
}

mod before_2025_11_25 {
    fixtures!(
        rmcp_0_9,
        "2025-06-18",
        CallToolRequestParam,
        ReadResourceRequestParam,
        GetPromptRequestParam,
        Option<PaginatedRequestParam>
    );
    over_streamable_http!(rmcp_0_9);
}

/// Over HTTP+SSE. A call's progress token does not reach what is called.
mod before_2025_06_18 {
    fixtures!(
        rmcp_0_1,
        "2024-11-05",
        CallToolRequestParam,
        ReadResourceRequestParam,
        GetPromptRequestParam,
        PaginatedRequestParam
    );

    const ELICITS: bool = false;

    async fn step(_: &Context, _: f64) -> Answer<()> {
        Ok(())
    }

    async fn elicit(_: &Context, _: Value) -> Answer<()> {
        Err(failed("the release cannot ask"))
    }

    pub(super) async fn serve(address: SocketAddr) {
        let server = rmcp_0_1::transport::SseServer::serve(address).await.unwrap();
        server.with_service(|| Fixtures).cancelled().await;
    }
}
