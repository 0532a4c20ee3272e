//! How much is answered at once. Settings have a few kilobytes, but a team may give its VMs as much as a megabyte, and a VM may ask
//! on thousands of connections and take no answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An answer of so many bytes needs no place: there may be one for each connection.
pub(super) const SMALL: usize = 16 << 10;
/// How many larger ones are under way.
const LARGE: usize = 16;
/// How many times one VM is answered at once.
const OF_AN_INSTANCE: usize = 2;

/// The places that requests wait for.
#[derive(Debug)]
pub(super) struct Turns {
    large: Arc<Semaphore>,
    /// Of instances that ask, and of no others.
    instances: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { large: Arc::new(Semaphore::new(LARGE)), instances: Arc::default() }
    }
}

/// A place of an instance, which others of the same wait for.
#[derive(Debug)]
pub(super) struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    instance: String,
    instances: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
    _large: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Waits until the instance has fewer questions under way.
    pub(super) async fn of(&self, instance: &str) -> Turn {
        let places = {
            let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(OF_AN_INSTANCE));
            instances.entry(instance.to_owned()).or_insert_with(new).clone()
        };
        // The semaphores are never closed, so there always is a permit.
        let permit = places.acquire_owned().await.ok();
        Turn { permit, instance: instance.to_owned(), instances: self.instances.clone(), _large: None }
    }

    /// The same with a place for a large answer.
    pub(super) async fn for_large(&self, turn: Option<Turn>) -> Option<Turn> {
        let mut turn = turn?;
        turn._large = self.large.clone().acquire_owned().await.ok();
        Some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut instances = self.instances.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody else has it or waits for it.
        if instances.get(&self.instance).is_some_and(|places| Arc::strong_count(places) == 1) {
            instances.remove(&self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_vm_waits_for_its_own_questions_and_is_forgotten_after_them() {
        let turns = Turns::default();
        let mut held = Vec::new();
        for _ in 0..OF_AN_INSTANCE {
            held.push(turns.of("vm-1").await);
        }
        assert!(tokio::time::timeout(SOON, turns.of("vm-1")).await.is_err());
        assert!(tokio::time::timeout(SOON, turns.of("vm-2")).await.is_ok());
        held.pop();
        let again = tokio::time::timeout(SOON, turns.of("vm-1")).await.unwrap();
        drop((held, again));
        assert!(turns.instances.lock().unwrap().is_empty());
    }
}
