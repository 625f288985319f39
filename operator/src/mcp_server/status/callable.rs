//! Whether the access rules let anybody do anything with a server. Pure.

use std::cell::Cell;
use std::collections::HashSet;

use longshore_crds::api_keys::ANONYMOUS;
use longshore_crds::mcp_server::access::{Access, AccessRule};
use longshore_sidecar::glob;

use crate::inventory::ToolsSummary;

/// So many tools, or principals, are named to whoever wrote a rule that matches none.
const EXAMPLES: usize = 3;

/// How much may be done to find out, in bytes of globs times bytes of names. Both are other people's, who could have the
/// operator do nothing else for minutes; so it takes a twentieth of a second at most, and nothing is said where that is too
/// little.
const MOST: usize = 4 * 1024 * 1024;
/// So much of that it takes to read a glob, for each of its bytes.
const TO_READ: usize = 256;

/// What a server has, as far as it is known.
#[derive(Clone, Copy)]
pub(crate) struct Offered<'a> {
    /// Its tools.
    pub(crate) tools: &'a ToolsSummary,
    /// How many more its manifest hides.
    pub(crate) hidden: usize,
}

/// Why nobody may call anything, if that is certain: everything is denied by default, and whoever has just written a first
/// manifest may not know. Callers are these principals, where that is known.
pub(crate) fn nobody(
    access: &Access,
    principals: Option<&[String]>,
    offered: Option<Offered<'_>>,
) -> Option<String> {
    if access.rules.is_empty() {
        return Some(
            "no rule permits anything to anybody: write one in spec.access.rules, such as {name: all, tools: [\"*\"]}"
                .to_owned(),
        );
    }
    let left = Cell::new(MOST);
    let callers = principals.map(Names::new);
    let of_callers = |rule: &&AccessRule| match (&rule.principals, &callers) {
        (Some(globs), Some(callers)) => callers.have_any(globs.iter(), &left),
        (None, _) | (_, None) => true,
    };
    let rules: Vec<&AccessRule> = access.rules.iter().filter(of_callers).collect();
    if rules.is_empty() {
        return principals.and_then(unnamed);
    }
    // What prompts and resources the server has is not known here, nor are its tools where there are very many.
    let Offered { tools, hidden } = offered?;
    if !rules.iter().all(|rule| rule.prompts.is_empty() && rule.resources.is_empty()) {
        return None;
    }
    if tools.count == 0 && hidden > 0 {
        return Some(match hidden {
            1 => "spec.tools hides its only tool, so none may be called".to_owned(),
            all => format!("spec.tools hides all {all} of its tools, so none may be called"),
        });
    }
    let are_all_known = usize::try_from(tools.count).is_ok_and(|count| count == tools.names.len());
    if !are_all_known
        || tools.names.is_empty()
        || Names::new(&tools.names).have_any(rules.iter().flat_map(|rule| &rule.tools), &left)
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

/// Names that globs are held against.
struct Names<'a> {
    all: &'a [String],
    exact: HashSet<&'a str>,
    bytes: usize,
}

impl<'a> Names<'a> {
    fn new(all: &'a [String]) -> Self {
        let exact = all.iter().map(String::as_str).collect();
        Self { all, exact, bytes: all.iter().map(String::len).sum() }
    }

    /// Whether one of the globs matches one of them, as the sidecar decides, or more than is left would have to be done to
    /// find out. A glob that cannot be read is said to be none elsewhere, and permits nothing.
    fn have_any<'b>(&self, globs: impl Iterator<Item = &'b String>, left: &Cell<usize>) -> bool {
        let globs: Vec<&str> = globs.map(String::as_str).collect();
        if globs.iter().any(|glob| self.exact.contains(glob)) {
            return true;
        }
        let globs: Vec<&str> = globs.into_iter().filter(|glob| !glob::is_plain(glob)).collect();
        let bytes: usize = globs.iter().map(|glob| glob.len()).sum();
        let Some(rest) = left.get().checked_sub(bytes.saturating_mul(self.bytes + TO_READ)) else {
            return true;
        };
        left.set(rest);
        globs.into_iter().filter_map(|glob| glob::read(glob).ok()).any(|glob| {
            let glob = glob.compile_matcher();
            self.all.iter().any(|name| glob.is_match(name))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// For how long a processor has worked on this thread, however busy the machine is.
    fn worked() -> Duration {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(told.split(' ').next().unwrap().parse().unwrap())
    }

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
        let before = worked();
        assert_eq!(nobody(&access, Some(&names), None), None, "it is not certain");
        // Nor for many rules of which each takes not too long.
        let rules: Vec<_> = (0..64)
            .map(|number| json!({"name": format!("r{number}"), "principals": [globs[number % 8]]}))
            .collect();
        let many: Access = serde_json::from_value(json!({"rules": rules})).unwrap();
        assert_eq!(nobody(&many, Some(&names[..120]), None), None, "it is not certain");
        let took = worked() - before;
        assert!(took < Duration::from_secs(5), "{took:?}");
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
