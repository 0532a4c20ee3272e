//! `windlass bench api`: how much a director answers over TLS, against a bare server that answers as many bytes in the same breath.
//!
//! The director is a process of its own with a deployment on the simulated cloud. Instances in full are asked for as clients do
//! it: a task is begun, followed to its end, and its result fetched; each of those exchanges asks every agent.

mod floor;

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::BenchApiArgs;
use crate::failure::Failure;
use crate::figures::{DEBUG_BUILD, Figure, Report, mebibytes, milliseconds, percentile};
use crate::foreground::Stop;
use crate::load::{Connection, Load, Measured, Requests, one_of};
use crate::scratch_director::{MANY, ScratchDirector};
use crate::table::Table;
use floor::Floor;

/// How often each subject is measured.
const ROUNDS: usize = 3;
/// Before the first measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// As many as a director works on at the same time.
const TASKS_AT_ONCE: usize = 3;
/// How often a task is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// How many instances are made at the same time.
const AT_ONCE: usize = 32;

pub(crate) async fn measure(arguments: &BenchApiArgs) -> Result<Report, Failure> {
    let mut stop = Stop::listen()?;
    let measured = tokio::select! {
        measured = figures(arguments) => measured,
        () = stop.wanted() => Err(io::Error::other("stopped")),
    };
    let figures = measured.map_err(|source| Failure::Bench { doing: "measure the API", source })?;
    Ok(Report { tables: vec![figures.table(arguments)], figures: figures.quoted(arguments) })
}

/// What was seen.
struct Figures {
    subjects: Vec<Subject>,
    idle_kib: u64,
    peak_kib: u64,
}

/// Something that is measured.
struct Subject {
    name: String,
    asks: Asks,
    /// How large an answer is.
    size: usize,
    load: Load,
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

async fn figures(arguments: &BenchApiArgs) -> io::Result<Figures> {
    let mut director = ScratchDirector::new(&json!({}))?;
    director.start(None).await?;
    let idle_kib = director.idle_memory_kib().await?;
    director.prepare_for_many().await?;
    let manifest = director.manifest_of_many(arguments.instances, AT_ONCE, "")?;
    director.ok(&["-d", MANY, "deploy", &manifest]).await?;
    let (load, requests) = director.under_load()?;
    let mut subjects = Vec::new();
    for path in ["/info", "/deployments", &format!("/deployments/{MANY}/instances")] {
        let body = load.connect().await?.ok(&requests.get(path)).await?.body.to_vec();
        let size = body.len();
        let server = Floor::start(body).await?;
        subjects.push(Subject {
            name: format!("GET {path}"),
            asks: Asks::Route(requests.get(path)),
            size,
            load: load.clone(),
            floor: Some(Load::over_tls(server.address, &server.ca)?),
            measured: Measured::default(),
            of_floor: Measured::default(),
            _server: Some(server),
        });
    }
    let size = instances_in_full(&requests, &mut load.connect().await?).await?;
    subjects.push(Subject {
        name: format!("{} instances in full", arguments.instances),
        asks: Asks::InFull(requests),
        size,
        load: load.clone(),
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
            let measured = subject.load.run(connections, time, exchange(subject.asks.clone())).await?;
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
    Ok(Figures { subjects, idle_kib, peak_kib: director.memory_kib("VmHWM:")? })
}

impl Subject {
    fn ratio(&self) -> Option<f64> {
        self.floor.as_ref().map(|_| self.measured.rate() / self.of_floor.rate())
    }
}

impl Figures {
    fn table(&self, arguments: &BenchApiArgs) -> Table {
        let row = |subject: &Subject| {
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
                "{} connections over TLS, {} instances; tasks: {TASKS_AT_ONCE} at a time; memory {} idle, {} at most",
                arguments.connections,
                arguments.instances,
                mebibytes(self.idle_kib),
                mebibytes(self.peak_kib),
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
        let quote = |subject: &Subject| Figure {
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
        quoted
    }
}
