//! `windlass bench cpi-call`: what one call to a CPI costs, against starting a process that does nothing.
//!
//! All subjects are run in turn, so that whatever else the machine does slows all of them down alike.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use windlass_certify::CommandLine;
use windlass_installation::own_programs;

use crate::arguments::BenchCpiCallArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, percentile};

/// Rounds before the first that counts: files come into the page cache.
const WARM_UP: usize = 10;

/// How often memory is measured; it hardly varies.
const MEMORY_RUNS: usize = 5;

pub(crate) fn measure(arguments: &BenchCpiCallArgs) -> Result<Report, BenchError> {
    // Lives as long as the CPI that keeps its state there.
    let state = tempfile::tempdir().map_err(|source| failed("make a state folder", source))?;
    let cpi = match &arguments.cpi {
        Some(line) => {
            let line: CommandLine = line.parse().map_err(BenchError::Command)?;
            std::iter::once(line.executable.into()).chain(line.arguments).collect()
        }
        None => own_cpi(state.path()).map_err(|source| failed("prepare the CPI", source))?,
    };
    let mut subjects = [
        MeasuredProgram::new("/bin/true", vec!["/bin/true".into()], None),
        MeasuredProgram::new("info", cpi.clone(), Some(request("info", &[]))),
        MeasuredProgram::new("has_vm", cpi, Some(request("has_vm", &["vm-00000000-0000-4000-8000-000000000000"]))),
    ];
    for round in 0..WARM_UP + arguments.runs {
        // Nobody always goes first.
        subjects.rotate_left(1);
        for subject in &mut subjects {
            let time = subject.time()?;
            if round >= WARM_UP {
                subject.times.push(time);
            }
        }
    }
    subjects.sort_by_key(|subject| subject.rank());
    for subject in subjects.iter_mut().filter(|subject| subject.request.is_some()) {
        for _ in 0..MEMORY_RUNS {
            let peak = subject.peak_memory().map_err(|source| failed("measure the memory of a call", source))?;
            subject.peak_kib = subject.peak_kib.max(Some(peak));
        }
    }
    Ok(Report { tables: vec![table(&subjects, arguments.runs)], figures: quoted(&subjects) })
}

/// The CPI of the simulated cloud, with nothing in it.
fn own_cpi(state: &Path) -> io::Result<Vec<OsString>> {
    let config = state.join("cpi.json");
    let properties = json!({"sim": {"state_dir": state.join("cloud")}});
    std::fs::write(&config, json!({"cloud": {"plugin": "sim", "properties": properties}}).to_string())?;
    let (executable, arguments) = own_programs::cpi_command()?;
    let before = std::iter::once(executable.into()).chain(arguments);
    Ok(before.chain(["sim".into(), "--config".into(), config.into()]).collect())
}

/// As the original director writes it.
fn request(method: &str, arguments: &[&str]) -> Vec<u8> {
    let context = json!({"director_uuid": "bench", "request_id": "cpi-000001"});
    let mut request = json!({"method": method, "arguments": arguments, "context": context});
    if method != "info" {
        request["api_version"] = json!(2);
    }
    request.to_string().into_bytes()
}

fn failed(doing: &'static str, source: io::Error) -> BenchError {
    BenchError::Failed { doing, source }
}

/// Something that is run many times.
struct MeasuredProgram {
    name: &'static str,
    command: Vec<OsString>,
    request: Option<Vec<u8>>,
    times: Vec<Duration>,
    peak_kib: Option<u64>,
}

impl MeasuredProgram {
    fn new(name: &'static str, command: Vec<OsString>, request: Option<Vec<u8>>) -> Self {
        Self { name, command, request, times: Vec::new(), peak_kib: None }
    }

    /// The order in the table.
    fn rank(&self) -> usize {
        ["/bin/true", "info", "has_vm"].iter().position(|name| *name == self.name).unwrap_or(usize::MAX)
    }

    fn start(&self, stdout: impl Into<Stdio>) -> io::Result<Running> {
        let (program, arguments) =
            self.command.split_first().ok_or_else(|| io::Error::other("the CPI's command line is empty"))?;
        let mut command = Command::new(program);
        // As under the original director.
        command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs(["TMPDIR", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let mut child = command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null()).spawn()?;
        if let (Some(request), Some(mut stdin)) = (&self.request, child.stdin.take()) {
            // A CPI may answer without reading its request: only the answer counts.
            let _ = stdin.write_all(request);
        }
        Ok(Running(child))
    }

    /// From the start of the process to the end of its answer and of itself.
    fn time(&self) -> Result<Duration, BenchError> {
        let started = Instant::now();
        let mut answer = Vec::new();
        let ran = self.start(Stdio::piped()).and_then(|mut running| {
            if let Some(mut stdout) = running.0.stdout.take() {
                stdout.read_to_end(&mut answer)?;
            }
            running.0.wait()
        });
        ran.map_err(|source| failed("run the CPI", source))?;
        let time = started.elapsed();
        if self.request.is_some() {
            let answer = windlass_cpi_client::response::parse(&answer);
            let reason = answer.map_or_else(Some, |answer| answer.error.map(|error| error.to_string()));
            if let Some(reason) = reason {
                return Err(BenchError::Answer { call: self.name, reason });
            }
        }
        Ok(time)
    }

    /// The most memory that a call had at once, in KiB.
    ///
    /// The kernel knows it only while the process is there, so the process is held up at its last step: its answer
    /// goes into a pipe that is full. (What `wait4` tells includes the memory of the process that started it.)
    fn peak_memory(&self) -> io::Result<u64> {
        let (mut answer, stdout) = io::pipe()?;
        let filling = fill(&stdout)?;
        let mut running = self.start(stdout)?;
        let peak = running.peak_when_idle()?;
        let mut rest = Vec::new();
        answer.read_to_end(&mut rest)?;
        running.0.wait()?;
        if rest.len() > filling { Ok(peak) } else { Err(io::Error::other("the CPI did not answer")) }
    }
}

/// Writes until nothing more goes in; tells how much did.
fn fill(mut pipe: &PipeWriter) -> io::Result<usize> {
    rustix::io::ioctl_fionbio(pipe, true)?;
    let mut filled = 0;
    loop {
        match pipe.write(&[b' '; 4096]) {
            Ok(written) => filled += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    rustix::io::ioctl_fionbio(pipe, false)?;
    Ok(filled)
}

/// A process that does not outlive us.
struct Running(Child);

impl Running {
    /// The peak once the process has waited for a while, which it does only for somebody to take its answer.
    fn peak_when_idle(&self) -> io::Result<u64> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut last, mut idle) = (0, 0);
        while idle < 30 {
            if Instant::now() > deadline {
                return Err(io::Error::other("the CPI did not come to an end within a minute"));
            }
            std::thread::sleep(Duration::from_millis(1));
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
            let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
            let peak = field("VmHWM:").trim_end_matches(" kB").parse().map_err(io::Error::other)?;
            idle = if peak == last && field("State:").starts_with('S') { idle + 1 } else { 0 };
            last = peak;
        }
        Ok(last)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Neither does anything to a process that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn quoted(subjects: &[MeasuredProgram]) -> Vec<Figure> {
    let Some((nothing, calls)) = subjects.split_first() else { return Vec::new() };
    let median = |subject: &MeasuredProgram| percentile(&subject.times, 50).as_secs_f64();
    let quote = |call: &MeasuredProgram| {
        let memory = call.peak_kib.unwrap_or_default() as f64 / 1024.0;
        let value = format!("{:.2} ms, {memory:.1} MiB", median(call) * 1000.0);
        let ratio = format!("{:.2} times starting {}", median(call) / median(nothing), nothing.name);
        Figure::new(format!("one CPI call ({}), from its start to its answer", call.name), value).against(ratio)
    };
    calls.iter().map(quote).collect()
}

fn table(subjects: &[MeasuredProgram], runs: usize) -> Table {
    let milliseconds = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
    let nothing = subjects.first().map(|subject| percentile(&subject.times, 50)).unwrap_or_default();
    let rows = subjects.iter().map(|subject| {
        let median = percentile(&subject.times, 50);
        vec![
            subject.name.to_owned(),
            milliseconds(median),
            milliseconds(percentile(&subject.times, 95)),
            format!("{:.2}", median.as_secs_f64() / nothing.as_secs_f64()),
            subject.peak_kib.map(|kib| format!("{:.1} MiB", kib as f64 / 1024.0)).unwrap_or_default(),
        ]
    });
    let mut notes = vec!["The aim: 'info' takes at most 2.0 times as long as /bin/true, in less than 8 MiB."];
    notes.extend(DEBUG_BUILD);
    Table {
        title: Some(format!("{runs} runs each, in turn, from the start of the process to its end")),
        header: vec!["Call", "Median", "95th Percentile", "Times /bin/true", "Peak Memory"],
        rows: rows.collect(),
        notes,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_its_own_and_read_at_its_end() {
        let script = "head -c 33554432 /dev/zero | tail -c 33554432 > /dev/null; echo answer";
        let small = MeasuredProgram::new("small", vec!["/bin/sh".into(), "-c".into(), "echo answer".into()], None);
        let peak = small.peak_memory().unwrap();
        assert!(peak > 100 && peak < 8192, "a shell of {peak} KiB");
        let silent = MeasuredProgram::new("silent", vec!["/bin/sh".into(), "-c".into(), "sleep 0.2".into()], None);
        assert!(silent.peak_memory().is_err(), "no answer, no figure");
        // What children need is not the process's own.
        let with_children = MeasuredProgram::new("children", vec!["/bin/sh".into(), "-c".into(), script.into()], None);
        assert!(with_children.peak_memory().unwrap() < 8192);
    }
}
