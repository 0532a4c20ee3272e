//! `windlass bench api`: how much a director answers over TLS, against a bare server that answers as many bytes in the same breath.
//!
//! The director is a process of its own with a deployment on the simulated cloud. Instances in full are asked for as clients do
//! it: a task is begun, followed to its end, and its result fetched; each of those exchanges asks every agent.
//!
//! Lists are measured twice, because a director keeps them until something is written: alone, and with writes beside them. Then
//! every connection asks for the list of all instances at the same moment, again and again after a write, and the director's memory is looked at.

mod floor;

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::arguments::BenchApiArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, mebibytes, milliseconds, percentile};
use crate::load::{Connection, Load, Measured, Requests, one_of};
use crate::scratch_director::{MANY, ScratchDirector};
use crate::stop::Stop;
use floor::Floor;

/// How often each subject is measured.
const ROUNDS: usize = 3;
/// Before the first measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// How often something is written beside lists.
const WRITE_EVERY: Duration = Duration::from_millis(50);
/// How often all connections ask for a list at once, after a write, while memory is looked at.
const CROWDS: usize = 5;
/// As many as a director works on at the same time.
const TASKS_AT_ONCE: usize = 3;
/// How often a task is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How many instances are made at the same time.
const AT_ONCE: usize = 32;

pub(crate) async fn measure(arguments: &BenchApiArgs) -> Result<Report, BenchError> {
    let mut stop = Stop::listen()?;
    let measured = stop.or(figures(arguments)).await;
    let figures = measured.map_err(|source| BenchError::Failed { doing: "measure the API", source })?;
    Ok(Report { tables: vec![figures.table(arguments)], figures: figures.quoted(arguments) })
}

/// What was seen.
struct ApiFigures {
    subjects: Vec<MeasuredRoute>,
    idle_kib: u64,
    peak_kib: u64,
    /// While all connections ask for the list of instances.
    crowd_kib: u64,
}

/// Something that is measured.
struct MeasuredRoute {
    name: String,
    asks: Asks,
    /// How large an answer is.
    size: usize,
    load: Load,
    /// Sent from time to time by somebody else; none if nobody writes.
    write: Option<Vec<u8>>,
    /// The bare server that answers as much.
    floor: Option<Load>,
    measured: Measured,
    of_floor: Measured,
    _server: Option<Floor>,
}

#[derive(Clone)]
enum Asks {
    /// For the same again and again.
    Route(Vec<u8>),
    /// For instances in full.
    InFull(Requests),
}

impl Asks {
    async fn once(&self, connection: &mut Connection, number: usize) -> io::Result<()> {
        match self {
            Self::Route(request) => one_of(std::slice::from_ref(request), connection, number).await,
            Self::InFull(requests) => instances_in_full(requests, connection).await.map(drop),
        }
    }
}

/// Begins the task, follows it to its end, and fetches its result: how large that is.
async fn instances_in_full(requests: &Requests, connection: &mut Connection) -> io::Result<usize> {
    let path = format!("/deployments/{MANY}/instances?format=full");
    let begun = connection.found(&requests.get(&path)).await?;
    let task = begun.header("location").ok_or_else(|| io::Error::other("there is no task to follow"))?.to_owned();
    loop {
        let shown: Value = serde_json::from_slice(connection.ok(&requests.get(&task)).await?.body)?;
        match shown["state"].as_str() {
            Some("queued" | "processing") => tokio::time::sleep(LOOK_AGAIN).await,
            Some("done") => break,
            _ => return Err(io::Error::other(format!("the task ended as {shown}"))),
        }
    }
    let result = connection.ok(&requests.get(&format!("{task}/output?type=result"))).await?;
    Ok(result.body.len())
}

async fn figures(arguments: &BenchApiArgs) -> io::Result<ApiFigures> {
    let mut director = ScratchDirector::new(&json!({}))?;
    director.start(None).await?;
    let idle_kib = director.idle_memory_kib().await?;
    director.prepare_for_many().await?;
    let manifest = director.manifest_of_many(arguments.instances, AT_ONCE, "")?;
    director.ok(&["-d", MANY, "deploy", &manifest]).await?;
    let (load, requests) = director.under_load()?;
    let mut subjects = Vec::new();
    let instances = format!("/deployments/{MANY}/instances");
    let write = requests.with_body("PUT", "/resurrection", r#"{"resurrection_paused":false}"#);
    let alone_and_not = |path| [(path, false), (path, true)];
    let lists = ["/deployments", &instances].into_iter().flat_map(alone_and_not);
    for (path, is_written) in std::iter::once(("/info", false)).chain(lists) {
        let body = load.connect().await?.ok(&requests.get(path)).await?.body.to_vec();
        let size = body.len();
        let server = Floor::start(body).await?;
        subjects.push(MeasuredRoute {
            name: format!("GET {path}{}", if is_written { ", with writes beside it" } else { "" }),
            asks: Asks::Route(requests.get(path)),
            size,
            load: load.clone(),
            write: is_written.then(|| write.clone()),
            floor: Some(Load::over_tls(server.address, &server.ca)?),
            measured: Measured::default(),
            of_floor: Measured::default(),
            _server: Some(server),
        });
    }
    let size = instances_in_full(&requests, &mut load.connect().await?).await?;
    subjects.push(MeasuredRoute {
        name: format!("{} instances in full", arguments.instances),
        asks: Asks::InFull(requests.clone()),
        size,
        load: load.clone(),
        write: None,
        floor: None,
        measured: Measured::default(),
        of_floor: Measured::default(),
        _server: None,
    });
    for round in 0..=ROUNDS {
        for subject in &mut subjects {
            let time = if round == 0 { WARM_UP } else { Duration::from_secs(arguments.seconds) };
            let connections = match subject.asks {
                Asks::Route(_) => arguments.connections,
                Asks::InFull(_) => TASKS_AT_ONCE,
            };
            let exchange =
                |asks: Asks| async move |connection: &mut Connection, number| asks.once(connection, number).await;
            let measuring = subject.load.run(connections, time, exchange(subject.asks.clone()));
            let measured = tokio::select! {
                measured = measuring => measured?,
                error = write_often(&subject.load, subject.write.as_deref()) => return Err(error),
            };
            let of_floor = match &subject.floor {
                Some(floor) => floor.run(connections, time, exchange(subject.asks.clone())).await?,
                None => Measured::default(),
            };
            if round > 0 {
                subject.measured.add(measured);
                subject.of_floor.add(of_floor);
            }
        }
    }
    let peak_kib = director.memory_kib("VmHWM:")?;
    director.forget_peak()?;
    for _ in 0..CROWDS {
        load.connect().await?.ok(&write).await?;
        load.send_each_once(arguments.connections, vec![requests.get(&instances); arguments.connections]).await?;
    }
    Ok(ApiFigures { subjects, idle_kib, peak_kib, crowd_kib: director.memory_kib("VmHWM:")? })
}

/// Writes from time to time, until it fails.
async fn write_often(load: &Load, write: Option<&[u8]>) -> io::Error {
    let Some(write) = write else { return std::future::pending().await };
    let mut connection = match load.connect().await {
        Ok(connection) => connection,
        Err(error) => return error,
    };
    loop {
        if let Err(error) = connection.ok(write).await {
            return error;
        }
        tokio::time::sleep(WRITE_EVERY).await;
    }
}

impl MeasuredRoute {
    fn ratio(&self) -> Option<f64> {
        self.floor.as_ref().map(|_| self.measured.rate() / self.of_floor.rate())
    }
}

impl ApiFigures {
    fn table(&self, arguments: &BenchApiArgs) -> Table {
        let row = |subject: &MeasuredRoute| {
            let times = &subject.measured.times;
            vec![
                subject.name.clone(),
                format!("{} B", subject.size),
                format!("{:.0}", subject.measured.rate()),
                milliseconds(percentile(times, 50)),
                milliseconds(percentile(times, 99)),
                subject.ratio().map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            ]
        };
        Table {
            title: Some(format!(
                "{} connections over TLS, {} instances; tasks: {TASKS_AT_ONCE} at a time; memory {} idle, {} at most, {} with {} lists of \
                 all instances at once",
                arguments.connections,
                arguments.instances,
                mebibytes(self.idle_kib),
                mebibytes(self.peak_kib),
                mebibytes(self.crowd_kib),
                arguments.connections,
            )),
            header: vec!["What", "Answer", "Per Second", "Median", "99th Percentile", "Times a Bare Server"],
            rows: self.subjects.iter().map(row).collect(),
            notes: std::iter::once("For scale: the original answers 1,100 /info a second on two cores.")
                .chain(DEBUG_BUILD)
                .collect(),
            ..Table::default()
        }
    }

    fn quoted(&self, arguments: &BenchApiArgs) -> Vec<Figure> {
        let quote = |subject: &MeasuredRoute| Figure {
            what: format!("answers to {} over TLS", subject.name),
            value: format!("{:.0} a second", subject.measured.rate()),
            ratio: subject.ratio().map(|ratio| format!("{ratio:.2} times a bare server's")),
        };
        let mut quoted: Vec<_> = self.subjects.iter().filter(|subject| subject.floor.is_some()).map(quote).collect();
        quoted.extend(self.subjects.iter().filter(|subject| subject.floor.is_none()).map(|subject| Figure {
            what: format!("{}, from the request to the result", subject.name),
            value: format!(
                "{}, {:.0} agents a second",
                milliseconds(percentile(&subject.measured.times, 50)),
                subject.measured.rate() * arguments.instances as f64
            ),
            ratio: None,
        }));
        quoted.push(Figure {
            what: format!("memory while {} ask for a list of {} at once", arguments.connections, arguments.instances),
            value: mebibytes(self.crowd_kib),
            ratio: None,
        });
        quoted
    }
}
