//! The steps of a reconciliation before the status. Each works on what the step before it found, and notes in the
//! [`Progress`] what the status is to say.

use longshore_crds::McpServer;
use longshore_sidecar_config::Upstream;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::mcp_server::apply::{Applier, Part};
use crate::mcp_server::build::{self, Applied, Desired, Prepared, Resources};
use crate::mcp_server::condition::Problem;
use crate::mcp_server::context::Context;
use crate::mcp_server::dereference::{self, Dereferenced, own_bounds, own_keys};
use crate::mcp_server::memory::ServerMemory;
use crate::mcp_server::progress::{Progress, of_upgrade};
use crate::mcp_server::session_keys::Step;
use crate::mcp_server::status::{Address, PodFacts};
use crate::mcp_server::upgrades::{self, Turn};
use crate::mcp_server::validate::{self, ValidatedServer};
use crate::mcp_server::{Error, probe, rotate};
use crate::mirror::ServerKey;
use crate::view::Live;

/// Takes as many of the steps as can be taken, and says what came of them.
pub(super) async fn run(
    server: &McpServer,
    context: &Context,
    key: &ServerKey,
    uid: &str,
    memory: &Mutex<ServerMemory>,
) -> Progress {
    let patient = !memory.lock().failures.are_lasting(Instant::now());
    let progress = Progress::default();
    let mut steps = Steps { server, context, key, uid, memory, patient, progress };
    // How far they came is in the progress.
    let (Ok(()) | Err(Stopped)) = steps.run().await;
    steps.progress
}

/// The steps of one server, and what came of those that were taken.
struct Steps<'a> {
    server: &'a McpServer,
    context: &'a Context,
    key: &'a ServerKey,
    uid: &'a str,
    memory: &'a Mutex<ServerMemory>,
    /// Whether a failure that may pass by itself is not said yet: it has not lasted.
    patient: bool,
    /// What came of the steps so far.
    progress: Progress,
}

/// What is made of a manifest.
struct Made {
    /// The objects.
    prepared: Resources<Prepared>,
    /// What pods are to be like.
    desired: Desired,
    /// The step that the session keys take with these objects, if any.
    key_step: Option<Step>,
    /// The digest of the template of the Deployment that was there.
    live_template: Option<String>,
}

/// A step came to nothing, so the next has nothing to work on. The progress says why.
struct Stopped;

// === impl Steps ===

impl Steps<'_> {
    async fn run(&mut self) -> Result<(), Stopped> {
        // 1. Read what the manifest names. Client required.
        let (found, keys_from) = self.read().await?;

        // 2. Check it. Client required in one case alone: to learn a bound that nobody remembers.
        let mut validated = self.check(&found).await?;

        // 3. Make the objects. No client.
        let mut made = self.make(&mut validated)?;
        self.wait_for_turn(&mut made);

        // 4. Apply them. Client required.
        let Made { prepared, mut desired, key_step, live_template } = made;
        let applier = Applier {
            context: self.context,
            server: self.key,
            uid: self.uid,
            memory: self.memory,
            keys_from: keys_from.as_ref(),
            patient: self.patient,
        };
        let applied = self.apply(&applier, prepared, &desired, key_step).await;
        self.pass_turn_on(&validated, &mut desired, live_template);

        // 5. Hear how the pods are, and touch those that run an old configuration. Client required for the latter.
        self.hear(&desired).await;

        // Delete what is left over, if all else was taken. Nothing waits for that. Client required.
        let waits_to_undo = self.memory.lock().undo_at.is_some();
        if let Some(applied) = applied
            && !waits_to_undo
        {
            self.progress.unpruned = !applier.prune(&applied, &desired).await;
        }
        let domain = &self.context.settings.cluster_domain;
        self.progress.address = Address::of(&validated, &self.key.namespace, domain);
        self.progress.desired = Some(desired);
        Ok(())
    }

    /// Reads the session keys and what the manifest names. Gives the Secret that the keys are from too.
    async fn read(&mut self) -> Result<(Dereferenced, Option<Live>), Stopped> {
        let Self { server, context, key, uid, memory, patient, .. } = *self;
        let upstreams = mounted_upstreams(context, key, uid);
        let found = own_keys::session_keys(context, key, uid, memory, rotate::wish(server)).await;
        let (keys, keys_from) = found.map_err(|error| {
            if let own_keys::Error::Api(error) = &error {
                self.progress.met(error);
            }
            // Without session keys there is no configuration either: what there is stays.
            let lasting = own_keys::lasting(&error, key, patient);
            self.fail(Error::SessionKeys(error), lasting)
        })?;
        let found = dereference::dereference(server, context, patient, upstreams, keys).await;
        let (found, unread) = found.map_err(|error| {
            self.progress.met(&error);
            self.fail(Error::Dereference(error), None)
        })?;
        unread.iter().for_each(|error| self.progress.met(error));
        self.progress.error = unread.map(Error::Dereference);
        Ok((found, keys_from))
    }

    /// Checks the manifest against what it names.
    async fn check(&mut self, found: &Dereferenced) -> Result<ValidatedServer, Stopped> {
        let mut validated = validate::validate(self.server, found).map_err(|problems| {
            let pods = self.pods();
            self.progress.stop(problems, pods);
            Stopped
        })?;
        // A manifest that has left stdio does not say how many processes the pods may have that are left of that time.
        let processes = own_bounds::processes(self.context, self.memory, &validated).await;
        validated.limits.processes = processes.map_err(|error| {
            self.progress.met(&error);
            let lasting = own_bounds::lasting(&error, &validated, self.patient);
            self.fail(Error::Dereference(error), lasting)
        })?;
        self.progress.problems = validated.readiness.problems().to_vec();
        self.progress.held_back = validated.is_held_back();
        self.progress.principals = Some(validated.auth.principals());
        Ok(validated)
    }

    /// Makes the objects. If every pod has what was just made, the session keys may take their next step: then the objects
    /// are made once more.
    fn make(&mut self, validated: &mut ValidatedServer) -> Result<Made, Stopped> {
        let Self { server, context, key, memory, .. } = *self;
        let settings = &context.settings;
        let live = context.mirrors.deployments.get(key, &key.name);
        let live_template = live.and_then(|deployment| deployment.template.clone());
        let (mut prepared, mut desired) = build::build_beside(validated, settings, live_template.as_deref());
        let rotation = rotate::rotate(validated, settings, rotate::wish(server), &self.pods(), &desired)
            .map_err(|error| self.fail(Error::SessionKeys(error), None))?;
        self.progress.again = rotation.again;
        let mut key_step = None;
        if let Some((keys, step)) = rotation.next {
            if let Some((known, _)) = &mut memory.lock().session_keys {
                *known = keys.clone();
            }
            validated.session_keys = keys;
            (prepared, desired) = build::build(validated, settings);
            key_step = Some(step);
        }
        Ok(Made { prepared, desired, key_step, live_template })
    }

    /// Leaves the pods as they are while it is not the server's turn to be upgraded.
    fn wait_for_turn(&mut self, made: &mut Made) {
        if made.prepared.deployment.is_none() {
            // What is not to be made takes nobody's turn.
            self.context.upgrades.not_needed(self.key);
            return;
        }
        let turn = upgrades::turn(self.server, self.context, self.key, self.memory, &mut made.desired);
        self.progress.turn = turn;
        if turn == Turn::Later {
            made.prepared.deployment = None;
            // Whether what was refused still is, is seen in the next turn.
            if let Some(problem) = self.memory.lock().refused_upgrade() {
                self.progress.problems.insert(0, of_upgrade(problem));
                self.progress.upgrade_refused = true;
            }
        }
    }

    /// Has the cluster have the objects. `None`: it did not take all of them, and the progress says why.
    async fn apply(
        &mut self,
        applier: &Applier<'_>,
        prepared: Resources<Prepared>,
        desired: &Desired,
        key_step: Option<Step>,
    ) -> Option<Resources<Applied>> {
        // It holds all objects, and would be in the future of whoever waits for it.
        match Box::pin(applier.apply(prepared, desired)).await {
            Ok(applied) => {
                if let Some(step) = key_step {
                    rotate::tell(self.context, self.key, self.uid, step).await;
                }
                Some(applied)
            }
            Err(not_taken) => {
                self.progress.not_applied(not_taken, &desired.template, self.memory);
                None
            }
        }
    }

    /// Ends the turn of a server whose new pods cannot be made: the next server need not wait for them.
    fn pass_turn_on(
        &mut self,
        validated: &ValidatedServer,
        desired: &mut Desired,
        live_template: Option<String>,
    ) {
        let progress = &mut self.progress;
        let Some(part) = progress.unapplied.as_ref().map(|unapplied| unapplied.part) else { return };
        if self.memory.lock().refused(&desired.template).is_none() {
            return;
        }
        progress.upgrade_refused |= progress.turn == Turn::Later;
        let live = self.context.mirrors.deployments.get(self.key, &self.key.name);
        if live.is_none_or(|deployment| deployment.template.as_ref() == Some(&desired.template)) {
            // There are no other pods, for which it would need a turn.
            return;
        }
        self.context.upgrades.done(self.key);
        if progress.turn == Turn::Upgrade
            && let Some(live_template) = live_template
        {
            // It waits again. Until its turn comes, the version that is there is the one that is wanted, and with it the
            // manifest is in force if all else was taken.
            desired.template = live_template;
            progress.upgrade_refused = true;
            if part == Part::Deployment {
                progress.unapplied = None;
                progress.held_back = validated.is_held_back();
            }
        }
    }

    /// Hears how the pods are, and touches those that run an old configuration.
    async fn hear(&mut self, desired: &Desired) {
        let pods = self.pods();
        let unapplied = self.progress.unapplied.as_ref();
        let is_applied = unapplied.is_none_or(|unapplied| unapplied.part != Part::Configuration);
        let touched = probe::touch(self.context, self.key, self.memory, desired, &pods, is_applied).await;
        self.progress.pods = pods;
        self.progress.again = [self.progress.again, touched.again].into_iter().flatten().min();
        self.progress.untouched = touched.failed;
    }

    /// Stops at a failure. One that lasts is told in the status, as this problem; of another nothing is written yet.
    fn fail(&mut self, error: Error, lasting: Option<Problem>) -> Stopped {
        match lasting {
            Some(problem) => {
                let pods = self.pods();
                self.progress.stop(vec![problem], pods);
            }
            None => self.progress.blind = true,
        }
        self.progress.error = Some(error);
        Stopped
    }

    /// The server's pods, and what is known of each.
    fn pods(&self) -> Vec<PodFacts> {
        probe::probe(self.context, self.key, self.uid)
    }
}

/// How the sidecars of the pods that are there reach their servers.
fn mounted_upstreams(context: &Context, key: &ServerKey, uid: &str) -> Vec<Upstream> {
    let pods = probe::pods_of(context, key, uid);
    let running = pods.iter().filter(|pod| pod.failed.is_none());
    let mut texts: Vec<&str> = running.filter_map(|pod| pod.upstream.as_deref()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.into_iter().filter_map(|text| serde_json::from_str(text).ok()).collect()
}
