//! Whether the access rules let anybody do anything with a server. Pure.

use longshore_crds::api_keys::ANONYMOUS;
use longshore_crds::mcp_server::access::{Access, AccessRule};
use longshore_sidecar::glob;

use crate::inventory::Summary;

/// So many tools, or principals, are named to whoever wrote a rule that matches none.
const EXAMPLES: usize = 3;

/// Why nobody may call anything, if that is certain: everything is denied by default, and whoever has just written a first
/// manifest may not know. Callers are these principals, where that is known.
pub(super) fn nobody(
    access: &Access,
    principals: Option<&[String]>,
    summary: Option<&Summary>,
) -> Option<String> {
    if access.rules.is_empty() {
        return Some(
            "no rule permits anything to anybody: write one in spec.access.rules, such as {name: all, tools: [\"*\"]}"
                .to_owned(),
        );
    }
    let of_callers = |rule: &&AccessRule| match (&rule.principals, principals) {
        (Some(globs), Some(principals)) => any(globs.iter(), principals),
        (None, _) | (_, None) => true,
    };
    let rules: Vec<&AccessRule> = access.rules.iter().filter(of_callers).collect();
    if rules.is_empty() {
        return principals.and_then(unnamed);
    }
    // What prompts and resources the server has is not known here, nor are its tools where there are very many.
    let Summary { tools, hidden_tools, .. } = summary?;
    if !rules.iter().all(|rule| rule.prompts.is_empty() && rule.resources.is_empty()) {
        return None;
    }
    if tools.count == 0 && *hidden_tools > 0 {
        return Some(match hidden_tools {
            1 => "spec.tools hides its only tool, so none may be called".to_owned(),
            all => format!("spec.tools hides all {all} of its tools, so none may be called"),
        });
    }
    let are_all_known = usize::try_from(tools.count).is_ok_and(|count| count == tools.names.len());
    if !are_all_known
        || tools.names.is_empty()
        || any(rules.iter().flat_map(|rule| &rule.tools), &tools.names)
    {
        return None;
    }
    let whose = if rules.len() < access.rules.len() { " that is for its callers" } else { "" };
    Some(format!(
        "no rule of spec.access.rules{whose} names any of its tools, so none may be called: it has {}",
        examples(&tools.names)
    ))
}

/// Why callers who are these principals may do nothing by rules that are for others.
fn unnamed(principals: &[String]) -> Option<String> {
    match principals {
        [] => None,
        [only] if only == ANONYMOUS => Some(format!(
            "no rule of spec.access.rules is for the principal {ANONYMOUS}, which everybody is by spec.auth.none, so \
             nobody may call anything: name it, or leave principals out"
        )),
        known => Some(format!(
            "no rule of spec.access.rules is for a principal that has a key, so nobody may call anything: those are {}",
            examples(known)
        )),
    }
}

fn examples(names: &[String]) -> String {
    let mut examples = names[..names.len().min(EXAMPLES)].join(", ");
    if names.len() > EXAMPLES {
        examples.push_str(", …");
    }
    examples
}

/// Whether one of the globs matches one of the names, as the sidecar decides. A glob that cannot be read is said to be
/// none elsewhere, and permits nothing.
fn any<'a>(mut globs: impl Iterator<Item = &'a String>, names: &[String]) -> bool {
    globs.any(|glob| {
        names.contains(glob)
            || glob::read(glob).is_ok_and(|glob| {
                let glob = glob.compile_matcher();
                names.iter().any(|name| glob.is_match(name))
            })
    })
}
