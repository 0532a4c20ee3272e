//! SQLite and PostgreSQL behind one pool, with numbered migrations.
//!
//! [`Database::open`] takes `sqlite:PATH` or `postgres://…`, brings the schema up to date and gives out connections.
//! The same SQL runs on both: parameters are `$1`, `$2`, …; numbers, flags (0 or 1) and times (unix
//! seconds) are `BIGINT`, everything else is `TEXT`. Where the two differ, a migration writes one of the words in [`migration`].
//!
//! A commit that was answered is durable: SQLite runs with a write-ahead log that is flushed at every commit. What only a kill of
//! the process must not take back is committed without a flush, which takes a millisecond: see [`Database::begin_unflushed`].
//!
//! [`PrivatePostgres`] (feature `private-postgres`) is a throw-away server for tests and measurements.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests write as they like"))]

mod lead;
pub mod migration;
#[cfg(feature = "private-postgres")]
mod private_postgres;
#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::any::{AnyArguments, AnyConnectOptions, AnyPoolOptions};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AnyPool, Connection, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use lead::{HeldLead, LEASE, Lead, Leader, is_overtaken, leader_of};
pub use migration::Migration;
#[cfg(feature = "private-postgres")]
pub use private_postgres::PrivatePostgres;
pub use sqlx;

use windlass_durable::kill_point;

/// Which of the two databases this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

/// A pool of connections to a migrated database.
#[derive(Debug, Clone)]
pub struct Database {
    pool: AnyPool,
    /// Connections that do not flush; none on PostgreSQL, where each transaction can say so itself.
    unflushed: Option<AnyPool>,
    /// SQLite has one writer at a time; the others queue here, because in its own queue they sleep up to 100 ms too long.
    turn: Option<Arc<Semaphore>>,
    /// Under which every transaction that writes looks first; none where the program does not share its database.
    lead: Option<Arc<Lead>>,
    dialect: Dialect,
    /// How many transactions that may write have ended.
    changes: Arc<AtomicU64>,
}

/// why a database cannot be opened
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// the URL is neither SQLite's nor PostgreSQL's
    #[error("a database URL starts with 'sqlite:' or 'postgres:', not '{0}'")]
    UnknownScheme(String),
    /// the database cannot be reached
    #[error("cannot open the {dialect:?} database")]
    Connect {
        dialect: Dialect,
        #[source]
        source: sqlx::Error,
    },
    /// the file cannot be made
    #[error("cannot make the database file {}", path.display())]
    Create {
        path: std::path::PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("migration {number} ({name}) failed; the database is as it was before it")]
    Migrate {
        number: i64,
        name: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// the database was written by a newer version
    #[error("the database has migration {found}, this version knows {known}: use a version that is at least as new")]
    TooNew {
        /// In the database.
        found: i64,
        /// The last one known here.
        known: i64,
    },
}

/// How long a connection waits for a lock of SQLite.
const BUSY: Duration = Duration::from_secs(30);

/// SQLite's codes for a full disk and for a full disk of the write-ahead log's index, and PostgreSQL's.
const FULL: [&str; 3] = ["13", "4874", "53100"];

/// PostgreSQL's codes of a server that stops or starts, or ended a connection because a transaction on it was not gone on with.
const GOING_DOWN: [&str; 4] = ["57P01", "57P02", "57P03", "25P03"];

/// Where applied migrations are noted, unless something else is said.
const LEDGER: &str = "schema_migrations";

impl Database {
    /// Opens the database at `url` and applies the migrations that it does not have.
    pub async fn open(url: &str, migrations: &[Migration]) -> Result<Self, OpenError> {
        Self::open_beside_others(url, LEDGER, migrations).await
    }

    /// The same for a database that holds other programs' tables, too: migrations are noted in a table called `applied_table`, so
    /// that everybody counts their own.
    pub async fn open_beside_others(
        url: &str,
        applied_table: &'static str,
        migrations: &[Migration],
    ) -> Result<Self, OpenError> {
        sqlx::any::install_default_drivers();
        let scheme = url.split(':').next().unwrap_or_default();
        let (dialect, url, connections) = match scheme {
            // Readers never wait for the writer in WAL mode, and writers wait for each other anyway.
            "sqlite" => {
                create_private(url)?;
                (Dialect::Sqlite, url.to_owned(), 4)
            }
            "postgres" | "postgresql" => (Dialect::Postgres, url.to_owned(), 16),
            other => return Err(OpenError::UnknownScheme(other.to_owned())),
        };
        let failed = |source| OpenError::Connect { dialect, source };
        let options: AnyConnectOptions = url.parse().map_err(failed)?;
        // A pool tries again and again and then only says that it took too long; one connection says what is wrong.
        let mut first = AnyConnection::connect_with(&options).await.map_err(failed)?;
        set_up(&mut first, dialect).await.map_err(failed)?;
        first.close().await.map_err(failed)?;
        // A connection that was open during a migration may remember tables as they were before it.
        let migrating = Self::connect(dialect, options.clone(), 1).await.map_err(failed)?;
        let migrated = migration::apply(&migrating, applied_table, migrations).await;
        migrating.close().await;
        migrated?;
        Self::connect(dialect, options, connections).await.map_err(failed)
    }

    async fn connect(dialect: Dialect, options: AnyConnectOptions, connections: u32) -> Result<Self, sqlx::Error> {
        let pool = options_of_pools(dialect)
            .max_connections(connections)
            .after_connect(move |connection, _| Box::pin(set_up(connection, dialect)))
            .connect_with(options.clone())
            .await?;
        let unflushed = match dialect {
            Dialect::Postgres => None,
            Dialect::Sqlite => Some(
                options_of_pools(dialect)
                    .max_connections(1)
                    .after_connect(move |connection, _| {
                        Box::pin(async move {
                            set_up(connection, dialect).await?;
                            connection.execute("PRAGMA synchronous = NORMAL").await.map(drop)
                        })
                    })
                    .connect_lazy_with(options),
            ),
        };
        let turn = (dialect == Dialect::Sqlite).then(|| Arc::new(Semaphore::new(1)));
        Ok(Self { pool, unflushed, turn, lead: None, dialect, changes: Arc::default() })
    }

    /// The same for the program that has the lead. From now on, who led before can write nothing, and this one as long as
    /// nobody else takes the lead.
    pub async fn led(self, lead: &Arc<Lead>, leader: &Leader) -> Result<Self, sqlx::Error> {
        let mut transaction = self.begin().await?;
        let epoch = lead::next_epoch(transaction.connection(), leader).await?;
        // A director that was frozen since it took the lead must not take it from the one that has it now.
        if !lead.is_certain() {
            return Err(lead::overtaken());
        }
        transaction.commit().await?;
        lead.begin(epoch);
        // Beside a file, a lock of the machine's keeps others away.
        let lead = (self.dialect == Dialect::Postgres).then(|| lead.clone());
        Ok(Self { lead, ..self })
    }

    /// The connections, for reading.
    pub fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// A number that is higher after each change that this process made: what was read since it was asked for is as new as anything
    /// that anybody was told by then.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Which kind of database this is.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Begins a transaction that may write. On SQLite it takes the write lock at once, so that it never fails half-way
    /// because another one was quicker.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        let turn = self.turn().await?;
        let begin = match self.dialect {
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::Postgres => "BEGIN",
        };
        let mut transaction = self.transaction(self.pool.begin_with(begin).await?, turn);
        if let Some(lead) = &self.lead {
            lead.check(transaction.connection()).await?;
        }
        Ok(transaction)
    }

    /// Executes one statement that writes; says how many rows it changed.
    pub async fn execute(&self, statement: Query<'_, Any, AnyArguments>) -> Result<u64, sqlx::Error> {
        let mut transaction = self.begin().await?;
        let changed = statement.execute(transaction.connection()).await?.rows_affected();
        transaction.commit().await?;
        Ok(changed)
    }

    fn transaction(&self, inner: sqlx::Transaction<'static, Any>, turn: Option<OwnedSemaphorePermit>) -> Transaction {
        Transaction { inner, _change: Change(self.changes.clone()), _turn: turn }
    }

    async fn turn(&self) -> Result<Option<OwnedSemaphorePermit>, sqlx::Error> {
        match &self.turn {
            Some(turn) => Ok(Some(turn.clone().acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?)),
            None => Ok(None),
        }
    }

    /// The same for what may be taken back by a loss of power, though not by a kill: it is flushed with the next transaction
    /// that is, and never without those before it.
    pub async fn begin_unflushed(&self) -> Result<Transaction, sqlx::Error> {
        match &self.unflushed {
            Some(pool) => {
                let turn = self.turn().await?;
                Ok(self.transaction(pool.begin_with("BEGIN IMMEDIATE").await?, turn))
            }
            None => {
                let mut transaction = self.begin().await?;
                transaction.connection().execute("SET LOCAL synchronous_commit = off").await?;
                Ok(transaction)
            }
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        if let Some(unflushed) = &self.unflushed {
            unflushed.close().await;
        }
        self.pool.close().await;
    }
}

/// What a pool gives out is not within a transaction. SQLite takes a transaction back by itself when the disk is full; the
/// connection then believes for ever to be within it, and would refuse to begin another one.
///
/// Connections stay. A pool that closes old or idle ones looks for them from time to time, and counts wrong while one is given back: it then
/// goes round without end, a thread of the runtime with it, which also keeps the program from ending (sqlx 0.9, `spawn_maintenance_tasks`).
fn options_of_pools(dialect: Dialect) -> AnyPoolOptions {
    AnyPoolOptions::new()
        .acquire_timeout(BUSY)
        .idle_timeout(None)
        .max_lifetime(None)
        // A server may be gone, a file is not: asking first would double what a short query costs.
        .test_before_acquire(dialect == Dialect::Postgres)
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}

/// Whether there is no space left for what was to be written.
pub fn is_full(error: &sqlx::Error) -> bool {
    let code = |error: &sqlx::Error| error.as_database_error()?.code().map(std::borrow::Cow::into_owned);
    code(error).is_some_and(|code| FULL.contains(&code.as_str()))
}

/// Whether the database cannot be reached at present.
pub fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| GOING_DOWN.contains(&code.as_ref())),
        _ => false,
    }
}

async fn set_up(connection: &mut AnyConnection, dialect: Dialect) -> Result<(), sqlx::Error> {
    if dialect == Dialect::Postgres {
        // The next leader waits for what the one before has begun, and that one may be frozen.
        connection.execute("SET idle_in_transaction_session_timeout = '10s'").await?;
        // Connections stay, and what lies between forgets those on which nobody speaks.
        connection.execute("SET tcp_keepalives_idle = 60").await?;
    }
    if dialect == Dialect::Sqlite {
        // First, because the next statement waits for other programs that open the file.
        connection.execute("PRAGMA busy_timeout = 30000").await?;
        // A database that is in this mode stays in it; setting it again could fail where the disk is full.
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await?;
        if !mode.eq_ignore_ascii_case("wal") {
            connection.execute("PRAGMA journal_mode = WAL").await?;
        }
        // What a large transaction made of the log is given back.
        connection.execute("PRAGMA journal_size_limit = 16777216").await?;
        connection.execute("PRAGMA synchronous = FULL").await?;
        connection.execute("PRAGMA foreign_keys = ON").await?;
    }
    Ok(())
}

/// A database holds secrets, so nobody else may read it; SQLite gives its other files the permissions of this one.
fn create_private(url: &str) -> Result<(), OpenError> {
    let path = std::path::PathBuf::from(url.trim_start_matches("sqlite:"));
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(source) if source.kind() != ErrorKind::AlreadyExists => Err(OpenError::Create { path, source }),
        _ => Ok(()),
    }
}

/// A transaction; dropped without [`Transaction::commit`], it changes nothing.
#[derive(Debug)]
pub struct Transaction {
    inner: sqlx::Transaction<'static, Any>,
    _change: Change,
    _turn: Option<OwnedSemaphorePermit>,
}

/// Counts when it goes: after the commit, and before anybody hears of it.
#[derive(Debug)]
struct Change(Arc<AtomicU64>);

impl Drop for Change {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Transaction {
    /// Makes the changes durable.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        kill_point("before commit");
        self.inner.commit().await?;
        kill_point("after commit");
        Ok(())
    }

    /// The connection to run statements on.
    pub fn connection(&mut self) -> &mut sqlx::AnyConnection {
        &mut self.inner
    }
}
