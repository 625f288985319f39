//! The protocol's conformance suite, through the sidecar: docs/conformance.md is what comes of it.

mod client;
mod page;
mod rows;
mod rules;
mod server;
mod suite;

#[test]
fn the_page_says_what_the_suite_says() {
    let rows = rows::run();
    let client = client::SCENARIOS.map(|(revision, scenarios)| (revision, client::run(revision, scenarios)));
    page::agrees(&rows, &client);
}
