//! How a session begins: with a process of its own or with one that others have too, with one that waits or with
//! another, anew or where a sidecar before this one has left it.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use longshore_shim::protocol::Session;
use longshore_sidecar_config::{Isolation, Processes};
use tokio::time::{Duration, Instant, timeout_at};

use super::conversation::{Conversation, Joining, Opening, Sharing};
use super::handshake::{Handshake, Offer};
use super::limits::Place;
use super::message::{Asked, Command, Kind, kind, text};
use super::process::{Idle, MARGIN, PATIENCE};
use super::registry::{Found, Group, Need, Open};
use super::stateless::TRIES;
use super::warm::{Given, Ready};
use super::{
    Answer, Begins, Channel, Client, Control, Failure, Former, Gone, Hold, Name, Opener, Recalled, Stdio,
    Why, call, name_of, opened, random, warm,
};
use crate::held::Share;

#[cfg(test)]
pub(super) mod tests;

/// How long the place of a process is waited for that ends for this session: longer than it is given.
const GIVEN_WAY: Duration = PATIENCE.input.saturating_add(PATIENCE.terminate).saturating_add(MARGIN);

/// A session whose first message is on its way, and what waits for the answer.
type Begun = (Name, Channel<Command>, call::Waiting);

/// What a session needs.
pub(super) struct Acquired {
    pub(super) place: Place,
    /// What the shim knows its process by, or will.
    pub(super) number: u128,
    pub(super) ready: Option<Ready>,
}

impl Acquired {
    /// A place for a process that has to be started.
    fn anew(place: Place) -> Result<Self, Failure> {
        let number = Session::of_somebody(random().ok_or(Failure::NoNumbers)?).0;
        Ok(Self { place, number, ready: None })
    }

    /// The same for what no other sidecar can ask for. One that is there already has its number.
    pub(super) fn of_nobody(self) -> Self {
        let number = if self.ready.is_none() { Session::of_nobody(self.number).0 } else { self.number };
        Self { number, ..self }
    }
}

impl Stdio {
    /// Opens a session with its first message.
    pub(crate) async fn open(
        self: &Arc<Self>,
        opener: Opener,
        body: Bytes,
    ) -> Result<(Answer, Hold), Failure> {
        let Kind::Request(asked) = kind(&body)? else { return Err(Failure::NotMessage) };
        let Opener::Client { principal, limits, begins } = opener else {
            return begun(self.open_alone(None, &body, &asked).await?).await;
        };
        // Never without limits in a configuration that was loaded.
        let limits = limits.ok_or(Failure::Unlimited)?;
        let share = || self.subscriptions.nothing(&principal);
        let of = Some(principal.clone()).filter(|_| limits.isolation != Isolation::Shared);
        let client = Client { principal: of, limits };
        if limits.isolation == Isolation::Session {
            let client = (client, begins, share());
            return begun(self.open_alone(Some(client), &body, &asked).await?).await;
        }
        let mut again = 1..TRIES;
        loop {
            let opening = self.open_shared((client.clone(), begins), share(), &body, &asked)?;
            let (answer, hold) = begun(opening).await?;
            // A conversation that others have too may close at this moment: it knows nobody who comes then.
            if answer.status != StatusCode::NOT_FOUND || again.next().is_none() {
                return Ok((answer, hold));
            }
        }
    }

    /// With a process of its own.
    async fn open_alone(
        self: &Arc<Self>,
        client: Option<(Client, Begins, Share)>,
        body: &Bytes,
        asked: &Asked,
    ) -> Result<Begun, Failure> {
        let handshake = Handshake::of(body, &asked.at);
        let (place, number, ready) = match &client {
            None => (None, Session::of_nobody(random().ok_or(Failure::NoNumbers)?).0, None),
            Some((client, begins, _)) => {
                self.warm.heard(handshake.line());
                let acquired = self.acquire(client, handshake.line(), Instant::now()).await?;
                let is_nobodys = *begins == Begins::Alone;
                let acquired = if is_nobodys { acquired.of_nobody() } else { acquired };
                let Acquired { place, number, ready } = acquired;
                (Some(place), number, ready)
            }
        };
        let (channel, ends) = Channel::new();
        let registered = self.open.lock().begin(self, number, channel.clone(), None)?;
        let kind = if client.is_some() { Sharing::One } else { Sharing::Own };
        let opening = Opening { registered, kind, number, place, ends, handshake };
        let mut conversation = Conversation::new(opening);
        if let Some(ready) = ready {
            conversation = conversation.with_ready(ready)?;
        }
        let share = client.map(|(_, _, share)| share);
        let waiting = join(&channel, number, share, body, asked)?;
        tokio::task::spawn_local(conversation.run());
        Ok((number, channel, waiting))
    }

    /// With a process that others have too, or will have.
    fn open_shared(
        self: &Arc<Self>,
        (client, begins): (Client, Begins),
        share: Share,
        body: &Bytes,
        asked: &Asked,
    ) -> Result<Begun, Failure> {
        let name = random().ok_or(Failure::NoNumbers)?;
        let revision = Offer::read(body).protocol_version;
        let mut open = self.open.lock();
        let limits = self.places.in_force(client.limits);
        let group = Group { begins, ..group_of(Some(&client), &limits, revision.clone()) };
        if let Some(host) = self.host(&open, &group, Some(&client))? {
            let channel = open.join(host, name).ok_or(Failure::Forgotten)?;
            let waiting = join(&channel, name, Some(share), body, asked)?;
            return Ok((name, channel, waiting));
        }
        let kind = kind_of(&group, &limits);
        let handshake = Handshake::for_all(&revision);
        self.warm.heard(handshake.line());
        let (channel, ends) = Channel::new();
        let registered = open.begin(self, name, channel.clone(), Some(group))?;
        drop(open);
        let opening = Opening { registered, kind, number: name, place: None, ends, handshake };
        let waiting = join(&channel, name, Some(share), body, asked)?;
        tokio::task::spawn_local(Conversation::new(opening).run_shared(client));
        Ok((name, channel, waiting))
    }

    /// The conversation that another session, or a call, of this kind goes to; none, if it begins one. One that may go on
    /// elsewhere is refused where it would begin one that waits for its place.
    pub(super) fn host(
        &self,
        open: &Open,
        wanted: &Group,
        client: Option<&Client>,
    ) -> Result<Option<u64>, Failure> {
        let now = Instant::now();
        let fewest = |need| open.fewest(wanted, need, now);
        let Some(Client { limits, principal }) = client else {
            return Ok(fewest(Need::Spoken).map(|found| found.host));
        };
        let has_room = || self.places.have_room() || self.warm.has_any();
        let Some(Found { host, sessions, is_tired }) = fewest(Need::Young(now)) else {
            // One that does not suit goes on having the place of another one, or will want it back.
            let whose = principal.as_ref();
            let most = if whose.is_some() { limits.per_principal } else { limits.total };
            let has_place = || self.places.allow(whose) && (has_room() || open.has_empty(None));
            let another = open.used_by(whose) < most as usize && (open.has_empty(whose) || has_place());
            if another {
                return Ok(None);
            }
            let old = fewest(Need::Spoken).or_else(|| fewest(Need::Any));
            return match old {
                Some(found) => Ok(Some(found.host)),
                // Nobody is to join one that may get no place, nor is one to take the place that another wants back.
                None if wanted.begins == Begins::AgainOrElsewhere => {
                    let full = Failure::Full { limit: most, again: None };
                    Err(self.places.refusal(whose).unwrap_or(full))
                }
                None => Ok(None),
            };
        };
        // Everybody's sessions are spread over as many processes as there may be, and go where there may be one.
        let spreads = limits.isolation == Isolation::Shared && (sessions > 0 || is_tired);
        let another = open.shared_by_all(wanted, now) < limits.total as usize && has_room();
        Ok((!(spreads && another)).then_some(host))
    }

    /// A place for a process, and one that waits if there is one that was told this, or nothing yet.
    /// Somebody has waited since then: where others were waited for first, only what is left of the time is waited.
    pub(super) async fn acquire(
        &self,
        client: &Client,
        line: &Bytes,
        since: Instant,
    ) -> Result<Acquired, Failure> {
        let principal = client.principal.as_ref();
        let waited = since.elapsed();
        let given_way = GIVEN_WAY.saturating_sub(waited);
        // A process that rested waits as long as is said now, and not as when it was begun.
        let queue = Duration::from_millis(self.places.in_force(client.limits).queue_ms);
        let now = Instant::now();
        let (mut until, moves) = (now + queue.saturating_sub(waited), now + given_way);
        let mut wanting = None;
        let mut gives_way = false;
        loop {
            if self.places.allow(principal)
                && let Some(Given { number, mut place, ready }) = self.warm.take(line, &self.metrics).await
            {
                if place.assign(principal) {
                    return Ok(Acquired { place, number, ready: Some(ready) });
                }
                warm::end(ready, place, &self.metrics);
            }
            match self.places.take(principal, Duration::ZERO).await {
                Ok(place) => return Acquired::anew(place),
                Err(failure @ Failure::Full { .. }) => {
                    let wanting = wanting.get_or_insert_with(|| self.warm.want());
                    if !gives_way {
                        let ends = wanting.have_one_end();
                        gives_way = !ends && self.make_room(&failure, principal);
                        // Another session may take the place of the one that ends, and leave this one the next.
                        if ends {
                            until = until.max(Instant::now() + given_way);
                        }
                    }
                    // A place may also be that of a process which is being started, for a session like this. Who waits for
                    // that is in the queue like all others; what comes there is not left for what has moved.
                    tokio::select! {
                        biased;
                        place = self.places.take(principal, Duration::MAX) => {
                            return Acquired::anew(place.map_err(|failure| self.refused(failure, principal))?);
                        }
                        moved = timeout_at(moves, self.warm.moved()) => if moved != Ok(true) {
                            break;
                        }
                    }
                }
                Err(failure) => {
                    // No warm process that ends would make this principal's part smaller, but one that nobody uses may.
                    drop(wanting.take());
                    if matches!(failure, Failure::FullForPrincipal { .. }) {
                        self.make_room(&failure, principal);
                    }
                    break;
                }
            }
        }
        // By then a process may be ending for this session, which it or another one has asked; or somebody has gone meanwhile.
        let longer = || {
            let left = (since + queue + GIVEN_WAY).saturating_duration_since(Instant::now());
            if !left.is_zero() && self.claims_one(principal) { left } else { Duration::ZERO }
        };
        // The time that has passed here is a part of it.
        let left = until.saturating_duration_since(Instant::now());
        let patience = if left.is_zero() { longer() } else { left };
        let place = self.places.take_longer(principal, patience, longer).await;
        Acquired::anew(place.map_err(|failure| self.refused(failure, principal))?)
    }

    /// Why a session of this client would wait for a place, or does if it has `begun`: nothing is free, and nothing that
    /// rests, and nobody who has gone, makes room for it by itself.
    pub(crate) fn lacks_place(&self, opener: &Opener, begun: bool) -> Option<Failure> {
        let principal = opener.principal()?;
        if begun && !self.places.is_waited_for_by(principal) {
            // It has one by now, which may be the last that there was.
            return None;
        }
        self.lacks_place_now(opener).filter(|failure| !self.has_abandoned(failure, Some(principal)))
    }

    /// The same where nobody's session is to end for it.
    pub(crate) fn lacks_place_now(&self, opener: &Opener) -> Option<Failure> {
        let Opener::Client { principal, limits: Some(limits), .. } = opener else { return None };
        if limits.isolation != Isolation::Session {
            // It may go to a process that is there, and none has to go for it.
            return None;
        }
        let failure = self.places.refusal(Some(principal))?;
        let makes_room = match &failure {
            Failure::FullForPrincipal { .. } => self.open.lock().has_empty(Some(principal)),
            _ => self.warm.has_any() || self.open.lock().has_empty(None),
        };
        (!makes_room).then_some(failure)
    }

    /// Takes a session up again whose sidecar has died. Only one with a process of its own can go on: which of several
    /// had asked a process for what, nobody knows any more.
    pub(crate) async fn recall(
        self: &Arc<Self>,
        session: &HeaderValue,
        former: Former,
    ) -> Result<Recalled, Failure> {
        let Some(name) = name_of(session) else { return Ok(Recalled::Forgotten) };
        let Opener::Client { principal, limits: Some(limits), .. } = former.opener else {
            return Ok(Recalled::Forgotten);
        };
        let _one = self.recalls.lock().await;
        if self.open.lock().find(name).is_some() {
            return Ok(Recalled::GoesOn);
        }
        if limits.isolation != Isolation::Session {
            return Ok(Recalled::Forgotten);
        }
        let adopted = Idle::adopt(&self.socket, name, &self.metrics).await;
        let Some(process) = adopted.map_err(|why| Gone::failure(why, &[]))? else {
            return Ok(Recalled::Forgotten);
        };
        let broken = |error: std::io::Error| Gone::failure(Why::NotStarted(error.to_string()), &[]);
        // Its age is nobody's business: it takes no other session.
        let started = Instant::now();
        let parts = process.into_parts().map_err(broken)?;
        let ready = Ready { parts, told: None, started, turn: None };
        // It has run all the time: it is counted, whatever the limit is by now.
        let place = self.places.take_back(Some(&principal));
        let handshake = Handshake::former(former.revision.as_str(), former.capabilities.as_deref());
        let (channel, ends) = Channel::new();
        let registered = self.open.lock().begin(self, name, channel, None)?;
        let opening =
            Opening { registered, kind: Sharing::One, number: name, place: Some(place), ends, handshake };
        let conversation = Conversation::new(opening).with_ready(ready)?.going_on(
            name,
            &former.set,
            self.subscriptions.nothing(&principal),
        );
        tokio::task::spawn_local(conversation.run());
        Ok(Recalled::GoesOn)
    }
}

/// The answer to the first message of a session, and what ends the session.
async fn begun((name, channel, waiting): Begun) -> Result<(Answer, Hold), Failure> {
    let hold = channel.hold(name);
    Ok((opened(name, waiting).await?, hold))
}

/// Who may join a conversation of this client's, or of the sidecar's.
pub(super) fn group_of(client: Option<&Client>, limits: &Processes, asked: String) -> Group {
    Group {
        began: None,
        own: client.is_none(),
        alone: false,
        principal: client.and_then(|client| client.principal.clone()),
        begins: Begins::Anew,
        asked,
        version: None,
        max_age: limits.max_age_ms.map(Duration::from_millis),
    }
}

/// Whom its process serves.
pub(super) fn kind_of(group: &Group, limits: &Processes) -> Sharing {
    let limits = group.limits(limits);
    Sharing::Several { same: group.own || group.principal.is_some(), limits }
}

/// Tells a conversation of a session.
fn join(
    channel: &Channel<Command>,
    name: Name,
    share: Option<Share>,
    body: &Bytes,
    asked: &Asked,
) -> Result<call::Waiting, Failure> {
    let (caller, waiting) = call::pair(channel.control.clone());
    let abilities = Offer::read(body).abilities();
    let joining = Joining { name, id: text(body, &asked.at), abilities, caller, share };
    // One that has just closed has forgotten the session already.
    channel.control.send(Control::Join(joining)).map_err(|_| Failure::Forgotten)?;
    Ok(waiting)
}
