//! `windlass bench deploy`: many instances with a disk each on the simulated cloud, the same deploy again, and the memory of the
//! director, against what a director could not do without: the calls that it really made, as long as the cloud takes for each,
//! as many at a time as allowed.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use windlass_cloud_sim::cloud::CALL_LOG;
use windlass_contract::cpi::methods;

use crate::cli::BenchDeployArgs;
use crate::failure::Failure;
use crate::figures::{DEBUG_BUILD, milliseconds};
use crate::foreground::Stop;
use crate::scratch_director::ScratchDirector;
use crate::screen::Screen;
use crate::table::Table;

/// Agents have addresses of their own in it.
const NETWORK: &str = "127.64.0.0/16";
const GATEWAY: &str = "127.64.0.1";
/// How long a director that has nothing to do is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(2);
/// What Linux counts processor time in.
const TICK: Duration = Duration::from_millis(10);

pub(crate) async fn run(screen: &mut Screen, arguments: &BenchDeployArgs) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    let mut all = Vec::new();
    for instances in &arguments.instances {
        let measured = tokio::select! {
            measured = measure(arguments, *instances) => measured,
            () = stop.wanted() => Err(io::Error::other("stopped")),
        };
        all.push(measured.map_err(|source| Failure::Bench { doing: "measure deploys", source })?);
    }
    screen.table(&table(arguments, &all));
    Ok(())
}

/// What was seen of one size.
#[derive(Debug)]
struct Figures {
    instances: usize,
    calls: u64,
    deploy: Duration,
    ideal: Duration,
    no_op: Duration,
    /// Processor time of the director, without its CPIs.
    own_time: Duration,
    idle_kib: u64,
    peak_kib: u64,
}

async fn measure(arguments: &BenchDeployArgs, instances: usize) -> io::Result<Figures> {
    let latency: Map<String, Value> = methods::NAMES
        .iter()
        .copied()
        .filter(|method| *method != "info")
        .map(|method| {
            (method.to_owned(), json!(if method == "create_vm" { arguments.create_vm } else { arguments.call }))
        })
        .collect();
    let sim = json!({"latency": latency, "agents": {"delay": arguments.agent}, "log_calls": true});
    let mut director = ScratchDirector::new(&sim)?;
    if let Some(program) = &arguments.program {
        director.use_program(program)?;
    }
    director.write("director.yml", &format!("max_threads: {}\n", arguments.at_once))?;
    director.start(None).await?;
    tokio::time::sleep(IDLE).await;
    let idle_kib = memory_kib(&director, "VmRSS:")?;
    director
        .prepare(&format!(
            "azs: [{{name: z1}}]\nvm_types: [{{name: small}}]\ndisk_types: [{{name: disk, disk_size: 64}}]\n\
             networks: [{{name: default, subnets: [{{range: {NETWORK}, gateway: {GATEWAY}, azs: [z1]}}]}}]\n"
        ))
        .await?;
    let parallel = arguments.at_once;
    let manifest = director.write(
        "manifest.yml",
        &format!(
            "name: many\nstemcells: [{{alias: default, os: windlass-minimal, version: latest}}]\n\
             update: {{canaries: 1, max_in_flight: {parallel}, canary_watch_time: 1000-30000, update_watch_time: 1000-30000}}\n\
             instance_groups:\n- {{name: node, instances: {instances}, azs: [z1], vm_type: small, stemcell: default, \
             persistent_disk_type: disk, networks: [{{name: default}}]}}\n"
        ),
    )?;
    fs::remove_file(director.cloud().join(CALL_LOG))?;
    let before = processor_time(&director)?;
    let deploy = timed(&director, &manifest).await?;
    let own_time = processor_time(&director)?.saturating_sub(before);
    let calls = calls(&director)?;
    let no_op = timed(&director, &manifest).await?;
    let (vms, disks) = {
        let inventory = director.inventory()?;
        (inventory.vms.len(), inventory.disks.iter().filter(|disk| disk.attached_to.is_some()).count())
    };
    if (vms, disks) != (instances, instances) {
        return Err(io::Error::other(format!("there are {vms} VMs and {disks} attached disks instead of {instances}")));
    }
    Ok(Figures {
        instances,
        calls: calls.values().sum(),
        deploy,
        ideal: ideal(arguments, &calls),
        no_op,
        own_time,
        idle_kib,
        peak_kib: memory_kib(&director, "VmHWM:")?,
    })
}

async fn timed(director: &ScratchDirector, manifest: &str) -> io::Result<Duration> {
    let started = Instant::now();
    director.ok(&["-d", "many", "deploy", manifest]).await?;
    Ok(started.elapsed())
}

/// How often each method was called.
fn calls(director: &ScratchDirector) -> io::Result<BTreeMap<String, u64>> {
    let mut calls = BTreeMap::new();
    for method in fs::read_to_string(director.cloud().join(CALL_LOG))?.lines() {
        *calls.entry(method.to_owned()).or_default() += 1;
    }
    Ok(calls)
}

/// What the cloud takes for the calls, and the VMs for their start, so many at a time. A VM can be named while it starts.
fn ideal(arguments: &BenchDeployArgs, calls: &BTreeMap<String, u64>) -> Duration {
    let of = |method: &str| calls.get(method).copied().unwrap_or_default();
    let vms = of("create_vm");
    let hidden = of("set_vm_metadata").min(vms) * arguments.call.min(arguments.agent);
    let others: u64 = calls.iter().filter(|(method, _)| *method != "create_vm").map(|(_, calls)| calls).sum();
    let total = vms * (arguments.create_vm + arguments.agent) + others * arguments.call - hidden;
    Duration::from_millis(total / arguments.at_once as u64)
}

fn memory_kib(director: &ScratchDirector, what: &str) -> io::Result<u64> {
    let status = of_process(director, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("the director's status has no {what}")))
}

/// Fields 14 and 15 of `/proc/PID/stat`; the name before them may contain blanks and brackets.
fn processor_time(director: &ScratchDirector) -> io::Result<Duration> {
    let stat = of_process(director, "stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
}

fn of_process(director: &ScratchDirector, file: &str) -> io::Result<String> {
    let pid = director.pid().ok_or_else(|| io::Error::other("the director has ended"))?;
    fs::read_to_string(format!("/proc/{pid}/{file}"))
}

fn table(arguments: &BenchDeployArgs, all: &[Figures]) -> Table {
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let mebibytes = |kib: u64| format!("{:.0} MiB", kib as f64 / 1024.0);
    let row = |figures: &Figures| {
        vec![
            figures.instances.to_string(),
            figures.calls.to_string(),
            seconds(figures.deploy),
            seconds(figures.ideal),
            format!("{:.2}", figures.deploy.as_secs_f64() / figures.ideal.as_secs_f64()),
            seconds(figures.no_op),
            milliseconds(figures.own_time / figures.instances as u32),
            mebibytes(figures.idle_kib),
            mebibytes(figures.peak_kib),
        ]
    };
    let BenchDeployArgs { create_vm, call, agent, at_once, .. } = arguments;
    Table {
        title: Some(format!(
            "create_vm {create_vm} ms, other calls {call} ms, agents up {agent} ms later, {at_once} at a time"
        )),
        header: vec!["Instances", "CPI calls", "Deploy", "Ideal", "Ratio", "No-op", "Own CPU/inst.", "Idle", "Peak"],
        rows: all.iter().map(row).collect(),
        notes: DEBUG_BUILD.filter(|_| arguments.program.is_none()).into_iter().collect(),
        ..Table::default()
    }
}
