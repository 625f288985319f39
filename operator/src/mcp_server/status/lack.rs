//! What clients of a server that works do not use of its newest manifest. What its pods are and run tells; what is wrong
//! with the manifest only tells why. Pure.

use super::pod_roles::{PodRoles, Version};
use super::{Observation, PodFacts, Report, Verdict, verdict};
use crate::mcp_server::build::Desired;
use crate::mcp_server::condition::{Reason, Truth};

/// What clients do not use of the newest manifest, and why.
pub(super) struct Lack {
    pub(super) what: Lacking,
    pub(super) why: Verdict,
    /// Whether a sidecar goes on with earlier rules and keys until something else is done: revoked keys still work, and where
    /// nobody has one in those, nobody will.
    pub(super) lasts: bool,
}

/// How much they do not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// Perhaps all of it: a pod that serves has an earlier configuration, or nothing could be made of the manifest.
    All,
    /// Perhaps all of it, for a moment: the configuration is on its way.
    AllYet,
    /// The pods. Those from before run the current configuration.
    Pods,
}

// === impl Lack ===

impl Lack {
    /// What clients lack, if anything. A pod that has said nothing yet is no news.
    pub(super) fn of(
        observed: &Observation<'_>,
        roles: &PodRoles<'_>,
        [accepted, available, _]: [&Verdict; 3],
    ) -> Option<Self> {
        let lack = |what, why: &Verdict, lasts| {
            Some(Self { what, why: verdict(Truth::False, why.reason, why.message.clone()), lasts })
        };
        let Some(desired) = observed.desired else { return lack(Lacking::All, accepted, true) };
        let behind = behind(desired, roles, observed.has_no_keys());
        let lasts = behind.as_ref().is_some_and(|behind| behind.lasts);
        match &behind {
            // Revoked keys that still work are said before pods of an earlier version.
            Some(behind) if behind.is_refusal() || lasts && observed.has_no_keys() => {
                lack(behind.what, &behind.why, lasts)
            }
            _ if roles.serving != Some(Version::Current) => {
                let cannot_be_asked = |facts: &&PodFacts| matches!(facts.report, Report::Unreachable(_));
                let is_known = behind.is_none() && !roles.serves.iter().any(cannot_be_asked);
                let what = if is_known { Lacking::Pods } else { Lacking::All };
                lack(what, if observed.held_back { accepted } else { available }, lasts)
            }
            // It may be the configuration that the API server does not take.
            Some(_) if observed.is_partly_refused() => lack(Lacking::All, accepted, true),
            Some(behind) => lack(behind.what, &behind.why, lasts),
            None => None,
        }
    }

    /// Whether a sidecar does not take what it was given. A bug, and nothing that passes: revoked rules and keys are still
    /// in force.
    pub(super) fn is_refusal(&self) -> bool {
        self.why.reason == Reason::ConfigurationRefused
    }
}

/// Why not all pods that serve run the configuration that they should.
fn behind(desired: &Desired, roles: &PodRoles<'_>, has_no_keys: bool) -> Option<Lack> {
    let behind = |facts: &&PodFacts| {
        let config = &facts.report.summary()?.config;
        let wanted = desired.config_of(&facts.pod);
        (wanted != Some(&*config.digest)).then(|| (config.clone(), wanted.is_none()))
    };
    // A pod that refuses it says more than one that has yet to read it, or cannot.
    let behind: Vec<_> = roles.serves.iter().filter_map(behind).collect();
    let refuses = behind.iter().find(|(config, of_before)| config.error.is_some() && !of_before);
    let of_before = || behind.iter().find(|(_, of_before)| *of_before);
    let (config, is_of_before) = refuses.or_else(of_before).or(behind.first())?;
    let (what, reason, message) = match &config.error {
        _ if *is_of_before => (
            Lacking::All,
            Reason::ConfigurationPending,
            format!(
                "the sidecar is of another release of Longshore and keeps the previous configuration until its pod is \
                 replaced{}",
                // Such a pod comes back as it was, whoever deletes it.
                if has_no_keys {
                    "; so revoked keys still work: correct what the condition Accepted names (with a Secret that holds no \
                     key, if nobody is to have one), or scale the server to 0 until then"
                } else {
                    ""
                }
            ),
        ),
        Some(error) => (
            Lacking::All,
            Reason::ConfigurationRefused,
            format!(
                "the sidecar refuses its configuration: {error}; this is a bug of Longshore: take back what was changed last, \
                 and report it with this message"
            ),
        ),
        None => (
            Lacking::AllYet,
            Reason::ConfigurationPending,
            match roles.serves.len() {
                1 => "the new configuration is on its way to the sidecar".to_owned(),
                all => format!("the new configuration is on its way to {} of {all} sidecars", behind.len()),
            },
        ),
    };
    let lasts = what == Lacking::All;
    Some(Lack { what, why: verdict(Truth::False, reason, message), lasts })
}
