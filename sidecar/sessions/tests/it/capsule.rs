//! Sealed ids, from outside.
