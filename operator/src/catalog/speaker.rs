//! Which pod speaks for a server, and which others are asked beside it. Pure.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use longshore_catalog::Offer;
use longshore_sidecar_client::Observation;
use longshore_sidecar_config::inventory::ConnectionState;

use crate::view::PodView;

/// How many other pods are asked at a time while the server of the one that speaks fails.
pub(super) const OTHERS: usize = 3;

/// A pod whose sidecar can be asked, and where.
pub(super) type Askable<'a> = (&'a PodView, IpAddr);

/// How a pod's server is, by the word of its sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It answers.
    Works,
    /// It does not, or its sidecar does not.
    Fails,
    /// Nothing yet.
    Nothing,
}

/// The pods to ask, the one that speaks for the server first: one that serves, else the newest that could.
///
/// As long as its server works it goes on to speak, until one of a newer version works too. That one is asked before it
/// takes over. When the server of the one that speaks fails, the newest of another version is asked, which may be what
/// mends it, and with it some others, other ones in each round.
pub(super) fn pods_to_ask<'a>(
    pods: &'a [Arc<PodView>],
    speaks: Option<&str>,
    round: usize,
    heard: impl Fn(&PodView) -> Heard,
) -> Vec<Askable<'a>> {
    let mut pods: Vec<Askable<'a>> =
        pods.iter().filter_map(|pod| Some((&**pod, pod.askable_at()?))).collect();
    let age = |pod: &PodView| (pod.created, pod.uid.clone());
    pods.sort_by_cached_key(|(pod, _)| Reverse(age(pod)));
    let works = |pod: &PodView| pod.ready && heard(pod) == Heard::Works;
    let version = pods.iter().find(|(pod, _)| works(pod)).map(|(pod, _)| pod.template.clone());
    let is_current = |pod: &PodView| works(pod) && version.as_ref() == Some(&pod.template);
    let spoke = |pod: &PodView| pod.ready && speaks == Some(&pod.uid);
    // The newest of those that are equal.
    pods.sort_by_key(|(pod, _)| Reverse((pod.ready, works(pod), is_current(pod), spoke(pod))));
    let Some((&speaker, others)) = pods.split_first() else { return Vec::new() };
    let mut asked = vec![speaker];
    if heard(speaker.0) == Heard::Fails {
        let ready = others.iter().filter(|(pod, _)| pod.ready);
        let of_another = ready.clone().filter(|(pod, _)| pod.template != speaker.0.template);
        let newest = of_another.max_by_key(|(pod, _)| age(pod)).copied();
        let rest: Vec<_> = ready.filter(|(pod, _)| newest.is_none_or(|(it, _)| it.uid != pod.uid)).collect();
        let places = OTHERS - newest.iter().len();
        let first = round.wrapping_mul(places).checked_rem(rest.len()).unwrap_or_default();
        asked.extend(newest);
        asked.extend(rest.iter().cycle().skip(first).take(places.min(rest.len())).copied());
    } else {
        let newest = others.iter().max_by_key(|(pod, _)| age(pod));
        let is_newer = |pod: &PodView| age(pod) > age(speaker.0) && pod.template != speaker.0.template;
        asked.extend(newest.filter(|(pod, _)| is_newer(pod)));
    }
    asked
}

// === impl Heard ===

impl Heard {
    pub(super) fn of(said: &Observation<Offer>) -> Self {
        match (&said.unreachable, said.summary.as_ref().map(|offer| &offer.connection)) {
            (Some(_), _) => Self::Fails,
            (None, Some(connection)) if connection.is_steady() => Self::Works,
            (None, Some(connection)) if connection.state != ConnectionState::Connecting => Self::Fails,
            (None, _) => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::view::{ContainerState, ContainerView};

    fn pod(uid: &str, created: i64, ready: bool) -> PodView {
        PodView {
            uid: uid.to_owned(),
            created,
            ready,
            ip: Some("10.0.0.1".to_owned()),
            template: Some("one".to_owned()),
            sidecar: ContainerView { state: ContainerState::Running, ..ContainerView::default() },
            ..PodView::default()
        }
    }

    fn asked(pods: &[&PodView], speaks: Option<&str>, heard: &[(&str, Heard)]) -> Vec<String> {
        asked_in(0, pods, speaks, heard)
    }

    fn asked_in(
        round: usize,
        pods: &[&PodView],
        speaks: Option<&str>,
        heard: &[(&str, Heard)],
    ) -> Vec<String> {
        let pods: Vec<_> = pods.iter().map(|&pod| Arc::new(pod.clone())).collect();
        let heard = |pod: &PodView| {
            heard.iter().find(|(uid, _)| *uid == pod.uid).map_or(Heard::Nothing, |(_, heard)| *heard)
        };
        pods_to_ask(&pods, speaks, round, heard).into_iter().map(|(pod, _)| pod.uid.clone()).collect()
    }

    #[test]
    fn a_pod_that_serves_speaks_for_the_server() {
        let (old, new) = (pod("old", 1, true), pod("new", 2, false));
        let pending = PodView { ip: None, ..pod("pending", 3, false) };
        let ending = PodView { ending: true, ..pod("ending", 9, true) };
        let failed = PodView { failed: Some("x".to_owned()), ..pod("failed", 9, true) };
        // Something else may listen there until the sidecar does.
        let early = PodView { sidecar: ContainerView::default(), ..pod("early", 9, false) };
        for (pods, expected) in [
            (vec![&old, &new, &pending, &ending, &failed], &["old"][..]),
            (vec![&new, &pending, &ending, &early], &["new"]),
            (vec![&pending, &ending, &failed, &early], &[]),
            (vec![], &[]),
        ] {
            assert_eq!(asked(&pods, None, &[]), expected);
        }
    }

    #[test]
    fn a_pod_speaks_until_another_that_was_heard_does_better() {
        use Heard::{Fails, Works};
        let (a, b, c) = (pod("a", 1, true), pod("b", 2, true), pod("c", 3, true));
        let next = |ready| PodView { template: Some("two".to_owned()), ..pod("next", 4, ready) };
        let (next, starting) = (next(true), next(false));
        let unready = pod("a", 1, false);
        for (pods, speaks, heard, expected, why) in [
            (vec![&a, &b, &c], None, &[][..], &["c"][..], "of equals the newest"),
            (vec![&a, &b, &c], Some("a"), &[], &["a"], "it is not known yet how that is"),
            (vec![&a, &b, &c], Some("a"), &[("a", Works)], &["a"], "a newer one is no better"),
            (vec![&a, &b, &c], Some("c"), &[("c", Fails)], &["c", "b", "a"], "others are asked"),
            (vec![&a, &b, &c], Some("c"), &[("c", Fails), ("b", Fails)], &["c", "b", "a"], "and go on to be"),
            (vec![&a, &b, &c], Some("c"), &[("c", Fails), ("a", Works)], &["a"], "one of them works"),
            (vec![&a, &b], Some("c"), &[("a", Works)], &["a"], "it went, and one that works is known"),
            (vec![&a, &starting], Some("a"), &[("a", Works)], &["a", "next"], "a new version starts"),
            (vec![&a, &starting], Some("a"), &[("a", Works), ("next", Works)], &["a", "next"], "nor serves"),
            (vec![&a, &next], Some("a"), &[("a", Works)], &["a", "next"], "nor was heard"),
            (vec![&a, &next], Some("a"), &[("a", Works), ("next", Fails)], &["a", "next"], "nor works"),
            (vec![&a, &next], Some("a"), &[("a", Works), ("next", Works)], &["next"], "and takes over"),
            (vec![&a, &b, &next], Some("next"), &[("next", Works)], &["next"], "and stays"),
            (vec![&unready, &starting], Some("a"), &[("a", Fails)], &["next"], "none serves"),
            (vec![&unready, &b], Some("a"), &[("a", Works)], &["b"], "it serves no longer"),
        ] {
            assert_eq!(asked(&pods, speaks, heard), expected, "{why}");
        }
        let many: Vec<_> = (0..9).map(|n| pod(&n.to_string(), n, true)).collect();
        let many: Vec<_> = many.iter().collect();
        let fails = [("0", Fails)];
        for (round, expected) in [["8", "7", "6"], ["5", "4", "3"], ["2", "1", "8"]].iter().enumerate() {
            assert_eq!(
                asked_in(round, &many, Some("0"), &fails)[1..],
                *expected,
                "none is left out for ever"
            );
        }
        assert_eq!(asked_in(7, &many[..3], Some("0"), &fails).len(), 3);
        let two = |uid, created| PodView { template: Some("two".to_owned()), ..pod(uid, created, true) };
        let (corrected, of_it) = (two("next", 11), two("of it", 10));
        let with_next: Vec<_> = many.iter().copied().chain([&of_it, &corrected]).collect();
        let rounds: Vec<_> = (0..5).map(|round| asked_in(round, &with_next, Some("0"), &fails)).collect();
        assert!(rounds.iter().all(|asked| asked.len() == 1 + OTHERS));
        assert!(
            rounds.iter().all(|asked| asked[1] == "next"),
            "a newer version waits for no round: {rounds:?}"
        );
        let all: BTreeSet<_> = rounds.into_iter().flatten().collect();
        assert_eq!(all.len(), with_next.len(), "none is left out for ever");
        assert_eq!(asked_in(7, &many[..1], Some("0"), &fails), ["0"]);
    }
}
