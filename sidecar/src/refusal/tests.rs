use std::collections::BTreeSet;
use std::path::Path;

use super::*;

const PAGE: &str = include_str!("../../../docs/audit.md");

/// The row of the page that explains this reason.
fn row(reason: &str) -> &'static str {
    let quoted = format!("`{reason}`");
    let mut rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    rows.find(|line| line.contains(&quoted)).unwrap_or_else(|| panic!("nothing is said of {quoted}"))
}

/// Whoever is on call looks up what the audit log says, whatever it is.
#[test]
fn the_page_on_the_audit_log_explains_every_reason() {
    let mut explained = 0;
    for source in [
        include_str!("reason.rs"),
        include_str!("../access.rs").split_once("#[cfg(test)]").unwrap().0,
        include_str!("../authenticate.rs").split_once("#[cfg(test)]").unwrap().0,
        include_str!("../upstream/stdio/gone.rs").split_once("pub(crate) fn name").unwrap().1,
    ] {
        let arms = source.lines().filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","));
        explained += arms.map(row).collect::<Vec<_>>().len();
    }
    let notes = include_str!("../stack/access.rs")
        .lines()
        .filter_map(|line| line.split_once("Err(\"")?.1.split_once("\")"));
    explained += notes.map(|(reason, _)| row(reason)).collect::<Vec<_>>().len();
    assert!(explained > 90, "{explained} reasons were found in the code");
}

/// And what the client got.
#[test]
fn the_page_says_what_is_answered_where_a_session_is_refused() {
    for refusal in [
        Refusal::UnknownSession,
        Refusal::SessionLost,
        Refusal::TooManySessions,
        Refusal::TooManyOwnSessions { limit: 1 },
        Refusal::TooManyProcesses { limit: 1, again: None },
        Refusal::TooManyOwnProcesses { limit: 1, again: None },
        Refusal::TooManyStreams { limit: 1 },
        Refusal::SessionOutOfReach(Undecided::Unreachable),
        Refusal::SessionOutOfReach(Undecided::Unsettled),
        Refusal::SessionOutOfReach(Undecided::Undecided),
        Refusal::PodEnds,
        Refusal::ReplicaLost,
        Refusal::EndNotNoted,
        Refusal::EventsGone,
        Refusal::AnswerGone { request: "7".into(), event: "0000005f-12-0".to_owned() },
        Refusal::SecondStream,
    ] {
        let row = row(refusal.reason());
        let answer = error_response(&refusal, None, Kind::Request, Revision::NEWEST_WITH_INITIALIZE);
        assert!(row.contains(answer.status.as_str()), "{} for {row}", answer.status);
    }
}

/// Also where there is no answer that an error could ride in.
#[test]
fn the_page_says_what_is_answered_where_the_server_fails_what_is_no_request() {
    let (_, told) = PAGE.split_once("### The server\n").unwrap();
    let (told, rows) = told.split_once("| `reason`").unwrap();
    assert!(told.contains("it is 502 where the table says 200"), "{told}");
    for refusal in [
        Refusal::ServerDown,
        Refusal::ServerLost,
        Refusal::ServerTimedOut { seconds: 1.0 },
        Refusal::ServerStatus { status: 500 },
        Refusal::ServerNonsense,
        Refusal::Internal,
    ] {
        let row = row(refusal.reason());
        assert!(rows.contains(row) && row.contains("| 200"), "{row}");
        for (kind, status) in [(Kind::Request, 200), (Kind::Other, 502)] {
            let answer = error_response(&refusal, None, kind, Revision::NEWEST_WITH_INITIALIZE);
            assert_eq!(answer.status.as_u16(), status, "{kind:?} of {row}");
        }
    }
}

/// Nobody else tells a client why it is not served.
#[test]
fn error_responses_are_made_here_in_place_of_a_server_or_for_one() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut makers) = (vec![source.clone()], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs")
                && std::fs::read_to_string(&path).unwrap().contains("error::response(")
            {
                makers.insert(path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let in_place_of_a_server = [
        "upstream/legacy_as_modern/client.rs",
        "upstream/modern_as_legacy/call.rs",
        "upstream/modern_as_legacy/local.rs",
    ];
    let for_a_server = [
        "exchange/asked.rs",
        "exchange/carry.rs",
        "monitor/client.rs",
        "stack/translate.rs",
        "upstream/legacy_as_modern/call/heard.rs",
        "upstream/sse/incoming.rs",
        "upstream/stdio/talk/incoming.rs",
    ];
    let listed = ["refusal.rs"].iter().chain(&in_place_of_a_server).chain(&for_a_server);
    assert_eq!(makers, listed.map(|maker| (*maker).to_owned()).collect());
}
