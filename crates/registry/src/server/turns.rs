//! How much is answered at once. Settings have a few kilobytes, but a team may give its VMs as much as a megabyte, and a VM may ask
//! on thousands of connections and take no answer.
//!
//! Large answers have a few places, of which an instance has one. Who takes its answer at once meets nobody who does not: after
//! [`SOON`] an answer gives way to others, and its instance is one of the slow ones. Those have places of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use windlass_connections::Peer;

/// An answer of so many bytes needs no place: there may be one for each connection.
pub(super) const SMALL: usize = 16 << 10;
const MEDIUM: u64 = 64 << 10;
/// How many larger ones are under way: up to [`MEDIUM`] bytes, of any size, and to those who do not take them soon.
const MEDIUM_ONES: usize = 96;
const QUICK: usize = 12;
const SLOW: usize = 4;
/// How many times one VM is answered at once.
const OF_AN_INSTANCE: usize = 2;
/// After this, a large answer keeps nobody waiting who may be quicker.
const SOON: Duration = Duration::from_millis(300);
/// Who is slow takes at least so much in such a time, or is cut off.
const LEAST: u64 = 32 << 10;
const LOOK: Duration = Duration::from_secs(5);
/// How long an instance counts as slow, and how many are known.
const MEMORY: Duration = Duration::from_secs(600);
const KNOWN: usize = 4096;

/// The places that requests wait for.
#[derive(Debug, Default)]
pub(super) struct Turns {
    large: Arc<LargePlaces>,
    /// Of instances that ask, and of no others.
    instances: Arc<Mutex<BTreeMap<String, PlacesOfInstance>>>,
}

#[derive(Debug, Clone)]
struct PlacesOfInstance {
    questions: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

#[derive(Debug)]
struct LargePlaces {
    medium: Arc<Semaphore>,
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    /// Instances that did not take an answer soon, and when that was.
    slow_ones: Mutex<BTreeMap<String, Instant>>,
}

/// A place for a large answer.
#[derive(Debug)]
pub(super) struct LargePlace {
    instance: String,
    /// Others wait for a place among these.
    places: Arc<Semaphore>,
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    _of_instance: Option<OwnedSemaphorePermit>,
}

/// A place of an instance, which others of the same wait for.
#[derive(Debug)]
pub(super) struct Turn {
    permit: Option<OwnedSemaphorePermit>,
    instance: String,
    instances: Arc<Mutex<BTreeMap<String, PlacesOfInstance>>>,
    large: Option<Arc<LargePlace>>,
}

impl Default for PlacesOfInstance {
    fn default() -> Self {
        Self { questions: Arc::new(Semaphore::new(OF_AN_INSTANCE)), large: Arc::new(Semaphore::new(1)) }
    }
}

impl Default for LargePlaces {
    fn default() -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self { medium: places(MEDIUM_ONES), quick: places(QUICK), slow: places(SLOW), slow_ones: Mutex::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    fn of_instance(&self, instance: &str) -> PlacesOfInstance {
        locked(&self.instances).entry(instance.to_owned()).or_default().clone()
    }

    /// Waits until the instance has fewer questions under way.
    pub(super) async fn of(&self, instance: &str) -> Turn {
        // The semaphores are never closed, so there always is a permit.
        let permit = self.of_instance(instance).questions.acquire_owned().await.ok();
        Turn { permit, instance: instance.to_owned(), instances: self.instances.clone(), large: None }
    }

    /// The same with a place for a large answer of so many bytes.
    pub(super) async fn for_large(&self, turn: Option<Turn>, size: u64) -> Option<Turn> {
        let mut turn = turn?;
        let of_instance = self.of_instance(&turn.instance).large.acquire_owned().await.ok();
        let places = match self.large.is_slow(&turn.instance) {
            true => &self.large.slow,
            false if size <= MEDIUM => &self.large.medium,
            false => &self.large.quick,
        };
        let places = places.clone();
        let permit = Mutex::new(places.clone().acquire_owned().await.ok());
        let instance = turn.instance.clone();
        turn.large = Some(Arc::new(LargePlace { instance, places, permit, _of_instance: of_instance }));
        Some(turn)
    }

    /// From now on the client takes its answer, or its connection ends. `taken` counts the bytes.
    pub(super) fn watch(&self, place: Weak<LargePlace>, taken: Arc<AtomicU64>, peer: &Peer) {
        let (places, peer) = (self.large.clone(), peer.clone());
        tokio::spawn(async move {
            if !places.is_taken(&place, &taken).await {
                peer.cut_off();
            }
        });
    }
}

impl LargePlaces {
    fn is_slow(&self, instance: &str) -> bool {
        locked(&self.slow_ones).get(instance).is_some_and(|last| last.elapsed() < MEMORY)
    }

    fn note_slow(&self, instance: &str) {
        let mut slow_ones = locked(&self.slow_ones);
        if slow_ones.len() >= KNOWN {
            slow_ones.retain(|_, last| last.elapsed() < MEMORY);
        }
        if slow_ones.len() >= KNOWN {
            slow_ones.clear();
        }
        slow_ones.insert(instance.to_owned(), Instant::now());
    }

    /// Whether the answer in a place was taken, at once or slowly.
    async fn is_taken(&self, place: &Weak<LargePlace>, taken: &AtomicU64) -> bool {
        let is_slow = place.upgrade().is_some_and(|place| Arc::ptr_eq(&place.places, &self.slow));
        if is_slow {
            self.is_taken_soon(place).await || keeps_pace(place, taken, LOOK).await
        } else {
            self.gives_way(place, taken).await
        }
    }

    /// Who was slow, and is not any more, is no longer one of the slow ones.
    async fn is_taken_soon(&self, place: &Weak<LargePlace>) -> bool {
        let Some(instance) = place.upgrade().map(|place| place.instance.clone()) else { return true };
        tokio::time::sleep(SOON).await;
        let is_over = place.strong_count() == 0;
        if is_over {
            locked(&self.slow_ones).remove(&instance);
        }
        is_over
    }

    /// An answer that is not taken soon goes on in a place for slow ones. If there is none, it ends as soon as others may want its place.
    async fn gives_way(&self, place: &Weak<LargePlace>, taken: &AtomicU64) -> bool {
        loop {
            tokio::time::sleep(SOON).await;
            let Some(held) = place.upgrade() else { return true };
            self.note_slow(&held.instance);
            if let Ok(slow) = self.slow.clone().try_acquire_owned() {
                *locked(&held.permit) = Some(slow);
                drop(held);
                return keeps_pace(place, taken, LOOK).await;
            }
            if held.places.available_permits() == 0 {
                return false;
            }
        }
    }
}

/// Whether the client takes all of it, if slowly.
async fn keeps_pace(place: &Weak<LargePlace>, taken: &AtomicU64, look: Duration) -> bool {
    loop {
        let before = taken.load(Ordering::Relaxed);
        tokio::time::sleep(look).await;
        if place.strong_count() == 0 {
            return true;
        }
        if taken.load(Ordering::Relaxed) - before < LEAST {
            return false;
        }
    }
}

impl Turn {
    /// Its place for a large answer.
    pub(super) fn place(&self) -> Weak<LargePlace> {
        self.large.as_ref().map(Arc::downgrade).unwrap_or_default()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop((self.permit.take(), self.large.take()));
        let mut instances = locked(&self.instances);
        // Nobody else has it or waits for it.
        if instances.get(&self.instance).is_some_and(|places| Arc::strong_count(&places.questions) == 1) {
            instances.remove(&self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    async fn large(turns: &Turns, instance: &str) -> Option<Turn> {
        let turn = turns.of(instance).await;
        tokio::time::timeout(SHORT, turns.for_large(Some(turn), 2 * MEDIUM)).await.ok()?
    }

    fn place(turn: &Option<Turn>) -> Weak<LargePlace> {
        turn.as_ref().unwrap().place()
    }

    #[tokio::test]
    async fn a_vm_waits_for_its_own_questions_and_is_forgotten_after_them() {
        let turns = Turns::default();
        let mut held = Vec::new();
        for _ in 0..OF_AN_INSTANCE {
            held.push(turns.of("vm-1").await);
        }
        assert!(tokio::time::timeout(SHORT, turns.of("vm-1")).await.is_err());
        assert!(tokio::time::timeout(SHORT, turns.of("vm-2")).await.is_ok());
        held.pop();
        let again = tokio::time::timeout(SHORT, turns.of("vm-1")).await.unwrap();
        drop((held, again));
        assert!(turns.instances.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn who_is_slow_with_a_large_answer_makes_room_for_others_and_waits_for_slow_ones_next_time() {
        let (turns, taken) = (Turns::default(), AtomicU64::new(0));
        let first = large(&turns, "vm-1").await;
        assert!(large(&turns, "vm-1").await.is_none(), "it has one place");
        let mut others = Vec::new();
        for number in 1..QUICK {
            others.push(large(&turns, &format!("other-{number}")).await.unwrap());
        }
        assert!(large(&turns, "quick").await.is_none());
        let (began, slow_place) = (Instant::now(), place(&first));
        let (is_taken, quick) = tokio::join!(turns.large.is_taken(&slow_place, &taken), async {
            tokio::time::sleep(SOON).await;
            large(&turns, "quick").await
        });
        assert!(!is_taken && began.elapsed() >= SOON + LOOK);
        assert!(quick.is_some() && turns.large.is_slow("vm-1"));
        drop(first);
        let mut slow = Vec::new();
        for number in 0..SLOW {
            turns.large.note_slow(&format!("slow-{number}"));
            slow.push(large(&turns, &format!("slow-{number}")).await.unwrap());
        }
        assert!(large(&turns, "vm-1").await.is_none(), "the places for slow ones are taken");
        // All places are: who is slow now is cut off.
        assert!(!turns.large.is_taken(&place(&quick), &taken).await);
        drop(slow);
        let again = large(&turns, "vm-1").await;
        let weak = place(&again);
        let (is_taken, ()) = tokio::join!(turns.large.is_taken(&weak, &taken), async { drop(again) });
        assert!(is_taken && !turns.large.is_slow("vm-1"), "it took it at once");
    }

    #[tokio::test]
    async fn who_takes_a_large_answer_slowly_gets_all_of_it() {
        let (turns, taken) = (Turns::default(), AtomicU64::new(0));
        let turn = large(&turns, "vm-1").await;
        let weak = place(&turn);
        let (is_taken, ()) = tokio::join!(keeps_pace(&weak, &taken, 2 * SOON), async {
            for _ in 0..6 {
                taken.fetch_add(LEAST, Ordering::Relaxed);
                tokio::time::sleep(SOON).await;
            }
            drop(turn);
        });
        assert!(is_taken);
    }
}
