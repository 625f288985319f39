//! What becomes of each feature between two revisions, as docs/revisions.md tells it.
//!
//! Each row of that page's table is a probe here: it gives a message to the functions of this crate, for every pair of
//! revisions, and says what they did. So the page promises nothing of translation that the code does not do. What the
//! sidecar decides by itself is in words, which its tests have to show.

mod asking;
mod cell;
mod failing;
mod features;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

use longshore_mcp::method::{Method, NotificationMethod, ServerNotification, ServerRequest};
use longshore_mcp::revision::{Era, Revision};
use longshore_mcp::translate::Pair;

use crate::requirements::tests_in;
use features::FEATURES;

const UPDATE: &str = "LONGSHORE_UPDATE_DOCS";
const BEGIN: &str = "<!-- the table is written by a test: LONGSHORE_UPDATE_DOCS=1 cargo test -p longshore-mcp revisions -->\n";
const END: &str = "<!-- here it ends -->\n";

/// What becomes of something on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes as it is.
    Passes,
    /// It passes in this form.
    Becomes(&'static str),
    /// Longshore itself does this.
    Answered(&'static str),
    /// The side that sent it gets this error.
    Refused(String),
    /// The revision of who would send it does not have it.
    Unheard,
}

/// Whose revision a cell is about, within an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Who gets what is sent.
    Client,
    Server,
}

/// A row.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// Who reads it.
    pub(crate) reads: Reads,
    pub(crate) probe: fn(Pair) -> Verdict,
    /// The tests of the sidecar that show what no function of this crate does.
    pub(crate) shown: &'static [&'static str],
}

thread_local! {
    /// What the probes have been about, by name.
    static PROBED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Notes what a probe is about.
pub(crate) fn probed(name: &'static str) {
    PROBED.with_borrow_mut(|probed| probed.insert(name));
}

fn columns() -> [(&'static str, Vec<Pair>); 3] {
    let all =
        || Revision::ALL.into_iter().flat_map(|client| Revision::ALL.map(|server| Pair { client, server }));
    let of = |eras: (Era, Era)| all().filter(|pair| pair.eras() == eras && !pair.is_same()).collect();
    [
        ("both before 2026-07-28", of((Era::Legacy, Era::Legacy))),
        ("client of 2026-07-28, older server", of((Era::Modern, Era::Legacy))),
        ("older client, server of 2026-07-28", of((Era::Legacy, Era::Modern))),
    ]
}

fn table() -> String {
    let columns = columns();
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut table = format!("| | {} |\n|---|---|---|---|\n", heads.join(" | "));
    for feature in FEATURES {
        let cells: Vec<String> = columns.iter().map(|(_, pairs)| cell::write(feature, pairs)).collect();
        table.push_str(&format!("| {} | {} |\n", feature.name, cells.join(" | ")));
    }
    table
}

#[test]
fn r070_the_page_says_what_the_code_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/revisions.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (found, after) = rest.split_once(END).expect("where the table ends");
    let table = table();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    for (at, (line, expected)) in found.lines().zip(table.lines()).enumerate() {
        assert_eq!(line, expected, "row {at} of docs/revisions.md; {UPDATE}=1 writes it anew");
    }
    assert_eq!(found.lines().count(), table.lines().count(), "{UPDATE}=1 writes docs/revisions.md anew");
}

#[test]
fn r070_what_no_function_does_here_tests_of_the_sidecar_show() {
    let tests = tests_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../sidecar/tests/it"));
    for feature in FEATURES {
        for shown in feature.shown {
            assert!(tests.contains(*shown), "{}: there is no test {shown}", feature.name);
        }
    }
}

/// Between two sides of one revision nothing ever changes, but for what is refused whoever they are.
#[test]
fn equals_hear_each_other() {
    for revision in Revision::ALL {
        let pair = Pair { client: revision, server: revision };
        for feature in FEATURES {
            let verdict = (feature.probe)(pair);
            let own = [
                "cancellation",
                "methods that nobody knows",
                "of a client that nobody knows",
                "batches",
                "`ping` of a server",
            ]
            .iter()
            .any(|own| feature.name.contains(own));
            assert!(
                matches!(verdict, Verdict::Passes | Verdict::Unheard) || own,
                "{}, {revision}: {verdict:?}",
                feature.name
            );
        }
    }
}

/// Nothing that either side may say is forgotten on the page. What both may say has a row for each.
#[test]
fn r070_whatever_is_said_has_a_row() {
    let said_by = |reads: Reads| {
        PROBED.with_borrow_mut(BTreeSet::clear);
        for feature in FEATURES.iter().filter(|feature| feature.reads == reads) {
            for (_, pairs) in columns() {
                pairs.into_iter().for_each(|pair| drop((feature.probe)(pair)));
            }
        }
        PROBED.take()
    };
    let (clients, servers) = (said_by(Reads::Server), said_by(Reads::Client));
    let mut missing: Vec<_> = Method::ALL.map(Method::as_str).into();
    missing.extend(NotificationMethod::ALL.map(NotificationMethod::as_str));
    missing.retain(|name| !clients.contains(name));
    assert!(missing.is_empty(), "of clients: {missing:?}");
    let mut missing: Vec<_> = ServerRequest::ALL.map(ServerRequest::as_str).into();
    missing.extend(ServerNotification::ALL.map(ServerNotification::as_str));
    missing.retain(|name| !servers.contains(name));
    assert!(missing.is_empty(), "of servers: {missing:?}");
}
