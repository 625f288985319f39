//! Questions to other replicas. They are asked on the control thread, whoever wants to know: they are few, and the
//! connections for them are shared.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use longshore_mcp::headers::JSON;
use longshore_sessions::Question;
use longshore_sessions::bounds::{HEARTBEAT, MAX_MEMBERS, QUESTION};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::connection::{Connections, Failure};
use super::listen::MAX_MESSAGE;
use super::tls::Tls;
use super::wire;
use crate::shared::Shared;

/// How many questions of a kind wait. Requests that look for their session ask every replica once.
const QUEUE: usize = 1024;
/// How many of a kind are under way: one for each replica, for some requests at once.
const UNDER_WAY: usize = 4 * MAX_MEMBERS;

/// A question on its way, and who waits for the answer.
pub(super) struct Ask {
    pub(super) to: IpAddr,
    pub(super) text: Bytes,
    pub(super) reply: oneshot::Sender<Result<Bytes, Failure>>,
}

/// Where questions wait to be asked. Nothing waits behind those of requests that look for their session: with a replica
/// that hangs these are many and take their time. What this replica has to say for itself does not, since who says nothing
/// meanwhile looks dead; nor does what has become of sessions that are found, whose clients wait until others know it.
pub(super) struct Asks {
    own: mpsc::Sender<Ask>,
    of_sessions: mpsc::Sender<Ask>,
    of_searches: mpsc::Sender<Ask>,
}

/// The other ends.
pub(super) struct Asked {
    own: Lane,
    of_sessions: Lane,
    of_searches: Lane,
}

/// Questions of a kind: those that wait, and those under way.
struct Lane {
    waiting: mpsc::Receiver<Ask>,
    under_way: JoinSet<()>,
}

pub(super) fn queues() -> (Asks, Asked) {
    let [(own, own_lane), (of_sessions, sessions_lane), (of_searches, searches_lane)] =
        [(); 3].map(|()| lane());
    let asked = Asked { own: own_lane, of_sessions: sessions_lane, of_searches: searches_lane };
    (Asks { own, of_sessions, of_searches }, asked)
}

fn lane() -> (mpsc::Sender<Ask>, Lane) {
    let (asks, waiting) = mpsc::channel(QUEUE);
    (asks, Lane { waiting, under_way: JoinSet::new() })
}

/// Asks what the others of this process want to know. Ends when nobody is left who could.
pub(super) async fn serve(shared: Arc<Shared>, asked: Asked) {
    let connections = Rc::new(Connections::default());
    let ask = |to, text| {
        let tls = tls(&shared);
        let to = SocketAddr::new(to, shared.peers.port());
        let connections = connections.clone();
        async move {
            let answer = timeout(QUESTION, ask_whoever(&connections, &tls?, to, text)).await;
            answer.unwrap_or(Err(Failure::TimedOut))
        }
    };
    let mut tick = interval(HEARTBEAT);
    let tidy = async {
        loop {
            tick.tick().await;
            // Questions have an end of their own.
            connections.tidy(|_| true);
        }
    };
    tokio::select! {
        () = asked.each(ask) => {}
        () = tidy => {}
    }
}

/// Asks over a connection of its own: who is at the other end of a Service's address is another one each time.
pub(super) async fn once(shared: &Shared, to: IpAddr, text: Bytes) -> Result<Bytes, Failure> {
    let to = SocketAddr::new(to, shared.peers.port());
    let answer = timeout(QUESTION, ask_once(&Connections::default(), &tls(shared)?, to, text)).await;
    answer.unwrap_or(Err(Failure::TimedOut))
}

/// How replicas know each other. Without keys nobody can be asked, and nothing is known of them.
fn tls(shared: &Shared) -> Result<Tls, Failure> {
    let config = shared.config();
    let replicas = config.as_ref().and_then(|snapshot| snapshot.replicas.as_ref());
    replicas.map(|replicas| replicas.tls.clone()).ok_or(Failure::TimedOut)
}

impl Asks {
    /// Where a question of this kind waits.
    pub(super) fn of(&self, question: &Question) -> &mpsc::Sender<Ask> {
        match question {
            Question::Heartbeat | Question::Tombstones(_) | Question::HandOver(_) => &self.own,
            Question::Ended(_) | Question::Keep(..) => &self.of_sessions,
            Question::Holds(_) => &self.of_searches,
        }
    }
}

impl Asked {
    /// Has all of them asked, until nobody is left who has any.
    async fn each<F>(mut self, ask: impl Fn(IpAddr, Bytes) -> F)
    where
        F: Future<Output = Result<Bytes, Failure>> + 'static,
    {
        loop {
            tokio::select! {
                biased;
                next = self.own.next() => {
                    let Some(next) = next else { return };
                    self.own.begin(next, &ask);
                }
                next = self.of_sessions.next() => {
                    let Some(next) = next else { return };
                    self.of_sessions.begin(next, &ask);
                }
                next = self.of_searches.next() => {
                    let Some(next) = next else { return };
                    self.of_searches.begin(next, &ask);
                }
            }
        }
    }
}

impl Lane {
    /// The next one that there is room for.
    async fn next(&mut self) -> Option<Ask> {
        loop {
            tokio::select! {
                Some(_) = self.under_way.join_next() => {}
                ask = self.waiting.recv(), if self.under_way.len() < UNDER_WAY => return ask,
            }
        }
    }

    fn begin<F>(&mut self, next: Ask, ask: impl Fn(IpAddr, Bytes) -> F)
    where
        F: Future<Output = Result<Bytes, Failure>> + 'static,
    {
        let Ask { to, text, mut reply } = next;
        let answer = ask(to, text);
        self.under_way.spawn_local(async move {
            tokio::select! {
                answer = answer => {
                    // Who asked may have gone just now.
                    let _ = reply.send(answer);
                }
                () = reply.closed() => {}
            }
        });
    }
}

/// Asks, and once more if the connection broke: to ask twice does no harm, and a process that has just ended refuses
/// the second time.
async fn ask_whoever(
    connections: &Connections,
    tls: &Tls,
    to: SocketAddr,
    text: Bytes,
) -> Result<Bytes, Failure> {
    match ask_once(connections, tls, to, text.clone()).await {
        Err(Failure::Broken) => ask_once(connections, tls, to, text).await,
        answer => answer,
    }
}

async fn ask_once(
    connections: &Connections,
    tls: &Tls,
    to: SocketAddr,
    text: Bytes,
) -> Result<Bytes, Failure> {
    let mut request = Request::new(Full::new(text));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(wire::ASK);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static(wire::NAME));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let (response, lease) =
        connections.send(tls, to, request).await.map_err(|unanswered| unanswered.failure)?;
    let (head, body) = response.into_parts();
    let text = Limited::new(body, MAX_MESSAGE).collect().await.map_err(|_| Failure::Broken)?.to_bytes();
    lease.give_back();
    if head.status == StatusCode::OK { Ok(text) } else { Err(Failure::Declined) }
}

#[cfg(test)]
mod tests {
    use longshore_sessions::message::Copy;
    use longshore_sessions::routing::Outcome;
    use longshore_sessions::{Answer, Introduction, Message, Peer, PodId, SessionKey};
    use tokio::task::LocalSet;

    use super::*;
    use crate::held::Shares;
    use crate::memory::Amounts;
    use crate::metrics::Metrics;
    use crate::peers::{Errands, News, Peers};
    use crate::sessions::Sessions;

    fn sessions(me: Peer, metrics: Arc<Metrics>) -> Sessions {
        let amounts = Amounts::within(None);
        Sessions::new(me, false, None, metrics, Shares::new(amounts.subscriptions), amounts.copied)
    }

    /// Whoever answers lives, whatever it makes of the question.
    #[tokio::test]
    async fn a_replica_that_does_not_understand_a_question_is_not_silent() {
        let [me, other] = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        let peer = Peer { pod: PodId::new("pod-1").unwrap(), address: me };
        let metrics = Arc::new(Metrics::new().unwrap());
        let sessions = sessions(peer, metrics);
        let (peers, Errands(asked)) = Peers::new(Arc::new(sessions), 0);
        let local = peers.0.local.clone();
        let heard =
            Introduction { address: other, pod: PodId::new("pod-2").unwrap(), ..local.introduction() };
        local.note(News::Listed(&[me, other]));
        local.note(News::Heard(&heard));
        assert_eq!(peers.alive().len(), 1);
        let test = async {
            let question = Question::Holds(SessionKey::new([0; 16]));
            let answered = peers.ask(other, question.clone()).await;
            assert!(matches!(answered, Err(Failure::Declined)), "{answered:?}");
            let outcomes = peers.ask_all(&[other], &question).await;
            assert!(matches!(outcomes[..], [(_, Outcome::Declined)]), "{outcomes:?}");
            assert_eq!(peers.alive().len(), 1);
        };
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = test => {}
                    () = asked.each(|_, _| async { Err(Failure::Declined) }) => {}
                }
            })
            .await;
    }

    /// A replica hangs that many requests ask for their sessions. The others hear of this one all the same, and it of
    /// them; and who ends a session or sets something in one waits for none of those requests.
    #[tokio::test]
    async fn nothing_waits_for_those_who_look_for_their_sessions() {
        let [me, well, hung] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        let peer = Peer { pod: PodId::new("pod-1").unwrap(), address: me };
        let metrics = Arc::new(Metrics::new().unwrap());
        let sessions = sessions(peer, metrics);
        let (peers, Errands(asked)) = Peers::new(Arc::new(sessions), 0);
        let answer = Message { from: peers.0.local.introduction(), body: Answer::Noted };
        let answer = Bytes::from(serde_json::to_vec(&answer).unwrap());
        let ask = move |to, _| {
            let answer = answer.clone();
            async move { if to == hung { std::future::pending().await } else { Ok(answer) } }
        };
        let test = async {
            let holds = Question::Holds(SessionKey::new([0; 16]));
            let mut requests = JoinSet::new();
            for _ in 0..2 * (QUEUE + UNDER_WAY) {
                let (peers, holds) = (peers.clone(), holds.clone());
                requests.spawn_local(async move { peers.ask(hung, holds).await });
            }
            // Until no more of them find room.
            while peers.0.asks.of(&holds).capacity() > 0 {
                tokio::task::yield_now().await;
            }
            let own = [Question::Heartbeat, Question::Tombstones(None)];
            let keep = Question::Keep(SessionKey::new([1; 16]), Copy::default());
            for question in own.into_iter().chain([Question::Ended(Vec::new()), keep]) {
                let answered = timeout(QUESTION, peers.ask(well, question.clone())).await;
                assert!(matches!(answered, Ok(Ok(_))), "{question:?}: {answered:?}");
            }
            assert!(requests.try_join_next().is_none());
        };
        LocalSet::new()
            .run_until(async {
                tokio::select! {
                    () = test => {}
                    () = asked.each(ask) => {}
                }
            })
            .await;
    }
}
