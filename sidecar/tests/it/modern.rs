//! Requests that stand alone, in front of a server of their own revision.

mod calls;
mod listening;
mod lists;
mod marks;
mod mistakes;
mod slow;

use crate::harness::scripted::answered;

/// A result as a server of that revision gives it.
const DONE: &str = r#"{"resultType":"complete","content":[ ],"x":1.0}"#;
