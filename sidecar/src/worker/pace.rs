//! How much is read of a connection at once. hyper keeps a buffer of what it last read at once for as long as a connection
//! lasts, and what it has read of a server waits while its client reads nothing: that is much where there are many.

use std::sync::Arc;

use prometheus::IntGauge;

use super::watched::Watch;

/// How much it is where there are many, in bytes. One more, and hyper's buffer of 16 KiB would be full and grow.
pub(super) const PIECE: usize = 16 * 1024 - 1;

/// The connections of clients, and how many of them are few.
pub(crate) struct Pace {
    connections: IntGauge,
    few: i64,
}

impl Pace {
    /// That of so many places: an eighth of them is few, who take twice their part and more.
    pub(crate) fn of(connections: IntGauge, places: usize) -> Arc<Self> {
        Arc::new(Self { connections, few: i64::try_from(places / 8).unwrap_or(i64::MAX) })
    }

    /// There is one more of them.
    pub(super) fn begins(&self) {
        self.connections.inc();
    }

    /// There is one fewer.
    pub(super) fn ends(&self) {
        self.connections.dec();
    }
}

impl Watch for Pace {
    fn at_once(&self) -> usize {
        if self.connections.get() > self.few { PIECE } else { usize::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_read_at_once_where_there_are_many() {
        let pace = Pace::of(IntGauge::new("connections", "of a test").unwrap(), 23);
        (0..2).for_each(|_| pace.begins());
        assert_eq!(pace.at_once(), usize::MAX);
        pace.begins();
        assert_eq!(pace.at_once(), PIECE);
        pace.ends();
        assert_eq!(pace.at_once(), usize::MAX);
    }
}
