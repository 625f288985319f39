//! Servers of which nobody has a key, or had none a moment ago, and those that go on with revoked keys.

use super::used::{one_by_one, ready_after, running, unreachable, words};
use super::*;
use crate::view::Told;

/// A server of which the Secret of the keys has gone.
fn without_keys(pods: Vec<PodFacts>) -> Scene {
    let problems = vec![Problem::new(Reason::SecretNotFound, "x")];
    Scene { principals: Some(vec![]), problems, ..Scene::of(pods) }
}

pub(super) fn after_no_keys(pods: Vec<PodFacts>) -> McpServerStatus {
    let status = without_keys(pods).after(&was_ready()).status();
    assert_eq!(words(of(&status, ConditionType::Ready)), "False/SecretNotFound 3");
    status
}

/// A server of which somebody has a key, whatever was before.
fn with_keys(pods: Vec<PodFacts>) -> Scene {
    Scene { principals: Some(vec!["ada".to_owned()]), ..Scene::of(pods) }
}

fn keyless() -> McpServerStatus {
    after_no_keys(vec![said(ready(pod("new")), summary())])
}

fn problems<const N: usize>(reasons: [Reason; N]) -> Vec<Problem> {
    reasons.map(|reason| Problem::new(reason, "x")).into()
}

#[test]
fn what_a_sidecar_says_of_its_keys_comes_before_what_was_said_of_it() {
    // With the number of before, where there is one.
    let (refused, first_refused) = ("False/ConfigurationRefused 3", "False/ConfigurationRefused 4");
    let (pending, first_pending) = ("False/ConfigurationPending 3", "False/ConfigurationPending 4");
    let (was_refused, is_before) = ("True/ConfigurationRefused 3", "True/ServingPrevious 3");
    for (error, callers, expected) in [
        (Some("no such field"), Some(true), [was_refused; 4]),
        (Some("no such field"), Some(false), [refused, refused, refused, first_refused]),
        (None, Some(true), [is_before; 4]),
        (None, Some(false), [is_before, pending, pending, first_pending]),
    ] {
        let pods = vec![said(ready(pod("new")), running(error, callers))];
        let found = ready_after(|| with_keys(pods.clone()));
        assert_eq!(found.each_ref().map(words), expected, "{error:?} {callers:?}");
    }
    // And that nobody is let in, where nothing of the manifest could be made.
    let malformed = || Scene {
        desired: None,
        problems: problems([Reason::Malformed]),
        ..Scene::of(vec![said(ready(pod("new")), running(None, Some(false)))])
    };
    assert_eq!(one_by_one(was_ready(), vec![malformed(), malformed()]), ["False/Malformed 3"; 2]);
}

#[test]
fn what_kept_clients_out_is_gone_only_where_that_is_known() {
    let unheard = || with_keys(vec![unreachable(ready(pod("new")))]);
    let is_before = "True/ServingPrevious 3";
    for (callers, reasons, flawed) in [
        (None, vec![], false),
        (Some(false), vec![], false),
        // Of a key beside others, and of a Secret that holds none.
        (Some(false), problems([Reason::InvalidKeys]), true),
        (None, problems([Reason::InvalidKeys]), true),
        (None, problems([Reason::SecretNotFound]), false),
    ] {
        let but = |scene| Scene { problems: reasons.clone(), flawed, ..scene };
        let refuses =
            || but(with_keys(vec![said(ready(pod("new")), running(Some("no such field"), callers))]));
        let unheard = || but(unheard());
        let found = one_by_one(keyless(), vec![refuses(), unheard(), unheard(), refuses()]);
        assert_eq!(found, ["False/ConfigurationRefused 3"; 4], "{callers:?} {reasons:?}");
        // Nor is it known where the keys have gone once more, and come back.
        let gone = || without_keys(vec![unreachable(ready(pod("new")))]);
        let found = one_by_one(keyless(), vec![refuses(), gone(), unheard()]);
        assert_eq!(found, ["False/ConfigurationRefused 3"; 3], "{callers:?} {reasons:?}");
    }
    // A sidecar of an earlier release, which gets no configuration before its pod is replaced.
    let older = || PodView { config_maps: vec!["github-longshore-v0-x".to_owned()], ..ready(pod("new")) };
    let heard = || with_keys(vec![said(older(), running(None, None))]);
    let found = one_by_one(keyless(), vec![heard(), with_keys(vec![unreachable(older())]), heard()]);
    assert_eq!(found, ["False/ConfigurationPending 3"; 3]);
    // Whether anybody has a key is not known, and then it is.
    let invalid = || Scene {
        desired: None,
        problems: problems([Reason::Invalid]),
        ..Scene::of(vec![unreachable(ready(pod("new")))])
    };
    let found = one_by_one(keyless(), vec![invalid(), invalid(), unheard()]);
    assert_eq!(found, ["False/Invalid 3", "False/Invalid 3", is_before]);
    // The API server does not take the configuration in which they are.
    let yet = |kind, scene| Scene { unapplied: unapplied(kind), ..scene };
    let rejected = |kind, scene| Scene { problems: problems([Reason::Rejected]), ..yet(kind, scene) };
    let map = "ConfigMap";
    let scenes = vec![yet(map, unheard()), rejected(map, unheard()), rejected(map, unheard()), unheard()];
    let found = one_by_one(keyless(), scenes);
    let (as_before, is_rejected) = ("False/SecretNotFound 3", "False/Rejected 3");
    assert_eq!(found, [as_before, is_rejected, is_rejected, is_before]);
    // They are, and the pods are of before.
    let older = || with_keys(vec![unreachable(ready(pod("old")))]);
    assert_eq!(one_by_one(keyless(), vec![older(), older()]), [is_before; 2]);
    // It takes that, and something else it does not.
    for (kind, scene) in [("Service", unheard as fn() -> Scene), ("Deployment", older)] {
        assert_eq!(one_by_one(keyless(), vec![yet(kind, scene())]), [is_before], "{kind}");
        let found = one_by_one(keyless(), vec![rejected(kind, scene()), rejected(kind, scene())]);
        assert_eq!(found, [is_before; 2], "{kind}");
    }
}

/// Nobody hears when it runs what it was told to.
#[test]
fn an_unheard_server_is_of_now_when_all_that_serve_were_told_so_long_enough_ago() {
    // Two minutes before it is looked at, or one second less.
    let (long, lately) = (1010 - 120, 1010 - 119);
    let told = |template: &str, digest: &str, since| PodView {
        told: Some(Told { digest: digest.to_owned(), since }),
        ..ready(pod(template))
    };
    let unheard = |pods: Vec<PodView>| with_keys(pods.into_iter().map(unreachable).collect());
    let (old, new, soon) =
        (|| told("old", WANTED, long), || told("new", WANTED, long), || told("new", WANTED, lately));
    let (older, newer, both) =
        (|| unheard(vec![old()]), || unheard(vec![new()]), || unheard(vec![old(), new()]));
    let unsaid = || with_keys(vec![silent(new())]);
    let (is_before, is_now) = ("True/ServingPrevious 3", "True/Ready 4");
    for (name, scene) in [
        ("it was told lately", &(|| unheard(vec![soon()])) as &dyn Fn() -> Scene),
        ("it was told of another one", &|| unheard(vec![told("new", "sha256:old", long)])),
        ("it was never told", &|| unheard(vec![ready(pod("new"))])),
        ("one of two was told lately", &|| unheard(vec![new(), soon()])),
        ("its pods are of before", &older),
        ("one of them is", &both),
        ("and something is missing", &|| Scene { problems: problems([Reason::SecretKeyNotFound]), ..both() }),
        ("not all is taken", &|| Scene { unapplied: unapplied("Service"), ..newer() }),
        ("it is away for a moment", &|| unheard(vec![PodView { ready: false, ..old() }, new()])),
    ] {
        for before in [was_ready(), keyless()] {
            let found = one_by_one(before, vec![scene(), scene(), newer(), newer()]);
            assert_eq!(found, [is_before, is_before, is_now, is_now], "{name}");
        }
    }
    // What it waits for may never come, and that is told.
    for (pod, expected) in
        [(ready(pod("new")), true), (told("new", "sha256:old", long), true), (soon(), false)]
    {
        let status = unheard(vec![pod]).after(&was_ready()).status();
        let message = &of(&status, ConditionType::Ready).message;
        assert_eq!(message.contains("has yet to be annotated"), expected, "{message}");
    }
    // Whoever has just started has yet to find that it cannot be heard.
    let found = one_by_one(was_ready(), vec![unheard(vec![soon()]), unsaid(), newer(), unsaid()]);
    assert_eq!(found, [is_before, is_before, is_now, is_now]);
    // Another number of pods is no news for sidecars, whenever it comes: as an autoscaler changes it.
    let edited = |generation, scene| Scene { generation, ..scene };
    let found =
        one_by_one(was_ready(), vec![newer(), edited(5, newer()), edited(6, both()), edited(7, newer())]);
    assert_eq!(found, [is_now, "True/Ready 5", "True/ServingPrevious 5", "True/Ready 7"]);
    // It was heard that the same manifest's keys are on their way, and then nothing.
    let behind = with_keys(vec![said(new(), running(None, None))]);
    let found =
        one_by_one(newer().after(&was_ready()).status(), vec![behind, unheard(vec![soon()]), newer()]);
    assert_eq!(found, ["True/ServingPrevious 4", "True/ServingPrevious 4", is_now]);
    // That it was refused has to be heard otherwise.
    let refuses = with_keys(vec![said(old(), running(Some("no such field"), None))]);
    let found = one_by_one(was_ready(), vec![refuses, older(), newer()]);
    assert_eq!(found, ["True/ConfigurationRefused 3"; 3]);
    // With the first manifest there is no earlier number.
    let mut status = keyless();
    status.conditions.iter_mut().for_each(|it| it.observed_generation = Some(1));
    let found = one_by_one(status, vec![edited(1, unheard(vec![soon()])), edited(1, newer())]);
    assert_eq!(found, ["True/ServingPrevious 1", "True/Ready 1"]);
}

/// What is said is what comes first, and that need not be what kept clients out.
#[test]
fn whatever_else_was_wrong_is_gone_too() {
    for reason in [Reason::ConfigMapNotFound, Reason::SecretKeyNotFound, Reason::Invalid, Reason::Rejected] {
        let pods = || vec![unreachable(ready(pod("new")))];
        let both = Scene { problems: problems([reason, Reason::SecretNotFound]), ..without_keys(pods()) };
        let found = one_by_one(was_ready(), vec![both, with_keys(pods()), with_keys(pods())]);
        let lacks = format!("False/{} 3", reason.name());
        assert_eq!(found, [&*lacks, "True/ServingPrevious 3", "True/ServingPrevious 3"]);
    }
}

#[test]
fn keys_that_were_taken_back_and_still_work_are_told() {
    let older =
        |template| PodView { config_maps: vec!["github-longshore-v0-x".to_owned()], ..ready(pod(template)) };
    for (name, pod, error, callers, expected) in [
        ("it refuses to lose them", ready(pod("new")), Some("no"), Some(true), "True/ConfigurationRefused 3"),
        ("it may have had some", ready(pod("new")), Some("no"), None, "True/ConfigurationRefused 3"),
        ("it has had none", ready(pod("new")), Some("no"), Some(false), "False/SecretNotFound 3"),
        ("it is of an earlier release", older("new"), None, None, "True/ServingPrevious 3"),
        ("and so is its pod", older("old"), None, None, "True/ServingPrevious 3"),
    ] {
        let scene = || without_keys(vec![said(pod.clone(), running(error, callers))]);
        // The first look sees that the keys have gone, and only the next that the sidecar goes on with them.
        let on_its_way = without_keys(vec![said(ready(super::pod("new")), running(None, callers))]);
        let keyless = on_its_way.after(&was_ready()).status();
        assert_eq!(words(of(&keyless, ConditionType::Ready)), "False/SecretNotFound 3", "{name}");
        for before in [was_ready(), keyless] {
            assert_eq!(one_by_one(before, vec![scene(), scene()]), [expected; 2], "{name}");
        }
        let status = scene().status();
        let message = &of(&status, ConditionType::Ready).message;
        let is_of_before = name.contains("earlier") || name.contains("pod");
        assert_eq!(message.contains("revoked keys still work"), is_of_before, "{message}");
        // Or of a later one, after a rollback.
        assert_eq!(message.contains("is of another release"), is_of_before, "{message}");
    }
}

#[test]
fn keys_that_the_api_server_does_not_let_be_taken_back_are_told() {
    for (callers, expected) in [
        (Some(true), "True/ServingPrevious 3"),
        (None, "True/ServingPrevious 3"),
        (Some(false), "False/Rejected 3"),
    ] {
        let scene = || {
            let mut scene = without_keys(vec![said(ready(pod("new")), running(None, callers))]);
            scene.problems.insert(0, Problem::new(Reason::Rejected, "the ConfigMap"));
            scene
        };
        let keyless = after_no_keys(vec![said(ready(pod("new")), summary())]);
        for mut before in [was_ready(), keyless] {
            before.conditions.iter_mut().for_each(|it| it.observed_generation = Some(3));
            assert_eq!(one_by_one(before, vec![scene()]), [expected], "{callers:?}");
        }
    }
}
