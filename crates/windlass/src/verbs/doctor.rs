//! `windlass doctor`: what of this machine Windlass can use, and what to do about the rest. Looks and tries, and changes nothing.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use windlass_contract::{MiB, Object, explain};
use windlass_cpi_client::{Cpi, CpiCommand, CpiOptions, Environment};
use windlass_director::settings::{CpiChoice, Settings};
use windlass_installation::own_programs;
use windlass_render::{Ruby, RubySetup};

use crate::background_director::BackgroundDirector;
use crate::cli::Global;
use crate::demo;
use crate::failure::Failure;
use crate::formats;
use crate::screen::Screen;
use crate::table::Table;

/// Less than this is soon full.
const LITTLE_SPACE: u64 = 2 << 30;
/// `info` needs no cloud.
const CPI_PATIENCE: Duration = Duration::from_secs(30);
/// Each agent that is talked to, and each task, takes a few.
const FEW_DESCRIPTORS: u64 = 1024;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something works less well, or not at all, that not everybody needs.
    Limited,
    /// A director cannot run.
    Bad,
}

/// What was found.
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    remedy: String,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Good, found: found.into(), remedy: String::new() }
    }

    fn limited(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Limited, found: found.into(), remedy: remedy.into() }
    }

    fn bad(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, verdict: Verdict::Bad, found: found.into(), remedy: remedy.into() }
    }
}

pub(crate) async fn run(screen: &mut Screen, flags: &Global) -> Result<(), Failure> {
    let state_dir = flags.state_dir.clone().or_else(windlass_durable::state_dir::default).ok_or(Failure::NoStateDir)?;
    let mut findings =
        vec![state(&state_dir), space(&state_dir), port(&state_dir), containers(&state_dir), jobs(&state_dir)];
    findings.extend(cpi(&state_dir).await);
    findings.extend([ruby(), control_groups(), loop_devices(), descriptors()]);
    findings.extend(PROGRAMS.iter().map(program));
    findings.extend([demos(&demo::of_the_past())]);
    let is = |what: &str, verdict| findings.iter().any(|it| it.what == what && it.verdict == verdict);
    let bad = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count();
    let verdict = match (bad, is(CONTAINERS, Verdict::Good)) {
        (0, true) => "A director can run here; its VMs can be containers.",
        (0, false) => "A director can run here; its VMs are processes.",
        _ => "A director cannot run here.",
    };
    screen.table(&if screen.is_for_people() { for_people(findings) } else { table(findings) });
    screen.told_apart(verdict);
    if bad > 0 { Err(Failure::Unfit { problems: bad }) } else { Ok(()) }
}

/// The state directory, or the nearest folder above it that is there.
fn nearest(state_dir: &Path) -> PathBuf {
    state_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned()
}

fn state(state_dir: &Path) -> Finding {
    let folder = nearest(state_dir);
    match tempfile::tempdir_in(&folder) {
        Ok(_) => Finding::good("state directory", state_dir.display().to_string()),
        Err(error) => Finding::bad(
            "state directory",
            // The error's own words name the file that was tried, which nobody knows.
            format!("cannot write in {}: {}", folder.display(), error.kind()),
            "name another place with --state-dir, or run as its owner",
        ),
    }
}

fn space(state_dir: &Path) -> Finding {
    match rustix::fs::statvfs(nearest(state_dir)) {
        Err(error) => Finding::limited("free space", format!("cannot be told: {error}"), ""),
        Ok(space) => {
            let free = space.f_bavail * space.f_frsize;
            let found = format!("{} free", formats::size_mib(MiB(free >> 20)));
            match free < LITTLE_SPACE {
                true => Finding::limited("free space", found, "disks are sparse, but stemcells and data need space"),
                false => Finding::good("free space", found),
            }
        }
    }
}

/// Where `director.yml` says that the director listens. One that cannot be read is told elsewhere.
fn port(state_dir: &Path) -> Finding {
    let address = Settings::load(None, state_dir).unwrap_or_default().listen;
    if let Some(running) = BackgroundDirector::found(state_dir) {
        return Finding::good("director's port", format!("the director here has it (process {})", running.pid()));
    }
    match TcpListener::bind(address) {
        Ok(_) => Finding::good("director's port", format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let remedy = "a director may run here already; 'windlass director --listen ADDR:PORT' takes another";
            Finding::limited("director's port", format!("{address} is in use"), remedy)
        }
        Err(error) => Finding::bad("director's port", format!("{address}: {error}"), "give another with --listen"),
    }
}

const CONTAINERS: &str = "containers";

/// Tried, not guessed: root in somebody's container may do less than root.
fn containers(state_dir: &Path) -> Finding {
    // Whether there can be overlays depends on the file system.
    let folder = tempfile::tempdir_in(nearest(state_dir)).or_else(|_| tempfile::tempdir());
    let tried = folder.and_then(|folder| windlass_cloud_local::try_containers(folder.path()));
    match tried {
        Ok(()) => Finding::good(CONTAINERS, "VMs can be containers, with addresses and disks of their own"),
        Err(error) if rustix::process::geteuid().is_root() => Finding::limited(
            CONTAINERS,
            format!("not here: {error}; VMs are processes"),
            "give this container more privileges (CAP_SYS_ADMIN and CAP_NET_ADMIN), or use another machine",
        ),
        Err(_) => Finding::limited(CONTAINERS, "not without privileges; VMs are processes", "run the director as root"),
    }
}

/// Of VMs that are processes; in containers they always run.
fn jobs(state_dir: &Path) -> Finding {
    const WHAT: &str = "jobs in processes";
    let folder = tempfile::tempdir_in(nearest(state_dir)).or_else(|_| tempfile::tempdir());
    let tried =
        folder.and_then(|folder| Ok(windlass_cloud_local::try_own_root(folder.path(), &std::env::current_exe()?)));
    match tried {
        Ok(Ok(())) => Finding::good(WHAT, "VMs that are processes can have a root file system of their own"),
        Ok(Err(refusal)) => Finding::limited(WHAT, refusal.why, refusal.remedy),
        Err(error) => Finding::limited(WHAT, format!("cannot be tried: {error}"), ""),
    }
}

/// The CPI of somebody else that `director.yml` names, asked as a director asks it. Those that are built in need no check of their own.
async fn cpi(state_dir: &Path) -> Option<Finding> {
    const WHAT: &str = "CPI";
    let settings = match Settings::load(None, state_dir) {
        Ok(settings) => settings,
        Err(error) => return Some(Finding::bad("director.yml", explain(&error), "correct it")),
    };
    let CpiChoice::Executable { exec, arguments } = settings.cpi else { return None };
    let shown = exec.display().to_string();
    let arguments = arguments.into_iter().map(Into::into).collect();
    let command = CpiCommand { executable: exec, arguments, environment: Environment::Director };
    let options = CpiOptions {
        director_uuid: "windlass-doctor".to_owned(),
        properties: Object::new(),
        preferred_version: settings.preferred_version,
        deadline: CPI_PATIENCE,
    };
    Some(match Cpi::new(command, options).negotiated().await {
        Ok(negotiated) => Finding::good(WHAT, format!("{shown} answers; version {} is spoken", negotiated.version)),
        Err(error) => Finding::bad(
            WHAT,
            format!("{shown}: {}", explain(&error)),
            "see what it says, and correct it in director.yml",
        ),
    })
}

/// Tried, not guessed: it needs user namespaces.
fn ruby() -> Finding {
    const WHAT: &str = "Ruby for templates";
    let remedy = "only jobs that 'inspect-release' shows to need Ruby are refused";
    match std::env::current_exe().map(|program| Ruby::new(RubySetup::caged(program)).attempt()) {
        Ok(Ok(version)) => Finding::good(WHAT, format!("{version}, in a cage")),
        Ok(Err(error)) => Finding::limited(WHAT, error.to_string(), remedy),
        Err(error) => Finding::limited(WHAT, error.to_string(), remedy),
    }
}

fn control_groups() -> Finding {
    let root = Path::new("/sys/fs/cgroup");
    let found = match (root.join("cgroup.controllers").exists(), root.join("memory").exists()) {
        (true, _) => "version 2",
        (false, true) => "version 1",
        (false, false) => {
            let remedy = "mount them at /sys/fs/cgroup; without them containers have no limits and cannot be made";
            return Finding::limited("control groups", "none", remedy);
        }
    };
    Finding::good("control groups", found)
}

fn loop_devices() -> Finding {
    match fs::File::options().read(true).write(true).open("/dev/loop-control") {
        Ok(_) => Finding::good("loop devices", "disks of containers can be images"),
        Err(error) if rustix::process::geteuid().is_root() => {
            let remedy = "'modprobe loop', or give this container /dev/loop-control and /dev/loop*";
            Finding::limited("loop devices", error.to_string(), remedy)
        }
        Err(_) => Finding::good("loop devices", "not needed: disks are folders"),
    }
}

fn descriptors() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    match limit {
        Some(limit) if limit < FEW_DESCRIPTORS => {
            Finding::limited("open files", found, "'ulimit -n 8192', or LimitNOFILE= in the service")
        }
        _ => Finding::good("open files", found),
    }
}

/// A program, what it is for, and the package that has it.
struct Program {
    names: &'static [&'static str],
    purpose: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 5] = [
    Program { names: &["mkfs.ext4", "resize2fs", "e2fsck"], purpose: "disks of containers", package: "e2fsprogs" },
    Program { names: &["mount", "umount"], purpose: "disks of containers", package: "mount" },
    Program { names: &["nft"], purpose: "VMs that may reach out ('outbound')", package: "nftables" },
    Program { names: &["mmdebstrap"], purpose: "'stemcell build --debian'", package: "mmdebstrap" },
    Program { names: &["ssh"], purpose: "'windlass ssh', and create-env's ssh_tunnel", package: "openssh-client" },
];

fn program(program: &Program) -> Finding {
    let missing: Vec<&str> = program.names.iter().filter(|name| own_programs::find(name).is_none()).copied().collect();
    if missing.is_empty() {
        return Finding::good(program.names[0], format!("there, for {}", program.purpose));
    }
    let remedy = format!("for {}: install {}", program.purpose, program.package);
    Finding::limited(program.names[0], format!("{} missing", missing.join(", ")), remedy)
}

/// Demos that were kept or killed.
fn demos(places: &[PathBuf]) -> Finding {
    let shown: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    match shown.as_slice() {
        [] => Finding::good("earlier demos", "none is left"),
        left => Finding::limited("earlier demos", left.join(", "), "'windlass demo --end' ends and removes them"),
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Bad => "bad",
        }
    }
}

/// How wide the last column is for people.
const COLUMN: usize = 52;

/// Narrow enough for a terminal: what to do stands below what was found.
fn for_people(findings: Vec<Finding>) -> Table {
    let row = |finding: Finding| {
        let found = formats::folded(&finding.found, COLUMN, 0);
        let remedy = formats::folded(&format!("> {}", finding.remedy), COLUMN, 2);
        let cell = if finding.remedy.is_empty() { found } else { format!("{found}\n{remedy}") };
        vec![finding.what.to_owned(), finding.verdict.word().to_owned(), cell]
    };
    Table {
        header: vec!["Check", "Verdict", "Found, and what to do"],
        rows: findings.into_iter().map(row).collect(),
        ours: true,
        ..Table::default()
    }
}

fn table(findings: Vec<Finding>) -> Table {
    let row = |finding: Finding| {
        vec![finding.what.to_owned(), finding.verdict.word().to_owned(), finding.found, finding.remedy]
    };
    Table {
        content: "checks",
        header: vec!["Check", "Verdict", "Found", "Remedy"],
        rows: findings.into_iter().map(row).collect(),
        ours: true,
        ..Table::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_there_yet_is_judged_by_the_nearest_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("not/yet/there");
        assert_eq!(nearest(&state_dir), folder.path());
        assert_eq!(state(&state_dir).verdict, Verdict::Good);
        assert!(!state_dir.exists(), "looking makes nothing");
        let nobody = state(Path::new("/proc/nobody/can/write/here"));
        assert_eq!(nobody.verdict, Verdict::Bad);
        assert!(nobody.remedy.contains("--state-dir"));
    }

    #[test]
    fn the_port_is_the_one_that_director_yml_names() {
        let folder = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        std::fs::write(folder.path().join("director.yml"), format!("listen: {address}\n")).unwrap();
        let finding = port(folder.path());
        assert_eq!((finding.verdict, finding.found), (Verdict::Limited, format!("{address} is in use")));
    }

    #[test]
    fn demos_that_are_left_are_named_with_the_way_to_end_them() {
        assert_eq!(demos(&[]).verdict, Verdict::Good);
        let left = demos(&["/tmp/windlass-demo-a".into(), "/tmp/windlass-demo-b".into()]);
        assert_eq!(
            (left.verdict, left.found.as_str()),
            (Verdict::Limited, "/tmp/windlass-demo-a, /tmp/windlass-demo-b")
        );
        assert!(left.remedy.contains("windlass demo --end"));
    }

    #[test]
    fn who_pastes_it_into_a_report_pastes_its_labels() {
        let shown = table(vec![Finding::limited("mmdebstrap", "missing", "install it")]).for_scripts();
        assert_eq!(
            shown,
            "Check       Verdict  Found    Remedy\nmmdebstrap  limited  missing  install it\n\n1 check\n"
        );
    }

    #[test]
    fn it_fits_a_terminal_of_80_columns() {
        let finding =
            Finding::limited("state directory", "long words ".repeat(20), "and what to do about it ".repeat(9));
        let shown = for_people(vec![finding]).for_people(str::to_owned);
        assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let there = Program { names: &["sh"], purpose: "everything", package: "dash" };
        assert_eq!(program(&there).verdict, Verdict::Good);
        let missing = Program { names: &["sh", "no-such-program"], purpose: "nothing", package: "nowhere" };
        let finding = program(&missing);
        assert_eq!((finding.verdict, finding.found.as_str()), (Verdict::Limited, "no-such-program missing"));
        assert!(finding.remedy.contains("install nowhere"));
    }
}
