//! Who may write to a database of PostgreSQL that several programs could write to: one at a time, the leader.
//!
//! The lead is a lock of the server's, bound to a connection. The server ends that connection when it hears nothing of the leader for
//! [`LEASE`], so a leader that is frozen, or cut off, is replaced as well. It may not have heard of it: so the one that takes the
//! lead also takes the next number ([`Database::led`](crate::Database::led)), and every transaction that writes looks in itself whether its number is
//! still the last one. The row with the number is locked in it, shared, so that a change of the lead comes before or after it.
//!
//! The number stands in the one row of the table `leadership` (`place`, `epoch`, `host`, `address`, `since`), which migrations of the
//! program make.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, Connection, Executor, Row};
use tokio::sync::watch;

use crate::{Dialect, OpenError};

/// How long the server waits for a word of the leader before it gives the lead away. Transactions that are begun and not gone
/// on with end as soon, because the next leader waits for them.
pub const LEASE: Duration = Duration::from_secs(10);
/// How often it is looked whether the connection still lives, and how long an answer may take.
const LOOK: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may need to notice that the process before has gone.
const GRACE: Duration = Duration::from_secs(3);
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The two numbers stand for this program and for the place of its tables, so that others in the same database are left alone.
const TAKE: &str =
    "SELECT CASE WHEN pg_try_advisory_lock(2003395180, hashtext(current_schema()::text)) THEN 1 ELSE 0 END";
/// Servers before version 14 do not know it: there a leader that is frozen leads until its connection breaks.
const END_WHEN_SILENT: &str =
    "SELECT set_config(name, '10s', false) FROM pg_settings WHERE name = 'idle_session_timeout'";
/// Sees what another leader wrote meanwhile, and has it wait if it comes later.
const EPOCH_SHARED: &str = "SELECT epoch FROM leadership WHERE place = 1 FOR SHARE";
const EPOCH: &str = "SELECT epoch FROM leadership WHERE place = 1";
const NEXT: &str =
    "UPDATE leadership SET epoch = epoch + 1, host = $1, address = $2, since = $3 WHERE place = 1 RETURNING epoch";

/// another program took the lead
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("another director took over the database, and this one may not write to it any more")]
struct Overtaken;

/// Whether a transaction was refused because another program leads.
pub fn is_overtaken(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::AnyDriverError(cause) if cause.is::<Overtaken>())
}

/// The leader, as people and the next leader see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub host: String,
    pub address: String,
    /// Unix seconds.
    pub since: i64,
}

/// The lead; given back when it is dropped.
#[derive(Debug)]
pub struct HeldLead {
    lead: Arc<Lead>,
    watching: tokio::task::JoinHandle<()>,
}

impl HeldLead {
    /// Takes the lead of the database at `url`; nothing if somebody else has it, also after a while.
    pub async fn take(url: &str) -> Result<Option<Self>, OpenError> {
        sqlx::any::install_default_drivers();
        let failed = |source| OpenError::Connect { dialect: Dialect::Postgres, source };
        let options: AnyConnectOptions = url.parse().map_err(failed)?;
        let Some((connection, asked)) = take(&options).await.map_err(failed)? else { return Ok(None) };
        let lead = Arc::new(Lead::new(Some(Mutex::new(asked))));
        let watching = tokio::spawn({
            let lead = lead.clone();
            async move { lead.watch(connection, &options).await }
        });
        Ok(Some(Self { lead, watching }))
    }

    /// What is known of it.
    pub fn lead(&self) -> &Arc<Lead> {
        &self.lead
    }
}

impl Drop for HeldLead {
    fn drop(&mut self) {
        // Its connection ends with it, and with that the lead.
        self.watching.abort();
    }
}

/// What a leader knows of its lead.
#[derive(Debug)]
pub struct Lead {
    /// 0 until it is known.
    epoch: AtomicI64,
    /// When the server was last asked for a word that it then gave; none where nobody else can lead.
    confirmed: Option<Mutex<Instant>>,
    lost: watch::Sender<bool>,
}

impl Lead {
    /// The lead of somebody whom nobody can take it from.
    pub fn for_good() -> Arc<Self> {
        Arc::new(Self::new(None))
    }

    fn new(confirmed: Option<Mutex<Instant>>) -> Self {
        Self { epoch: AtomicI64::new(0), confirmed, lost: watch::Sender::new(false) }
    }

    /// Whether nobody else can lead at this moment. False as well when the server has not been heard of for too long.
    pub fn is_certain(&self) -> bool {
        let is_recent = |confirmed: &Mutex<Instant>| read(confirmed).elapsed() < LEASE;
        !self.is_lost() && self.confirmed.as_ref().is_none_or(is_recent)
    }

    /// Whether somebody else is known to lead.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until it is certain; false once somebody else leads.
    pub async fn certain(&self) -> bool {
        while !self.is_certain() {
            if self.is_lost() {
                return false;
            }
            tokio::time::sleep(TRY_AGAIN).await;
        }
        true
    }

    /// Resolves when somebody else leads.
    pub async fn lost(&self) {
        // It ends with this value, which is borrowed.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }

    fn lose(&self) {
        self.lost.send_replace(true);
    }

    async fn watch(&self, mut connection: AnyConnection, options: &AnyConnectOptions) {
        loop {
            tokio::time::sleep(LOOK).await;
            let asked = Instant::now();
            let confirmed = match tokio::time::timeout(PATIENCE, connection.ping()).await {
                Ok(Ok(())) => Some((connection, asked)),
                _ => {
                    drop(connection);
                    self.again(options).await
                }
            };
            let Some((alive, asked)) = confirmed else { return self.lose() };
            connection = alive;
            if let Some(confirmed) = &self.confirmed {
                *confirmed.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
        }
    }

    /// Takes the lead again, unless somebody else has it, or had it meanwhile. As long as the database is away, nobody has.
    async fn again(&self, options: &AnyConnectOptions) -> Option<(AnyConnection, Instant)> {
        tracing::warn!("the connection that shows that this process leads was lost; making another one");
        loop {
            match self.take_again(options).await {
                Ok(again) => return again,
                Err(error) => tracing::warn!(%error, "the database is away"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn take_again(&self, options: &AnyConnectOptions) -> Result<Option<(AnyConnection, Instant)>, sqlx::Error> {
        let Some((mut connection, asked)) = take(options).await? else { return Ok(None) };
        let epoch = self.epoch.load(Ordering::SeqCst);
        if epoch != 0 && sqlx::query_scalar::<_, i64>(EPOCH).fetch_one(&mut connection).await? != epoch {
            return Ok(None);
        }
        Ok(Some((connection, asked)))
    }

    /// The number under which it writes from now on.
    pub(crate) fn begin(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    /// What a transaction that writes does first.
    pub(crate) async fn check(&self, connection: &mut AnyConnection) -> Result<(), sqlx::Error> {
        let epoch: i64 = sqlx::query_scalar(EPOCH_SHARED).fetch_one(connection).await?;
        if epoch == self.epoch.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.lose();
        Err(overtaken())
    }
}

pub(crate) fn overtaken() -> sqlx::Error {
    sqlx::Error::AnyDriverError(Box::new(Overtaken))
}

/// Takes the next number: the leader before writes nothing from now on.
pub(crate) async fn next_epoch(connection: &mut AnyConnection, leader: &Leader) -> Result<i64, sqlx::Error> {
    let next = sqlx::query_scalar(NEXT).bind(leader.host.as_str()).bind(leader.address.as_str()).bind(leader.since);
    next.fetch_one(connection).await
}

fn read(confirmed: &Mutex<Instant>) -> Instant {
    *confirmed.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn take(options: &AnyConnectOptions) -> Result<Option<(AnyConnection, Instant)>, sqlx::Error> {
    let mut connection = AnyConnection::connect_with(options).await?;
    connection.execute(END_WHEN_SILENT).await?;
    let deadline = Instant::now() + GRACE;
    loop {
        let asked = Instant::now();
        let taken: i32 = sqlx::query_scalar(TAKE).fetch_one(&mut connection).await?;
        if taken == 1 {
            return Ok(Some((connection, asked)));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        tokio::time::sleep(TRY_AGAIN).await;
    }
}

/// The leader of the database at `url`, as far as it says so.
pub async fn leader_of(url: &str) -> Result<Option<Leader>, sqlx::Error> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await?;
    let row = sqlx::query("SELECT host, address, since FROM leadership WHERE place = 1 AND epoch > 0");
    let row = row.fetch_optional(&mut connection).await?;
    connection.close().await?;
    let read = |row: sqlx::any::AnyRow| {
        Ok(Leader { host: row.try_get("host")?, address: row.try_get("address")?, since: row.try_get("since")? })
    };
    row.map(read).transpose()
}
