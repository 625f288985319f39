//! What other parts of the repository say of the operator, held to what it says itself.

mod chart;
mod documents;
