//! The Model Context Protocol as pure code.
