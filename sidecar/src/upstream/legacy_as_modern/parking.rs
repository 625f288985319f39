//! Calls that wait for the answers of their clients, by the number that their clients bring back.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_sessions::capsule::PrincipalDigest;
use longshore_sessions::request_state::CallNumber;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::client::Client;
use super::failure::Failure;
use crate::calls::{CallGuard, Calls};
use crate::counts_by_owner::Tally;

/// How many calls wait at most. Each holds a request open at the server.
const MAX_WAITING: usize = 1024;
/// And of one principal.
const MAX_OF_PRINCIPAL: usize = 64;

/// All of them.
#[derive(Default)]
pub(super) struct Parking {
    waiting: Mutex<Table>,
    /// A drain waits for them.
    calls: Arc<Calls>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<CallNumber, Entry>,
    of_principals: Tally<PrincipalDigest>,
}

struct Entry {
    principal: PrincipalDigest,
    to: mpsc::Sender<Client>,
}

/// The place of a call that waits. It is given back when this is dropped.
pub(super) struct Place {
    parking: Arc<Parking>,
    number: CallNumber,
    principal: PrincipalDigest,
    to: mpsc::Sender<Client>,
    _under_way: CallGuard,
}

impl Parking {
    /// Has a call wait under this number.
    pub(super) fn park(
        self: &Arc<Self>,
        number: CallNumber,
        principal: PrincipalDigest,
        to: mpsc::Sender<Client>,
    ) -> Result<Place, Failure> {
        let mut table = self.waiting.lock();
        if table.of_principals.of(&principal) >= MAX_OF_PRINCIPAL || table.calls.len() >= MAX_WAITING {
            return Err(Failure::Busy);
        }
        table.of_principals.more(principal, 1);
        table.calls.insert(number, Entry { principal, to: to.clone() });
        let under_way = self.calls.begin();
        Ok(Place { parking: self.clone(), number, principal, to, _under_way: under_way })
    }

    /// Takes the way to the call that waits under this number. Nobody finds it there again.
    pub(super) fn take(
        &self,
        number: CallNumber,
        principal: PrincipalDigest,
    ) -> Option<mpsc::Sender<Client>> {
        let mut table = self.waiting.lock();
        // The seal says whose it is; this says it once more.
        table.calls.get(&number).filter(|entry| entry.principal == principal)?;
        table.calls.remove(&number).map(|entry| entry.to)
    }

    /// The calls that wait.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }
}

impl Place {
    /// The client's answers could not be used: it may bring others.
    pub(super) fn wait_again(&self) {
        let entry = Entry { principal: self.principal, to: self.to.clone() };
        self.parking.waiting.lock().calls.insert(self.number, entry);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.parking.waiting.lock();
        table.calls.remove(&self.number);
        table.of_principals.less(&self.principal, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_found_once_by_its_own_principal_while_it_waits() {
        let parking = Arc::<Parking>::default();
        let (ann, bob) = (PrincipalDigest::of("ann"), PrincipalDigest::of("bob"));
        let (to, _from) = mpsc::channel(1);
        let number = CallNumber([1; 16]);
        let place = parking.park(number, ann, to.clone()).unwrap();
        assert_eq!(parking.calls().count(), 1);
        assert!(parking.take(number, bob).is_none());
        assert!(parking.take(number, ann).is_some());
        assert!(parking.take(number, ann).is_none(), "it was answered");
        place.wait_again();
        assert!(parking.take(number, ann).is_some());
        place.wait_again();
        drop(place);
        assert!(parking.take(number, ann).is_none(), "it is over");
        assert_eq!((parking.calls().count(), parking.waiting.lock().of_principals.len()), (0, 0));
    }

    #[test]
    fn what_waits_is_bounded_for_each_and_for_all() {
        let parking = Arc::<Parking>::default();
        let (to, _from) = mpsc::channel(1);
        let mut places = Vec::new();
        let mut bits = 0_u128;
        let mut park = |principal: &str| {
            bits += 1;
            parking.park(CallNumber(bits.to_be_bytes()), PrincipalDigest::of(principal), to.clone())
        };
        for principal in 0..MAX_WAITING / MAX_OF_PRINCIPAL {
            let principal = principal.to_string();
            places.extend((0..MAX_OF_PRINCIPAL).map(|_| park(&principal).unwrap()));
            assert!(matches!(park(&principal), Err(Failure::Busy)));
        }
        assert!(matches!(park("another"), Err(Failure::Busy)));
        places.pop();
        assert!(park("another").is_ok());
    }
}
