//! Filters, order and pages.

use longshore_catalog::About;
use longshore_catalog::model::{Health, State};
use serde_json::json;

use crate::harness::{Stand, names, record, tool};

fn about(owner: &str, tags: &[&str]) -> About {
    About {
        owner: Some(owner.to_owned()),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..About::default()
    }
}

async fn stand() -> Stand {
    let stand = Stand::open().await;
    stand
        .serve("b", "two", about("Team B", &["x", "y"]), &[tool("beta", "common"), tool("alpha", "common")])
        .await;
    stand
        .serve("a", "one", about("Team A", &["x"]), &[tool("gamma", "common"), tool("delta", "common words")])
        .await;
    let mut down = record("b", "three", about("Team A", &[]));
    down.health = Health { state: State::Down, since: None, reason: String::new(), message: String::new() };
    stand.feed(down, Some(&[tool("epsilon", "common")])).await;
    stand
}

#[tokio::test]
async fn filters_leave_what_they_name() {
    let stand = stand().await;
    for (query, servers, tools) in [
        ("", &["one", "three", "two"][..], &["delta", "gamma", "epsilon", "alpha", "beta"][..]),
        ("?namespace=b", &["three", "two"], &["epsilon", "alpha", "beta"]),
        ("?server=two", &["two"], &["alpha", "beta"]),
        ("?namespace=a&server=two", &[], &[]),
        ("?owner=Team+A", &["one", "three"], &["delta", "gamma", "epsilon"]),
        ("?tag=x", &["one", "two"], &["delta", "gamma", "alpha", "beta"]),
        ("?tag=x&tag=y", &["two"], &["alpha", "beta"]),
        ("?health=down", &["three"], &["epsilon"]),
        ("?health=Unknown", &[], &[]),
        ("?namespace=b&owner=Team+A&health=Down", &["three"], &["epsilon"]),
        ("?namespace=nowhere", &[], &[]),
    ] {
        let listed = stand.json(&format!("/v1/servers{query}")).await;
        assert_eq!((names(&listed), &listed["total"]), (servers.to_vec(), &json!(servers.len())), "{query}");
        let listed = stand.json(&format!("/v1/tools{query}")).await;
        assert_eq!((names(&listed), &listed["total"]), (tools.to_vec(), &json!(tools.len())), "{query}");
        if !query.is_empty() {
            let found = stand.json(&format!("/v1/tools{query}&q=common")).await;
            let mut found = names(&found);
            found.sort_unstable();
            let mut tools = tools.to_vec();
            tools.sort_unstable();
            assert_eq!(found, tools, "{query}");
        }
    }
}

#[tokio::test]
async fn tools_that_say_that_they_change_nothing_can_be_had_alone() {
    let stand = Stand::open().await;
    let hint = |name: &str, annotations: serde_json::Value| json!({"name": name, "description": "common", "annotations": annotations});
    let tools = [
        hint("add", json!({"readOnlyHint": false})),
        hint("get", json!({"readOnlyHint": true})),
        hint("list", json!({"readOnlyHint": true, "openWorldHint": true})),
        hint("write", json!({})),
    ];
    stand.serve("a", "demo", About::default(), &tools).await;
    for path in ["/v1/tools?readOnly=true", "/v1/tools?readOnly=true&q=common"] {
        let listed = stand.json(path).await;
        assert_eq!((names(&listed), &listed["total"]), (vec!["get", "list"], &json!(2)), "{path}");
        assert_eq!(walk(&stand, &format!("{path}&limit=1")).await, ["get", "list"], "{path}");
    }
    assert_eq!(stand.json("/v1/tools?readOnly=false").await["total"], 4);
}

/// What changes something may destroy it unless its server says that it does not.
#[tokio::test]
async fn tools_that_say_that_they_destroy_nothing_can_be_had_alone() {
    let stand = Stand::open().await;
    let tools = [
        ("append", json!({"destructiveHint": false})),
        ("delete", json!({"destructiveHint": true})),
        ("get", json!({"readOnlyHint": true})),
        ("odd", json!({"readOnlyHint": true, "destructiveHint": true})),
        ("write", json!({"readOnlyHint": false})),
    ];
    let tools = tools.map(
        |(name, annotations)| json!({"name": name, "description": "common", "annotations": annotations}),
    );
    stand.serve("a", "demo", About::default(), &tools).await;
    for (filter, expected) in [
        ("destructive=false", &["append", "get"][..]),
        ("destructive=false&readOnly=true", &["get"]),
        ("destructive=true", &["append", "delete", "get", "odd", "write"]),
    ] {
        for path in [format!("/v1/tools?{filter}"), format!("/v1/tools?{filter}&q=common")] {
            let listed = stand.json(&path).await;
            let total = json!(expected.len());
            assert_eq!((names(&listed), &listed["total"]), (expected.to_vec(), &total), "{path}");
            assert_eq!(walk(&stand, &format!("{path}&limit=1")).await, expected, "{path}");
        }
    }
}

#[tokio::test]
async fn what_an_owner_writes_is_shown_whole_and_found_whatever_its_letters() {
    let stand = Stand::open().await;
    // As long as a manifest lets each be.
    let (title, owner, description) = ("題".repeat(128), "команда 😀 ".repeat(25), "語".repeat(2048));
    let written = About {
        title: Some(title.clone()),
        description: Some(description.clone()),
        ..about(&owner.replace(' ', "  "), &[])
    };
    stand.serve("a", "one", written, &[tool("echo", "x")]).await;
    let shown = stand.json("/v1/servers/a/one").await;
    assert_eq!((&shown["title"], &shown["description"]), (&json!(title), &json!(description)));
    assert_eq!(shown["owner"], owner.trim());
    let encode = |owner: &str| owner.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for asked in [shown["owner"].as_str().unwrap(), &owner.replace(' ', "  ")] {
        let found = stand.json(&format!("/v1/tools?owner={}", encode(asked))).await;
        assert_eq!(names(&found), ["echo"], "{asked}");
    }
    let other = stand.json(&format!("/v1/tools?owner={}", encode("команда"))).await;
    assert_eq!(other["total"], 0);
}

/// Follows the cursors to the end.
async fn walk(stand: &Stand, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = stand.get(&format!("{path}{cursor}")).await;
        assert!(page.body.len() < 260 << 10, "a page has {} bytes", page.body.len());
        let page = page.json();
        all.extend(names(&page).into_iter().map(str::to_owned));
        assert!(all.len() <= 1000, "the pages do not end");
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_put_together_are_the_list() {
    let stand = stand().await;
    for path in ["/v1/tools", "/v1/servers", "/v1/tools?q=common", "/v1/servers?q=common", "/v1/tools?tag=x"]
    {
        let whole = stand.json(path).await;
        assert!(whole["nextCursor"].is_null());
        let joint = if path.contains('?') { '&' } else { '?' };
        for limit in 1..=6 {
            assert_eq!(
                walk(&stand, &format!("{path}{joint}limit={limit}")).await,
                names(&whole),
                "{path} by {limit}"
            );
        }
    }
}

/// As RFC 8288 has it, with everything that was asked for.
#[tokio::test]
async fn a_page_names_the_next_in_a_header() {
    let stand = stand().await;
    for (path, asked) in [
        ("/v1/tools", "tag=x&tag=y&limit=1"),
        ("/v1/tools", "q=common%20%3E%22&limit=2&include=schemas"),
        ("/v1/servers", "limit=1"),
    ] {
        let (mut query, mut pages) = (asked.to_owned(), 0);
        loop {
            let answer = stand.get(&format!("{path}?{query}")).await;
            pages += 1;
            let page = answer.json();
            let Some(cursor) = page["nextCursor"].as_str() else {
                assert_eq!(answer.header("link"), None, "{path}?{query}");
                break;
            };
            let link = answer.header("link").unwrap();
            let next = link.strip_prefix("<?").and_then(|link| link.strip_suffix(">; rel=\"next\"")).unwrap();
            let expected = format!("{}&cursor={cursor}", asked.replace("%20", "+"));
            assert_eq!(next, expected);
            query = next.to_owned();
        }
        assert!(pages > 1, "{path}?{asked}");
    }
    assert_eq!(stand.get("/v1/tools").await.header("link"), None);
}

/// What readers have not taken yet is in memory, so no page is long; and still nothing is left out.
#[tokio::test]
async fn a_page_of_long_entries_is_short() {
    let stand = Stand::open().await;
    let parameters: serde_json::Map<_, _> = (0..64).map(|n| (format!("{n:0>250}"), json!({}))).collect();
    let tools: Vec<_> = (0..50)
        .map(|n| {
            json!({
                "name": format!("tool-{n:02}"), "description": "verbose ".repeat(500),
                "inputSchema": {"type": "object", "properties": parameters},
            })
        })
        .collect();
    stand.serve("a", "verbose", About::default(), &tools).await;
    let expected: Vec<_> = (0..50).map(|n| format!("tool-{n:02}")).collect();
    for path in ["/v1/tools?limit=200", "/v1/tools?limit=200&q=verbose"] {
        assert_eq!(stand.json(path).await["total"], 50, "{path}");
        assert_eq!(walk(&stand, path).await, expected, "{path}");
    }
}

/// Nor is one whose tools come with the longest schemas that are kept.
#[tokio::test]
async fn a_page_of_long_schemas_is_short() {
    let stand = Stand::open().await;
    let longest = 64 << 10;
    let around = json!({"type": "object", "title": ""}).to_string().len();
    let schema = json!({"type": "object", "title": "x".repeat(longest - around)});
    let tools: Vec<_> = (0..20)
        .map(|n| json!({"name": format!("tool-{n:02}"), "description": "heavy", "inputSchema": schema}))
        .collect();
    stand.serve("a", "heavy", About::default(), &tools).await;
    let expected: Vec<_> = (0..20).map(|n| format!("tool-{n:02}")).collect();
    for path in ["/v1/tools?include=schemas&limit=200", "/v1/tools?include=schemas&limit=200&q=heavy"] {
        let page = stand.json(path).await;
        assert_eq!((names(&page).len(), &page["total"]), (3, &json!(20)), "{path}");
        assert!(page["items"].as_array().unwrap().iter().all(|tool| tool["inputSchema"] == schema), "{path}");
        assert_eq!(walk(&stand, path).await, expected, "{path}");
    }
}

#[tokio::test]
async fn a_cursor_stays_valid_while_the_catalog_changes() {
    let stand = stand().await;
    let first = stand.json("/v1/tools?limit=2").await;
    assert_eq!(names(&first), ["delta", "gamma"]);
    let next = format!("/v1/tools?limit=9&cursor={}", first["nextCursor"].as_str().unwrap());
    // What came before is gone, with the very tool that the cursor names, and something new comes after.
    stand.catalog.remove(&record("a", "one", About::default()).key);
    stand.serve("b", "three", about("Team A", &[]), &[tool("epsilon", "x"), tool("zeta", "x")]).await;
    assert_eq!(names(&stand.json(&next).await), ["epsilon", "zeta", "alpha", "beta"]);

    let first = stand.json("/v1/tools?q=common&limit=1").await;
    let next = format!("/v1/tools?q=common&cursor={}", first["nextCursor"].as_str().unwrap());
    stand.catalog.remove(&record("b", "three", About::default()).key);
    stand.get(&next).await.json();
}

/// What anybody's server has moves the scores of all, and no rank.
#[tokio::test]
async fn a_search_that_goes_on_misses_and_repeats_nothing_where_others_change() {
    let stand = stand().await;
    let alike: Vec<_> = (0..9).map(|n| tool(&format!("alike-{n}"), "the same")).collect();
    stand.serve("b", "many", About::default(), &alike).await;
    let first = stand.json("/v1/tools?q=same&limit=4").await;
    let next = format!("/v1/tools?q=same&cursor={}", first["nextCursor"].as_str().unwrap());
    let expected: Vec<_> = (4..9).map(|n| format!("alike-{n}")).collect();
    for (tools, why) in [(30, "scores are higher"), (1, "they are lower")] {
        let others: Vec<_> = (0..tools).map(|n| tool(&format!("other-{n}"), "something else")).collect();
        stand.serve("z", "others", About::default(), &others).await;
        assert_eq!(names(&stand.json(&next).await), expected, "{why}");
    }
}
