//! Many short histories of replicas that crash, drain, restart, are cut off from each other, have servers that do not stay,
//! have no room for sessions of others, are of an earlier release that knows nothing of that, and see old name server
//! entries, with messages that are lost, doubled or late. All of it follows from one number, so that a history that breaks
//! a rule can be run again:
//!
//! ```text
//! LONGSHORE_SIMULATION_SEED=4711 cargo test -p longshore-sessions --test simulation -- --nocapture
//! ```
//!
//! `LONGSHORE_SIMULATION_HISTORIES` says how many are tried, and `LONGSHORE_SIMULATION_FROM` from which number on.
//!
//! The rules, which `rules` and `copies` check after whatever happens:
//!
//! * never do two replicas hold one session;
//! * a session whose `DELETE` succeeded never serves again while a replica lives that knows of it;
//! * a request that was forwarded is not forwarded again;
//! * where pods only come and go in order, every request is served;
//! * nobody waits for room where somebody else has some who has been there for a while;
//! * what a pod gives away in a rollout goes to a pod that the last rollout has made, if the former knows one with room;
//! * a session that nobody ended, and whose server's state was not lost, or may be begun again, is never answered 404, also where
//!   its sidecar dies alone, is back within a few seconds, and serves within a few more;
//! * what a client set is known to whoever takes its session, as long as a replica lives that has a copy of it;
//! * when faults have ended, every such session is served again.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test speaks by failing; clippy frees only functions that are marked as tests, not what they share"
)]

mod copies;
mod faults;
mod names;
mod network;
mod pods;
mod random;
mod requests;
mod rules;
mod tally;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tally::Tally;
use world::World;

/// How many histories one run tries, unless it is told otherwise.
const HISTORIES: u64 = 2_000;

#[test]
fn no_history_breaks_a_rule() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("LONGSHORE_SIMULATION_SEED") {
        World::new(seed, true).run();
        return;
    }
    let mut all = Tally::default();
    let first = number("LONGSHORE_SIMULATION_FROM").unwrap_or(0);
    let histories = number("LONGSHORE_SIMULATION_HISTORIES").unwrap_or(HISTORIES);
    for seed in first..first + histories {
        match catch_unwind(AssertUnwindSafe(|| World::new(seed, false).run())) {
            Ok(tally) => all += tally,
            Err(cause) => {
                eprintln!("the history of LONGSHORE_SIMULATION_SEED={seed} breaks a rule");
                resume_unwind(cause);
            }
        }
    }
    println!("{all:?}");
    // Histories in which nothing happens prove nothing.
    let happened = [all.forwarded, all.adopted, all.taken_up, all.handed_over, all.ended, all.failed_to_take];
    let happened =
        happened.into_iter().chain([all.broken_off, all.set, all.set_again, all.shaken, all.spared]);
    let happened = happened.chain([all.crowded, all.passed_on, all.handed_on, all.had_no_room, all.renewed]);
    let happened = happened.chain([all.overtaken, all.evicted, all.before_turn]);
    assert!(happened.into_iter().all(|times| times > 0), "{all:?}");
}
