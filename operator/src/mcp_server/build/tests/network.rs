//! Who reaches what: the Services and the NetworkPolicy against the pods that they are about. A label or a port that does
//! not fit is an object that every API server takes, and that does nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;

#[test]
fn services_and_the_network_policy_are_about_the_pods_that_there_are_and_their_ports() {
    let deployment = built(minimal()).deployment.unwrap().spec.unwrap();
    let labels = deployment.template.metadata.unwrap().labels.unwrap();
    let containers = deployment.template.spec.unwrap().containers;
    let [sidecar, server] = &*containers else { panic!("{containers:?}") };
    let ports: BTreeMap<_, _> = sidecar
        .ports
        .iter()
        .flatten()
        .map(|port| (port.container_port, port.name.clone().unwrap()))
        .collect();
    assert_eq!(server.ports, None, "the server itself is nobody's");
    let are_theirs = |wanted: &BTreeMap<String, String>| {
        !wanted.is_empty() && wanted.iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let select = |selector: &LabelSelector| {
        selector.match_expressions.is_none() && selector.match_labels.as_ref().is_some_and(are_theirs)
    };
    let number = |port: &Option<IntOrString>| match port {
        Some(IntOrString::Int(number)) => *number,
        other => panic!("{other:?}"),
    };
    assert!(select(&deployment.selector));

    let Resources { service, peers, network_policy, .. } = built(minimal());
    for (service, expected) in [(service, &["mcp", "peers"][..]), (peers, &["peers"])] {
        let spec = service.spec.unwrap();
        assert!(spec.selector.as_ref().is_some_and(are_theirs), "{expected:?}");
        let targets: Vec<_> =
            spec.ports.iter().flatten().map(|port| &*ports[&number(&port.target_port)]).collect();
        assert_eq!(targets, expected);
    }

    let policy = network_policy.spec.unwrap();
    assert!(policy.pod_selector.as_ref().is_some_and(select));
    assert_eq!(policy.policy_types, Some(vec!["Ingress".to_owned()]));
    let mut opened = BTreeMap::new();
    for rule in policy.ingress.unwrap() {
        let from = rule.from.unwrap_or_default();
        let who = match &*from {
            [] => "everybody",
            // A selector of pods without one of namespaces is of the policy's own.
            [one] if one.namespace_selector.is_none() => {
                assert!(one.pod_selector.as_ref().is_some_and(select), "{one:?}");
                "the other pods"
            }
            [of_ours, others @ ..] if others.iter().all(|one| one.pod_selector.is_none()) => {
                assert!(
                    of_ours.namespace_selector.is_some() && of_ours.pod_selector.is_some(),
                    "{of_ours:?}"
                );
                assert!(others.iter().all(|one| one.namespace_selector.is_some()), "{others:?}");
                "the control plane and namespaces"
            }
            other => panic!("{other:?}"),
        };
        for port in rule.ports.unwrap() {
            assert_eq!((port.protocol.as_deref(), port.end_port), (Some("TCP"), None));
            opened.insert(&*ports[&number(&port.port)], who);
        }
    }
    let expected =
        [("admin", "the control plane and namespaces"), ("mcp", "everybody"), ("peers", "the other pods")];
    assert_eq!(opened, BTreeMap::from(expected));
}

#[test]
fn callers_may_be_those_of_some_namespaces_alone() {
    let from = [json!({"team": "agents"}), json!({"kubernetes.io/metadata.name": "gateway"})];
    let callers_from = from.iter().map(|labels| serde_json::from_value(labels.clone()).unwrap()).collect();
    let settings = Settings { callers_from, ..settings() };
    let policy =
        build(&validate(&manifest(minimal()), &found()).unwrap(), &settings).0.network_policy.spec.unwrap();
    let rule = serde_json::to_value(&policy.ingress.unwrap()[0]).unwrap();
    let peers = from.map(|labels| json!({"namespaceSelector": {"matchLabels": labels}}));
    assert_eq!(rule, json!({"ports": [{"protocol": "TCP", "port": 15380}], "from": peers}));
}

#[test]
fn labels_of_the_pods_are_on_what_is_made_for_their_sake() {
    let mut manifest = with(minimal(), "replicas", json!(2));
    manifest["pod"] = json!({"metadata": {
        "labels": {
            "cost-center": "42", "team": "pods",
            "service.kubernetes.io/service-proxy-name": "none", "istio.io/use-waypoint": "of-pods",
        },
        "annotations": {"note": "of pods"},
    }});
    manifest["expose"] = json!({"service": {"labels": {"team": "services"}}});
    let made = built(manifest);
    let labels = |of: Value| {
        let mut labels = of["metadata"]["labels"].clone();
        labels.as_object_mut().unwrap().retain(|key, _| !key.contains('/'));
        assert_eq!(
            of["metadata"]["labels"].as_object().unwrap().len() - labels.as_object().unwrap().len(),
            5
        );
        assert_eq!(of["metadata"]["annotations"]["note"], Value::Null);
        labels
    };
    let of_pods = json!({"cost-center": "42", "team": "pods"});
    for (object, expected) in [
        (serde_json::to_value(&made.service_account), &of_pods),
        (serde_json::to_value(&made.peers), &of_pods),
        (serde_json::to_value(&made.disruption_budget), &of_pods),
        (serde_json::to_value(&made.deployment), &of_pods),
        (serde_json::to_value(&made.service), &json!({"team": "services"})),
        // Whatever it says, these are in force.
        (serde_json::to_value(&made.secret), &json!({})),
        (serde_json::to_value(&made.config_maps[0]), &json!({})),
        (serde_json::to_value(&made.network_policy), &json!({})),
    ] {
        assert_eq!(&labels(object.unwrap()), expected);
    }
}

#[test]
fn what_the_manifest_says_of_the_service_is_beside_what_is_longshores() {
    let said = json!({"labels": {"team": "tools"}, "annotations": {"example.com/scheme": "internal"}});
    let Resources { service, peers, .. } = built(with(minimal(), "expose", json!({ "service": said })));
    let mut expected = metadata("github");
    expected["labels"]["team"] = json!("tools");
    expected["annotations"] = json!({"example.com/scheme": "internal"});
    assert_eq!(serde_json::to_value(service.metadata).unwrap(), expected);
    assert_eq!(
        serde_json::to_value(peers.metadata).unwrap(),
        metadata("github-longshore"),
        "nobody else's concern"
    );
}
