//! What keeps one user from taking the director's memory and processors from all others.
//!
//! Documents take far more memory than their text while they are read and compared, and all of a processor. So few are worked
//! on at once ([`Limits::heavily`]), beside the threads that serve requests, and each user sends a few at a time
//! ([`Limits::place_of`]): a user who sends more waits for their own requests. Lists are made some at a time, and each user has a few of them
//! until they were sent ([`Turns`]); what tasks say, and what others than the database are asked for, waits for none of them. Admins of one team count as one user for lists, for templates and in VMs
//! ([`party`](crate::users::Users::party)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use windlass_connections::Guesses;

/// How many documents are worked on at once.
const DOCUMENTS: usize = 2;
/// How many requests with documents each user has under way.
const DOCUMENTS_OF_A_USER: usize = 4;
/// How many lists are made at once. Each waits for the database most of the time, which has fewer connections.
const LISTS: usize = 8;
/// How many of those one user has, with those that were made and not taken yet: the rest is for others, whatever takes its time.
pub(crate) const LISTS_OF_A_USER: usize = 6;
/// How many answers are made at once for which a config server or a blobstore is asked, and how many of them are one user's: those may take
/// as long as they like.
const ASKING: usize = 8;
const ASKING_OF_A_USER: usize = 2;
/// How long what was found of the director's health counts.
const HEALTH: Duration = Duration::from_secs(1);
/// How long a disk counts as full after something did not fit on it. What is written to look may fit where nothing else does.
const FULL: Duration = Duration::from_secs(10);

/// How many unfinished tasks one user may have.
pub(crate) const TASKS_OF_A_USER: i64 = 500;

/// How many configs a team may have, and how many bytes all of them together: each deploy of the team reads them.
pub(crate) const CONFIGS_OF_A_TEAM: i64 = 100;
pub(crate) const CONFIG_BYTES_OF_A_TEAM: i64 = 4 << 20;
/// How many bytes of versions it may have in all, deleted ones included: nobody else could remove them.
pub(crate) const OLD_CONFIG_BYTES_OF_A_TEAM: i64 = 32 << 20;

/// How many links for those outside of deployments a deployment may have, and how many bytes all of them together, or one link more:
/// every user who may deploy may make such links of what others share.
pub(crate) const EXTERNAL_LINKS: i64 = 1000;
pub(crate) const EXTERNAL_BYTES: i64 = 32 << 20;

/// How many tasks render templates for their plans at once, and how many of one user. Templates may take minutes, so one
/// user does not take all places.
const RENDERINGS: usize = 3;
const RENDERINGS_OF_A_USER: usize = 2;

/// How many tasks of one user read at once what their plans are made from: documents, what there is, and what runs. Each may have more than a
/// hundred megabytes before it renders anything. Of plans without a task it is one.
const PREPARATIONS_OF_A_USER: usize = 2;

/// How many tasks of one user have a large plan, or a large deployment's records, in memory, and how many bytes there are large. A task
/// may take hours.
const LARGE_OF_A_USER: usize = 1;
pub(crate) const LARGE: u64 = 16 << 20;

/// What JSON takes in memory, roughly: its text, and so much more for each of its objects, and for each comma, which stands between members.
/// An object with one member has room for three.
pub(crate) const OF_AN_OBJECT: u64 = 400;
pub(crate) const OF_A_MEMBER: u64 = 120;

/// How many instances of one user have their files rendered for their VMs at once, and how many pieces of packed files, which are in memory
/// until the VM has them: 130 MiB. The files of an instance may have 64 MiB, and are there twice while they are packed.
const DELIVERIES_OF_A_USER: usize = 2;
const PIECE: usize = 64 << 10;
const PACKED_OF_A_USER: u32 = (130 << 20) / PIECE as u32;

/// How many releases are taken at once, and how many of those are one user's. A release of two kilobytes may have a hundred megabytes
/// in memory, and minutes of archives to read.
const UPLOADS: usize = 2;
const UPLOADS_OF_A_USER: usize = 1;

/// How many people are in VMs through agents at once, and how many times one user is: each takes two of the director's
/// connections.
const VISITS: usize = 128;
const VISITS_OF_A_USER: usize = 64;

/// The places that requests wait for.
#[derive(Debug)]
pub(crate) struct Limits {
    documents: Semaphore,
    renderings: Arc<Semaphore>,
    plans: Arc<Semaphore>,
    /// Lists, and whatever else the database is asked for.
    pub(crate) lists: Turns,
    /// What a task is and says: who follows a deploy asks every second.
    pub(crate) following: Turns,
    /// Answers for which others than the database are asked.
    pub(crate) asking: Turns,
    explaining: Semaphore,
    /// Held while the templates of a job are read to see what they need.
    reading_templates: Arc<Semaphore>,
    visits: Arc<Semaphore>,
    visiting_users: PlacesByUser,
    /// By user. Only those who showed the right password have an entry.
    users: PlacesByUser,
    /// By user as well: the places of their tasks that render, and of their plans without a task.
    rendering_users: PlacesByUser,
    /// Releases that are taken at once: each is in memory until it is on record.
    uploads: Arc<Semaphore>,
    uploading_users: PlacesByUser,
    planning_users: PlacesByUser,
    /// By user as well: those who read what tasks, or plans without a task, are made from.
    preparing_users: PlacesByUser,
    looking_users: PlacesByUser,
    /// Those whose plans met others'.
    planning_again_users: PlacesByUser,
    users_with_much: PlacesByUser,
    delivering_users: PlacesByUser,
    packing_users: PlacesByUser,
    /// Wrong credentials.
    pub(crate) guesses: Guesses,
    /// Held while a deployment is made for a team.
    new_deployment: AsyncMutex<()>,
    /// Held while addresses are reserved.
    addresses: AsyncMutex<()>,
    /// When it was last looked whether the director is well, and what was found: strangers may ask.
    health: AsyncMutex<Option<(Instant, DirectorHealth)>>,
    /// When a client was last told that the disk is full.
    full: Mutex<Option<Instant>>,
}

/// How the director is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectorHealth {
    Well,
    /// Its disk, or that of its database.
    Full,
    /// The database neither takes nor refuses what is written.
    Silent,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            documents: Semaphore::new(DOCUMENTS),
            renderings: Arc::new(Semaphore::new(RENDERINGS)),
            // Apart from those of tasks, so that plans do not delay deploys.
            plans: Arc::new(Semaphore::new(1)),
            lists: Turns::new(LISTS, LISTS_OF_A_USER),
            following: Turns::new(LISTS, LISTS_OF_A_USER),
            asking: Turns::new(ASKING, ASKING_OF_A_USER),
            explaining: Semaphore::new(1),
            reading_templates: Arc::new(Semaphore::new(1)),
            visits: Arc::new(Semaphore::new(VISITS)),
            visiting_users: PlacesByUser::new(VISITS_OF_A_USER),
            users: PlacesByUser::new(DOCUMENTS_OF_A_USER),
            rendering_users: PlacesByUser::new(RENDERINGS_OF_A_USER),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            uploading_users: PlacesByUser::new(UPLOADS_OF_A_USER),
            planning_users: PlacesByUser::new(1),
            preparing_users: PlacesByUser::new(PREPARATIONS_OF_A_USER),
            looking_users: PlacesByUser::new(1),
            planning_again_users: PlacesByUser::new(1),
            users_with_much: PlacesByUser::new(LARGE_OF_A_USER),
            delivering_users: PlacesByUser::new(DELIVERIES_OF_A_USER),
            packing_users: PlacesByUser::new(PACKED_OF_A_USER as usize),
            guesses: Guesses::default(),
            new_deployment: AsyncMutex::default(),
            addresses: AsyncMutex::default(),
            health: AsyncMutex::default(),
            full: Mutex::default(),
        }
    }
}

/// Works without holding up requests.
pub(crate) fn beside_requests<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Works without holding up requests, in a thread that ends with it: a thread keeps the memory that it once had for its next
/// work, and whichever of the runtime's threads had worked on a document would keep that of one.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = beside_requests(|| std::thread::scope(|threads| threads.spawn(work).join()));
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Places for one kind of work, so many for each user. Who has none, and waits for none, is forgotten.
#[derive(Debug)]
struct PlacesByUser {
    places: usize,
    users: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

impl PlacesByUser {
    fn new(places: usize) -> Self {
        Self { places, users: Mutex::default() }
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = users.get(user).and_then(Weak::upgrade) {
            return places;
        }
        users.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(self.places));
        users.insert(user.to_owned(), Arc::downgrade(&places));
        places
    }
}

/// Turns to make one kind of answers, with places for those of each user.
#[derive(Debug)]
pub(crate) struct Turns {
    turns: Semaphore,
    users: PlacesByUser,
}

impl Turns {
    fn new(turns: usize, of_a_user: usize) -> Self {
        Self { turns: Semaphore::new(turns), users: PlacesByUser::new(of_a_user) }
    }

    /// One of a user's places, to be kept until a large answer was sent.
    pub(crate) async fn place_of(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.users.of(user).acquire_owned().await.ok()
    }

    /// A turn, to be kept while the answer is made, by a user who has a place.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }
}

/// A user's places for files of jobs on their way to VMs.
#[derive(Debug, Clone)]
pub(crate) struct Deliveries {
    rendering: Arc<Semaphore>,
    packed: Arc<Semaphore>,
}

impl Deliveries {
    /// A place to render the files of an instance.
    pub(crate) async fn rendering(&self) -> Option<OwnedSemaphorePermit> {
        self.rendering.clone().acquire_owned().await.ok()
    }

    /// Room for files of so many bytes to be packed, and kept until the VM has them.
    pub(crate) async fn packing(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let pieces = u32::try_from(bytes.saturating_mul(2) / PIECE + 1).unwrap_or(u32::MAX);
        self.packed.clone().acquire_many_owned(pieces.min(PACKED_OF_A_USER)).await.ok()
    }
}

/// A place of somebody who is in a VM.
#[derive(Debug)]
pub(crate) struct Visit {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

/// A turn to take a release.
#[derive(Debug)]
pub(crate) struct UploadTurn {
    _of_user: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

/// A turn to render templates.
#[derive(Debug)]
pub(crate) struct RenderingTurn {
    _of_user: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl RenderingTurn {
    pub(crate) fn work<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        in_a_thread(work)
    }
}

impl Limits {
    /// Works on a document when it has its turn, without holding up requests. Templates are not rendered here: they may take
    /// minutes, and everybody's documents would wait.
    pub(crate) async fn heavily<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        // The semaphores are never closed, so there always is a permit.
        let _turn = self.documents.acquire().await;
        in_a_thread(work)
    }

    /// A turn to take a release, which is kept until it is on record.
    pub(crate) async fn upload(&self, user: &str) -> UploadTurn {
        let of_user = self.uploading_users.of(user).acquire_owned().await.ok();
        UploadTurn { _of_user: of_user, _of_all: self.uploads.clone().acquire_owned().await.ok() }
    }

    /// One of a user's places to read what a task's plan is made from.
    pub(crate) async fn preparing(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.preparing_users.of(user).acquire_owned().await.ok()
    }

    /// A user's place to plan again what met another plan.
    pub(crate) async fn planning_again(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.planning_again_users.of(user).acquire_owned().await.ok()
    }

    /// A user's places for tasks with much in memory.
    pub(crate) fn large(&self, user: &str) -> Arc<Semaphore> {
        self.users_with_much.of(user)
    }

    /// A user's place to read what a plan without a task is made from.
    pub(crate) async fn preparing_without_task(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.looking_users.of(user).acquire_owned().await.ok()
    }

    /// A user's places to send files of jobs to VMs.
    pub(crate) fn deliveries(&self, user: &str) -> Deliveries {
        Deliveries { rendering: self.delivering_users.of(user), packed: self.packing_users.of(user) }
    }

    /// A turn to render the templates of a task's plan.
    pub(crate) async fn rendering(&self, user: &str) -> RenderingTurn {
        let of_user = self.rendering_users.of(user).acquire_owned().await.ok();
        RenderingTurn { _of_user: of_user, _of_all: self.renderings.clone().acquire_owned().await.ok() }
    }

    /// A turn to render the templates of a plan without a task, which may take a minute of it. It is kept for as long as the plan is
    /// in memory, where each may take a hundred megabytes.
    pub(crate) async fn rendering_without_task(&self, user: &str) -> RenderingTurn {
        let of_user = self.planning_users.of(user).acquire_owned().await.ok();
        RenderingTurn { _of_user: of_user, _of_all: self.plans.clone().acquire_owned().await.ok() }
    }

    /// Notes that a client was told that the disk is full.
    pub(crate) fn note_full(&self) {
        *self.full.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How the director is, as `look` finds, or as it was found less than a second ago.
    pub(crate) async fn health(&self, look: impl Future<Output = DirectorHealth>) -> DirectorHealth {
        let mut last = self.health.lock().await;
        match *last {
            Some((at, health)) if at.elapsed() < HEALTH => health,
            _ => {
                let full = *self.full.lock().unwrap_or_else(PoisonError::into_inner);
                let health = match look.await {
                    DirectorHealth::Well if full.is_some_and(|at| at.elapsed() < FULL) => DirectorHealth::Full,
                    health => health,
                };
                *last = Some((Instant::now(), health));
                health
            }
        }
    }

    /// The turn to make a deployment for a team, which has a limit of them.
    pub(crate) async fn new_deployment(&self) -> MutexGuard<'_, ()> {
        self.new_deployment.lock().await
    }

    /// The turn to reserve addresses. While it is held, no other plan reserves any.
    pub(crate) async fn addresses(&self) -> MutexGuard<'_, ()> {
        self.addresses.lock().await
    }

    /// The turn to look through plans, which are large.
    pub(crate) async fn explaining(&self) -> Option<SemaphorePermit<'_>> {
        self.explaining.acquire().await.ok()
    }

    /// The turn to read the templates of a job, which may take half a minute.
    pub(crate) async fn reading_templates(&self) -> Option<OwnedSemaphorePermit> {
        self.reading_templates.clone().acquire_owned().await.ok()
    }

    /// A user's place in a VM, kept for as long as they are there; none if there is none, because nobody knows when one will be.
    pub(crate) fn visit(&self, user: &str) -> Option<Visit> {
        let of_user = self.visiting_users.of(user).try_acquire_owned().ok()?;
        Some(Visit { _of_user: of_user, _of_all: self.visits.clone().try_acquire_owned().ok()? })
    }

    /// One of a user's places for requests with documents, to be kept until the answer was sent.
    pub(crate) async fn place_of(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.users.of(user).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_sends_many_documents_waits_for_themselves_alone() {
        let limits = Limits::default();
        let mut held = Vec::new();
        for _ in 0..DOCUMENTS_OF_A_USER {
            held.push(limits.place_of("eve").await.unwrap());
        }
        let patience = Duration::from_millis(20);
        assert!(tokio::time::timeout(patience, limits.place_of("eve")).await.is_err());
        assert!(tokio::time::timeout(patience, limits.place_of("ann")).await.is_ok());
        held.pop();
        assert!(tokio::time::timeout(patience, limits.place_of("eve")).await.is_ok());
    }

    #[test]
    fn who_is_in_many_vms_leaves_places_to_others() {
        let limits = Limits::default();
        let mut held: Vec<_> = std::iter::from_fn(|| limits.visit("eve")).collect();
        assert_eq!(held.len(), VISITS_OF_A_USER);
        assert!(limits.visit("ann").is_some());
        held.pop();
        assert!(limits.visit("eve").is_some());
    }

    /// A deploy that takes minutes to render takes no place for documents, nor all places for rendering.
    #[tokio::test]
    async fn who_renders_for_long_leaves_documents_and_rendering_to_others() {
        let limits = Limits::default();
        let patience = Duration::from_millis(20);
        let mut held = Vec::new();
        for _ in 0..RENDERINGS_OF_A_USER {
            held.push(limits.rendering("eve").await);
        }
        assert!(tokio::time::timeout(patience, limits.rendering("eve")).await.is_err());
        assert!(tokio::time::timeout(patience, limits.heavily(|| ())).await.is_ok());
        assert!(tokio::time::timeout(patience, limits.rendering("ann")).await.is_ok());
        let plan = limits.rendering_without_task("eve").await;
        assert!(tokio::time::timeout(patience, limits.rendering_without_task("eve")).await.is_err());
        assert!(tokio::time::timeout(patience, limits.rendering("ann")).await.is_ok());
        drop((held, plan));
        assert!(tokio::time::timeout(patience, limits.rendering("eve")).await.is_ok());
    }

    /// Thirty-two instances at once in each of six tasks took gigabytes on their way to VMs.
    #[tokio::test]
    async fn files_of_few_instances_of_a_user_are_on_their_way_at_once() {
        let limits = Limits::default();
        let patience = Duration::from_millis(50);
        let eve = limits.deliveries("eve");
        let held = [eve.rendering().await, eve.rendering().await];
        assert!(tokio::time::timeout(patience, limits.deliveries("eve").rendering()).await.is_err());
        assert!(tokio::time::timeout(patience, limits.deliveries("ann").rendering()).await.is_ok());
        drop(held);
        let many_small = futures_util::future::join_all((0..100).map(|_| eve.packing(10_000))).await;
        drop(many_small);
        let large = eve.packing(64 << 20).await;
        assert!(tokio::time::timeout(patience, eve.packing(2 << 20)).await.is_err());
        drop(large);
        // What is larger than all of it waits for all of it.
        assert!(tokio::time::timeout(patience, eve.packing(1 << 30)).await.is_ok());
    }

    /// A user who uploads many releases at once waits for their own, and has no more than one of them in memory.
    #[tokio::test]
    async fn one_user_uploads_one_release_at_a_time_and_others_theirs_beside_it() {
        let limits = Limits::default();
        let patience = Duration::from_millis(50);
        let first = limits.upload("eve").await;
        assert!(tokio::time::timeout(patience, limits.upload("eve")).await.is_err());
        let other = tokio::time::timeout(patience, limits.upload("ann")).await.unwrap();
        assert!(tokio::time::timeout(patience, limits.upload("bob")).await.is_err());
        drop((first, other));
        assert!(tokio::time::timeout(patience, limits.upload("eve")).await.is_ok());
    }
}
