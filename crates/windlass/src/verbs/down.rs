//! `windlass down`: stops the director of this machine. With `--all` nothing of it is left: VMs, disks, processes, bridges,
//! mounts, folders.

use std::io;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use windlass_cloud_local::LocalCloud;
use windlass_director::settings::{CpiChoice, Settings};
use windlass_director_client::answers::{Config, Deployment, Task};
use windlass_director_client::escape;
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::background_director::BackgroundDirector;
use crate::cli::{DownArgs, Global, UpArgs};
use crate::failure::{Failure, chain};
use crate::screen::Screen;
use crate::session::{Session, While};
use crate::task_view;
use crate::verbs::up;

/// What a director, its clouds and its operator put into a state directory. What else is there is somebody else's.
const OURS: [&str; 24] = [
    "blobs",
    "ca.pem",
    "cache",
    "cloud",
    "cpi",
    "cpis",
    "director.db",
    "director.db-shm",
    "director.db-wal",
    "director.db.lock",
    "director.log",
    "director.log.1",
    "director.pid",
    "director.uuid",
    "director.yml",
    "env.sh",
    "incus",
    "lock",
    "pki",
    "releases",
    "sim",
    "tasks",
    "tmp",
    "variables.key",
];

/// How long another director may hold the state directory after it was stopped.
const LET_GO: Duration = Duration::from_secs(10);

pub(super) async fn run(screen: &mut Screen, flags: &Global, arguments: &DownArgs) -> Result<(), Failure> {
    let state_dir = up::state_dir(flags)?;
    if !is_a_directors(&state_dir) {
        return Err(Failure::NoDirectorHere { state_dir });
    }
    if arguments.all {
        return remove_all(screen, flags, &state_dir).await;
    }
    match BackgroundDirector::found(&state_dir) {
        None => screen.told("No director runs here."),
        Some(mut director) => {
            let pid = director.pid();
            screen.told(&format!("Stopping the director (process {pid}): tasks that run are finished first."));
            director.stop().await.map_err(|error| Failure::Process("the director does not stop", error))?;
        }
    }
    let vms = vms(&state_dir);
    if vms > 0 {
        let (count, verb, what) =
            if vms == 1 { ("1 VM".to_owned(), "keeps", "it") } else { (format!("{vms} VMs"), "keep", "them") };
        screen.told(&format!(
            "{count} {verb} running; 'windlass up' cares for {what} again, 'windlass down --all' removes {what}."
        ));
    }
    Ok(())
}

fn is_a_directors(state_dir: &Path) -> bool {
    ["lock", "director.db", "director.pid"].iter().any(|name| state_dir.join(name).exists())
}

/// How many VMs of the embedded cloud are there.
fn vms(state_dir: &Path) -> usize {
    let entries = std::fs::read_dir(state_dir.join("cloud/vms")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("vm-")).count()
}

async fn remove_all(screen: &mut Screen, flags: &Global, state_dir: &Path) -> Result<(), Failure> {
    let settings = Settings::load(None, state_dir).unwrap_or_default();
    screen.told(&format!(
        "This removes all deployments of the director in {} with their disks and data, its stemcells, releases and settings, and \
         the director itself.",
        state_dir.display()
    ));
    screen.confirm()?;
    let is_local = matches!(settings.cpi, CpiChoice::Local { .. });
    let quick = UpArgs { userland: None, listen: None, isolation: None };
    // Whatever the clouds are, the director knows how to delete what it made there.
    match up::start(state_dir, &quick).await {
        Ok(_) => delete_deployments(screen, flags, state_dir, is_local).await?,
        Err(why) if is_local => {
            screen.told(&format!(
                "The director does not start ({}); what is on this machine is removed without it.",
                chain(&why)
            ));
        }
        Err(why) => return Err(why),
    }
    if let Some(mut director) = BackgroundDirector::found(state_dir) {
        director.stop().await.map_err(|error| Failure::Process("the director does not stop", error))?;
    }
    let unusable = |source| Failure::StateDir { path: state_dir.to_owned(), source };
    // Nobody starts a director while its folders go.
    let lock = FileLock::acquire(&state_dir.join("lock"), LET_GO).map_err(unusable)?;
    let mut left = destroy_cloud(state_dir).await?;
    if left.is_empty() {
        left = remove_files(state_dir).map_err(unusable)?;
    }
    drop(lock);
    if !left.is_empty() {
        return Err(Failure::Left { state_dir: state_dir.to_owned(), left: left.join("\n") });
    }
    screen.told("Nothing is left.");
    if settings.db.is_some() || settings.shared_dir.is_some() {
        screen.told(
            "The database and the shared folder that director.yml named are not on this machine alone, and stay.",
        );
    }
    Ok(())
}

/// All deployments, and what they leave in the clouds. A deployment that cannot be deleted in order is deleted by force. After a
/// restore, the cloud may have VMs that the director does not know, and keep stemcells for them. The embedded cloud goes as a whole.
async fn delete_deployments(
    screen: &mut Screen,
    flags: &Global,
    state_dir: &Path,
    is_local: bool,
) -> Result<(), Failure> {
    let here = Global { state_dir: Some(state_dir.to_owned()), environment: None, deployment: None, ..flags.clone() };
    let mut session = Session::open_quietly(&here, screen)?;
    let others: Vec<Config> = session.director.get("/configs?type=cpi&latest=true").await.while_("listing CPIs")?;
    match delete_through_director(&mut session).await {
        Err(why) if is_local && others.is_empty() => {
            let why = chain(&why);
            session
                .screen
                .told(&format!("The director could not delete everything: {why}\nThe rest is removed without it."));
            Ok(())
        }
        ended => ended,
    }
}

async fn delete_through_director(session: &mut Session<'_>) -> Result<(), Failure> {
    cancel_tasks(session).await?;
    let path = "/deployments?exclude_configs=true&exclude_releases=true&exclude_stemcells=true";
    let all: Vec<Deployment> = session.director.get(path).await.while_("listing deployments")?;
    for deployment in all {
        let doing = format!("deleting deployment '{}'", deployment.name);
        session.screen.told(&format!("Deleting deployment '{}'", deployment.name));
        let path = format!("/deployments/{}?force=true", escape(&deployment.name));
        let task = session.director.begin(Method::DELETE, &path, None).await.while_(&doing)?;
        task_view::wait(session, task, &doing).await?;
    }
    let doing = "deleting disks, stemcells and releases";
    session.screen.told("Deleting disks, stemcells and releases");
    let all = serde_json::json!({"config": {"remove_all": true, "keep_orphaned_disks": false}});
    let task = session.director.begin_json(Method::POST, "/cleanup", &all).await.while_(doing)?;
    task_view::wait(session, task, doing).await
}

/// A task that runs holds the lock of its deployment, such as one that waits for an agent which never answers.
async fn cancel_tasks(session: &mut Session<'_>) -> Result<(), Failure> {
    let running = "/tasks?state=processing,cancelling,queued&verbose=2";
    let tasks: Vec<Task> = session.director.get(running).await.while_("listing tasks")?;
    for task in &tasks {
        session.screen.told(&format!("Cancelling task {} ({})", task.id, task.description));
        // One that ends meanwhile need not be cancelled.
        let _ = session.director.delete(&format!("/task/{}", task.id)).await;
    }
    for task in tasks {
        match task_view::wait(session, task.id, "waiting for its end").await {
            Ok(()) | Err(Failure::Task { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// What the director did not know, or could not delete. Gives what is left.
async fn destroy_cloud(state_dir: &Path) -> Result<Vec<String>, Failure> {
    let folder = state_dir.join("cloud");
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let config = state_dir.join("cpi/local.json");
    let cloud = if config.exists() { LocalCloud::configured(&config)? } else { LocalCloud::in_folder(&folder)? };
    Ok(cloud.destroy().await?)
}

/// Gives what is somebody else's and stays.
fn remove_files(state_dir: &Path) -> io::Result<Vec<String>> {
    for name in OURS {
        let path = state_dir.join(name);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => file::remove_tree(&path)?,
            Ok(_) => file::remove_file(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut others = Vec::new();
    for entry in std::fs::read_dir(state_dir)? {
        let entry = entry?;
        // Half of a file that somebody was killed over, or of a folder.
        match file::is_leftover(&entry.file_name()) {
            true => file::remove(&entry.path())?,
            false => others.push(entry.path().display().to_string()),
        }
    }
    others.sort();
    if others.is_empty() {
        std::fs::remove_dir(state_dir)?;
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_director_made_are_named_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        assert!(!is_a_directors(&state_dir));
        std::fs::create_dir_all(state_dir.join("tasks/1")).unwrap();
        for name in ["director.db", "lock", "thesis.tex", ".new-env.sh-1-0"] {
            std::fs::write(state_dir.join(name), "").unwrap();
        }
        assert!(is_a_directors(&state_dir));
        assert_eq!(remove_files(&state_dir).unwrap(), [state_dir.join("thesis.tex").display().to_string()]);
        std::fs::remove_file(state_dir.join("thesis.tex")).unwrap();
        assert_eq!(remove_files(&state_dir).unwrap(), Vec::<String>::new());
        assert!(!state_dir.exists());
    }
}
