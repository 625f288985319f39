//! What runs, kept to what the manifests say.

mod plans;
mod ports;
mod server;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use longshore_catalog::Indexer;
use longshore_sidecar::Inventories;
use longshore_sidecar_config::Upstream;
use longshore_sidecar_config::inventory::Inventory;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::environment::{Environment, INHERITED};
use super::files::Folder;
use super::keys::Made;
use super::manifests::Documents;
use super::plan::Plan;
use super::process::Process;
use super::report::{Report, Served};
use super::{Error, Event, Options, ServerId, catalog};
use server::{Running, Shown, launch};
use turns::Turns;

/// All servers of this run.
pub(super) struct Local {
    options: Options,
    report: Report,
    inherited: Environment,
    made: Made,
    folder: Folder,
    ports: BTreeMap<ServerId, u16>,
    /// The ports at which servers are to listen: nothing else does.
    reserved: BTreeSet<u16>,
    /// In the order of the manifests.
    order: Vec<ServerId>,
    /// In the same order.
    servers: Vec<Running>,
    /// Those that are ending.
    ending: JoinSet<()>,
    turns: Turns,
    catalog: Arc<catalog::Local>,
    catalog_at: SocketAddr,
    events: mpsc::UnboundedReceiver<Event>,
    tell: mpsc::UnboundedSender<Event>,
    runs: u64,
    /// Whether it has been said that all of them serve.
    announced: bool,
}

/// The server, if this run of it is the one that goes on.
fn find<'a>(servers: &'a mut [Running], id: &ServerId, run: u64) -> Option<&'a mut Running> {
    servers.iter_mut().find(|running| running.plan.id == *id && running.run == run)
}

// === impl Local ===

impl Local {
    pub(super) fn new(options: Options, report: Report) -> Result<(Self, Indexer), Error> {
        let inherited = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
            .collect();
        let (catalog, indexer) = catalog::Local::new()?;
        let (tell, events) = mpsc::unbounded_channel();
        let local = Self {
            options,
            report,
            inherited,
            made: Made::default(),
            folder: Folder::new().map_err(Error::Files)?,
            ports: BTreeMap::new(),
            reserved: BTreeSet::new(),
            order: Vec::new(),
            servers: Vec::new(),
            ending: JoinSet::new(),
            turns: Turns::default(),
            catalog: Arc::new(catalog),
            catalog_at: SocketAddr::from(([127, 0, 0, 1], 0)),
            events,
            tell,
            runs: 0,
            announced: false,
        };
        Ok((local, indexer))
    }

    /// Starts all of them, and gives the catalog's port. Where one cannot be served, none is: then why, a line each.
    pub(super) async fn start(
        &mut self,
        documents: &Documents,
    ) -> Result<Result<TcpListener, Vec<String>>, Error> {
        let (plans, refused) = self.plans(documents)?;
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        for plan in plans {
            self.begin(plan)?;
        }
        let mut listener = None;
        for port in self.free_from(self.next_port()) {
            if let Ok(bound) = catalog::bind(port).await {
                listener = Some(bound);
                break;
            }
        }
        let listener = match listener {
            Some(listener) => listener,
            None => catalog::bind(0).await.map_err(Error::Catalog)?,
        };
        self.catalog_at = listener.local_addr().map_err(Error::Catalog)?;
        for running in &self.servers {
            self.catalog.show(&running.plan, running.sidecar.address, None)?;
        }
        self.catalog.set_complete();
        self.overview();
        for running in &self.servers {
            self.notes(&running.plan);
        }
        Ok(Ok(listener))
    }

    /// Serves the catalog, for ever.
    pub(super) fn serve_catalog(
        &self,
        listener: TcpListener,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let catalog = self.catalog.clone();
        async move { catalog.serve(listener).await }
    }

    /// What happens next.
    pub(super) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // Never: a sender is here.
            None => std::future::pending().await,
        }
    }

    /// Takes up what has happened.
    pub(super) fn hear(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Inventory { id, run, inventory } => self.heard(&id, run, inventory)?,
            Event::Process { id, run, message, port_taken } => {
                let report = self.report;
                let Some(running) = find(&mut self.servers, &id, run) else { return Ok(()) };
                if port_taken && running.introduced {
                    // Its sidecar would lead clients to whoever has the port now. The next one says why it waits.
                    let (plan, address) = (running.plan.clone(), running.sidecar.address);
                    running.sidecar.cut();
                    self.catalog.show(&plan, address, None)?;
                    self.leave(&id);
                    self.turns.wait(plan, false);
                } else if running.ended.as_ref() != Some(&message) {
                    report.line(&format!("{id} does not run: {message}; it is started again"));
                    running.ended = Some(message);
                }
            }
            Event::Started { id, run } => {
                let found = find(&mut self.servers, &id, run);
                if let Some(running) = found.filter(|running| !running.introduced) {
                    running.place.write(&running.plan.files).map_err(Error::Files)?;
                    running.introduced = true;
                }
            }
            Event::Ended { run } => {
                while self.ending.try_join_next().is_some() {}
                self.turns.left(run);
                self.settle(false)?;
            }
            Event::SidecarFailed { id, error } => return Err(Error::Sidecar { id, source: error }),
        }
        Ok(())
    }

    /// Says a line.
    pub(super) fn say(&self, line: &str) {
        self.report.line(line);
    }

    /// Makes what runs what the manifests say now. What cannot be served stays as it is. What has to end before something
    /// else can begin takes its time: [`Event::Ended`] goes on.
    pub(super) fn update(&mut self, documents: &Documents) -> Result<(), Error> {
        let (plans, refused) = self.plans(documents)?;
        for line in refused {
            self.say(&format!("{line}; what was there before goes on"));
        }
        self.order = documents.servers.iter().map(|found| found.id.clone()).collect();
        let gone: BTreeSet<ServerId> = self.known().filter(|id| !self.order.contains(id)).cloned().collect();
        for id in &gone {
            self.say(&format!("{id}: its manifest has gone, and so has the server"));
            self.catalog.forget(id);
            self.turns.forget(id);
            self.leave(id);
        }
        let mut news = false;
        for plan in plans {
            if let Some(waiting) = self.turns.waiting(&plan.id) {
                if *waiting != plan {
                    self.say(&format!("{}: its manifest has changed", plan.id));
                    self.notes(&plan);
                    self.turns.wait(plan, false);
                }
                continue;
            }
            let Some(at) = self.servers.iter().position(|running| running.plan.id == plan.id) else {
                self.say(&format!("{}: new", plan.id));
                self.notes(&plan);
                self.turns.wait(plan, true);
                continue;
            };
            let before = &self.servers[at].plan;
            if *before == plan {
                continue;
            }
            self.say(&format!("{}: its manifest has changed", plan.id));
            let another_key = before.key != plan.key;
            if before.notes != plan.notes || before.program != plan.program {
                self.notes(&plan);
            }
            let same_sidecar = before.upstream == plan.upstream && before.workers == plan.workers;
            if same_sidecar {
                news |= another_key;
                self.servers[at].change(plan)?;
            } else {
                // Another way to reach the server, or other threads: another sidecar, at the same port, once this has ended.
                self.catalog.show(&plan, self.servers[at].sidecar.address, None)?;
                self.leave(&plan.id);
                self.turns.wait(plan, another_key);
            }
        }
        self.settle(news)
    }

    /// The servers that run, and those that wait for their turn.
    fn known(&self) -> impl Iterator<Item = &ServerId> {
        self.servers.iter().map(|running| &running.plan.id).chain(self.turns.all())
    }

    /// Ends a server, if it runs.
    fn leave(&mut self, id: &ServerId) {
        let Some(at) = self.servers.iter().position(|running| running.plan.id == *id) else { return };
        let running = self.servers.remove(at);
        let (run, tell) = (running.run, self.tell.clone());
        self.turns.leaves(run, &running.plan);
        self.ending.spawn(async move {
            running.end().await;
            // Whoever listened has ended, and so does the process.
            let _ = tell.send(Event::Ended { run });
        });
    }

    /// Begins what need not wait any longer, and says what is new.
    fn settle(&mut self, mut news: bool) -> Result<(), Error> {
        for (plan, is_news) in self.turns.ready() {
            let (id, before) = (plan.id.clone(), self.ports.get(&plan.id).copied());
            self.begin(plan)?;
            news |= is_news;
            if let Some(port) =
                self.ports.get(&id).filter(|port| before.is_some_and(|before| before != **port))
            {
                news = true;
                let address = SocketAddr::from(([127, 0, 0, 1], *port));
                self.say(&format!("{id}: its port is taken, it is at {} now", super::url(address)));
            }
        }
        let place = |running: &Running| self.order.iter().position(|id| *id == running.plan.id);
        self.servers.sort_by_key(place);
        for running in &self.servers {
            self.catalog.show(&running.plan, running.sidecar.address, running.inventory.as_deref())?;
        }
        if news {
            self.overview();
            self.turns.mark_news();
        }
        self.announce();
        Ok(())
    }

    /// Ends all of it, everything at once.
    pub(super) async fn end(self) {
        let Self { servers, mut ending, folder, .. } = self;
        for running in servers {
            ending.spawn(running.end());
        }
        while ending.join_next().await.is_some() {}
        // Removed now that nobody reads it any more.
        drop(folder);
    }

    fn begin(&mut self, plan: Plan) -> Result<(), Error> {
        let running = self.started(plan)?;
        self.servers.push(running);
        Ok(())
    }

    fn started(&mut self, plan: Plan) -> Result<Running, Error> {
        let place = self.folder.place().map_err(Error::Files)?;
        let introduced = matches!(plan.upstream, Upstream::Stdio {});
        if introduced {
            place.write(&plan.files).map_err(Error::Files)?;
        }
        self.runs += 1;
        let (run, began, shown) = (self.runs, Instant::now(), Shown::Nothing);
        let process = Process::start(plan.id.clone(), run, launch(&plan, &place), self.tell.clone());
        let (sidecar, inventories) = self.listen(&plan, &place)?;
        self.ports.insert(plan.id.clone(), sidecar.address.port());
        let feed = tokio::spawn(pass_on(plan.id.clone(), run, inventories, self.tell.clone()));
        Ok(Running {
            plan,
            place,
            sidecar,
            process,
            run,
            began,
            feed,
            inventory: None,
            shown,
            introduced,
            ended: None,
            uncallable: None,
            noisy: false,
        })
    }

    fn heard(&mut self, id: &ServerId, run: u64, inventory: Box<Inventory>) -> Result<(), Error> {
        let report = self.report;
        let Some(running) = find(&mut self.servers, id, run) else { return Ok(()) };
        if let Some(line) = running.news(&inventory) {
            report.line(&line);
        }
        let uncallable = running.plan.permitted.note_on(&inventory.tools, inventory.hidden_tools);
        if let Some(note) = uncallable.as_ref().filter(|_| uncallable != running.uncallable) {
            report.line(&format!("{id}: {note}"));
        }
        running.uncallable = uncallable;
        if let Some(noise) = inventory.noise.as_ref().filter(|_| !std::mem::replace(&mut running.noisy, true))
        {
            report.line(&format!(
                "{id} prints to its stdout what is no message of MCP, and is dropped: {noise:?}"
            ));
        }
        self.catalog.show(&running.plan, running.sidecar.address, Some(&inventory))?;
        running.inventory = Some(inventory);
        self.announce();
        Ok(())
    }

    /// Says once that all of them serve.
    fn announce(&mut self) {
        if !self.announced
            && self.turns.all().next().is_none()
            && self.servers.iter().all(|running| matches!(running.shown, Shown::Ready { .. }))
        {
            self.announced = true;
            self.report.ready(&self.served(), self.catalog_at);
        }
    }

    fn overview(&self) {
        self.report.overview(&self.served(), self.catalog_at);
    }

    fn served<'a>(&'a self) -> Vec<Served<'a>> {
        let served = |running: &'a Running| Served {
            id: &running.plan.id,
            address: running.sidecar.address,
            key: &running.plan.key,
        };
        self.servers.iter().map(served).collect()
    }

    fn notes(&self, plan: &Plan) {
        for note in &plan.notes {
            self.say(&format!("{}: {note}", plan.id));
        }
        for problem in plan.program.as_ref().err().into_iter().flatten() {
            self.say(&format!("{} is not started: {problem}", plan.id));
        }
    }
}

/// Ends with the sidecar.
async fn pass_on(id: ServerId, run: u64, mut from: Inventories, to: mpsc::UnboundedSender<Event>) {
    while let Some(inventory) = from.next().await {
        let event = Event::Inventory { id: id.clone(), run, inventory: Box::new(inventory) };
        if to.send(event).is_err() {
            return;
        }
    }
}
