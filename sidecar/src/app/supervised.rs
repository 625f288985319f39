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
