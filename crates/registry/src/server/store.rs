//! The settings in the database.
//!
//! Requests that wait at the same time are served together: many reads by one query, many writes by one commit. So neither the
//! round trips nor the flushes of the disk are paid per request, nothing is kept in memory that could be out of date, and
//! several registries may share one PostgreSQL.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use windlass_contract::Secret;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_database::{Database, Migration, OpenError};

use super::turns::SMALL;

const MIGRATIONS: &[Migration] = &[Migration { number: 1, name: "instances", sql: include_str!("0001_instances.sql") }];
/// A director may keep its records in the same database.
const LEDGER: &str = "registry_migrations";
/// How many requests are served together.
const LARGEST_BATCH: usize = 64;
/// How many queries for reading run at once.
const READERS: usize = 2;
/// How many requests may wait before the next ones have to wait to wait.
const QUEUE: usize = 1024;
/// Shorter than clients wait, so that they learn what is wrong.
const DEADLINE: Duration = Duration::from_secs(8);

/// why there is no answer; the cause is in the log, because it concerns the operator of the registry
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoreError {
    /// the database says no
    #[error("the registry's database refuses it")]
    Refused,
    /// the database does not answer
    #[error("the registry's database does not answer")]
    Unavailable,
}

/// The settings of all instances.
#[derive(Debug)]
pub(super) struct Store {
    database: Database,
    reads: mpsc::Sender<Read>,
    writes: mpsc::Sender<Write>,
}

#[derive(Debug)]
struct Read {
    id: String,
    /// Also if they are long.
    whole: bool,
    found: oneshot::Sender<Result<Found, StoreError>>,
}

/// What there is of an instance.
#[derive(Debug)]
pub(super) enum Found {
    Settings(Option<Secret>),
    /// More than fits into [`SMALL`] bytes, which was not read.
    Long {
        size: u64,
    },
}

#[derive(Debug)]
struct Write {
    id: String,
    /// None: they are removed.
    settings: Option<Secret>,
    done: oneshot::Sender<Result<(), StoreError>>,
}

impl Store {
    /// Opens the database; the work is done by tasks of this runtime that end with the store.
    pub(super) async fn open(url: &str) -> Result<Self, OpenError> {
        let database = Database::open_beside_others(url, LEDGER, MIGRATIONS).await?;
        let (reads, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(serve_reads(database.clone(), waiting));
        let (writes, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(serve_writes(database.clone(), waiting));
        Ok(Self { database, reads, writes })
    }

    /// The settings of `id`, as they are after all writes that were answered.
    pub(super) async fn get(&self, id: &str) -> Result<Option<Secret>, StoreError> {
        match self.read(id, true).await? {
            Found::Settings(settings) => Ok(settings),
            Found::Long { .. } => Err(StoreError::Unavailable),
        }
    }

    /// The same, unless they are long.
    pub(super) async fn get_short(&self, id: &str) -> Result<Found, StoreError> {
        self.read(id, false).await
    }

    async fn read(&self, id: &str, whole: bool) -> Result<Found, StoreError> {
        let (found, answer) = oneshot::channel();
        self.reads.send(Read { id: id.to_owned(), whole, found }).await.map_err(|_| StoreError::Unavailable)?;
        answer.await.unwrap_or(Err(StoreError::Unavailable))
    }

    /// Stores the settings of `id`, or removes them; durable when it answers.
    pub(super) async fn set(&self, id: &str, settings: Option<Secret>) -> Result<(), StoreError> {
        let (done, answer) = oneshot::channel();
        self.writes.send(Write { id: id.to_owned(), settings, done }).await.map_err(|_| StoreError::Unavailable)?;
        answer.await.unwrap_or(Err(StoreError::Unavailable))
    }

    /// Closes all connections.
    pub(super) async fn close(&self) {
        self.database.close().await;
    }
}

/// Takes what waits whenever there is a place for a query: the busier the database, the more goes into one.
async fn serve_reads(database: Database, mut waiting: mpsc::Receiver<Read>) {
    let places = Arc::new(Semaphore::new(READERS));
    while let Ok(place) = places.clone().acquire_owned().await {
        let mut batch = Vec::new();
        if waiting.recv_many(&mut batch, LARGEST_BATCH).await == 0 {
            return;
        }
        let database = database.clone();
        tokio::spawn(async move {
            let found = in_time("read", select(&database, &batch)).await;
            let mut long = Vec::new();
            for read in batch {
                let settings = match found.as_ref().map(|found| found.get(&read.id)) {
                    Err(error) => Err(*error),
                    Ok(None) => Ok(Found::Settings(None)),
                    Ok(Some(Short::Settings(settings))) => Ok(Found::Settings(Some(settings.clone()))),
                    Ok(Some(Short::Long { .. })) if read.whole => {
                        long.push(read);
                        continue;
                    }
                    Ok(Some(Short::Long { size })) => Ok(Found::Long { size: *size }),
                };
                // The client may be gone.
                let _ = read.found.send(settings);
            }
            // One by one: together they would be a hundred megabytes, several times over.
            for read in long {
                let settings = in_time("read", select_one(&database, &read.id)).await;
                let _ = read.found.send(settings.map(Found::Settings));
            }
            drop(place);
        });
    }
}

async fn serve_writes(database: Database, mut waiting: mpsc::Receiver<Write>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, LARGEST_BATCH).await > 0 {
        match in_time("write", commit(&database, &batch)).await {
            // Settings that cannot be stored must not fail other writes.
            Err(StoreError::Refused) if batch.len() > 1 => {
                for write in batch.drain(..) {
                    let outcome = in_time("write", commit(&database, std::slice::from_ref(&write))).await;
                    let _ = write.done.send(outcome);
                }
            }
            outcome => {
                for write in batch.drain(..) {
                    let _ = write.done.send(outcome);
                }
            }
        }
    }
}

async fn in_time<T>(doing: &str, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(DEADLINE, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot {doing} settings");
            Err(if error.as_database_error().is_some() { StoreError::Refused } else { StoreError::Unavailable })
        }
        Err(_) => {
            tracing::error!("cannot {doing} settings within {DEADLINE:?}");
            Err(StoreError::Unavailable)
        }
    }
}

/// Settings that are short, or how many bytes long ones have.
enum Short {
    Settings(Secret),
    Long { size: u64 },
}

/// Long settings stay in the database.
async fn select(database: &Database, batch: &[Read]) -> Result<HashMap<String, Short>, sqlx::Error> {
    // A statement per power of two, so that each is prepared once; the last id fills up the rest.
    let size = batch.len().next_power_of_two();
    let places = (1..=size).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT instance_id, CASE WHEN LENGTH(settings) <= {SMALL} THEN settings END AS settings,
         CAST(OCTET_LENGTH(settings) AS BIGINT) AS size FROM registry_instances WHERE instance_id IN ({places})"
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for read in batch.iter().chain(batch.last().into_iter().cycle()).take(size) {
        query = query.bind(read.id.as_str());
    }
    let rows = query.fetch_all(database.pool()).await?;
    // The database counts letters.
    let is_short = |settings: &String| settings.len() <= SMALL;
    rows.into_iter()
        .map(|row| {
            let short = match row.try_get::<Option<String>, _>("settings")?.filter(is_short) {
                Some(settings) => Short::Settings(Secret::new(settings)),
                None => Short::Long { size: row.try_get::<i64, _>("size")?.try_into().unwrap_or(u64::MAX) },
            };
            Ok((row.try_get("instance_id")?, short))
        })
        .collect()
}

async fn select_one(database: &Database, id: &str) -> Result<Option<Secret>, sqlx::Error> {
    let query = sqlx::query("SELECT settings FROM registry_instances WHERE instance_id = $1").bind(id);
    let row = query.fetch_optional(database.pool()).await?;
    row.map(|row| Ok(Secret::new(row.try_get::<String, _>("settings")?))).transpose()
}

async fn commit(database: &Database, batch: &[Write]) -> Result<(), sqlx::Error> {
    // The last word about an instance counts, and in the order of ids: registries that share a database lock rows, and must
    // not wait for each other crosswise.
    let changes: BTreeMap<_, _> = batch.iter().map(|write| (write.id.as_str(), write.settings.as_ref())).collect();
    let mut transaction = database.begin().await?;
    for (id, settings) in changes {
        let change = match settings {
            Some(settings) => sqlx::query(
                "INSERT INTO registry_instances (instance_id, settings) VALUES ($1, $2) \
                 ON CONFLICT (instance_id) DO UPDATE SET settings = excluded.settings",
            )
            .bind(id)
            .bind(settings.reveal()),
            None => sqlx::query("DELETE FROM registry_instances WHERE instance_id = $1").bind(id),
        };
        change.execute(transaction.connection()).await?;
    }
    transaction.commit().await
}
