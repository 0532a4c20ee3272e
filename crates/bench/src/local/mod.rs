//! `windlass bench local`: what VMs, disks and snapshots of the embedded cloud cost, beside a bare container with the same root
//! file system that `runc` or `crun` starts in the same breath.

mod bare;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use windlass_cloud_local::Isolation;

use crate::Progress;
use crate::arguments::BenchLocalArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, milliseconds, percentile};
use crate::scratch_cloud::{ScratchCloud, ScratchVm, first_pong, text};
use crate::stop::Stop;
use bare::Bare;

/// Rounds before the first that counts: files come into the page cache.
const WARM_UP: usize = 2;
/// The disk that snapshots are taken of, and the data in it, in MiB.
const DISK_MIB: u64 = 1024;
const DATA_MIB: u64 = 100;
/// How many VMs are compared at the beginning and at the end of a row of them.
const ENDS: usize = 10;

pub(crate) async fn measure(progress: Progress<'_>, arguments: &BenchLocalArgs) -> Result<Report, BenchError> {
    let inside = windlass_cloud_local::own_machine::is_inside();
    let isolation = if inside { Isolation::Container } else { Isolation::Process };
    let mut stop = Stop::listen()?;
    let cloud = ScratchCloud::new(isolation).await.map_err(failed)?;
    let measured = stop.or(all_figures(progress, &cloud, arguments)).await;
    let cleared = cloud.clear().await;
    let figures = measured.map_err(failed)?;
    cleared.map_err(failed)?;
    let tables = vec![figures.costs(isolation, arguments), figures.growth(arguments)];
    Ok(Report { tables, figures: figures.quoted(isolation, arguments) })
}

fn failed(source: io::Error) -> BenchError {
    BenchError::Failed { doing: "measure the embedded cloud", source }
}

/// What was measured, by name, in the order of the first measurements.
#[derive(Default)]
struct LocalFigures {
    times: Vec<(String, Vec<Duration>)>,
    bare: Vec<&'static str>,
    /// Of each row of VMs: from `create_vm` to the first pong.
    rows: Vec<Vec<Duration>>,
    at_once: Duration,
}

impl LocalFigures {
    fn note(&mut self, what: &str, time: Duration) {
        match self.times.iter_mut().find(|(name, _)| name == what) {
            Some((_, times)) => times.push(time),
            None => self.times.push((what.to_owned(), vec![time])),
        }
    }
}

async fn all_figures(
    progress: Progress<'_>,
    cloud: &ScratchCloud,
    arguments: &BenchLocalArgs,
) -> io::Result<LocalFigures> {
    let mut figures = LocalFigures::default();
    let (mut bare, refused) = match cloud.isolation() {
        Isolation::Container => Bare::of_this_machine(cloud.folder(), &cloud.root())?,
        Isolation::Process => Default::default(),
    };
    for error in refused {
        progress(&format!("Left out: {error}"));
    }
    figures.bare = bare.iter().map(|bare| bare.runtime).collect();
    for round in 0..WARM_UP + arguments.runs {
        let mut warm_up = LocalFigures::default();
        let figures = if round < WARM_UP { &mut warm_up } else { &mut figures };
        for bare in &mut bare {
            let time = bare.start()?;
            figures.note(&bare_start(bare.runtime), time);
        }
        life(cloud, figures).await?;
    }
    snapshots(cloud, &mut figures).await?;
    for _ in 0..arguments.rows {
        figures.rows.push(row(cloud, arguments.vms).await?);
    }
    figures.at_once = at_once(cloud, arguments).await?;
    Ok(figures)
}

fn bare_start(runtime: &str) -> String {
    format!("a bare container by {runtime}")
}

const CREATE_VM: &str = "create_vm";
const FIRST_PONG: &str = "create_vm to the first pong";

/// A VM with a disk, from its beginning to its end.
async fn life(cloud: &ScratchCloud, figures: &mut LocalFigures) -> io::Result<()> {
    let begun = Instant::now();
    let vm = cloud.vm().await?;
    figures.note(CREATE_VM, begun.elapsed());
    first_pong(&vm.agent).await?;
    figures.note(FIRST_PONG, begun.elapsed());
    let begun = Instant::now();
    let disk = text(&cloud.ok("create_disk", json!([DISK_MIB, {}, vm.cid])).await?)?;
    figures.note("create_disk of 1 GiB", begun.elapsed());
    for (method, arguments) in [
        ("attach_disk", json!([vm.cid, disk])),
        ("detach_disk", json!([vm.cid, disk])),
        ("delete_disk", json!([disk])),
        ("delete_vm", json!([vm.cid])),
    ] {
        let begun = Instant::now();
        cloud.ok(method, arguments).await?;
        figures.note(method, begun.elapsed());
    }
    Ok(())
}

async fn snapshots(cloud: &ScratchCloud, figures: &mut LocalFigures) -> io::Result<()> {
    let vm = cloud.vm().await?;
    first_pong(&vm.agent).await?;
    let disk = text(&cloud.ok("create_disk", json!([DISK_MIB, {}, vm.cid])).await?)?;
    cloud.ok("attach_disk", json!([vm.cid, disk])).await?;
    write_data(&cloud.data_folder(&vm.cid, &disk))?;
    for _ in 0..3 {
        let begun = Instant::now();
        let snapshot = cloud.ok("snapshot_disk", json!([disk, {}])).await?;
        figures.note("snapshot_disk of 1 GiB with 100 MiB of data", begun.elapsed());
        cloud.ok("delete_snapshot", json!([snapshot])).await?;
    }
    cloud.ok("delete_vm", json!([vm.cid])).await?;
    cloud.ok("delete_disk", json!([disk])).await.map(drop)
}

/// Data without holes, on the disk and not only in memory.
fn write_data(folder: &Path) -> io::Result<()> {
    let mut file = fs::File::create(folder.join("data"))?;
    let mut block = vec![0x57; 1 << 20];
    for number in 0..DATA_MIB {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block)?;
    }
    file.sync_all()
}

/// VMs one after the other, which all stay until the last is there: the time of each.
async fn row(cloud: &ScratchCloud, vms: usize) -> io::Result<Vec<Duration>> {
    let mut times = Vec::new();
    let mut made = Vec::new();
    for _ in 0..vms {
        let begun = Instant::now();
        let vm = cloud.vm().await?;
        first_pong(&vm.agent).await?;
        times.push(begun.elapsed());
        made.push(vm);
    }
    delete_all(cloud, &made, 1).await?;
    Ok(times)
}

/// The time until many VMs that are made at once all answer.
async fn at_once(cloud: &ScratchCloud, arguments: &BenchLocalArgs) -> io::Result<Duration> {
    let begun = Instant::now();
    let one = async || {
        let vm = cloud.vm().await?;
        first_pong(&vm.agent).await?;
        Ok::<_, io::Error>(vm)
    };
    let made: Vec<ScratchVm> =
        stream::iter(0..arguments.at_once).map(|_| one()).buffer_unordered(arguments.width).try_collect().await?;
    let time = begun.elapsed();
    delete_all(cloud, &made, arguments.width).await?;
    Ok(time)
}

async fn delete_all(cloud: &ScratchCloud, vms: &[ScratchVm], parallel: usize) -> io::Result<()> {
    let delete = async |vm: &ScratchVm| cloud.ok("delete_vm", json!([vm.cid])).await.map(drop);
    stream::iter(vms).map(delete).buffer_unordered(parallel).try_collect().await
}

/// The medians of the first and of the last VMs of a row.
fn ends(times: &[Duration]) -> (Duration, Duration) {
    let ends = ENDS.min(times.len());
    (percentile(&times[..ends], 50), percentile(&times[times.len() - ends..], 50))
}

impl LocalFigures {
    fn median(&self, what: &str) -> Option<f64> {
        let (_, times) = self.times.iter().find(|(name, _)| name == what)?;
        Some(percentile(times, 50).as_secs_f64())
    }

    fn quoted(&self, isolation: Isolation, arguments: &BenchLocalArgs) -> Vec<Figure> {
        let bare = self.bare.first().and_then(|runtime| Some((*runtime, self.median(&bare_start(runtime))?)));
        let mut quoted = Vec::new();
        for what in [CREATE_VM, FIRST_PONG] {
            let Some(median) = self.median(what) else { continue };
            let value = format!("{:.1} ms", median * 1000.0);
            let figure = Figure::new(format!("a VM isolated as {isolation}: {what}"), value);
            quoted.push(match bare {
                Some((runtime, bare)) => figure.against(format!("{:.2} times a bare one by {runtime}", median / bare)),
                None => figure,
            });
        }
        for times in &self.rows {
            let (first, last) = ends(times);
            let ratio = last.as_secs_f64() / first.as_secs_f64();
            let what = format!("the last {ENDS} of {} VMs", times.len());
            let against = format!("{ratio:.2} times the first {ENDS}");
            quoted.push(Figure::new(what, milliseconds(last)).against(against));
        }
        let what = format!("{} VMs, {} at once, until all answer", arguments.at_once, arguments.width);
        quoted.push(Figure::new(what, format!("{:.1} s", self.at_once.as_secs_f64())));
        quoted
    }

    fn costs(&self, isolation: Isolation, arguments: &BenchLocalArgs) -> Table {
        let mut header = vec!["What", "Median", "95th Percentile"];
        header.extend(self.bare.iter().map(|runtime| if *runtime == "runc" { "Times runc" } else { "Times crun" }));
        let rows = self.times.iter().map(|(what, times)| {
            let mut row = vec![what.clone(), milliseconds(percentile(times, 50)), milliseconds(percentile(times, 95))];
            row.extend(self.bare.iter().map(|runtime| {
                let bare = self.median(&bare_start(runtime)).unwrap_or(f64::NAN);
                format!("{:.2}", percentile(times, 50).as_secs_f64() / bare)
            }));
            row
        });
        let mut notes = Vec::new();
        match (isolation, self.bare.is_empty()) {
            (Isolation::Process, _) => {
                notes.push("As root, VMs are containers, and bare ones are measured beside them.")
            }
            (Isolation::Container, true) => {
                notes.push("With runc or crun installed, bare containers are measured, too.")
            }
            (Isolation::Container, false) => {
                notes.push("The aim: create_vm takes at most 3 times as long as a bare container.")
            }
        }
        notes.extend(DEBUG_BUILD);
        Table {
            title: Some(format!("{} rounds, VMs isolated as {isolation}", arguments.runs)),
            header,
            rows: rows.collect(),
            notes,
            ..Table::default()
        }
    }

    fn growth(&self, arguments: &BenchLocalArgs) -> Table {
        let mut rows = Vec::new();
        for times in &self.rows {
            let (first, last) = ends(times);
            rows.push(vec![
                format!("{} VMs, one after the other", times.len()),
                milliseconds(first),
                milliseconds(last),
                format!("{:.2}", last.as_secs_f64() / first.as_secs_f64()),
            ]);
        }
        let each = self.at_once / u32::try_from(arguments.at_once.max(1)).unwrap_or(u32::MAX);
        rows.push(vec![
            format!("{} VMs, {} at once", arguments.at_once, arguments.width),
            format!("{} each", milliseconds(each)),
            format!("{} in all", milliseconds(self.at_once)),
            String::new(),
        ]);
        Table {
            title: Some("From create_vm to the first pong, as the cloud fills".to_owned()),
            header: vec!["VMs", "Median of the First 10", "Median of the Last 10", "Last : First"],
            rows,
            notes: vec!["The aim: the last of 100 take at most 1.2 times as long as the first."],
            ..Table::default()
        }
    }
}
