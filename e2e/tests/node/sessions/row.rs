//! A row of the table: what is done to the servers, how much of it, and what came of it.

#![expect(clippy::print_stdout, reason = "this is how a test speaks")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{Duration, Instant};

use longshore_e2e::load::{Kind as Failed, Report};
pub(super) use longshore_e2e::testing::form;
use longshore_e2e::testing::{Kind, Namespace, Room, SOAK, Stage};
use parking_lot::Mutex;

use crate::{STAGE, may_kill};

/// How long a form may take before it is taken for stuck. A busy machine is slow, not broken.
const SHORT: Duration = Duration::from_secs(10 * 60);
const FULL: Duration = Duration::from_secs(60 * 60);

/// What came of it, so far.
pub(super) struct Row {
    title: &'static str,
    began: Instant,
    said: Mutex<Vec<String>>,
}

/// Runs a row in a namespace of its own, on the cluster that all share.
pub(super) fn row(title: &'static str, test: impl AsyncFnOnce(&Namespace<'_>, &Row) + Send) {
    row_of(Kind::Load, title, test);
}

/// The same for one that takes far longer than the others.
pub(super) fn long_row(title: &'static str, test: impl AsyncFnOnce(&Namespace<'_>, &Row) + Send) {
    if may_kill() {
        row_in(&Room::take_first(Kind::Load), &STAGE, title, test);
    }
}

/// The same for one that does something else to the machine than to keep it busy.
pub(super) fn row_of(kind: Kind, title: &'static str, test: impl AsyncFnOnce(&Namespace<'_>, &Row) + Send) {
    if may_kill() {
        row_on(&STAGE, kind, title, test);
    }
}

/// The same on another cluster.
pub(super) fn row_on(
    stage: &Stage,
    kind: Kind,
    title: &'static str,
    test: impl AsyncFnOnce(&Namespace<'_>, &Row) + Send,
) {
    row_in(&Room::take(kind), stage, title, test);
}

fn row_in(
    room: &Room,
    stage: &Stage,
    title: &'static str,
    test: impl AsyncFnOnce(&Namespace<'_>, &Row) + Send,
) {
    let row = Row { title, began: Instant::now(), said: Mutex::default() };
    stage.with_namespace_and_room(room, async |namespace| {
        let limit = form(SHORT, FULL);
        let outcome = tokio::time::timeout(limit, test(namespace, &row)).await;
        assert!(outcome.is_ok(), "it is not done after {limit:?}");
    });
}

impl Row {
    /// Writes something down.
    pub(super) fn says(&self, text: impl Into<String>) {
        let text = text.into();
        println!("{}: {text}", self.title);
        self.said.lock().push(text);
    }

    /// Writes down what came of a load, and looks at what must never be: an answer to somebody else.
    pub(super) fn saw(&self, what: &str, report: &Report) {
        self.says(format!("{what}: {}", report.summary()));
        for (kind, message, first, last, count) in told(report) {
            println!("    {count}x {kind:?} from {first:.1?} to {last:.1?}: {message}");
        }
        assert_eq!(
            report.wrong,
            0,
            "{what}: {:?}",
            &report.wrong_answers[..report.wrong_answers.len().min(10)]
        );
    }

    /// The same, where nothing may be lost.
    pub(super) fn saw_nothing_lost(&self, what: &str, report: &Report) {
        self.saw(what, report);
        assert!(report.nothing_lost(), "{what}: {}; first {:?}", report.summary(), report.failures.first());
    }
}

/// What was said about the failures, when first and last, and how often.
fn told(report: &Report) -> Vec<(Failed, &str, Duration, Duration, usize)> {
    let mut told: Vec<(Failed, &str, Duration, Duration, usize)> = Vec::new();
    for failure in &report.failures {
        let same = |it: &&mut (Failed, &str, Duration, Duration, usize)| {
            it.0 == failure.kind && it.1 == failure.message
        };
        match told.iter_mut().find(same) {
            Some(known) => (known.3, known.4) = (failure.at, known.4 + 1),
            None => told.push((failure.kind, &failure.message, failure.at, failure.at, 1)),
        }
    }
    told
}

impl Drop for Row {
    fn drop(&mut self) {
        let Some(file) = std::env::var_os(SOAK) else { return };
        let outcome = if std::thread::panicking() { "**failed**" } else { "passed" };
        let said = self.said.lock().join("<br>").replace('|', "\\|");
        let line = format!(
            "| {} | {outcome} | {:.0} s | {said} |\n",
            self.title,
            self.began.elapsed().as_secs_f64()
        );
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the report can be written");
    }
}
