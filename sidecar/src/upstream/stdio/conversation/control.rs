//! What happens to a conversation beside its messages: sessions join it and leave it, and it ends when nobody is left.

use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use super::super::handshake::Abilities;
use super::super::{Control, Name};
use super::{Conversation, Joining, Left, Sharing};

impl Conversation {
    /// Takes all that has come.
    pub(super) fn hear(&mut self) {
        while let Ok(control) = self.control.try_recv() {
            self.control(control);
        }
    }

    /// What can be done at any time. Calls that nobody waits for are the business of whoever has them.
    pub(in super::super) fn control(&mut self, control: Control) {
        match control {
            Control::Gone(number) => {
                self.members.gone(number);
                self.joining.retain(|joining| joining.caller.number != number);
            }
            Control::Listen(name, caller) => {
                if let Some(member) = self.members.get_mut(name) {
                    member.listener = Some(caller);
                }
            }
            Control::Join(joining) => self.join(joining),
            Control::Enter(name, level, share) => {
                self.empty = None;
                self.members.join(name, Abilities::default(), share);
                if let Some(member) = self.members.get_mut(name) {
                    member.level = level;
                }
            }
            Control::End(name, told) => self.end(name, told),
            Control::EndAll(told) => {
                self.ending = true;
                self.farewells.push(told);
            }
            Control::GiveWay => {
                if self.is_shared() && self.members.is_empty() {
                    self.vanish();
                }
            }
            Control::Limits(now) => {
                if let Sharing::Several { limits, .. } = &mut self.kind {
                    *limits = now;
                }
            }
        }
    }

    fn join(&mut self, mut joining: Joining) {
        self.empty = None;
        self.members.join(joining.name, joining.abilities, joining.share.take());
        match self.handshake.answer(&joining.id) {
            Some(answer) => joining.caller.end(Ok(Some(answer))),
            None => self.joining.push(joining),
        }
    }

    fn end(&mut self, name: Name, told: Option<oneshot::Sender<()>>) {
        let Some(member) = self.members.leave(name) else { return };
        self.registered.leave(name);
        if !self.is_shared() {
            self.ending = true;
            self.farewells.extend(told);
            return;
        }
        // The session has ended with this; its process has others.
        self.joining.retain(|joining| joining.name != name);
        let mut subscriptions: Vec<_> = member.into_subscriptions().into_iter().collect();
        subscriptions.retain(|uri| !self.members.is_subscribed(uri));
        self.left.push(Left { name, subscriptions });
        if self.members.is_empty() {
            self.empty = Some(Instant::now());
        }
    }

    /// After how long without a call its process ends, if it serves several sessions.
    pub(in super::super) fn patience(&self) -> Option<Duration> {
        match self.kind {
            Sharing::Several { limits, .. } => Some(limits.idle),
            Sharing::Own | Sharing::One => None,
        }
    }

    /// When a process without sessions ends.
    pub(in super::super) fn due(&self) -> Option<Instant> {
        match (self.kind, self.empty) {
            (Sharing::Several { limits, .. }, Some(since)) => {
                let idle = since + limits.idle;
                Some(limits.aged.map_or(idle, |aged| aged.max(since).min(idle)))
            }
            _ => None,
        }
    }

    /// Ends, if its time has come and nobody is about to join.
    pub(in super::super) fn tick(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.vanish();
        }
    }

    /// Ends, unless somebody is about to join.
    pub(super) fn vanish(&mut self) {
        if self.registered.vanish(&self.restarts) {
            self.ending = true;
        }
    }
}
