//! The requirements that pure code can show, by number.

mod incoming;
mod modern;
mod translated;
