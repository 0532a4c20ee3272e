//! Names of instances reach agents: the document of all names is made from the records, gets a new version when it changed, and is
//! sent to every agent that has an older one.
//!
//! | when | who is told |
//! |---|---|
//! | a deploy has made its missing VMs | every agent that is behind and answers, for at most ten seconds |
//! | the jobs of a VM are made ready | its own agent |
//! | a task ended, an instance fell ill or is well again, and from time to time | every agent that is behind and answers |
//! | from time to time, beside all of that | those that were slow or silent |
//!
//! An agent that cannot be told never fails anything: it is told again. One that takes long is told apart from then on, until it
//! takes names quickly: nobody else waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SharedState, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::sync::{Mutex, Notify};
use windlass_agent_client::{CallError, Deadlines};
use windlass_contract::explain;
use windlass_operations::agents::Agents;
use windlass_planning::dns::DnsDocument;
use windlass_planning::records::VmRecord;

use crate::known_health::{Found, KnownHealth};
use crate::settings::LocalDnsSettings;
use crate::store::{Store, StoreError, VmBehind};

/// How long a task waits for all agents together, as BOSH does.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one agent may take for each of the two messages.
const PATIENCE_WITH_ONE: Duration = Duration::from_secs(5);
/// Agents that take longer for both are told apart from the others.
const SOON: Duration = Duration::from_secs(2);
/// How often those are told again who did not answer.
const EVERY: Duration = Duration::from_secs(10);
/// How many agents are told at once.
const AT_ONCE: usize = 64;

/// The names of instances, and who knows them.
#[derive(Debug)]
pub(crate) struct LocalDns {
    settings: LocalDnsSettings,
    store: Store,
    agents: Arc<Agents>,
    /// Where a version is until it is sent; what is left there by a kill goes with the next start.
    temporary: PathBuf,
    /// The newest version; held while the next one is made.
    newest: Mutex<Option<Arc<Version>>>,
    /// What was on record when it was last looked at.
    changes: AtomicU64,
    /// Which agents are ill. After a start all count as well until the first look.
    health: SharedState<KnownHealth>,
    /// Ids of agents that were slow or silent when they were last told.
    slow: SharedState<BTreeSet<String>>,
    wake: Notify,
}

/// Which agents are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Answering,
    /// Those that were slow or silent.
    Slow,
}

/// A version of the names, ready to be sent.
#[derive(Debug)]
struct Version {
    number: i64,
    blob: String,
    digest: String,
    file: NamedTempFile,
    /// The addresses of each agent's VM in it, by network.
    agents: BTreeMap<String, Vec<(String, String)>>,
}

impl Version {
    /// Whether it has the addresses that a VM has.
    fn knows(&self, vm: &VmRecord) -> bool {
        let addresses = vm.networks.iter().filter_map(|(name, network)| Some((name.clone(), network.ip.clone()?)));
        self.agents.get(vm.agent_id.as_str()).is_some_and(|known| addresses.eq(known.iter().cloned()))
    }
}

/// why names are not made or sent
#[derive(Debug, thiserror::Error)]
enum NamesError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// the document cannot be kept until it is sent
    #[error("the names of instances cannot be written to a file")]
    File(#[from] std::io::Error),
    /// the document cannot be written as JSON
    #[error("the names of instances cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl LocalDns {
    pub(crate) fn new(settings: LocalDnsSettings, store: Store, agents: Arc<Agents>, temporary: PathBuf) -> Self {
        let (newest, changes, wake) = (Mutex::default(), AtomicU64::default(), Notify::new());
        let (health, slow) = (SharedState::default(), SharedState::default());
        Self { settings, store, agents, temporary, newest, changes, health, slow, wake }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Something may have changed that agents should hear of soon.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// A round found agents like this.
    pub(crate) fn note_health(&self, round: &[(String, Found)]) {
        if !self.is_enabled() {
            return;
        }
        let is_due = {
            let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            health.look(round);
            health.is_due(Instant::now())
        };
        if is_due {
            self.wake();
        }
    }

    fn health_is_due(&self) -> bool {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).is_due(Instant::now())
    }

    /// Tells everybody who is behind, before jobs start that rely on the names. Agents that do not answer in time are told later.
    pub(crate) async fn tell_all(&self) {
        if !self.is_enabled() {
            return;
        }
        let told = async {
            let version = self.publish().await?;
            self.tell_those_behind(&version, Who::Answering).await
        };
        // Those who were slow are told by `run`.
        if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, told).await {
            report(&error);
        }
    }

    /// Tells the agent of one VM, whose jobs are about to start.
    pub(crate) async fn tell(&self, vm: &VmRecord) {
        if self.is_enabled()
            && let Err(error) = self.tell_one(vm).await
        {
            report(&error);
        }
    }

    async fn tell_one(&self, vm: &VmRecord) -> Result<(), NamesError> {
        let newest = self.newest.lock().await.clone();
        let version = match newest {
            Some(version) if version.knows(vm) => version,
            _ => self.publish().await?,
        };
        if self.store.dns_version_of(&vm.cid).await? < version.number && self.send(&version, vm).await.is_ok() {
            self.store.note_dns_version(std::slice::from_ref(&vm.cid), version.number).await?;
        }
        Ok(())
    }

    /// The names as the records have them now.
    async fn publish(&self) -> Result<Arc<Version>, NamesError> {
        let mut newest = self.newest.lock().await;
        self.changes.store(self.store.changes(), Ordering::SeqCst);
        let names = self.store.names_on_record().await?;
        let document = DnsDocument::new(&names.instances, &names.aliases, &names.numbers, self.settings.include_index);
        let ill = self.health.lock().unwrap_or_else(PoisonError::into_inner).tell(Instant::now());
        let document = document.with_unhealthy(&ill);
        let content = digest(&serde_json::to_vec(&document)?);
        let number = self.store.dns_version(&content).await?;
        if let Some(version) = newest.as_ref().filter(|version| version.number == number) {
            return Ok(version.clone());
        }
        let body = serde_json::to_vec(&document.with_version(number))?;
        let mut file = NamedTempFile::new_in(&self.temporary)?;
        file.write_all(&body)?;
        let of_vms = names.instances.into_iter().filter_map(|named| Some((named.agent_id?, named.addresses)));
        let version = Arc::new(Version {
            number,
            blob: uuid::Uuid::new_v4().to_string(),
            digest: format!("sha256:{}", digest(&body)),
            file,
            agents: of_vms.collect(),
        });
        *newest = Some(version.clone());
        Ok(version)
    }

    async fn tell_those_behind(&self, version: &Version, who: Who) -> Result<(), NamesError> {
        let behind = self.store.vms_behind(version.number).await?;
        let slow = self.slow_agents().clone();
        let meant = behind.into_iter().filter(|VmBehind(vm)| slow.contains(vm.agent_id.as_str()) == (who == Who::Slow));
        let each =
            meant.map(|VmBehind(vm)| async move { self.tell_in_time(version, &vm, who).await.then_some(vm.cid) });
        let mut told = stream::iter(each).buffer_unordered(AT_ONCE).ready_chunks(AT_ONCE);
        while let Some(some) = told.next().await {
            let some: Vec<_> = some.into_iter().flatten().collect();
            self.store.note_dns_version(&some, version.number).await?;
        }
        Ok(())
    }

    /// Whether an agent took the names. It is noted whether it did so soon.
    async fn tell_in_time(&self, version: &Version, vm: &VmRecord, who: Who) -> bool {
        let begun = Instant::now();
        let patience = if who == Who::Slow { 2 * PATIENCE_WITH_ONE } else { SOON };
        let is_told = tokio::time::timeout(patience, self.send(version, vm)).await.is_ok_and(|sent| sent.is_ok());
        match is_told && begun.elapsed() < SOON {
            true => self.slow_agents().remove(vm.agent_id.as_str()),
            false => self.slow_agents().insert(vm.agent_id.to_string()),
        };
        is_told
    }

    fn slow_agents(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, version: &Version, vm: &VmRecord) -> Result<(), CallError> {
        let patience = PATIENCE_WITH_ONE;
        let deadlines = Deadlines { message: patience, silence: patience, task: patience };
        let agent = self.agents.of(vm).with_deadlines(deadlines);
        let sent = async {
            agent.put_blob(&version.blob, version.file.path()).await?;
            // One that does not know the message has no use for names, and is not told again.
            agent.sync_dns(&version.blob, &version.digest, version.number).await.map(drop)
        };
        let sent = sent.await;
        if let Err(error) = &sent {
            tracing::info!(vm = %vm.cid, version = version.number, error = explain(error), "an agent did not take the names");
        }
        sent
    }

    async fn converge(&self) -> Result<(), NamesError> {
        let newest = self.newest.lock().await.clone();
        let version = match newest {
            Some(version) if self.changes.load(Ordering::SeqCst) == self.store.changes() && !self.health_is_due() => {
                version
            }
            _ => self.publish().await?,
        };
        self.tell_those_behind(&version, Who::Answering).await
    }

    /// Tells those who were slow the newest names, and forgets those that are gone.
    async fn converge_slow(&self) -> Result<(), NamesError> {
        let Some(version) = self.newest.lock().await.clone() else { return Ok(()) };
        self.slow_agents().retain(|agent| version.agents.contains_key(agent));
        self.tell_those_behind(&version, Who::Slow).await
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn report(error: &NamesError) {
    tracing::error!(error = explain(error), "agents were not told the names of instances");
}

/// Tells agents that are behind, until `stop` resolves.
pub(crate) async fn run(dns: Arc<LocalDns>, stop: impl Future<Output = ()>) {
    if !dns.is_enabled() {
        return stop.await;
    }
    let answering = async {
        loop {
            if let Err(error) = dns.converge().await {
                report(&error);
            }
            tokio::select! {
                () = dns.wake.notified() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    };
    let slow = async {
        loop {
            tokio::time::sleep(EVERY).await;
            if let Err(error) = dns.converge_slow().await {
                report(&error);
            }
        }
    };
    tokio::select! {
        () = stop => {}
        () = answering => {}
        () = slow => {}
    }
}

#[cfg(test)]
#[path = "local_dns_tests.rs"]
mod tests;
