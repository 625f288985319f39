//! Operators that look after some namespaces only.

use super::node::Node;
use super::stand::{Operator, until, wait_for};
use super::{LEAST, STAGE};

/// What a namespace that is deleted leaves behind in the chart's values: a name, and no rights in it.
#[test]
fn a_namespace_that_is_gone_keeps_no_other_from_being_served() {
    STAGE.with_namespace(async |namespace| {
        // The first of them is asked first.
        let operator = Operator::confined(namespace, &["a-namespace-that-is-gone"]);
        let node = Node::start().await;
        namespace.apply(&LEAST).await;
        node.run_pod(namespace, "").await;
        node.load_configuration(namespace).await;
        wait_for(namespace, "Ready", "True", "Ready").await;
        until("the log names the namespace that is gone", || {
            let log = operator.log();
            log.lines()
                .any(|line| line.contains("a-namespace-that-is-gone") && line.contains("a watch failed"))
        })
        .await;
    });
}
