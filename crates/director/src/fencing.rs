//! The operator's command that makes sure that a VM is dead which its cloud cannot reach, so that another one may take its place.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use windlass_contract::VmCid;
use windlass_planning::names::{DeploymentName, InstanceName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencingSettings {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}

/// How long a command may take unless its operator says something else.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A VM that its cloud cannot reach.
#[derive(Debug)]
pub(crate) struct Stranded<'a> {
    pub deployment: &'a DeploymentName,
    pub instance: &'a InstanceName,
    pub cpi: &'a str,
    pub vm: &'a VmCid,
    /// What the cloud says.
    pub why: &'a str,
}

/// why a VM does not count as dead
#[derive(Debug, thiserror::Error)]
pub(crate) enum FencingError {
    /// the command cannot be run
    #[error("the fencing command {} cannot be run", program.display())]
    NotRun {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// the command did not end
    #[error("the fencing command did not end within {0:?}")]
    Late(Duration),
    #[error("the fencing command ended with {status}: {said}")]
    Failed {
        status: std::process::ExitStatus,
        /// The last line that it printed.
        said: String,
    },
}

/// Asks the operator's command to make sure that a VM is dead. Only its success means so.
pub(crate) async fn fence(settings: &FencingSettings, stranded: &Stranded<'_>) -> Result<(), FencingError> {
    let (program, arguments) = settings.command.split_first().map_or(("", &[][..]), |(program, rest)| (program, rest));
    let mut command = tokio::process::Command::new(program);
    command
        .args(arguments)
        .env("WINDLASS_DEPLOYMENT", stranded.deployment.as_str())
        .env("WINDLASS_INSTANCE", stranded.instance.as_str())
        .env("WINDLASS_CPI", stranded.cpi)
        .env("WINDLASS_VM_CID", stranded.vm.as_str())
        .env("WINDLASS_REASON", stranded.why)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let not_run = |source| FencingError::NotRun { program: program.into(), source };
    let running = command.spawn().map_err(not_run)?.wait_with_output();
    let output = tokio::time::timeout(settings.timeout, running).await;
    let output = output.map_err(|_| FencingError::Late(settings.timeout))?.map_err(not_run)?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stderr, output.stdout].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let said = printed.iter().find_map(|text| text.lines().last()).unwrap_or("it printed nothing").to_owned();
    Err(FencingError::Failed { status: output.status, said })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn fenced(script: &str, timeout: Duration) -> Result<(), String> {
        let settings = FencingSettings { command: ["sh", "-c", script].map(str::to_owned).to_vec(), timeout };
        let vm = VmCid::new("vm-1").unwrap();
        let stranded = Stranded {
            deployment: &"d".into(),
            instance: &"web/u-1".into(),
            cpi: "",
            vm: &vm,
            why: "n2 does not answer",
        };
        fence(&settings, &stranded).await.map_err(|error| windlass_contract::explain(&error))
    }

    /// Two VMs with one address and one disk would be worse than none.
    #[tokio::test]
    async fn only_a_command_that_succeeds_in_time_declares_a_vm_dead() {
        let long = Duration::from_secs(30);
        let right = "test \"$WINDLASS_VM_CID $WINDLASS_INSTANCE $WINDLASS_REASON\" = 'vm-1 web/u-1 n2 does not answer'";
        assert_eq!(fenced(right, long).await, Ok(()));
        let refused = fenced("echo asking; echo the socket is still on >&2; exit 3", long).await.unwrap_err();
        assert!(refused.contains("exit status: 3") && refused.contains("the socket is still on"), "{refused}");
        assert!(fenced("kill -9 $$", long).await.unwrap_err().contains("signal"));
        let late = fenced("exec sleep 30", Duration::from_millis(50)).await.unwrap_err();
        assert!(late.contains("did not end within 50ms"), "{late}");
        let settings = FencingSettings { command: vec!["/nowhere/fence".to_owned()], timeout: long };
        let vm = VmCid::new("vm-1").unwrap();
        let stranded = Stranded { deployment: &"d".into(), instance: &"i".into(), cpi: "", vm: &vm, why: "" };
        let error = fence(&settings, &stranded).await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/fence cannot be run"), "{error}");
    }
}
