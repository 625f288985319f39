//! An error with its reasons, as one sentence.

use std::error::Error;

/// An error with the reasons that it does not name itself: `kube` says of a connection that was refused only that there
/// was none.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let reasons = std::iter::successors(error.source(), |&reason| reason.source());
    for reason in reasons.map(ToString::to_string) {
        if !text.contains(&reason) {
            text.push_str(": ");
            text.push_str(&reason);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    #[error("it was refused")]
    struct Root;

    #[derive(Debug, Error)]
    enum Outer {
        #[error("there is no connection")]
        Silent(#[source] Root),
        #[error("there is no connection, since {0}")]
        Speaking(#[source] Root),
    }

    #[test]
    fn each_reason_is_said_once() {
        assert_eq!(sentence(&Outer::Silent(Root)), "there is no connection: it was refused");
        assert_eq!(sentence(&Outer::Speaking(Root)), "there is no connection, since it was refused");
    }
}
