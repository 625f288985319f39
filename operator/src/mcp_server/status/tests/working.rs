//! A server that works, and what is said beside that.

use super::*;

#[test]
fn what_a_stdio_server_prints_beside_its_messages_is_shown_and_harms_nothing() {
    let noisy = Summary { noise: Some("Starting...".to_owned()), ..summary() };
    let status = Scene::of(vec![said(ready(pod("new")), noisy)]).status();
    let connected = find(&status.conditions, ConditionType::Connected).unwrap();
    assert_eq!(
        (connected.status.as_str(), connected.message.as_str()),
        (
            "True",
            "the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools; its stdout also has lines that are no messages and \
             are dropped, let it log to stderr instead: Starting..."
        )
    );
    assert_eq!(find(&status.conditions, ConditionType::Ready).unwrap().status, "True");
}

#[test]
fn a_server_that_works_is_described_in_full() {
    let status = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let value = serde_json::to_value(&status).unwrap();
    let condition = |type_: &str, reason: &str, message: &str| {
        serde_json::json!({
            "type": type_, "status": "True", "reason": reason, "message": message, "observedGeneration": 4,
            "lastTransitionTime": "1970-01-01T00:16:40Z",
        })
    };
    assert_eq!(
        value,
        serde_json::json!({
            "observedGeneration": 4, "replicas": 1, "readyReplicas": 1,
            "selector": "longshore.dev/server=github", "url": "http://github.tools.svc/mcp",
            "serverInfo": {"name": "octo", "version": "1.2"}, "protocolVersions": ["2026-07-28", "2025-11-25"], "capabilities": ["tools"],
            "tools": {"count": 2, "digest": "sha256:tools", "names": ["get", "list"]},
            "conditions": [
                condition("Accepted", "Accepted", "the manifest is in order and every Secret, ConfigMap and ServiceAccount that it needs exists"),
                condition("Available", "Serving", "the pod serves"),
                condition("Connected", "Connected", "the server answers, speaks 2026-07-28, 2025-11-25 and has 2 tools"),
                condition("Isolated", "LoopbackOnly", "nothing but the sidecar listens on the pod's address"),
                condition("Published", "Published", "the catalog lists the server"),
                condition("Ready", "Ready", "clients can use the server"),
            ],
        })
    );
}

/// Deny by default is no failure, and still not what anybody wants to find out from a client.
#[test]
fn a_server_that_nobody_may_call_is_ready_and_said_to_be_so() {
    let none = "no rule permits anything to anybody: write one in spec.access.rules";
    let unmatched =
        "no rule of spec.access.rules names any of its tools, so none may be called: it has get, list";
    let many = |count: u32| Summary { tools: ToolsSummary { count, ..summary().tools }, ..summary() };
    for (access, said_by, words) in [
        (json!([]), summary(), Some(none)),
        (json!([{"name": "a", "tools": ["got"]}]), summary(), Some(unmatched)),
        (
            json!([{"name": "a", "tools": ["got"]}, {"name": "b", "tools": ["[a-f]*"]}]),
            summary(),
            Some(unmatched),
        ),
        (json!([{"name": "a", "tools": ["got"]}, {"name": "b", "tools": ["{get,put}"]}]), summary(), None),
        (json!([{"name": "a", "tools": ["*"]}]), summary(), None),
        (json!([{"name": "a", "prompts": ["x"]}]), summary(), None),
        // Not all of them are known by name.
        (json!([{"name": "a", "tools": ["got"]}]), many(99), None),
        (
            json!([{"name": "a", "tools": ["got"]}]),
            Summary { tools: ToolsSummary::default(), ..summary() },
            None,
        ),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), said_by)]);
        scene.access = rules(&access);
        let status = scene.status();
        let ready = of(&status, ConditionType::Ready);
        assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("True", "Ready"));
        match words {
            Some(words) => assert!(ready.message.contains(words), "{access}: {}", ready.message),
            None => assert_eq!(ready.message, "clients can use the server", "{access}"),
        }
    }
}

/// A key of `default` and a rule for `alice` is what a first manifest often has.
#[test]
fn rules_that_are_for_no_caller_are_said_to_permit_nothing() {
    let for_alice = || json!([{"name": "a", "principals": ["al*"], "tools": ["*"]}]);
    let keys = "no rule of spec.access.rules is for a principal that has a key, so nobody may call anything: those are ";
    for (access, principals, words) in [
        (for_alice(), Some(&["default", "job"][..]), Some(format!("{keys}default, job"))),
        (for_alice(), Some(&["a", "b", "c", "d"]), Some(format!("{keys}a, b, c, …"))),
        (
            for_alice(),
            Some(&["anonymous"]),
            Some(
                "no rule of spec.access.rules is for the principal anonymous, which everybody is by spec.auth.none, so \
                 nobody may call anything: name it, or leave principals out"
                    .to_owned(),
            ),
        ),
        // Rules for prompts are for callers, too.
        (
            json!([{"name": "a", "principals": ["alice"], "prompts": ["*"]}]),
            Some(&["default"]),
            Some(format!("{keys}default")),
        ),
        // One for those who call, and it names no tool.
        (
            json!([
                {"name": "a", "principals": ["alice"], "tools": ["*"]},
                {"name": "b", "principals": ["default"], "tools": ["got"]},
            ]),
            Some(&["default"]),
            Some(
                "no rule of spec.access.rules that is for its callers names any of its tools, so none may be called: it \
                 has get, list"
                    .to_owned(),
            ),
        ),
        (for_alice(), Some(&["alice", "default"]), None),
        (json!([{"name": "a", "tools": ["*"]}]), Some(&["default"]), None),
        (for_alice(), None, None),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
        scene.access = rules(&access);
        scene.principals =
            principals.map(|principals| principals.iter().map(|one| (*one).to_owned()).collect());
        let message = of(&scene.status(), ConditionType::Ready).message.clone();
        let expected = words.map_or("clients can use the server".to_owned(), |words| {
            format!("clients can use the server, but {words}")
        });
        assert_eq!(message, expected, "{access}");
    }
}

#[test]
fn tools_that_are_all_hidden_are_said_to_be_so() {
    let hides = |hidden_tools: usize| Summary { tools: ToolsSummary::default(), hidden_tools, ..summary() };
    let all = json!([{"name": "a", "tools": ["*"]}]);
    let of_prompts = json!([{"name": "a", "tools": ["*"], "prompts": ["*"]}]);
    for (access, said_by, words) in [
        (&all, hides(3), ", but spec.tools hides all 3 of its tools, so none may be called"),
        (&all, hides(1), ", but spec.tools hides its only tool, so none may be called"),
        (&all, hides(0), ""),
        (&all, Summary { hidden_tools: 3, ..summary() }, ""),
        (&of_prompts, hides(3), ""),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), said_by)]);
        scene.access = rules(access);
        let message = of(&scene.status(), ConditionType::Ready).message.clone();
        assert_eq!(message, format!("clients can use the server{words}"));
    }
}

#[test]
fn what_a_sidecar_has_too_little_memory_for_is_said() {
    for (short, words) in [
        (Short::default(), ""),
        (
            Short { request_bytes: Some(13 << 20), sessions: Some(10_100) },
            ", but the sidecar has too little memory for requests of more than 13312Ki and refuses those: raise \
             spec.sidecar.resources.limits.memory, or lower spec.limits.requestBytes",
        ),
        (
            Short { sessions: Some(10_100), ..Short::default() },
            ", but the sidecar has too little memory for more than 10100 sessions of a pod and refuses those: raise \
             spec.sidecar.resources.limits.memory, or lower spec.sessions.total",
        ),
    ] {
        let scene = Scene::of(vec![said(ready(pod("new")), Summary { short, ..summary() })]);
        let message = of(&scene.status(), ConditionType::Ready).message.clone();
        assert_eq!(message, format!("clients can use the server{words}"));
    }
}

#[test]
fn times_of_transition_stay_while_nothing_changes() {
    let first = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let later = Scene::of(vec![said(ready(pod("new")), summary())]).after(&first);
    assert_eq!(later.status(), first);
    let lost = Scene::of(vec![said(ready(pod("new")), failed(ConnectionReason::ConnectionLost, "gone"))])
        .after(&first);
    let status = lost.status();
    assert_eq!(of(&status, ConditionType::Connected).last_transition_time.0.as_second(), 1010);
    assert_eq!(of(&status, ConditionType::Available).last_transition_time.0.as_second(), 1000);
    assert_eq!(of(&status, ConditionType::Ready).reason, "ConnectionLost");
    assert_eq!(status.tools, first.tools, "what the server has is still known while it is away");
    // Back a moment ago, and the kubelet has not heard yet that no clients are to be sent there.
    let back = Scene::of(vec![said(ready(pod("new")), on_trial("gone"))]).after(&status).status();
    let is = [ConditionType::Ready, ConditionType::Connected].map(|it| of(&back, it).reason.clone());
    assert_eq!(is, ["ConnectionLost", "ConnectionLost"]);
    // One that serves beside it speaks for the server.
    let pods = vec![said(ready(pod("old")), summary()), said(ready(pod("new")), on_trial("gone"))];
    assert_eq!(of(&Scene::of(pods).after(&first).status(), ConditionType::Ready).status, "True");
}

#[test]
fn a_server_that_listens_for_everybody_is_ready_and_said_to_be_exposed() {
    let exposed = vec![ExposedSocket { address: "0.0.0.0".to_owned(), port: 3000, uid: None }];
    let scene = Scene::of(vec![said(ready(pod("new")), Summary { exposed, ..summary() })]);
    assert_eq!(
        scene.conditions()[3..],
        ["Isolated=False/ListensBeyondLoopback", "Published=True/Published", "Ready=True/Ready"]
    );
    assert!(of(&scene.status(), ConditionType::Isolated).message.contains("0.0.0.0 port 3000"));
}

/// The kubelet says that it serves, so it does; but what the operator cannot know is said.
#[test]
fn a_sidecar_that_is_not_heard_any_more_is_said_to_be_so() {
    let unreachable =
        || PodFacts { pod: Arc::new(ready(pod("new"))), report: Report::Unreachable("timeout".to_owned()) };
    let first = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let served = |before: &McpServerStatus, facts: PodFacts| {
        let status = Scene::of(vec![facts]).after(before).status();
        let [connected, ready] = [ConditionType::Connected, ConditionType::Ready]
            .map(|type_| (of(&status, type_).reason.clone(), of(&status, type_).message.contains("timeout")));
        assert!(status.conditions.iter().all(|condition| condition.status == "True"));
        (connected, ready, of(&status, ConditionType::Ready).observed_generation.unwrap_or_default())
    };
    let words = |reason: &str, told: bool| (reason.to_owned(), told);
    assert_eq!(
        served(&first, unreachable()),
        (words("Degraded", true), words("Ready", true), 4),
        "nothing has changed since it was heard"
    );
    assert_eq!(
        served(&was_ready(), unreachable()),
        (words("Degraded", true), words("ServingPrevious", true), 3),
        "nobody knows whether it has the last change"
    );
    assert_eq!(
        served(&first, silent(ready(pod("new")))),
        (words("Connected", false), words("Ready", false), 4),
        "the operator has just started"
    );
}

/// An operator that has just started, and goes by what the one before it knew of the same server.
#[test]
fn a_sidecar_that_is_not_heard_yet_leaves_no_condition_without_words() {
    let first = Scene::of(vec![said(ready(pod("new")), summary())]).status();
    let unready = || {
        let mut status = first.clone();
        let ready = status.conditions.iter_mut().find(|it| it.type_ == ConditionType::Ready.name()).unwrap();
        ready.status = Truth::False.name().to_owned();
        (ready.reason, ready.message) = ("ConfigurationRefused".to_owned(), "no such field".to_owned());
        status
    };
    let unsaid = "the sidecar has not reported the server's state yet";
    for (before, connected, expected) in [
        (Some(first.clone()), "True", ("True", "Ready", "clients can use the server")),
        // What kept clients out may have gone, and may not.
        (Some(unready()), "True", ("False", "ConfigurationRefused", "no such field")),
        (None, "Unknown", ("False", "Connecting", unsaid)),
    ] {
        let mut scene = Scene::of(vec![silent(ready(pod("new")))]);
        scene.previous = before;
        let status = scene.status();
        assert_eq!(of(&status, ConditionType::Connected).status, connected);
        let ready = of(&status, ConditionType::Ready);
        assert_eq!((ready.status.as_str(), ready.reason.as_str(), ready.message.as_str()), expected);
    }
}

/// It is no news, and no event, to whoever takes over.
#[test]
fn a_server_that_was_lost_is_so_until_its_sidecar_is_heard() {
    let lost = failed(ConnectionReason::ConnectionLost, "the server does not answer");
    let lost = Scene::of(vec![said(ready(pod("new")), lost)]).status();
    assert_eq!(of(&lost, ConditionType::Connected).reason, "ConnectionLost");
    let serves = || Scene::of(vec![silent(ready(pod("new")))]);
    assert_eq!(serves().after(&lost).status(), lost);
    // It was never heard of one that did not serve.
    let never = Scene::of(vec![silent(pod("new"))]).status();
    let connected = of(&serves().after(&never).status(), ConditionType::Connected).reason.clone();
    assert_eq!(connected, "Connecting");
}

#[test]
fn messages_are_cut() {
    let mut scene = Scene::of(vec![]);
    scene.problems = vec![Problem::new(Reason::Invalid, "ä".repeat(2000))];
    let status = scene.status();
    let message = &of(&status, ConditionType::Accepted).message;
    assert!(message.len() <= LONGEST_MESSAGE && message.ends_with('…'));
}

/// Where a server is listed is nobody's trouble.
#[test]
fn being_in_no_catalog_takes_nothing_away() {
    for (publication, condition) in [
        (Publication::Published, "Published=True/Published"),
        (Publication::Withheld, "Published=False/NotPublished"),
        (Publication::NoCatalog, "Published=False/NoCatalog"),
        (Publication::Unreadable, "Published=Unknown/Malformed"),
    ] {
        let mut scene = Scene::of(vec![said(ready(pod("new")), summary())]);
        scene.publication = publication;
        assert_eq!(scene.conditions()[4..], [condition, "Ready=True/Ready"]);
    }
}

#[test]
fn what_a_mesh_listens_with_is_not_the_servers() {
    let socket = |port, uid| ExposedSocket { address: "0.0.0.0".to_owned(), port, uid };
    let proxy = |name: &str| OtherContainer { name: name.to_owned(), init: true, container: running() };
    let ambient = || [15001, 15006, 15008].map(|port| socket(port, Some(0))).to_vec();
    for (name, others, ambient, exposed, isolated) in [
        ("its proxy's", vec![proxy("istio-proxy")], false, vec![socket(15006, Some(1337))], "True"),
        ("another's", vec![proxy("linkerd-proxy")], false, vec![socket(4143, Some(2102))], "True"),
        (
            "beside the server's",
            vec![proxy("istio-proxy")],
            false,
            vec![socket(15006, Some(1337)), socket(3000, Some(7))],
            "False",
        ),
        ("a user of that number without a mesh", vec![], false, vec![socket(15006, Some(1337))], "False"),
        ("of whom it is not known", vec![proxy("istio-proxy")], false, vec![socket(15006, None)], "False"),
        ("a node's proxy's", vec![], true, ambient(), "True"),
        ("beside a node's proxy's", vec![], true, [ambient(), vec![socket(3000, Some(0))]].concat(), "False"),
        ("the same ports without a mesh", vec![], false, ambient(), "False"),
    ] {
        let pod = PodView { others, ambient, ..ready(pod("new")) };
        let scene = Scene::of(vec![said(pod, Summary { exposed, ..summary() })]);
        let status = scene.status();
        let condition = of(&status, ConditionType::Isolated);
        assert_eq!(condition.status, isolated, "{name}: {}", condition.message);
        assert!(!condition.message.contains("15006") || !name.contains("beside"), "{}", condition.message);
    }
}
