//! Who ends, and who waits for that: two servers cannot have one port, nor two sidecars one URL. Everybody else begins at
//! once, whatever takes its time. Pure.

use super::ports::port_of;
use crate::local::ServerId;
use crate::local::plan::Plan;

/// Servers on their way in and out.
#[derive(Debug, Default)]
pub(super) struct Turns {
    leaving: Vec<Leaving>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Leaving {
    run: u64,
    id: ServerId,
    port: Option<u16>,
}

#[derive(Debug)]
struct Waiting {
    plan: Plan,
    /// Whether people are to be told where it is once it has begun.
    is_news: bool,
}

impl Turns {
    /// This run of a server ends from now on.
    pub(super) fn leaves(&mut self, run: u64, plan: &Plan) {
        self.leaving.push(Leaving { run, id: plan.id.clone(), port: port_of(plan) });
    }

    /// It has ended.
    pub(super) fn left(&mut self, run: u64) {
        self.leaving.retain(|leaving| leaving.run != run);
    }

    /// This is to begin as soon as it can; in the place of what waits already.
    pub(super) fn wait(&mut self, plan: Plan, is_news: bool) {
        match self.waiting.iter_mut().find(|waiting| waiting.plan.id == plan.id) {
            Some(waiting) => {
                waiting.is_news |= is_news || waiting.plan.key != plan.key;
                waiting.plan = plan;
            }
            None => self.waiting.push(Waiting { plan, is_news }),
        }
    }

    /// What waits of this server.
    pub(super) fn waiting(&self, id: &ServerId) -> Option<&Plan> {
        self.waiting.iter().map(|waiting| &waiting.plan).find(|plan| plan.id == *id)
    }

    /// It is not to begin after all.
    pub(super) fn forget(&mut self, id: &ServerId) {
        self.waiting.retain(|waiting| waiting.plan.id != *id);
    }

    /// Whoever waits.
    pub(super) fn all(&self) -> impl Iterator<Item = &ServerId> {
        self.waiting.iter().map(|waiting| &waiting.plan.id)
    }

    /// People were told where everything is, but for those who wait.
    pub(super) fn mark_news(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.is_news = true);
    }

    /// Those that need not wait any longer, and whether they are news.
    pub(super) fn ready(&mut self) -> Vec<(Plan, bool)> {
        let is_held = |plan: &Plan| {
            let port = port_of(plan);
            self.leaving.iter().any(|it| it.id == plan.id || port.is_some() && it.port == port)
        };
        let (held, ready): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| is_held(&waiting.plan));
        self.waiting = held;
        ready.into_iter().map(|Waiting { plan, is_news }| (plan, is_news)).collect()
    }
}
