//! Waiting for what no watch tells.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::wait::PATIENCE;

/// Asks again and again, twenty times a second, until the answer is `Ok`, and returns that. `what` ends the sentence
/// "was waiting until …".
///
/// # Panics
/// If it takes too long, with the last `Err`.
pub async fn eventually<T, E: Display>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) if Instant::now() > deadline => {
                panic!("was waiting until {what} for {} s; at last: {error}", PATIENCE.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
