//! What is told when jobs of an instance fail: which process of which job, or which script, with the last lines of its logs. They are fetched
//! by `fetch_logs`, which agents of every age know; what cannot be had in time is left out, and the failure stays what it was.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use windlass_agent_client::{CallError, Cancellation};
use windlass_archive::{Budget, Limits, Tarball};
use windlass_contract::explain;
use windlass_durable::file;
use windlass_operations::steps::{OperationError, StepError};
use windlass_planning::names::DeploymentName;
use windlass_planning::plan::InstancePlan;
use windlass_planning::records::VmRecord;
use windlass_planning::software::Software;

use super::fetch_logs::{FetchLogsError, fetch_some};
use super::ports_in_use;
use super::{TaskError, TaskLog};
use crate::Director;

/// How long an agent may take to pack and send the logs of jobs that failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may pack them. Then it is told to end that, because it would come to nothing else meanwhile.
const PACKING: Duration = Duration::from_secs(20);
/// How large the packed logs may be,
const LARGEST: u64 = 64 << 20;
/// and how large when they are unpacked; what comes after that is not read.
const LARGEST_UNPACKED: u64 = 512 << 20;
/// Folders and files, whatever becomes of them.
const MOST_ENTRIES: u64 = 10_000;
/// Of how many files the end is kept while they are read, and how much of each.
const MOST_FILES: usize = 200;
const LONGEST_END: usize = 32 << 10;
/// What is told: of so many failures so many files, of each so many lines.
const MOST_FAILURES: usize = 3;
const FILES: usize = 2;
const LINES: usize = 10;
const LONGEST_LINE: usize = 300;

/// BOSH's number for an instance whose jobs do not run.
const NOT_RUNNING: u32 = 400007;
/// BOSH's number for what an agent could not do.
const AGENT_FAILED: u32 = 450001;

/// Something that failed, and where its logs are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Failure {
    /// A process, and the job that it is of as far as that can be told.
    Process { name: String, job: Option<String> },
    /// A script of a job.
    Script { name: String, job: String },
}

impl Failure {
    fn job(&self) -> Option<&str> {
        match self {
            Self::Process { job, .. } => job.as_deref(),
            Self::Script { job, .. } => Some(job),
        }
    }

    fn told(&self) -> String {
        match self {
            Self::Process { name, job: Some(job) } => format!("process '{name}' of job '{job}' is not running"),
            Self::Process { name, job: None } => format!("process '{name}' is not running"),
            Self::Script { name, job } => format!("script '{name}' of job '{job}' failed"),
        }
    }

    /// Logs of a job that say the most about this come first.
    fn rank(&self, log: &Log) -> (bool, bool, bool, Reverse<u64>) {
        let file = log.file.as_str();
        let is_of_a_script = SCRIPTS.iter().any(|script| file.starts_with(&format!("{script}.")));
        let (is_other, is_named) = match self {
            Self::Process { name, .. } => (is_of_a_script, file.contains(name.as_str())),
            Self::Script { name, .. } => (!file.starts_with(&format!("{name}.")), true),
        };
        (is_other, !is_named, !file.contains("err"), Reverse(log.changed_at))
    }
}

const SCRIPTS: [&str; 7] = ["pre-start", "post-start", "pre-stop", "post-stop", "drain", "post-deploy", "bpm"];

/// The end of a file of a job's logs.
#[derive(Debug)]
struct Log {
    job: String,
    file: String,
    changed_at: u64,
    end: Vec<u8>,
}

/// A failure with what can be told about it; others stay as they are.
pub(super) async fn explained(
    director: &Director,
    log: &TaskLog,
    instance: &InstancePlan,
    vm: Option<&VmRecord>,
    error: TaskError,
) -> TaskError {
    let Some(cause) = cause(&error) else { return error };
    let software = software_of(director, instance).await;
    let (code, message, failures) = match cause {
        StepError::NotRunning { failing, .. } => {
            let message = format!(
                "'{}' is not running after update. Review logs for failed jobs: {}",
                instance.label(),
                failing.join(", ")
            );
            let mut failures = Vec::new();
            for name in failing {
                let job = job_of(director, software.as_ref(), name).await;
                failures.push(Failure::Process { name: name.clone(), job });
            }
            (NOT_RUNNING, message, failures)
        }
        StepError::Agent(CallError::Exception { message, .. }) => (AGENT_FAILED, explain(&error), scripts_in(message)),
        _ => return error,
    };
    let Some(vm) = vm.filter(|_| !failures.is_empty()) else { return TaskError::refused(code, message) };
    let told = match tokio::time::timeout(PATIENCE, logs_of(director, vm, &failures)).await {
        Ok(Ok(logs)) => {
            let told = told(&failures, &logs);
            let in_the_way = in_the_way(director, vm, &told).await;
            if in_the_way.is_empty() { told } else { format!("{told}\n{}", in_the_way.join("\n")) }
        }
        Ok(Err(FetchLogsError::Cancelled)) => {
            log.debug(&format!("the logs of failed jobs were not packed within {PACKING:?}"));
            told(&failures, &[])
        }
        Ok(Err(error)) => {
            log.debug(&format!("the logs of failed jobs were not fetched: {}", explain(&error)));
            told(&failures, &[])
        }
        Err(_) => {
            log.debug(&format!("the logs of failed jobs were not fetched within {PATIENCE:?}"));
            told(&failures, &[])
        }
    };
    TaskError::refused(code, format!("{message}\n{told}"))
}

/// The other VMs that have a port that a job wanted.
async fn in_the_way(director: &Director, vm: &VmRecord, told: &str) -> Vec<String> {
    let lines: Vec<String> = told.lines().map(str::to_owned).collect();
    let find = move || {
        let ports = ports_in_use::ports_in(&lines);
        ports.into_iter().map(|port| (port, ports_in_use::vms_listening_on(port))).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for (port, vms) in tokio::task::spawn_blocking(find).await.unwrap_or_default() {
        for other in vms.iter().filter(|other| **other != vm.cid.as_str()) {
            let who = listener(director, vm.cid.as_str(), other).await;
            found.push(format!(
                "port {port} is in use by {who}: VMs in process isolation share the ports of the machine; choose another port, or \
                 use isolation: container"
            ));
        }
    }
    found
}

/// What is told of another VM that listens on a port; what belongs to other teams is not named.
async fn listener(director: &Director, vm: &str, other: &str) -> String {
    let owner = async |cid: &str| director.store.owner_of_vm(cid).await.ok().flatten();
    let Some((deployment, instance)) = owner(other).await else { return format!("VM {other}") };
    let teams = async |deployment: &DeploymentName| {
        director.store.teams_of(deployment).await.ok().flatten().unwrap_or_default()
    };
    let own = match owner(vm).await {
        Some((own, _)) => teams(&own).await,
        None => Vec::new(),
    };
    // Deployments of nobody are the admins', who see everything.
    match own.is_empty() || own == teams(&deployment).await {
        true => format!("VM {other}, {instance} of '{deployment}'"),
        false => "a VM of somebody else".to_owned(),
    }
}

/// Why an operation failed, if jobs could be the reason.
fn cause(error: &TaskError) -> Option<&StepError> {
    fn of_operation(error: &OperationError) -> &StepError {
        match &error.cause {
            StepError::Part(part) => of_operation(part),
            cause => cause,
        }
    }
    match error {
        TaskError::Operation(error) => Some(of_operation(error)),
        TaskError::Step(StepError::Part(part)) => Some(of_operation(part)),
        TaskError::Step(cause) => Some(cause),
        _ => None,
    }
}

/// `1 of 2 pre-start scripts failed. Failed Jobs: b. Successful Jobs: a.`
fn scripts_in(message: &str) -> Vec<Failure> {
    let parse = || {
        let (before, after) = message.split_once(" scripts failed. Failed Jobs: ")?;
        let name = before.rsplit(' ').next()?;
        let jobs = after.split('.').next()?;
        let script = |job: &str| Failure::Script { name: name.to_owned(), job: job.trim().to_owned() };
        Some(jobs.split(',').map(script).collect())
    };
    parse().unwrap_or_default()
}

async fn software_of(director: &Director, instance: &InstancePlan) -> Option<Software> {
    let digest = &instance.spec.as_ref()?.software.as_ref()?.digest;
    director.store.software(digest).await.ok().flatten()
}

/// The job whose `monit` file has a process. Names that a template makes are not seen; then it is a job that is called alike, or the
/// only one.
async fn job_of(director: &Director, software: Option<&Software>, process: &str) -> Option<String> {
    let jobs = &software?.jobs;
    for job in jobs {
        if director.library.monit_files(job).await.iter().any(|text| checked(text).any(|name| name == process)) {
            return Some(job.name.clone());
        }
    }
    let alike = jobs.iter().find(|job| process.starts_with(&job.name));
    let only = jobs.first().filter(|_| jobs.len() == 1);
    alike.or(only).map(|job| job.name.clone())
}

/// The names that a `monit` file gives to what it checks.
fn checked(monit: &str) -> impl Iterator<Item = &str> {
    monit.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| word.eq_ignore_ascii_case("check"))?;
        words.nth(1).map(|name| name.trim_matches('"'))
    })
}

/// The logs of the jobs that failed.
async fn logs_of(director: &Director, vm: &VmRecord, failures: &[Failure]) -> Result<Vec<Log>, FetchLogsError> {
    let mut filters: Vec<String> = failures.iter().filter_map(Failure::job).map(|job| format!("{job}/**/*")).collect();
    filters.sort();
    filters.dedup();
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let path = director.folders.temporary().join(format!("failed-jobs-{}", uuid::Uuid::new_v4()));
    let begun = Instant::now();
    let cancellation = Cancellation::when(move || begun.elapsed() > PACKING);
    let fetched = fetch_some(director, vm, ("job", &filters), &path, LARGEST, cancellation).await;
    let from = path.clone();
    let read = match fetched {
        Ok(_) => tokio::task::spawn_blocking(move || ends(&from)).await.map_err(io::Error::other),
        Err(error) => {
            // What it left is of no use to anybody.
            let _ = file::remove_file(&path);
            return Err(error);
        }
    };
    let _ = file::remove_file(&path);
    Ok(read?)
}

/// The ends of all files, as far as they can be read.
fn ends(path: &Path) -> Vec<Log> {
    let mut logs = Vec::new();
    let Ok(packed) = File::open(path) else { return logs };
    let limits = Limits { bytes: LARGEST_UNPACKED, entries: MOST_ENTRIES, time: PATIENCE };
    let archive = Tarball::within(GzDecoder::new(packed), &Budget::new(limits));
    // An archive that is damaged or takes too much is read up to there.
    let _ = archive.each(
        |error| error,
        |entry| {
            let name = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let Some((job, file)) = name.split_once('/').filter(|_| entry.header().entry_type().is_file()) else {
                return Ok(());
            };
            let changed_at = entry.header().mtime().unwrap_or_default();
            let end = end_of(entry)?;
            if !end.is_empty() && logs.len() < MOST_FILES {
                logs.push(Log { job: job.to_owned(), file: file.to_owned(), changed_at, end });
            }
            Ok(())
        },
    );
    logs
}

fn end_of(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut end = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return Ok(end);
        }
        end.extend_from_slice(&piece[..length]);
        if end.len() > 2 * LONGEST_END {
            end.drain(..end.len() - LONGEST_END);
        }
    }
}

fn told(failures: &[Failure], logs: &[Log]) -> String {
    let mut text = Vec::new();
    for failure in failures.iter().take(MOST_FAILURES) {
        let mut files: Vec<&Log> = logs.iter().filter(|log| Some(log.job.as_str()) == failure.job()).collect();
        files.sort_by_key(|log| failure.rank(log));
        if files.is_empty() {
            text.push(format!("{}; it left no log that could be fetched", failure.told()));
        }
        for log in files.into_iter().take(FILES) {
            text.push(format!("{}; the last lines of {}/{}:", failure.told(), log.job, harmless(&log.file)));
            text.extend(last_lines(&log.end).into_iter().map(|line| format!("  {line}")));
        }
    }
    if failures.len() > MOST_FAILURES {
        text.push(format!("and {} more", failures.len() - MOST_FAILURES));
    }
    text.join("\n")
}

fn last_lines(end: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(end);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LINES)).map(|line| harmless(line)).collect()
}

/// What a VM wrote must not steer a terminal, nor be without end.
fn harmless(line: &str) -> String {
    let mut shown = String::new();
    for (number, letter) in line.chars().enumerate() {
        if number == LONGEST_LINE {
            shown.push('…');
            break;
        }
        let turns_text = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        match letter {
            '\t' => shown.push(' '),
            letter if letter.is_control() || turns_text => shown.extend(letter.escape_unicode()),
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(files: &[(&str, u64, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let compressed = flate2::write::GzEncoder::new(file.reopen().unwrap(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(compressed);
        for (name, changed_at, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(*changed_at);
            archive.append_data(&mut header, name, *content).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
        file
    }

    fn process(name: &str, job: &str) -> Failure {
        Failure::Process { name: name.into(), job: Some(job.into()) }
    }

    #[tokio::test]
    async fn who_has_a_port_is_told_without_the_names_of_other_teams() {
        let bench = crate::testing::TestDirector::new().await;
        let store = &bench.director.store;
        for (deployment, teams) in [("shop", &["shop"][..]), ("shop-2", &["shop"]), ("vault", &["bank"]), ("all", &[])]
        {
            let teams: Vec<String> = teams.iter().map(|team| (*team).to_owned()).collect();
            store.add_deployment(&deployment.into(), &teams).await.unwrap();
        }
        store
            .tamper(
                "INSERT INTO instances (id, deployment, instance_group, position, bootstrap, state, converged)
                 SELECT name, name, 'web', 0, 1, 'started', 1 FROM deployments",
            )
            .await;
        store
            .tamper(
                "INSERT INTO vms (cid, instance, agent_id, cpi, record, ready, created_at)
                 SELECT 'vm-' || id, id, id, '', '{}', 1, 0 FROM instances",
            )
            .await;
        let told = async |vm: &str, other: &str| listener(&bench.director, vm, other).await;
        assert_eq!(told("vm-shop", "vm-shop-2").await, "VM vm-shop-2, web/shop-2 of 'shop-2'");
        assert_eq!(told("vm-shop", "vm-vault").await, "a VM of somebody else");
        assert_eq!(told("vm-shop", "vm-all").await, "a VM of somebody else");
        assert_eq!(told("vm-all", "vm-vault").await, "VM vm-vault, web/vault of 'vault'");
        assert_eq!(told("vm-shop", "vm-unknown").await, "VM vm-unknown");
    }

    #[test]
    fn the_logs_that_say_the_most_are_told_and_nothing_in_them_steers_a_terminal() {
        let many: String = (0..5000).map(|number| format!("line {number}\n")).collect();
        let logs = packed(&[
            ("./app/pre-start.stdout.log", 9, b"prepared\n"),
            ("./app/worker.stderr.log", 5, b"\x1b[31mno port\x1b[0m\n\xff\xe2\x80\xaegnp\nlast words\n\n"),
            ("./app/worker.stdout.log", 6, many.as_bytes()),
            ("./app/other.log", 8, b"fine\n"),
            ("./app/empty.log", 9, b""),
            ("./db/db.log", 9, b"of somebody else\n"),
        ]);
        let text = told(&[process("worker", "app")], &ends(logs.path()));
        let expected = "process 'worker' of job 'app' is not running; the last lines of app/worker.stderr.log:\n  \
            \\u{1b}[31mno port\\u{1b}[0m\n  \u{fffd}\\u{202e}gnp\n  last words\n\
            process 'worker' of job 'app' is not running; the last lines of app/worker.stdout.log:\n  line 4990\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("\n  line 4999"), "{text}");
    }

    #[test]
    fn what_is_told_has_an_end_and_damaged_logs_harm_nobody() {
        let long = "x".repeat(100_000);
        let logs = packed(&[
            ("app/app.log", 1, long.as_bytes()),
            ("b/b.log", 1, b"b"),
            ("c/c.log", 1, b"c"),
            ("d/d.log", 1, b"d"),
        ]);
        let failures = [process("app", "app"), process("b", "b"), process("c", "c"), process("d", "d")];
        let text = told(&failures, &ends(logs.path()));
        assert!(text.len() < 2000 && text.ends_with("\nand 1 more"), "{text}");
        let damaged = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(damaged.path(), b"this is no archive").unwrap();
        assert!(ends(damaged.path()).is_empty());
        let name = format!("app/{}", "x".repeat(8 << 20));
        let kept = ends(packed(&[("app/first.log", 1, b"1"), (&name, 1, b"2"), ("app/last.log", 1, b"3")]).path());
        assert_eq!(kept.iter().map(|log| log.file.as_str()).collect::<Vec<_>>(), ["first.log"]);
        assert_eq!(
            told(&failures[..1], &[]),
            "process 'app' of job 'app' is not running; it left no log that could be fetched"
        );
    }

    #[test]
    fn scripts_are_told_by_their_own_logs() {
        let failures = scripts_in(
            "agent a failed to run_script: 2 of 3 pre-start scripts failed. Failed Jobs: a, b. Successful Jobs: c.",
        );
        let script = |job: &str| Failure::Script { name: "pre-start".into(), job: job.into() };
        assert_eq!(failures, [script("a"), script("b")]);
        assert_eq!(scripts_in("the disk is full"), []);
        let logs = packed(&[
            ("a/a.log", 9, b"running\n"),
            ("a/pre-start.stdout.log", 1, b"begins\n"),
            ("a/pre-start.stderr.log", 1, b"no such file\n"),
        ]);
        let text = told(&failures[..1], &ends(logs.path()));
        let expected = "script 'pre-start' of job 'a' failed; the last lines of a/pre-start.stderr.log:\n  no such file\n\
            script 'pre-start' of job 'a' failed; the last lines of a/pre-start.stdout.log:\n  begins";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_monit_file_names_its_processes() {
        let monit = "check process web\n  with pidfile /x\ncheck process \"two\" with pidfile\n# check process no\n<% if p('x') %>\nCHECK PROGRAM three\n";
        assert_eq!(checked(monit).collect::<Vec<_>>(), ["web", "two", "three"]);
    }
}
