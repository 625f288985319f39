//! Brings a cluster up, watches over it, and ends it: when a component fails, when it is told to, or when the lifeline
//! to whoever started it breaks. Runs in the main thread of a process of its own.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::component::Component;
use super::crew::Crew;
use super::messages::{Failure, Order, Report};
use super::spec::{Shape, Spec};
use super::{cgroups, client, containerd, network};

/// How long a component may take to become ready. A machine that compiles at the same time is slow, not broken.
const PATIENCE: Duration = Duration::from_secs(180);

/// When a cluster ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lifetime {
    /// When standard input closes, which the kernel does for those who die.
    Lifeline,
    /// When it is told to.
    Detached,
}

/// Says something to whoever started this cluster. If nobody is there any more, it is not said.
pub(crate) fn report(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        let mut output = io::stdout().lock();
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}

/// Runs the cluster until its end.
pub(crate) fn run(spec: &Spec, lifetime: Lifetime) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let crew = Crew::new(spec);
    let ended = runtime.block_on(supervise(spec, &crew, lifetime));
    crew.stop_all();
    if ended.is_err() {
        // The logs tell what the failure does not.
        let _ = std::fs::write(spec.keep_logs(), "");
    }
    ended
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<Report, Failure>> + 'a>>;

async fn supervise(spec: &Spec, crew: &Crew<'_>, lifetime: Lifetime) -> Result<(), Failure> {
    let client = client::of(&spec.kubeconfig()).await.map_err(internal)?;
    let mut child_ended = signal(SignalKind::child()).map_err(internal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
    let mut orders = Orders::open(lifetime).map_err(internal)?;
    let mut waiting = VecDeque::new();
    // One thing at a time, in the order in which it was asked for; coming up is the first.
    let mut work: Option<Work<'_>> = Some(Box::pin(bring_up(spec, crew, &client)));
    loop {
        if work.is_none() {
            work = waiting.pop_front().map(|order| carry_out(order, spec, crew, &client));
        }
        tokio::select! {
            done = finished(&mut work) => {
                work = None;
                report(&done?);
            }
            _ = child_ended.recv() => crew.reap()?,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            order = orders.next() => match order.map_err(internal)? {
                Some(order) => waiting.push_back(order),
                None => return Ok(()),
            },
        }
    }
}

/// Never, where there is no work.
async fn finished(work: &mut Option<Work<'_>>) -> Result<Report, Failure> {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

async fn bring_up(spec: &Spec, crew: &Crew<'_>, client: &kube::Client) -> Result<Report, Failure> {
    if spec.shape == Shape::Node {
        network::set_up(spec).map_err(|error| internal(format!("cannot set up the network: {error}")))?;
        cgroups::create(&spec.cgroup()).map_err(|error| internal(format!("cannot make cgroups: {error}")))?;
    }
    // What the others need comes first; all of the rest starts at once.
    let (foundation, rest): (Vec<Component>, Vec<Component>) =
        spec.shape.components().iter().partition(|component| component.is_foundation());
    for components in [foundation, rest] {
        for component in &components {
            crew.start(*component)?;
        }
        for component in &components {
            ready(*component, spec, crew, client).await?;
            if *component == Component::Containerd {
                import_pause(spec)?;
            }
        }
    }
    Ok(Report::Ready)
}

fn carry_out<'a>(order: Order, spec: &'a Spec, crew: &'a Crew<'_>, client: &'a kube::Client) -> Work<'a> {
    Box::pin(async move {
        match order {
            Order::Stop(component) => crew.stop(component)?,
            Order::Start(component) => {
                crew.start(component)?;
                ready(component, spec, crew, client).await?;
            }
            Order::KeepLogs => std::fs::write(spec.keep_logs(), "").map_err(internal)?,
        }
        Ok(Report::Done)
    })
}

async fn ready(
    component: Component,
    spec: &Spec,
    crew: &Crew<'_>,
    client: &kube::Client,
) -> Result<(), Failure> {
    tokio::time::timeout(PATIENCE, component.ready(spec, client))
        .await
        .map_err(|_| crew.failure(component, format!("was not ready after {} s", PATIENCE.as_secs())))
}

fn import_pause(spec: &Spec) -> Result<(), Failure> {
    let Some(image) = &spec.pause else { return Ok(()) };
    let output = containerd::import(&image.archive).output().map_err(internal)?;
    if output.status.success() {
        return Ok(());
    }
    Err(internal(format!(
        "cannot import the pause image: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure { what: error.to_string(), log: None, logs: None }
}

/// The orders that come in, where any can.
struct Orders(Option<Lines<BufReader<pipe::Receiver>>>);

impl Orders {
    fn open(lifetime: Lifetime) -> io::Result<Self> {
        Ok(Self(match lifetime {
            Lifetime::Detached => None,
            Lifetime::Lifeline => {
                let input = io::stdin().as_fd().try_clone_to_owned()?;
                Some(BufReader::new(pipe::Receiver::from_owned_fd(input)?).lines())
            }
        }))
    }

    /// The next order, or `None` when nobody is left to give one.
    async fn next(&mut self) -> io::Result<Option<Order>> {
        match &mut self.0 {
            None => std::future::pending().await,
            Some(lines) => match lines.next_line().await? {
                Some(line) => Ok(Some(serde_json::from_str(&line)?)),
                None => Ok(None),
            },
        }
    }
}
