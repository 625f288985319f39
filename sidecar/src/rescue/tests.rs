use super::*;

/// Whoever is on call looks up what the audit log says, and what the client got.
#[test]
fn the_page_on_sessions_explains_what_sessions_are_refused_for() {
    let page = include_str!("../../../docs/sessions.md");
    for refusal in [
        Refusal::UnknownSession,
        Refusal::SessionLost,
        Refusal::TooManySessions,
        Refusal::TooManyOwnSessions { limit: 1 },
        Refusal::TooManyStreams { limit: 1 },
        Refusal::SessionOutOfReach(Undecided::Unreachable),
        Refusal::SessionOutOfReach(Undecided::Unsettled),
        Refusal::SessionOutOfReach(Undecided::Undecided),
        Refusal::PodEnds,
        Refusal::ReplicaLost,
        Refusal::EndNotNoted,
        Refusal::EventsGone,
        Refusal::SecondStream,
    ] {
        let reason = format!("`{}`", refusal.reason());
        let row = page.lines().find(|line| line.starts_with("| `") && line.contains(&reason));
        let row = row.unwrap_or_else(|| panic!("nothing is said of {reason}"));
        let rescued = rescue(&refusal, None, Kind::Request, Revision::NEWEST_WITH_INITIALIZE);
        assert!(row.contains(rescued.status.as_str()), "{} for {row}", rescued.status);
    }
}
