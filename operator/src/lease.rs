//! Leader election: of several operators one acts, by a `coordination.k8s.io` Lease.
//!
//! The rules are client-go's. Every write carries the `resourceVersion` that it is based on, so of two candidates one
//! gets a conflict. Whether another's lease has expired is judged by this process's own clock, from the moment that it
//! last saw the lease change: clocks of two machines are never compared. A holder that could not renew for
//! [`Timings::renew_deadline`] has lost, before anybody else may take over at [`Timings::duration`].

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use longshore_sidecar::log::sentence;
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::{self, ApiError};

/// Why an operator no longer leads.
#[derive(Debug, Error)]
pub(crate) enum Lost {
    /// The API server did not take a renewal in time.
    #[error("the lease could not be renewed for {}", describe(*.0))]
    NotRenewed(Duration),
    /// Another operator holds the lease now.
    #[error("{0} holds the lease now")]
    TakenBy(String),
}

fn describe(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f32())
}

/// How long things take. The order `retry` < `renew_deadline` < `duration` keeps two from leading at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timings {
    /// How long others leave a lease alone that they see no change of.
    pub duration: Duration,
    /// How long a holder tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// The time between two tries.
    pub retry: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// One operator's part in the election.
#[derive(Clone)]
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    identity: String,
    timings: Timings,
}

/// The lease is held. [`Leadership::hold`] keeps it.
pub(crate) struct Leadership {
    candidate: Candidate,
    lease: Lease,
    renewed: Instant,
}

/// What a candidate last saw of the lease, and when it saw it change.
struct Observed {
    version: Option<String>,
    since: Instant,
}

// === impl Candidate ===

impl Candidate {
    /// Stands for election. `identity` tells this process from every other that may be alive.
    pub(crate) fn new(client: Client, namespace: &str, name: &str, identity: &str, timings: Timings) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timings,
        }
    }

    /// Reads the lease and tries to write it, so that nothing comes of it: whether each try to take it may do so.
    pub(crate) async fn look(&self) -> Result<(), ApiError> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let tried = match api::call(self.api.get_opt(&self.name)).await? {
            Some(lease) => api::call(self.api.replace(&self.name, &dry_run, &lease)).await,
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                api::call(self.api.create(&dry_run, &Lease { metadata, spec: None })).await
            }
        };
        match tried {
            // All else says nothing of rights, such as a webhook that knows no dry run.
            Err(ApiError::Refused(status)) if status.code == 403 => Err(ApiError::Refused(status)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Waits until this operator leads. Failures of the API server are logged and waited out.
    pub(crate) async fn acquire(self) -> Leadership {
        let mut observed: Option<Observed> = None;
        loop {
            match self.try_acquire(&mut observed).await {
                Ok(Some((lease, renewed))) => return Leadership { renewed, candidate: self, lease },
                Ok(None) => {}
                Err(error) => tracing::warn!(error = sentence(&error), "cannot read or take the lease yet"),
            }
            sleep(self.timings.retry).await;
        }
    }

    /// The lease, and from when it counts: others see the write before its answer is here.
    async fn try_acquire(
        &self,
        observed: &mut Option<Observed>,
    ) -> Result<Option<(Lease, Instant)>, Failure> {
        let Some(current) = self.bounded(self.api.get_opt(&self.name)).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.claim(0)),
            };
            let started = Instant::now();
            let created = self.bounded(self.api.create(&PostParams::default(), &lease)).await;
            return Ok(lost_race_is_none(created)?.map(|lease| (lease, started)));
        };
        let spec = current.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if !holder.is_empty() && holder != self.identity {
            let version = current.metadata.resource_version.clone();
            match observed {
                Some(seen) if seen.version == version => {
                    if seen.since.elapsed() < self.lease_duration(&spec) {
                        return Ok(None);
                    }
                }
                _ => {
                    *observed = Some(Observed { version, since: Instant::now() });
                    return Ok(None);
                }
            }
        }
        let lease = Lease {
            spec: Some(self.claim(spec.lease_transitions.unwrap_or(0).saturating_add(1))),
            ..current
        };
        let started = Instant::now();
        let replaced = self.bounded(self.api.replace(&self.name, &PostParams::default(), &lease)).await;
        Ok(lost_race_is_none(replaced)?.map(|lease| (lease, started)))
    }

    /// The holder says how long its lease is to be respected; our own idea of it is only the floor.
    fn lease_duration(&self, spec: &LeaseSpec) -> Duration {
        let said = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
        Duration::from_secs(said).max(self.timings.duration)
    }

    fn claim(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.timings.duration.as_secs().max(1)).unwrap_or(i32::MAX),
            ),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }

    /// A request that hangs is a request that failed: the retry must come in time.
    async fn bounded<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        Ok(timeout(self.timings.renew_deadline, request).await.map_err(|_| Failure::Timeout)??)
    }
}

// === impl Leadership ===

impl Leadership {
    /// Renews until `stop`, then releases the lease so that the next operator need not wait. Returns early when the
    /// lease is lost: the process must end at once then, since another may act already.
    pub(crate) async fn hold(mut self, stop: CancellationToken) -> Result<(), Lost> {
        let timings = self.candidate.timings;
        let mut pause = timings.retry;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = sleep(pause) => {}
            }
            pause = timings.retry;
            let left = timings.renew_deadline.saturating_sub(self.renewed.elapsed());
            // The connection may be dead: there has to be time for another.
            match timeout(left.min(timings.renew_deadline / 2), self.renew()).await {
                Ok(Ok(())) => {}
                Ok(Err(Renewal::Taken(holder))) => return Err(Lost::TakenBy(holder)),
                Ok(Err(Renewal::Failed(error))) => {
                    tracing::warn!(error = sentence(&error), "cannot renew the lease, trying again")
                }
                Err(_) => {
                    tracing::warn!("renewing the lease takes too long");
                    pause = Duration::ZERO;
                }
            }
            if self.renewed.elapsed() >= timings.renew_deadline {
                return Err(Lost::NotRenewed(timings.renew_deadline));
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Renewal> {
        let started = Instant::now();
        let mut lease = self.lease.clone();
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let Candidate { api, name, identity, .. } = &self.candidate;
        match api.replace(name, &PostParams::default(), &lease).await {
            Ok(renewed) => {
                self.lease = renewed;
                // From before the request: others count from when they see the write, which is later.
                self.renewed = started;
                Ok(())
            }
            // Somebody wrote to the lease. If it is still ours (a label was added), go on from what it is now.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let current = api.get(name).await.map_err(Renewal::Failed)?;
                let holder = holder(&current);
                if holder != identity {
                    let holder = if holder.is_empty() { "nobody" } else { holder };
                    return Err(Renewal::Taken(holder.to_owned()));
                }
                self.lease = current;
                Ok(())
            }
            Err(error) => Err(Renewal::Failed(error)),
        }
    }

    async fn release(self) {
        let Self { candidate, mut lease, renewed: _ } = self;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let Candidate { api, name, identity, timings } = &candidate;
        // The connection may be dead: there has to be time for another.
        let one_try = timings.retry / 2;
        let release = async {
            loop {
                let replaced = timeout(one_try, api.replace(name, &PostParams::default(), &lease)).await;
                let failed = match replaced {
                    Ok(Ok(_)) => return,
                    Ok(Err(kube::Error::Api(status))) if status.is_conflict() => {
                        // It may be a write of this one's whose answer was lost.
                        match timeout(one_try, api.get(name)).await {
                            Ok(Ok(current)) if holder(&current) == identity => {
                                lease.metadata = current.metadata;
                                continue;
                            }
                            // It is released, or somebody else's by now.
                            Ok(Ok(_)) => return,
                            Ok(Err(_)) => true,
                            Err(_) => false,
                        }
                    }
                    Ok(Err(_)) => true,
                    Err(_) => false,
                };
                if failed {
                    // The API server may have too much to do just now.
                    sleep(timings.retry / 4).await;
                }
            }
        };
        if timeout(timings.retry, release).await.is_err() {
            tracing::warn!("the lease was not released: the next operator waits until it expires");
        }
    }
}

/// Why the lease could not be read or written just now.
#[derive(Debug, Error)]
enum Failure {
    #[error("the API server did not answer in time")]
    Timeout,
    #[error(transparent)]
    Api(#[from] kube::Error),
}

enum Renewal {
    Taken(String),
    Failed(kube::Error),
}

/// Who holds a lease, if anybody does.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn lost_race_is_none(result: Result<Lease, Failure>) -> Result<Option<Lease>, Failure> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(Failure::Api(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use axum::http::{Method, StatusCode};
    use axum::response::IntoResponse as _;
    use axum::{Json, Router};
    use kube::client::ClientBuilder;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// The next operator would wait until it expires.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_whatever_comes_of_the_first_try() {
        for (what, code, holder, expected) in [
            ("the API server has too much to do", Some(StatusCode::TOO_MANY_REQUESTS), "me", 2),
            ("the answer to a renewal was lost", Some(StatusCode::CONFLICT), "me", 2),
            ("the answer to its release was lost", Some(StatusCode::CONFLICT), "", 1),
            ("somebody else has taken it", Some(StatusCode::CONFLICT), "next", 1),
            ("the connection is dead", None, "me", 2),
        ] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let log = written.clone();
            let answer = async move |method: Method, lease: String| {
                if method == Method::GET {
                    let metadata = json!({"name": "longshore", "resourceVersion": "2"});
                    let spec = json!({"holderIdentity": holder});
                    return Json(json!({"metadata": metadata, "spec": spec})).into_response();
                }
                log.lock().push(lease.clone());
                if log.lock().len() > 1 {
                    return lease.into_response();
                }
                let Some(code) = code else { return pending().await };
                let reason = if code == StatusCode::CONFLICT { "Conflict" } else { "TooManyRequests" };
                let status = json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no",
                    "reason": reason, "code": code.as_u16(),
                });
                (code, Json(status)).into_response()
            };
            let client = ClientBuilder::new(Router::new().fallback(answer), "own").build();
            let candidate = Candidate::new(client, "own", "longshore", "me", Timings::default());
            let lease = Lease { spec: Some(candidate.claim(0)), ..Lease::default() };
            let leadership = Leadership { candidate, lease, renewed: Instant::now() };
            let began = Instant::now();
            leadership.release().await;
            assert!(began.elapsed() < Timings::default().retry, "{what}");
            let written = written.lock();
            assert_eq!(written.len(), expected, "{what}");
            assert!(written.iter().all(|lease| !lease.contains("holderIdentity")), "{what}");
            let is_based_on_it = written.last().unwrap().contains("\"resourceVersion\":\"2\"");
            assert_eq!(is_based_on_it, what.contains("renewal"), "{what}");
        }
    }
}
