//! Whether the access rules let anybody do anything with a server. Pure.

use globset::Glob;
use longshore_crds::mcp_server::access::Access;

use crate::inventory::Summary;

/// So many tools are named to whoever wrote a rule that matches none.
const EXAMPLES: usize = 3;

/// Why nobody may call anything, if that is certain: everything is denied by default, and whoever has just written a first
/// manifest may not know.
pub(super) fn nobody(access: &Access, summary: Option<&Summary>) -> Option<String> {
    if access.rules.is_empty() {
        return Some(
            "no rule permits anything to anybody: write one in spec.access.rules, such as {name: all, tools: [\"*\"]}"
                .to_owned(),
        );
    }
    // What prompts and resources the server has is not known here, nor are its tools where there are very many.
    let tools = &summary?.tools;
    let of_tools_alone = access.rules.iter().all(|rule| rule.prompts.is_empty() && rule.resources.is_empty());
    let are_all_known = usize::try_from(tools.count).is_ok_and(|count| count == tools.names.len());
    if !of_tools_alone || !are_all_known || tools.names.is_empty() {
        return None;
    }
    let mut globs = access.rules.iter().flat_map(|rule| &rule.tools);
    if globs.any(|glob| tools.names.iter().any(|name| matches(glob, name))) {
        return None;
    }
    let mut examples = tools.names[..tools.names.len().min(EXAMPLES)].join(", ");
    if tools.names.len() > EXAMPLES {
        examples.push_str(", …");
    }
    Some(format!(
        "no rule of spec.access.rules names any of its tools, so none may be called: it has {examples}"
    ))
}

/// As the sidecar decides. A glob that cannot be read is said to be none elsewhere, and permits nothing.
fn matches(glob: &str, name: &str) -> bool {
    glob == name || Glob::new(glob).is_ok_and(|glob| glob.compile_matcher().is_match(name))
}
