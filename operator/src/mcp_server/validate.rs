//! Second step: from the manifest and what it names to a [`ValidatedServer`], once. Pure.
//!
//! Everything later works on the [`ValidatedServer`] alone; the manifest is not read again.

mod bounds;
mod named;
mod pod;
mod quantity;
mod restrictions;
mod rules;
#[cfg(test)]
mod tests;
mod transport;
mod typed;
mod validated;

use longshore_crds::mcp_server as manifest;
use longshore_crds::names::MAX_NAME_LENGTH;
use longshore_crds::{McpServer, McpServerSpec};
use longshore_sidecar_config as config;

use crate::mcp_server::condition::Problem;
use crate::mcp_server::dereference::Dereferenced;
use crate::names::ObjectNames;
pub(crate) use bounds::is_too_little_memory;
pub(crate) use named::unreadable;
pub(crate) use quantity::{amount, duration};
pub(crate) use restrictions::may_label;
pub(crate) use rules::tool_filter;
pub(crate) use validated::{
    Readiness, ServerContainer, ServerPod, ValidatedAuth, ValidatedServer, ValidatedSidecar,
};

/// So many problems of one manifest are told.
const MOST_PROBLEMS: usize = 16;

/// Checks a manifest against the rules and against what it names.
///
/// An error means that not even a sidecar's configuration can be made of it: not a single object is touched, and a key
/// that is revoked meanwhile goes on working with the pods that are there. So only what `kubectl apply` refuses is such
/// an error, and a Secret of keys that cannot be read. What else is wrong costs the pods of the new version, and gives
/// nobody more than the manifest says.
pub(crate) fn validate(server: &McpServer, found: &Dereferenced) -> Result<ValidatedServer, Vec<Problem>> {
    // With the first nothing is made of the manifest, with the next two no pods are, and the last are only told.
    let (mut problems, mut unfit, mut missing, mut flaws) = (vec![], vec![], vec![], vec![]);
    let spec = &server.spec;
    let name = server.metadata.name.clone().unwrap_or_default();
    check_name(&name, &mut problems);
    if spec.source.image.trim().is_empty() {
        unfit.push(Problem::invalid("spec.source.image", "name the image to run"));
    }
    let upstream = transport::upstream(&spec.transport, &mut problems);
    let protocol = transport::protocol(&spec.transport, &mut unfit);
    if spec.transport.stdio.is_some() && spec.source.command.is_empty() {
        unfit.push(Problem::invalid(
            "spec.source.command",
            "name the program to start, since a stdio server's image cannot be asked for its own",
        ));
    }
    let limits = bounds::limits(spec, &mut problems);
    let sessions = bounds::sessions(spec, found.session_keys.seal_with(), &mut problems);
    let access = spec
        .access
        .rules
        .iter()
        .enumerate()
        .map(|(index, rule)| rules::access_rule(index, rule, &mut problems, &mut unfit));
    let access: Vec<_> = access.collect();
    let tools = rules::tool_filter(&spec.tools, &mut unfit);
    let pod = pod::pod(&spec.pod, &mut unfit);
    let mut service = spec.expose.service.clone();
    restrictions::service("spec.expose.service", &mut service, &mut unfit);
    bounds::sidecar(spec.sidecar.resources.as_ref(), &mut unfit);
    restrictions::volumes::mounts("spec.pod.volumeMounts", &spec.pod.volume_mounts, &mut unfit);
    named::check_references(server, found, &mut unfit, &mut missing);
    let auth = named::auth(server, found, &mut problems, &mut missing, &mut flaws);
    let (Some(upstream), Some(limits), Some(sessions), Some(auth), true) =
        (upstream, limits, sessions, auth, problems.is_empty())
    else {
        problems.append(&mut unfit);
        return Err(told(problems));
    };
    let readiness = match (unfit.is_empty() && missing.is_empty(), flaws.is_empty()) {
        (true, true) => Readiness::Complete,
        (true, false) => Readiness::Flawed(told(flaws)),
        (false, _) => Readiness::Incomplete(told(unfit.into_iter().chain(missing).chain(flaws).collect())),
    };
    Ok(ValidatedServer {
        identity: config::ServerIdentity {
            namespace: server.metadata.namespace.clone().unwrap_or_default(),
            uid: server.metadata.uid.clone().unwrap_or_default(),
            name: name.clone(),
        },
        names: ObjectNames::of(&name),
        replicas: spec.replicas,
        strategy: spec.strategy.type_,
        service,
        older_upstreams: found
            .mounted_upstreams
            .iter()
            .filter(|older| **older != upstream)
            .cloned()
            .collect(),
        upstream,
        protocol,
        auth,
        access,
        tools,
        limits,
        sessions,
        session_keys: found.session_keys.clone(),
        public_host: spec.expose.host.as_ref().map(|host| host.to_ascii_lowercase()),
        allowed_origins: spec.expose.allowed_origins.iter().map(|origin| as_browsers_send(origin)).collect(),
        inventory: found.inventory.clone(),
        container: container(spec, found),
        pod,
        sidecar: ValidatedSidecar {
            resources: spec.sidecar.resources.clone(),
            log_level: log_level(spec.sidecar.log_level),
            workers: spec.sidecar.workers.max(1),
        },
        readiness,
    })
}

/// The server's own container, as the manifest has it.
fn container(spec: &McpServerSpec, found: &Dereferenced) -> ServerContainer {
    let source = &spec.source;
    ServerContainer {
        image: source.image.clone(),
        image_pull_policy: source.image_pull_policy.clone(),
        command: source.command.clone(),
        args: source.args.clone(),
        env: source.env.clone(),
        env_from: source.env_from.clone(),
        has_home: named::has_home(source, found),
        resources: spec.pod.resources.clone(),
        volume_mounts: spec.pod.volume_mounts.clone(),
    }
}

/// The first of them and how many more there are: a manifest has room for a hundred thousand mistakes, and nobody reads so
/// many.
fn told(mut problems: Vec<Problem>) -> Vec<Problem> {
    if let Some(next) = problems.get(MOST_PROBLEMS) {
        let more = Problem::new(next.reason, format!("{} more like these", problems.len() - MOST_PROBLEMS));
        problems.truncate(MOST_PROBLEMS);
        problems.push(more);
        problems.shrink_to_fit();
    }
    problems
}

/// The Service has the server's name, and a Service's name is the strictest of all.
fn check_name(name: &str, problems: &mut Vec<Problem>) {
    let letters = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let ends = name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.ends_with('-');
    if !letters || !ends || name.len() > MAX_NAME_LENGTH {
        problems.push(Problem::invalid(
            "metadata.name",
            format_args!(
                "the server's Service gets this name, so it has at most {MAX_NAME_LENGTH} lower-case letters, digits \
                 and `-`, begins with a letter and does not end with `-`"
            ),
        ));
    }
}

fn log_level(level: manifest::LogLevel) -> config::LogLevel {
    match level {
        manifest::LogLevel::Error => config::LogLevel::Error,
        manifest::LogLevel::Warn => config::LogLevel::Warn,
        manifest::LogLevel::Info => config::LogLevel::Info,
        manifest::LogLevel::Debug => config::LogLevel::Debug,
        manifest::LogLevel::Trace => config::LogLevel::Trace,
    }
}

/// An origin in lower case, without its scheme's own port.
fn as_browsers_send(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let port = match origin.split_once("://") {
        Some(("https", _)) => ":443",
        Some(("http", _)) => ":80",
        _ => "",
    };
    origin.strip_suffix(port).unwrap_or(&origin).to_owned()
}
