//! A plain HTTP request, for the catalog's API.

use std::net::SocketAddr;

use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// Nobody takes the connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// The exchange broke off.
    #[error("the exchange broke off: {0}")]
    Broken(#[from] hyper::Error),
    /// The path or the key is none.
    #[error("this is no request: {0}")]
    Request(#[from] http::Error),
}

/// Asks for a path, with a key if one is given. Returns the status and the JSON of the answer.
pub async fn get(address: SocketAddr, path: &str, key: Option<&str>) -> Result<(u16, Value), RestError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(path).header("host", address.to_string());
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    };
    // The connection ends when the exchange has; where it breaks, the exchange tells.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}
