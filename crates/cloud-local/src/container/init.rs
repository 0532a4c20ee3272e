//! The first process of a container. It is a copy of the supervisor: nothing has to be in the image for it.
//!
//! With an init of the image's own, it becomes that. Otherwise it keeps the agent running itself, so that an agent that
//! ends, as agents do to take new settings, starts again among the mounts that it left.

use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use rustix::process::Signal;

use super::boot::Boot;
use super::confinement::Confinement;
use super::{cgroup, syscalls};
use crate::supervisor;

/// What the first process does.
#[derive(Clone)]
pub(crate) struct FirstProcess {
    pub(crate) boot: Boot,
    pub(crate) confinement: Confinement,
    /// Closes when the VM runs; before that, says why it does not.
    pub(crate) problems: Arc<PipeWriter>,
}

impl Executor for FirstProcess {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let Err(error) = self.run();
        let program = self.boot.command().into_iter().next().unwrap_or_default();
        let _ = (&*self.problems).write_all(format!("cannot run {program}: {error}").as_bytes());
        Err(ExecutorError::Other(error.to_string()))
    }
}

impl FirstProcess {
    fn run(&self) -> io::Result<std::convert::Infallible> {
        let _ = rustix::thread::set_name(c"windlass-init");
        // The VM does not outlive its supervisor.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        let command = self.boot.command();
        let [program, arguments @ ..] = command.as_slice() else {
            return Err(io::Error::other("there is no command"));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        if self.confinement == Confinement::Nesting && self.boot != Boot::Systemd {
            cgroup::make_room_for_containers()?;
        }
        syscalls::restrict(self.confinement)
            .map_err(|error| io::Error::other(format!("its system calls cannot be filtered: {error}")))?;
        if !matches!(self.boot, Boot::Agent { .. }) {
            return Err(command.exec());
        }
        // Closed with the others; the copy goes on.
        let problems = self.problems.try_clone()?;
        close_all_but(&problems)?;
        supervisor::keep_running_as_init(command, problems)
    }
}

/// Closes what the supervisor had open, its lock above all: it is the supervisor that runs the VM, not this copy.
fn close_all_but(kept: &PipeWriter) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2 && *descriptor != kept.as_raw_fd())
        .collect();
    for descriptor in open {
        // The one that listed them is closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}
