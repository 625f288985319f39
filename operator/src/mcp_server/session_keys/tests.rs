//! How keys follow each other, and what becomes of them in a Secret that somebody changed.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use k8s_openapi::ByteString;
use longshore_sidecar_config::{Keys, paths};
use serde_json::{Value, json};

use super::record::Broken;
use super::*;

const HOUR: i64 = 3600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn situation(second: i64) -> Situation<'static> {
    Situation {
        now: at(second),
        lives: Duration::from_secs(24 * 3600),
        rotate_after: Some(Duration::from_secs(720 * 3600)),
        wish: None,
        confirmed: true,
    }
}

fn advance(keys: &SessionKeys, situation: &Situation<'_>) -> Option<(SessionKeys, Step)> {
    let byte = u8::try_from(situation.now.as_second() % 251).unwrap();
    let material = || Ok::<_, Infallible>(Material { first_id: 0, secret: [byte; SECRET_BYTES] });
    let Ok(next) = keys.advance(situation, material);
    next
}

/// The keys after a step that is due.
fn step(keys: &mut SessionKeys, situation: &Situation<'_>) -> Option<Step> {
    let (next, step) = advance(keys, situation)?;
    *keys = next;
    Some(step)
}

fn ids(keys: &SessionKeys) -> Vec<u8> {
    keys.held().map(|key| key.id).collect()
}

fn first() -> SessionKeys {
    SessionKeys::first(&Material { first_id: 7, secret: [1; SECRET_BYTES] }, at(0), Some("a"))
}

#[test]
fn one_key_follows_another_step_by_step() {
    let mut keys = first();
    let asked = |second: i64| Situation { wish: Some("b"), ..situation(second) };
    let unconfirmed = |second: i64| Situation { confirmed: false, ..asked(second) };
    assert_eq!(step(&mut keys, &Situation { wish: Some("a"), ..situation(5) }), None, "the wish of before");
    assert_eq!(step(&mut keys, &situation(5)), None, "a wish that was taken back");
    assert_eq!(step(&mut keys, &unconfirmed(10)), None, "not even the old keys are everywhere");
    assert!(keys.has_next_step(&unconfirmed(10)));
    assert_eq!(step(&mut keys, &asked(20)), Some(Step::Accepted { id: 8 }));
    assert_eq!((ids(&keys), keys.seal_with()), (vec![7, 8], 7));
    assert_ne!(keys.held[0].key.secret, keys.held[1].key.secret);
    assert_eq!(step(&mut keys, &unconfirmed(30)), None, "a pod would not know ids of the new key");
    assert_eq!(step(&mut keys, &asked(40)), Some(Step::Sealing { id: 8, before: 7 }));
    assert_eq!((ids(&keys), keys.seal_with()), (vec![7, 8], 8));
    // A pod that lags goes on sealing with the old key, for longer than sessions live.
    let late = 40 + 25 * HOUR;
    assert_eq!(step(&mut keys, &unconfirmed(late - 1)), None);
    assert!(keys.has_next_step(&unconfirmed(late - 1)));
    assert_eq!(step(&mut keys, &asked(late)), Some(Step::Retired));
    assert_eq!((ids(&keys), keys.seal_with()), (vec![7, 8], 8), "its last session has just begun");
    assert_eq!(step(&mut keys, &asked(late + 10)), None, "one wish is one rotation");
    assert!(!keys.has_next_step(&unconfirmed(late + 10)));
    let last = late + 24 * HOUR + 60;
    assert_eq!(keys.due(&asked(late + 10)), Some(Duration::from_secs(24 * 3600 + 50)));
    assert_eq!(step(&mut keys, &asked(last - 1)), None, "a session of it may be left");
    assert_eq!(step(&mut keys, &unconfirmed(last)), None);
    assert_eq!(step(&mut keys, &asked(last)), Some(Step::Dropped));
    assert_eq!((ids(&keys), keys.seal_with()), (vec![8], 8));
}

#[test]
fn age_asks_for_a_rotation_too() {
    let mut keys = first();
    assert_eq!(keys.due(&situation(HOUR)), Some(Duration::from_secs(719 * 3600)));
    assert_eq!(step(&mut keys, &situation(720 * HOUR - 1)), None);
    let never = Situation { rotate_after: None, ..situation(9000 * HOUR) };
    assert_eq!((step(&mut keys, &never), keys.due(&never)), (None, None));
    assert_eq!(step(&mut keys, &situation(720 * HOUR)), Some(Step::Accepted { id: 8 }));
    assert_eq!(step(&mut keys, &situation(720 * HOUR)), Some(Step::Sealing { id: 8, before: 7 }));
    assert_eq!(step(&mut keys, &situation(720 * HOUR)), Some(Step::Retired));
    assert_eq!(step(&mut keys, &situation(720 * HOUR)), None, "the new one is new");
    // A clock that goes back ends nothing early.
    assert_eq!(step(&mut keys, &situation(0)), None);
}

#[test]
fn keys_are_kept_for_the_longest_session_there_can_be() {
    let mut keys = first();
    step(&mut keys, &Situation { wish: Some("b"), ..situation(0) });
    step(&mut keys, &situation(0));
    step(&mut keys, &situation(0));
    let longer = Situation { lives: Duration::from_secs(48 * 3600), ..situation(25 * HOUR) };
    assert_eq!(
        step(&mut keys, &longer),
        None,
        "sessions that are there live longer since the manifest changed"
    );
    let shorter = Situation { lives: Duration::from_secs(3600), ..situation(2 * HOUR) };
    assert_eq!(step(&mut keys, &shorter), Some(Step::Dropped));
}

#[test]
fn keys_are_kept_for_tasks_and_for_what_takes_long() {
    const DAY: u64 = 24 * 60;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (max_age, request_timeout, expected) in
        [(60, 1, DAY + 1), (60, 30, DAY + 30), (DAY, 30, DAY + 30), (2 * DAY, 1, 2 * DAY + 1)]
    {
        assert_eq!(lives(minutes(max_age), minutes(request_timeout)), minutes(expected));
    }
}

/// Whoever asks again and again gets no more keys than a pod wants to try, and no number twice among those in use.
#[test]
fn numbers_come_round_and_never_meet() {
    let mut keys = first();
    let mut wishes = 0;
    for second in 0..200_000 {
        let second = second * 10;
        let wish = wishes.to_string();
        let situation =
            Situation { wish: Some(&wish), lives: Duration::from_secs(3600), ..situation(second) };
        if let Some(Step::Accepted { id }) = step(&mut keys, &situation) {
            assert_ne!(id, 0);
            wishes += 1;
        }
        let held = ids(&keys);
        assert!(held.len() <= MOST_HELD && held.contains(&keys.seal_with()), "{held:?}");
        assert_eq!(held.iter().collect::<BTreeSet<_>>().len(), held.len(), "{held:?}");
    }
    assert!(wishes > 2 * 255, "numbers came round: {wishes}");
}

fn data(sessions: Value) -> BTreeMap<String, ByteString> {
    let file = json!({"keys": [], "sessions": sessions}).to_string();
    BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(file.into_bytes()))])
}

fn stored(keys: &SessionKeys) -> BTreeMap<String, ByteString> {
    let file = Keys { keys: vec![], sessions: keys.held().cloned().collect() };
    BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(serde_json::to_vec(&file).unwrap()))])
}

#[test]
fn what_is_kept_is_what_was_there() {
    let mut keys = first();
    let read = |keys: &SessionKeys| {
        SessionKeys::read(&stored(keys), Some(&keys.record()), at(99), Some("z")).unwrap().unwrap()
    };
    assert_eq!(read(&keys), keys);
    for second in [10, 20, 30, 40] {
        step(&mut keys, &Situation { wish: Some("b"), ..situation(second) });
        assert_eq!(read(&keys), keys);
        assert!(!keys.record().contains(&keys.held[0].key.secret), "no secret is in an annotation");
    }
}

/// As after a rollback, or where the operators of two releases lead in turn.
#[test]
fn keys_stay_what_they_are_whatever_a_later_release_has_added_to_them() {
    let keys = first();
    let mut stored = stored(&keys);
    let ByteString(file) = stored.get_mut(paths::KEYS_FILE).unwrap();
    let mut later: Value = serde_json::from_slice(file).unwrap();
    let mut record: Value = serde_json::from_str(&keys.record()).unwrap();
    for object in [&mut later, &mut record] {
        object["later"] = json!({"of": ["another", "release"]});
    }
    for key in [&mut later["sessions"][0], &mut record["keys"][0]] {
        key["later"] = json!(1);
    }
    *file = later.to_string().into_bytes();
    assert_eq!(SessionKeys::read(&stored, Some(&record.to_string()), at(99), Some("z")), Ok(Some(keys)));
}

#[test]
fn what_somebody_changed_is_repaired_or_made_anew() {
    let secret = "ab".repeat(32);
    let key = |id: u8| json!({"id": id, "secret": secret});
    for (sessions, expected) in [
        (json!([]), Broken::Altered),
        (json!("x"), Broken::Altered),
        (json!([{"id": 1}]), Broken::Altered),
        (json!([{"id": 1, "secret": "ab"}]), Broken::Altered),
        (json!([{"id": 1, "secret": "AB".repeat(32)}]), Broken::Altered),
        (json!([{"id": 300, "secret": secret}]), Broken::Altered),
        (json!([key(1), key(1)]), Broken::Altered),
    ] {
        assert_eq!(
            SessionKeys::read(&data(sessions.clone()), None, at(0), None),
            Err(expected),
            "{sessions}"
        );
    }
    assert_eq!(SessionKeys::read(&BTreeMap::new(), None, at(0), None), Err(Broken::Unreadable));
    let garbage = BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(b"{".to_vec()))]);
    assert_eq!(SessionKeys::read(&garbage, None, at(0), None), Err(Broken::Unreadable));
    let older = BTreeMap::from([(paths::KEYS_FILE.to_owned(), ByteString(br#"{"keys":[]}"#.to_vec()))]);
    assert_eq!(SessionKeys::read(&older, None, at(0), None), Ok(None), "of a release without session keys");

    // Keys without their stories: nobody's session ends, and the newest seals in the end.
    for record in [
        None,
        Some(""),
        Some("{}"),
        Some(
            r#"{"sealWith":9,"keys":[{"id":4,"made":"2026-01-01T00:00:00Z"},{"id":5,"made":"2026-01-01T00:00:00Z"}]}"#,
        ),
        Some(r#"{"sealWith":5,"keys":[{"id":5,"made":"2026-01-01T00:00:00Z"}]}"#),
    ] {
        let read = SessionKeys::read(&data(json!([key(4), key(5)])), record, at(50), Some("w"));
        let mut keys = read.unwrap().unwrap();
        assert_eq!((ids(&keys), keys.seal_with()), (vec![4, 5], 4), "{record:?}");
        let situation = Situation { wish: Some("w"), ..situation(60) };
        assert_eq!(step(&mut keys, &situation), Some(Step::Sealing { id: 5, before: 4 }), "{record:?}");
        assert_eq!(step(&mut keys, &situation), Some(Step::Retired), "{record:?}");
        assert_eq!(step(&mut keys, &situation), None, "{record:?}");
    }
}

/// As where somebody puts a copy of the Secret back.
#[test]
fn keys_of_before_do_not_open_what_was_sealed_since() {
    let mut keys = first();
    let asked = Situation { wish: Some("b"), ..situation(10) };
    let before = keys.clone();
    assert_eq!(step(&mut keys, &asked), Some(Step::Accepted { id: 8 }));
    assert!(keys.has_sealing_key_of(&before) && before.has_sealing_key_of(&keys), "it seals nothing yet");
    assert_eq!(step(&mut keys, &asked), Some(Step::Sealing { id: 8, before: 7 }));
    assert!(keys.has_sealing_key_of(&before) && !before.has_sealing_key_of(&keys));
    let others = SessionKeys::first(&Material { first_id: 7, secret: [2; SECRET_BYTES] }, at(0), None);
    assert!(!others.has_sealing_key_of(&before), "the number alone says nothing");
}

#[test]
fn a_key_is_shown_to_nobody() {
    let keys = first();
    assert!(!format!("{keys:?}").contains(&keys.held[0].key.secret));
}
