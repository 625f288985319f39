//! Whether clients are sent to a sidecar whose server dies.

use std::time::{Duration, Instant};

use crate::harness::shim::{server, serving, stdio};
use crate::harness::{GoServer, Shim, Sidecar, config, eventually};

/// A server that was there for so long is believed soon: on a machine that stood still meanwhile nothing is shown.
const TOO_LATE: Duration = Duration::from_secs(9);

#[test]
fn a_server_that_dies_soon_has_to_stay_once_before_clients_are_sent_to_it() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            is_shown(|| {
                let began = Instant::now();
                let server = GoServer::start(&[]);
                let sidecar = Sidecar::start(&config(server.port)).ready();
                has_to_stay_once(began, &sidecar, server, GoServer::kill, GoServer::start_again)
            });
        });
        scope.spawn(|| {
            is_shown(|| {
                let began = Instant::now();
                let (shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
                let start_again = |shim: &mut Shim| *shim = Shim::start(&sidecar.files, &server(&[]));
                has_to_stay_once(began, &sidecar, shim, Shim::kill, start_again)
            });
        });
    });
}

fn is_shown(show: impl Fn() -> bool) {
    assert!((0..5).any(|_| show()), "the machine is too slow each time");
}

/// In front of a server that has just been greeted for the first time. False: too late.
fn has_to_stay_once<S>(
    mut began: Instant,
    sidecar: &Sidecar,
    mut server: S,
    kill: impl Fn(&mut S),
    start: impl Fn(&mut S),
) -> bool {
    let is_connected = |wanted: f64| {
        eventually("the monitor sees it", || sidecar.metric("longshore_server_connected") == wanted);
    };
    // However often.
    for _ in 0..2 {
        kill(&mut server);
        is_connected(0.0);
        if began.elapsed() > TOO_LATE {
            return false;
        }
        let reply = sidecar.get("/readyz");
        assert_eq!(reply.status, 503);
        assert!(reply.text().contains("lost soon after its handshake"), "{}", reply.text());
        began = Instant::now();
        start(&mut server);
        is_connected(1.0);
        let reply = sidecar.get("/readyz");
        if began.elapsed() > TOO_LATE {
            return false;
        }
        assert_eq!(reply.status, 503, "it is back, and has not stayed");
        assert!(reply.text().contains("has not stayed since"), "{}", reply.text());
    }
    eventually("it has stayed", || sidecar.get("/readyz").status == 200);
    kill(&mut server);
    is_connected(0.0);
    assert_eq!(sidecar.get("/readyz").status, 200, "a server that dies later is no endpoint that vanishes");
    true
}
