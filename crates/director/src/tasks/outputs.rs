//! How much the outputs of tasks take of the disk. VMs choose what an errand prints and what they say of themselves, and users how often
//! they ask; what was asked for long ago goes first.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use windlass_durable::file;

use super::OutputKind;
use super::update_release::blocking;
use crate::Director;
use crate::store::StoreError;

/// How many bytes of long outputs one user may have here; of more, those of the oldest tasks go.
const OF_A_USER: u64 = 4 << 30;
/// The same of plans, which are in the database: a manifest of a megabyte may become a plan of sixty, at each deploy.
const PLANS_OF_A_USER: i64 = 1 << 30;
/// What is not worth counting, also if a hundred thousand tasks are kept: twenty of each type of each deployment.
const SHORT: u64 = 4 << 10;
/// What the folder of a task takes of the disk, roughly, however little is in it.
const FOLDER: u64 = 16 << 10;
/// How much tasks write until it is looked what can go, unless an hour is over before.
const LOOK: u64 = 64 << 20;

/// What tasks have written since it was last looked what can go.
#[derive(Debug, Default)]
pub(super) struct Unseen(u64);

impl Unseen {
    /// A task ended that wrote so much. Says whether it is time to look.
    pub(super) fn add(&mut self, written: u64) -> bool {
        self.0 += FOLDER + written;
        let is_time = self.0 >= LOOK;
        if is_time {
            self.0 = 0;
        }
        is_time
    }
}

/// Removes long outputs of users who have too many of them.
pub(crate) async fn thin_out(director: &Director) -> Result<(), StoreError> {
    director.store.forget_plans(PLANS_OF_A_USER).await?;
    remove_beyond(director, OF_A_USER).await
}

async fn remove_beyond(director: &Director, most: u64) -> Result<(), StoreError> {
    let (tasks, ended) = (director.folders.tasks(), director.store.ended_tasks().await?);
    let removing = blocking(move || {
        let mut taken: BTreeMap<String, u64> = BTreeMap::new();
        for (task, user) in ended {
            for kind in OutputKind::ALL {
                let path = kind.path(&tasks, task);
                let length = path.metadata().map_or(0, |found| found.len());
                if length <= SHORT {
                    continue;
                }
                let taken = taken.entry(user.clone()).or_default();
                *taken += length;
                if *taken > most {
                    report(&path, file::remove_file(&path));
                }
            }
        }
        Ok(())
    });
    // It is done again.
    let _ = removing.await;
    Ok(())
}

fn report(path: &Path, removed: io::Result<()>) {
    match removed {
        Ok(()) => {
            tracing::info!(path = %path.display(), "an old output of a task made room for newer ones of its user")
        }
        Err(error) => tracing::warn!(path = %path.display(), %error, "an old output of a task cannot be removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{NewTask, TaskState};
    use crate::tasks::{Job, TaskLog};
    use crate::testing::TestDirector;

    /// An errand prints a megabyte on each of many VMs, and two thousand runs of it were kept.
    #[tokio::test]
    async fn the_oldest_long_outputs_of_a_user_make_room_and_those_of_others_stay() {
        let test = TestDirector::new().await;
        let director = &test.director;
        let run = async |user: &str, length: u64| {
            let job = Job::DeleteOrphanedVms;
            let task = NewTask { job, user: user.to_owned(), context_id: String::new() };
            let task = director.store.add_task(&task).await.unwrap();
            let log = TaskLog::open(director, task).unwrap();
            log.write(OutputKind::Result, &"x".repeat(usize::try_from(length).unwrap()));
            assert_eq!(log.written(), length);
            director.store.finish_task(task, TaskState::Done, "").await.unwrap();
            task
        };
        let tasks = [
            run("ann", SHORT + 1).await,
            run("eve", SHORT).await,
            run("eve", SHORT + 1).await,
            run("eve", SHORT + 1).await,
            run("eve", SHORT + 1).await,
        ];
        remove_beyond(director, 2 * SHORT + 2).await.unwrap();
        let is_there = tasks.map(|task| OutputKind::Result.path(&director.folders.tasks(), task).exists());
        assert_eq!(is_there, [true, true, false, true, true]);
        let mut unseen = Unseen::default();
        assert_eq!((unseen.add(0), unseen.add(LOOK), unseen.add(0)), (false, true, false));
    }

    /// A dry run of 300 KB left 43 MB in the database, and two thousand were kept.
    #[tokio::test]
    async fn the_oldest_plans_of_a_user_make_room_and_those_of_others_and_of_each_deployment_stay() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store.add_deployment(&"there".into(), &[]).await.unwrap();
        let plan_of = async |user: &str, deployment: &str| {
            let task = NewTask { job: Job::DeleteOrphanedVms, user: user.to_owned(), context_id: String::new() };
            let task = store.add_task(&task).await.unwrap();
            store
                .tamper(
                    format!("INSERT INTO plans (task, deployment, plan) VALUES ({task}, '{deployment}', '12345678')")
                        .leak(),
                )
                .await;
            store.finish_task(task, TaskState::Done, "").await.unwrap();
            task
        };
        let tasks = [
            plan_of("ann", "gone").await,
            plan_of("eve", "there").await,
            plan_of("eve", "gone").await,
            plan_of("eve", "gone").await,
            plan_of("eve", "gone").await,
        ];
        store.forget_plans(16).await.unwrap();
        let mut is_there = Vec::new();
        for task in tasks {
            is_there.push(store.plan_of_task(task).await.unwrap().is_some());
        }
        assert_eq!(is_there, [true, true, false, true, true]);
    }
}
