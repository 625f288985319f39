//! The tasks that go on for as long as their process: the first that ends, ends it.

use std::convert::Infallible;

use tokio::task::JoinSet;

use super::RunError;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Such tasks, each with a name for the log.
#[derive(Default)]
pub(super) struct Supervised(JoinSet<(&'static str, Result<(), Failure>)>);

impl Supervised {
    /// Starts one on this thread.
    pub(super) fn start<E: Into<Failure>>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + 'static,
    ) {
        self.0.spawn_local(async move { (name, task.await.map_err(Into::into)) });
    }

    /// Starts one on this thread that has nothing to fail at.
    pub(super) fn start_infallible(&mut self, name: &'static str, task: impl Future<Output = ()> + 'static) {
        self.start(name, async {
            task.await;
            Ok::<(), Infallible>(())
        });
    }

    /// Waits until one ends.
    pub(super) async fn ended(&mut self) -> RunError {
        match self.0.join_next().await {
            Some(Ok((task, result))) => RunError::Ended { task, source: result.err() },
            Some(Err(error)) => RunError::Ended { task: "a task", source: Some(Box::new(error)) },
            // There are none, so none of them ends.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    /// Whichever ends, and however, ends the process, with its name.
    #[test]
    fn the_first_that_ends_ends_all() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (how, expected) in [("returns", "returning: no reason"), ("fails", "failing: no more")] {
            let ended = LocalSet::new().block_on(&runtime, async {
                let mut tasks = Supervised::default();
                tasks.start_infallible("going on", std::future::pending());
                match how {
                    "returns" => tasks.start_infallible("returning", async {}),
                    _ => tasks.start("failing", async { Err::<(), _>("no more") }),
                }
                tasks.ended().await
            });
            let RunError::Ended { task, source } = ended else { panic!("{ended:?}") };
            let reason = source.map_or("no reason".to_owned(), |source| source.to_string());
            assert_eq!(format!("{task}: {reason}"), expected);
        }
    }
}
