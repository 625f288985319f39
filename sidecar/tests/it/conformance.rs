//! The protocol's conformance suite, through the sidecar: docs/conformance.md is what comes of it.

mod client;
mod matrix;
mod page;
mod rows;
mod rules;
mod server;
mod suite;

#[test]
fn the_page_says_what_the_suite_says() {
    let rows = rows::run();
    let client = client::SCENARIOS.map(|(revision, scenarios)| (revision, client::run(revision, scenarios)));
    page::suite_agrees(&rows, &client);
}
