//! What goes wrong by configuration, and when.
//!
//! ```json
//! {"faults": [{"method": "create_vm", "nth": 2, "fault": "fail",
//!              "error": {"type": "Bosh::Clouds::VMCreationFailed", "ok_to_retry": true}},
//!             {"method": "attach_disk", "fault": "hang"}]}
//! ```
//!
//! Calls of a method that has faults are counted across processes, in the state folder. Repeated requests that the SDK
//! answers from its memory are not calls; a `has_vm` of its own is one.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;
use windlass_contract::Object;
use windlass_contract::cpi::methods::CreateVm;
use windlass_contract::cpi::{CpiError, ErrorType, Method};
use windlass_durable::file;
use windlass_durable::lock::FileLock;

use crate::agents::AgentBehaviour;

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub method: String,
    /// In which of its calls, counted from 1; in all of them if absent.
    #[serde(default)]
    pub nth: Option<u64>,
    pub fault: FaultKind,
    /// The error of a failure.
    #[serde(default)]
    pub error: Option<FaultError>,
    /// What is different in a bad agent.
    #[serde(default)]
    pub agent: Option<Object>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The call fails and does nothing.
    Fail,
    /// The call does its work, and then fails.
    FailAfter,
    /// The call does nothing and never ends.
    Hang,
    /// The process is killed between the intent and the effect.
    Die,
    /// The call does its work and answers something that is no answer.
    Garbage,
    /// `create_vm` succeeds, and the VM is gone.
    LoseVm,
    /// `create_vm` succeeds, and something is wrong with the VM's agent.
    BadAgent,
}

/// The error of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultError {
    /// Its wire name.
    #[serde(rename = "type", default = "cloud_error")]
    pub kind: ErrorType,
    /// What it says.
    #[serde(default)]
    pub message: Option<String>,
    /// Whether the caller may try again.
    #[serde(default)]
    pub ok_to_retry: bool,
}

fn cloud_error() -> ErrorType {
    ErrorType::CloudError
}

impl Fault {
    /// The error says what is wrong with this fault.
    pub(crate) fn check(&self) -> Result<(), String> {
        let fails = matches!(self.fault, FaultKind::Fail | FaultKind::FailAfter);
        if self.nth == Some(0) {
            return Err(format!("a fault of '{}' with 'nth' 0; calls are counted from 1", self.method));
        }
        if self.error.is_some() && !fails {
            return Err(format!("a fault of '{}' with an 'error' that is never answered", self.method));
        }
        if self.fault == FaultKind::LoseVm && self.method != CreateVm::NAME {
            return Err(format!("'lose_vm' for '{}'; only 'create_vm' can lose a VM", self.method));
        }
        if self.fault == FaultKind::BadAgent && self.method != CreateVm::NAME {
            return Err(format!("'bad_agent' for '{}'; only 'create_vm' makes agents", self.method));
        }
        match (&self.agent, self.fault == FaultKind::BadAgent) {
            (None, true) => return Err("a 'bad_agent' without an 'agent' that says what is wrong with it".to_owned()),
            (Some(_), false) => return Err(format!("a fault of '{}' with an 'agent' that is not bad", self.method)),
            (Some(agent), true) => {
                AgentBehaviour::default().with(agent).map_err(|error| format!("a bad 'agent': {error}"))?;
            }
            (None, false) => {}
        }
        Ok(())
    }

    fn error(&self) -> CpiError {
        let FaultError { kind, message, ok_to_retry } =
            self.error.clone().unwrap_or(FaultError { kind: cloud_error(), message: None, ok_to_retry: false });
        let message = message.unwrap_or_else(|| format!("'{}' fails because the simulation says so", self.method));
        CpiError { kind, message, ok_to_retry }
    }
}

/// The faults of a cloud, and what of them is to happen in this process.
#[derive(Debug)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    counts: PathBuf,
    dies: Cell<bool>,
    loses_vm: Cell<bool>,
    bad_agent: RefCell<Option<Object>>,
}

/// How long a call waits for its number.
const PATIENCE: Duration = Duration::from_secs(60);

impl Faults {
    /// `counts` is the folder in which calls are counted.
    pub(crate) fn new(faults: Vec<Fault>, counts: PathBuf) -> Self {
        Self { faults, counts, dies: Cell::default(), loses_vm: Cell::default(), bad_agent: RefCell::default() }
    }

    /// One call of `method`, with what goes wrong in it.
    pub(crate) async fn meet<T>(
        &self,
        method: &str,
        effect: impl FnOnce() -> Result<T, CpiError>,
    ) -> Result<T, CpiError> {
        let Some(fault) = self.next(method)? else { return effect() };
        match fault.fault {
            FaultKind::Fail => return Err(fault.error()),
            FaultKind::Hang => std::future::pending::<()>().await,
            FaultKind::Die => self.dies.set(true),
            FaultKind::LoseVm => self.loses_vm.set(true),
            FaultKind::BadAgent => *self.bad_agent.borrow_mut() = fault.agent.clone(),
            FaultKind::FailAfter | FaultKind::Garbage => {}
        }
        let answer = effect()?;
        match fault.fault {
            FaultKind::FailAfter => Err(fault.error()),
            FaultKind::Garbage => answer_garbage(),
            _ => {
                // A method that has no half-way, because it changes nothing.
                self.half_way();
                Ok(answer)
            }
        }
    }

    /// Between the intent and the effect.
    pub(crate) fn half_way(&self) {
        if self.dies.get() {
            let _ = kill_process(getpid(), Signal::KILL);
        }
    }

    /// Whether the VM that was just made is to be lost.
    pub(crate) fn loses_vm(&self) -> bool {
        self.loses_vm.get()
    }

    /// What is wrong with the agent of the VM that is being made.
    pub(crate) fn bad_agent(&self) -> Option<Object> {
        self.bad_agent.borrow().clone()
    }

    fn next(&self, method: &str) -> Result<Option<&Fault>, CpiError> {
        if !self.faults.iter().any(|fault| fault.method == method) {
            return Ok(None);
        }
        let number = count(&self.counts, method).map_err(|error| {
            CpiError::cpi(format!("cannot count the calls of '{method}' in {}: {error}", self.counts.display()))
        })?;
        Ok(self.faults.iter().find(|fault| fault.method == method && fault.nth.is_none_or(|nth| nth == number)))
    }
}

/// The number of this call of `method`.
fn count(folder: &Path, method: &str) -> io::Result<u64> {
    file::create_private_dir(folder)?;
    let _lock = FileLock::acquire(&folder.join(format!("{method}.lock")), PATIENCE)?;
    let path = folder.join(method);
    let before: u64 = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| io::Error::other(format!("{} is no number", path.display())))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    file::write(&path, format!("{}\n", before + 1).as_bytes(), file::PRIVATE)?;
    Ok(before + 1)
}

/// The process's own stdout, which the SDK takes away so that nothing but the answer is written to it.
static STDOUT: OnceLock<File> = OnceLock::new();

/// Keeps a way around the SDK to stdout, for [`FaultKind::Garbage`].
pub(crate) fn keep_stdout() {
    if let Ok(stdout) = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3) {
        let _ = STDOUT.set(File::from(stdout));
    }
}

fn answer_garbage<T>() -> Result<T, CpiError> {
    let Some(mut stdout) = STDOUT.get() else {
        return Err(CpiError::cpi("this process has no stdout for garbage"));
    };
    let _ = stdout.write_all(b"{\"result\": garbage");
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(value: serde_json::Value) -> Fault {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_fault_that_would_do_nothing_is_refused() {
        for (wrong, words) in [
            (json!({"method": "create_vm", "fault": "fail", "nth": 0}), "counted from 1"),
            (json!({"method": "create_vm", "fault": "hang", "error": {}}), "never answered"),
            (json!({"method": "create_disk", "fault": "lose_vm"}), "only 'create_vm'"),
            (json!({"method": "create_disk", "fault": "bad_agent", "agent": {}}), "only 'create_vm'"),
            (json!({"method": "create_vm", "fault": "bad_agent"}), "without an 'agent'"),
            (json!({"method": "create_vm", "fault": "bad_agent", "agent": {"slow": true}}), "slow"),
            (json!({"method": "create_vm", "fault": "hang", "agent": {"delay": 1}}), "not bad"),
        ] {
            assert!(fault(wrong).check().unwrap_err().contains(words));
        }
        fault(json!({"method": "create_vm", "fault": "lose_vm", "nth": 1})).check().unwrap();
        assert!(serde_json::from_value::<Fault>(json!({"method": "create_vm", "fault": "fail", "nht": 1})).is_err());
    }

    #[tokio::test]
    async fn the_nth_call_fails_as_told_and_the_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let second = fault(json!({"method": "create_disk", "nth": 2, "fault": "fail",
            "error": {"type": "Bosh::Clouds::NoDiskSpace", "message": "full", "ok_to_retry": true}}));
        for number in 1..=3 {
            // As a process of its own would see it.
            let faults = Faults::new(vec![second.clone()], folder.path().join("calls"));
            let answer = faults.meet("create_disk", || Ok(())).await;
            let error = CpiError { kind: ErrorType::NoDiskSpace, message: "full".to_owned(), ok_to_retry: true };
            assert_eq!(answer, if number == 2 { Err(error) } else { Ok(()) });
            faults.meet("delete_disk", || Ok(())).await.unwrap();
        }
    }
}
