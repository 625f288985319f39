//! Tools that do something.

use longshore_mcp::level::Level;
use longshore_mcp::revision::Structured;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::content::{said, text};
use super::{Outcome, read};
use crate::call::Call;
use crate::failure::Failure;

/// How long a countdown may be.
pub(crate) const MAX_SECONDS: f64 = 3600.0;
/// How often a countdown says how far it is.
const STEPS_A_SECOND: f64 = 4.0;
/// How far apart what a tool sends is, in milliseconds: far enough that a client sees that it does not come at once.
const PAUSE: u64 = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Countdown {
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    pub(super) uri: String,
}

pub(super) async fn run(call: &Call, name: &str, arguments: Map<String, Value>) -> Outcome {
    match name {
        "echo" => read(call, arguments).map(|Echo { message }| said(message)),
        "add" => {
            let Add { a, b } = read(call, arguments)?;
            add(call, a + b)
        }
        "countdown" => {
            let Countdown { seconds } = read(call, arguments)?;
            countdown(call, seconds).await
        }
        "now" => Ok(said(jiff::Timestamp::now().to_string())),
        "test_tool_with_logging" => {
            call.log(Level::Info, "Tool execution started");
            call.wait(PAUSE).await;
            call.log(Level::Info, "Tool processing data");
            call.wait(PAUSE).await;
            call.log(Level::Info, "Tool execution completed");
            Ok(said("Tool with logging executed successfully"))
        }
        "test_logging_tool" => {
            for level in Level::ALL {
                call.log(level, &format!("This is logged at level {level}"));
            }
            Ok(said("logged"))
        }
        "test_tool_with_progress" => {
            for done in [0.0, 50.0, 100.0] {
                call.progress(done, 100.0, Some(&format!("Completed step {done} of 100")));
                call.wait(PAUSE).await;
            }
            Ok(said("Tool with progress executed successfully"))
        }
        _ => {
            // The client is told to come back; the answer is then there.
            call.stream.hang_up();
            call.wait(2 * PAUSE).await;
            Ok(said("Reconnection test completed successfully"))
        }
    }
}

fn add(call: &Call, sum: f64) -> Outcome {
    if !sum.is_finite() {
        return Err(Failure::Tool("the sum is too large".to_owned()));
    }
    let mut result = json!({"content": [text(json!({"sum": sum}).to_string())]});
    if call.revision().features().structured >= Structured::Object {
        result["structuredContent"] = json!({"sum": sum});
    }
    Ok(result)
}

async fn countdown(call: &Call, seconds: f64) -> Outcome {
    if !(0.0..=MAX_SECONDS).contains(&seconds) {
        return Err(Failure::Tool(format!("`seconds` is from 0 to {MAX_SECONDS}")));
    }
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let steps = (seconds * STEPS_A_SECOND).floor();
    let mut step = 1.0;
    loop {
        let next = began + Duration::from_secs_f64(step / STEPS_A_SECOND);
        sleep_until(next.min(end)).await;
        if step > steps {
            return Ok(said(format!("counted down {seconds} seconds")));
        }
        let done = step / STEPS_A_SECOND;
        call.progress(done, seconds, Some(&format!("{} seconds left", seconds - done)));
        step += 1.0;
    }
}
