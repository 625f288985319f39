//! Who may call what. One decision, asked by every request with a target and for every entry of a list, so that what
//! is shown and what can be called are the same.
//!
//! What no rule permits is denied. Tools that the server's owner hid do not exist for anybody.

pub mod glob;
mod pattern;
mod steps;
mod uri;

use std::sync::Arc;

use longshore_mcp::method::List;
use longshore_mcp::params::Target;
use longshore_sidecar_config::{AccessRule, ToolFilter};

pub use pattern::PatternError;
use pattern::Patterns;
use uri::{Uri, is_ambiguous};

/// The longest URI that is held against globs, in bytes. Each rule has many of them, and each of those looks at all of it.
const MAX_URI: usize = 8 * 1024;
/// The longest name, which is far longer than MCP has names of tools be, and a glob.
const MAX_NAME: usize = 1024;

/// The compiled rules of a server.
pub(crate) struct Access {
    rules: Vec<Arc<Rule>>,
    existing: ExistingTools,
}

/// Which of the server's tools its owner lets exist, for whoever: `tools.include` and `tools.exclude`.
#[derive(Debug)]
pub struct ExistingTools {
    include: Patterns,
    exclude: Patterns,
}

/// One rule.
pub(crate) struct Rule {
    name: Arc<str>,
    principals: Option<Patterns>,
    tools: Patterns,
    prompts: Patterns,
    resources: Patterns,
}

/// A caller with the rules that are theirs. Made once per principal when the configuration is loaded.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Who it is.
    pub(crate) principal: Arc<str>,
    rules: Arc<[Arc<Rule>]>,
}

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The rule of this name permits it.
    Permit(Arc<str>),
    /// It is denied.
    Deny(Denial),
}

/// Why something is denied. Only the audit log says which; a caller hears that it does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// No rule of the caller's permits it.
    NoRule,
    /// `tools.include` leaves it out, or `tools.exclude` names it.
    Hidden,
}

impl Access {
    /// Compiles rules. A pattern that cannot be compiled is an error: dropping it could widen what another permits.
    pub(crate) fn compile(rules: &[AccessRule], tools: &ToolFilter) -> Result<Self, PatternError> {
        let rules = rules.iter().map(|rule| Rule::compile(rule).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Self { rules, existing: ExistingTools::compile(tools)? })
    }

    /// The rules of one principal.
    pub(crate) fn caller(&self, principal: &str) -> Caller {
        let applies = |rule: &&Arc<Rule>| {
            rule.principals.as_ref().is_none_or(|principals| principals.match_any(principal))
        };
        Caller { principal: principal.into(), rules: self.rules.iter().filter(applies).cloned().collect() }
    }

    /// Whether the owner lets this tool exist.
    pub(crate) fn exists(&self, tool: &str) -> bool {
        self.existing.has(tool)
    }

    /// The decision.
    pub(crate) fn decide(&self, caller: &Caller, target: &Target<'_>) -> Decision {
        if let Target::Tool(name) = target
            && !self.exists(name)
        {
            return Decision::Deny(Denial::Hidden);
        }
        let text = target.as_str();
        let uri = Uri::new(text);
        // No glob says anything of such a target, but the one that permits every one.
        let is_any = match target {
            Target::Tool(name) | Target::Prompt(name) => name.len() > MAX_NAME,
            Target::Resource(uri) => uri.len() > MAX_URI || is_ambiguous(uri),
        };
        let permits = |rule: &&Arc<Rule>| match target {
            Target::Tool(_) if is_any => rule.tools.match_all(),
            Target::Prompt(_) if is_any => rule.prompts.match_all(),
            Target::Resource(_) if is_any => rule.resources.match_all(),
            Target::Tool(_) => rule.tools.match_any(text),
            Target::Prompt(_) => rule.prompts.match_any(text),
            Target::Resource(_) => rule.resources.match_any_uri(&uri),
        };
        match caller.rules.iter().find(permits) {
            Some(rule) => Decision::Permit(rule.name.clone()),
            None => Decision::Deny(Denial::NoRule),
        }
    }

    /// Whether what is shown depends on who asks.
    pub(crate) fn tells_callers_apart(&self) -> bool {
        self.rules.iter().any(|rule| rule.principals.is_some())
    }

    /// Whether an entry of a list is for this caller: the same decision, asked for the entry's name.
    pub(crate) fn shows(&self, caller: &Caller, list: List, name: &str) -> bool {
        let target = match list {
            List::Tools => Target::Tool(name.into()),
            List::Prompts => Target::Prompt(name.into()),
            List::Resources | List::ResourceTemplates => Target::Resource(name.into()),
        };
        matches!(self.decide(caller, &target), Decision::Permit(_))
    }
}

impl ExistingTools {
    /// Compiles the globs.
    pub fn compile(tools: &ToolFilter) -> Result<Self, PatternError> {
        Ok(Self { include: Patterns::compile(&tools.include)?, exclude: Patterns::compile(&tools.exclude)? })
    }

    /// Whether there is a tool of this name, if the server has one. One whose name is too long to be told from those that are
    /// hidden is hidden.
    pub fn has(&self, tool: &str) -> bool {
        if tool.len() > MAX_NAME {
            return (self.include.is_empty() || self.include.match_all()) && self.exclude.is_empty();
        }
        (self.include.is_empty() || self.include.match_any(tool)) && !self.exclude.match_any(tool)
    }
}

impl Rule {
    fn compile(rule: &AccessRule) -> Result<Self, PatternError> {
        // Every field, by name: a new one that is forgotten here would be a restriction that nobody enforces.
        let AccessRule { name, principals, tools, prompts, resources } = rule;
        Ok(Self {
            name: name.as_str().into(),
            principals: principals.as_deref().map(Patterns::compile).transpose()?,
            tools: Patterns::compile(tools)?,
            prompts: Patterns::compile(prompts)?,
            resources: Patterns::compile(resources)?,
        })
    }
}

impl Denial {
    /// The reason as the audit log gives it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NoRule => "no rule permits it",
            Self::Hidden => "the tool is hidden by include or exclude",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(
        name: &str,
        principals: Option<&[&str]>,
        tools: &[&str],
        prompts: &[&str],
        resources: &[&str],
    ) -> AccessRule {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        AccessRule {
            name: name.to_owned(),
            principals: principals.map(owned),
            tools: owned(tools),
            prompts: owned(prompts),
            resources: owned(resources),
        }
    }

    fn permit(rule: &str) -> Decision {
        Decision::Permit(rule.into())
    }

    #[test]
    fn the_first_rule_that_permits_decides() {
        let filter = ToolFilter { include: vec![], exclude: vec!["*_danger".to_owned()] };
        let access = Access::compile(
            &[
                rule("readers", None, &["get_*", "list"], &[], &["file:///public/*"]),
                rule("writers", Some(&["team-*", "root"]), &["*"], &["*"], &["test://{id}/data"]),
            ],
            &filter,
        )
        .unwrap();
        let deny = Decision::Deny(Denial::NoRule);
        for (principal, target, expected) in [
            ("anyone", Target::Tool("get_x".into()), permit("readers")),
            ("anyone", Target::Tool("get_".into()), permit("readers")),
            ("anyone", Target::Tool("get_a/b\nc".into()), permit("readers")),
            ("anyone", Target::Tool("Get_x".into()), deny.clone()),
            ("anyone", Target::Tool("forget_x".into()), deny.clone()),
            ("anyone", Target::Tool("list".into()), permit("readers")),
            ("anyone", Target::Tool("listing".into()), deny.clone()),
            ("anyone", Target::Prompt("get_x".into()), deny.clone()),
            ("anyone", Target::Resource("file:///public/a/b".into()), permit("readers")),
            ("anyone", Target::Resource("file:///private".into()), deny.clone()),
            ("anyone", Target::Resource("file:///public/../private".into()), deny.clone()),
            ("anyone", Target::Tool("get_/../x y".into()), permit("readers")),
            ("team-a", Target::Tool("delete".into()), permit("writers")),
            ("root", Target::Prompt("p".into()), permit("writers")),
            ("roots", Target::Prompt("p".into()), deny.clone()),
            ("root", Target::Resource("test://{id}/data".into()), permit("writers")),
            ("root", Target::Resource("test://7/data".into()), deny.clone()),
            ("root", Target::Tool("very_danger".into()), Decision::Deny(Denial::Hidden)),
        ] {
            assert_eq!(access.decide(&access.caller(principal), &target), expected, "{principal} {target:?}");
        }
    }

    #[test]
    fn what_is_ambiguous_or_long_is_permitted_by_the_star_alone() {
        let dots = "file:///public/../x".to_owned();
        let [long, longer] = [MAX_NAME, MAX_URI].map(|most| format!("file:///public/{}", "x".repeat(most)));
        for glob in ["file:///public/*", "**", &dots, &long, &longer, "*"] {
            let access =
                Access::compile(&[rule("r", None, &[glob], &[glob], &[glob])], &ToolFilter::default())
                    .unwrap();
            let permits = |target: Target<'_>| access.decide(&access.caller("x"), &target) == permit("r");
            assert!(permits(Target::Resource("file:///public/a".into())) || glob.len() > 16, "{glob:.20}");
            for uri in [&dots, &longer] {
                assert_eq!(
                    permits(Target::Resource(uri.as_str().into())),
                    glob == "*",
                    "{glob:.20} {uri:.20}"
                );
            }
            for target in [Target::Tool(long.as_str().into()), Target::Prompt(long.as_str().into())] {
                assert_eq!(permits(target), glob == "*", "{glob:.20}");
            }
        }
        // What hides some tools hides those of which nobody can say whether they are among them.
        let all = [rule("all", None, &["*"], &[], &[])];
        for (include, exclude, exists) in
            [(&[][..], &[][..], true), (&["*"], &[], true), (&["f*"], &[], false), (&[], &["other"], false)]
        {
            let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
            let filter = ToolFilter { include: owned(include), exclude: owned(exclude) };
            assert_eq!(
                Access::compile(&all, &filter).unwrap().exists(&long),
                exists,
                "{include:?} {exclude:?}"
            );
        }
    }

    #[test]
    fn lists_of_resources_and_templates_follow_the_same_decision() {
        let access =
            Access::compile(&[rule("some", None, &[], &[], &["file:///public/*"])], &ToolFilter::default())
                .unwrap();
        let caller = access.caller("x");
        for list in [List::Resources, List::ResourceTemplates] {
            for (uri, shown) in [("file:///public/{a}", true), ("file:///public/%2E%2e/{a}", false)] {
                assert_eq!(access.shows(&caller, list, uri), shown, "{list:?} {uri}");
            }
        }
    }

    #[test]
    fn nothing_is_permitted_by_default() {
        let access = Access::compile(&[], &ToolFilter::default()).unwrap();
        let decision = access.decide(&access.caller("a"), &Target::Tool("t".into()));
        assert_eq!(decision, Decision::Deny(Denial::NoRule));
        let access =
            Access::compile(&[rule("r", Some(&[]), &["*"], &[], &[])], &ToolFilter::default()).unwrap();
        assert!(!access.shows(&access.caller("a"), List::Tools, "t"), "no principal at all");
    }

    #[test]
    fn include_and_exclude_come_before_access() {
        let filter = ToolFilter { include: vec!["a*".to_owned()], exclude: vec!["ab".to_owned()] };
        let access = Access::compile(&[rule("all", None, &["*"], &[], &[])], &filter).unwrap();
        let caller = access.caller("x");
        for (tool, shown) in [("a", true), ("abc", true), ("ab", false), ("b", false)] {
            assert_eq!(access.shows(&caller, List::Tools, tool), shown, "{tool}");
        }
    }

    #[test]
    fn a_bad_pattern_refuses_everything() {
        for glob in ["a[", "[\u{e9}]*"] {
            let access = Access::compile(&[rule("r", None, &[glob], &[], &[])], &ToolFilter::default());
            assert!(access.is_err(), "{glob}");
        }
        let filter = ToolFilter { include: vec![], exclude: vec!["{".to_owned()] };
        assert!(Access::compile(&[], &filter).is_err());
    }
}
