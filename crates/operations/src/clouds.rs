//! Every change in a cloud goes through here: intent first, then the call, then the fact. Who only asks, and changes nothing, gets
//! the CPI by its name (`Clouds::cpi`).

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use serde_json::Value;
use windlass_contract::cpi::ErrorType;
use windlass_contract::{ApiVersion, RequestId, explain};
use windlass_cpi_client::{CallError, Cpi};
use windlass_durable::process::ProcessIdentity;
use windlass_planning::names::{CpiName, InstanceId};
use windlass_planning::software::VariableSet;

use crate::cpi_caller::{CallWatcher, CpiCaller};
use crate::late_values as late;
use crate::ledger::{Change, Fact, Intent, Ledger, LedgerError, OpenIntent};

/// The CPIs. While none is configured, the default one serves everything.
#[derive(Debug, Clone)]
pub struct Clouds {
    default: Option<DrivenCpi>,
    configured: Arc<RwLock<Vec<DrivenCpi>>>,
    values: Option<Arc<dyn LateValues>>,
}

/// Knows the values of variables in the env and the tags of VMs and in cloud_properties: they are put in when a CPI is asked, so that no
/// record has them.
#[async_trait]
pub trait LateValues: std::fmt::Debug + Send + Sync {
    /// The same with the values of these versions; with none, of those that were deployed last.
    async fn put_in(
        &self,
        owner: Owner<'_>,
        variables: Option<VariableSet>,
        value: &Value,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>>;
}

/// Whose variables are meant.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Deployment(&'a str),
    Instance(&'a InstanceId),
}

/// A CPI, and what the operator decided about it.
#[derive(Debug, Clone)]
pub struct DrivenCpi {
    /// Its name, and the names that it had before.
    pub names: Vec<CpiName>,
    pub cpi: Arc<dyn CpiCaller>,
    /// Whether disks are made larger in place.
    pub resizes_disks: bool,
}

/// why a change in a cloud did not come about
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("{0} is not there; it must be in the cpi config, or in migrated_from of another one")]
    NoSuchCpi(CpiName),
    #[error("{method} failed for {subject}")]
    Call {
        method: &'static str,
        /// What it was about.
        subject: String,
        #[source]
        source: Box<CallError>,
    },
    /// nobody knows whether it happened
    #[error("{method} for {subject} may or may not have happened; it stays on record as a possible leak")]
    Doubtful {
        method: &'static str,
        /// What it was about.
        subject: String,
        #[source]
        source: Box<CallError>,
    },
    /// values of variables are not to be had
    #[error("the variables of {subject} have no values")]
    Values {
        /// What it was about.
        subject: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl ChangeError {
    /// Whether the CPI refused to make a VM and says that it may be asked again.
    pub fn is_ok_to_retry(&self) -> bool {
        let Self::Call { source, .. } = self else { return false };
        source.cpi_error().is_some_and(|error| error.kind == ErrorType::VmCreationFailed && error.ok_to_retry)
    }
}

/// The task that wants a change, and hears what the CPI says meanwhile.
#[derive(Clone, Copy)]
pub struct OnBehalfOf<'a> {
    pub ledger: &'a dyn Ledger,
    pub task: Option<i64>,
    /// Takes the lines that the CPI writes to stderr.
    pub log: &'a (dyn Fn(&str) + Sync),
}

impl std::fmt::Debug for OnBehalfOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnBehalfOf").field("task", &self.task).finish_non_exhaustive()
    }
}

impl Clouds {
    /// No CPI at all.
    pub fn none() -> Self {
        Self { default: None, configured: Arc::default(), values: None }
    }

    /// One CPI, the default one.
    pub fn only(cpi: Cpi, resizes_disks: bool) -> Self {
        Self::with_default(DrivenCpi { names: vec![CpiName::Default], cpi: Arc::new(cpi), resizes_disks })
    }

    /// One CPI that serves everything until others are [configured](Self::configure).
    pub fn with_default(cpi: DrivenCpi) -> Self {
        Self { default: Some(cpi), ..Self::none() }
    }

    /// The same; values of variables come from here.
    pub fn filled_by(self, values: Arc<dyn LateValues>) -> Self {
        Self { values: Some(values), ..self }
    }

    /// Drives these CPIs from now on. Calls that run keep theirs.
    pub fn configure(&self, cpis: Vec<DrivenCpi>) {
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = cpis;
    }

    /// Names of the CPIs that new things are made with.
    pub fn names(&self) -> Vec<CpiName> {
        let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
        if configured.is_empty() {
            return self.default.iter().map(|_| CpiName::Default).collect();
        }
        configured.iter().filter_map(|driven| driven.names.first().cloned()).collect()
    }

    /// A CPI by its name, or by one that it had.
    pub fn cpi(&self, name: &CpiName) -> Result<Arc<dyn CpiCaller>, ChangeError> {
        self.driven(name).map(|driven| driven.cpi)
    }

    /// Whether disks of a CPI are made larger in place.
    pub fn resizes_disks(&self, cpi: &CpiName) -> bool {
        self.driven(cpi).is_ok_and(|driven| driven.resizes_disks)
    }

    fn driven(&self, name: &CpiName) -> Result<DrivenCpi, ChangeError> {
        let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |driven: &&DrivenCpi| driven.names.contains(name);
        // Its own name first: it may be an earlier name of another one as well.
        let now = configured.iter().find(|driven| driven.names.first().is_some_and(|known| known == name));
        let found = now.or_else(|| configured.iter().find(is_it)).or(self.default.as_ref().filter(is_it));
        found.cloned().ok_or_else(|| ChangeError::NoSuchCpi(name.clone()))
    }

    /// Makes a change: writes the intent down, asks the CPI, records the fact.
    pub async fn perform(
        &self,
        who: OnBehalfOf<'_>,
        cpi: &CpiName,
        stemcell_version: Option<ApiVersion>,
        change: Change,
    ) -> Result<Fact, ChangeError> {
        self.cpi(cpi)?;
        // What lacks a value is not begun.
        self.filled(&change).await?;
        let intent = Intent {
            id: RequestId::random(),
            task: who.task,
            cpi: cpi.clone(),
            stemcell_version,
            change,
            child: None,
            elsewhere: None,
            doubt: None,
        };
        let open = who.ledger.open_intent(intent).await?;
        match self.ask(who, &open).await? {
            Ok(fact) => settled(open, fact).await,
            // Nobody can find out more than this answer tells.
            Err(cause) if cause.effect_is_unknown() && !open.change.is_repeatable() && !self.replays(&open).await => {
                doubtful(open, cause).await
            }
            Err(cause) if cause.effect_is_unknown() => self.resolve(who, open).await,
            // A creation that failed may still have had an effect. A CPI that replays requests finds it by the request id,
            // so it is asked once more, unless it said that asking again is no use.
            Err(cause) if !open.change.is_repeatable() && is_ok_to_retry(&cause) && self.replays(&open).await => {
                self.resolve(who, open).await
            }
            Err(cause) => refused(open, cause).await,
        }
    }

    async fn replays(&self, intent: &Intent) -> bool {
        match self.cpi(&intent.cpi) {
            Ok(cpi) => cpi.info().await.is_ok_and(|info| info.replays()),
            Err(_) => false,
        }
    }

    /// Finds out how an intent ended that nobody settled: repeats it where that does no harm, and otherwise leaves it
    /// on record.
    pub async fn resolve(&self, who: OnBehalfOf<'_>, open: OpenIntent<'_>) -> Result<Fact, ChangeError> {
        if !open.change.is_repeatable() && !self.replays(&open).await {
            let cause = CallError::InvalidAnswer {
                method: open.change.method().to_owned(),
                what: "the first answer got lost, and this CPI does not remember requests".to_owned(),
                stdout: String::new(),
                stderr: String::new(),
                request_id: open.id.to_string(),
            };
            return doubtful(open, cause).await;
        }
        match self.ask(who, &open).await? {
            Ok(fact) => settled(open, fact).await,
            // Whatever came of this try, the one before may have had an effect. A CPI that answers and remembers requests
            // knows of it; otherwise nobody does.
            Err(cause) if cause.cpi_error().is_some() && self.replays(&open).await => refused(open, cause).await,
            // Nothing exists because of it.
            Err(cause) if open.change.is_light() => refused(open, cause).await,
            Err(cause) => doubtful(open, cause).await,
        }
    }

    /// Asks the CPI once. The intent stays open, whatever it answers.
    async fn ask(&self, who: OnBehalfOf<'_>, open: &OpenIntent<'_>) -> Result<Result<Fact, CallError>, ChangeError> {
        let cpi = self.cpi(&open.cpi)?;
        let filled = self.filled(&open.change).await?;
        let change = filled.as_ref().unwrap_or(&open.change);
        // Tags are among what logs show.
        let hidden = filled.as_ref().map(|filled| late::Hidden::of(&open.change, filled));
        let sent = change.send(&*cpi, &open.id, open.stemcell_version, &Observer { who, open, hidden }).await;
        Ok(sent.map(|fact| if filled.is_some() { late::without_values(fact, &open.change) } else { fact }))
    }

    /// The change with values in the places of variables; none if it has no variables.
    async fn filled(&self, change: &Change) -> Result<Option<Change>, ChangeError> {
        let Some(values) = &self.values else { return Ok(None) };
        let filled = late::filled(change, &**values).await;
        filled.map_err(|source| ChangeError::Values { subject: change.subject(), source })
    }
}

/// Whether the CPI failed and says that it may be asked again.
fn is_ok_to_retry(cause: &CallError) -> bool {
    cause.cpi_error().is_some_and(|error| error.ok_to_retry)
}

async fn settled(open: OpenIntent<'_>, fact: Fact) -> Result<Fact, ChangeError> {
    open.settle(&fact).await?;
    Ok(fact)
}

async fn refused(open: OpenIntent<'_>, cause: CallError) -> Result<Fact, ChangeError> {
    let (method, subject) = (open.change.method(), open.change.subject());
    open.abandon(&explain(&cause)).await?;
    Err(ChangeError::Call { method, subject, source: Box::new(cause) })
}

async fn doubtful(open: OpenIntent<'_>, cause: CallError) -> Result<Fact, ChangeError> {
    let (method, subject) = (open.change.method(), open.change.subject());
    open.doubt(&explain(&cause)).await?;
    Err(ChangeError::Doubtful { method, subject, source: Box::new(cause) })
}

struct Observer<'a> {
    who: OnBehalfOf<'a>,
    open: &'a OpenIntent<'a>,
    hidden: Option<late::Hidden>,
}

impl Observer<'_> {
    fn log(&self, line: &str) {
        match &self.hidden {
            Some(hidden) => (self.who.log)(&hidden.out_of(line)),
            None => (self.who.log)(line),
        }
    }
}

#[async_trait]
impl CallWatcher for Observer<'_> {
    async fn spawned(&self, child: ProcessIdentity) -> io::Result<()> {
        self.open.note_child(child).await.map_err(io::Error::other)
    }

    fn log_line(&self, line: &str) {
        self.log(line);
    }

    fn told(&self, line: &str) {
        self.log(line);
    }

    fn hide(&self, text: String) -> String {
        match &self.hidden {
            Some(hidden) => hidden.out_of(&text),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;
    use std::time::Duration;

    use async_trait::async_trait;
    use windlass_contract::{MiB, Object};
    use windlass_cpi_client::{CpiCommand, CpiOptions, Environment};

    use super::*;
    use crate::ledger::{IntentEnd, IntentOutcome, NewDisk};
    use windlass_planning::names::DiskName;

    /// Writes down what happens to intents; the CPI below looks into the same folder.
    #[derive(Debug)]
    struct Diary {
        open: std::path::PathBuf,
        told: Mutex<Vec<String>>,
    }

    impl Diary {
        fn tell(&self, what: &str) {
            self.told.lock().unwrap().push(what.to_owned());
        }
    }

    #[async_trait]
    impl Ledger for Diary {
        async fn write_intent(&self, _: &Intent) -> Result<(), LedgerError> {
            std::fs::write(&self.open, "").unwrap();
            self.tell("open");
            Ok(())
        }
        async fn note_child(&self, _: &RequestId, _: ProcessIdentity) -> Result<(), LedgerError> {
            self.tell("asks");
            Ok(())
        }
        async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
            std::fs::remove_file(&self.open).unwrap();
            self.tell(&match end.outcome() {
                IntentOutcome::Settled(fact) => format!("settled {}", fact.name()),
                IntentOutcome::Abandoned(why) => format!("abandoned {why}"),
                IntentOutcome::Doubtful(why) => format!("doubtful {why}"),
            });
            Ok(())
        }
        async fn record(&self, _: &Fact) -> Result<(), LedgerError> {
            Ok(())
        }
        async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
            Ok(Vec::new())
        }
    }

    /// A CPI that remembers requests. It answers the first `create_disk` with `first` and the others with a disk, and none
    /// of them while no intent is on disk.
    async fn diary_of_a_creation(first: &str) -> (Vec<String>, Result<Fact, ChangeError>) {
        let folder = tempfile::tempdir().unwrap();
        let (script, open) = (folder.path().join("cpi"), folder.path().join("open"));
        let body = format!(
            "#!/bin/sh\ncd {}\nread -r request || [ -n \"$request\" ]\ncase \"$request\" in\n\
             *'\"method\":\"info\"'*) echo '{{\"result\":{{\"stemcell_formats\":[],\"api_version\":2,\"windlass\":{{\"replay\":true}}}},\"error\":null,\"log\":\"\"}}';;\n\
             *) if ! [ -e open ]; then echo 'no intent is on disk' >&2; exit 1; fi\n\
             if [ -e asked ]; then echo '{{\"result\":\"disk-1\",\"error\":null,\"log\":\"\"}}'; else touch asked; {first}; fi;;\nesac\n",
            folder.path().display()
        );
        std::fs::write(&script, body).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let command = CpiCommand { executable: script, arguments: Vec::new(), environment: Environment::Director };
        let options = CpiOptions {
            director_uuid: "uuid".into(),
            properties: Object::new(),
            preferred_version: ApiVersion::V2,
            deadline: Duration::from_secs(60),
        };
        let clouds = Clouds::only(Cpi::new(command, options), true);
        let diary = Diary { open, told: Mutex::default() };
        let disk = NewDisk {
            instance: "uuid".into(),
            name: DiskName::Managed,
            cpi: CpiName::Default,
            size: MiB(1),
            cloud_properties: Object::new(),
        };
        let who = OnBehalfOf { ledger: &diary, task: None, log: &|_| {} };
        let result = clouds.perform(who, &CpiName::Default, None, Change::CreateDisk { disk, near: None }).await;
        (diary.told.into_inner().unwrap(), result)
    }

    fn fails(ok_to_retry: bool) -> String {
        format!(
            "echo '{{\"result\":null,\"error\":{{\"type\":\"Bosh::Clouds::CloudError\",\"message\":\"no power\",\
             \"ok_to_retry\":{ok_to_retry}}},\"log\":\"\"}}'"
        )
    }

    /// A director that is killed while it asks a second time must find the intent at its next start.
    #[tokio::test]
    async fn a_failed_creation_is_asked_for_again_with_its_intent_on_disk() {
        for first in [fails(true), "kill -9 $$".to_owned()] {
            let (diary, result) = diary_of_a_creation(&first).await;
            assert_eq!(diary, ["open", "asks", "asks", "settled disk_created"], "{first}");
            result.unwrap();
        }
    }

    /// The events have the CPI's own words.
    #[tokio::test]
    async fn a_cpi_that_says_no_is_asked_once_and_quoted() {
        let (diary, result) = diary_of_a_creation(&fails(false)).await;
        assert_eq!(diary[..2], ["open", "asks"]);
        assert!(diary.len() == 3 && diary[2].starts_with("abandoned") && diary[2].contains("no power"), "{diary:?}");
        assert!(matches!(result, Err(ChangeError::Call { .. })), "{result:?}");
    }
}
