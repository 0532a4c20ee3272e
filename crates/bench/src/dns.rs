//! `windlass bench dns`: questions for names of instances, answered by the agent's resolver, beside a bare server that sends every
//! packet back. Both are asked in turn by the same client.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use windlass_agent::NameServer;
use windlass_planning::dns::RECORD_KEYS;

use crate::arguments::BenchDnsArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table};

/// How many questions are under way at once.
const WINDOW: usize = 32;
/// How long an answer may take; on a loopback interface packets are lost only when buffers are full.
const PATIENCE: Duration = Duration::from_secs(2);
/// Instances of a group.
const GROUP: usize = 5;
/// How often each server is asked, in turn; the best counts.
const ROUNDS: usize = 5;

pub(crate) fn measure(arguments: &BenchDnsArgs) -> Result<Report, BenchError> {
    let failed = |source| BenchError::Failed { doing: "ask for names", source };
    let records = records(arguments.records).to_string();
    let (server, _stop) = started(move |address| async move {
        let server = NameServer::bind(records.as_bytes(), address).await?;
        Ok::<_, io::Error>((server.address()?, server.serve()))
    })
    .map_err(failed)?;
    let (echo, _stop_too) = started(|address| async move {
        let socket = tokio::net::UdpSocket::bind(address).await?;
        let address = socket.local_addr()?;
        Ok::<_, io::Error>((address, send_back(socket)))
    })
    .map_err(failed)?;
    let instances: Vec<Vec<u8>> = questions(arguments.records, instance_name);
    let groups: Vec<Vec<u8>> = questions(arguments.records, group_name);
    let mut best = [0.0_f64; 3];
    for _ in 0..ROUNDS {
        for (rate, (at, asked)) in best.iter_mut().zip([(server, &instances), (server, &groups), (echo, &instances)]) {
            *rate = rate.max(ask(at, asked, arguments.questions).map_err(failed)?);
        }
    }
    Ok(report(arguments.records, best))
}

fn report(records: usize, [instances, groups, echo]: [f64; 3]) -> Report {
    let against = |rate: f64| format!("{:.2} of a bare echo", rate / echo);
    let rows = [("a name of one instance", instances), ("a query for a group of five", groups), ("a bare echo", echo)];
    let row = |(what, rate): &(&str, f64)| vec![(*what).to_owned(), format!("{rate:.0}"), against(*rate)];
    let figure = |(what, rate): &(&str, f64)| {
        Figure::new(format!("questions a second, {what}, of {records} records"), format!("{rate:.0}"))
            .against(against(*rate))
    };
    Report {
        figures: rows[..2].iter().map(figure).collect(),
        tables: vec![Table {
            content: "questions",
            title: Some(format!("Questions by UDP, {records} records, {WINDOW} under way")),
            header: vec!["Question", "A second", "Against"],
            rows: rows.iter().map(row).collect(),
            notes: DEBUG_BUILD.into_iter().collect(),
        }],
    }
}

/// A server in a thread of its own, until the second is dropped.
fn started<S, F>(start: impl FnOnce(SocketAddr) -> S + Send + 'static) -> io::Result<(SocketAddr, oneshot::Sender<()>)>
where
    S: Future<Output = io::Result<(SocketAddr, F)>>,
    F: Future<Output = ()>,
{
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            match start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await {
                Ok((address, serving)) => {
                    let _ = ready.send(Ok(address));
                    tokio::select! {
                        () = serving => {}
                        _ = stopped => {}
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    });
    let address = is_ready.recv().map_err(io::Error::other)??;
    Ok((address, stop))
}

async fn send_back(socket: tokio::net::UdpSocket) {
    let mut buffer = [0; 4096];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    }
}

/// Asks so many questions, some of them under way at once; answers come in any order. Gives how many there were a second.
fn ask(server: SocketAddr, questions: &[Vec<u8>], count: usize) -> io::Result<f64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 4096];
    let begun = Instant::now();
    let mut next = questions.iter().cycle();
    let mut send = || next.next().map_or(Ok(0), |question| socket.send(question));
    for _ in 0..WINDOW.min(count) {
        send()?;
    }
    for answered in 0..count {
        let length = socket.recv(&mut buffer)?;
        // The last four bits of the fourth byte say whether it was found; an echo has none.
        if length < 12 || buffer[3] & 0x0f != 0 {
            return Err(io::Error::other("a name was not found"));
        }
        if answered + WINDOW < count {
            send()?;
        }
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn instance_name(at: usize) -> String {
    format!("{}.{}", id(at), long_group(at))
}

fn group_name(at: usize) -> String {
    format!("q-s0.{}", long_group(at))
}

fn long_group(at: usize) -> String {
    format!("group-{}.default.bench.bosh", at / GROUP)
}

fn id(at: usize) -> String {
    format!("00000000-0000-4000-8000-{at:012}")
}

/// Spread over all records, so that none is found because it was asked for a moment ago.
fn questions(records: usize, name: impl Fn(usize) -> String) -> Vec<Vec<u8>> {
    (0..records).map(|at| NameServer::question(at as u16, &name(at * 7919 % records))).collect()
}

fn records(count: usize) -> Value {
    let info = |at: usize| {
        let address = Ipv4Addr::from(0x0a00_0000 + at as u32 + 1).to_string();
        json!([
            id(at),
            at.to_string(),
            format!("group-{}", at / GROUP),
            [(at / GROUP + 1).to_string()],
            "z1",
            "1",
            "default",
            "1",
            "bench",
            address,
            "bosh",
            format!("agent-{at}"),
            at % GROUP
        ])
    };
    json!({"version": 1, "records": [], "record_keys": RECORD_KEYS, "record_infos": (0..count).map(info).collect::<Vec<_>>(), "aliases": {}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_of_the_measurement_is_answered_and_compared_with_an_echo() {
        let report = measure(&BenchDnsArgs { records: 50, questions: 200 }).unwrap();
        assert_eq!(report.figures.len(), 2);
        assert!(report.figures.iter().all(|figure| figure.ratio.as_ref().unwrap().ends_with("of a bare echo")));
        assert_eq!(report.tables[0].rows.len(), 3);
        assert_eq!(report.tables[0].rows[2][2], "1.00 of a bare echo");
    }
}
