//! The rules of who may call what, and which tools there are. Pure.

use longshore_crds::mcp_server as manifest;
use longshore_sidecar::glob;
use longshore_sidecar_config as config;

use crate::mcp_server::condition::Problem;

pub(super) fn access_rule(
    index: usize,
    rule: &manifest::AccessRule,
    problems: &mut Vec<Problem>,
    unfit: &mut Vec<Problem>,
) -> config::AccessRule {
    let path = format!("spec.access.rules[{index}]");
    if rule.name.is_empty() {
        problems.push(Problem::invalid(&format!("{path}.name"), "give the rule a name, for the audit log"));
    }
    let mut globs = |field: &str, globs: &[String]| readable(&format!("{path}.{field}"), globs, unfit);
    config::AccessRule {
        name: rule.name.clone(),
        // None that can be read is nobody; only none at all is everybody.
        principals: rule.principals.as_deref().map(|principals| globs("principals", principals)),
        tools: globs("tools", &rule.tools),
        prompts: globs("prompts", &rule.prompts),
        resources: globs("resources", &rule.resources),
    }
}

/// Which tools there are to be.
pub(crate) fn tool_filter(tools: &manifest::Tools, unfit: &mut Vec<Problem>) -> config::ToolFilter {
    let include = readable("spec.tools.include", &tools.include, unfit);
    let mut exclude = readable("spec.tools.exclude", &tools.exclude, unfit);
    // What cannot be read could have hidden anything, and no glob at all would include everything.
    if exclude.len() < tools.exclude.len() || (include.is_empty() && !tools.include.is_empty()) {
        exclude = vec!["*".to_owned()];
    }
    config::ToolFilter { include, exclude }
}

/// The globs that can be read. The others are said to be none, and permit nothing.
fn readable(path: &str, globs: &[String], unfit: &mut Vec<Problem>) -> Vec<String> {
    let mut readable = Vec::new();
    for (index, glob) in globs.iter().enumerate() {
        let why = match glob::read(glob) {
            Ok(_) => {
                readable.push(glob.clone());
                continue;
            }
            Err(why) => why,
        };
        unfit.push(Problem::invalid(
            &format!("{path}[{index}]"),
            format_args!("{glob:?} is not a glob: {why}; what it was to say is denied until it is corrected"),
        ));
    }
    readable
}
