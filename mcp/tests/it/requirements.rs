//! What a proxy for MCP has to do, by number, and which tests show it.
//!
//! A test that shows a requirement is named after it (`r017_...`), in whichever crate it is. This list says which
//! have one; nothing may be shown and called open, or the other way round.
//!
//! What results have to say is what Longshore writes or translates. Between two sides of 2026-07-28 a server's results are
//! its own business: they pass as they are, whatever they lack.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// How far a requirement is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// By tests.
    Shown,
    /// By none, until this is there.
    Open(&'static str),
}

use State::{Open, Shown};

/// The parts of Longshore that a requirement waits for.
const ACCESS: &str = "access with tokens";

#[rustfmt::skip]
const REQUIREMENTS: [(u32, &str, State); 86] = [
    // What comes in
    (1, "a foreign Origin is refused before anything else", Shown),
    (2, "other HTTP methods get 405 with Allow", Shown),
    (3, "Accept and Content-Type are needed: 406, 415", Shown),
    (4, "bodies are bounded, and have to be JSON: 413, -32700 without an id", Shown),
    (5, "an id that is null or a fraction, or no jsonrpc: -32600", Shown),
    (6, "batches are refused since 2025-06-18", Shown),
    (7, "batches of 2025-03-26 are answered as a whole, without initialize", Shown),
    (8, "a modern body is neither batch nor response", Shown),
    (9, "what needs no answer gets 202 without a body", Shown),
    (10, "a modern notification is dropped, after its revision was looked at", Shown),
    (11, "headers and comments of event streams", Shown),
    (12, "one message an event; events without data are none", Shown),
    (13, "no ids and no retry on modern streams", Shown),
    // Which era
    (14, "initialize with a modern envelope: 404, -32601", Shown),
    (15, "a modern header without an envelope: 400, -32602", Shown),
    (16, "an envelope without the header: 400, -32020", Shown),
    (17, "header and envelope differ: 400, -32020, even if nobody knows the revision", Shown),
    (18, "a revision that nobody knows: 400, -32022, with what is served", Shown),
    (19, "initialize ends in a legacy revision that is served", Shown),
    // No revision can be switched off in the sidecar, so none is missing there: what such a proxy answers is decided here
    // (`detect`), and the sidecar never has to.
    (20, "without legacy revisions, initialize is told what is served, GET and DELETE get 405", Shown),
    (21, "both eras at one address", Shown),
    // Modern requests
    (22, "an incomplete envelope: 400, -32602; clientInfo is not needed", Shown),
    (23, "Mcp-Method has to be the method, case and all", Shown),
    (24, "Mcp-Name has to be the name, however it is written", Shown),
    (25, "malformed base64 in a header: -32020", Shown),
    (26, "a header that is there twice: -32020", Shown),
    (27, "Mcp-Param has to be the argument that the schema marks", Shown),
    (28, "methods that a revision does not have: 404, -32601, with the id", Shown),
    // Without the header of 2026-07-28 they are those of an older client, whose session id is missing (49): 400.
    (29, "GET and DELETE without a session: 405", Shown),
    (30, "Mcp-Session-Id and Last-Event-ID mean nothing", Shown),
    (31, "errors have the id of their request", Shown),
    (32, "a capability that is missing: 400, -32021, as an object", Shown),
    // Modern results: 33 to 35, what is listened to of 42, and 43 are kept in what is written here. What a server of
    // 2026-07-28 says to a client of its own revision is not looked at for them.
    (33, "every result has a type", Shown),
    (34, "what can be kept says how long and by whom", Shown),
    (35, "results say who the server is", Shown),
    (36, "server/discover is answered for every server", Shown),
    (37, "lists keep their order", Shown),
    (38, "no -32002 and no -32042", Shown),
    (39, "log messages only for requests that asked for their level", Shown),
    (40, "no requests of servers on any stream", Shown),
    (41, "a client that goes away has cancelled", Shown),
    (42, "listening: acknowledged first, marked, only what was asked for, ended in order", Shown),
    (43, "input is asked for only where and of whom it may be", Shown),
    (44, "requestState is sealed and bound", Shown),
    (45, "answers that are missing are asked for again, others ignored, wrong ones refused", Shown),
    // What it counts for where there are rates comes with those (81).
    (46, "a call that is sent again is told from a new one in the audit log, and authorised again", Shown),
    (47, "tasks as an extension", Shown),
    // Sessions
    (48, "session ids cannot be guessed", Shown),
    (49, "session ids that are missing, unknown or ended: 400, 404", Shown),
    (50, "a session belongs to its principal", Shown),
    (51, "sessions end when idle, and are counted", Shown),
    (52, "MCP-Protocol-Version has to be the session's", Shown),
    (53, "requests before initialized pass, a second initialize does not", Shown),
    (54, "one stream a session, with Accept", Shown),
    (55, "each message of a server on exactly one stream", Shown),
    (56, "event ids lead back to their stream alone", Shown),
    (57, "priming only since 2025-11-25", Shown),
    (58, "a disconnect cancels nothing", Shown),
    (59, "cancellation under the other side's id, never of initialize", Shown),
    // Between equals a server's ids pass as they are: what is answered is looked for in the session that was asked, and an
    // answer of another one is nobody's.
    (60, "requests of servers under ids of the client's side", Shown),
    (61, "HTTP+SSE: the endpoint first", Shown),
    // Servers
    (62, "stdio: one line a message, noise is no message", Shown),
    (63, "stderr is never an error", Shown),
    (64, "processes end in order, and are started again", Shown),
    (65, "the server's era by its first answer", Shown),
    (66, "servers over HTTP: JSON and streams, sessions that are lost", Shown),
    (67, "servers over HTTP+SSE: an endpoint of their own origin", Shown),
    (68, "ids and progress tokens of several clients on one connection", Shown),
    (69, "time-outs cancel at the server", Shown),
    (70, "every field is translated", Shown),
    (71, "questions of legacy servers as results that ask for input", Shown),
    (72, "results that ask for input as questions to legacy clients", Shown),
    (73, "subscriptions both ways", Shown),
    (74, "log levels both ways", Shown),
    // Access
    (75, "a token with every request", Open(ACCESS)),
    (76, "wrong tokens: 401 with metadata", Open(ACCESS)),
    (77, "metadata of the protected resource", Open(ACCESS)),
    (78, "missing scopes: 403 with all of them", Open(ACCESS)),
    (79, "credentials are never passed on", Open(ACCESS)),
    (80, "access by what the body says", Open(ACCESS)),
    (81, "rates by principal and tool", Open(ACCESS)),
    (82, "what is kept is kept apart", Open(ACCESS)),
    (83, "no secrets in logs; traces pass", Open(ACCESS)),
    (84, "nothing is fetched that a server names", Open(ACCESS)),
    (85, "what sides say of themselves decides nothing", Shown),
    (86, "a drain in order", Shown),
];

#[test]
fn each_requirement_is_shown_or_open() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut shown = BTreeMap::<_, BTreeSet<_>>::new();
    for test in tests_in(root) {
        if let Some(number) = number_of(&test) {
            shown.entry(number).or_default().insert(test);
        }
    }
    let mut wrong = Vec::new();
    for (at, (number, words, state)) in REQUIREMENTS.into_iter().enumerate() {
        assert_eq!(usize::try_from(number).unwrap(), at + 1);
        match (state, shown.remove(&number)) {
            (Shown, Some(_)) | (Open(_), None) => {}
            (Shown, None) => wrong.push(format!("{number} ({words}) has no test")),
            (Open(_), Some(tests)) => wrong.push(format!("{number} ({words}) is open, and has {tests:?}")),
        }
    }
    wrong.extend(shown.into_iter().map(|(number, tests)| format!("{number} does not exist: {tests:?}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
    let open = REQUIREMENTS.iter().filter(|(.., state)| matches!(state, Open(_))).count();
    println!("{} shown, {open} open", REQUIREMENTS.len() - open);
}

/// The tests in a folder that are run: what no program is made of shows nothing.
pub(crate) fn tests_in(folder: &Path) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
                tests.extend(tests_in(&path));
            }
        } else if is_compiled(&path) {
            let text = std::fs::read_to_string(&path).unwrap();
            tests.extend(tests_of(&text).into_iter().map(str::to_owned));
        }
    }
    tests
}

/// Whether a program is made of a file: it is the first of one, or another one that is says that it is a part of it.
fn is_compiled(file: &Path) -> bool {
    let (Some(folder), Some(name)) = (file.parent(), file.file_stem().and_then(|name| name.to_str())) else {
        return false;
    };
    if file.extension().is_none_or(|extension| extension != "rs") || !file.exists() {
        return false;
    }
    let is_first = ["main", "lib", "build"].contains(&name)
        || folder.ends_with("tests") && folder.with_file_name("Cargo.toml").exists();
    let names_it = |above: &Path| {
        let text = std::fs::read_to_string(above).unwrap_or_default();
        text.lines().any(|line| {
            let module = line.trim().strip_suffix(';').and_then(|line| line.split_once("mod "));
            module.is_some_and(|(before, module)| {
                module == name && (before.is_empty() || before.starts_with("pub"))
            })
        })
    };
    let above = [folder.with_extension("rs"), folder.join("main.rs"), folder.join("lib.rs")];
    is_first || above.iter().any(|above| above != file && names_it(above) && is_compiled(above))
}

/// The tests in a file that are run. What only looks like one shows nothing.
fn tests_of(text: &str) -> Vec<&str> {
    let (mut tests, mut attributes) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
        } else if !line.starts_with("//") && !line.is_empty() {
            let attributes = std::mem::take(&mut attributes);
            tests.extend(function(line).filter(|_| are_of_a_test(&attributes)));
        }
    }
    tests
}

/// The name of a function, if a line begins one.
fn function(line: &str) -> Option<&str> {
    line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?.split('(').next()
}

/// The requirement that a test is named after.
fn number_of(test: &str) -> Option<u32> {
    let (number, _) = test.strip_prefix('r')?.split_once('_').filter(|(number, _)| number.len() == 3)?;
    number.parse().ok()
}

/// Whether a function with these attributes is run as a test.
fn are_of_a_test(attributes: &[&str]) -> bool {
    let is_test = |line: &&str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    attributes.iter().any(is_test) && !attributes.iter().any(|line| line.contains("ignore"))
}

#[test]
fn only_files_that_programs_are_made_of_show_anything() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("files-of-programs");
    let _ = std::fs::remove_dir_all(&root);
    for (file, text, expected) in [
        ("Cargo.toml", "", false),
        ("src/lib.rs", "mod a;\npub(crate) mod b;\n// mod c;\n", true),
        ("src/a.rs", "    #[cfg(test)]\n    mod tests;\n", true),
        ("src/a/tests.rs", "", true),
        ("src/a/other.rs", "", false),
        ("src/b.rs", "", true),
        ("src/c.rs", "mod d;", false),
        ("src/c/d.rs", "", false),
        ("src/d/tests/e.rs", "", false),
        ("tests/one.rs", "", true),
        ("tests/it/main.rs", "mod a;", true),
        ("tests/it/a.rs", "", true),
        ("tests/it/b.rs", "", false),
    ] {
        let file = root.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        assert_eq!(is_compiled(&file), expected, "{file:?}");
    }
}

#[test]
fn only_tests_that_are_run_show_anything() {
    for (text, expected) in [
        ("#[test]\nfn r001_a() {", &[(1, "r001_a")][..]),
        ("    #[tokio::test(flavor = \"x\")]\n    async fn r086_a() {", &[(86, "r086_a")]),
        ("#[test]\n#[rustfmt::skip]\n// Why.\nfn r001_a() {\n}\nfn r002_b() {", &[(1, "r001_a")]),
        ("proptest! {\n    #[test]\n    fn r003_c(x in any::<u8>()) {", &[(3, "r003_c")]),
        ("fn r001_a() {", &[]),
        ("#[test]\nfn other() {\n}\n\nfn r001_a() {", &[]),
        ("#[test]\n#[ignore = \"slow\"]\nfn r001_a() {", &[]),
        ("#[cfg_attr(x, ignore)]\n#[test]\nfn r001_a() {", &[]),
        ("#[test]\n// fn r001_a() {", &[]),
        ("#[test]\nfn r01_a() {\n#[test]\nfn raw_data_a() {", &[]),
    ] {
        let numbered: Vec<_> =
            tests_of(text).into_iter().filter_map(|test| Some((number_of(test)?, test))).collect();
        assert_eq!(numbered, expected, "{text}");
    }
}
