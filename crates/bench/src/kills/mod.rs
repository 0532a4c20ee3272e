//! `windlass bench kills`: the director, and the CPI of the embedded cloud, killed at each of their steps. What the director
//! goes through is in [`director`]. The CPI of the embedded cloud is killed in every method that changes
//! something.
//! After each kill the call is repeated, as a director does; then the cloud must hold exactly what it should, explain all of
//! it, and have the data of its disks. In the end nothing of it may be left on the machine.

mod director;
mod machine;
mod scene;

use std::cell::RefCell;
use std::io;

use futures_util::future::try_join_all;
use windlass_cloud_local::{Isolation, own_machine};
use windlass_durable::HAS_KILL_POINTS;
use windlass_durable::sweep::{self, Points};

use crate::Progress;
use crate::arguments::BenchKillsArgs;
use crate::error::BenchError;
use crate::figures::{Figure, Report, Table};
use crate::scratch_cloud::{ScratchCloud, request, result};
use crate::stop::Stop;
use director::{Counts, Operation};
use machine::Watch;
use scene::{Scene, changes};

pub(crate) async fn measure(progress: Progress<'_>, arguments: &BenchKillsArgs) -> Result<Report, BenchError> {
    if !HAS_KILL_POINTS {
        return Err(BenchError::NoKillPoints);
    }
    let known = |name: &str| name == DIRECTOR || changes().contains(&name);
    if let Some(unknown) = arguments.methods.iter().find(|method| !known(method)) {
        return Err(BenchError::NoSuchMethod {
            unknown: unknown.clone(),
            known: format!("{DIRECTOR}, {}", changes().join(", ")),
        });
    }
    if arguments.every > 1 {
        progress(&format!(
            "One in {} points; {}={} kills at the same again",
            arguments.every,
            sweep::SEED,
            sweep::seed()
        ));
    }
    let mut stop = Stop::listen()?;
    let mut report = Report::default();
    let (director, methods): (Vec<_>, Vec<_>) = arguments.methods.iter().partition(|name| *name == DIRECTOR);
    if arguments.methods.is_empty() || !director.is_empty() {
        let swept = stop.or(sweep_director(progress, arguments.every as u64)).await;
        let swept = swept.map_err(|source| BenchError::Failed { doing: "sweep the director", source })?;
        let kills: u64 = swept.iter().map(|(_, counts)| counts.kills).sum();
        report.figures.push(Figure::new("kills of the director that lose and leave nothing", kills.to_string()));
        report.tables.push(director_table(&swept));
    }
    if !director.is_empty() && methods.is_empty() {
        return Ok(report);
    }
    let mut rows = Vec::new();
    for isolation in [Isolation::Container, Isolation::Process] {
        if isolation == Isolation::Container && !own_machine::is_inside() {
            continue;
        }
        let cloud = ScratchCloud::new(isolation).await.map_err(failed)?;
        let mut watch = Watch::new(cloud.folder());
        let swept = stop.or(sweep_all(progress, &cloud, &mut watch, arguments)).await;
        let cleared = cloud.clear().await;
        rows.extend(swept.map_err(failed)?);
        cleared.map_err(failed)?;
        watch.nothing_is_left().map_err(failed)?;
    }
    let kills: u64 = rows.iter().map(|swept| swept.kills).sum();
    let what = "kills of the embedded cloud's CPI that lose and leave nothing";
    report.figures.push(Figure::new(what, kills.to_string()));
    report.tables.push(table(rows, own_machine::is_inside()));
    Ok(report)
}

/// What stands for all that a director does.
const DIRECTOR: &str = "director";

/// Each operation has a director of its own, and all are swept at once: most of the time they wait.
async fn sweep_director(progress: Progress<'_>, every: u64) -> io::Result<Vec<(&'static str, Counts)>> {
    let progress = RefCell::new(progress);
    let tell = |line: &str| (progress.borrow_mut())(line);
    let sweeps = Operation::ALL.map(|(operation, name)| async move {
        let mut scene = director::DirectorScene::new().await?;
        let kills = scene.kill_everywhere(operation, every).await?;
        let (before, after) = scene.fail_everywhere(operation, every).await?;
        let both = scene.kill_and_fail(operation, every).await?;
        tell(&format!(
            "{name}: killed {kills} times, the CPI failed {before} times before and {after} after, both {both} times"
        ));
        io::Result::Ok((name, Counts { kills, before, after, both }))
    });
    try_join_all(sweeps).await
}

fn director_table(swept: &[(&'static str, Counts)]) -> Table {
    let row = |(name, counts): &(&'static str, Counts)| {
        let numbers = [counts.kills, counts.before, counts.after, counts.both].map(|count| count.to_string());
        std::iter::once((*name).to_owned()).chain(numbers).collect()
    };
    Table {
        title: Some(format!("{} kills of the director", swept.iter().map(|(_, counts)| counts.kills).sum::<u64>())),
        header: vec!["Operation", "Kills", "CPI failed before", "CPI failed after", "Both"],
        rows: swept.iter().map(row).collect(),
        notes: vec![
            "After each the operator tried again; nothing was lost or left over, and the deployment converged.",
        ],
        ..Table::default()
    }
}

fn failed(source: io::Error) -> BenchError {
    BenchError::Failed { doing: "sweep the embedded cloud", source }
}

/// What one method went through.
struct Swept {
    isolation: Isolation,
    method: &'static str,
    kills: u64,
}

async fn sweep_all(
    progress: Progress<'_>,
    cloud: &ScratchCloud,
    watch: &mut Watch,
    arguments: &BenchKillsArgs,
) -> io::Result<Vec<Swept>> {
    let mut scene = Scene::new(cloud).await?;
    let mut all = Vec::new();
    for method in changes() {
        if !arguments.methods.is_empty() && !arguments.methods.iter().any(|wanted| wanted == method) {
            continue;
        }
        let swept = sweep(&mut scene, watch, method, arguments.every as u64).await?;
        progress(&format!("{} {method}: killed {} times", swept.isolation, swept.kills));
        all.push(swept);
    }
    Ok(all)
}

/// Kills the method at its points until a call ends unkilled.
async fn sweep(scene: &mut Scene<'_>, watch: &mut Watch, method: &'static str, every: u64) -> io::Result<Swept> {
    let cloud = scene.cloud();
    let standing = scene.listed()?;
    for (kills, point) in (0..).zip(Points::one_in(every, sweep::seed())) {
        let at = |error: io::Error| io::Error::other(format!("{method} killed at point {point}: {error}"));
        let request = request(method, scene.prepare(method).await.map_err(at)?);
        let unkilled = cloud.send(&request, Some(point)).await?;
        let was_killed = unkilled.is_none();
        let answer = match unkilled {
            Some(answer) => answer,
            None => cloud.send(&request, None).await?.ok_or_else(|| io::Error::other("killed unasked"))?,
        };
        let answer = result(method, &answer).map_err(at)?;
        watch.remember(&scene.listed()?);
        scene.check(method, &answer).await.map_err(at)?;
        scene.is_explained().map_err(at)?;
        let now = scene.listed()?;
        if now != standing {
            return Err(at(io::Error::other(format!("the cloud holds {now:?} instead of {standing:?}"))));
        }
        if !was_killed {
            return Ok(Swept { isolation: cloud.isolation(), method, kills });
        }
    }
    Err(io::Error::other("there is no end of points"))
}

fn table(rows: Vec<Swept>, has_containers: bool) -> Table {
    let total: u64 = rows.iter().map(|swept| swept.kills).sum();
    let mut notes = vec!["After each kill the call was repeated; nothing was lost, left over or unexplained."];
    if !has_containers {
        notes.push("As root, VMs that are containers are swept, too.");
    }
    Table {
        title: Some(format!("{total} kills")),
        header: vec!["Isolation", "Method", "Kills"],
        rows: rows
            .into_iter()
            .map(|swept| vec![swept.isolation.to_string(), swept.method.to_owned(), swept.kills.to_string()])
            .collect(),
        notes,
        ..Table::default()
    }
}
