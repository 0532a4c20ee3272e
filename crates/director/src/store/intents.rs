//! Intents: what was about to be done in a cloud.

use windlass_contract::{ApiVersion, RequestId, explain};
use windlass_database::Transaction;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_durable::host::Host;
use windlass_durable::process::ProcessIdentity;
use windlass_operations::clock;
use windlass_operations::ledger::{Elsewhere, Intent, NotOneIntent};

use super::{Store, StoreError, events, from_json, optional_json, to_json};
use windlass_planning::names::CpiName;

fn read(row: &AnyRow, here: &Host) -> Result<Intent, StoreError> {
    let (child, elsewhere) = child(row, here)?;
    let change: String = row.try_get("change_json")?;
    let id = RequestId::new(row.try_get::<String, _>("id")?).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(Intent {
        id,
        task: row.try_get("task")?,
        cpi: row.try_get::<String, _>("cpi")?.into(),
        stemcell_version: row.try_get::<Option<i64>, _>("stemcell_version")?.map(|version| ApiVersion(version as u32)),
        change: from_json("intents.change_json", &change)?,
        child,
        elsewhere,
        doubt: row.try_get("doubt")?,
    })
}

/// The process of an intent, or where it was started instead. A machine that was started again has none of its processes.
fn child(row: &AnyRow, here: &Host) -> Result<(Option<ProcessIdentity>, Option<Elsewhere>), StoreError> {
    let Some(child) = optional_json(row, "child")? else { return Ok((None, None)) };
    // Directors that noted no host had the database for themselves.
    let there: Host = optional_json(row, "host")?.unwrap_or_else(|| here.clone());
    Ok(if here.has_same_pids(&there) {
        (Some(child), None)
    } else if here.has_same_name(&there) {
        (None, None)
    } else {
        let until = row.try_get::<Option<i64>, _>("child_until")?.unwrap_or_default();
        (None, Some(Elsewhere { host: there.name, until }))
    })
}

/// Ends an intent; the caller rolls back if it was not there.
pub(super) async fn remove(transaction: &mut Transaction, id: &RequestId) -> Result<(), StoreError> {
    let removed =
        sqlx::query("DELETE FROM intents WHERE id = $1").bind(id.as_str()).execute(transaction.connection()).await?;
    Ok(NotOneIntent::unless_one(id, removed.rows_affected())?)
}

/// A change in a cloud that was begun, and of which nothing else is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnreadableIntent {
    /// The id of the request.
    pub id: String,
    /// The CPI's name.
    pub cpi: CpiName,
    /// Why its record cannot be read.
    pub why: String,
}

impl Store {
    pub(super) async fn insert_intent(&self, intent: &Intent) -> Result<(), StoreError> {
        let mut transaction = match intent.change.is_light() {
            true => self.database.begin_unflushed().await?,
            false => self.database.begin().await?,
        };
        sqlx::query(
            "INSERT INTO intents (id, task, cpi, stemcell_version, change_json, opened_at) VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(intent.id.as_str())
        .bind(intent.task)
        .bind(intent.cpi.as_str())
        .bind(intent.stemcell_version.map(|version| i64::from(version.0)))
        .bind(to_json("intents.change_json", &intent.change)?)
        // Read for their order alone. Older directors wrote seconds, which are less.
        .bind(clock::now_in_microseconds())
        .execute(transaction.connection())
        .await?;
        events::intent_begins(&mut transaction, intent).await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn set_intent_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), StoreError> {
        // A loss of power ends the process, too.
        let mut transaction = self.database.begin_unflushed().await?;
        let until = clock::now().saturating_add_unsigned(self.cpi_deadline.as_secs());
        let changed = sqlx::query("UPDATE intents SET child = $1, host = $2, child_until = $3 WHERE id = $4")
            .bind(to_json("intents.child", &child)?)
            .bind(to_json("intents.host", &*self.host)?)
            .bind(until)
            .bind(id.as_str())
            .execute(transaction.connection())
            .await?;
        NotOneIntent::unless_one(id, changed.rows_affected())?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn set_intent_doubt(&self, id: &RequestId, why: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let changed = sqlx::query("UPDATE intents SET doubt = $1 WHERE id = $2")
            .bind(why)
            .bind(id.as_str())
            .execute(transaction.connection())
            .await?;
        NotOneIntent::unless_one(id, changed.rows_affected())?;
        events::intent_ends(&mut transaction, id, None, Some(why)).await?;
        Ok(transaction.commit().await?)
    }

    pub(super) async fn delete_intent(&self, id: &RequestId, why: &str) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        events::intent_ends(&mut transaction, id, None, Some(why)).await?;
        remove(&mut transaction, id).await?;
        Ok(transaction.commit().await?)
    }

    async fn intent_rows(&self) -> Result<Vec<AnyRow>, sqlx::Error> {
        sqlx::query("SELECT * FROM intents ORDER BY opened_at, id").fetch_all(self.database.pool()).await
    }

    /// All that can be read; the others are [unreadable](Self::unreadable_intents).
    pub(super) async fn all_intents(&self) -> Result<Vec<Intent>, StoreError> {
        Ok(self.intent_rows().await?.iter().filter_map(|row| read(row, &self.host).ok()).collect())
    }

    /// Changes that another version of the director began, or whose records are damaged. They stay on record: the cloud may
    /// hold what they made.
    pub(crate) async fn unreadable_intents(&self) -> Result<Vec<UnreadableIntent>, StoreError> {
        let mut unreadable = Vec::new();
        for row in self.intent_rows().await? {
            if let Err(error) = read(&row, &self.host) {
                unreadable.push(UnreadableIntent {
                    id: row.try_get("id")?,
                    cpi: row.try_get::<String, _>("cpi")?.into(),
                    why: explain(&error),
                });
            }
        }
        Ok(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_contract::VmCid;
    use windlass_operations::ledger::{Change, Ledger};

    use crate::testing::TestDirector;

    /// A pid of another machine is some other process here, or none; taken for ended, its call would be made beside it.
    #[tokio::test]
    async fn the_cpi_of_an_intent_is_looked_for_on_its_machine_alone() {
        let bench = TestDirector::new().await;
        let here = bench.director.store.clone();
        let change = Change::DeleteVm { cid: VmCid::new("vm-1").unwrap() };
        let (id, cpi) = (RequestId::random(), CpiName::Default);
        let intent =
            Intent { id, task: None, cpi, stemcell_version: None, change, child: None, elsewhere: None, doubt: None };
        here.write_intent(&intent).await.unwrap();
        let before = clock::now();
        let child = ProcessIdentity::of(std::process::id()).unwrap();
        here.note_child(&intent.id, child).await.unwrap();
        let found = |store: Store| async move { store.all_intents().await.unwrap().remove(0) };
        assert_eq!(found(here.clone()).await.child, Some(child));

        let host = |name: &str, boot: &str| -> Host {
            let mut host = serde_json::to_value(Host::here()).unwrap();
            host["boot"] = boot.into();
            if !name.is_empty() {
                host["name"] = name.into();
            }
            serde_json::from_value(host).unwrap()
        };
        let booted = found(here.clone().on_host(host("", "another boot"))).await;
        assert_eq!((booted.child, booted.elsewhere), (None, None), "it ended with the boot");
        let other = found(here.on_host(host("other", "another boot"))).await;
        assert_eq!(other.child, None);
        let elsewhere = other.elsewhere.unwrap();
        assert_eq!(elsewhere.host, Host::here().name);
        assert!((before + 3600..before + 3660).contains(&elsewhere.until), "{elsewhere:?}");
    }
}
