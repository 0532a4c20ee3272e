//! The only place that talks to clouds: intent first, then the call, then the fact.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use windlass_contract::cpi::ErrorType;
use windlass_contract::{ApiVersion, RequestId};
use windlass_cpi_client::{CallError, CallObserver, Cpi};
use windlass_durable::process::ProcessIdentity;

use crate::ledger::{Change, Fact, Intent, Ledger, LedgerError};

/// The CPIs. While none is configured, the default one with the empty name serves everything.
#[derive(Debug, Clone)]
pub struct Clouds {
    default: Option<DrivenCpi>,
    configured: Arc<RwLock<Vec<DrivenCpi>>>,
}

/// A CPI, and what the operator decided about it.
#[derive(Debug, Clone)]
pub struct DrivenCpi {
    /// Its name, and the names that it had before.
    pub names: Vec<String>,
    pub cpi: Arc<Cpi>,
    /// Whether disks are made larger in place.
    pub resizes_disks: bool,
}

/// why a change in a cloud did not come about
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// no such CPI
    #[error("there is no CPI named '{0}'; it must be in the cpi config, or in migrated_from of another one")]
    NoSuchCpi(String),
    /// the CPI failed
    #[error("{method} failed for {subject}")]
    Call {
        /// The method.
        method: &'static str,
        /// What it was about.
        subject: String,
        /// Why.
        #[source]
        source: Box<CallError>,
    },
    /// nobody knows whether it happened
    #[error("{method} for {subject} may or may not have happened; it stays on record as a possible leak")]
    Doubtful {
        /// The method.
        method: &'static str,
        /// What it was about.
        subject: String,
        /// Why.
        #[source]
        source: Box<CallError>,
    },
    /// the records failed
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

/// Who wants a change, and hears what the CPI says meanwhile.
#[derive(Clone, Copy)]
pub struct OnBehalfOf<'a> {
    /// The records.
    pub ledger: &'a dyn Ledger,
    /// The task.
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
        Self { default: None, configured: Arc::default() }
    }

    /// One CPI, with the empty name.
    pub fn only(cpi: Cpi, resizes_disks: bool) -> Self {
        Self::with_default(DrivenCpi { names: vec![String::new()], cpi: Arc::new(cpi), resizes_disks })
    }

    /// One CPI that serves everything until others are [configured](Self::configure).
    pub fn with_default(cpi: DrivenCpi) -> Self {
        Self { default: Some(cpi), ..Self::none() }
    }

    /// Drives these CPIs from now on. Calls that run keep theirs.
    pub fn configure(&self, cpis: Vec<DrivenCpi>) {
        *self.configured.write().unwrap_or_else(PoisonError::into_inner) = cpis;
    }

    /// Names of the CPIs that new things are made with.
    pub fn names(&self) -> Vec<String> {
        let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
        if configured.is_empty() {
            return self.default.iter().map(|_| String::new()).collect();
        }
        configured.iter().filter_map(|driven| driven.names.first().cloned()).collect()
    }

    /// A CPI by its name, or by one that it had.
    pub fn cpi(&self, name: &str) -> Result<Arc<Cpi>, ChangeError> {
        self.driven(name).map(|driven| driven.cpi)
    }

    /// Whether disks of a CPI are made larger in place.
    pub fn resizes_disks(&self, cpi: &str) -> bool {
        self.driven(cpi).is_ok_and(|driven| driven.resizes_disks)
    }

    fn driven(&self, name: &str) -> Result<DrivenCpi, ChangeError> {
        let configured = self.configured.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |driven: &&DrivenCpi| driven.names.iter().any(|known| known == name);
        // Its own name first: it may be an earlier name of another one as well.
        let now = configured.iter().find(|driven| driven.names.first().is_some_and(|known| known == name));
        let found = now.or_else(|| configured.iter().find(is_it)).or(self.default.as_ref().filter(is_it));
        found.cloned().ok_or_else(|| ChangeError::NoSuchCpi(name.to_owned()))
    }

    /// Makes a change: writes the intent down, asks the CPI, records the fact.
    pub async fn perform(
        &self,
        who: OnBehalfOf<'_>,
        cpi: &str,
        stemcell_version: Option<ApiVersion>,
        change: Change,
    ) -> Result<Fact, ChangeError> {
        self.cpi(cpi)?;
        let intent = Intent {
            id: RequestId::random(),
            task: who.task,
            cpi: cpi.to_owned(),
            stemcell_version,
            change,
            child: None,
            doubt: None,
        };
        who.ledger.open_intent(&intent).await?;
        match self.attempt(who, &intent).await {
            Err(ChangeError::Call { source, .. }) if source.effect_is_unknown() => self.resolve(who, &intent).await,
            // It may have been made before it failed, and only its maker can find it.
            Err(ChangeError::Call { .. }) if !intent.change.is_repeatable() && self.replays(&intent).await => {
                self.resolve(who, &intent).await
            }
            other => self.end_if_refused(who, &intent, other).await,
        }
    }

    /// A refusal ends the intent.
    async fn end_if_refused(
        &self,
        who: OnBehalfOf<'_>,
        intent: &Intent,
        answer: Result<Fact, ChangeError>,
    ) -> Result<Fact, ChangeError> {
        if let Err(ChangeError::Call { source, .. }) = &answer {
            who.ledger.abandon(&intent.id, &source.to_string()).await?;
        }
        answer
    }

    async fn replays(&self, intent: &Intent) -> bool {
        match self.cpi(&intent.cpi) {
            Ok(cpi) => cpi.info().await.is_ok_and(|info| info.replays()),
            Err(_) => false,
        }
    }

    /// Finds out how an intent ended that nobody settled: repeats it where that does no harm, and otherwise leaves it
    /// on record.
    pub async fn resolve(&self, who: OnBehalfOf<'_>, intent: &Intent) -> Result<Fact, ChangeError> {
        if intent.change.is_repeatable() || self.replays(intent).await {
            match self.attempt(who, intent).await {
                Err(ChangeError::Call { source, .. }) if source.effect_is_unknown() => {
                    self.doubt(who, intent, *source).await
                }
                other => self.end_if_refused(who, intent, other).await,
            }
        } else {
            let cause = CallError::InvalidAnswer {
                method: intent.change.method().to_owned(),
                what: "the first answer got lost, and this CPI does not remember requests".to_owned(),
                stdout: String::new(),
                stderr: String::new(),
                request_id: intent.id.to_string(),
            };
            self.doubt(who, intent, cause).await
        }
    }

    async fn doubt(&self, who: OnBehalfOf<'_>, intent: &Intent, source: CallError) -> Result<Fact, ChangeError> {
        who.ledger.doubt(&intent.id, &source.to_string()).await?;
        Err(ChangeError::Doubtful {
            method: intent.change.method(),
            subject: intent.change.subject(),
            source: Box::new(source),
        })
    }

    /// Asks the CPI once. Whatever it is but a success leaves the intent open.
    async fn attempt(&self, who: OnBehalfOf<'_>, intent: &Intent) -> Result<Fact, ChangeError> {
        let cpi = self.cpi(&intent.cpi)?;
        let observer = Observer { who, id: &intent.id };
        match intent.change.send(&cpi, &intent.id, intent.stemcell_version, &observer).await {
            Ok(fact) => {
                who.ledger.settle(&intent.id, &fact).await?;
                Ok(fact)
            }
            Err(source) => {
                if !source.effect_is_unknown() {
                    who.ledger.abandon(&intent.id, &source.to_string()).await?;
                }
                Err(ChangeError::Call {
                    method: intent.change.method(),
                    subject: intent.change.subject(),
                    source: Box::new(source),
                })
            }
        }
    }
}

struct Observer<'a> {
    who: OnBehalfOf<'a>,
    id: &'a RequestId,
}

impl CallObserver for Observer<'_> {
    async fn spawned(&self, child: ProcessIdentity) -> io::Result<()> {
        self.who.ledger.note_child(self.id, child).await.map_err(io::Error::other)
    }

    fn stderr_line(&self, line: &str) {
        (self.who.log)(line);
    }
}
