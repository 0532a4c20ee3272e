//! An errand on one instance: it runs to its end or until the task is cancelled, then its logs are fetched, and both are told.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use windlass_agent_client::{Agent, Begun};
use windlass_contract::{Object, explain};
use windlass_operations::steps::{Progress, StepError, StepId};
use windlass_planning::plan::InstancePlan;

use super::ErrandRun;
use crate::limits::beside_requests;
use crate::store::Event;
use crate::tasks::{OutputKind, TaskError, TaskLog, fetch_logs};

/// How long a cancelled errand may take to end: scripts have 10 s for it, and a hostile agent says for ever that they have not ended.
const CANCELLED: Duration = Duration::from_secs(60);
/// How long the logs of a cancelled errand may take: the user waits for its end.
const CANCELLED_LOGS: Duration = Duration::from_secs(10);

/// What an errand left.
#[derive(Debug, Deserialize)]
struct Ran {
    exit_code: i64,
    stdout: String,
    stderr: String,
}

/// Something that is needed later, and may be long. Each VM of many says a megabyte, and may make the director wait for its logs
/// after that: until then it is on the disk.
#[derive(Debug)]
enum PutBy {
    Here(String),
    /// Without a name, so that it goes with the process.
    There(File),
}

/// What is not worth a file.
const SHORT: usize = 16 << 10;

impl PutBy {
    fn new(folder: &Path, text: String) -> Result<Self, TaskError> {
        if text.len() <= SHORT {
            return Ok(Self::Here(text));
        }
        let written = beside_requests(|| {
            let mut file = tempfile::tempfile_in(folder)?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        });
        let file = written.map_err(|error: io::Error| {
            TaskError::Input(format!("the output of the errand cannot be kept: {error}"))
        })?;
        Ok(Self::There(file))
    }

    /// Does something with it, one after the other.
    fn with_text(self, work: impl FnOnce(&str)) -> Result<(), TaskError> {
        static IN_TURN: Mutex<()> = Mutex::new(());
        match self {
            Self::Here(text) => work(&text),
            Self::There(mut file) => beside_requests(|| {
                let _turn = IN_TURN.lock().unwrap_or_else(PoisonError::into_inner);
                let mut text = String::new();
                file.rewind()?;
                file.read_to_string(&mut text)?;
                work(&text);
                Ok(())
            })
            .map_err(|error: io::Error| {
                TaskError::Input(format!("the output of the errand cannot be read again: {error}"))
            })?,
        }
        Ok(())
    }
}

impl ErrandRun<'_> {
    pub(super) async fn on_instance(&self, instance: &InstancePlan) -> Result<(), TaskError> {
        let (store, errand) = (&self.director.store, &self.request.errand);
        let user = store.task(self.log.task()).await?.map(|task| task.user).unwrap_or_default();
        let event = Event {
            task: Some(self.log.task()),
            deployment: Some(self.deployment.to_string()),
            instance: Some(instance.label().into()),
            ..Event::new(&user, "run", "errand", Some(errand))
        };
        let begun = store.add_event(&event).await?;
        let result = self.run_and_fetch_logs(instance).await;
        match &result {
            Ok(exit_code) => {
                let context = Object::from_iter([("exit_code".to_owned(), json!(exit_code))]);
                store.end_event_with(begun, &context).await?;
            }
            Err(error) => store.end_event(begun, Some(&explain(error))).await?,
        }
        result.map(drop)
    }

    /// Gives its exit code.
    async fn run_and_fetch_logs(&self, instance: &InstancePlan) -> Result<i64, TaskError> {
        let missing = || TaskError::Input(format!("{} has no VM to run the errand on", instance.label()));
        // An errand may take hours: no more is in memory meanwhile than it takes to talk to the agent.
        let contact = self.director.store.contact(&instance.id).await?;
        let vm = contact.and_then(|contact| contact.vm).ok_or_else(missing)?;
        let agent = self.director.agents.of(&vm);
        self.refuse_old_agent(&agent, instance).await?;
        let stage = self.log.stage("Running errand", &[], 1);
        let ran = stage.part(&instance.label()).run(self.ask(&agent)).await?;
        let exit_code = ran.exit_code;
        let told = self.put_by(instance, ran)?;
        let stage = self.log.stage(&format!("Fetching logs for {}", instance.label()), &[], 1);
        let patience = if self.log.is_cancelled() { CANCELLED_LOGS } else { Duration::ZERO };
        let fetching = fetch_logs::fetch_blob(self.director, self.log, &vm, patience);
        let logs = stage.part("Finding and packing log files").run(fetching).await;
        let (blob, sha1) = logs.as_ref().map_or((None, None), |(blob, sha1)| (Some(blob), Some(sha1)));
        let logs_told = json!({"blobstore_id": blob, "sha1": sha1});
        told.with_text(|told| {
            let all_but_the_end = told.strip_suffix('}').unwrap_or_default();
            self.log.write(OutputKind::Result, &format!("{all_but_the_end},\"logs\":{logs_told}}}\n"));
        })?;
        self.ended_with(exit_code);
        if self.log.is_cancelled() {
            return Err(TaskError::Cancelled);
        }
        logs?;
        Ok(exit_code)
    }

    /// What is told of a run, but for its logs. Nothing of it stays in memory if it is long.
    fn put_by(&self, instance: &InstancePlan, ran: Ran) -> Result<PutBy, TaskError> {
        let told = json!({
            "instance": {"group": instance.group, "id": instance.id},
            "errand_name": self.request.errand,
            "exit_code": ran.exit_code,
            "stdout": ran.stdout,
            "stderr": ran.stderr,
        });
        PutBy::new(&self.director.folders.temporary(), told.to_string())
    }

    /// Agents of early versions run the first job only, whatever they are told.
    async fn refuse_old_agent(&self, agent: &Agent, instance: &InstancePlan) -> Result<(), TaskError> {
        let errand = &self.request.errand;
        if !self.by_job || agent.info().await.map_err(StepError::from)? >= 1 {
            return Ok(());
        }
        let digest = instance.spec.as_ref().and_then(|spec| spec.software.as_ref()).map(|software| &software.digest);
        let software = match digest {
            Some(digest) => self.director.store.software(digest).await?,
            None => None,
        };
        match software.and_then(|software| software.jobs.into_iter().next()) {
            Some(first) if first.name == *errand => Ok(()),
            _ => Err(TaskError::Input(format!(
                "Multiple jobs are configured on an older stemcell, and \"{errand}\" is not the first job"
            ))),
        }
    }

    /// The answer comes also after the errand was cancelled.
    async fn ask(&self, agent: &Agent) -> Result<Ran, TaskError> {
        let name = self.by_job.then(|| json!(self.request.errand));
        let begun = agent.begin("run_errand", name.into_iter().collect()).await.map_err(StepError::from)?;
        let value = match begun {
            Begun::Done(value) => value,
            Begun::Task(task) => {
                let end = agent.finish(&task);
                tokio::pin!(end);
                let early = tokio::select! {
                    value = &mut end => Some(value),
                    () = self.log.cancelled() => None,
                };
                match early {
                    Some(value) => value,
                    None => {
                        let ended = async {
                            agent.cancel_task(&task).await?;
                            end.await
                        };
                        let ended = tokio::time::timeout(CANCELLED, ended).await;
                        ended.map_err(|_| TaskError::Cancelled)?
                    }
                }
                .map_err(StepError::from)?
            }
        };
        serde_json::from_value(value).map_err(|error| {
            TaskError::Input(format!("the agent's answer to run_errand is not an exit code with output: {error}"))
        })
    }
}

/// Somebody who listens while a VM goes that nobody needs any more, which nobody can cancel and few want to read of.
#[derive(Debug)]
pub(super) struct Quiet(pub(super) TaskLog);

impl Progress for Quiet {
    fn status(&self, step: StepId) {
        self.0.debug(step.name());
    }

    fn cpi_log(&self, line: &str) {
        self.0.write(OutputKind::Cpi, &format!("{line}\n"));
    }

    fn warning(&self, message: &str) {
        self.0.warning(message);
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 192 VMs with a megabyte of output each, whose logs do not come, took 421 MiB.
    #[test]
    fn long_output_waits_on_the_disk_and_leaves_nothing_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        for (text, is_here) in [("x".repeat(SHORT), true), ("ä".repeat(SHORT), false)] {
            let put_by = PutBy::new(folder.path(), text.clone()).unwrap();
            assert_eq!(matches!(put_by, PutBy::Here(_)), is_here);
            let mut seen = String::new();
            put_by.with_text(|text| seen.push_str(text)).unwrap();
            assert!(seen == text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(PutBy::new(&folder.path().join("gone"), "x".repeat(SHORT + 1)).is_err());
    }
}
