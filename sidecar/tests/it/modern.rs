//! Requests that stand alone, in front of a server of their own revision.

mod calls;
mod listening;
mod lists;
mod marks;
mod mistakes;
mod slow;

use crate::harness::{Request, scripted};

/// A result as a server of that revision gives it.
const DONE: &str = r#"{"resultType":"complete","content":[ ],"x":1.0}"#;

/// The answer of a server with this result.
fn answered(request: &Request, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, scripted::message(request)["id"])
}
