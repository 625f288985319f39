//! Whether the access rules let anybody do anything with a server. Pure.

use std::collections::HashSet;

use longshore_crds::api_keys::ANONYMOUS;
use longshore_crds::mcp_server::access::{Access, AccessRule};
use longshore_sidecar::glob;

use crate::inventory::Summary;

/// So many tools, or principals, are named to whoever wrote a rule that matches none.
const EXAMPLES: usize = 3;

/// How many bytes of globs are read for that, and how many of globs times those of names. Both are other people's, who could
/// have the operator do nothing else for minutes; so it takes a twentieth of a second at most, and says nothing where that
/// is too little.
const MOST_OF_GLOBS: usize = 16 * 1024;
const MOST: usize = 4 * 1024 * 1024;

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

/// Whether one of the globs matches one of the names, as the sidecar decides, or that would take too long to find out. A
/// glob that cannot be read is said to be none elsewhere, and permits nothing.
fn any<'a>(globs: impl Iterator<Item = &'a String>, names: &[String]) -> bool {
    let exact: HashSet<&str> = names.iter().map(String::as_str).collect();
    let globs: Vec<&str> = globs.map(String::as_str).collect();
    if globs.iter().any(|glob| exact.contains(glob)) {
        return true;
    }
    let globs: Vec<&str> = globs.into_iter().filter(|glob| !glob::is_plain(glob)).collect();
    let letters = |texts: &mut dyn Iterator<Item = &str>| texts.map(str::len).sum::<usize>();
    let of_globs = letters(&mut globs.iter().copied());
    let of_names = letters(&mut names.iter().map(String::as_str));
    if of_globs > MOST_OF_GLOBS || of_globs.saturating_mul(of_names) > MOST {
        return true;
    }
    globs.into_iter().filter_map(|glob| glob::read(glob).ok()).any(|glob| {
        let glob = glob.compile_matcher();
        names.iter().any(|name| glob.is_match(name))
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    /// A matcher of one of these globs is in a state that it has never been in after each letter of these names.
    #[test]
    fn nobody_waits_for_globs_that_take_long() {
        let name = |number: usize| -> String {
            (0..250).map(|at| if (number * 7919 + at * at * 31) % 13 < 6 { 'a' } else { 'b' }).collect()
        };
        let names: Vec<_> = (0..3000).map(name).collect();
        let globs: Vec<_> = (0..64).map(|number| format!("*a{}[cd]", "?".repeat(100 + number))).collect();
        let rules: Vec<_> =
            (0..64).map(|number| json!({"name": format!("r{number}"), "principals": globs})).collect();
        let access: Access = serde_json::from_value(json!({"rules": rules})).unwrap();
        let began = Instant::now();
        assert_eq!(nobody(&access, Some(&names), None), None, "it is not certain");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // What can be found out is said.
        let access: Access =
            serde_json::from_value(json!({"rules": [{"name": "r", "principals": ["c*"]}]})).unwrap();
        assert!(nobody(&access, Some(&names), None).unwrap().contains("no rule"));
        let access: Access =
            serde_json::from_value(json!({"rules": [{"name": "r", "principals": [names[2999], "c"]}]}))
                .unwrap();
        assert_eq!(nobody(&access, Some(&names), None), None);
    }
}
