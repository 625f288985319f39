//! A small MCP server inside of this program: for first steps, and to see whether a client or a sidecar works at all.
//!
//! It is a server like any other, on the official SDK. `tools` is what it can do, `content` what there is to read.

mod content;
mod http;
mod tools;

use std::net::SocketAddr;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::{QuitReason, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use thiserror::Error;

pub(crate) use http::HttpError;

/// What the server calls itself.
pub(crate) const NAME: &str = "longshore-example";

/// The server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Example;

/// Why the server over stdin and stdout ended.
#[derive(Debug, Error)]
pub(crate) enum StdioError {
    /// The client's first messages were not those of a client.
    #[error("no MCP client speaks at the other end of stdin")]
    Handshake(#[from] Box<rmcp::service::ServerInitializeError>),
    /// A bug.
    #[error("the server panicked")]
    Panicked(#[from] tokio::task::JoinError),
}

/// Serves one client over stdin and stdout, until that client closes stdin.
pub(crate) async fn over_stdio() -> Result<(), StdioError> {
    let running = match Example.serve(rmcp::transport::io::stdio_pipes()).await {
        Ok(running) => running,
        // Whoever starts a program to see whether it starts is no error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(Box::new(error).into()),
    };
    match running.waiting().await? {
        QuitReason::JoinError(error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Serves Streamable HTTP at `/mcp` until `stop` is done; `started` is told where, once it listens.
pub(crate) async fn over_http(
    address: SocketAddr,
    started: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    http::serve(address, started, stop).await
}

impl ServerHandler for Example {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts().build();
        let implementation = Implementation::new(NAME, env!("CARGO_PKG_VERSION"))
            .with_title("Longshore's example server")
            .with_description("Tools to try a client with");
        ServerConfig::new(capabilities)
            .with_server_info(implementation)
            .with_instructions("An example. Call `echo` to see that everything works.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(request, &context).await.map(Into::into)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(content::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(content::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        content::read(&request.uri).map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(content::prompts()))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        content::prompt(&request).map(Into::into)
    }
}
