//! The director's memory: one database, one file per kind of record.
//!
//! [`Store`] implements [`Ledger`](windlass_operations::ledger::Ledger), which is all that the steps see of it. Tasks, locks and
//! intents live here as well. One director at a time uses a database (see `leadership`).

mod configs;
mod counts;
mod deployments;
mod dns_groups;
mod dns_records;
mod errands;
mod events;
mod exports;
mod insist;
mod instances;
mod intents;
mod known;
mod ledger;
mod links;
mod lists;
mod locks;
mod made_blobs;
mod notices;
mod problems;
mod queue;
mod releases;
mod resources;
mod snapshots;
mod software;
mod stemcells;
mod tasks;
mod variables;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Connection, Row};
use windlass_database::{Database, Lead, Leader, Migration, OpenError};
use windlass_durable::host::Host;
use windlass_operations::clock;
use windlass_operations::ledger::NotOneIntent;

use crate::settings::Settings;

pub(crate) use configs::{AddConfig, ConfigLabel, NewConfig};
pub(crate) use counts::Counts;
pub(crate) use deployments::DeploymentRecord;
pub(crate) use dns_records::VmBehind;
pub(crate) use events::{Event, EventFilter, EventRecord};
pub(crate) use links::{LinkOfConsumer, LinkRecord, RoomForLinks};
pub(crate) use lists::{BriefInstance, Contact, ListedDeployment, Watched};
pub(crate) use locks::{LockError, LockName};
pub(crate) use queue::{Busy, LOOK_UP, Lane};
pub(crate) use resources::{OrphanDisk, OrphanedVm};
pub(crate) use tasks::{ClaimedTask, NewTask, StoredJob, TaskFilter, TaskRecord, TaskState};
pub(crate) use variables::{KeyOnRecord, SealedValue, key_fingerprint_in};

const MIGRATIONS: &[Migration] = &[
    Migration { number: 1, name: "initial", sql: include_str!("0001_initial.sql") },
    Migration { number: 2, name: "disk names", sql: include_str!("0002_disk_names.sql") },
    Migration { number: 3, name: "events", sql: include_str!("0003_events.sql") },
    Migration { number: 4, name: "problems", sql: include_str!("0004_problems.sql") },
    Migration { number: 5, name: "spare VMs", sql: include_str!("0005_spare_vms.sql") },
    Migration { number: 6, name: "snapshots", sql: include_str!("0006_snapshots.sql") },
    Migration { number: 9, name: "releases", sql: include_str!("0009_releases.sql") },
    Migration { number: 10, name: "software", sql: include_str!("0010_software.sql") },
    Migration { number: 20, name: "indexes", sql: include_str!("0020_indexes.sql") },
    Migration { number: 30, name: "tries", sql: include_str!("0030_tries.sql") },
    Migration { number: 31, name: "leadership", sql: include_str!("0031_leadership.sql") },
    Migration { number: 33, name: "stemcells of orphans", sql: include_str!("0033_stemcells_of_orphans.sql") },
    Migration { number: 35, name: "links", sql: include_str!("0035_links.sql") },
    Migration { number: 36, name: "errands", sql: include_str!("0036_errands.sql") },
    Migration { number: 40, name: "exported releases", sql: include_str!("0040_exported_releases.sql") },
    Migration { number: 41, name: "fetched logs", sql: include_str!("0041_fetched_logs.sql") },
    Migration { number: 45, name: "teams", sql: include_str!("0045_teams.sql") },
    Migration { number: 46, name: "notices", sql: include_str!("0046_notices.sql") },
    Migration { number: 47, name: "groups in DNS", sql: include_str!("0047_dns_groups.sql") },
    Migration { number: 50, name: "applied specs", sql: include_str!("0050_applied_specs.sql") },
    Migration { number: 60, name: "variables", sql: include_str!("0060_variables.sql") },
    Migration { number: 70, name: "records of DNS", sql: include_str!("0070_dns_records.sql") },
    Migration { number: 75, name: "tasks of logs", sql: include_str!("0075_tasks_of_logs.sql") },
    Migration { number: 80, name: "former deployments", sql: include_str!("0080_former_deployments.sql") },
    Migration { number: 81, name: "deployments of notices", sql: include_str!("0081_deployments_of_notices.sql") },
    Migration { number: 90, name: "teams of orphaned disks", sql: include_str!("0090_teams_of_orphans.sql") },
];

/// The director's records.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    database: Database,
    /// Where the CPIs of its intents run.
    host: Arc<Host>,
    /// How long they may.
    cpi_deadline: Duration,
    /// How many events were added.
    unseen_events: Arc<AtomicUsize>,
}

/// the records cannot be read or written
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the director's database failed")]
    Database(#[from] sqlx::Error),
    /// two deployments want the same address
    #[error("another deployment took the address {0} while this one was planned; deploy again")]
    AddressTaken(std::net::IpAddr),
    /// what a deployment is to use was deleted
    #[error("a {0} that this deployment uses was deleted while it was planned; upload it again, or deploy again")]
    Gone(&'static str),
    /// a deployment uses what is to be deleted
    #[error("a deployment began to use this {0} meanwhile, so it is not deleted")]
    InUse(&'static str),
    /// an intent is not there, or not any more
    #[error(transparent)]
    Intent(#[from] NotOneIntent),
    /// specs of jobs would take too much memory
    #[error(
        "the specs of the jobs of these releases have more than 8 MiB or 400,000 values together, {0} among them; let the jobs of a release define \
         fewer properties, or deploy with fewer releases"
    )]
    TooManySpecs(String),
    /// links of other deployments would take too much memory
    #[error(
        "the links of other deployments that jobs consume have more than 8 MiB or 300,000 values together, {0} among them; consume fewer, or let \
         those deployments provide smaller ones"
    )]
    TooLargeLinks(String),
    /// a record is damaged; what is wrong is not quoted, because records hold secrets
    #[error("a record in {column} is damaged at byte {byte}, or a newer version of the director wrote it")]
    Damaged {
        /// Which column of which table.
        column: &'static str,
        byte: usize,
    },
}

/// One request may refer to a row while another deletes it. The database refuses the later one, and `because` says why.
fn refused(error: sqlx::Error, because: StoreError) -> StoreError {
    match error.as_database_error().is_some_and(|error| error.is_foreign_key_violation()) {
        true => because,
        false => error.into(),
    }
}

impl StoreError {
    /// Whether there is no space left for what was to be written.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Database(error) if windlass_database::is_full(error))
    }

    /// Whether the database cannot be reached at present.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Database(error) if windlass_database::is_away(error))
    }

    /// Whether another director took over.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self, Self::Database(error) if windlass_database::is_overtaken(error))
    }
}

impl Store {
    /// Opens the database at `url`.
    pub(crate) async fn open(url: &str) -> Result<Self, OpenError> {
        let database = Database::open(url, MIGRATIONS).await?;
        let cpi_deadline = Settings::default().cpi_deadline;
        Ok(Self { database, host: Arc::new(Host::here()), cpi_deadline, unseen_events: Arc::default() })
    }

    /// The same for the director that leads, which clients reach at `address`: who led before can write nothing from now on.
    pub(crate) async fn led(self, lead: &Arc<Lead>, address: &str, cpi_deadline: Duration) -> Result<Self, StoreError> {
        let host = to_json("leadership.host", &*self.host)?;
        let leader = Leader { host, address: address.to_owned(), since: clock::now() };
        Ok(Self { database: self.database.led(lead, &leader).await?, cpi_deadline, ..self })
    }

    /// Higher after each change: see [`Database::changes`].
    pub(crate) fn changes(&self) -> u64 {
        self.database.changes()
    }

    /// Does to the records what nobody should.
    #[cfg(test)]
    pub(crate) async fn tamper(&self, statement: &'static str) {
        sqlx::query(statement).execute(self.database.pool()).await.unwrap();
    }

    /// Pretends to run on another machine.
    #[cfg(test)]
    pub(crate) fn on_host(self, host: Host) -> Self {
        Self { host: Arc::new(host), ..self }
    }

    /// Whether a director holds the lock of PostgreSQL.
    #[cfg(test)]
    pub(crate) async fn is_led(&self) -> bool {
        let held = sqlx::query_scalar("SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory'");
        held.fetch_one(self.database.pool()).await.is_ok_and(|held: i64| held > 0)
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        self.database.close().await;
    }

    /// An attribute of the director, made by `make` when it does not exist yet.
    pub(crate) async fn attribute(&self, name: &str, make: impl FnOnce() -> String) -> Result<String, StoreError> {
        let mut transaction = self.database.begin().await?;
        let found = sqlx::query("SELECT value FROM attributes WHERE name = $1")
            .bind(name)
            .fetch_optional(transaction.connection())
            .await?;
        if let Some(row) = found {
            return Ok(row.try_get("value")?);
        }
        let value = make();
        sqlx::query("INSERT INTO attributes (name, value) VALUES ($1, $2)")
            .bind(name)
            .bind(value.as_str())
            .execute(transaction.connection())
            .await?;
        transaction.commit().await?;
        Ok(value)
    }

    /// Puts another value in the place of an attribute's.
    pub(crate) async fn set_attribute(&self, name: &str, value: &str) -> Result<(), StoreError> {
        let statement = sqlx::query(
            "INSERT INTO attributes (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2",
        )
        .bind(name)
        .bind(value);
        self.database.execute(statement).await?;
        Ok(())
    }
}

/// The uuid of the director whose database is at `url`, which may be of another version.
pub(crate) async fn uuid_in(url: &str) -> Result<Option<String>, sqlx::Error> {
    let mut connection = sqlx::AnyConnection::connect(url).await?;
    let uuid = sqlx::query_scalar("SELECT value FROM attributes WHERE name = 'uuid'");
    let uuid = uuid.fetch_optional(&mut connection).await?;
    connection.close().await?;
    Ok(uuid)
}

pub(crate) fn from_json<T: DeserializeOwned>(column: &'static str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(damaged(column))
}

fn to_json(column: &'static str, value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(damaged(column))
}

/// The same for what may have megabytes: a text that grows while it is written has room for twice as much in the end.
fn to_long_json(column: &'static str, value: &impl Serialize) -> Result<String, StoreError> {
    struct Length(usize);
    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value).map_err(damaged(column))?;
    let mut text = Vec::with_capacity(length.0);
    serde_json::to_writer(&mut text, value).map_err(damaged(column))?;
    String::from_utf8(text).map_err(|error| StoreError::Damaged { column, byte: error.utf8_error().valid_up_to() })
}

fn damaged(column: &'static str) -> impl Fn(serde_json::Error) -> StoreError {
    move |error| StoreError::Damaged { column, byte: error.column() }
}

fn optional_json<T: DeserializeOwned>(row: &AnyRow, column: &'static str) -> Result<Option<T>, StoreError> {
    row.try_get::<Option<String>, _>(column)?.map(|text| from_json(column, &text)).transpose()
}
