//! The arguments of tools that are repeated as headers since 2026-07-28: which they are only the tool's own schema
//! says.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::headers::argument::{self, Marked};
use serde_json::Value;

use crate::monitor::{Lists, View};

/// The marked arguments of every tool that has any, made once for each list that the server gave.
#[derive(Default)]
pub(crate) struct Marks(RefCell<Option<Read>>);

struct Read {
    from: Arc<Lists>,
    tools: Rc<HashMap<String, Vec<Marked>>>,
}

impl Marks {
    /// Those of the list that is known now.
    pub(crate) fn of(&self, view: &View) -> Rc<HashMap<String, Vec<Marked>>> {
        let mut read = self.0.borrow_mut();
        if let Some(read) = read.as_ref().filter(|read| Arc::ptr_eq(&read.from, &view.lists)) {
            return read.tools.clone();
        }
        let tools = Rc::new(view.lists.tools.iter().filter_map(of_tool).collect::<HashMap<_, _>>());
        *read = Some(Read { from: view.lists.clone(), tools: tools.clone() });
        tools
    }
}

/// A tool whose marks cannot be used has none: no client that follows the protocol calls it over HTTP, and the server
/// has the last word on who does.
fn of_tool(tool: &Value) -> Option<(String, Vec<Marked>)> {
    let name = tool.get("name")?.as_str()?;
    let marked = argument::marked(&tool.get("inputSchema")?.to_string()).ok()?;
    (!marked.is_empty()).then(|| (name.to_owned(), marked))
}
