//! What is told of a namespace in which a test has failed.

use crate::longshore;

/// The questions to kubectl, with a title for each.
pub(super) fn sections(namespace: &str) -> Vec<(&'static str, Vec<String>)> {
    let here = |arguments: &[&str]| {
        let all = ["--namespace", namespace].into_iter().chain(arguments.iter().copied());
        all.map(str::to_owned).collect()
    };
    let operator = [
        "--namespace",
        longshore::NAMESPACE,
        "logs",
        "--selector=app.kubernetes.io/name=longshore",
        "--all-containers",
        "--prefix",
        "--tail=80",
    ];
    vec![
        ("objects", here(&["get", "all,endpointslices,configmaps,networkpolicies", "-o", "wide"])),
        ("servers", here(&["get", "mcpservers", "-o", "yaml"])),
        ("pods", here(&["describe", "pods"])),
        ("events", here(&["get", "events", "--sort-by=.lastTimestamp"])),
        (
            "logs of the pods",
            here(&[
                "logs",
                "--selector=app.kubernetes.io/managed-by=longshore",
                "--all-containers",
                "--prefix",
                "--tail=20000",
            ]),
        ),
        ("logs of the operator", operator.map(str::to_owned).to_vec()),
    ]
}

/// What is told of an answer: all but the calls that went well, of which there may be very many.
pub(super) fn told(answer: &str) -> String {
    let is_of_use =
        |line: &&str| !(line.contains(r#""audit":1"#) && line.contains(r#""status":200,"code":null"#));
    answer.lines().filter(is_of_use).collect::<Vec<_>>().join("\n")
}

/// Where the test harness collects what a test has said.
#[expect(
    clippy::print_stderr,
    reason = "this is the output of a test, which the test harness captures from here"
)]
pub(super) fn say(text: &str) {
    eprintln!("{text}");
}
