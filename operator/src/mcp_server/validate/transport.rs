//! How the server is reached.

use longshore_crds::mcp_server as manifest;
use longshore_sidecar_config as config;

use crate::mcp_server::condition::Problem;

pub(super) fn upstream(
    transport: &manifest::Transport,
    problems: &mut Vec<Problem>,
) -> Option<config::Upstream> {
    let manifest::Transport { stdio, streamable_http, sse, protocol: _ } = transport;
    let (kind, port, path) = match (stdio, streamable_http, sse) {
        (Some(_), None, None) => return Some(config::Upstream::Stdio {}),
        (None, Some(http), None) => ("streamableHttp", http.port, &http.path),
        (None, None, Some(sse)) => ("sse", sse.port, &sse.path),
        _ => {
            problems.push(Problem::invalid(
                "spec.transport",
                "say in exactly one way how the server is reached: `streamableHttp: {port: ...}`, `sse: {port: ...}` \
                 or `stdio: {}`",
            ));
            return None;
        }
    };
    if port == 0 || config::ports::RESERVED.contains(&port) {
        problems.push(Problem::invalid(
            &format!("spec.transport.{kind}.port"),
            "give the port that the server listens on; 15380, 15381 and 15382 are the sidecar's",
        ));
        return None;
    }
    // The sidecar could not use another one, and would have no configuration at all.
    let is_of_path = |byte: u8| matches!(byte, b'!' | b'$'..=b';' | b'=' | b'@'..=b'_' | b'a'..=b'~');
    if !path.starts_with('/') || !path.bytes().all(is_of_path) {
        let such = if sse.is_some() { "/sse" } else { "/mcp" };
        problems.push(Problem::invalid(
            &format!("spec.transport.{kind}.path"),
            format_args!(
                "write a path that begins with `/`, without a query, spaces and quotes, such as `{such}`"
            ),
        ));
        return None;
    }
    let path = path.clone();
    Some(match sse {
        Some(_) => config::Upstream::Sse { port, path },
        None => config::Upstream::StreamableHttp { port, path },
    })
}

/// The one revision that the server is spoken to in, if one is named that it can be spoken to in.
pub(super) fn protocol(
    transport: &manifest::Transport,
    unfit: &mut Vec<Problem>,
) -> Option<manifest::Protocol> {
    if transport.sse.is_some() && transport.protocol == Some(manifest::Protocol::V2026_07_28) {
        unfit.push(Problem::invalid(
            "spec.transport.protocol",
            "no server speaks 2026-07-28 over HTTP+SSE: name an older revision, or leave it out",
        ));
        return None;
    }
    transport.protocol
}
