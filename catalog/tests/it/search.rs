//! Search, as somebody who types sees it.

use std::sync::Arc;

use longshore_catalog::About;
use longshore_catalog::model::State;
use serde_json::json;

use crate::harness::{Stand, inventory, names, record, tool};

/// Words of languages whose letters have marks, or take three bytes each.
#[tokio::test]
async fn words_of_any_script_are_found_and_told_apart() {
    let stand = Stand::open().await;
    let tools = [
        ("yesterday", "कल का मौसम"),
        ("total", "कुल योग"),
        ("sights", "список достопримечательностей"),
        ("street", "ο κεντρικός δρόμος"),
        ("papa", "パパに電話"),
    ];
    let tools = tools.map(|(name, description)| tool(name, description));
    stand.serve("a", "demo", About::default(), &tools).await;
    for (query, found) in [
        ("कल", &["yesterday"][..]),
        ("कुल", &["total"]),
        ("ДОСТОПРИМЕЧАТЕЛЬНОСТЕЙ", &["sights"]),
        ("достоприм", &["sights"]),
        ("ΔΡΌΜΟΣ", &["street"]),
        ("δρομοσ", &["street"]),
        ("ﾊﾟﾊﾟ", &["papa"]),
        ("ハハ", &[]),
    ] {
        let query: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(names(&stand.json(&format!("/v1/tools?q={query}")).await), found, "{query}");
    }
}

#[tokio::test]
async fn the_best_come_first_and_hostile_queries_cost_nothing() {
    let stand = Stand::open().await;
    let about = About { title: Some("Issue tracker".to_owned()), ..About::default() };
    let create = json!({
        "name": "createIssue", "description": "Opens one",
        "inputSchema": {"type": "object", "properties": {"assignee": {"type": "string"}}},
    });
    stand
        .serve(
            "tools",
            "tracker",
            about,
            &[create, tool("list_issues", "Lists all"), tool("close", "Closes an issue")],
        )
        .await;
    stand.serve("tools", "mail", About::default(), &[tool("send", "Sends a mail about an issue")]).await;
    for (query, best) in [
        ("create+issue", "createIssue"),
        ("assign", "createIssue"),
        ("LIST+ISSUES", "list_issues"),
        ("clos", "close"),
        ("mail", "send"),
        ("tracker+close", "close"),
        ("asignee", "createIssue"),
        ("lsit+isues", "list_issues"),
        ("iss+list", "list_issues"),
    ] {
        let found = stand.json(&format!("/v1/tools?q={query}")).await;
        assert_eq!(names(&found).first(), Some(&best), "{query}: {found}");
    }
    assert_eq!(names(&stand.json("/v1/servers?q=assignee").await), ["tracker"]);
    assert_eq!(names(&stand.json("/v1/servers?q=issue+tracker").await)[0], "tracker");
    for query in
        ["%00", "%F0%9F%92%A9", "%22OR%201%3D1", "*", "x*y(z", "%E2%80%AE", "%ff%fe", "AND+OR+NOT", "zzzz"]
    {
        assert_eq!(stand.json(&format!("/v1/tools?q={query}")).await["total"], json!(0), "{query}");
    }
}

/// What others write, whom nobody asks for, is no reason to take a word as it was typed.
#[tokio::test]
async fn a_letter_is_forgiven_in_what_the_filters_leave() {
    let stand = Stand::open().await;
    let of = |owner: &str, tag: &str| About {
        owner: Some(owner.to_owned()),
        tags: vec![tag.to_owned()],
        ..About::default()
    };
    let mut show = tool("show", "Shows an issue of the repository");
    show["annotations"] = json!({"readOnlyHint": true});
    stand.serve("a", "tracker", of("A", "x"), &[show]).await;
    // A beginning, too, is theirs alone.
    let mut typist = record("b", "typist", of("B", "y"));
    typist.health.state = State::Down;
    stand.feed(typist, Some(&[tool("type", "isue isuery reposit")])).await;
    assert_eq!(names(&stand.json("/v1/tools?q=isue").await), ["type"]);
    for filter in ["namespace=a", "server=tracker", "owner=A", "tag=x", "health=Up", "readOnly=true"] {
        for query in ["isue", "isue+", "repositry", "isue+repositry"] {
            let found = stand.json(&format!("/v1/tools?q={query}&{filter}")).await;
            assert_eq!((names(&found), &found["total"]), (vec!["show"], &json!(1)), "{query} {filter}");
        }
        if filter != "readOnly=true" {
            let found = stand.json(&format!("/v1/servers?q=isue&{filter}")).await;
            assert_eq!(names(&found), ["tracker"], "{filter}");
        }
    }
}

/// Its words are read a little later than it says something new. What a tool may do is what is said of it now.
#[tokio::test]
async fn what_is_found_is_shown_as_it_was_heard_last() {
    let stand = Stand::open().await;
    let run = |description: &str, read_only: bool| json!({"name": "run", "description": description, "annotations": {"readOnlyHint": read_only}});
    stand.serve("a", "demo", About::default(), &[run("common", true)]).await;
    assert_eq!(names(&stand.json("/v1/tools?q=common&readOnly=true").await), ["run"]);
    stand.tell(record("a", "demo", About::default()), Some(&[run("common by now", false)]));
    let found = stand.json("/v1/tools?q=common&readOnly=true").await;
    assert_eq!(found["total"], 0, "{found}");
    let (found, listed) = (stand.json("/v1/tools?q=common").await, stand.json("/v1/tools").await);
    assert_eq!(listed["items"][0]["description"], "common by now");
    assert_eq!(found["items"], listed["items"]);
}

#[tokio::test]
async fn a_server_without_a_description_is_found_by_its_instructions() {
    let stand = Stand::open().await;
    for (name, description) in [("blank", Some(" ")), ("plain", None), ("described", Some("Sends letters"))] {
        let description = description.map(str::to_owned);
        let mut record = record("a", name, About { description, ..About::default() });
        let mut said = inventory(&[tool("go", "x")]);
        said["server"]["instructions"] = json!("Prefer postcards");
        let offer = stand.reader.read(&record.key, said.to_string().as_bytes()).unwrap();
        record.offer = Some(Arc::new(offer));
        stand.feed(record, None).await;
    }
    assert_eq!(names(&stand.json("/v1/servers?q=postcards").await), ["blank", "plain"]);
    assert_eq!(names(&stand.json("/v1/servers?q=letters").await), ["described"]);
}
