//! `windlass bench health`: what it costs a director to ask every agent how it is, as the resurrector does all the time.
//!
//! Of each round the processor time of the director is told; the agents are real ones in a process of their own.

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::arguments::BenchHealthArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, mebibytes, milliseconds};
use crate::load::{Connection, Requests};
use crate::scratch_director::{MANY, ScratchDirector};
use crate::stop::Stop;

/// How often the resurrector asks, unless it is told otherwise.
const INTERVAL: Duration = Duration::from_secs(30);
/// How many instances are made at the same time.
const AT_ONCE: usize = 32;
/// How long one round may take.
const PATIENCE: Duration = Duration::from_secs(600);
/// Seldom enough to cost next to nothing beside what is measured.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

pub(crate) async fn measure(arguments: &BenchHealthArgs) -> Result<Report, BenchError> {
    let mut stop = Stop::listen()?;
    let mut all = Vec::new();
    for instances in &arguments.instances {
        let measured = stop.or(figures(*instances, arguments.rounds)).await;
        all.push(measured.map_err(|source| BenchError::Failed { doing: "measure the resurrector", source })?);
    }
    Ok(Report { tables: vec![table(&all, arguments)], figures: all.iter().map(quoted).collect() })
}

/// What was seen of one size.
struct HealthFigures {
    instances: usize,
    /// Of one round.
    own_time: Duration,
    round: Duration,
    before_kib: u64,
    after_kib: u64,
}

async fn figures(instances: usize, rounds: u32) -> io::Result<HealthFigures> {
    let mut director = ScratchDirector::new(&json!({}))?;
    director.write("director.yml", &settings(INTERVAL))?;
    director.start(None).await?;
    director.prepare_for_many().await?;
    let manifest = director.manifest_of_many(instances, AT_ONCE, "")?;
    director.ok(&["-d", MANY, "deploy", &manifest]).await?;
    // Started again, so that nothing of the deploy is measured; the first round finds everything cold.
    director.kill().await?;
    director.write("director.yml", &settings(Duration::from_secs(1)))?;
    director.start(None).await?;
    let before_kib = director.memory_kib("VmRSS:")?;
    let (load, requests) = director.under_load()?;
    let mut connection = load.connect().await?;
    let begin = after_round(&mut connection, &requests, 1).await?;
    let (time, started) = (director.processor_time()?, Instant::now());
    after_round(&mut connection, &requests, begin + u64::from(rounds)).await?;
    let (own_time, elapsed) = (director.processor_time()?.saturating_sub(time), started.elapsed());
    if !answer(&mut connection, &requests).await?.contains(&format!("health=\"healthy\"}} {instances}\n")) {
        return Err(io::Error::other(format!("not all of the {instances} agents answered")));
    }
    Ok(HealthFigures {
        instances,
        own_time: own_time / rounds,
        // A second of each is the pause before it.
        round: (elapsed / rounds).saturating_sub(Duration::from_secs(1)),
        before_kib,
        after_kib: director.memory_kib("VmHWM:")?,
    })
}

fn settings(interval: Duration) -> String {
    format!("max_threads: {AT_ONCE}\nresurrector: {{interval: {}s}}\n", interval.as_secs())
}

async fn answer(connection: &mut Connection, requests: &Requests) -> io::Result<String> {
    Ok(String::from_utf8_lossy(connection.ok(&requests.get("/metrics")).await?.body).into_owned())
}

/// Waits until so many rounds are done; tells how many are.
async fn after_round(connection: &mut Connection, requests: &Requests, round: u64) -> io::Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = answer(connection, requests).await?;
        let done = metrics.lines().find_map(|line| line.strip_prefix("windlass_health_rounds_total "));
        match done.and_then(|done| done.parse().ok()) {
            Some(done) if done >= round => return Ok(done),
            _ if Instant::now() > deadline => return Err(io::Error::other("the resurrector does not come round")),
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

fn share(figures: &HealthFigures) -> String {
    format!("{:.1} %", 100.0 * figures.own_time.as_secs_f64() / INTERVAL.as_secs_f64())
}

fn quoted(figures: &HealthFigures) -> Figure {
    let what = format!("asking {} agents how they are", figures.instances);
    let value =
        format!("{} of processor time, at most {}", milliseconds(figures.own_time), mebibytes(figures.after_kib));
    Figure::new(what, value).against(format!("{} of a core, every 30 s", share(figures)))
}

fn table(all: &[HealthFigures], arguments: &BenchHealthArgs) -> Table {
    let row = |figures: &HealthFigures| {
        let each = figures.own_time.as_secs_f64() / figures.instances as f64;
        vec![
            figures.instances.to_string(),
            milliseconds(figures.round),
            milliseconds(figures.own_time),
            format!("{:.3} ms", each * 1000.0),
            share(figures),
            mebibytes(figures.before_kib),
            mebibytes(figures.after_kib),
        ]
    };
    Table {
        title: Some(format!("{} rounds; processor time is the director's own", arguments.rounds)),
        header: vec!["Agents", "Round", "CPU per Round", "CPU per Agent", "Of a Core at 30 s", "Memory", "At Most"],
        rows: all.iter().map(row).collect(),
        notes: DEBUG_BUILD.into_iter().collect(),
        ..Table::default()
    }
}
