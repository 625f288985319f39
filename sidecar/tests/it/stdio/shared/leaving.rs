//! Sessions that leave a process which others go on with.

use longshore_sidecar_config::Isolation;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{config, delete, open, pid, shared, state, under_way};
use crate::harness::{Client, eventually};

/// What a session leaves behind is taken back, unless another one has it by then or is about to.
#[test]
fn nobody_takes_another_sessions_subscription_along() {
    let subscribe = |client: &Client<'_>| client.ask("resources/subscribe", json!({"uri": "x:1"}));
    // While the other one's is on its way: the process has something to do between the two.
    let (_shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b, c) = (open(&sidecar, 0), open(&sidecar, 1), open(&sidecar, 2));
    let process = Pid::from_raw(pid(&c).cast_signed()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    std::thread::scope(|scope| {
        let sidecar = &sidecar;
        let [first, busy, second] = [&a, &c, &b].map(|client| {
            let (session, key) = (&client.session, client.key.as_deref().unwrap());
            let before = sidecar.metric("longshore_calls");
            let call = scope.spawn(move || {
                let client = Client::in_session(sidecar, session).with_key(key);
                if key == "key-c" { client.call("busy", json!({"seconds": 1})) } else { subscribe(&client) }
            });
            under_way(sidecar, before + 1.0);
            call
        });
        kill_process(process, Signal::CONT).unwrap();
        first.join().unwrap();
        delete(&a);
        assert!(!second.is_finished());
        for call in [busy, second] {
            assert!(call.join().unwrap()["result"].is_object());
        }
    });
    assert_eq!(state(&b)["subscriptions"], json!(["x:1", "x:1"]), "nothing was taken back");

    // While the process is started that is to have it.
    let (shim, sidecar) = shared(&config(Isolation::Shared, 1), &[], &[]);
    let (a, b) = (open(&sidecar, 0), open(&sidecar, 1));
    subscribe(&a);
    kill_process(Pid::from_raw(pid(&b).cast_signed()).unwrap(), Signal::KILL).unwrap();
    eventually("the news", || (sidecar.metric("longshore_processes") == 1.0).then_some(()));
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
