//! What clients use of a server that works, whatever is wrong with its manifest or with what that names.

use super::keyless::after_no_keys;
use super::*;
use crate::view::Told;

/// What was said before: that it was ready; that it worked, and nobody could use it; that it was away; nothing.
fn befores() -> [Option<McpServerStatus>; 4] {
    let unready = |also: &[ConditionType]| {
        let mut status = was_ready();
        let names: Vec<_> = also.iter().chain([&ConditionType::Ready]).map(|type_| type_.name()).collect();
        for condition in status.conditions.iter_mut().filter(|it| names.contains(&&*it.type_)) {
            condition.status = Truth::False.name().to_owned();
        }
        status
    };
    [Some(was_ready()), Some(unready(&[])), Some(unready(&[ConditionType::Connected])), None]
}

/// The condition after each of these.
pub(super) fn ready_after(scene: impl Fn() -> Scene) -> [Condition; 4] {
    befores().map(|before| {
        let scene = Scene { previous: before, ..scene() };
        let status = scene.status();
        let ready = of(&status, ConditionType::Ready).clone();
        let again = of(&scene.after(&status).status(), ConditionType::Ready).clone();
        if ready.status == "True" {
            assert_eq!(again, ready, "it stands still");
        }
        ready
    })
}

pub(super) fn words(ready: &Condition) -> String {
    format!("{}/{} {}", ready.status, ready.reason, ready.observed_generation.unwrap())
}

pub(super) fn unreachable(pod: PodView) -> PodFacts {
    PodFacts { report: Report::Unreachable("refused".to_owned()), ..silent(pod) }
}

/// What is said after each of these, one after the other.
pub(super) fn one_by_one(mut status: McpServerStatus, scenes: Vec<Scene>) -> Vec<String> {
    let next = |scene: Scene| {
        status = scene.after(&status).status();
        words(of(&status, ConditionType::Ready))
    };
    scenes.into_iter().map(next).collect()
}

/// Of a sidecar that runs the previous configuration.
pub(super) fn running(error: Option<&str>, callers: Option<bool>) -> Summary {
    let (digest, error) = ("sha256:old".to_owned(), error.map(str::to_owned));
    Summary { config: ConfigState { digest, generation: 3, error, callers }, ..summary() }
}

#[test]
fn what_pods_are_and_run_is_what_clients_use() {
    let running = |error| running(error, None);
    let now = || vec![said(ready(pod("new")), summary())];
    let behind = || vec![said(ready(pod("new")), running(None))];
    let refuses = || vec![said(ready(pod("new")), running(Some("no such field")))];
    let older = || vec![said(ready(pod("old")), summary())];
    let older_behind = || vec![said(ready(pod("old")), running(None))];
    let one_unheard = || {
        vec![
            said(ready(pod("old")), summary()),
            unreachable(PodView { uid: "u".into(), ..ready(pod("old")) }),
        ]
    };
    let (missing, invalid, rejected) =
        (Some(Reason::ServiceAccountNotFound), Some(Reason::Invalid), Some(Reason::Rejected));
    let (now_but, in_part) = (
        "clients can use the server, but x",
        "clients can use the server, but not all of the last change is in force: x",
    );
    let pods = "clients still use pods from before the last change, with the new auth, access and limits: ";
    let all = "clients use the server as it was before the last change: ";
    let (is_now, is_before) = ("True/Ready 4", "True/ServingPrevious 3");
    // The first word has no number of before.
    let (pending, first) = ("False/ConfigurationPending 3", "False/ConfigurationPending 4");
    for (name, problem, pods, words_of, expected) in [
        // Where it was ready before; worked, and was not; was away; was not known.
        ("all is well", None, now(), "clients can use the server", [is_now; 4]),
        ("what pods need is missing", missing, now(), now_but, [is_now; 4]),
        ("a value cannot be used", invalid, now(), in_part, [is_before, is_before, is_before, is_now]),
        ("an object is refused", rejected, now(), in_part, [is_before, is_before, is_before, is_now]),
        ("the configuration is on its way", None, behind(), all, [is_before, pending, pending, first]),
        (
            "it is, and what pods need is missing",
            missing,
            behind(),
            all,
            [is_before, pending, pending, first],
        ),
        ("it is refused", rejected, behind(), all, [is_before, "False/Rejected 3", is_before, is_before]),
        (
            "the sidecar refuses it",
            None,
            refuses(),
            all,
            [
                "True/ConfigurationRefused 3",
                "False/ConfigurationRefused 3",
                "True/ConfigurationRefused 3",
                "True/ConfigurationRefused 3",
            ],
        ),
        ("pods from before", None, older(), pods, [is_before; 4]),
        ("pods from before, and what others need is missing", missing, older(), pods, [is_before; 4]),
        (
            "pods from before, and one cannot be asked",
            missing,
            one_unheard(),
            all,
            [is_before, "False/ServiceAccountNotFound 3", is_before, is_before],
        ),
        (
            "pods from before with the previous configuration",
            None,
            older_behind(),
            all,
            [is_before, "False/RollingOut 3", is_before, is_before],
        ),
    ] {
        let found = ready_after(|| {
            let mut scene = Scene::of(pods.clone());
            scene.problems = problem.map(|reason| Problem::new(reason, "x")).into_iter().collect();
            scene
        });
        assert_eq!(found.each_ref().map(words), expected, "{name}");
        assert!(found[0].message.starts_with(words_of), "{name}: {}", found[0].message);
    }
}

/// The running pods have an empty list of keys by then, or will in a moment.
#[test]
fn a_server_that_lets_nobody_in_is_not_ready_whatever_it_was() {
    let at_once = "clients use the server as it was before the last change, or as it is now: ";
    let ada = || Some(vec!["ada".to_owned()]);
    let problem = |reason| vec![Problem::new(reason, "x")];
    let taken_words =
        "a Service with the server's name belongs to something else, and clients would send their keys there";
    let and_words = &*format!("{taken_words}; x");
    for (principals, address, problems, words_of, reason) in [
        (Some(vec![]), address(None), problem(Reason::SecretNotFound), "x", "SecretNotFound"),
        (ada(), Address::Taken, problem(Reason::NameTaken), and_words, "NameTaken"),
        // The edit of its manifest meets a request that fails.
        (ada(), Address::Taken, vec![], taken_words, "NameTaken"),
    ] {
        let older = || vec![said(ready(pod("old")), summary()), silent(pod("new"))];
        for (name, pods) in [
            ("it is heard", vec![said(ready(pod("new")), summary())]),
            ("it is not heard yet", vec![silent(ready(pod("new")))]),
            ("it cannot be heard", vec![unreachable(ready(pod("new")))]),
            ("its pods are of before", older()),
            ("there is none", vec![]),
        ] {
            let found = ready_after(|| {
                let mut scene = Scene::of(pods.clone());
                scene.problems.clone_from(&problems);
                scene.principals.clone_from(&principals);
                scene.address = address.clone();
                scene
            });
            let expected = [3, 3, 3, 4].map(|generation| format!("False/{reason} {generation}"));
            assert_eq!(found.each_ref().map(words), expected, "{name}");
            assert!(found.iter().all(|it| it.message == words_of), "{name}: {found:?}");
        }
    }
    // Keys are there again, and nobody will hear of its sidecar that it has them.
    let keyless = after_no_keys(vec![said(ready(pod("new")), summary())]);
    let with_keys = |pods| Scene { principals: ada(), ..Scene::of(pods) };
    let unheard = || with_keys(vec![unreachable(ready(pod("new")))]);
    let [.., away, _] = ready_after(unheard);
    let could_not = of(&unheard().after(&keyless).status(), ConditionType::Ready).clone();
    assert_eq!(
        (words(&could_not), &could_not.message[..at_once.len()]),
        ("True/ServingPrevious 3".to_owned(), at_once)
    );
    assert_eq!(words(&away), "False/SidecarUnreachable 3");
    // Also where the operator has just started, and has yet to find that it cannot hear it.
    let status = with_keys(vec![silent(ready(pod("new")))]).after(&keyless).status();
    assert_eq!(words(of(&status, ConditionType::Ready)), "False/ConfigurationPending 3");
    let status = unheard().after(&status).status();
    assert_eq!(words(of(&status, ConditionType::Ready)), "True/ServingPrevious 3");
    // Nobody can say that they are, and nothing else is known to have let anybody in.
    let [could, could_not, ..] = ready_after(|| {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
        scene.desired = None;
        scene.problems = vec![Problem::new(Reason::Unreadable, "x")];
        scene
    });
    assert_eq!([&could, &could_not].map(words), ["True/ServingPrevious 3", "False/Unreadable 3"]);
}

/// Nothing that was said before is needed to know it, so another operator says the same.
#[test]
fn a_server_without_a_service_is_not_reached_whatever_else_is_wrong() {
    let heard = || said(ready(pod("new")), running(None, Some(true)));
    let lost = || said(pod("new"), failed(ConnectionReason::ConnectionLost, "gone"));
    let no_service = "the server has no Service: the API server has not accepted one yet";
    for (address, reason, words_of) in [
        (Address::Taken, Reason::NameTaken, "a Service with the server's name belongs to something else"),
        (Address::Missing, Reason::Rejected, no_service),
    ] {
        for (problem, desired) in [
            // A request for it fails, and no longer than for a moment.
            (None, Some(desired())),
            (Some(Reason::ConfigMapNotFound), Some(desired())),
            // Or of it, or of something else.
            (Some(Reason::Rejected), Some(desired())),
            (Some(Reason::NameTaken), Some(desired())),
            // Nothing of the manifest is applied: nobody makes the Service again.
            (Some(Reason::Invalid), None),
            (Some(Reason::Malformed), None),
            (Some(Reason::Unreadable), None),
        ] {
            for pods in [vec![heard()], vec![silent(ready(pod("new")))], vec![lost()], vec![]] {
                let found = ready_after(|| Scene {
                    address: address.clone(),
                    problems: problem.map(|reason| Problem::new(reason, "x")).into_iter().collect(),
                    desired: desired.clone(),
                    ..Scene::of(pods.clone())
                });
                let is_unreached =
                    |it: &Condition| words(it).starts_with(&format!("False/{} ", reason.name()));
                assert!(found.iter().all(is_unreached), "{address:?} {problem:?}: {found:?}");
                assert!(found[0].message.starts_with(words_of), "{}", found[0].message);
            }
        }
    }
    let own = || Scene::of(vec![said(ready(pod("new")), summary())]);
    let missing = || Scene { address: Address::Missing, ..own() };
    assert_eq!(missing().after(&was_ready()).status().url, None);
    assert_eq!(one_by_one(was_ready(), vec![missing(), own()]), ["False/Rejected 3", "True/Ready 4"]);
    // Nothing was taken of a new one, perhaps for reasons of its own: it has no pods that a Service could lead to.
    let new = |reason, desired| Scene {
        address: Address::Unmade,
        problems: vec![Problem::new(reason, "x")],
        desired,
        ..Scene::of(vec![])
    };
    for reason in [Reason::Rejected, Reason::NameTaken] {
        let status = new(reason, Some(desired())).status();
        assert_eq!(one_by_one(status, vec![new(Reason::Invalid, None)]), ["False/Invalid 4"]);
    }
}

#[test]
fn a_change_that_is_not_taken_yet_is_not_in_force_before_it_is() {
    let works = || Scene::of(vec![said(ready(pod("new")), summary())]);
    let yet = || Scene { unapplied: unapplied("Service"), ..works() };
    let refused = || Scene { problems: vec![Problem::new(Reason::Rejected, "x")], ..yet() };
    let unheard = || Scene { pods: vec![unreachable(ready(pod("new")))], ..yet() };
    let is_before = "True/ServingPrevious 3";
    let found = one_by_one(was_ready(), vec![yet(), yet(), unheard(), refused(), yet(), works()]);
    assert_eq!(found, [is_before, is_before, is_before, is_before, is_before, "True/Ready 4"]);
    let status = yet().after(&was_ready()).status();
    let message = &of(&status, ConditionType::Ready).message;
    let words = "clients can use the server, but not all of the last change is in force: the API server has not taken \
                 Service tools/github yet";
    assert_eq!(message, words);
    assert!(find(&status.conditions, ConditionType::Reconciling).is_some());
    // Where nothing was changed, nothing is of before.
    let found = one_by_one(works().status(), vec![yet(), refused(), works()]);
    assert_eq!(found, ["True/Ready 4"; 3]);
}

/// Nobody knows whether such a one goes on with revoked rules and keys.
#[test]
fn a_change_is_in_force_once_the_sidecars_of_which_nothing_is_heard_have_it_too() {
    let heard = || said(ready(pod("new")), summary());
    let with = |other: Option<&PodFacts>| Scene::of([heard()].into_iter().chain(other.cloned()).collect());
    // Seen at second 1010.
    let other = |since: i64| {
        let told = Some(Told { digest: WANTED.to_owned(), since });
        PodView { uid: "other".to_owned(), told, ..ready(pod("new")) }
    };
    let (long, lately) = (1010 - 120, 1010 - 119);
    let (is_before, is_now) = ("True/ServingPrevious 3", "True/Ready 4");
    for (name, other, expected) in [
        ("it was never told", unreachable(PodView { told: None, ..other(0) }), is_before),
        ("it was told lately", unreachable(other(lately)), is_before),
        ("it was told long ago", unreachable(other(long)), is_now),
        ("it may soon say what it runs", silent(other(long)), is_before),
        ("it does not serve", unreachable(PodView { ready: false, ..other(lately) }), is_now),
        ("it ends", unreachable(PodView { ending: true, ..other(lately) }), is_now),
    ] {
        let scenes = vec![with(Some(&other)), with(Some(&other)), with(None), with(Some(&other))];
        // What was in force stays so, whoever is not heard any more.
        assert_eq!(one_by_one(was_ready(), scenes), [expected, expected, is_now, is_now], "{name}");
        let status = with(Some(&other)).after(&was_ready()).status();
        let message = &of(&status, ConditionType::Ready).message;
        assert_eq!(
            message.contains("one of the sidecars has not answered"),
            expected == is_before,
            "{message}"
        );
    }
}

#[test]
fn a_crash_puts_nothing_in_force_that_is_refused() {
    for reason in [Reason::Invalid, Reason::Rejected] {
        let scene = |summary| {
            let mut scene = Scene::of(vec![said(ready(pod("new")), summary)]);
            scene.problems = vec![Problem::new(reason, "x")];
            scene
        };
        let works = || scene(summary());
        let lost = || {
            let mut scene = scene(failed(ConnectionReason::ConnectionLost, "gone"));
            scene.pods = vec![said(pod("new"), failed(ConnectionReason::ConnectionLost, "gone"))];
            scene
        };
        let crash = || vec![works(), lost(), lost(), works(), works()];
        let (is_before, is_lost) = ("True/ServingPrevious 3", &*format!("False/{} 3", reason.name()));
        assert_eq!(one_by_one(was_ready(), crash()), [is_before, is_lost, is_lost, is_before, is_before]);
        assert!(lost().after(&was_ready()).status().conditions.iter().all(|it| it.type_ != "Reconciling"));
        // What was in force before it was refused, still is.
        let mut taken = was_ready();
        taken.conditions.iter_mut().for_each(|it| it.observed_generation = Some(4));
        let (is_now, is_lost) = ("True/Ready 4", &*format!("False/{} 4", reason.name()));
        assert_eq!(one_by_one(taken, crash()), [is_now, is_lost, is_lost, is_now, is_now]);
    }
}

/// A sidecar says when its configuration changed last, and much else may have since.
#[test]
fn a_crash_takes_nothing_out_of_force() {
    let now = || summary().config;
    let later = || running(None, Some(true)).config;
    let behind = || ConfigState { generation: 2, ..later() };
    for (reason, desired, before, template, config, generation) in [
        (Reason::Unreadable, None, 4, "new", now(), 4),
        (Reason::Unreadable, None, 4, "new", behind(), 4),
        (Reason::Unreadable, None, 3, "new", behind(), 3),
        // Pods from before run the configuration of the newest manifest.
        (Reason::Unreadable, None, 3, "old", now(), 3),
        (Reason::Malformed, None, 4, "new", behind(), 4),
        (Reason::Rejected, Some(desired()), 3, "new", behind(), 3),
        (Reason::Invalid, Some(desired()), 2, "old", now(), 2),
        (Reason::Invalid, Some(desired()), 2, "old", behind(), 2),
        (Reason::Invalid, Some(desired()), 2, "old", later(), 2),
    ] {
        let scene = |pod, summary| Scene {
            desired: desired.clone(),
            problems: vec![Problem::new(reason, "x")],
            ..Scene::of(vec![said(pod, Summary { config: config.clone(), ..summary })])
        };
        let works = || scene(ready(pod(template)), summary());
        let lost = || scene(pod(template), failed(ConnectionReason::ConnectionLost, "gone"));
        let mut status = was_ready();
        status.conditions.iter_mut().for_each(|it| it.observed_generation = Some(before));
        let found = one_by_one(status, vec![works(), lost(), lost(), works(), works()]);
        let is_before = format!("True/ServingPrevious {generation}");
        let is_lost = format!("False/{} {generation}", reason.name());
        let expected = [&is_before, &is_lost, &is_lost, &is_before, &is_before];
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
}

/// Its pods never came to serve, so it is not the number of the configuration that tells what is in force.
#[test]
fn nothing_that_ends_puts_a_version_in_force_that_never_ran() {
    let (whole, unreadable) = (|| Some(desired()), || None);
    let scene = |desired: Option<Desired>, pod, summary| Scene {
        problems: if desired.is_some() { vec![] } else { vec![Problem::new(Reason::Unreadable, "x")] },
        desired,
        ..Scene::of(vec![said(pod, summary)])
    };
    let works = |desired| scene(desired, ready(pod("old")), summary());
    let lost = |desired| scene(desired, pod("old"), failed(ConnectionReason::ConnectionLost, "gone"));
    let no_keys = |desired| Scene {
        principals: Some(vec![]),
        problems: vec![Problem::new(Reason::SecretNotFound, "x")],
        ..works(desired)
    };
    for before in [3, 2] {
        let mut status = was_ready();
        status.conditions.iter_mut().for_each(|it| it.observed_generation = Some(before));
        for crash in [
            vec![works(unreadable()), lost(unreadable()), lost(unreadable()), works(unreadable())],
            vec![lost(whole()), lost(whole()), works(unreadable())],
            vec![lost(whole()), lost(unreadable()), lost(whole()), works(whole())],
            vec![lost(whole()), lost(whole()), works(whole())],
            vec![no_keys(whole()), no_keys(unreadable()), works(whole())],
            vec![no_keys(whole()), no_keys(whole()), works(unreadable())],
        ] {
            let mut scenes = vec![works(whole())];
            scenes.extend(crash);
            scenes.push(works(whole()));
            let found = one_by_one(status.clone(), scenes);
            let number = format!(" {before}");
            assert!(found.iter().all(|words| words.ends_with(&number)), "{found:?}");
            assert_eq!(found.last().unwrap(), &format!("True/ServingPrevious {before}"));
        }
    }
}

/// It lets in as many as before: nothing is worse while a change is on its way.
#[test]
fn a_change_takes_nothing_from_a_server_of_which_nobody_is_to_have_a_key() {
    let scene =
        |pod, summary| Scene { principals: Some(vec![]), ..Scene::of(vec![said(ready(pod), summary)]) };
    let scenes = vec![
        scene(pod("old"), running(None, Some(false))),
        scene(pod("old"), summary()),
        scene(pod("new"), summary()),
    ];
    let is_before = "True/ServingPrevious 3";
    assert_eq!(one_by_one(was_ready(), scenes), [is_before, is_before, "True/Ready 4"]);
}
