//! The actions of an agent, typed.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_contract::agent::UpdateSettings;
use windlass_contract::{DiskCid, DiskHint, Object};

use crate::agent::{Agent, Answer, Task};
use crate::error::{CallError, Stage};
use crate::limits::{self, LONGEST_NAME};

/// Whether the agent did what older ones do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    Done,
    /// The agent answered `unknown message`: it is older than the action.
    UnknownToAgent,
}

/// Why jobs are drained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drain<'a> {
    /// The instance gets this spec next.
    Update(&'a Object),
    /// The instance stops, its VM goes or its disks change; it gets this spec when it starts again.
    Shutdown(Option<&'a Object>),
}

/// Where an agent put what it compiled.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CompiledBlob {
    pub blobstore_id: String,
    /// A digest of any kind, as BOSH writes it.
    pub sha1: String,
}

/// What an agent says about itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AgentState {
    /// `running`, `stopped`, `starting`, `failing` or `unknown`.
    pub job_state: String,
    /// The networks of the last spec, as they were applied, with addresses that the VM found out itself.
    #[serde(default)]
    pub networks: Object,
    /// Load, memory, disks; only when asked for in full.
    #[serde(default)]
    pub vitals: Option<Value>,
    /// Processes of the jobs.
    #[serde(default)]
    pub processes: Vec<Value>,
    /// The rest of the last spec, and what else the agent says.
    #[serde(flatten)]
    pub other: Object,
}

impl AgentState {
    /// Whether something is mounted where the persistent disk belongs; none from agents that do not tell. Only when asked for in
    /// full. The original's `list_disk` is no proof: in a container it counts a disk as mounted once it is attached.
    pub fn has_store(&self) -> Option<bool> {
        let disks = self.vitals.as_ref()?.get("disk")?.as_object()?;
        (!disks.is_empty()).then(|| disks.contains_key("persistent"))
    }

    /// Whether the instance has this package installed since its last spec.
    pub fn has_package(&self, name: &str, version: &str, digest: &str) -> bool {
        let text = |key| self.other.get("packages")?.get(name)?.get(key)?.as_str();
        text("version") == Some(version) && text("sha1") == Some(digest)
    }

    /// The processes that do not run, as far as they fit into a line or two.
    pub fn failing_processes(&self) -> Vec<String> {
        some(failing(&self.processes))
    }

    /// How large the file system of the persistent disk is, in KiB; none from agents that do not tell, and without a disk of
    /// its own. Only when asked for in full.
    pub fn persistent_disk_kib(&self) -> Option<u64> {
        self.vitals.as_ref()?.pointer("/disk/persistent/kb")?.as_str()?.parse().ok()
    }
}

/// As many names as fit into a line or two.
pub(crate) fn some<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    const MOST: usize = 20;
    let short = |name: &str| name[..name.floor_char_boundary(LONGEST_NAME)].to_owned();
    names.take(MOST).map(short).collect()
}

/// The names of processes that do not run.
pub(crate) fn failing(processes: &[Value]) -> impl Iterator<Item = &str> {
    let fails = |process: &&Value| process.get("state").and_then(Value::as_str) != Some("running");
    processes.iter().filter(fails).filter_map(|process| process.get("name").and_then(Value::as_str))
}

/// The original's agents in containers copy everything, unmount both disks, and then take the new one for mounted elsewhere, because
/// they find it where it is attached. This is the last thing that they do, and mounting it is all that is left.
fn is_all_but_in_place(error: &CallError) -> bool {
    const LAST: &str = "Remounting new disk on original mountpoint";
    matches!(error, CallError::Exception { message, .. } if message.contains(LAST))
}

/// How long a shutting agent may take to answer.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(5);

impl Agent {
    /// Asks whether the agent is there.
    pub async fn ping(&self) -> Result<(), CallError> {
        match self.call("ping", vec![]).await? {
            Value::String(pong) if pong == "pong" => Ok(()),
            _ => Err(self.bad_reply("ping", "something else than pong".into())),
        }
    }

    pub(crate) async fn ping_within(&self, patience: Duration) -> Result<(), CallError> {
        match self.send("ping", vec![], patience, limits::bytes_of("ping")).await? {
            Answer::Done(Value::String(pong)) if pong == "pong" => Ok(()),
            _ => Err(self.bad_reply("ping", "something else than pong".into())),
        }
    }

    /// The version of the agent's actions; 0 for agents that do not know the question.
    pub async fn info(&self) -> Result<u32, CallError> {
        #[derive(Deserialize)]
        struct Info {
            api_version: u32,
        }
        match self.typed::<Info>("info", vec![]).await {
            Err(error) if error.is_unknown_message() => Ok(0),
            other => Ok(other?.api_version),
        }
    }

    /// What the agent says about itself; `full` adds vitals.
    pub async fn get_state(&self, full: bool) -> Result<AgentState, CallError> {
        let mut state: AgentState = self.typed("get_state", if full { vec![json!("full")] } else { vec![] }).await?;
        // It is a word; it stands in tables and events.
        state.job_state.truncate(state.job_state.floor_char_boundary(LONGEST_NAME));
        Ok(state)
    }

    /// Hands over the spec of the instance.
    pub async fn apply(&self, spec: &Object) -> Result<(), CallError> {
        self.call("apply", vec![json!(spec)]).await.map(drop)
    }

    /// Fetches what the spec needs, ahead of [`Agent::apply`].
    pub async fn prepare(&self, spec: &Object) -> Result<(), CallError> {
        self.call("prepare", vec![json!(spec)]).await.map(drop)
    }

    /// Compiles a package of the blob with its source; what it needs directly is in `dependencies`, by name, and in blobs as
    /// well.
    pub async fn compile_package(
        &self,
        source: (&str, &str),
        package: (&str, &str),
        dependencies: &Object,
    ) -> Result<CompiledBlob, CallError> {
        #[derive(Deserialize)]
        struct Answer {
            result: CompiledBlob,
        }
        let ((blob, digest), (name, version)) = (source, package);
        let arguments = vec![json!(blob), json!(digest), json!(name), json!(version), json!(dependencies)];
        Ok(self.typed::<Answer>("compile_package", arguments).await?.result)
    }

    /// Starts the jobs; does not wait until they run.
    pub async fn start(&self) -> Result<(), CallError> {
        self.call("start", vec![]).await.map(drop)
    }

    /// Stops the jobs and waits for it.
    pub async fn stop(&self) -> Result<(), CallError> {
        self.call("stop", vec![]).await.map(drop)
    }

    /// Drains the jobs and waits for it.
    pub async fn drain(&self, drain: Drain<'_>) -> Result<(), CallError> {
        let arguments = match drain {
            Drain::Update(spec) => vec![json!("update"), json!(spec)],
            Drain::Shutdown(None) => vec![json!("shutdown")],
            Drain::Shutdown(Some(spec)) => vec![json!("shutdown"), json!(spec)],
        };
        self.call("drain", arguments).await.map(drop)
    }

    /// Runs one of the jobs' scripts (`pre-start`, …) in all jobs that have it.
    pub async fn run_script(&self, name: &str, options: &Object) -> Result<Outcome, CallError> {
        self.tolerant("run_script", vec![json!(name), json!(options)]).await
    }

    /// Gives the agent a version of the names of all instances, which it fetches from the blob.
    pub async fn sync_dns(&self, blob: &str, digest: &str, version: i64) -> Result<Outcome, CallError> {
        self.tolerant("sync_dns", vec![json!(blob), json!(digest), json!(version)]).await
    }

    /// The mounted disks.
    pub async fn list_disk(&self) -> Result<Vec<DiskCid>, CallError> {
        self.typed("list_disk", vec![]).await
    }

    /// Tells the agent where an attached disk is.
    pub async fn add_persistent_disk(&self, cid: &DiskCid, hint: &DiskHint) -> Result<Outcome, CallError> {
        self.tolerant("add_persistent_disk", vec![json!(cid), json!(hint)]).await
    }

    /// Makes the agent forget where a disk is; one that it does not know is a success.
    pub async fn remove_persistent_disk(&self, cid: &DiskCid) -> Result<Outcome, CallError> {
        self.tolerant("remove_persistent_disk", vec![json!(cid)]).await
    }

    /// Mounts a disk that the agent knows, or that `hint` tells about.
    pub async fn mount_disk(&self, cid: &DiskCid, hint: Option<&DiskHint>) -> Result<(), CallError> {
        let arguments = std::iter::once(json!(cid)).chain(hint.map(|hint| json!(hint))).collect();
        self.call("mount_disk", arguments).await.map(drop)
    }

    /// Tells the agent where an attached disk is and mounts it, in the words that this agent understands.
    pub async fn add_and_mount_disk(&self, cid: &DiskCid, hint: &DiskHint) -> Result<(), CallError> {
        match self.add_persistent_disk(cid, hint).await? {
            Outcome::Done => self.mount_disk(cid, None).await,
            Outcome::UnknownToAgent => self.mount_disk_as_before(cid, hint).await,
        }
    }

    /// Mounts a disk in the words of agents to which `add_persistent_disk` is unknown.
    pub async fn mount_disk_as_before(&self, cid: &DiskCid, hint: &DiskHint) -> Result<(), CallError> {
        // An agent that knows neither name takes the hint with the mount.
        let _ = self.tolerant("update_persistent_disk", vec![json!(cid), json!(hint)]).await?;
        self.mount_disk(cid, Some(hint)).await
    }

    /// Unmounts a disk; one that is not mounted is a success. Returns the agent's words.
    pub async fn unmount_disk(&self, cid: &DiskCid) -> Result<String, CallError> {
        let done = self.call("unmount_disk", vec![json!(cid)]).await?;
        Ok(done.get("message").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Moves the data of the mounted disk `from` to the disk `to`, mounted after it, which takes its place.
    pub async fn migrate_disk(&self, from: &DiskCid, to: &DiskCid) -> Result<(), CallError> {
        match self.call("migrate_disk", vec![json!(from), json!(to)]).await {
            Err(error) if is_all_but_in_place(&error) => self.mount_disk(to, None).await.map_err(|_| error),
            other => other.map(drop),
        }
    }

    /// Replaces trusted certificates, disk names, and, when given, how the agent is reached. The agent may restart; this
    /// waits for it. New credentials in `mbus.urls` need a new handle on the agent.
    pub async fn update_settings(&self, settings: &UpdateSettings) -> Result<Outcome, CallError> {
        self.tolerant("update_settings", vec![json!(settings)]).await
    }

    /// Asks a task to end; [`Agent::finish`] tells how it did. Of the actions, drains and errands can be cancelled.
    pub async fn cancel_task(&self, task: &Task) -> Result<(), CallError> {
        self.call("cancel_task", vec![json!(task.id)]).await.map(drop)
    }

    /// Powers the VM off. Its answer may get lost on the way, which is no failure.
    pub async fn shutdown(&self) -> Result<(), CallError> {
        match self.send("shutdown", vec![], FAREWELL_PATIENCE, limits::bytes_of("shutdown")).await {
            Err(error) if error.is_transient() && error.stage() >= Stage::Tls => Ok(()),
            other => other.map(drop),
        }
    }

    pub(crate) async fn typed<T: DeserializeOwned>(&self, method: &str, arguments: Vec<Value>) -> Result<T, CallError> {
        let value = self.call(method, arguments).await?;
        serde_json::from_value(value).map_err(|error| self.bad_reply(method, format!("an unexpected value ({error})")))
    }

    async fn tolerant(&self, method: &str, arguments: Vec<Value>) -> Result<Outcome, CallError> {
        match self.call(method, arguments).await {
            Ok(_) => Ok(Outcome::Done),
            Err(error) if error.is_unknown_message() => Ok(Outcome::UnknownToAgent),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is listed but not on the store is one that jobs write past.
    #[test]
    fn a_disk_is_mounted_only_where_jobs_can_see_it() {
        let state = |vitals: Value| -> AgentState {
            serde_json::from_value(json!({"job_state": "running", "vitals": vitals})).unwrap()
        };
        let usage = json!({"percent": "1", "inode_percent": "1"});
        assert_eq!(state(json!({"disk": {"system": usage, "persistent": usage}})).has_store(), Some(true));
        assert_eq!(state(json!({"disk": {"system": usage}})).has_store(), Some(false));
        for unknown in [json!(null), json!({}), json!({"disk": null}), json!({"disk": {}})] {
            assert_eq!(state(unknown.clone()).has_store(), None, "{unknown}");
        }
    }
}
