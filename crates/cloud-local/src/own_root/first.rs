//! The first process of a VM with a root of its own. It makes that root, goes there, and keeps the agent running.

use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::sched::CloneFlags;
use windlass_durable::file;

use super::keeper::context;
use super::{Purpose, Said, end_with_parent, ids, say, tree, wait_to_go_on};
use crate::container::boot::{AGENT, AGENT_CONFIG};
use crate::container::syscalls;
use crate::machine::Machine;
use crate::process_tree::MARK;
use crate::supervisor;

/// As stemcells set it.
const PATH: &str = "/var/vcap/bosh/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How many there may be in the user namespace of the process that writes it, and in those below.
const CGROUP_NAMESPACES: &str = "/proc/sys/user/max_cgroup_namespaces";

/// Is the first process of the VM in `folder`, and ends with it.
pub(super) fn run(folder: &Path, purpose: Purpose) -> ExitCode {
    if let Err(error) = prepare(folder, purpose) {
        let _ = say(&mut io::stdout(), &Said::Failed(error.to_string()));
        return ExitCode::FAILURE;
    }
    match (take_stdout(), purpose) {
        (Ok(_), Purpose::Trial) => ExitCode::SUCCESS,
        (Ok(problems), Purpose::Vm) => supervisor::keep_running_as_init(agent(folder), problems),
        (Err(_), _) => ExitCode::FAILURE,
    }
}

/// Makes the root and goes there.
fn prepare(folder: &Path, purpose: Purpose) -> io::Result<()> {
    let mut keeper = io::stdin().lock();
    end_with_parent()?;
    let _ = rustix::thread::set_name(c"windlass-init");
    let _ = rustix::process::setsid();
    wait_to_go_on(&mut keeper)?;
    // A VM with a namespace of control groups can mount them, and would find this machine's: the VM has no group of its own. Root by
    // number could end everybody in the director's group. A machine whose /proc/sys is read-only keeps that gap.
    let _ = file::write_in_place(Path::new(CGROUP_NAMESPACES), "0");
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).map_err(|error| context("make a mount namespace", error.into()))?;
    match purpose {
        Purpose::Trial => tree::make_smallest(folder)?,
        Purpose::Vm => {
            let is_root_alone = ids::is_root_alone()?;
            tree::make(&Machine::new(folder), is_root_alone)?;
            if is_root_alone {
                let words =
                    "root is the only user here, and 'vcap' another name of it: this machine gives us no other ids";
                writeln!(io::stderr(), "supervisor: {words}")?;
            }
        }
    }
    // What was mounted up to here cannot be changed from a user namespace that is younger.
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .map_err(|error| context("make a second user namespace", error.into()))?;
    say(&mut io::stdout(), &Said::Unshared)?;
    wait_to_go_on(&mut keeper)?;
    syscalls::restrict_keyrings()
        .map_err(|error| context("keep the VM from keyrings", io::Error::other(error.to_string())))?;
    end_with_parent()
}

/// The keeper listens there until the agent runs.
fn take_stdout() -> io::Result<PipeWriter> {
    let problems = io::stdout().as_fd().try_clone_to_owned()?;
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stdin(&null)?;
    Ok(problems.into())
}

fn agent(folder: &Path) -> Command {
    let mut command = Command::new(AGENT);
    command
        .args(["-P", "directory", "-C", AGENT_CONFIG, "-b", tree::BASE])
        .current_dir(tree::BASE)
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env(MARK, folder);
    command
}
