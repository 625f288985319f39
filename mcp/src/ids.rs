//! Ids and progress tokens on a connection that several clients share.
//!
//! Each client numbers its requests as it likes, so two of them may use the same number at the same time. On the way
//! to the server every request gets a number of its own, and what comes back under that number goes to whoever it was
//! given for, once.
//!
//! Specification: <https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress>

use std::collections::HashMap;

use crate::envelope::Id;

/// Numbers that stand for the ids (or the tokens) of others. `T` is whom they belong to.
#[derive(Debug)]
pub struct Numbers<T> {
    next: u64,
    open: HashMap<u64, Entry<T>>,
    limit: usize,
}

#[derive(Debug)]
struct Entry<T> {
    owner: T,
    theirs: String,
}

/// There are as many open as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many requests are under way as may be")]
pub struct Full;

impl<T> Numbers<T> {
    /// None yet, and never more than `limit` at once.
    pub fn new(limit: usize) -> Self {
        Self { next: 1, open: HashMap::new(), limit }
    }

    /// A number that stands for somebody's id, which is kept as JSON. No number is given twice.
    pub fn give(&mut self, owner: T, theirs: &str) -> Result<u64, Full> {
        let number = self.next;
        self.give_as(number, owner, theirs)?;
        self.next += 1;
        Ok(number)
    }

    /// The same where others number requests on the connection too: the number is the caller's, and new.
    pub fn give_as(&mut self, number: u64, owner: T, theirs: &str) -> Result<(), Full> {
        if self.open.len() >= self.limit {
            return Err(Full);
        }
        self.open.insert(number, Entry { owner, theirs: theirs.to_owned() });
        Ok(())
    }

    /// Who a number was given to, while it is open.
    pub fn owner(&self, number: Id<'_>) -> Option<(&T, &str)> {
        self.open.get(&number.number()?).map(|entry| (&entry.owner, entry.theirs.as_str()))
    }

    /// Whom the only open number was given to. `None` if there are none, or several.
    pub fn only(&self) -> Option<&T> {
        let mut owners = self.open.values();
        match (owners.next(), owners.next()) {
            (Some(entry), None) => Some(&entry.owner),
            _ => None,
        }
    }

    /// Takes a number back: whose it was and what it stood for. A number that nobody has is an answer that nobody
    /// waits for.
    pub fn take(&mut self, number: Id<'_>) -> Option<(T, String)> {
        self.open.remove(&number.number()?).map(|entry| (entry.owner, entry.theirs))
    }

    /// The number that stands for somebody's id. All that are open are looked at.
    pub fn find(&self, theirs: Id<'_>, is_owner: impl Fn(&T) -> bool) -> Option<u64> {
        let is_it = |entry: &Entry<T>| is_owner(&entry.owner) && Id::from_json(&entry.theirs).is(&theirs);
        self.open.iter().find(|(_, entry)| is_it(entry)).map(|(number, _)| *number)
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_once() {
        let mut numbers = Numbers::new(2);
        let first = numbers.give("ann", "1").unwrap();
        let second = numbers.give("bob", "1").unwrap();
        assert_ne!(first, second);
        assert_eq!(numbers.give("cay", "1"), Err(Full));
        assert_eq!(numbers.find(Id::from_json("1"), |owner| *owner == "bob"), Some(second));
        assert_eq!(numbers.find(Id::from_json("\"1\""), |owner| *owner == "bob"), None);
        let json = second.to_string();
        assert_eq!(numbers.owner(Id::from_json(&json)), Some((&"bob", "1")));
        assert_eq!(numbers.take(Id::from_json(&json)), Some(("bob", "1".to_owned())));
        assert_eq!(numbers.take(Id::from_json(&json)), None);
        let third = numbers.give("cay", "\"x\"").unwrap();
        assert!(third > second);
        assert_eq!((numbers.len(), numbers.is_empty()), (2, false));
        // It is the same number, however it is written.
        assert_eq!(numbers.owner(Id::from_json("1.0")), Some((&"ann", "1")));
        assert_eq!(numbers.take(Id::from_json("\"1\"")), Some(("ann", "1".to_owned())));
    }
}
