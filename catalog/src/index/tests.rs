use super::*;

fn segment(server: &str, tools: &[(&str, &str, &[&str])]) -> Segment {
    let mut documents = vec![Document { names: vec![server], ..Document::default() }];
    documents.extend(tools.iter().map(|(name, description, parameters)| Document {
        names: vec![name],
        description: Some(description),
        parameters: parameters.to_vec(),
        ..Document::default()
    }));
    Segment::of(&documents)
}

fn index() -> Index {
    let mut index = Index::default();
    for segment in [
        segment(
            "github",
            &[
                ("createIssue", "Open a new issue in a repository", &["title", "body"]),
                ("list_issues", "List the issues of a repository", &["state"]),
                ("merge_pull_request", "Merge a pull request", &["number"]),
            ],
        ),
        segment(
            "calendar",
            &[
                ("create_event", "Put an event into a calendar", &["title", "attendees"]),
                ("überblick", "Kalenderwoche zeigen", &[]),
            ],
        ),
        segment("files", &[("read_text_file", "Read a file as text", &["path", "encoding"])]),
    ] {
        let slot = index.reserve("a");
        index.put(slot, segment);
    }
    index
}

/// Slot and document of what is found, the best first.
fn tools(index: &Index, query: &str) -> Vec<(u32, u32)> {
    let mut hits = index.search(&Query::of(query), Kind::Tools, &|_, _| true);
    hits.sort_by(|one, other| {
        other.score.total_cmp(&one.score).then((one.slot, one.document).cmp(&(other.slot, other.document)))
    });
    hits.into_iter().map(|hit| (hit.slot, hit.document)).collect()
}

#[test]
fn finds_by_what_people_type() {
    let index = index();
    for (query, best) in [
        ("create issue", (0, 1)),
        ("createIssue", (0, 1)),
        ("CREATE_ISSUE", (0, 1)),
        ("createissue", (0, 1)),
        ("creating issues", (0, 1)),
        ("issues", (0, 2)),
        ("merge", (0, 3)),
        ("attendee", (1, 1)),
        ("event title", (1, 1)),
        ("ÜBERBLICK", (1, 2)),
        ("uberblick", (1, 2)),
        ("kalend", (1, 2)),
        ("read fil", (2, 1)),
        ("encod", (2, 1)),
        ("file text", (2, 1)),
    ] {
        assert_eq!(tools(&index, query).first(), Some(&best), "{query}: {:?}", tools(&index, query));
    }
    for query in ["", "!!!", "zebra", "\u{202e}", "x".repeat(500).as_str()] {
        assert_eq!(tools(&index, query), [], "{query}");
    }
}

/// As names are written by those whose they are, and as everybody types them.
#[test]
fn names_with_capitals_inside_are_found_as_people_type_them() {
    let mut index = Index::default();
    for (server, description) in [
        ("tracker", "Opens an issue on GitHub, or in MongoDB with OAuth"),
        ("other", "Opens an issue on github, or in mongodb with oauth"),
        ("git", "Clones"),
        ("usual", "Opens an issue"),
    ] {
        let slot = index.reserve("a");
        index.put(slot, segment(server, &[("go", description, &["userId"])]));
    }
    for name in ["github", "GitHub", "MongoDB", "mongodb", "OAuth", "oauth", "issue GitHub", "issue github"] {
        let mut best: Vec<_> = tools(&index, name).into_iter().take(2).collect();
        best.sort_unstable();
        assert_eq!(best, [(0, 1), (1, 1)], "{name}");
    }
    assert_eq!(tools(&index, "userid").len(), 4);
    let github = index.reserve("a");
    index.put(github, segment("github", &[]));
    let mut hits = index.search(&Query::of("GitHub"), Kind::Servers, &|_, _| true);
    hits.sort_by(|one, other| other.score.total_cmp(&one.score));
    assert_eq!(hits[0].slot, github, "{hits:?}");
}

/// Also where somebody else has one of its parts.
#[test]
fn a_name_with_capitals_inside_is_found_before_it_is_whole() {
    let mut index = Index::default();
    for (server, tool) in [("git", "clone"), ("github", "merge"), ("other", "create_issue")] {
        let slot = index.reserve("a");
        index.put(slot, segment(server, &[(tool, "x", &[])]));
    }
    for (query, best) in [
        ("GitHu", (1, 1)),
        ("GitH", (1, 1)),
        ("merge GitHu", (1, 1)),
        ("gitHub", (1, 1)),
        ("createI", (2, 1)),
    ] {
        assert_eq!(tools(&index, query).first(), Some(&best), "{query}: {:?}", tools(&index, query));
    }
    for query in ["GitHu ", "git hu", "GitHu clone"] {
        assert_eq!(tools(&index, query), [(0, 1)], "{query}");
    }
}

/// A letter is forgiven, and a word that is over may be a beginning, where nobody has the word as it was typed.
#[test]
fn a_word_that_nobody_has_is_taken_for_those_that_may_be_meant() {
    let mut index = index();
    for (query, best) in [
        ("isue", (0, 2)),
        ("mrege", (0, 3)),
        ("xmerge", (0, 3)),
        ("merg pul", (0, 3)),
        ("repositry list", (0, 2)),
        ("repo list", (0, 2)),
        ("calender", (1, 1)),
        ("attendes", (1, 1)),
        ("craete evnt", (1, 1)),
        ("please find my isue", (0, 2)),
        ("kalenderwöhe", (1, 2)),
    ] {
        assert_eq!(tools(&index, query).first(), Some(&best), "{query}: {:?}", tools(&index, query));
    }
    for query in ["isu", "iseu", "merg3", "mrgee"] {
        assert_eq!(tools(&index, query), [], "{query}");
    }
    let slot = index.reserve("a");
    index.put(slot, segment("typist", &[("isue", "x", &[])]));
    assert_eq!(tools(&index, "isue"), [(slot, 1)], "that is what was typed");
    assert_eq!(tools(&index, "issue").first(), Some(&(0, 2)));
    // Short ones are the beginnings of many, and the longest comes first all the same.
    index.put(slot, segment("database", &[("run", "Fields menus mysql walks", &[])]));
    let found = tools(&index, "fi me my wa isue");
    assert!(found.contains(&(0, 2)) && found.contains(&(slot, 1)), "{found:?}");
}

/// However many others begin so, each with words that nobody else has.
#[test]
fn whoever_is_called_as_what_was_typed_comes_before_longer_names() {
    let mut index = Index::default();
    for number in 0..200 {
        let slot = index.reserve("a");
        let name = if number == 100 { "search".to_owned() } else { format!("search_{number}s") };
        index.put(slot, segment("s", &[(&name, "x", &[])]));
        let slot = index.reserve("a");
        index.put(slot, segment("t", &[("list", "x", &[]), ("get", "x", &[])]));
    }
    for query in ["search", "search ", "sear"] {
        assert_eq!(tools(&index, query)[0], (200, 1), "{query}");
    }
    // One word that many have takes nothing from the others that begin so.
    for name in ["create_token", "create_issue"] {
        let slot = index.reserve("a");
        index.put(slot, segment("u", &[(name, "tool to top total", &[])]));
    }
    assert_eq!(tools(&index, "create to")[0], (400, 1));
}

#[test]
fn whoever_has_all_words_comes_before_whoever_has_one() {
    let found = tools(&index(), "list repository");
    assert_eq!(found[0], (0, 2));
    assert!(found.contains(&(0, 1)), "{found:?}");
}

#[test]
fn a_servers_own_words_find_its_tools_and_its_tools_find_the_server() {
    let index = index();
    let found = tools(&index, "github merge");
    assert_eq!((found[0], found.len()), ((0, 3), 3));
    let servers = |query: &str| {
        let mut hits = index.search(&Query::of(query), Kind::Servers, &|_, _| true);
        hits.sort_by(|one, other| other.score.total_cmp(&one.score));
        hits.into_iter().map(|hit| hit.slot).collect::<Vec<_>>()
    };
    assert_eq!(servers("github"), [0]);
    assert_eq!(servers("attendees"), [1]);
    assert_eq!(servers("calendar issue")[0], 1);
}

#[test]
fn a_server_that_changes_leaves_nothing_behind_and_the_others_alone() {
    let mut index = index();
    let before = tools(&index, "create title");
    index.put(0, segment("github", &[("archive", "Archive a repository", &[])]));
    assert_eq!(tools(&index, "issue"), []);
    assert_eq!(tools(&index, "archive"), [(0, 1)]);
    assert_eq!(tools(&index, "event"), [(1, 1)]);
    index.release(0);
    assert_eq!(tools(&index, "archive repository"), []);
    assert!(!index.words.as_long_as("repository").contains_key("repository"));
    assert!(!index.stems.contains_key("repositori"));
    assert_eq!(index.documents, 5);
    assert_eq!(index.reserve("a"), 0);
    index.put(0, index_of_github());
    assert_eq!(tools(&index, "create title"), before);
}

fn index_of_github() -> Segment {
    segment(
        "github",
        &[
            ("createIssue", "Open a new issue in a repository", &["title", "body"]),
            ("list_issues", "List the issues of a repository", &["state"]),
            ("merge_pull_request", "Merge a pull request", &["number"]),
        ],
    )
}

#[test]
fn a_namespace_has_half_of_the_words_and_what_others_had_first_costs_it_nothing() {
    let mut index = Index { room: 40, ..Index::default() };
    let text = |from: usize, to: usize| (from..to).map(|n| format!("w{n:03} ")).collect::<String>();
    let put = |index: &mut Index, namespace: &str, from: usize, to: usize| {
        let (slot, text) = (index.reserve(namespace), text(from, to));
        let documents = [Document { description: Some(&text), ..Document::default() }];
        (slot, index.put(slot, Segment::of(&documents)))
    };
    let (first, left_out) = put(&mut index, "hostile", 0, 15);
    assert_eq!(left_out, 0);
    assert_eq!(put(&mut index, "hostile", 15, 30).1, 10, "half of the room");
    assert_eq!(put(&mut index, "honest", 0, 15).1, 0, "these are there already");
    assert_eq!(put(&mut index, "honest", 30, 50).1, 0, "the other half");
    assert_eq!(put(&mut index, "late", 0, 15).1, 0, "these too");
    assert_eq!(put(&mut index, "late", 90, 95).1, 5, "then there is no room");
    index.release(first);
    let (_, left_out) = put(&mut index, "hostile", 60, 61);
    assert_eq!(left_out, 1, "others have what it had, so that is still there");
    for slot in 0..6 {
        index.release(slot);
    }
    assert_eq!((index.words.len(), index.stems.len(), index.namespaces.len()), (0, 0, 0));
}

#[test]
fn a_namespace_has_half_of_the_entries_and_rare_words_before_usual_ones() {
    let mut index = Index { room_for_entries: 100, ..Index::default() };
    let put = |index: &mut Index, namespace: &str, usual: &str, rare: &str| {
        let mut documents = vec![Document { description: Some(usual), ..Document::default() }; 10];
        documents[3].names = vec![rare];
        let slot = index.reserve(namespace);
        index.put(slot, Segment::of(&documents))
    };
    // Each word stands in ten documents and in the list of words, the rare one in one and in the list.
    assert_eq!(put(&mut index, "hostile", "one two six", "amber"), 0);
    assert_eq!(put(&mut index, "hostile", "one two six", "brown"), 2);
    assert_eq!(put(&mut index, "honest", "one two six", "coral"), 0);
    assert_eq!(put(&mut index, "late", "one two six", "delft"), 2);
    for (slot, rare) in (0..).zip(["amber", "brown", "coral", "delft"]) {
        assert_eq!(tools(&index, rare), [(slot, 3)]);
    }
    for slot in 0..4 {
        index.release(slot);
    }
    assert_eq!((index.entries, index.words.len(), index.stems.len(), index.namespaces.len()), (0, 0, 0, 0));
}

/// One of them has many words that nobody else has, and the alphabet on its side.
#[test]
fn a_beginning_finds_the_words_that_most_servers_have() {
    let mut index = Index::default();
    let words: String = (0..200).map(|n| format!("craa{n:03}x ")).collect();
    let hostile = words.split_inclusive(' ').collect::<Vec<_>>();
    let hostile: Vec<_> = hostile.chunks(100).map(|words| ("t", words.concat())).collect();
    let hostile: Vec<_> = hostile.iter().map(|(name, text)| (*name, &**text, &[][..])).collect();
    for segment in [
        segment("hostile", &hostile),
        segment("github", &[("create_issue", "x", &[])]),
        segment("calendar", &[("create_event", "x", &[])]),
    ] {
        let slot = index.reserve("a");
        index.put(slot, segment);
    }
    let found = tools(&index, "cr");
    assert!(found.contains(&(1, 1)) && found.contains(&(2, 1)), "{found:?}");
}

/// A namespace with a beginning full of its words hides none of the others', whether they share them or not, and
/// whoever had them first.
#[test]
fn a_beginning_finds_words_of_every_namespace() {
    let mut index = Index::default();
    for part in 0..3 {
        for _server in 0..2 {
            let words: String = (0..12_000).map(|n| format!("cr{part}{n:05} ")).collect();
            let hostile: Vec<_> = words.split_inclusive(' ').collect();
            let hostile: Vec<_> = hostile.chunks(160).map(|words| ("create", words.concat())).collect();
            let hostile: Vec<_> = hostile.iter().map(|(name, text)| (*name, &**text, &[][..])).collect();
            let slot = index.reserve("hostile");
            assert_eq!(index.put(slot, segment("hostile", &hostile)), 0);
        }
    }
    for (namespace, tool) in [("a", "create"), ("b", "create"), ("c", "croak")] {
        let slot = index.reserve(namespace);
        index.put(slot, segment("honest", &[(tool, "x", &[])]));
    }
    let found = tools(&index, "cr");
    for slot in 6..9 {
        assert!(found.contains(&(slot, 1)), "{slot}");
    }
}

#[test]
fn hostile_text_is_found_by_a_bounded_number_of_words() {
    let words: String = (0..100_000).map(|n| format!("word{n} ")).collect();
    let long = "x".repeat(1 << 20);
    let documents = [Document {
        names: vec!["t"],
        description: Some(&words),
        parameters: vec![&long],
        ..Document::default()
    }];
    let segment = Segment::of(&documents);
    assert!(segment.words.len() < 1000, "{}", segment.words.len());
}

/// And nothing counts the other words: whoever writes for a search has to know how many are looked at.
#[test]
fn what_a_tool_is_found_by_is_what_the_page_says() {
    let text = |count: usize| (1..=count).map(|n| format!("w{n} ")).collect::<String>();
    let (description, field) = (text(161), text(65));
    let long = [40, 41].map(|letters| "l".repeat(letters));
    let documents = [
        Document::default(),
        Document { description: Some(&description), ..Document::default() },
        Document { names: vec![&field], ..Document::default() },
        Document { titles: vec![&field], ..Document::default() },
        Document { parameters: vec![&field], ..Document::default() },
        Document { titles: long.iter().map(String::as_str).collect(), ..Document::default() },
    ];
    let mut index = Index::default();
    let slot = index.reserve("a");
    assert_eq!(index.put(slot, Segment::of(&documents)), 0);
    let others = |count: usize| format!("{}w64.", "x ".repeat(count));
    for (query, expected) in [
        ("w160.", &[1][..]),
        ("w161.", &[]),
        ("w64.", &[1, 2, 3, 4]),
        ("w65.", &[1]),
        (&format!("{}.", long[0]), &[5]),
        (&format!("{}.", long[1]), &[]),
        (&others(15), &[1, 2, 3, 4]),
        (&others(16), &[]),
    ] {
        let mut found: Vec<_> = tools(&index, query).into_iter().map(|(_, document)| document).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{query}");
    }
    let page = include_str!("../../../docs/catalog.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "the first 160 words of its description, and 64 of its name, of its titles",
        "no word of more than 40 letters",
        "the first 16 count",
        &format!("more than {} bytes, is not listed", crate::limits::NAME),
    ] {
        assert!(page.contains(said), "{said}");
    }
}
