//! Talking to the agent of a VM: the seam between the steps and the HTTPS that agents speak.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use windlass_agent_client::{
    Agent, AgentAccess, AgentState, CallError, Cancellation, CompiledBlob, Drain, NotReady, Outcome, WaitWatch,
};
use windlass_contract::agent::UpdateSettings;
use windlass_contract::{AgentId, DiskCid, DiskHint, Networks, Object};
use windlass_pki::PkiError;
use windlass_planning::records::{AgentCertificate, VmRecord};

use crate::agents::{Agents, DEFAULT_WAIT};

/// The messages that steps send to an agent. What each means is said at [`Agent`], which sends them; tests have an agent in
/// memory.
#[async_trait]
pub trait AgentCaller: Send + Sync {
    async fn wait_until_ready(&self, patience: Duration, watch: &WaitWatch<'_>) -> Result<(), NotReady>;
    async fn get_state(&self, full: bool) -> Result<AgentState, CallError>;
    async fn prepare(&self, spec: &Object) -> Result<(), CallError>;
    async fn apply(&self, spec: &Object) -> Result<(), CallError>;
    async fn put_blob(&self, id: &str, path: &Path) -> Result<(), CallError>;
    async fn get_blob(&self, id: &str, path: &Path, most: u64) -> Result<bool, CallError>;
    async fn compile_package(
        &self,
        source: (&str, &str),
        package: (&str, &str),
        dependencies: &Object,
    ) -> Result<CompiledBlob, CallError>;
    async fn start(&self) -> Result<(), CallError>;
    async fn stop(&self) -> Result<(), CallError>;
    async fn drain(&self, drain: Drain<'_>) -> Result<(), CallError>;
    async fn run_script(&self, name: &str, options: &Object) -> Result<Outcome, CallError>;
    async fn list_disk(&self) -> Result<Vec<DiskCid>, CallError>;
    async fn add_persistent_disk(&self, cid: &DiskCid, hint: &DiskHint) -> Result<Outcome, CallError>;
    async fn remove_persistent_disk(&self, cid: &DiskCid) -> Result<Outcome, CallError>;
    async fn mount_disk(&self, cid: &DiskCid, hint: Option<&DiskHint>) -> Result<(), CallError>;
    async fn mount_disk_as_before(&self, cid: &DiskCid, hint: &DiskHint) -> Result<(), CallError>;
    async fn unmount_disk(&self, cid: &DiskCid) -> Result<String, CallError>;
    async fn migrate_disk(&self, from: &DiskCid, to: &DiskCid) -> Result<(), CallError>;
    async fn update_settings(&self, settings: &UpdateSettings) -> Result<Outcome, CallError>;
    async fn shutdown(&self) -> Result<(), CallError>;
}

/// The agents of all VMs, as steps know them.
pub trait AgentsOfVms: std::fmt::Debug + Send + Sync {
    fn agent_of(&self, vm: &VmRecord) -> Box<dyn AgentCaller>;
    /// The same, which ends its tasks when they are cancelled.
    fn agent_until(&self, vm: &VmRecord, cancellation: Cancellation) -> Box<dyn AgentCaller>;
    /// What the operator wants in `env.bosh` of every VM.
    fn env(&self) -> &Object;
    /// What a new agent is given: an address to listen on, a certificate, a password of its own.
    fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError>;
    /// What an agent shows and trusts that gets its certificate now.
    fn certificate_from_now(&self) -> Result<Option<AgentCertificate>, PkiError>;
    /// Whether an agent is known not to understand hints.
    fn is_older_than_hints(&self, agent_id: &AgentId) -> bool;
    /// Notes that an agent does not understand hints, so that it is not asked again.
    fn note_older_than_hints(&self, agent_id: &AgentId);
    /// How long an agent may take until it answers: its VM boots, or is started again by its cloud.
    fn wait(&self) -> Duration {
        DEFAULT_WAIT
    }
}

impl AgentsOfVms for Agents {
    fn agent_of(&self, vm: &VmRecord) -> Box<dyn AgentCaller> {
        Box::new(self.of(vm))
    }

    fn agent_until(&self, vm: &VmRecord, cancellation: Cancellation) -> Box<dyn AgentCaller> {
        Box::new(self.of(vm).until(cancellation))
    }

    fn env(&self) -> &Object {
        Agents::env(self)
    }

    fn access(&self, agent_id: &AgentId, networks: &Networks) -> Result<AgentAccess, PkiError> {
        Agents::access(self, agent_id, networks)
    }

    fn certificate_from_now(&self) -> Result<Option<AgentCertificate>, PkiError> {
        Agents::certificate_from_now(self)
    }

    fn is_older_than_hints(&self, agent_id: &AgentId) -> bool {
        Agents::is_older_than_hints(self, agent_id)
    }

    fn note_older_than_hints(&self, agent_id: &AgentId) {
        Agents::note_older_than_hints(self, agent_id);
    }

    fn wait(&self) -> Duration {
        Agents::wait(self)
    }
}

#[async_trait]
impl AgentCaller for Agent {
    async fn wait_until_ready(&self, patience: Duration, watch: &WaitWatch<'_>) -> Result<(), NotReady> {
        Agent::wait_watched(self, patience, watch).await
    }

    async fn get_state(&self, full: bool) -> Result<AgentState, CallError> {
        Agent::get_state(self, full).await
    }

    async fn prepare(&self, spec: &Object) -> Result<(), CallError> {
        Agent::prepare(self, spec).await
    }

    async fn apply(&self, spec: &Object) -> Result<(), CallError> {
        Agent::apply(self, spec).await
    }

    async fn put_blob(&self, id: &str, path: &Path) -> Result<(), CallError> {
        Agent::put_blob(self, id, path).await
    }

    async fn get_blob(&self, id: &str, path: &Path, most: u64) -> Result<bool, CallError> {
        Agent::get_blob(self, id, path, most).await
    }

    async fn compile_package(
        &self,
        source: (&str, &str),
        package: (&str, &str),
        dependencies: &Object,
    ) -> Result<CompiledBlob, CallError> {
        Agent::compile_package(self, source, package, dependencies).await
    }

    async fn start(&self) -> Result<(), CallError> {
        Agent::start(self).await
    }

    async fn stop(&self) -> Result<(), CallError> {
        Agent::stop(self).await
    }

    async fn drain(&self, drain: Drain<'_>) -> Result<(), CallError> {
        Agent::drain(self, drain).await
    }

    async fn run_script(&self, name: &str, options: &Object) -> Result<Outcome, CallError> {
        Agent::run_script(self, name, options).await
    }

    async fn list_disk(&self) -> Result<Vec<DiskCid>, CallError> {
        Agent::list_disk(self).await
    }

    async fn add_persistent_disk(&self, cid: &DiskCid, hint: &DiskHint) -> Result<Outcome, CallError> {
        Agent::add_persistent_disk(self, cid, hint).await
    }

    async fn remove_persistent_disk(&self, cid: &DiskCid) -> Result<Outcome, CallError> {
        Agent::remove_persistent_disk(self, cid).await
    }

    async fn mount_disk(&self, cid: &DiskCid, hint: Option<&DiskHint>) -> Result<(), CallError> {
        Agent::mount_disk(self, cid, hint).await
    }

    async fn mount_disk_as_before(&self, cid: &DiskCid, hint: &DiskHint) -> Result<(), CallError> {
        Agent::mount_disk_as_before(self, cid, hint).await
    }

    async fn unmount_disk(&self, cid: &DiskCid) -> Result<String, CallError> {
        Agent::unmount_disk(self, cid).await
    }

    async fn migrate_disk(&self, from: &DiskCid, to: &DiskCid) -> Result<(), CallError> {
        Agent::migrate_disk(self, from, to).await
    }

    async fn update_settings(&self, settings: &UpdateSettings) -> Result<Outcome, CallError> {
        Agent::update_settings(self, settings).await
    }

    async fn shutdown(&self) -> Result<(), CallError> {
        Agent::shutdown(self).await
    }
}
