//! What is repeated of what others say.

use super::*;

/// A log ends with why, and a message is cut at its end.
#[test]
fn the_last_line_of_a_log_is_shown_whatever_stands_before_it() {
    let lines: String =
        (0..60).map(|line| format!("  File \"server.py\", line {line:04}, in main\n")).collect();
    let why = "ValueError: no token given";
    let long_line = format!("\u{e9}{}", "\u{e9}".repeat(900));
    for (log, beginning) in [
        (format!("{lines}{why}"), "its last lines: …  File \"server.py\", line 00"),
        (format!("{lines}{long_line} {why}"), "its last lines: …\u{e9}"),
        (format!("short\n{why}"), "its last lines: short\nValueError"),
    ] {
        let server = ContainerView { ended: ended(127, "Error", &log), ..running() };
        let crashed = PodView { server, ..pod("new") };
        // Alone, and beside the previous version.
        for pods in [vec![silent(crashed.clone())], vec![said(ready(pod("old")), summary()), silent(crashed)]]
        {
            let status = Scene::of(pods).after(&was_ready()).status();
            for type_ in [ConditionType::Available, ConditionType::Ready] {
                let message = &of(&status, type_).message;
                assert!(message.ends_with(why), "{message}");
                assert!(message.contains(beginning), "{message}");
            }
        }
    }
}

/// Principals, and the URIs of resources, are in them.
#[test]
fn lines_of_the_audit_log_are_not_repeated() {
    let audit =
        r#"{"time":"2026-12-01T03:23:32.331Z","audit":1,"principal":"alice","target":"now","duration":0.1}"#;
    let rest = r#"rincipal":"alice","target":"now","duration":0.1}"#;
    let own = r#"{"level":"ERROR","message":"port taken"}"#;
    let nothing = "`kubectl logs github-new -c longshore-sidecar --previous` may say why".to_owned();
    for (log, expected) in [
        (format!("{rest}\n{audit}\n{audit}\n"), nothing),
        (format!("{rest}\n{audit}\n{own}\n{audit}\n"), format!("its last lines: {own}")),
        (format!("{own}\n{own}"), format!("its last lines: {own}\n{own}")),
    ] {
        let end = ended(137, "Error", &log);
        let sidecar = ContainerView { ended: end, ..waiting("CrashLoopBackOff", "back-off") };
        let status = Scene::of(vec![silent(PodView { sidecar, ..pod("new") })]).status();
        let message = &of(&status, ConditionType::Available).message;
        assert_eq!(*message, format!("the sidecar was ended by signal 9; {expected}"));
    }
}
