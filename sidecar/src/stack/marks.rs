//! What only the definition of a tool says of its calls: the arguments that it marks with `x-mcp-header`, which are repeated
//! as headers since 2026-07-28, and whether calls have to be tasks in 2025-11-25.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use longshore_mcp::headers::argument::{self, MAX_OF_SERVER, Marked};
use longshore_mcp::listing;
use longshore_mcp::method::List;
use longshore_mcp::object;
use longshore_mcp::translate::tools::has_to_be_task;

use crate::monitor::{Lists, View};

/// What the tools' definitions say, read once for each list that the server gave.
#[derive(Default)]
pub(crate) struct Marks(RefCell<Option<Read>>);

struct Read {
    from: Arc<Lists>,
    tools: Rc<Tools>,
}

/// The tools of which there is something to be said.
pub(crate) struct Tools {
    /// The marked arguments of every tool that has any.
    pub(crate) marked: HashMap<String, Vec<Marked>>,
    /// Those that can be called as tasks only.
    pub(crate) tasks: HashSet<String>,
}

impl Marks {
    /// Those of the list that is known now.
    pub(crate) fn of(&self, view: &View) -> Rc<Tools> {
        let mut read = self.0.borrow_mut();
        if let Some(read) = read.as_ref().filter(|read| Arc::ptr_eq(&read.from, &view.lists)) {
            return read.tools.clone();
        }
        let listed = view.lists.tools.iter().map(|tool| &**tool);
        let tasks = listed.clone().filter(|tool| has_to_be_task(tool));
        let tasks = tasks.filter_map(|tool| listing::name(tool, List::Tools)).collect();
        let mut size = 0;
        let has_room = |(_, marked): &(String, Vec<Marked>)| {
            size += Marked::size(marked);
            size <= MAX_OF_SERVER
        };
        let marked = listed.filter_map(of_tool).take_while(has_room).collect();
        let tools = Rc::new(Tools { marked, tasks });
        *read = Some(Read { from: view.lists.clone(), tools: tools.clone() });
        tools
    }
}

/// A tool whose marks cannot be used has none: no client that follows the protocol calls it over HTTP, and the server
/// has the last word on who does.
fn of_tool(tool: &str) -> Option<(String, Vec<Marked>)> {
    let marked = argument::marked(object::at(tool, &["inputSchema"])?).ok()?;
    if marked.is_empty() { None } else { Some((listing::name(tool, List::Tools)?, marked)) }
}
