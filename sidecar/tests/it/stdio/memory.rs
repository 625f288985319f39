//! How much memory processes have, as it is told to who looks at figures.

use serde_json::json;

use super::said;
use crate::harness::shim::{server, serving, stdio};
use crate::harness::{Client, eventually};

const BYTES: u32 = 64 << 20;

#[test]
fn a_process_that_grows_is_seen_in_the_figures_until_it_ends() {
    let (_shim, sidecar) = serving(&stdio(), &server(&[]), &[]);
    let figures = ["longshore_processes_resident_bytes", "longshore_process_resident_bytes_max"];
    let [large, small] = [(); 2].map(|()| Client::open(&sidecar, None));
    assert_eq!(said(&large, "grow", json!({"bytes": BYTES})), BYTES.to_string());
    let told = || figures.map(|name| sidecar.metric(name));
    let is_large = |bytes: f64| (f64::from(BYTES)..2.0 * f64::from(BYTES)).contains(&bytes);
    // It is measured every few seconds.
    let [all, largest] = eventually("it is told", || {
        let [all, largest] = told();
        // Of the small ones, too.
        (is_large(largest) && all > largest).then_some([all, largest])
    });
    assert!(all < 2.0 * largest, "{all} bytes, of which one has {largest}");
    assert_eq!(large.end().status, 204);
    eventually("its process is gone", || {
        let [all, largest] = told();
        (0.0 < largest && largest <= all && all < f64::from(BYTES)).then_some(())
    });
    said(&small, "pid", json!({}));
}
