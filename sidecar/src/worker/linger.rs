//! The end of a connection whose client still sends: it was refused before all of its request was read. If the connection
//! were closed then, the kernel would reset it for what is unread, and the client might never see its answer.

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Duration, timeout};

/// How much is read and dropped: more than the largest request that could be permitted.
const MOST: usize = 64 << 20;
/// How long that may take: as long as a request may.
const LONGEST: Duration = Duration::from_secs(30);
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(5);
/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// Reads and drops what comes until the client, which was told that this connection ends, closes it.
pub(super) async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) {
    let mut dropped = vec![0; PIECE];
    let mut left = MOST;
    let rest = async {
        while let Ok(Ok(read @ 1..)) = timeout(SILENCE, stream.read(&mut dropped)).await {
            left = left.saturating_sub(read);
            if left == 0 {
                break;
            }
        }
    };
    // Whatever it came to, the connection is closed now.
    let _ = timeout(LONGEST, rest).await;
}
