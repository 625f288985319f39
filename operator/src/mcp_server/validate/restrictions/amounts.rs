//! Amounts in what the schema keeps as it is written: of one that is none the API server says that it failed itself, and not
//! which it was.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::mcp_server::condition::Problem;
use crate::mcp_server::validate::quantity;

/// Checks what a container, or all of a pod, requests and may use.
pub(super) fn resources(path: &str, resources: Option<&ResourceRequirements>, problems: &mut Vec<Problem>) {
    let Some(resources) = resources else { return };
    both(path, resources.limits.as_ref(), resources.requests.as_ref(), problems);
}

/// Checks what may be used, and what is requested.
pub(super) fn both(
    path: &str,
    limits: Option<&BTreeMap<String, Quantity>>,
    requests: Option<&BTreeMap<String, Quantity>>,
    problems: &mut Vec<Problem>,
) {
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, quantity) in amounts.into_iter().flatten() {
            amount(&format!("{path}.{field}.{name}"), quantity, problems);
        }
    }
}

/// Checks one.
pub(super) fn amount(path: &str, Quantity(text): &Quantity, problems: &mut Vec<Problem>) {
    if quantity::amount(text.trim()).is_none() {
        problems.push(Problem::invalid(
            path,
            format_args!("{text:?} is no amount: write one such as `250m` of CPU or `128Mi` of memory"),
        ));
    }
}
