//! Serves what clients try, over Streamable HTTP or stdio: 2026-07-28 alone, or the revisions before it, with sessions.

#![expect(deprecated, reason = "what later revisions advise against is what clients of older ones know")]

mod older;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateMessageRequest,
    CreateMessageRequestParams, ElicitRequest, ElicitRequestParams, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetPromptResult, Implementation, InputRequest, InputRequests, InputRequiredResult,
    ListPromptsResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, Prompt, PromptMessage, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, Role, SamplingMessage,
    ServerCapabilities, ServerConfig, ServerRequest, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use serde_json::{Value, json};

use crate::harness::own;

/// The tools, and the argument that each of them takes.
const TOOLS: [(&str, Option<&str>); 4] = [
    ("test_simple_text", None),
    ("test_tool_with_progress", None),
    ("test_elicitation", Some("message")),
    ("test_sampling", Some("prompt")),
];
const TEXT: &str = "test://static-text";
const PROMPT: &str = "test_simple_prompt";
/// What an answer is called that a client of 2026-07-28 brings with its next request.
const ANSWER: &str = "answer";

#[test]
#[ignore = "a server, which another test runs"]
fn serve() {
    let told = own::told();
    let [revision, transport, port] = &told[..] else { panic!("{told:?}") };
    let (is_modern, port) = (revision == "2026-07-28", port.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if transport == "stdio" {
            // It ends with its first message where that is all that it is told.
            if let Ok(served) = (Fixtures { is_modern }).serve(rmcp::transport::stdio()).await {
                served.waiting().await.unwrap();
            }
            return;
        }
        let sessions = Arc::new(LocalSessionManager::default());
        let config = StreamableHttpServerConfig::default();
        let service = StreamableHttpService::new(move || Ok(Fixtures { is_modern }), sessions, config);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
    });
}

#[derive(Clone)]
struct Fixtures {
    is_modern: bool,
}

/// What a tool takes.
fn schema(argument: Option<&str>) -> Value {
    let mut schema = json!({"type": "object"});
    if let Some(argument) = argument {
        schema["properties"] = json!({argument: {"type": "string"}});
    }
    schema
}

/// What a user is asked to fill in.
fn form() -> Value {
    json!({
        "type": "object",
        "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
        "required": ["username"],
    })
}

fn text(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

impl Fixtures {
    /// Asks the client, in the way that its revision has.
    async fn ask(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        question: InputRequest,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_answered =
            || request.input_responses.as_ref().is_some_and(|answers| answers.contains_key(ANSWER));
        if self.is_modern && !is_answered() {
            let questions: InputRequests = [(ANSWER.to_owned(), question)].into();
            return Ok(InputRequiredResult::from_input_requests(questions).into());
        }
        if !self.is_modern {
            let question = match question {
                InputRequest::CreateMessage(question) => ServerRequest::CreateMessageRequest(question),
                InputRequest::Elicitation(question) => ServerRequest::ElicitRequest(question),
                other => return Err(failed(format!("nothing here asks {other:?}"))),
            };
            context.peer.send_request(question).await.map_err(failed)?;
        }
        Ok(text("It was answered."))
    }
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("rust", "1"))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(if self.is_modern {
            &[ProtocolVersion::V_2026_07_28]
        } else {
            ProtocolVersion::known_up_to(&ProtocolVersion::V_2025_11_25)
        })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.map(|(name, argument)| {
            let Value::Object(schema) = schema(argument) else { unreachable!("an object") };
            Tool::new(name, format!("Tests {name}"), schema)
        });
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let given = request.arguments.as_ref().and_then(|arguments| arguments.get(name)?.as_str());
            given.unwrap_or_default().to_owned()
        };
        match request.name.as_ref() {
            "test_simple_text" => Ok(text("This is a simple text response for testing.")),
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let step = ProgressNotificationParam::new(token, progress).with_total(100.0);
                        context.peer.notify_progress(step).await.map_err(failed)?;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(text("done"))
            }
            "test_elicitation" => {
                let params = ElicitRequestParams::FormElicitationParams {
                    meta: None,
                    message: argument("message"),
                    requested_schema: serde_json::from_value(form()).map_err(failed)?,
                };
                self.ask(&request, &context, InputRequest::Elicitation(ElicitRequest::new(params))).await
            }
            "test_sampling" => {
                let message = SamplingMessage::user_text(argument("prompt"));
                let question = CreateMessageRequest::new(CreateMessageRequestParams::new(vec![message], 100));
                self.ask(&request, &context, InputRequest::CreateMessage(question)).await
            }
            other => Err(ErrorData::invalid_params(format!("there is no tool {other}"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let text = Resource::new(TEXT, "text").with_mime_type("text/plain");
        Ok(ListResourcesResult::with_all_items(vec![text]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != TEXT {
            return Err(ErrorData::resource_not_found("there is no such resource", None));
        }
        let text = ResourceContents::text("This is the content of the resource.", TEXT);
        Ok(ReadResourceResult::new(vec![text]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new(PROMPT, Some("Tests prompts"), None)]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != PROMPT {
            return Err(ErrorData::invalid_params("there is no such prompt", None));
        }
        let message = PromptMessage::new_text(Role::User, "This is a simple prompt for testing.");
        Ok(GetPromptResult::new(vec![message]).into())
    }
}
