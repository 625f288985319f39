//! What comes of a body that is streamed to a client.

mod under_way;

use bytes::Bytes;
use thiserror::Error;

pub(crate) use under_way::UnderWay;

/// A piece of a streamed body, or the news that the rest will not come.
pub(crate) type Piece = Result<Bytes, BrokenOff>;

/// The server broke off in the middle of a body that cannot be ended properly.
#[derive(Debug, Error)]
#[error("the MCP server broke off")]
pub(crate) struct BrokenOff;
