//! Clients on the last releases before revisions. What they are made of has other names in each.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Client, Failure, Heard, http, introduction, of};

/// A client on this release, which says that it speaks this revision, whose user has these methods besides.
macro_rules! client {
    ($sdk:ident, $revision:literal, $sampling:ident, $lacks:expr, { $($method:item)* }) => {
        use $sdk::model::*;
        use $sdk::service::{PeerRequestOptions, RequestContext, RunningService};
        use $sdk::{ClientHandler, RoleClient, ServiceExt as _};

        use super::*;

        #[derive(Clone)]
        pub(in super::super) struct User(Arc<Heard>);

        impl ClientHandler for User {
            fn get_info(&self) -> ClientInfo {
                of(introduction($revision))
            }

            async fn create_message(
                &self,
                _: $sampling,
                _: RequestContext<RoleClient>,
            ) -> Result<CreateMessageResult, ErrorData> {
                Ok(of(self.0.sampled()))
            }

            $($method)*
        }

        impl Client for RunningService<RoleClient, User> {
            const LACKS: &[&str] = &$lacks;

            async fn tools(&self) -> Result<Vec<String>, Failure> {
                Ok(self.list_all_tools().await?.into_iter().map(|tool| tool.name.into_owned()).collect())
            }

            async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Failure> {
                let params = of(json!({"name": tool, "arguments": arguments}));
                Ok(serde_json::to_value(self.call_tool(params).await?)?)
            }

            async fn give_up(&self, tool: &str, then: impl Future<Output = ()>) -> Result<bool, Failure> {
                let params = json!({"name": tool, "arguments": {}});
                let request = of(json!({"method": "tools/call", "params": params}));
                let mut call = self.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
                tokio::select! {
                    // A step comes before the answer, and is looked for first.
                    biased;
                    () = then => {}
                    _ = &mut call.rx => return Ok(false),
                }
                // The first releases say of each notification that was sent that they are disconnected.
                let _ = call.cancel(Some("nobody waits for it".to_owned())).await;
                Ok(true)
            }

            async fn read(&self, uri: &str) -> Result<Value, Failure> {
                Ok(serde_json::to_value(self.read_resource(of(json!({"uri": uri}))).await?)?)
            }

            async fn prompt(&self, name: &str) -> Result<Value, Failure> {
                Ok(serde_json::to_value(self.get_prompt(of(json!({"name": name}))).await?)?)
            }

            async fn close(self) {
                let _ = self.cancel().await;
            }
        }
    };
}

pub(super) mod before_2026_07_28 {
    #![expect(deprecated, reason = "what later revisions advise against is what some servers ask")]

    use rmcp_2::service::NotificationContext;
    use rmcp_2::transport::streamable_http_client::StreamableHttpClientTransportConfig;
    use rmcp_2::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};

    client!(rmcp_2, "2025-11-25", CreateMessageRequestParams, [], {
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
    });

    pub(in super::super) async fn connect(
        url: &str,
        socket: &str,
        heard: Arc<Heard>,
    ) -> Result<RunningService<RoleClient, User>, Failure> {
        let http = UnixSocketHttpClient::new(socket, url);
        let config = StreamableHttpClientTransportConfig::with_uri(url);
        Ok(User(heard).serve(StreamableHttpClientTransport::with_client(http, config)).await?)
    }
}

pub(super) mod before_2025_11_25 {
    use futures::stream::BoxStream;
    use rmcp_0_9::service::NotificationContext;
    use rmcp_0_9::transport::StreamableHttpClientTransport;
    use rmcp_0_9::transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
        StreamableHttpPostResponse,
    };
    use sse_stream::Sse;

    client!(rmcp_0_9, "2025-06-18", CreateMessageRequestParam, [], {
        async fn create_elicitation(
            &self,
            _: CreateElicitationRequestParam,
            _: RequestContext<RoleClient>,
        ) -> Result<CreateElicitationResult, ErrorData> {
            Ok(of(self.0.elicited()))
        }

        async fn on_progress(&self, _: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
            self.0.step();
        }
    });

    pub(in super::super) async fn connect(
        url: &str,
        heard: Arc<Heard>,
    ) -> Result<RunningService<RoleClient, User>, Failure> {
        let config = StreamableHttpClientTransportConfig::with_uri(url);
        Ok(User(heard).serve(StreamableHttpClientTransport::with_client(Http, config)).await?)
    }

    /// What the release knows of HTTP is in a trait, whose one implementation brings a TLS of its own.
    #[derive(Clone)]
    struct Http;

    type Failed = StreamableHttpError<io::Error>;

    impl StreamableHttpClient for Http {
        type Error = io::Error;

        async fn post_message(
            &self,
            uri: Arc<str>,
            message: ClientJsonRpcMessage,
            session: Option<Arc<str>>,
            _: Option<String>,
        ) -> Result<StreamableHttpPostResponse, Failed> {
            let body = serde_json::to_string(&message)?;
            let answer = http::send("POST", &uri, &[("mcp-session-id", session.as_deref())], body).await?;
            Ok(match answer.body {
                http::Body::Nothing => StreamableHttpPostResponse::Accepted,
                http::Body::Json(json) => {
                    StreamableHttpPostResponse::Json(serde_json::from_slice(&json)?, answer.session)
                }
                http::Body::Events(events) => StreamableHttpPostResponse::Sse(events, answer.session),
            })
        }

        async fn delete_session(
            &self,
            uri: Arc<str>,
            session: Arc<str>,
            _: Option<String>,
        ) -> Result<(), Failed> {
            http::send("DELETE", &uri, &[("mcp-session-id", Some(&session))], String::new()).await?;
            Ok(())
        }

        async fn get_stream(
            &self,
            uri: Arc<str>,
            session: Arc<str>,
            last: Option<String>,
            _: Option<String>,
        ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failed> {
            let headers = [("mcp-session-id", Some(&*session)), ("last-event-id", last.as_deref())];
            match http::send("GET", &uri, &headers, String::new()).await?.body {
                http::Body::Events(events) => Ok(events),
                _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
            }
        }
    }
}

pub(super) mod before_2025_06_18 {
    use futures::StreamExt as _;
    use rmcp_0_1::Peer;

    client!(rmcp_0_1, "2024-11-05", CreateMessageRequestParam, ["progress", "elicitation"], {
        fn get_peer(&self) -> Option<Peer<RoleClient>> {
            None
        }

        fn set_peer(&mut self, _: Peer<RoleClient>) {}
    });

    /// Over HTTP+SSE: what the release knows of it brings a TLS of its own, so here it only says and hears messages.
    pub(in super::super) async fn connect(
        url: &str,
        heard: Arc<Heard>,
    ) -> Result<RunningService<RoleClient, User>, Failure> {
        let origin = url.strip_suffix("/mcp").expect("a path");
        let answer = http::send("GET", &format!("{origin}/sse"), &[], String::new()).await?;
        let http::Body::Events(mut events) = answer.body else { return Err("no events".into()) };
        let first = events.next().await.ok_or("no event")??;
        let endpoint = format!("{origin}{}", first.data.ok_or("no endpoint")?);
        let heard_messages =
            events.filter_map(|event| async { serde_json::from_str(&event.ok()?.data?).ok() });
        let said_messages =
            futures::sink::unfold(endpoint, |endpoint, message: ClientJsonRpcMessage| async move {
                http::send("POST", &endpoint, &[], serde_json::to_string(&message)?).await?;
                io::Result::Ok(endpoint)
            });
        Ok(User(heard).serve((said_messages, heard_messages)).await?)
    }
}
