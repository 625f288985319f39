//! Log messages: chosen once for a session until 2025-11-25, and in each request since 2026-07-28.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/logging>

use crate::level::Level;
use crate::object::{self, quote, string};

/// What a modern server is asked for on behalf of a legacy client that has set no level. Servers of those revisions
/// then send what they think fit, while a modern one would send nothing at all.
pub const UNASKED: Level = Level::Info;

/// The levels that the requests of modern clients ask for, on one session with a legacy server.
#[derive(Debug, Default)]
pub struct Levels {
    under_way: [usize; Level::ALL.len()],
    set: Option<Level>,
}

impl Levels {
    /// None asked for, none set.
    pub fn new() -> Self {
        Self::default()
    }

    /// A request begins. Says which level the server has to be told first, if it has to.
    pub fn begin(&mut self, level: Option<Level>) -> Option<Level> {
        self.under_way[index(level?)] += 1;
        let lowest = Level::ALL.into_iter().find(|level| self.under_way[index(*level)] > 0);
        if lowest == self.set {
            return None;
        }
        self.set = lowest;
        lowest
    }

    /// A request has ended. The server goes on as it is: what nobody asked for is dropped on the way.
    pub fn end(&mut self, level: Option<Level>) {
        if let Some(level) = level {
            let count = &mut self.under_way[index(level)];
            *count = count.saturating_sub(1);
        }
    }

    /// The server could not be told after all: it has to be when the next request begins.
    pub fn untold(&mut self) {
        self.set = None;
    }
}

/// Whether a log message (`notifications/message`) is for a request that asked for this level. One that asked for
/// none gets none.
pub fn is_wanted(message: &str, asked: Option<Level>) -> bool {
    let level = object::at(message, &["params", "level"]).and_then(string);
    match (level.and_then(|level| Level::parse(&level)), asked) {
        (Some(level), Some(asked)) => level >= asked,
        _ => false,
    }
}

/// `logging/setLevel`: the whole message. The id is JSON.
pub fn set_level(id: &str, level: Level) -> String {
    let level = quote(level.as_str());
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"logging/setLevel","params":{{"level":{level}}}}}"#)
}

/// The level that a client sets with `logging/setLevel`.
pub fn level_of(params: &str) -> Option<Level> {
    Level::parse(&object::at(params, &["level"]).and_then(string)?)
}

fn index(level: Level) -> usize {
    level as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_told_the_lowest_level() {
        let mut levels = Levels::new();
        assert_eq!(levels.begin(None), None);
        assert_eq!(levels.begin(Some(Level::Warning)), Some(Level::Warning));
        assert_eq!(levels.begin(Some(Level::Error)), None);
        assert_eq!(levels.begin(Some(Level::Debug)), Some(Level::Debug));
        levels.end(Some(Level::Debug));
        levels.end(Some(Level::Warning));
        levels.end(None);
        assert_eq!(levels.begin(Some(Level::Error)), Some(Level::Error));
        levels.end(Some(Level::Error));
        levels.end(Some(Level::Error));
        levels.end(Some(Level::Error));
        levels.untold();
        assert_eq!(levels.begin(None), None);
        assert_eq!(levels.begin(Some(Level::Error)), Some(Level::Error));
        assert_eq!(levels.begin(Some(Level::Error)), None);
    }

    #[test]
    fn messages_go_to_who_asked_for_them() {
        let message =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":1}}"#;
        for (asked, wanted) in [
            (None, false),
            (Some(Level::Debug), true),
            (Some(Level::Warning), true),
            (Some(Level::Error), false),
        ] {
            assert_eq!(is_wanted(message, asked), wanted, "{asked:?}");
        }
        assert!(!is_wanted(&message.replace("warning", "loud"), Some(Level::Debug)));
        let set = set_level("\"a\"", Level::Notice);
        assert_eq!(level_of(object::at(&set, &["params"]).unwrap()), Some(Level::Notice));
        assert_eq!(level_of("{}"), None);
    }
}
