//! Whether DNS leaves this replica out for longer than name servers are behind: then there is no Service of the name that
//! it is asked for, as where the cluster's domain is another one, and replicas do not find each other.

use tokio::time::{Duration, Instant};

/// For how long a new pod need not be listed: name servers keep answers for half a minute.
const LATE: Duration = Duration::from_secs(60);

/// Since when DNS has answered and not listed this replica.
#[derive(Default)]
pub(super) struct Overlooked(Option<Instant>);

impl Overlooked {
    /// Notes what DNS has just said. Says whether it has left this replica out for long.
    pub(super) fn note(&mut self, overlooked: bool, now: Instant) -> bool {
        if !overlooked {
            self.0 = None;
            return false;
        }
        now.duration_since(*self.0.get_or_insert(now)) >= LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_dns_does_not_list_is_no_news_at_first() {
        let begin = Instant::now();
        let mut overlooked = Overlooked::default();
        for (second, is_overlooked, expected) in [
            (0, true, false),
            (59, true, false),
            (60, true, true),
            (61, true, true),
            (62, false, false),
            (63, true, false),
            (122, true, false),
            (123, true, true),
        ] {
            let now = begin + Duration::from_secs(second);
            assert_eq!(overlooked.note(is_overlooked, now), expected, "{second}");
        }
    }
}
