//! `windlass bench supervise`: hundreds of services under one supervisor. How soon all of them run, how soon a death is noticed and
//! the service started again, and what it costs when nothing happens; side by side with monit where that is installed.
//!
//! Each has the same monit file, cycles of ten seconds, and services that do nothing but sleep.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass_durable::process::ProcessIdentity;

use crate::agent::{self, IdleAgent};
use crate::arguments::BenchSuperviseArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table};

/// The variable that names monit, unless it is where programs are.
const MONIT: &str = "WINDLASS_MONIT";
/// How long services may take to come up, and one to come back.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often it is looked whether they have.
const PAUSE: Duration = Duration::from_millis(50);
/// After a change, as long until nothing happens.
const REST: Duration = Duration::from_secs(15);
/// Ticks of processor times; the same on all machines that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// It starts and ends sleepers, by their number.
const CTL: &str = "#!/bin/sh
case $2 in
start) sleep 3599 < /dev/null > /dev/null 2>&1 & echo $! > \"$1/$3.pid.new\"; mv \"$1/$3.pid.new\" \"$1/$3.pid\" ;;
stop) kill \"$(cat \"$1/$3.pid\")\"; rm \"$1/$3.pid\" ;;
esac
";

pub(crate) async fn measure(arguments: &BenchSuperviseArgs) -> Result<Report, BenchError> {
    let failed = |doing: &'static str| move |source| BenchError::Failed { doing, source };
    let agent = agent::own_agent(arguments.agent.as_deref()).map_err(failed("find the agent"))?;
    // A VM has both, and they are one program, whose pages it has once.
    let beside = IdleAgent::start(agent.clone()).await.map_err(failed("start an agent"))?;
    let mut subjects = vec![("windlass", Program::Own(agent))];
    subjects.extend(monit().map(|program| ("monit", Program::Monit(program))));
    let mut rows = Vec::new();
    let mut with_agent = 0;
    for (name, program) in subjects {
        let is_own = matches!(program, Program::Own(_));
        let measured = run(program, arguments, beside.id()).await;
        let measured = measured.map_err(|error| io::Error::other(format!("{name}: {error}")));
        let (figures, together) = measured.map_err(failed("measure a supervisor"))?;
        if is_own {
            with_agent = together;
        }
        rows.push((name, figures));
    }
    Ok(report(&rows, with_agent, arguments))
}

/// The program, if there is one.
fn monit() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = || std::env::split_paths(&paths).map(|folder| folder.join("monit")).find(|path| path.is_file());
    std::env::var_os(MONIT).map(PathBuf::from).or_else(found)
}

enum Program {
    Own(Vec<OsString>),
    Monit(PathBuf),
}

/// What was seen of one supervisor.
#[derive(Debug, Clone, Copy)]
struct SupervisorFigures {
    all_run: Duration,
    comes_back: Duration,
    /// Per cent of one core.
    idle: f64,
    memory_kib: u64,
}

/// And what it and that agent take together, in KiB.
async fn run(program: Program, arguments: &BenchSuperviseArgs, agent: u32) -> io::Result<(SupervisorFigures, u64)> {
    let folder = tempfile::tempdir()?;
    let site = Site { folder: folder.path().to_owned(), services: arguments.services };
    let started = Instant::now();
    let supervisor = site.start(program)?;
    site.until("the services do not come up", || site.sleepers().len() == site.services).await?;
    let all_run = started.elapsed();
    tokio::time::sleep(REST).await;
    let first = site.sleeper(0).ok_or_else(|| io::Error::other("a service is gone"))?;
    let died = Instant::now();
    first.signal(rustix::process::Signal::KILL)?;
    site.until("a service that died does not come back", || site.sleeper(0).is_some_and(|now| now != first)).await?;
    let comes_back = died.elapsed();
    tokio::time::sleep(REST).await;
    let (before, begun) = (supervisor.ticks()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(arguments.seconds as u64)).await;
    let seconds = (supervisor.ticks()? - before) as f64 / TICKS_PER_SECOND;
    let idle = seconds * 100.0 / begun.elapsed().as_secs_f64();
    let together = proportional(supervisor.0.id())? + proportional(agent)?;
    Ok((SupervisorFigures { all_run, comes_back, idle, memory_kib: supervisor.resident()? }, together))
}

/// The memory of a process in KiB, with its share of what it has together with others.
fn proportional(process: u32) -> io::Result<u64> {
    let smaps = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
    let line = smaps.lines().find_map(|line| line.strip_prefix("Pss:"));
    let line = line.ok_or_else(|| io::Error::other("a process has ended"))?;
    line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
}

/// A folder with services. None of them outlives it.
struct Site {
    folder: PathBuf,
    services: usize,
}

impl Site {
    fn start(&self, program: Program) -> io::Result<Supervisor> {
        let (folder, ctl) = (self.folder.display(), self.folder.join("ctl"));
        fs::write(&ctl, CTL)?;
        fs::set_permissions(&ctl, fs::Permissions::from_mode(0o755))?;
        let check = |number: usize| {
            let run = |verb: &str| format!("{verb} program \"{folder}/ctl {folder} {verb} {number}\"");
            let (start, stop) = (run("start"), run("stop"));
            format!(
                "check process service-{number} with pidfile {folder}/{number}.pid\n {start}\n {stop}\n group vcap\n"
            )
        };
        let services: String = (0..self.services).map(check).collect();
        match program {
            Program::Own(command) => self.start_own(&command, &services),
            Program::Monit(program) => self.start_monit(&program, &services),
        }
    }

    fn start_own(&self, command: &[OsString], services: &str) -> io::Result<Supervisor> {
        let base = self.folder.join("base");
        fs::create_dir_all(base.join("monit/job"))?;
        fs::write(base.join("monit/job/0000_bench.monitrc"), services)?;
        let (program, before) = command.split_first().ok_or_else(|| io::Error::other("no agent"))?;
        let run = |words: &[&str]| {
            let mut command = Command::new(program);
            command.args(before).args(words).arg("-b").arg(&base);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let supervisor = Supervisor(run(&["supervise"]).spawn()?);
        let deadline = Instant::now() + PATIENCE;
        while !run(&["monit"]).arg("reload").stderr(Stdio::null()).status()?.success() {
            if Instant::now() > deadline {
                return Err(io::Error::other("the supervisor does not answer"));
            }
        }
        Ok(supervisor)
    }

    fn start_monit(&self, program: &Path, services: &str) -> io::Result<Supervisor> {
        let own = self.folder.join("monit");
        fs::create_dir(&own)?;
        let file = own.join("monitrc");
        let place = |name: &str| own.join(name).display().to_string();
        let (log, pid) = (place("log"), place("pid"));
        let head = format!(
            "set daemon 10\nset log {log}\nset pidfile {pid}\nset idfile {}\nset statefile {}\n",
            place("id"),
            place("state")
        );
        fs::write(&file, head + services)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let mut command = Command::new(program);
        command.arg("-I").arg("-c").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Supervisor(command.spawn()?))
    }

    async fn until(&self, otherwise: &'static str, is_so: impl Fn() -> bool) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > deadline {
                return Err(io::Error::other(otherwise));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The process of a service, if it is one of ours.
    fn sleeper(&self, number: usize) -> Option<ProcessIdentity> {
        let pid = fs::read_to_string(self.folder.join(format!("{number}.pid"))).ok()?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        if line.ends_with(b"3599\0") { ProcessIdentity::of(pid).ok() } else { None }
    }

    fn sleepers(&self) -> Vec<ProcessIdentity> {
        (0..self.services).filter_map(|number| self.sleeper(number)).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for sleeper in self.sleepers() {
            let _ = sleeper.signal(rustix::process::Signal::KILL);
        }
    }
}

/// A process that does not outlive us.
struct Supervisor(Child);

impl Supervisor {
    /// The time that it and what it waited for took of processors.
    fn ticks(&self) -> io::Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
        let number = |fields: &[&str], index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let fields = fields.unwrap_or_default();
        let sum = [11, 12, 13, 14].map(|index| number(&fields, index)).into_iter().sum::<Option<u64>>();
        sum.ok_or_else(|| io::Error::other("the supervisor has ended"))
    }

    fn resident(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let line = line.ok_or_else(|| io::Error::other("the supervisor has ended"))?;
        line.trim().trim_end_matches(" kB").parse().map_err(io::Error::other)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn report(subjects: &[(&'static str, SupervisorFigures)], with_agent: u64, arguments: &BenchSuperviseArgs) -> Report {
    let mebibytes = |kib: u64| kib as f64 / 1024.0;
    let row = |(name, figures): &(&str, SupervisorFigures)| {
        vec![
            (*name).to_owned(),
            format!("{:.1} s", figures.all_run.as_secs_f64()),
            format!("{:.1} s", figures.comes_back.as_secs_f64()),
            format!("{:.2} %", figures.idle),
            format!("{:.1} MiB", mebibytes(figures.memory_kib)),
        ]
    };
    let mut rows: Vec<Vec<String>> = subjects.iter().map(row).collect();
    let mut figures = Vec::new();
    if let Some((_, own)) = subjects.first() {
        let together = mebibytes(with_agent);
        let what = format!("a supervisor of {} services that do nothing", arguments.services);
        figures.push(Figure::new(what, format!("{:.2} % of a core", own.idle)));
        figures.push(Figure::new("memory of an idle agent and its supervisor", format!("{together:.1} MiB")));
        rows.push(vec![
            "with its agent".to_owned(),
            String::new(),
            String::new(),
            String::new(),
            format!("{together:.1} MiB"),
        ]);
    }
    if let [(_, own), (_, monit)] = subjects {
        let ratio = |own: f64, their: f64| format!("{:.2}", own / their);
        rows.push(vec![
            "windlass : monit".to_owned(),
            ratio(own.all_run.as_secs_f64(), monit.all_run.as_secs_f64()),
            ratio(own.comes_back.as_secs_f64(), monit.comes_back.as_secs_f64()),
            ratio(own.idle, monit.idle),
            ratio(own.memory_kib as f64, monit.memory_kib as f64),
        ]);
        figures = figures
            .into_iter()
            .enumerate()
            .map(|(index, figure)| match index {
                0 => figure.against(format!("{:.2} times monit's", own.idle / monit.idle)),
                _ => figure,
            })
            .collect();
    }
    let mut notes = vec![
        "The aim: a service that died runs again within two cycles (20 s), idle at most 0.5 % of a core, agent and supervisor in 10 MiB.",
    ];
    if subjects.len() < 2 {
        notes.push("With monit where programs are, or named by WINDLASS_MONIT, it is compared with.");
    }
    notes.extend(DEBUG_BUILD);
    let title = format!("{} services, and {} s in which nothing happens", arguments.services, arguments.seconds);
    let header = vec!["Supervisor", "All Run", "Comes Back", "Idle", "Memory"];
    Report { tables: vec![Table { title: Some(title), header, rows, notes, ..Table::default() }], figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_is_compared_with_monit_and_counted_with_its_agent() {
        let figures = |idle, memory_kib| SupervisorFigures {
            all_run: Duration::from_secs(4),
            comes_back: Duration::from_secs(8),
            idle,
            memory_kib,
        };
        let arguments = BenchSuperviseArgs { services: 500, seconds: 60, agent: None };
        let subjects = [("windlass", figures(0.2, 4096)), ("monit", figures(0.4, 8192))];
        let report = report(&subjects, 9216, &arguments);
        assert_eq!(report.tables[0].rows[2], ["with its agent", "", "", "", "9.0 MiB"]);
        assert_eq!(report.tables[0].rows[3], ["windlass : monit", "1.00", "1.00", "0.50", "0.50"]);
        assert_eq!(report.figures[0].ratio.as_deref(), Some("0.50 times monit's"));
    }
}
