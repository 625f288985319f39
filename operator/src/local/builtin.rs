//! What is served when nobody names a manifest: the example server of this very program.

use std::path::PathBuf;

use serde_json::json;

use super::manifests::{Documents, FoundServer};
use super::{Error, ServerId};

/// The manifest, as one would write it.
pub(super) fn documents() -> Result<Documents, Error> {
    let manifest = json!({
        "apiVersion": "longshore.dev/v1alpha1",
        "kind": "McpServer",
        "metadata": {"namespace": "default", "name": "example"},
        "spec": {
            "source": {
                "image": concat!("longshore:", env!("CARGO_PKG_VERSION")),
                "command": [super::OWN_PROGRAM],
                "args": ["example-server", "--transport", "stdio"],
            },
            // There is one principal. Most programs that people try it with go without ending their session.
            "transport": {"stdio": {"maxProcessesPerPrincipal": 32}},
            "auth": {"apiKeys": {"secretRef": {"name": "example-keys"}}},
            "access": {"rules": [{"name": "everything", "tools": ["*"], "prompts": ["*"], "resources": ["*"]}]},
            "catalog": {
                "title": "Longshore's example server",
                "description": "Tools to try a client with",
                "tags": ["example"],
            },
        },
    });
    let manifest: Box<longshore_crds::McpServer> =
        Box::new(serde_json::from_value(manifest).map_err(Error::Builtin)?);
    let found = FoundServer { id: ServerId::of(&manifest), manifest, folder: PathBuf::from("/") };
    Ok(Documents { servers: vec![found], ..Documents::default() })
}
