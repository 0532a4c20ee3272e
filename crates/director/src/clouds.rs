//! The only place that talks to clouds: intent first, then the call, then the fact.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use windlass_contract::{ApiVersion, RequestId};
use windlass_cpi_client::{CallError, CallObserver, Cpi};
use windlass_durable::process::ProcessIdentity;

use crate::ledger::{Change, Fact, Intent, Ledger, LedgerError};

/// The CPIs by name; the default one has the empty name.
#[derive(Debug, Clone)]
pub struct Clouds {
    cpis: Arc<BTreeMap<String, Cpi>>,
}

/// why a change in a cloud did not come about
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// no such CPI
    #[error("there is no CPI named '{0}'")]
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
    /// These CPIs.
    pub fn new(cpis: BTreeMap<String, Cpi>) -> Self {
        Self { cpis: Arc::new(cpis) }
    }

    /// Names of all CPIs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.cpis.keys().map(String::as_str)
    }

    /// A CPI by name.
    pub fn cpi(&self, name: &str) -> Result<&Cpi, ChangeError> {
        self.cpis.get(name).ok_or_else(|| ChangeError::NoSuchCpi(name.to_owned()))
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
            other => other,
        }
    }

    /// Finds out how an intent ended that nobody settled: repeats it where that does no harm, and otherwise leaves it
    /// on record.
    pub async fn resolve(&self, who: OnBehalfOf<'_>, intent: &Intent) -> Result<Fact, ChangeError> {
        let cpi = self.cpi(&intent.cpi)?;
        let replays = cpi.info().await.is_ok_and(windlass_contract::cpi::CpiInfo::replays);
        if intent.change.is_repeatable() || replays {
            match self.attempt(who, intent).await {
                Err(ChangeError::Call { source, .. }) if source.effect_is_unknown() => {
                    self.doubt(who, intent, *source).await
                }
                other => other,
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

    /// Asks the CPI once. A refusal ends the intent; an unknown outcome leaves it open.
    async fn attempt(&self, who: OnBehalfOf<'_>, intent: &Intent) -> Result<Fact, ChangeError> {
        let cpi = self.cpi(&intent.cpi)?;
        let observer = Observer { who, id: &intent.id };
        match intent.change.send(cpi, &intent.id, intent.stemcell_version, &observer).await {
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
