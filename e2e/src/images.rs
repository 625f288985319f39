//! Images, made on this machine and imported by file: there is no registry in a test.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checkout::{self, ScriptError};

/// An image in an OCI archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// What a pod calls it.
    pub reference: String,
    /// The file that `ctr images import` takes.
    pub archive: PathBuf,
}

/// Longshore's own two images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongshoreImages {
    /// The operator and command line.
    pub operator: Image,
    /// The sidecar, with the shim.
    pub sidecar: Image,
}

/// Builds Longshore's images from this checkout. The tags are digests of what is in them: unchanged programs are the
/// same image. `LONGSHORE_E2E_IMAGES` names a file with what `make images` printed, to use those instead.
pub fn longshore() -> Result<LongshoreImages, ScriptError> {
    const SCRIPT: &str = "images/longshore.sh";
    let [operator, sidecar] = match std::env::var_os("LONGSHORE_E2E_IMAGES") {
        None => script(SCRIPT, &[])?,
        Some(file) => {
            let failed = |source| ScriptError::Start { script: PathBuf::from(&file), source };
            let text = std::fs::read_to_string(&file).map_err(failed)?;
            images(SCRIPT, &text.lines().map(str::to_owned).collect::<Vec<_>>())?
        }
    };
    Ok(LongshoreImages { operator, sidecar })
}

/// Images of MCP servers that others wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerImages {
    /// `@modelcontextprotocol/server-everything`: runs as root by default; port 3001, `/mcp`, on all addresses. With
    /// `server-filesystem` beside it.
    pub everything: Image,
    /// A server on the Go SDK; port 3000, `/mcp`, on loopback. `e2e/peers/go/main.go` has its tools and flags.
    pub go: Image,
    /// `mcp-server-time` and `mcp-server-git` over stdio, on Python: `python3 -m mcp_server_time`.
    pub python: Image,
}

/// Makes the images of servers that others wrote.
pub fn peers() -> Result<PeerImages, ScriptError> {
    let [everything, go, python] = script("peers/images.sh", &[])?;
    Ok(PeerImages { everything, go, python })
}

/// Builds the image of the server that load tests call: `/echo-server`, whose `main.rs` has its tools and flags.
pub fn echo_server() -> Result<Image, ScriptError> {
    let [image] = script("images/echo-server.sh", &[])?;
    Ok(image)
}

/// Makes an image of the folder `context`, whose `Containerfile` starts `FROM scratch`.
pub(crate) fn build(name: &str, context: &Path) -> Result<Image, ScriptError> {
    let [image] = script("images/image.sh", &[name, &context.to_string_lossy()])?;
    Ok(image)
}

fn script<const N: usize>(path: &str, arguments: &[&str]) -> Result<[Image; N], ScriptError> {
    images(path, &checkout::script(path, arguments)?)
}

fn images<const N: usize>(path: &str, lines: &[String]) -> Result<[Image; N], ScriptError> {
    let images: Option<Vec<Image>> = lines.iter().map(|line| parse(line)).collect();
    images
        .and_then(|images| images.try_into().ok())
        .ok_or_else(|| ScriptError::Output { script: path.into(), line: lines.join("\n") })
}

/// Reads a line `REFERENCE ARCHIVE`.
fn parse(line: &str) -> Option<Image> {
    let (reference, archive) = line.split_once(' ')?;
    Some(Image { reference: reference.to_owned(), archive: archive.into() })
}
