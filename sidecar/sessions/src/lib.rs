//! Sessions without a store, as pure code: no I/O, no clock, no randomness of its own. Time and random bytes are
//! arguments, so that a simulation can try what a cluster shows once a year.
//!
//! 1. [`keys`] and [`capsule`]: a session id is a sealed capsule that says whose session it is and where it lives;
//! 2. [`membership`]: which replicas there are, and who of them is alive;
//! 3. [`replica`]: what one replica holds, has ended, and remembers of others, and what it answers to their questions;
//! 4. [`routing`]: who serves a request of a session. The rules stand there and nowhere else;
//! 5. [`message`]: what replicas say to each other;
//! 6. [`request_state`]: what the client of a call without a session brings back when the call waits for it;
//! 7. [`task`]: the id by which a client knows what goes on after its request is answered;
//! 8. [`note`]: what a client has set, as it is written down for the process after this one;
//! 9. [`tombstones`] and [`rendezvous`]: the two small tools that the rules need.

pub mod bounds;
pub mod capsule;
pub mod identity;
pub mod keys;
pub mod membership;
pub mod message;
pub mod note;
pub mod rendezvous;
pub mod replica;
pub mod request_state;
pub mod routing;
pub mod task;
pub mod tombstones;

pub use capsule::{Capsule, ServerSession};
pub use identity::{Moment, Peer, PodId, SessionKey};
pub use keys::Keyring;
pub use membership::{State, View};
pub use message::{Answer, Introduction, Message, Question};
pub use replica::Replica;
pub use request_state::RequestState;
pub use routing::{Event, Route, Step};
pub use task::TaskId;
