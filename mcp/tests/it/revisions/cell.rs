//! Many verdicts as few words.

use longshore_mcp::revision::Revision;
use longshore_mcp::translate::Pair;

use super::{Feature, Reads, Verdict};

/// What a cell says of these pairs. Within a cell it depends on nothing but the revision of who reads.
pub(super) fn write(feature: &Feature, pairs: &[Pair]) -> String {
    let mut by_reader: Vec<(Revision, String)> = Vec::new();
    for pair in pairs {
        let (reader, sender) = match feature.reads {
            Reads::Client => (pair.client, pair.server),
            Reads::Server => (pair.server, pair.client),
        };
        let words = match (feature.probe)(*pair) {
            Verdict::Unheard => continue,
            Verdict::Passes => "passes".to_owned(),
            Verdict::Becomes(form) => form.to_owned(),
            Verdict::Answered(words) => format!("Longshore: {words}"),
            Verdict::Refused(error) => format!("refused: {error}"),
        };
        match by_reader.iter().find(|(known, _)| *known == reader) {
            Some((_, said)) => assert_eq!(*said, words, "{}: {sender} and {reader}", feature.name),
            None => by_reader.push((reader, words)),
        }
    }
    by_reader.sort();
    let Some((_, first)) = by_reader.first().cloned() else { return "-".to_owned() };
    let Some(at) = by_reader.iter().position(|(_, words)| *words != first) else { return first };
    let (since, then) = by_reader[at].clone();
    assert!(by_reader[at..].iter().all(|(_, words)| *words == then), "{}: {by_reader:?}", feature.name);
    let whose = match feature.reads {
        Reads::Client => "clients",
        Reads::Server => "servers",
    };
    format!("{then}; for {whose} before {since}: {first}")
}
