//! `windlass bench release`: a generated release with many packages is created, uploaded, and uploaded again, by us and by BOSH's
//! command line where it is at hand; and what an upload costs the director in memory.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;
use windlass_director_client::environment;

use crate::arguments::BenchReleaseArgs;
use crate::error::BenchError;
use crate::figures::{DEBUG_BUILD, Figure, Report, Table, mebibytes, milliseconds};
use crate::scratch_director::ScratchDirector;
use crate::stop::Stop;

/// How many packages a job has.
const PACKAGES_OF_A_JOB: usize = 30;
/// How many files a package has.
const FILES: usize = 3;

pub(crate) async fn measure(arguments: &BenchReleaseArgs) -> Result<Report, BenchError> {
    let mut stop = Stop::listen()?;
    let measured = stop.or(figures(arguments)).await;
    let measured = measured.map_err(|source| BenchError::Failed { doing: "measure releases", source })?;
    Ok(report(&measured, arguments))
}

/// What was done, and by whom.
struct MeasuredStep {
    what: &'static str,
    ours: Duration,
    theirs: Option<Duration>,
    /// Of the director, at most.
    kib: Option<u64>,
}

async fn figures(arguments: &BenchReleaseArgs) -> io::Result<Vec<MeasuredStep>> {
    let ours = std::env::current_exe()?;
    let mut best: Vec<MeasuredStep> = Vec::new();
    for _ in 0..arguments.runs {
        let mine = round(&ours, arguments).await?;
        let others = match &arguments.bosh {
            Some(bosh) => Some(round(bosh, arguments).await?),
            None => None,
        };
        for (place, step) in mine.into_iter().enumerate() {
            let theirs = others.as_ref().map(|others| others[place].time);
            match best.get_mut(place) {
                None => best.push(MeasuredStep { what: step.what, ours: step.time, theirs, kib: step.kib }),
                Some(known) => {
                    known.ours = known.ours.min(step.time);
                    known.theirs = known.theirs.min(theirs);
                    known.kib = known.kib.max(step.kib);
                }
            }
        }
    }
    Ok(best)
}

/// One step of a round.
struct Step {
    what: &'static str,
    time: Duration,
    kib: Option<u64>,
}

/// A release directory of its own, a home of its own, a director of its own.
async fn round(program: &Path, arguments: &BenchReleaseArgs) -> io::Result<Vec<Step>> {
    let folder = tempfile::tempdir()?;
    let release = folder.path().join("bench-release");
    generate(&release, arguments.packages, arguments.mib)?;
    let desk = Desk { program, home: folder.path(), release: &release };
    let tarball = folder.path().join("first.tgz");
    let created = desk.create(&tarball).await?;
    let mut director = ScratchDirector::new(&json!({}))?;
    director.start(None).await?;
    let idle_kib = director.idle_memory_kib().await?;
    let uploaded = desk.upload(&director, &tarball).await?;
    let kib = director.memory_kib("VmHWM:")?;
    // Another version, with one file changed.
    fs::write(release.join("src/package-0/0"), "changed")?;
    let second = folder.path().join("second.tgz");
    let created_again = desk.create(&second).await?;
    let uploaded_again = desk.upload(&director, &second).await?;
    let step = |what, time, kib| Step { what, time, kib };
    Ok(vec![
        step("create-release", created, None),
        step("create-release, one package changed", created_again, None),
        step("upload-release", uploaded, Some(kib)),
        step("upload-release, one package changed", uploaded_again, Some(director.memory_kib("VmHWM:")?)),
        step("the director before", Duration::ZERO, Some(idle_kib)),
    ])
}

struct Desk<'a> {
    program: &'a Path,
    home: &'a Path,
    release: &'a Path,
}

impl Desk<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        for name in ["BOSH_ENVIRONMENT", "BOSH_CA_CERT", "BOSH_CLIENT", "BOSH_CLIENT_SECRET"] {
            command.env_remove(name);
        }
        command.env("HOME", self.home).current_dir(self.home).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn create(&self, tarball: &Path) -> io::Result<Duration> {
        let mut command = self.command();
        command.args(["create-release", "--force", "--dir"]).arg(self.release).arg("--tarball").arg(tarball);
        timed(command).await
    }

    async fn upload(&self, director: &ScratchDirector, tarball: &Path) -> io::Result<Duration> {
        let environment = environment::in_state_dir(&director.state_dir()).map_err(io::Error::other)?;
        let mut command = self.command();
        command.env("BOSH_ENVIRONMENT", environment.url);
        command.env("BOSH_CA_CERT", environment.ca.unwrap_or_default());
        command.env("BOSH_CLIENT", environment.client.unwrap_or_default());
        command
            .env("BOSH_CLIENT_SECRET", environment.client_secret.map(|it| it.reveal().to_owned()).unwrap_or_default());
        command.args(["-n", "upload-release"]).arg(tarball);
        timed(command).await
    }
}

async fn timed(mut command: Command) -> io::Result<Duration> {
    let started = Instant::now();
    let output = command.output().await?;
    let took = started.elapsed();
    if output.status.success() {
        return Ok(took);
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(io::Error::other(format!("{:?} failed: {said}", command.as_std().get_program())))
}

/// A release directory whose packages have so many MiB together, which nothing can make smaller.
fn generate(release: &Path, packages: usize, mib: usize) -> io::Result<()> {
    let write = |path: &str, text: &str| {
        let path = release.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)
    };
    write("config/final.yml", "name: bench\n")?;
    write("config/blobs.yml", "--- {}\n")?;
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let size = (mib << 20) / packages / FILES;
    for package in 0..packages {
        // A chain of ten, then a new one.
        let needs = if package % 10 == 0 { String::new() } else { format!("package-{}", package - 1) };
        write(
            &format!("packages/package-{package}/spec"),
            &format!("---\nname: package-{package}\ndependencies: [{needs}]\nfiles: [package-{package}/**/*]\n"),
        )?;
        write(&format!("packages/package-{package}/packaging"), "set -e\ncp -a . ${BOSH_INSTALL_TARGET}\n")?;
        for file in 0..FILES {
            write(&format!("src/package-{package}/{file}"), "")?;
            noise.fill(&release.join(format!("src/package-{package}/{file}")), size)?;
        }
    }
    for job in 0..packages.div_ceil(PACKAGES_OF_A_JOB) {
        let first = job * PACKAGES_OF_A_JOB;
        let needs: Vec<String> =
            (first..packages.min(first + PACKAGES_OF_A_JOB)).map(|package| format!("package-{package}")).collect();
        write(
            &format!("jobs/job-{job}/spec"),
            &format!(
                "---\nname: job-{job}\ntemplates: {{run.erb: bin/start}}\npackages: [{}]\nproperties: {{}}\n",
                needs.join(", ")
            ),
        )?;
        write(&format!("jobs/job-{job}/monit"), "# nothing\n")?;
        write(&format!("jobs/job-{job}/templates/run.erb"), "#!/bin/bash\necho <%= spec.name %>\n")?;
    }
    Ok(())
}

/// Bytes without a pattern, the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, path: &Path, size: usize) -> io::Result<()> {
        let mut file = io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
        for _ in 0..size / 8 {
            file.write_all(&self.next().to_le_bytes())?;
        }
        file.flush()
    }
}

fn report(measured: &[MeasuredStep], arguments: &BenchReleaseArgs) -> Report {
    let ratio = |step: &MeasuredStep| {
        let theirs = step.theirs.filter(|theirs| !theirs.is_zero())?;
        Some(format!("{:.2} of BOSH's", step.ours.as_secs_f64() / theirs.as_secs_f64()))
    };
    let time = |time: Option<Duration>| time.filter(|time| !time.is_zero()).map(milliseconds).unwrap_or_default();
    let row = |step: &MeasuredStep| {
        let memory = step.kib.map(mebibytes).unwrap_or_default();
        vec![step.what.to_owned(), time(Some(step.ours)), time(step.theirs), ratio(step).unwrap_or_default(), memory]
    };
    let figure = |step: &MeasuredStep| {
        let memory = step.kib.map(|kib| format!(", the director at most {}", mebibytes(kib))).unwrap_or_default();
        let figure = Figure::new(step.what, format!("{}{memory}", milliseconds(step.ours)));
        match ratio(step) {
            Some(ratio) => figure.against(ratio),
            None => figure,
        }
    };
    let mut notes: Vec<&'static str> = DEBUG_BUILD.into_iter().collect();
    if arguments.bosh.is_none() {
        notes.push("BOSH's command line was not measured: name it with --bosh, or in WINDLASS_ORIGINAL_BOSH.");
    }
    let table = Table {
        content: "releases",
        title: Some(format!(
            "A release with {} packages and {} MiB, best of {}",
            arguments.packages, arguments.mib, arguments.runs
        )),
        header: vec!["Step", "Windlass", "BOSH", "Against", "Director's Memory"],
        rows: measured.iter().map(row).collect(),
        notes,
    };
    let quoted = measured.iter().filter(|step| !step.ours.is_zero());
    Report { tables: vec![table], figures: quoted.map(figure).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_that_is_measured_is_one() {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), 31, 1).unwrap();
        let directory = windlass_release_author::ReleaseDirectory::at(folder.path()).unwrap();
        assert!(directory.blobs().list().unwrap().is_empty());
        assert!(folder.path().join("jobs/job-1/spec").is_file() && !folder.path().join("jobs/job-2").exists());
        let size = fs::metadata(folder.path().join("src/package-30/2")).unwrap().len();
        assert_eq!(size, (1 << 20) / 31 / 3 / 8 * 8);
    }
}
