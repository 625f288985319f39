//! Questions to other replicas. They are asked on the control thread, whoever wants to know: they are few, and the
//! connections for them are shared.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use longshore_mcp::headers::JSON;
use longshore_sessions::bounds::{HEARTBEAT, MAX_MEMBERS, QUESTION};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::connection::{Connections, Failure};
use super::listen::MAX_MESSAGE;
use super::tls::Tls;
use super::wire;
use crate::shared::Shared;

/// How many questions wait. Requests that look for their session ask every replica once.
pub(super) const QUEUE: usize = 1024;
/// How many are under way: one for each replica, for some requests at once.
const UNDER_WAY: usize = 4 * MAX_MEMBERS;

/// A question on its way, and who waits for the answer.
pub(super) struct Ask {
    pub(super) to: IpAddr,
    pub(super) text: Bytes,
    pub(super) reply: oneshot::Sender<Result<Bytes, Failure>>,
}

/// Asks what the others of this process want to know. Ends when nobody is left who could.
pub(super) async fn serve(shared: Arc<Shared>, mut asks: mpsc::Receiver<Ask>) {
    let connections = Rc::new(Connections::default());
    let mut under_way = JoinSet::new();
    let mut tidy = interval(HEARTBEAT);
    loop {
        tokio::select! {
            // Questions have an end of their own.
            _ = tidy.tick() => connections.tidy(|_| true),
            Some(_) = under_way.join_next() => {}
            ask = asks.recv(), if under_way.len() < UNDER_WAY => {
                let Some(Ask { to, text, mut reply }) = ask else { return };
                let tls = shared.config().as_ref().and_then(|snapshot| Some(snapshot.replicas.as_ref()?.tls.clone()));
                let to = SocketAddr::new(to, shared.peers.port());
                let connections = connections.clone();
                under_way.spawn_local(async move {
                    let answer = async {
                        // Without keys nobody can be asked, and nothing is known of them.
                        let tls = tls.ok_or(Failure::TimedOut)?;
                        timeout(QUESTION, ask_whoever(&connections, &tls, to, text)).await.unwrap_or(Err(Failure::TimedOut))
                    };
                    tokio::select! {
                        answer = answer => {
                            // Who asked may have gone just now.
                            let _ = reply.send(answer);
                        }
                        () = reply.closed() => {}
                    }
                });
            }
        }
    }
}

/// Asks, and once more if the connection broke: to ask twice does no harm, and a process that has just ended refuses
/// the second time.
async fn ask_whoever(
    connections: &Connections,
    tls: &Tls,
    to: SocketAddr,
    text: Bytes,
) -> Result<Bytes, Failure> {
    match ask_once(connections, tls, to, text.clone()).await {
        Err(Failure::Broken) => ask_once(connections, tls, to, text).await,
        answer => answer,
    }
}

async fn ask_once(
    connections: &Connections,
    tls: &Tls,
    to: SocketAddr,
    text: Bytes,
) -> Result<Bytes, Failure> {
    let mut request = Request::new(Full::new(text));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(wire::ASK);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static(wire::NAME));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let (response, lease) =
        connections.send(tls, to, request).await.map_err(|unanswered| unanswered.failure)?;
    let (head, body) = response.into_parts();
    let text = Limited::new(body, MAX_MESSAGE).collect().await.map_err(|_| Failure::Broken)?.to_bytes();
    lease.give_back();
    if head.status == StatusCode::OK { Ok(text) } else { Err(Failure::Broken) }
}
