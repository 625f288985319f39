//! `shim drain`, the `preStop` hook of the server's container: it tells the sidecar that this container is about to
//! end, and keeps it until the sidecar's calls have ended.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What the hook says.
pub const LINE: &[u8] = b"drain\n";

/// Says so at `socket` and returns when the sidecar has closed the connection.
///
/// There is no error, since there is nothing that anybody could do about one: without a sidecar there is nothing to
/// wait for, and the kubelet ends a hook that waits for too long.
pub fn wait(socket: &Path) {
    let Ok(mut sidecar) = UnixStream::connect(socket) else { return };
    if sidecar.write_all(LINE).is_err() {
        return;
    }
    let mut ignored = [0; 64];
    loop {
        match sidecar.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
