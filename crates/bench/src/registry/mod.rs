//! `windlass bench registry`: how much a registry serves on each database, against nginx serving a file of that size.
//!
//! All subjects are measured in turn, several times, so that whatever else the machine does slows all of them down alike.
//! Each is a process of its own; the load comes from this one, over loopback.

mod servers;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use windlass_contract::Secret;
use windlass_database::PrivatePostgres;
use windlass_registry::credentials::reading_password;

use crate::arguments::BenchRegistryArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, percentile};
use crate::load::{Connection, Load, Measured, Requests, one_of};
use servers::{Nginx, RegistryProcess};

/// How many VMs there are.
const INSTANCES: usize = 1000;
/// How often each subject is measured.
const ROUNDS: usize = 3;
/// Before the first measurement.
const WARM_UP: Duration = Duration::from_millis(500);
const USER: &str = "bench";
const PASSWORD: &str = "bench";

pub(crate) async fn measure(arguments: &BenchRegistryArgs) -> Result<Report, BenchError> {
    let postgres = match PrivatePostgres::start() {
        Ok(server) => Some(server),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(failed("start PostgreSQL", source)),
    };
    let settings = settings(arguments.size);
    let mut registries = vec![("SQLite", start(None).await?)];
    if let Some(server) = &postgres {
        registries.push(("PostgreSQL", start(Some(&server.url())).await?));
    }
    let mut nginx = None;
    for (_, registry) in &registries {
        let load = Load::new(registry.address);
        let filled = load.send_each_once(arguments.connections, writes(&settings)).await;
        filled.map_err(|source| failed("fill a registry", source))?;
        if nginx.is_none() {
            let answer = first_answer(&load, &reads(registry.address)).await;
            let answer = answer.map_err(|source| failed("ask a registry", source))?;
            nginx = Nginx::start(&answer).await.map_err(|source| failed("start nginx", source))?;
        }
    }
    let mut subjects = Vec::new();
    if let Some(nginx) = &nginx {
        subjects.push(MeasuredRegistry::new("nginx, a file".into(), nginx.address, vec![nginx.request()]));
    }
    for (database, registry) in &registries {
        subjects.push(MeasuredRegistry::new(format!("reads, {database}"), registry.address, reads(registry.address)));
    }
    for (database, registry) in &registries {
        subjects.push(MeasuredRegistry::new(format!("writes, {database}"), registry.address, writes(&settings)));
    }
    let time = Duration::from_secs(arguments.seconds);
    for round in 0..=ROUNDS {
        for subject in &mut subjects {
            let time = if round == 0 { WARM_UP } else { time };
            let requests = subject.requests.clone();
            let exchange = async move |to: &mut Connection, number| one_of(&requests, to, number).await;
            let measured = subject.load.run(arguments.connections, time, exchange).await;
            let measured = measured.map_err(|source| failed("measure", source))?;
            if round > 0 {
                subject.measured.add(measured);
            }
        }
    }
    let tables = vec![table(&subjects, arguments, nginx.is_some(), postgres.is_some())];
    Ok(Report { tables, figures: quoted(&subjects, nginx.is_some()) })
}

async fn first_answer(load: &Load, requests: &[Vec<u8>]) -> io::Result<Vec<u8>> {
    Ok(load.connect().await?.ok(&requests[0]).await?.body.to_vec())
}

async fn start(db: Option<&str>) -> Result<RegistryProcess, BenchError> {
    let credentials = format!("{USER}:{PASSWORD}");
    RegistryProcess::start(db, &credentials).await.map_err(|source| failed("start a registry", source))
}

fn failed(doing: &'static str, source: io::Error) -> BenchError {
    BenchError::Failed { doing, source }
}

/// What a VM of an old stemcell finds, filled up to this size.
fn settings(size: usize) -> String {
    let settings = |filling: usize| {
        json!({
            "agent_id": "00000000-0000-4000-8000-000000000000",
            "vm": {"name": "vm-00000000-0000-4000-8000-000000000000"},
            "networks": {"default": {"type": "manual", "ip": "10.0.0.9", "netmask": "255.255.255.0",
                "gateway": "10.0.0.1", "default": ["dns", "gateway"], "dns": ["10.0.0.2"]}},
            "disks": {"system": "/dev/sda", "persistent": {"disk-1": "/dev/sdc"}},
            "env": {"bosh": {"mbus": {"cert": {"certificate": "x".repeat(filling)}}}},
        })
        .to_string()
    };
    let bare = settings(0).len();
    settings(size.saturating_sub(bare))
}

fn id(number: usize) -> String {
    format!("vm-00000000-0000-4000-8000-{number:012}")
}

/// As each VM asks for its own settings.
fn reads(address: SocketAddr) -> Vec<Vec<u8>> {
    let read = |number| {
        let (id, password) = (id(number), reading_password(&Secret::new(PASSWORD), &id(number)));
        Requests::new(address, &id, password.reveal()).get(&format!("/instances/{id}/settings"))
    };
    (0..INSTANCES).map(read).collect()
}

fn writes(settings: &str) -> Vec<Vec<u8>> {
    let requests = Requests::new("registry", USER, PASSWORD);
    let write = |number| requests.with_body("PUT", &format!("/instances/{}/settings", id(number)), settings);
    (0..INSTANCES).map(write).collect()
}

/// Something that is measured.
struct MeasuredRegistry {
    name: String,
    load: Load,
    requests: Rc<Vec<Vec<u8>>>,
    measured: Measured,
}

impl MeasuredRegistry {
    fn new(name: String, address: SocketAddr, requests: Vec<Vec<u8>>) -> Self {
        Self { name, load: Load::new(address), requests: Rc::new(requests), measured: Measured::default() }
    }
}

fn quoted(subjects: &[MeasuredRegistry], nginx: bool) -> Vec<Figure> {
    let (standard, registries) = subjects.split_at(usize::from(nginx));
    let standard = standard.first().map(|nginx| nginx.measured.rate());
    let quote = |subject: &MeasuredRegistry| {
        let rate = subject.measured.rate();
        let figure = Figure::new(format!("{} of a registry", subject.name), format!("{rate:.0} a second"));
        match standard {
            Some(standard) => figure.against(format!("{:.2} times nginx serving a file", rate / standard)),
            None => figure,
        }
    };
    registries.iter().map(quote).collect()
}

fn table(subjects: &[MeasuredRegistry], arguments: &BenchRegistryArgs, nginx: bool, postgres: bool) -> Table {
    let milliseconds = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
    let standard = subjects.first().filter(|_| nginx).map(|subject| subject.measured.rate());
    let rows = subjects.iter().map(|subject| {
        let (rate, times) = (subject.measured.rate(), &subject.measured.times);
        vec![
            subject.name.clone(),
            format!("{rate:.0}"),
            milliseconds(percentile(times, 50)),
            milliseconds(percentile(times, 99)),
            standard.map(|standard| format!("{:.2}", rate / standard)).unwrap_or_default(),
        ]
    });
    let mut notes = vec!["The aim: reads reach at least a third of nginx's rate."];
    if !nginx {
        notes.push("nginx is not installed, so there is nothing to compare with.");
    }
    if !postgres {
        notes.push("PostgreSQL is not installed, so it was not measured.");
    }
    notes.extend(DEBUG_BUILD);
    let (connections, size) = (arguments.connections, arguments.size);
    Table {
        title: Some(format!("{connections} connections, settings of {size} bytes, {INSTANCES} VMs, in turn")),
        header: vec!["What", "Requests per Second", "Median", "99th Percentile", "Times nginx"],
        rows: rows.collect(),
        notes,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_size_that_was_asked_for() {
        assert_eq!(settings(4096).len(), 4096);
        assert!(settings(1).len() > 100, "never less than what a VM needs");
    }
}
