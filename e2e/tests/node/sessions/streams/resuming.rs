//! Clients on SDKs of others that come back for the rest of a stream by themselves.

use std::net::SocketAddr;
use std::process::{Child, Stdio};

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::sessions::row::Row;
use crate::sessions::sdk::Sdk;
use crate::sessions::served::Served;
use crate::sessions::way::Way;

/// A client that hears what a tool has the server say.
pub(in crate::sessions) struct Resuming {
    what: String,
    /// How many events it is to hear.
    count: u64,
    way: Way,
    child: Child,
}

impl Resuming {
    /// Its connections lead to each of these addresses in turn, and break off so often in the middle of a stream.
    pub(super) async fn over_what_breaks(
        served: &Served<'_>,
        to: &[SocketAddr],
        cuts: usize,
        sdk: Sdk,
        tool: (&str, Value),
    ) -> Self {
        Self::start(served, Way::that_breaks(&served.endpoint.path, to, cuts).await, sdk, tool)
    }

    /// Its session begins at this pod; what breaks off, breaks off there. Later connections lead through the Service.
    pub(in crate::sessions) async fn at(
        served: &Served<'_>,
        pod: &Pod,
        sdk: Sdk,
        tool: (&str, Value),
    ) -> Self {
        let (first, service) = (served.pod(pod).address, &served.endpoint);
        Self::start(served, Way::to(&service.path, first, service.address).await, sdk, tool)
    }

    fn start(served: &Served<'_>, way: Way, sdk: Sdk, (tool, arguments): (&str, Value)) -> Self {
        let mut command = sdk.client(served.namespace, "resuming", &[&way.url, tool, &arguments.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the client starts");
        let count = arguments["count"].as_u64().expect("a number of events");
        Self { what: format!("{tool} by {sdk}"), count, way, child }
    }

    /// Whether it has called, and the server speaks.
    pub(in crate::sessions) fn hears(&self) -> bool {
        self.way.hears()
    }

    /// Waits until it has heard everything, once and in order. Returns how many streams broke off on the way, how often it
    /// came back, and how often of these elsewhere than where the first was that broke off.
    pub(in crate::sessions) fn heard_all(self, row: &Row, name: &str) -> (usize, usize, usize) {
        let Self { what, count, way, child } = self;
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{name}, {what}: {output:?}");
        let heard: Vec<u64> = serde_json::from_slice(&output.stdout).expect("it says what it heard");
        let expected: Vec<_> = (1..=count).chain([1]).collect();
        let cuts = way.cuts();
        let (resumed, elsewhere) = way.resumptions();
        let cut = if cuts == 0 {
            "ended by the sidecar".to_owned()
        } else {
            format!("{cuts} cuts, {elsewhere} resumed at another replica")
        };
        let says = format!("{name}, {what}: {cut}, {resumed} times resumed");
        assert_eq!(heard, expected, "{says}");
        row.says(format!("{says}: every event once, in order"));
        (cuts, resumed, elsewhere)
    }
}

/// Where the pods themselves are.
pub(super) fn addresses(served: &Served<'_>, pods: &[Pod]) -> Vec<SocketAddr> {
    pods.iter().map(|pod| served.pod(pod).address).collect()
}
