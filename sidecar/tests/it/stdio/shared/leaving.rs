//! Sessions that leave a process which others go on with.

use std::thread::{Scope, ScopedJoinHandle};

use longshore_sidecar_config::Isolation;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{config, delete, open, pid, shared, state, under_way};
use crate::harness::{Client, eventually};

/// What a session leaves behind, or takes back, is taken back, unless another one has it by then or is about to.
#[test]
fn nobody_takes_another_sessions_subscription_along() {
    // While the other one's is on its way: the process has something to do between the two.
    for leaves in [delete, unsubscribe] {
        let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
        let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
        let process = stopped(&c);
        std::thread::scope(|scope| {
            let first = begin(scope, &a, subscribe);
            let busy = begin(scope, &c, |client| client.call("busy", json!({"seconds": 1})));
            let second = begin(scope, &b, subscribe);
            kill_process(process, Signal::CONT).unwrap();
            first.join().unwrap();
            leaves(&a);
            assert!(!second.is_finished());
            for call in [busy, second] {
                assert!(call.join().unwrap()["result"].is_object());
            }
        });
        assert_eq!(state(&b)["subscriptions"], json!(["x:1", "x:1"]), "nothing was taken back");
    }

    // While the process is started that is to have it.
    let (shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b) = (open(&sidecar, 0), open(&sidecar, 1));
    subscribe(&a);
    kill_process(Pid::from_raw(pid(&b).cast_signed()).unwrap(), Signal::KILL).unwrap();
    eventually("the news", || sidecar.metric("longshore_processes") == 1.0);
    shim.signal(Signal::STOP);
    std::thread::scope(|scope| {
        let (sidecar, session) = (&sidecar, &b.session);
        let call = scope.spawn(move || pid(&Client::in_session(sidecar, session).with_key("key-b")));
        under_way(sidecar, 1.0);
        delete(&a);
        shim.signal(Signal::CONT);
        call.join().unwrap();
    });
    subscribe(&b);
    delete(&open(&sidecar, 2));
    assert_eq!(state(&b)["subscriptions"], json!(["x:1"]));
}

/// A session that takes back what was not answered yet is no subscriber, and the next one becomes one at the process.
#[test]
fn what_is_taken_back_before_its_answer_is_nobodys() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let process = stopped(&c);
    std::thread::scope(|scope| {
        let calls = [begin(scope, &a, subscribe), begin(scope, &a, unsubscribed)];
        kill_process(process, Signal::CONT).unwrap();
        for call in calls {
            assert_eq!(call.join().unwrap()["result"], json!({}));
        }
    });
    assert_eq!(state(&c)["subscriptions"], json!([]));
    subscribe(&b);
    assert_eq!(state(&c)["subscriptions"], json!(["x:1"]));
}

/// Also by a process that does the one before the other, whichever it was asked for first.
#[test]
fn what_is_taken_back_is_nobodys_though_the_process_does_it_later() {
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &["tardy"], &[]);
    let (a, b) = (open(&sidecar, 0), open(&sidecar, 1));
    std::thread::scope(|scope| {
        let late = begin(scope, &a, subscribe);
        unsubscribe(&a);
        assert_eq!(late.join().unwrap()["result"], json!({}));
    });
    assert_eq!(state(&b)["subscriptions"], json!([]));
    // Who wants it then is subscribed all the same.
    subscribe(&b);
    unsubscribe(&a);
    assert_eq!(state(&b)["subscriptions"], json!(["x:1"]));
}

fn subscribe(client: &Client<'_>) -> Value {
    client.ask("resources/subscribe", json!({"uri": "x:1"}))
}

fn unsubscribed(client: &Client<'_>) -> Value {
    client.ask("resources/unsubscribe", json!({"uri": "x:1"}))
}

fn unsubscribe(client: &Client<'_>) {
    assert_eq!(unsubscribed(client)["result"], json!({}));
}

/// The process of this session, which does nothing until it is told to go on.
fn stopped(session: &Client<'_>) -> Pid {
    let process = Pid::from_raw(pid(session).cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    process
}

/// Has a session ask something, and goes on when that is under way.
fn begin<'scope>(
    scope: &'scope Scope<'scope, '_>,
    client: &Client<'scope>,
    ask: fn(&Client<'_>) -> Value,
) -> ScopedJoinHandle<'scope, Value> {
    let sidecar = client.sidecar;
    let (session, key) = (client.session.clone(), client.key.clone().unwrap());
    let before = sidecar.metric("longshore_calls");
    let call = scope.spawn(move || ask(&Client::in_session(sidecar, &session).with_key(&key)));
    under_way(sidecar, before + 1.0);
    call
}
