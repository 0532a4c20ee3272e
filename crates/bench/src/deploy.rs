//! `windlass bench deploy`: many instances with a disk each on the simulated cloud, the same deploy again, and the memory of the
//! director, against what a director could not do without: the calls that it really made, as long as the cloud takes for each,
//! as many at a time as allowed. With `--jobs`, each instance has a job; with `--embedded`, all are on this machine, and jobs are
//! measured against the same without them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use windlass_cloud_local::Isolation;
use windlass_cloud_sim::cloud::CALL_LOG;
use windlass_contract::cpi::methods;

use crate::arguments::BenchDeployArgs;
use crate::deploy_job;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, mebibytes, milliseconds};
use crate::scratch_director::{MANY, ScratchDirector};
use crate::stop::Stop;

pub(crate) async fn measure(arguments: &BenchDeployArgs) -> Result<Report, BenchError> {
    let mut stop = Stop::listen()?;
    let mut all = Vec::new();
    for instances in &arguments.instances {
        let measured = stop.or(figures(arguments, *instances)).await;
        all.push(measured.map_err(|source| BenchError::Failed { doing: "measure deploys", source })?);
    }
    Ok(Report {
        tables: vec![table(arguments, &all)],
        figures: all.iter().flat_map(|one| quoted(arguments, one)).collect(),
    })
}

/// What was seen of one size.
#[derive(Debug)]
struct DeployFigures {
    instances: usize,
    deploy: Duration,
    /// How many calls there were, where they are counted.
    calls: Option<u64>,
    /// What it is measured against: how long the cloud takes for the calls, or on this machine a deploy without jobs.
    ideal: Option<Duration>,
    no_op: Duration,
    /// Processor time of the director, without its CPIs.
    own_time: Duration,
    idle_kib: u64,
    peak_kib: u64,
}

async fn figures(arguments: &BenchDeployArgs, instances: usize) -> io::Result<DeployFigures> {
    let without_jobs = match arguments.embedded && arguments.jobs {
        true => Some(figures_of(arguments, instances, false).await?.deploy),
        false => None,
    };
    let figures = figures_of(arguments, instances, arguments.jobs).await?;
    Ok(DeployFigures { ideal: figures.ideal.or(without_jobs), ..figures })
}

async fn figures_of(arguments: &BenchDeployArgs, instances: usize, jobs: bool) -> io::Result<DeployFigures> {
    let mut director = if arguments.embedded { embedded()? } else { simulated(arguments)? };
    let measured = measure_with(arguments, (instances, jobs), &mut director).await;
    if !arguments.embedded {
        return measured;
    }
    // What there is on this machine goes, however it went.
    let deleted = director.attempt(&["-d", MANY, "delete-deployment"]).await;
    let cleaned = director.attempt(&["clean-up", "--all"]).await;
    let figures = measured?;
    deleted.and(cleaned).map(|_| figures)
}

fn embedded() -> io::Result<ScratchDirector> {
    let inside = windlass_cloud_local::own_machine::is_inside();
    ScratchDirector::embedded(if inside { Isolation::Container } else { Isolation::Process })
}

fn simulated(arguments: &BenchDeployArgs) -> io::Result<ScratchDirector> {
    let latency: Map<String, Value> = methods::NAMES
        .iter()
        .copied()
        .filter(|method| *method != "info")
        .map(|method| {
            (method.to_owned(), json!(if method == "create_vm" { arguments.create_vm } else { arguments.call }))
        })
        .collect();
    let agents = json!({"delay": arguments.agent});
    ScratchDirector::new(&json!({"latency": latency, "agents": agents, "log_calls": true, "pretend_jobs": true}))
}

async fn measure_with(
    arguments: &BenchDeployArgs,
    (instances, jobs): (usize, bool),
    director: &mut ScratchDirector,
) -> io::Result<DeployFigures> {
    if let Some(program) = &arguments.program {
        director.use_program(program)?;
    }
    director.write("director.yml", &format!("max_threads: {}\n", arguments.at_once))?;
    director.start(None).await?;
    let idle_kib = director.idle_memory_kib().await?;
    director.prepare_for_many().await?;
    let mut more = "persistent_disk_type: disk, ".to_owned();
    if jobs {
        deploy_job::upload(director).await?;
        more.push_str(&deploy_job::of_group());
    }
    let manifest = director.manifest_of_many(instances, arguments.at_once, &more)?;
    if !arguments.embedded {
        fs::remove_file(director.cloud().join(CALL_LOG))?;
    }
    let before = director.processor_time()?;
    let deploy = timed(director, &manifest).await?;
    let own_time = director.processor_time()?.saturating_sub(before);
    let calls = if arguments.embedded { None } else { Some(calls(director)?) };
    let ideal = calls.as_ref().map(|calls| ideal(arguments, calls));
    let calls = calls.map(|calls| calls.values().sum());
    let no_op = timed(director, &manifest).await?;
    must_be_there(arguments, (instances, jobs), director).await?;
    Ok(DeployFigures {
        instances,
        deploy,
        calls,
        ideal,
        no_op,
        own_time,
        idle_kib,
        peak_kib: director.memory_kib("VmHWM:")?,
    })
}

/// Whether everything is as the manifest says.
async fn must_be_there(
    arguments: &BenchDeployArgs,
    (instances, jobs): (usize, bool),
    director: &ScratchDirector,
) -> io::Result<()> {
    if arguments.embedded {
        // A VM on which nothing is to run has no state of that.
        let wanted: &[&str] = if jobs { &["running"] } else { &["", "-"] };
        let is_running = |row: &&Value| row["process_state"].as_str().is_some_and(|state| wanted.contains(&state));
        let running = director.rows(&["-d", MANY, "instances"]).await?.iter().filter(is_running).count();
        let error = || io::Error::other(format!("{running} instances run instead of {instances}"));
        return if running == instances { Ok(()) } else { Err(error()) };
    }
    let inventory = director.inventory()?;
    let vms = inventory.vms.len();
    let disks = inventory.disks.iter().filter(|disk| disk.attached_to.is_some()).count();
    if (vms, disks) != (instances, instances) {
        return Err(io::Error::other(format!("there are {vms} VMs and {disks} attached disks instead of {instances}")));
    }
    Ok(())
}

async fn timed(director: &ScratchDirector, manifest: &str) -> io::Result<Duration> {
    let started = Instant::now();
    director.ok(&["-d", MANY, "deploy", manifest]).await?;
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

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

impl DeployFigures {
    fn ratio(&self) -> Option<f64> {
        Some(self.deploy.as_secs_f64() / self.ideal?.as_secs_f64())
    }
}

fn quoted(arguments: &BenchDeployArgs, figures: &DeployFigures) -> [Figure; 3] {
    let instances = figures.instances;
    let what = if arguments.embedded { "the same without jobs" } else { "what the cloud takes" };
    let each = if arguments.jobs { "a disk and a job" } else { "a disk" };
    let memory = format!("{}, {}", mebibytes(figures.idle_kib), mebibytes(figures.peak_kib));
    let against = figures.ratio().map(|ratio| format!("{ratio:.2} times {what}"));
    [
        Figure::new(format!("deploy of {instances} instances with {each} each"), seconds(figures.deploy))
            .against(against.unwrap_or_default()),
        Figure::new(format!("the same deploy of {instances} again, without changes"), seconds(figures.no_op)),
        Figure::new(format!("memory of a director: idle, and at most with {instances}"), memory),
    ]
}

fn table(arguments: &BenchDeployArgs, all: &[DeployFigures]) -> Table {
    let row = |figures: &DeployFigures| {
        vec![
            figures.instances.to_string(),
            figures.calls.map(|calls| calls.to_string()).unwrap_or_default(),
            seconds(figures.deploy),
            figures.ideal.map(seconds).unwrap_or_default(),
            figures.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            seconds(figures.no_op),
            milliseconds(figures.own_time / figures.instances as u32),
            mebibytes(figures.idle_kib),
            mebibytes(figures.peak_kib),
        ]
    };
    let BenchDeployArgs { create_vm, call, agent, at_once, .. } = arguments;
    let cloud = match arguments.embedded {
        true => "on this machine".to_owned(),
        false => format!("create_vm {create_vm} ms, other calls {call} ms, agents up {agent} ms later"),
    };
    let against = if arguments.embedded { "Without jobs" } else { "Ideal" };
    let jobs = if arguments.jobs { ", a job with ten templates each" } else { "" };
    Table {
        title: Some(format!("{cloud}, {at_once} at a time{jobs}")),
        header: vec!["Instances", "CPI calls", "Deploy", against, "Ratio", "No-op", "Own CPU/inst.", "Idle", "Peak"],
        rows: all.iter().map(row).collect(),
        notes: DEBUG_BUILD.filter(|_| arguments.program.is_none()).into_iter().collect(),
        ..Table::default()
    }
}
