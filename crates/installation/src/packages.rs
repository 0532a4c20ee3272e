//! Packages of a CPI on this machine: compiled as BOSH's command line does it, or unpacked where they come compiled.
//!
//! A package is compiled at the very place where it is used, because many write that place into what they build. A mark beside it
//! says that it is whole, and of what it was made; without the mark it is made again.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use windlass_durable::lock::FileLock;
use windlass_durable::{file, kill_point};

use crate::error::{InstallError, file as failed};
use crate::plan::PlannedPackage;
use crate::tools;

/// How much of a log an error shows.
const SHOWN_BYTES: u64 = 16 << 10;
const SHOWN_LINES: usize = 20;
/// How often a packaging script is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long a script that a killed run left may go on.
const PATIENCE: Duration = Duration::from_secs(30);
/// The folder of marks; no package has such a name.
const MARKS: &str = ".windlass";

/// Where packages are installed.
#[derive(Debug, Clone)]
pub struct PackageFolder {
    /// What scripts and programs know as `BOSH_PACKAGES_DIR`.
    pub packages: PathBuf,
    /// For sources while they are compiled.
    pub sources: PathBuf,
    /// For what packaging scripts say.
    pub logs: PathBuf,
}

/// What became of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installed {
    /// It was there already.
    Before,
    /// It came compiled.
    Unpacked,
    Compiled,
}

impl PackageFolder {
    /// Installs packages, each after what it needs. `report` is told of each before it begins and after it ended.
    pub fn install(
        &self,
        packages: &[PlannedPackage],
        stop: &AtomicBool,
        mut report: impl FnMut(&PlannedPackage, Option<Installed>),
    ) -> Result<(), InstallError> {
        if packages.is_empty() {
            return Ok(());
        }
        for folder in [self.marks(), self.sources.clone(), self.logs.clone()] {
            file::create_private_dir(&folder).map_err(failed(&folder))?;
        }
        let lock = self.lock()?;
        for package in packages {
            if stop.load(Ordering::SeqCst) {
                return Err(InstallError::Stopped);
            }
            report(package, None);
            let installed = self.install_one(package, stop)?;
            report(package, Some(installed));
        }
        drop(lock);
        Ok(())
    }

    /// Held by packaging scripts as well: one that outlives a killed run keeps the next one out of its folder.
    fn lock(&self) -> Result<FileLock, InstallError> {
        let path = self.marks().join("lock");
        let lock = FileLock::acquire(&path, PATIENCE).map_err(|error| match error.kind() {
            std::io::ErrorKind::TimedOut => InstallError::InUse { folder: self.packages.clone() },
            _ => failed(&path)(error),
        })?;
        lock.share_with_children().map_err(failed(&path))?;
        Ok(lock)
    }

    fn marks(&self) -> PathBuf {
        self.packages.join(MARKS)
    }

    fn install_one(&self, package: &PlannedPackage, stop: &AtomicBool) -> Result<Installed, InstallError> {
        let (target, mark) = (self.packages.join(&package.name), self.marks().join(format!("{}.mark", package.name)));
        if target.is_dir() && fs::read_to_string(&mark).is_ok_and(|known| known == package.key) {
            return Ok(Installed::Before);
        }
        file::remove_file(&mark).map_err(failed(&mark))?;
        file::remove_tree(&target).map_err(failed(&target))?;
        let installed = if package.is_compiled {
            fs::create_dir(&target).map_err(failed(&target))?;
            unpack(package, &target)?;
            Installed::Unpacked
        } else {
            self.compile(package, &target, stop)?;
            Installed::Compiled
        };
        // What the script wrote comes to the disk before the mark that vouches for it.
        let flushed = File::open(&target).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
        flushed.map_err(failed(&target))?;
        file::write(&mark, package.key.as_bytes(), file::PRIVATE).map_err(failed(&mark))?;
        Ok(installed)
    }

    fn compile(&self, package: &PlannedPackage, target: &Path, stop: &AtomicBool) -> Result<(), InstallError> {
        // Scripts also write beside their source, so what is beside it goes with it.
        let around = self.sources.join(&package.name);
        let source = around.join("source");
        file::remove_tree(&around).map_err(failed(&around))?;
        fs::create_dir_all(&source).map_err(failed(&source))?;
        unpack(package, &source)?;
        fs::create_dir(target).map_err(failed(target))?;
        if source.join("packaging").is_file() {
            self.run_script(package, &source, target, stop)?;
        }
        file::remove_tree(&around).map_err(failed(&around))
    }

    /// Runs `packaging` as BOSH does: with bash, in the folder of the source, and with the caller's environment.
    fn run_script(
        &self,
        package: &PlannedPackage,
        source: &Path,
        target: &Path,
        stop: &AtomicBool,
    ) -> Result<(), InstallError> {
        let path = self.logs.join(format!("{}.log", package.name));
        file::remove_file(&path).map_err(failed(&path))?;
        let log = File::create_new(&path).map_err(failed(&path))?;
        let both = log.try_clone().map_err(failed(&path))?;
        kill_point("before a packaging script");
        let child = Command::new("bash")
            .args(["-x", "packaging"])
            .current_dir(source)
            .env("BOSH_COMPILE_TARGET", source)
            .env("BOSH_INSTALL_TARGET", target)
            .env("BOSH_PACKAGE_NAME", &package.name)
            .env("BOSH_PACKAGE_VERSION", &package.version)
            .env("BOSH_PACKAGES_DIR", &self.packages)
            .env_remove(windlass_durable::kill_point::KILL_AT)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(both)
            // Ctrl-C is ours to pass on, to all that the script started.
            .process_group(0)
            .spawn()
            .map_err(failed(Path::new("bash")))?;
        let ended = wait(child, stop).map_err(failed(Path::new("bash")))?;
        kill_point("after a packaging script");
        match ended {
            None => Err(InstallError::Stopped),
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                let code = status.code().map_or_else(|| status.to_string(), |code| format!("exited with {code}"));
                let (ended, end) = (code + &tools::missing_for(source), end_of(&path));
                Err(InstallError::Compile { package: package.name.clone(), ended, log: path, end })
            }
        }
    }
}

/// Waits for a script; none if it was ended because somebody wants to stop.
fn wait(mut child: Child, stop: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if stop.load(Ordering::SeqCst) {
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // It is our child and was not waited for, so the number is its own.
            group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}

/// With `tar`, which reads every compression that releases come in. The archive's names were looked at when the release was read.
fn unpack(package: &PlannedPackage, folder: &Path) -> Result<(), InstallError> {
    let output = Command::new("tar")
        .args(["--no-same-owner", "-xf"])
        .arg(&package.archive)
        .arg("-C")
        .arg(folder)
        .stdin(Stdio::null())
        // Ctrl-C ends us between two packages, not an archive in the middle.
        .process_group(0)
        .output()
        .map_err(failed(Path::new("tar")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(not_unpacked(&package.name, output.status, &output.stderr))
}

fn not_unpacked(package: &str, ended: ExitStatus, stderr: &[u8]) -> InstallError {
    // A Ctrl-C that comes before it has a group of its own ends it as well.
    let interrupts = [Signal::HUP, Signal::INT, Signal::TERM].map(Signal::as_raw);
    if ended.signal().is_some_and(|signal| interrupts.contains(&signal)) {
        return InstallError::Stopped;
    }
    let said = match String::from_utf8_lossy(stderr).trim() {
        "" => format!("tar ended with {ended}"),
        said => said.to_owned(),
    };
    InstallError::Unpack { package: package.to_owned(), said }
}

fn end_of(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_BYTES)))?;
        let mut end = Vec::new();
        file.take(SHOWN_BYTES).read_to_end(&mut end)?;
        Ok(end)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    shown.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{CpiPlan, JobReference};
    use crate::testing::{TestRelease, cpi_job};
    use windlass_release::Release;

    #[test]
    fn an_archive_that_was_interrupted_is_not_called_broken_and_others_have_a_reason() {
        let (interrupted, failed) = (ExitStatus::from_raw(Signal::INT.as_raw()), ExitStatus::from_raw(2 << 8));
        assert!(matches!(not_unpacked("words", interrupted, b""), InstallError::Stopped));
        let told = not_unpacked("words", failed, b"").to_string();
        assert_eq!(told, "the package 'words' cannot be unpacked: tar ended with exit status: 2");
        assert!(not_unpacked("words", failed, b"tar: no\n").to_string().ends_with("unpacked: tar: no"));
    }

    struct Site {
        folder: tempfile::TempDir,
    }

    impl Site {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn place(&self) -> PackageFolder {
            let below = |name: &str| self.folder.path().join(name);
            PackageFolder { packages: below("packages"), sources: below("sources"), logs: below("logs") }
        }

        fn install(&self, release: Release) -> Result<Vec<(String, Installed)>, InstallError> {
            let releases = [release];
            let job = JobReference { release: "clouds".to_owned(), job: "cloud_cpi".to_owned() };
            let plan = CpiPlan::new(&releases, &[job])?;
            let mut told = Vec::new();
            let report = |package: &PlannedPackage, ended: Option<Installed>| {
                told.extend(ended.map(|ended| (package.name.clone(), ended)));
            };
            self.place().install(&plan.packages, &AtomicBool::new(false), report)?;
            Ok(told)
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.folder.path().join(path)).unwrap()
        }
    }

    const LIB: &str = "echo \"$BOSH_PACKAGE_NAME/$BOSH_PACKAGE_VERSION\" > \"$BOSH_INSTALL_TARGET/lib\"\n\
        pwd > \"$BOSH_INSTALL_TARGET/from\"; echo \"$BOSH_COMPILE_TARGET\" >> \"$BOSH_INSTALL_TARGET/from\"\n";
    /// Moves its source beside itself, as some do to get a folder around it.
    const APP: &str =
        "mkdir ../src && mv packaging ../src/; cat \"$BOSH_PACKAGES_DIR/lib/lib\" > \"$BOSH_INSTALL_TARGET/app\"\n";

    fn release(lib: &str, app: &str) -> TestRelease {
        TestRelease::new("clouds")
            .package("app", &["lib"], app)
            .package("lib", &[], lib)
            .job(&cpi_job("cloud_cpi", &["app"]))
    }

    #[test]
    fn packages_are_compiled_in_order_with_the_variables_of_bosh_and_only_once() {
        let site = Site::new();
        let made = release(LIB, APP);
        let first = site.install(made.read()).unwrap();
        assert_eq!(first, [("lib".to_owned(), Installed::Compiled), ("app".to_owned(), Installed::Compiled)]);
        assert!(site.read("packages/app/app").starts_with("lib/"));
        let from = site.read("packages/lib/from");
        let (here, told) = from.trim_end().split_once('\n').unwrap();
        assert_eq!(here, told);
        assert!(!Path::new(here).exists(), "sources are removed");
        let again = site.install(made.read()).unwrap();
        assert!(again.iter().all(|(_, installed)| *installed == Installed::Before), "{again:?}");
        // What was compiled with something else is compiled again.
        let other = site.install(release(&format!("{LIB}#"), APP).read()).unwrap();
        assert!(other.iter().all(|(_, installed)| *installed == Installed::Compiled), "{other:?}");
    }

    #[test]
    fn compiled_releases_are_unpacked_as_they_are() {
        let site = Site::new();
        let made =
            TestRelease::new("clouds").compiled().package("app", &[], "ready").job(&cpi_job("cloud_cpi", &["app"]));
        assert_eq!(site.install(made.read()).unwrap(), [("app".to_owned(), Installed::Unpacked)]);
        assert_eq!(site.read("packages/app/script"), "ready");
    }

    #[test]
    fn a_script_that_fails_is_shown_with_its_last_lines_and_its_log_and_is_run_again() {
        let site = Site::new();
        let script = "touch \"$BOSH_INSTALL_TARGET/half\"\nfor i in $(seq 100); do echo line $i; done\nno-such-compiler x\nexit 7\n";
        let error = site.install(release(LIB, script).read()).unwrap_err();
        let log = site.folder.path().join("logs/app.log");
        let text = error.to_string();
        assert!(
            text.contains("its packaging script exited with 7") && text.contains(&log.display().to_string()),
            "{text}"
        );
        assert!(text.contains("no-such-compiler: command not found") && !text.contains("line 20\n"), "{text}");
        assert!(fs::read_to_string(log).unwrap().contains("line 20\n"));
        let mended = site.install(release(LIB, APP).read()).unwrap();
        assert_eq!(mended, [("lib".to_owned(), Installed::Before), ("app".to_owned(), Installed::Compiled)]);
        assert!(!site.folder.path().join("packages/app/half").exists());
    }

    #[test]
    fn a_stop_ends_the_script_and_what_it_started() {
        let site = Site::new();
        let (flag, place) = (AtomicBool::new(false), site.place());
        let made = release(
            "sleep 1000 & echo $! > \"$BOSH_INSTALL_TARGET/pid\"; mv \"$BOSH_INSTALL_TARGET/pid\" \"$BOSH_INSTALL_TARGET/go\"; wait",
            APP,
        );
        let releases = [made.read()];
        let job = JobReference { release: "clouds".to_owned(), job: "cloud_cpi".to_owned() };
        let plan = CpiPlan::new(&releases, &[job]).unwrap();
        let started = place.packages.join("lib/go");
        let stopped = std::thread::scope(|scope| {
            let run = scope.spawn(|| place.install(&plan.packages, &flag, |_, _| {}));
            while !started.exists() {
                std::thread::yield_now();
            }
            flag.store(true, Ordering::SeqCst);
            run.join().unwrap()
        });
        assert!(matches!(stopped, Err(InstallError::Stopped)), "{stopped:?}");
        let pid: u32 = fs::read_to_string(started).unwrap().trim().parse().unwrap();
        let is_gone = || windlass_durable::process::ProcessIdentity::of(pid).map_or(true, |it| !it.is_running());
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !is_gone() {
            assert!(std::time::Instant::now() < deadline, "the script's child runs on");
            std::thread::sleep(LOOK);
        }
    }
}
