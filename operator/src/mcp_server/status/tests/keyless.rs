//! Servers of which nobody has a key, or had none a moment ago, and those that go on with keys that were taken back.

use super::used::{one_by_one, ready_after, running, unreachable, words};
use super::*;

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
    // The generation too is what it says, if nothing else was heard.
    let long_before = || {
        let mut summary = running(Some("no such field"), Some(true));
        summary.config.generation = 2;
        Scene::of(vec![said(ready(pod("new")), summary)])
    };
    assert_eq!(words(&ready_after(long_before)[3]), "True/ConfigurationRefused 2");
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
    assert_eq!(found, ["False/Invalid 3", "False/Invalid 3", "True/Ready 4"]);
    // The API server does not take the configuration in which they are.
    let yet = |kind, scene| Scene { unapplied: unapplied(kind), ..scene };
    let rejected = |kind, scene| Scene { problems: problems([Reason::Rejected]), ..yet(kind, scene) };
    let map = "ConfigMap";
    let scenes = vec![yet(map, unheard()), rejected(map, unheard()), rejected(map, unheard()), unheard()];
    let found = one_by_one(keyless(), scenes);
    let (as_before, is_rejected) = ("False/SecretNotFound 3", "False/Rejected 3");
    assert_eq!(found, [as_before, is_rejected, is_rejected, "True/Ready 4"]);
    // They are, and the pods are of before.
    let older = || with_keys(vec![unreachable(ready(pod("old")))]);
    let is_before = "True/ServingPrevious 3";
    assert_eq!(one_by_one(keyless(), vec![older(), older()]), [is_before; 2]);
    // It takes that, and something else it does not.
    for (kind, scene) in [("Service", unheard as fn() -> Scene), ("Deployment", older)] {
        assert_eq!(one_by_one(keyless(), vec![yet(kind, scene())]), [is_before], "{kind}");
        let found = one_by_one(keyless(), vec![rejected(kind, scene()), rejected(kind, scene())]);
        assert_eq!(found, [is_before; 2], "{kind}");
    }
}

/// Those that follow started with the configuration of now, whether or not anybody hears it from them.
#[test]
fn an_unheard_server_is_of_now_when_all_of_its_pods_of_before_are_followed() {
    let (old, new) = (|| unreachable(ready(pod("old"))), || unreachable(ready(pod("new"))));
    let (older, newer) = (|| with_keys(vec![old()]), || with_keys(vec![new()]));
    let both = || with_keys(vec![old(), new()]);
    let unsaid = || with_keys(vec![silent(ready(pod("new")))]);
    let yet = || Scene { unapplied: unapplied("Service"), ..newer() };
    let (is_before, is_now, pending) =
        ("True/ServingPrevious 3", "True/Ready 4", "True/ConfigurationPending 3");
    for (before, scenes, expected) in [
        // What changed while the keys were away is applied as they come back.
        (keyless(), vec![older(), both(), newer(), newer()], [is_before, is_before, is_now, is_now]),
        (was_ready(), vec![older(), both(), newer(), newer()], [is_before, is_before, is_now, is_now]),
        // Whoever has just started has yet to find that it cannot be heard.
        (was_ready(), vec![older(), unsaid(), unsaid(), newer()], [is_before, pending, pending, is_now]),
        (was_ready(), vec![older(), yet(), yet(), newer()], [is_before, pending, pending, is_now]),
        // Another change makes pods of before of them once more.
        (was_ready(), vec![older(), unsaid(), older(), newer()], [is_before, pending, is_before, is_now]),
        // What changed is the configuration alone.
        (was_ready(), vec![newer(), newer(), newer(), newer()], [is_before; 4]),
    ] {
        assert_eq!(one_by_one(before, scenes), expected);
    }
    // Another manifest that changes the configuration alone, of pods that served all the time or have followed those of before.
    let edited = |scene| Scene { generation: 5, ..scene };
    let desired = || Some(Desired { template: "old".to_owned(), ..desired() });
    let taken_back = || edited(Scene { desired: desired(), ..older() });
    let found = one_by_one(was_ready(), vec![older(), taken_back(), taken_back()]);
    assert_eq!(found, [is_before; 3]);
    let found = one_by_one(was_ready(), vec![older(), unsaid(), edited(newer()), edited(newer())]);
    assert_eq!(found, [is_before, pending, is_before, is_before]);
    // One of before is away for a moment in which the new one, that fails, serves.
    let blip = || with_keys(vec![unreachable(pod("old")), new()]);
    let found = one_by_one(was_ready(), vec![older(), blip(), blip(), older(), newer()]);
    assert_eq!(found, [is_before, pending, pending, is_before, is_now]);
    // That one was refused has to be heard otherwise.
    let refuses = with_keys(vec![said(ready(pod("old")), running(Some("no such field"), None))]);
    let found = one_by_one(was_ready(), vec![refuses, older(), newer()]);
    assert_eq!(found, ["True/ConfigurationRefused 3"; 3]);
    // With the first manifest there is no earlier number.
    let mut status = keyless();
    status.conditions.iter_mut().for_each(|it| it.observed_generation = Some(1));
    let first = |scene: Scene| Scene { generation: 1, ..scene };
    let found = one_by_one(status, vec![first(older()), first(newer())]);
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
        assert_eq!(found, [&*lacks, "True/Ready 4", "True/Ready 4"]);
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
        assert_eq!(message.contains("keys that were taken back still hold"), is_of_before, "{message}");
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
