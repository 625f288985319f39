//! Requests that stand alone, in front of a server of their own revision.

mod calls;
mod listening;
mod mistakes;
mod slow;

/// A result as a server of that revision gives it.
const DONE: &str = r#"{"resultType":"complete","content":[ ],"x":1.0}"#;
