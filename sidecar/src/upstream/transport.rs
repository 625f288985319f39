//! The ways of one thread to the server as it is: the same whatever it speaks over, in the form of the era that the server
//! itself is of.

use std::rc::Rc;
use std::sync::Arc;

use ::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use longshore_sidecar_config::{Config, Upstream};
use tokio::sync::Semaphore;
use tokio::time::Duration;

use super::abandoned_handshakes::{self, Handshake, Unwanted};
use super::http::Place;
use super::message::Known;
use super::sse::Sse;
use super::stdio::Stdio;
use super::{Answer, Failure, Former, Hold, Letter, Opener, Post, Recalled, call, http, starts};
use crate::held::{Coming, Share, Shares};
use crate::server_doubt::Doubt;
use crate::worker::Pace;

/// The ways of one thread.
pub(crate) struct Transport {
    http: Rc<http::Connections>,
    /// Places for handshakes that nobody waits for.
    unheard: Arc<Semaphore>,
    stdio: Arc<Stdio>,
    sse: Arc<Sse>,
    /// Where answers are counted that are not whole yet.
    held: Arc<Shares>,
    /// Whether the server is there still.
    pub(super) doubt: Arc<Doubt>,
}

/// Why there is no room for a request that is there twice, in the words of either era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    /// Others take it up.
    #[error("there is no room for the request")]
    Now,
    /// It is larger than one may be that is held twice.
    #[error("there never is room for a request of more than {most} bytes")]
    Ever { most: u64 },
}

impl Transport {
    pub(crate) fn new(
        pace: Arc<Pace>,
        stdio: Arc<Stdio>,
        sse: Arc<Sse>,
        held: Arc<Shares>,
        doubt: Arc<Doubt>,
    ) -> Self {
        let http = Rc::new(http::Connections::new(pace));
        Self { http, unheard: abandoned_handshakes::places(), stdio, sse, held, doubt }
    }

    /// What is coming for somebody. What is for the sidecar itself is not counted: clients must not keep it from looking
    /// after the server.
    pub(super) fn coming_for(&self, opener: &Opener) -> Coming {
        Coming::new(self.kept_for(opener))
    }

    /// What is kept for somebody, of nothing yet. As above, what is the sidecar's own is not counted.
    pub(super) fn kept_for(&self, opener: &Opener) -> Option<Share> {
        opener.principal().map(|principal| self.held.nothing(principal))
    }

    /// A message that is held whole for somebody from now on, if there is room for it.
    pub(super) fn hold(&self, opener: &Opener, message: Bytes) -> Option<Bytes> {
        match opener.principal() {
            Some(principal) => self.held.hold(principal, message),
            None => Some(message),
        }
    }

    /// The same of a request in the server's words, beside those of its client (`said`).
    pub(super) fn hold_beside(&self, said: &str, opener: &Opener, request: Bytes) -> Result<Bytes, NoRoom> {
        let (both, largest) = (said.len() + request.len(), self.held.largest());
        let why = if both > largest { NoRoom::Ever { most: largest as u64 / 2 } } else { NoRoom::Now };
        self.hold(opener, request).ok_or(why)
    }

    /// How long a handshake may take that somebody waits for.
    pub(super) fn handshake_patience(&self, upstream: &Upstream) -> Duration {
        match upstream {
            Upstream::Stdio {} => self.stdio.starts.patience(),
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => starts::AT_LEAST,
        }
    }

    /// How long it may take to begin a session again. Where others start just now, or wait for that, its process may have to
    /// wait for its turn for as long as each of them may take.
    pub(super) fn beginning_patience(&self, upstream: &Upstream) -> Duration {
        let patience = self.handshake_patience(upstream);
        match upstream {
            Upstream::Stdio {} => patience + self.turns_ahead(patience),
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => patience,
        }
    }

    /// How long the turns may take that are before that of a process which is needed now, where each takes so long. Who waits
    /// for less is ended in the middle of its start, and comes back behind all others.
    fn turns_ahead(&self, each: Duration) -> Duration {
        each.saturating_mul(self.stdio.turns_ahead()).min(starts::AT_MOST)
    }

    /// How long the handshake of a client may take: as long as a call may, unless a process is started for it that takes
    /// longer.
    pub(super) fn opening_patience(&self, config: &Config) -> Duration {
        let usual = Duration::from_millis(config.limits.request_timeout_ms);
        match config.upstream {
            Upstream::Stdio {} => {
                let queued = config.limits.processes.map_or(0, |processes| processes.queue_ms);
                let turns = self.turns_ahead(self.stdio.starts.turn());
                self.stdio.starts.patience_of_client(usual, Duration::from_millis(queued) + turns)
            }
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => usual,
        }
    }

    /// Notes that a server has answered for the first time within so long of its start.
    pub(super) fn started_within(&self, upstream: &Upstream, took: Duration) {
        if let Upstream::Stdio {} = upstream {
            self.stdio.starts.saw(took);
        }
    }

    /// Closes connections that are not used again, for as long as the process lives.
    pub(super) async fn sweep(&self) {
        self.http.sweep().await;
    }

    /// Which process serves a session, by a number that no other one has; none where there are none.
    pub(super) fn process_of(&self, session: &HeaderValue) -> Option<u64> {
        self.stdio.process_of(session)
    }

    /// Sends a message in a session, and waits for the head of the answer.
    pub(crate) async fn send(&self, upstream: &Upstream, letter: Letter) -> Result<Answer, Failure> {
        self.send_known(upstream, letter, None).await
    }

    /// The same of one that may be known.
    pub(super) async fn send_known(
        &self,
        upstream: &Upstream,
        letter: Letter,
        known: Option<&Known>,
    ) -> Result<Answer, Failure> {
        match upstream {
            Upstream::StreamableHttp { port, path } => Ok(self.http.send_to(*port, path, letter).await?),
            // Boxed, these two, so that calls over the third are not as large.
            Upstream::Stdio {} => Ok(Box::pin(self.stdio.send(letter, known)).await?),
            Upstream::Sse { port, path } => {
                let place = Place { port: *port, path: path.clone() };
                Ok(Box::pin(self.sse.send(&place, letter, known)).await?)
            }
        }
    }

    /// Sends the message that opens a session, and waits for the head of the answer. What the session costs is given
    /// back unless the hold is kept. A session whose answer nobody waits for is ended.
    pub(crate) async fn open(
        &self,
        upstream: &Upstream,
        opener: Opener,
        post: Post,
    ) -> Result<(Answer, Hold), Failure> {
        match upstream {
            Upstream::StreamableHttp { port, path } => {
                let place = Place { port: *port, path: path.clone() };
                let handshake = Handshake::begin(&self.http, &self.unheard, place, post);
                Ok((handshake.await?, Hold::nothing()))
            }
            Upstream::Stdio {} => Ok(self.stdio.open(opener, post.body).await?),
            Upstream::Sse { port, path } => {
                let place = Place { port: *port, path: path.clone() };
                self.sse.open(&self.http, place, self.coming_for(&opener), post).await
            }
        }
    }

    /// A session that a server has begun with its answer to something else, under this id.
    pub(super) fn unwanted(&self, upstream: &Upstream, id: HeaderValue) -> Option<Unwanted> {
        match upstream {
            Upstream::StreamableHttp { port, path } => {
                let place = Place { port: *port, path: path.clone() };
                Some(Unwanted::new(&self.http, &self.unheard, place, id))
            }
            // These are ended with what is held of them.
            Upstream::Stdio {} | Upstream::Sse { .. } => None,
        }
    }

    /// Why a session would wait for its process, or does if its opening has `begun`.
    pub(super) fn lacks_place(&self, upstream: &Upstream, opener: &Opener, begun: bool) -> Option<Failure> {
        match upstream {
            Upstream::Stdio {} => self.stdio.lacks_place(opener, begun).map(Failure::from),
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => None,
        }
    }

    /// Why it would wait, or have another session end.
    pub(super) fn lacks_place_now(&self, upstream: &Upstream, opener: &Opener) -> Option<call::Failure> {
        match upstream {
            Upstream::Stdio {} => self.stdio.lacks_place_now(opener),
            Upstream::StreamableHttp { .. } | Upstream::Sse { .. } => None,
        }
    }

    /// Takes a session up again that a sidecar before this one began in this pod: `session` is the server's own id of
    /// it. A server over HTTP has kept it or says that it has not; the process of one over stdio waits a few seconds for
    /// the sidecar that comes back. Asked for twice at once, it goes on for both.
    pub(crate) async fn recall(
        &self,
        upstream: &Upstream,
        session: &HeaderValue,
        former: Former,
    ) -> Result<Recalled, Failure> {
        match upstream {
            Upstream::StreamableHttp { .. } => Ok(Recalled::GoesOn),
            // Its stream has ended with the sidecar that read it.
            Upstream::Sse { .. } => Ok(Recalled::Forgotten),
            Upstream::Stdio {} => Ok(self.stdio.recall(session, former).await?),
        }
    }

    /// Sends a request that stands alone, and waits for the head of the answer. Who drops this, or the answer, cancels
    /// it.
    pub(crate) async fn call(
        &self,
        upstream: &Upstream,
        opener: &Opener,
        post: Post,
    ) -> Result<Answer, Failure> {
        match upstream {
            Upstream::StreamableHttp { port, path } => Ok(self.http.send_to(*port, path, post).await?),
            Upstream::Stdio {} => Ok(self.stdio.call(opener, post.body).await?),
            // This transport is older than such requests.
            Upstream::Sse { .. } => Ok(Answer::empty(StatusCode::METHOD_NOT_ALLOWED)),
        }
    }
}
