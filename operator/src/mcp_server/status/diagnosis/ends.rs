//! Why a container ended or could not start, in words.

use std::borrow::Cow;

use longshore_crds::names::{SERVER_CONTAINER, SIDECAR_CONTAINER};
use longshore_sidecar_config::ports::ADMIN;

use super::{Diagnosis, OUT_OF_MEMORY, failure};
use crate::mcp_server::condition::Reason;
use crate::view::Ended;

/// So much of what a container said last is repeated: a condition has room for it and for what stands before it.
const LAST_WORDS: usize = 640;
/// What a line of a sidecar's audit log has in it, and no other.
const AUDIT: &str = r#""audit":"#;

pub(super) fn sidecar_exit(pod: &str, ended: &Ended) -> String {
    if ended.reason == OUT_OF_MEMORY {
        return "was killed because it used more memory than its limit allows; raise \
                spec.sidecar.resources.limits.memory"
            .to_owned();
    }
    if ended.code == 0 {
        return format!(
            "exited with code 0, as it does on SIGTERM, which a failing liveness probe brings about: let the kubelet \
             reach port {ADMIN} of the pod; `kubectl describe pod {pod}` shows the probe's error"
        );
    }
    exit(pod, SIDECAR_CONTAINER, &Ended { message: own_words(&ended.message), ..ended.clone() })
}

/// What a sidecar said last of itself. Beside that stands its audit log: who called what is not for everybody who reads a
/// status, and says nothing of why it ended.
fn own_words(log: &str) -> String {
    // The kubelet keeps the end of a log, which may begin within a line.
    let is_rest = |at: usize, line: &str| at == 0 && line.ends_with('}') && !line.starts_with('{');
    let own = log.lines().enumerate().filter(|&(at, line)| !is_rest(at, line) && !line.contains(AUDIT));
    own.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// The kubelet says it in two ways by turns, one of which quotes the other.
pub(super) fn image_message(message: &str, image: &str) -> String {
    let cause = message.split_once("ErrImagePull: ").map_or(message, |(_, cause)| cause);
    if cause.starts_with("Back-off pulling image") || cause.is_empty() {
        return format!(
            "the image {image} cannot be pulled: check its name, and spec.pod.imagePullSecrets if it is private"
        );
    }
    format!(
        "the image {image} cannot be pulled (check its name, and spec.pod.imagePullSecrets if it is private): {cause}"
    )
}

/// What the words of a runtime are about where it is not the program that is not there, or that may not be used.
const NO_PROGRAM: [&str; 4] = ["seccomp profile", "apparmor profile", "error mounting", "chdir to cwd"];

/// A container that the runtime could not start at all.
pub(super) fn start(message: &str) -> Diagnosis {
    let text = message.to_ascii_lowercase();
    let is_of_program = !NO_PROGRAM.iter().any(|other| text.contains(other));
    if is_of_program
        && (text.contains("executable file not found") || text.contains("no such file or directory"))
    {
        failure(
            Reason::CommandNotFound,
            format!("the image has no such program; correct spec.source.command: {}", essence(message)),
        )
    } else if is_of_program && text.contains("permission denied") {
        failure(
            Reason::CommandNotExecutable,
            format!(
                "the program may not be executed by the server's user; correct spec.source.command or the file's mode: {}",
                essence(message)
            ),
        )
    } else {
        // What other words are about stands before an `exec` or a `stat` in them.
        let words = if is_of_program { essence(message) } else { without_end(message) };
        failure(Reason::ContainerRefused, format!("the container cannot be started: {words}"))
    }
}

/// The runtime wraps what happened in the story of how it came to it, which differs from one attempt to the next.
fn essence(message: &str) -> &str {
    let message = without_end(message);
    let start = ["exec: ", "stat "].iter().filter_map(|mark| message.find(mark)).min().unwrap_or(0);
    &message[start..]
}

fn without_end(message: &str) -> &str {
    message.rfind(": unknown").map_or(message, |end| &message[..end])
}

pub(super) fn ended(pod: &str, ended: &Ended) -> Diagnosis {
    match ended.reason.as_str() {
        "StartError" | "ContainerCannotRun" => start(&ended.message),
        OUT_OF_MEMORY => failure(
            Reason::OutOfMemory,
            "the server was killed because memory ran out: raise spec.pod.resources.limits.memory; if nothing limits it, \
             the node had no more, and spec.pod.resources.requests.memory lets it come to one that has",
        ),
        _ => failure(Reason::ServerExited, format!("the server {}", exit(pod, SERVER_CONTAINER, ended))),
    }
}

pub(super) fn exit(pod: &str, container: &str, ended: &Ended) -> String {
    let code = ended.code;
    // Shells and the kubelet say so when a signal ended a process.
    let how = if code > 128 && code < 192 {
        format!("was ended by signal {}", code - 128)
    } else {
        format!("exited with code {code}")
    };
    let hint = match code {
        0 if container == SERVER_CONTAINER => {
            ", which a server must not do while it is wanted, unless its liveness or startup probe fails"
        }
        // By SIGKILL where it did not end on SIGTERM.
        137 | 143 if container == SERVER_CONTAINER => {
            ", as where its liveness or startup probe fails, if it has one"
        }
        126 => ", which usually means that a program may not be executed",
        127 => ", which usually means that a program was not found",
        _ => "",
    };
    if ended.message.is_empty() {
        format!("{how}{hint}; `kubectl logs {pod} -c {container} --previous` may say why")
    } else {
        format!("{how}{hint}; its last lines: {}", last_lines(&ended.message))
    }
}

/// The end of a log, where a program says why it gave up: whole lines of it, unless the first is most of what fits.
fn last_lines(log: &str) -> Cow<'_, str> {
    if log.len() <= LAST_WORDS {
        return log.into();
    }
    let end = &log[log.ceil_char_boundary(log.len() - LAST_WORDS)..];
    let line = end.find('\n').filter(|at| *at < LAST_WORDS / 2);
    format!("…{}", line.map_or(end, |at| &end[at + 1..])).into()
}
