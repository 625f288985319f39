//! Many sessions at once, all of which use the same ids and tokens.

use longshore_sidecar_config::Isolation;
use serde_json::{Value, json};

use super::{config, delete, error, open, shared, text};
use crate::harness::Sidecar;
use crate::harness::http::{Reply, connect};

/// Numbers that look random and can be had again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn no_answer_goes_to_another_session() {
    let seed =
        u64::from(std::process::id()) ^ u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    for isolation in [Isolation::Session, Isolation::Principal, Isolation::Shared] {
        let total = if isolation == Isolation::Session { 12 } else { 3 };
        let (_shim, sidecar) = shared(&config(isolation, total), &[], &["--workers", "2"]);
        std::thread::scope(|scope| {
            for number in 0..12_u64 {
                let sidecar = &sidecar;
                scope.spawn(move || {
                    session(sidecar, number, Dice(seed ^ number), &format!("{isolation:?} seed {seed}"));
                });
            }
        });
        assert_eq!(sidecar.metric("longshore_calls"), 0.0);
    }
}

/// A session that does what its dice say; all use the same ids and tokens.
fn session(sidecar: &Sidecar, number: u64, mut dice: Dice, case: &str) {
    let client = open(sidecar, usize::try_from(number % 3).unwrap());
    for round in 0..25 {
        let calls = 1 + dice.roll(4);
        let streams: Vec<_> = (0..calls)
            .map(|call| {
                let who = format!("{number}/{round}/{call}");
                let (steps, seconds) = (dice.roll(4), dice.roll(30));
                let id = if dice.roll(2) == 0 { json!(call) } else { json!(call.to_string()) };
                let arguments = json!({"who": who, "steps": steps, "seconds": seconds as f64 / 1000.0});
                let params = json!({"name": "who", "arguments": arguments, "_meta": {"progressToken": id}});
                let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
                let mut stream = connect(sidecar.mcp);
                client.request(body.to_string()).write(&mut stream);
                (who, id, steps, stream)
            })
            .collect();
        let cancelled = (dice.roll(3) == 0).then(|| json!(dice.roll(calls)));
        if let Some(id) = &cancelled {
            // This server does not stop at a word; its answer may come or not.
            assert_eq!(client.cancel(id.clone()).status, 202);
        }
        for (who, id, steps, stream) in streams {
            let reply = Reply::on(stream);
            let message = reply.message();
            assert_eq!(message["id"], id, "{case}: {}", reply.text());
            if message.get("error").is_some() {
                assert_eq!(error(&message), "the call was cancelled by its client", "{case}");
                continue;
            }
            assert_eq!(text(&message), who, "{case}");
            let progress: Vec<Value> =
                reply.events().iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            let progress: Vec<_> = progress.iter().filter(|event| event.get("method").is_some()).collect();
            for event in &progress {
                let params = &event["params"];
                assert_eq!((&params["progressToken"], &params["message"]), (&id, &json!(who)), "{case}");
            }
            // What was cancelled is not heard of any more, though it may still be answered.
            let all = progress.len() as u64 == steps || cancelled.as_ref() == Some(&id);
            assert!(all, "{case}: {}", reply.text());
        }
    }
    delete(&client);
}
