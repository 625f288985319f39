//! Streams that are cut anywhere, those of calls and those of clients' own, and taken up again at whichever replica.

mod cut;
pub(super) mod resuming;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use self::cut::{Cut, Stream};
use self::resuming::{Resuming, addresses};
use super::random::Random;
use super::row::{Row, form, row};
use super::sdk::Sdk;
use super::served::{Echo, Served, figure};

/// How many events an SDK's client is to hear.
const HEARD: u64 = 200;

#[test]
fn a_stream_that_is_cut_anywhere_is_taken_up_without_a_gap() {
    let cuts = form(60, 1_000);
    row("streams cut at random bytes, resumed at other replicas", async |namespace, row| {
        let with_streams = json!({"source": {"args": ["http", "--streams"]}});
        for echo in [Echo { more: with_streams, ..Echo::http("http") }, Echo::stdio("stdio", "Session")] {
            let served = Served::up(namespace, echo).await;
            let pods = served.settles().await;
            for stream in [Stream::OfCalls, Stream::OfItsOwn] {
                at_least(cuts / 4, stream, &served, &pods, row).await;
            }
            by_themselves(&served, &pods, row).await;
            served.down().await;
        }
    });
}

/// Cuts streams so often, and each until there is no more of it. The sidecars say the same as the client: who held the
/// streams, and that it was taken there from other replicas.
async fn at_least(cuts: usize, stream: Stream, served: &Served<'_>, pods: &[Pod], row: &Row) {
    let (owner, others) = pods.split_first().expect("three pods");
    let (client, _) = served.session_at(owner).await;
    let cut = Cut {
        began: served.pod(owner),
        others: others.iter().map(|pod| served.pod(pod)).collect(),
        service: &served.endpoint,
        client: &client,
    };
    let before = counted(owner, others).await;
    let mut random = Random::new();
    let (mut done, mut elsewhere, mut streams) = (0, 0, 0);
    while done < cuts {
        streams += 1;
        let (resumed, at_others) = cut.until_all_has_come(stream, streams, &mut random).await;
        (done, elsewhere) = (done + resumed, elsewhere + at_others);
    }
    let name = served.echo.name;
    row.says(format!(
        "{name}: {done} cuts in {streams} streams {stream:?}, {elsewhere} resumed at another replica: every event once, \
         in order"
    ));
    let after = counted(owner, others).await;
    let counted = (after.0 - before.0, after.1 - before.1);
    assert!(elsewhere > done / 3, "{elsewhere} of {done}");
    assert!(counted.0 >= done as u64 && counted.1 >= elsewhere as u64, "{name} {stream:?}: {counted:?}");
}

/// How many streams were taken up at their owner, and how many requests the others took there.
async fn counted(owner: &Pod, others: &[Pod]) -> (u64, u64) {
    let resumed = figure(owner, r#"longshore_resumptions_total{result="ok"}"#).await.expect("it is counted");
    let mut forwarded = 0;
    for pod in others {
        let answered = r#"longshore_forwarded_requests_total{result="answered"}"#;
        forwarded += figure(pod, answered).await.expect("it is counted");
    }
    (resumed, forwarded)
}

/// Clients on SDKs of others come back by themselves.
async fn by_themselves(served: &Served<'_>, pods: &[Pod], row: &Row) {
    let mut all = Vec::new();
    for sdk in Sdk::ALL {
        // The Python SDK gives up a stream that breaks off twice, and takes another up where it was at first.
        let cuts = match sdk {
            Sdk::TypeScript => usize::MAX,
            Sdk::Python => 1,
        };
        for tool in ["notify", "announce"] {
            let arguments = json!({"count": HEARD, "padding": 40});
            all.push(
                Resuming::over_what_breaks(served, &addresses(served, pods), cuts, sdk, (tool, arguments))
                    .await,
            );
        }
    }
    for client in all {
        let (cuts, resumed, elsewhere) = client.heard_all(row, served.echo.name);
        // What breaks off behind the last event is not come back for.
        assert!(cuts > 0 && resumed + 1 >= cuts && elsewhere > 0, "{cuts}, {resumed}, {elsewhere}");
    }
}
