//! Manifests that break a rule, or name what is not there.

use super::*;

#[test]
fn nothing_is_made_of_a_manifest_that_breaks_a_rule() {
    for (field, value, complaint) in [
        ("transport", json!({}), "spec.transport: "),
        ("transport.streamableHttp.port", json!(15381), "spec.transport.streamableHttp.port: "),
        ("transport.streamableHttp.path", json!("mcp"), "spec.transport.streamableHttp.path: "),
        ("transport", json!({"sse": {"port": 15381}}), "spec.transport.sse.port: "),
        (
            "transport",
            json!({"sse": {"port": 1, "path": "sse"}}),
            "spec.transport.sse.path: write a path that begins with `/`, without a query, spaces and quotes, such as `/sse`",
        ),
        ("transport", json!({"sse": {"port": 1}, "streamableHttp": {"port": 1}}), "spec.transport: "),
        ("auth", json!({}), "spec.auth: "),
        ("auth", json!({"none": {}, "apiKeys": {"secretRef": {"name": "x"}}}), "spec.auth: "),
        ("access", json!({"rules": [{"name": "", "tools": ["x"]}]}), "spec.access.rules[0].name: "),
        ("limits", json!({"requestBytes": "many"}), "spec.limits.requestBytes: "),
        ("limits", json!({"requestTimeout": "1d"}), "spec.limits.requestTimeout: "),
        ("limits", json!({"requestTimeout": "0s"}), "spec.limits.requestTimeout: "),
        ("sessions", json!({"maxAge": "0s"}), "spec.sessions.maxAge: "),
        ("sessions", json!({"resume": {"maxBytes": "x"}}), "spec.sessions.resume.maxBytes: "),
    ] {
        let problems = validate(&manifest(with(minimal(), field, value.clone())), &found()).unwrap_err();
        assert!(
            problems.len() == 1
                && problems[0].reason == Reason::Invalid
                && problems[0].message.starts_with(complaint),
            "{field}: {value}: {problems:?}"
        );
    }
    let mut unnameable = manifest(minimal());
    unnameable.metadata.name = Some("9-lives".to_owned());
    assert!(validate(&unnameable, &found()).unwrap_err()[0].message.starts_with("metadata.name: "));
}

#[test]
fn what_is_missing_is_named_and_holds_the_pod_back_alone() {
    let env = json!([{"name": "T", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}}]);
    let from = json!([{"configMapRef": {"name": "settings"}}]);
    let optional = json!([{"secretRef": {"name": "maybe", "optional": true}}]);
    let keys = json!({"apiKeys": {"secretRef": {"name": "keys"}}});
    let without_key = Lookup::Present { keys: BTreeSet::from(["other".to_owned()]).into() };
    for (field, value, lookups, expected) in [
        (
            "source.env",
            env.clone(),
            vec![],
            Some((Reason::SecretNotFound, "Secret tools/token, which spec.source.env[0]")),
        ),
        (
            "source.env",
            env.clone(),
            vec![((Kind::Secret, "token"), without_key)],
            Some((Reason::SecretKeyNotFound, "Secret tools/token has no key \"value\"")),
        ),
        (
            "source.envFrom",
            from,
            vec![],
            Some((Reason::ConfigMapNotFound, "ConfigMap tools/settings, which")),
        ),
        ("source.envFrom", optional, vec![], None),
        (
            "auth",
            keys.clone(),
            vec![],
            Some((
                Reason::SecretNotFound,
                "Secret tools/keys, which spec.auth.apiKeys.secretRef names, does not exist: create it (`longshore key \
                 new --secret keys --namespace tools | kubectl apply -f -` makes one)",
            )),
        ),
    ] {
        let mut found = found();
        found.objects =
            lookups.into_iter().map(|((kind, name), lookup)| ((kind, name.to_owned()), lookup)).collect();
        found.api_keys = ApiKeysLookup::Missing;
        let server = validate(&manifest(with(minimal(), field, value)), &found).unwrap();
        let resources = build(&server, &settings()).0;
        assert_eq!(resources.deployment.is_none(), expected.is_some(), "{field}");
        match (server.readiness.problems(), expected) {
            ([], None) => {}
            ([Problem { reason, message }], Some((expected, start))) => {
                assert_eq!(*reason, expected, "{message}");
                assert!(message.starts_with(start), "{message}");
            }
            (problems, expected) => panic!("{field}: {problems:?}, expected {expected:?}"),
        }
    }
    // Nobody but Longshore may use Longshore's own Secrets, not even optionally.
    let mut found = found();
    found.objects.insert((Kind::Secret, "token".to_owned()), Lookup::Reserved);
    let server = validate(&manifest(with(minimal(), "source.env", env)), &found).unwrap();
    assert_eq!(server.readiness.problems()[0].reason, Reason::SecretReserved);
    assert_eq!(build(&server, &settings()).0.deployment, None);
    let from = json!([{"configMapRef": {"name": "github-longshore-v2-0", "optional": true}}]);
    found.objects.insert((Kind::ConfigMap, "github-longshore-v2-0".to_owned()), Lookup::Reserved);
    let server = validate(&manifest(with(minimal(), "source.envFrom", from)), &found).unwrap();
    let [problem] = server.readiness.problems() else { panic!("{:?}", server.readiness) };
    assert_eq!(problem.reason, Reason::ConfigMapReserved);
    assert!(problem.message.contains("ConfigMap tools/github-longshore-v2-0 is Longshore's own"));
    assert_eq!(build(&server, &settings()).0.deployment, None);
    found.api_keys = ApiKeysLookup::Reserved;
    let server = validate(&manifest(with(minimal(), "auth", keys)), &found).unwrap();
    assert_eq!(server.readiness.problems()[0].reason, Reason::SecretReserved);
    assert_eq!(build(&server, &settings()).0.deployment, None);
}

#[test]
fn what_cannot_be_read_holds_the_pod_back_and_nothing_is_made_of_keys_that_cannot() {
    let words = "secrets \"it\" is forbidden".to_owned();
    let mut found = found();
    found.objects.insert((Kind::Secret, "it".to_owned()), Lookup::Unreadable(words.clone()));
    for optional in [false, true] {
        let from = json!([{"secretRef": {"name": "it", "optional": optional}}]);
        let server = validate(&manifest(with(minimal(), "source.envFrom", from)), &found).unwrap();
        let [problem] = server.readiness.problems() else { panic!("{:?}", server.readiness) };
        assert_eq!(problem.reason, Reason::Unreadable);
        let start = "Secret tools/it, which spec.source.envFrom[0].secretRef names, cannot be read, ";
        assert!(problem.message.starts_with(start) && problem.message.contains(&words), "{problem:?}");
        assert_eq!(build(&server, &settings()).0.deployment, None);
    }
    found.api_keys = ApiKeysLookup::Unreadable(words);
    let keys = json!({"apiKeys": {"secretRef": {"name": "keys"}}});
    let problems = validate(&manifest(with(minimal(), "auth", keys)), &found).unwrap_err();
    assert_eq!(problems.iter().map(|problem| problem.reason).collect::<Vec<_>>(), [Reason::Unreadable]);
}

/// What serves goes on to be reached, whatever a change of its manifest says.
#[test]
fn what_its_service_may_not_have_reaches_no_service_that_is_there() {
    let keys = json!({
        "service.kubernetes.io/headless": "", "service.kubernetes.io/service-proxy-name": "x",
        "longshore.dev/x": "", "example.com/team": "x",
    });
    let service = json!({"labels": keys, "annotations": keys});
    let server =
        validate(&manifest(with(minimal(), "expose", json!({"service": service}))), &found()).unwrap();
    assert_eq!(server.readiness.problems().len(), 4, "{:?}", server.readiness);
    let resources = build(&server, &settings()).0;
    assert_eq!(resources.deployment, None);
    let mut expected = labels();
    expected["example.com/team"] = json!("x");
    let made = serde_json::to_value(resources.service.metadata).unwrap();
    assert_eq!(made["labels"], expected);
    assert_eq!(
        made["annotations"],
        json!({
            "service.kubernetes.io/headless": "", "service.kubernetes.io/service-proxy-name": "x",
            "example.com/team": "x",
        })
    );
}
