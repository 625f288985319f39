//! The rest of a stream that its server has ended early, or whose connection broke.

use tokio::time::{Duration, sleep};

use super::Answer;
use super::forgotten::is_not_now;

/// How soon a server is asked again that cannot give it now: at first, and at most, since the wait doubles each time.
const SOON: Duration = Duration::from_secs(1);
const AT_MOST: Duration = Duration::from_secs(16);
/// How often it is asked, which takes a minute. Most calls have their deadline before that.
const TIMES: u32 = 8;

/// Asks for it until the server gives it. None: there is none to be had.
pub(crate) async fn rest(ask: impl AsyncFn() -> Option<Answer>) -> Option<Answer> {
    let mut wait = SOON;
    for time in 1..=TIMES {
        let answer = ask().await?;
        if answer.is_stream() {
            return Some(answer);
        }
        if time == TIMES || !is_not_now(answer.status) {
            break;
        }
        drop(answer);
        sleep(wait).await;
        wait = (wait * 2).min(AT_MOST);
    }
    None
}
