//! How much of what servers say is kept. All lengths are in bytes.

/// A tool's name. Longer ones are not listed: nobody could say which tool is meant.
pub(crate) const NAME: usize = 256;
/// A title, a version, an owner: one line.
pub(crate) const LINE: usize = 256;
/// A description or instructions.
pub(crate) const DESCRIPTION: usize = 4096;
/// What a server's owner writes, whose manifest has bounds of its own, in characters: none of it is cut, whatever its
/// letters. A title, an owner, the title of a link.
pub(crate) const OWN_LINE: usize = 1024;
/// The owner's description.
pub(crate) const OWN_TEXT: usize = 8192;
/// A message about a server's health.
pub(crate) const MESSAGE: usize = 1024;
/// A schema, in the server's spelling. A longer one is left out, and the entry says so.
pub(crate) const SCHEMA: usize = 64 << 10;
/// How many parameters a tool is found by and listed with.
pub(crate) const PARAMETERS: usize = 64;
/// How many tools of one server are listed.
pub(crate) const TOOLS: usize = 10_000;
/// How much text all tools of one server have. When it is spent, schemas are left out, and then tools.
pub(crate) const SERVER_TEXT: usize = 8 << 20;
/// How much text all tools of all servers have. Of this and of their number half is for one namespace. Where all lists are
/// replaced at once three times as much is in memory, and a fifth of it beside where a server has more than three, which the
/// container's limit leaves room for.
pub(crate) const TEXT: usize = 96 << 20;
/// How many tools of all servers are listed.
pub(crate) const ALL_TOOLS: usize = 100_000;
/// How long the entries of one page are together, unless it is a single one.
pub(crate) const PAGE: usize = 256 << 10;
