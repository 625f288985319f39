use std::time::Duration;

use longshore_catalog::Reader;
use serde_json::json;
use tokio::time::timeout;

use super::*;

fn server() -> ServerKey {
    ServerKey { namespace: "tools".to_owned(), name: "demo".to_owned() }
}

fn offer(tools: &[&str]) -> Tools {
    offer_with(0, tools)
}

fn offer_with(prompts: usize, tools: &[&str]) -> Tools {
    let tools: Vec<_> = tools.iter().map(|name| json!({"name": name})).collect();
    let inventory = json!({
        "connection": {"state": "Connected", "since": "2026-01-01T00:00:00Z", "reason": null, "message": ""},
        "server": {"info": {"name": "s"}, "protocolVersion": "1"}, "tools": tools,
        "prompts": vec![json!({}); prompts],
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
    tools.names().collect()
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
    // What it says of itself is new, and nothing else.
    let listed = hiding.listed(&server(), &no_c, offer_with(1, &["a", "b"]));
    assert!(!hiding.is_at(&server()), "found out again");
    assert_eq!(names(&listed), ["a", "b"]);
    assert_eq!(listed.offer.unwrap().prompts, 1);
    assert_eq!(names(&hiding.listed(&server(), &ToolFilter::default(), second)), ["a", "b", "c"]);
}

#[tokio::test]
async fn a_filter_that_was_taken_back_is_in_force_at_no_time() {
    let mut hiding = Hiding::new();
    let (in_force, taken_back, all) = (filter(&[], &["b"]), filter(&[], &["a"]), offer(&["a", "b"]));
    hiding.listed(&server(), &in_force, all.clone());
    hiding.done().await.unwrap();
    let mut listed = |filter| names(&hiding.listed(&server(), filter, all.clone())).join(" ");
    assert_eq!([&in_force, &taken_back, &in_force].map(&mut listed), ["a"; 3]);
    assert!(!hiding.is_at(&server()), "the one that was taken back is looked at");
    let done = timeout(Duration::from_millis(100), hiding.done());
    assert!(done.await.is_err());
    assert_eq!(names(&hiding.listed(&server(), &in_force, all)), ["a"]);
}

#[tokio::test]
async fn a_filter_that_was_replaced_before_it_was_in_force_never_is() {
    let mut hiding = Hiding::new();
    let all = offer(&["a", "b"]);
    let [first, slip, mended] = [&["b"][..], &["a"], &["b", "c"]].map(|exclude| filter(&[], exclude));
    hiding.listed(&server(), &first, all.clone());
    hiding.done().await.unwrap();
    for filter in [&slip, &mended] {
        assert_eq!(names(&hiding.listed(&server(), filter, all.clone())), ["a"]);
    }
    hiding.done().await.unwrap();
    assert_eq!(names(&hiding.listed(&server(), &mended, all.clone())), ["a"]);
    assert!(!hiding.is_at(&server()), "the one that was replaced was looked at first");

    // Names alone do not begin it anew.
    hiding.listed(&server(), &slip, all);
    let job = |hiding: &Hiding| hiding.servers[&server()].under_way.as_ref().unwrap().job.id();
    let before = job(&hiding);
    hiding.listed(&server(), &slip, offer(&["a", "b", "c"]));
    assert_eq!(job(&hiding), before);
}

#[tokio::test]
async fn who_is_quickly_done_does_not_wait_for_others_that_are_not() {
    let mut hiding = Hiding::new();
    // A matcher is in a state that it has never been in after each letter.
    let next =
        |random: &u128| Some(random.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1));
    let long: Vec<_> = std::iter::successors(Some(1), next).skip(9).take(1000).collect();
    let long: Vec<_> = long.iter().map(|random| format!("{random:0128b}")).collect();
    let long = offer(&long.iter().map(String::as_str).collect::<Vec<_>>());
    let slow = filter(&[], &[&format!("*0{}[cd]", "?".repeat(100))]);
    for number in 0..20 {
        let server = ServerKey { namespace: "others".to_owned(), name: number.to_string() };
        hiding.listed(&server, &slow, long.clone());
    }
    hiding.listed(&server(), &filter(&["e*"], &["exec"]), offer(&["echo", "exec"]));
    let mut others = 0;
    while hiding.done().await.unwrap() != server() {
        others += 1;
    }
    assert!(others < 2, "it waited for {others} others");
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
