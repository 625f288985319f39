//! What clients use of a server that works, whatever is wrong with its manifest or with what that names.

use super::*;

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
fn ready_after(scene: impl Fn() -> Scene) -> [Condition; 4] {
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

fn words(ready: &Condition) -> String {
    format!("{}/{} {}", ready.status, ready.reason, ready.observed_generation.unwrap())
}

fn unreachable(pod: PodView) -> PodFacts {
    PodFacts { report: Report::Unreachable("refused".to_owned()), ..silent(pod) }
}

#[test]
fn what_pods_are_and_run_is_what_clients_use() {
    let running = |error: Option<&str>| {
        let digest = "sha256:old".to_owned();
        Summary {
            config: ConfigState { digest, generation: 3, error: error.map(str::to_owned), callers: None },
            ..summary()
        }
    };
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
    let pods = "clients still use pods of before the last change, with the auth, access and limits of now: ";
    let all = "clients use the server as it was before the last change: ";
    let (is_now, is_before) = ("True/Ready 4", "True/ServingPrevious 3");
    for (name, problem, pods, words_of, expected) in [
        // Where it was ready before; worked, and was not; was away; was not known.
        ("all is well", None, now(), "clients can use the server", [is_now; 4]),
        ("what pods need is missing", missing, now(), now_but, [is_now; 4]),
        ("a value cannot be used", invalid, now(), in_part, [is_before, is_now, is_now, is_now]),
        ("an object is refused", rejected, now(), in_part, [is_before, is_now, is_now, is_now]),
        (
            "the configuration is on its way",
            None,
            behind(),
            all,
            [
                is_before,
                "False/ConfigurationPending 4",
                "False/ConfigurationPending 4",
                "False/ConfigurationPending 4",
            ],
        ),
        (
            "it is, and what pods need is missing",
            missing,
            behind(),
            all,
            [
                is_before,
                "False/ConfigurationPending 4",
                "False/ConfigurationPending 4",
                "False/ConfigurationPending 4",
            ],
        ),
        ("it is refused", rejected, behind(), all, [is_before, "False/Rejected 4", is_before, is_before]),
        (
            "the sidecar refuses it",
            None,
            refuses(),
            all,
            [
                "True/ConfigurationRefused 3",
                "False/ConfigurationRefused 4",
                "True/ConfigurationRefused 3",
                "True/ConfigurationRefused 3",
            ],
        ),
        ("pods of before", None, older(), pods, [is_before; 4]),
        ("pods of before, and what others need is missing", missing, older(), pods, [is_before; 4]),
        (
            "pods of before, and one cannot be asked",
            missing,
            one_unheard(),
            all,
            [is_before, "False/ServiceAccountNotFound 4", is_before, is_before],
        ),
        (
            "pods of before with the configuration of before",
            None,
            older_behind(),
            all,
            [is_before, "False/RollingOut 4", is_before, is_before],
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
    let at_once = "clients can use the server";
    let (no_keys, taken) = (
        (Some(vec![]), address(None), Reason::SecretNotFound),
        (Some(vec!["ada".to_owned()]), Address::Taken, Reason::NameTaken),
    );
    for (principals, address, reason) in [no_keys, taken] {
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
                scene.problems = vec![Problem::new(reason, "x")];
                scene.principals.clone_from(&principals);
                scene.address = address.clone();
                scene
            });
            let expected = format!("False/{} 4", reason.name());
            assert!(found.iter().all(|it| words(it) == expected && it.message == "x"), "{name}: {found:?}");
        }
    }
    // Keys are there again, and nobody will hear of its sidecar that it has them.
    let [_, could_not, away, _] = ready_after(|| Scene::of(vec![unreachable(ready(pod("new")))]));
    assert_eq!(
        (words(&could_not), &could_not.message[..at_once.len()]),
        ("True/Ready 4".to_owned(), at_once)
    );
    assert_eq!(words(&away), "False/SidecarUnreachable 4");
    // Nobody can say that they are, and nothing else is known to have let anybody in.
    let [could, could_not, ..] = ready_after(|| {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
        scene.desired = None;
        scene.problems = vec![Problem::new(Reason::Unreadable, "x")];
        scene
    });
    assert_eq!([&could, &could_not].map(words), ["True/ServingPrevious 3", "False/Unreadable 4"]);
}
