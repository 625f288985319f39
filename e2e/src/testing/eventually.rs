//! Waiting for what no watch tells.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::wait::PATIENCE;

/// Whoever waits for long asks less often: many wait at once, and an API server that answers them all has no time for what
/// they wait for.
const FIRST: Duration = Duration::from_millis(50);
const SELDOM: Duration = Duration::from_millis(400);

/// Asks again and again until the answer is `Ok`, and returns that. `what` ends the sentence "was waiting until …".
///
/// # Panics
/// If it takes too long, with the last `Err`.
pub async fn eventually<T, E: Display>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => {
                panic!("was waiting until {what} for {} s; at last: {error}", PATIENCE.as_secs())
            }
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = pause.mul_f32(1.2).min(SELDOM);
    }
}
