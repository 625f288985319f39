//! The protocol from outside.
