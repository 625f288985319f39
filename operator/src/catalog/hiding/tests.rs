use longshore_catalog::Reader;
use serde_json::json;

use super::*;

fn server() -> ServerKey {
    ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() }
}

fn offer(tools: &[&str]) -> Tools {
    let tools: Vec<_> = tools.iter().map(|name| json!({"name": name})).collect();
    let inventory = json!({
        "phase": "Serving",
        "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
        "server": {"info": {"name": "s"}, "protocolVersion": "1"}, "tools": tools,
    });
    let key = longshore_catalog::ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() };
    let offer = Reader::default().read(&key, inventory.to_string().as_bytes()).unwrap();
    Tools { offer: Some(Arc::new(offer)), known: vec![] }
}

fn filter(include: &[&str], exclude: &[&str]) -> ToolFilter {
    let owned = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect();
    ToolFilter { include: owned(include), exclude: owned(exclude) }
}

fn names(tools: &Tools) -> Vec<&str> {
    let offered = tools.offer.iter().flat_map(|offer| &offer.tools).map(|tool| &*tool.name);
    offered.chain(tools.known.iter().map(String::as_str)).collect()
}

#[tokio::test]
async fn tools_that_the_manifest_hides_are_not_listed_whoever_had_heard_of_them() {
    let mut hiding = Hiding::new();
    let all = ["echo", "edit", "list"];
    for (include, exclude, expected) in [
        (&[][..], &[][..], &all[..]),
        (&["e*"], &[], &["echo", "edit"]),
        (&["list", "e*o"], &[], &["echo", "list"]),
        (&["*"], &["l*", "edit"], &["echo"]),
        (&[], &["*"], &[]),
        (&["x"], &[], &[]),
        // Nobody's filter has such a glob.
        (&[], &["[é]"], &[]),
    ] {
        let filter = filter(include, exclude);
        let known = Tools { offer: None, known: all.map(str::to_owned).to_vec() };
        for tools in [offer(&all), known] {
            hiding.listed(&server(), &filter, tools.clone());
            while hiding.is_at(&server()) {
                assert_eq!(hiding.done().await, Some(server()));
            }
            assert_eq!(names(&hiding.listed(&server(), &filter, tools)), expected, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn what_was_listed_stays_until_it_is_known_what_exists_and_is_not_found_out_twice() {
    let mut hiding = Hiding::new();
    let (first, second) = (offer(&["a", "b"]), offer(&["a", "b", "c"]));
    let (no_b, no_c) = (filter(&[], &["b"]), filter(&["?"], &["c"]));
    let mut before = Tools::default();
    for (filter, all, expected) in [
        (&no_b, &first, ["a"].as_slice()),
        (&no_b, &second, &["a", "c"]),
        (&no_c, &second, &["a", "b"]),
        (&no_c, &first, &["a", "b"]),
    ] {
        let meanwhile = hiding.listed(&server(), filter, all.clone());
        assert!(hiding.is_at(&server()) && meanwhile.is(&before));
        hiding.done().await.unwrap();
        before = hiding.listed(&server(), filter, all.clone());
        assert_eq!(names(&before), expected);
        assert!(!hiding.is_at(&server()));
    }
    assert_eq!(names(&hiding.listed(&server(), &ToolFilter::default(), second)), ["a", "b", "c"]);
}

#[tokio::test]
async fn another_server_of_the_same_name_gets_nothing_of_the_first_ones() {
    let mut hiding = Hiding::new();
    let filter = filter(&[], &["b"]);
    hiding.listed(&server(), &filter, offer(&["first"]));
    hiding.forget(&server());
    assert!(!hiding.is_at(&server()));
    let second = offer(&["second"]);
    assert_eq!(names(&hiding.listed(&server(), &filter, second.clone())), [""; 0]);
    hiding.done().await.unwrap();
    assert_eq!(names(&hiding.listed(&server(), &filter, second)), ["second"]);
}
