//! The database as a [`Ledger`].

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::Deserialize;
use windlass_contract::{ApiVersion, DiskCid, RequestId, VmCid};
use windlass_database::Transaction;
use windlass_database::sqlx::{self, AnyConnection};
use windlass_durable::process::ProcessIdentity;
use windlass_operations::clock;
use windlass_operations::ledger::{Fact, Intent, IntentEnd, IntentOutcome, Ledger, LedgerError};
use windlass_planning::records::{DiskRecord, StemcellOfVm};

use super::insist::insist;
use super::{Store, StoreError, events, intents, optional_json, resources, to_json};

pub(super) const DISKS_LEAVE_VM: &str = "UPDATE disks SET vm = NULL, mounted = 0, hint = NULL WHERE vm = $1";

fn failed(what: &'static str) -> impl FnOnce(StoreError) -> LedgerError {
    move |error| {
        let source = match error {
            StoreError::Intent(not_one) => not_one.into(),
            other => other.into(),
        };
        LedgerError { what, place: "the director's database".to_owned(), source }
    }
}

#[async_trait]
impl Ledger for Store {
    async fn write_intent(&self, intent: &Intent) -> Result<(), LedgerError> {
        self.insert_intent(intent).await.map_err(failed("write an intent"))
    }

    async fn note_child(&self, id: &RequestId, child: ProcessIdentity) -> Result<(), LedgerError> {
        self.set_intent_child(id, child).await.map_err(failed("note the process of an intent"))
    }

    async fn end_intent(&self, end: IntentEnd<'_>) -> Result<(), LedgerError> {
        let did = match end.outcome() {
            IntentOutcome::Settled(_) => "settle an intent",
            IntentOutcome::Abandoned(_) => "abandon an intent",
            IntentOutcome::Doubtful(_) => "note a doubt",
        };
        let failed_before = AtomicBool::new(false);
        let write = || async {
            let written = match end.outcome() {
                IntentOutcome::Settled(fact) => self.apply(Some(end.id()), fact).await,
                IntentOutcome::Abandoned(why) => self.delete_intent(end.id(), why).await,
                IntentOutcome::Doubtful(why) => self.set_intent_doubt(end.id(), why).await,
            };
            match written {
                // It was written the first time, and only the answer of the database was lost.
                Err(StoreError::Intent(_)) if failed_before.load(Ordering::SeqCst) => Ok(()),
                Err(error) => {
                    failed_before.store(true, Ordering::SeqCst);
                    Err(error)
                }
                Ok(()) => Ok(()),
            }
        };
        insist("the end of an intent", write).await.map_err(failed(did))
    }

    async fn record(&self, fact: &Fact) -> Result<(), LedgerError> {
        self.apply(None, fact).await.map_err(failed("note a fact"))
    }

    async fn intents(&self) -> Result<Vec<Intent>, LedgerError> {
        self.all_intents().await.map_err(failed("read the intents"))
    }
}

impl Store {
    async fn apply(&self, settles: Option<&RequestId>, fact: &Fact) -> Result<(), StoreError> {
        let mut transaction = match fact.is_light() {
            true => self.database.begin_unflushed().await?,
            false => self.database.begin().await?,
        };
        write(&mut transaction, fact).await?;
        if let Some(id) = settles {
            events::intent_ends(&mut transaction, id, events::made(fact), None).await?;
            intents::remove(&mut transaction, id).await?;
        }
        Ok(transaction.commit().await?)
    }
}

async fn write(transaction: &mut Transaction, fact: &Fact) -> Result<(), StoreError> {
    if let Fact::DiskOrphaned { disk } = fact {
        events::disk_is_orphaned(transaction, disk.as_str()).await?;
    }
    let connection = transaction.connection();
    match fact {
        Fact::StemcellCreated { stemcell, cid } => {
            // An upload with `--fix` replaces the cid and refreshes the version; VMs keep the one they were made with.
            sqlx::query(
                "INSERT INTO stemcells (name, version, cpi, cid, operating_system, sha1, api_version)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (name, version, cpi) DO UPDATE SET cid = $4, operating_system = $5, sha1 = $6, api_version = $7",
            )
            .bind(stemcell.name.as_str())
            .bind(stemcell.version.as_str())
            .bind(stemcell.cpi.as_str())
            .bind(cid.as_str())
            .bind(stemcell.operating_system.as_str())
            .bind(stemcell.sha1.as_str())
            .bind(stemcell.api_version.map(|version| i64::from(version.0)))
            .execute(connection)
            .await?;
        }
        Fact::StemcellDeleted { cpi, cid } => {
            sqlx::query("DELETE FROM stemcells WHERE cpi = $1 AND cid = $2")
                .bind(cpi.as_str())
                .bind(cid.as_str())
                .execute(connection)
                .await?;
        }
        Fact::VmCreated { vm } => {
            sqlx::query(
                "INSERT INTO vms (cid, instance, agent_id, cpi, record, ready, created_at, spare)
                 VALUES ($1, $2, $3, $4, $5, 0, $6, $7)",
            )
            .bind(vm.cid.as_str())
            .bind(vm.instance.as_str())
            .bind(vm.agent_id.as_str())
            .bind(vm.cpi.as_str())
            .bind(to_json("vms.record", vm)?)
            .bind(vm.created_at)
            .bind(i64::from(vm.spare))
            .execute(connection)
            .await?;
        }
        Fact::VmReady { cid } => {
            sqlx::query("UPDATE vms SET ready = 1 WHERE cid = $1").bind(cid.as_str()).execute(connection).await?;
        }
        Fact::VmOrphaned { cid } => orphan_vm(connection, cid).await?,
        Fact::VmSwapped { from, to } => {
            orphan_vm(connection, from).await?;
            sqlx::query("UPDATE vms SET spare = 0 WHERE cid = $1").bind(to.as_str()).execute(connection).await?;
        }
        Fact::VmDeleted { cid } => {
            for statement in ["DELETE FROM vms WHERE cid = $1", "DELETE FROM orphaned_vms WHERE cid = $1"] {
                sqlx::query(statement).bind(cid.as_str()).execute(&mut *connection).await?;
            }
            sqlx::query(DISKS_LEAVE_VM).bind(cid.as_str()).execute(connection).await?;
        }
        Fact::DiskCreated { disk } => add_disk(connection, disk, false).await?,
        Fact::DiskAttached { disk, vm, hint } => {
            sqlx::query("UPDATE disks SET vm = $1, mounted = 0, hint = $2 WHERE cid = $3")
                .bind(vm.as_str())
                .bind(hint.as_ref().map(|hint| to_json("disks.hint", hint)).transpose()?)
                .bind(disk.as_str())
                .execute(connection)
                .await?;
        }
        Fact::DiskMounted { disk } => {
            sqlx::query("UPDATE disks SET active = 1, mounted = 1 WHERE cid = $1")
                .bind(disk.as_str())
                .execute(connection)
                .await?;
        }
        Fact::DiskUnmounted { disk } => {
            sqlx::query("UPDATE disks SET mounted = 0 WHERE cid = $1").bind(disk.as_str()).execute(connection).await?;
        }
        Fact::DiskResized { disk, size } => {
            sqlx::query("UPDATE disks SET size = $1 WHERE cid = $2")
                .bind(size.0 as i64)
                .bind(disk.as_str())
                .execute(connection)
                .await?;
        }
        Fact::DiskReplaced { old, new } => {
            sqlx::query("UPDATE disks SET active = 0, mounted = 0 WHERE cid = $1")
                .bind(old.as_str())
                .execute(&mut *connection)
                .await?;
            sqlx::query("UPDATE disks SET active = 1, mounted = 1 WHERE cid = $1")
                .bind(new.as_str())
                .execute(connection)
                .await?;
        }
        Fact::DiskDetached { disk } => {
            sqlx::query("UPDATE disks SET vm = NULL, mounted = 0, hint = NULL WHERE cid = $1")
                .bind(disk.as_str())
                .execute(connection)
                .await?;
        }
        Fact::DiskOrphaned { disk } => {
            let version = stemcell_version(connection, disk).await?;
            sqlx::query(
                "INSERT INTO orphan_disks (cid, cpi, size, cloud_properties, az, deployment, instance, orphaned_at, stemcell_version)
                 SELECT d.cid, d.cpi, d.size, d.cloud_properties, i.az, i.deployment, i.instance_group || '/' || i.id, $2, $3
                 FROM disks d JOIN instances i ON i.id = d.instance WHERE d.cid = $1",
            )
            .bind(disk.as_str())
            .bind(clock::now())
            .bind(version.map(|version| i64::from(version.0)))
            .execute(&mut *connection)
            .await?;
            sqlx::query(
                "INSERT INTO orphan_disk_teams (disk, team)
                 SELECT d.cid, t.team FROM disks d JOIN instances i ON i.id = d.instance
                 JOIN deployment_teams t ON t.deployment = i.deployment WHERE d.cid = $1",
            )
            .bind(disk.as_str())
            .execute(&mut *connection)
            .await?;
            sqlx::query("DELETE FROM disks WHERE cid = $1").bind(disk.as_str()).execute(connection).await?;
        }
        Fact::DiskDeleted { disk } => {
            sqlx::query("DELETE FROM orphan_disks WHERE cid = $1")
                .bind(disk.as_str())
                .execute(&mut *connection)
                .await?;
            sqlx::query("DELETE FROM disks WHERE cid = $1").bind(disk.as_str()).execute(connection).await?;
        }
        Fact::DiskAdopted { disk } => {
            sqlx::query("DELETE FROM orphan_disks WHERE cid = $1")
                .bind(disk.cid.as_str())
                .execute(&mut *connection)
                .await?;
            add_disk(connection, disk, true).await?;
        }
        Fact::SnapshotTaken { snapshot } => {
            sqlx::query("INSERT INTO snapshots (cid, disk, clean, created_at) VALUES ($1, $2, $3, $4)")
                .bind(snapshot.cid.as_str())
                .bind(snapshot.disk.as_str())
                .bind(i64::from(snapshot.clean))
                .bind(snapshot.created_at)
                .execute(connection)
                .await?;
        }
        Fact::SnapshotDeleted { cid } => {
            sqlx::query("DELETE FROM snapshots WHERE cid = $1").bind(cid.as_str()).execute(connection).await?;
        }
        Fact::InstanceRemoved { instance } => {
            sqlx::query("DELETE FROM addresses WHERE instance = $1")
                .bind(instance.as_str())
                .execute(&mut *connection)
                .await?;
            sqlx::query("DELETE FROM instances WHERE id = $1").bind(instance.as_str()).execute(connection).await?;
        }
        Fact::Nothing => {}
    }
    Ok(())
}

/// Of the VM that a disk's instance has, or else would have.
async fn stemcell_version(connection: &mut AnyConnection, disk: &DiskCid) -> Result<Option<ApiVersion>, StoreError> {
    #[derive(Deserialize)]
    struct OfStemcell {
        stemcell: StemcellOfVm,
    }
    let row = sqlx::query(
        "SELECT v.record, i.spec FROM disks d JOIN instances i ON i.id = d.instance
         LEFT JOIN vms v ON v.instance = i.id AND v.spare = 0 WHERE d.cid = $1",
    )
    .bind(disk.as_str())
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let of_vm: Option<OfStemcell> = optional_json(&row, "record")?;
    let of_vm = if of_vm.is_some() { of_vm } else { optional_json(&row, "spec")? };
    Ok(of_vm.and_then(|of_vm| of_vm.stemcell.api_version))
}

/// The VM leaves its instance, and stays on record until it is deleted.
async fn orphan_vm(connection: &mut AnyConnection, cid: &VmCid) -> Result<(), StoreError> {
    let found = sqlx::query("SELECT record, ready, spare FROM vms WHERE cid = $1")
        .bind(cid.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    if let Some(row) = found {
        // The table of orphans has no columns for what became of a VM after it was made.
        let record = to_json("orphaned_vms.record", &resources::vm(&row)?)?;
        sqlx::query(
            "INSERT INTO orphaned_vms (cid, cpi, record, az, deployment, instance, orphaned_at)
             SELECT v.cid, v.cpi, $3, i.az, i.deployment, i.instance_group || '/' || i.id, $2
             FROM vms v JOIN instances i ON i.id = v.instance WHERE v.cid = $1",
        )
        .bind(cid.as_str())
        .bind(clock::now())
        .bind(record)
        .execute(&mut *connection)
        .await?;
    }
    sqlx::query("DELETE FROM vms WHERE cid = $1").bind(cid.as_str()).execute(connection).await?;
    Ok(())
}

/// One that is active is what its instance writes to.
async fn add_disk(connection: &mut AnyConnection, disk: &DiskRecord, active: bool) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO disks (cid, instance, cpi, size, cloud_properties, active, created_at, name)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(disk.cid.as_str())
    .bind(disk.instance.as_str())
    .bind(disk.cpi.as_str())
    .bind(disk.size.0 as i64)
    .bind(to_json("disks.cloud_properties", &disk.cloud_properties)?)
    .bind(i64::from(active))
    .bind(clock::now())
    .bind(disk.name.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use windlass_database::PrivatePostgres;
    use windlass_operations::ledger::Model;
    use windlass_operations::testing::conformance::{self, INSTANCES, Subject};
    use windlass_operations::testing::new_instance_record;
    use windlass_planning::names::DiskName;
    use windlass_planning::records::{InstanceRecord, StemcellRecord};

    use super::*;

    /// The store on a database of its own.
    struct OnDatabase {
        store: Store,
        url: String,
        _folder: Option<TempDir>,
    }

    const DEPLOYMENT: &str = "d";

    async fn with_instances(url: &str) -> Store {
        let store = Store::open(url).await.unwrap();
        store.add_deployment(&DEPLOYMENT.into(), &[]).await.unwrap();
        let instance = |(index, id): (usize, &&str)| InstanceRecord {
            index: index as i64,
            bootstrap: false,
            converged: false,
            ..new_instance_record(DEPLOYMENT, "db", *id)
        };
        let instances: Vec<_> = INSTANCES.iter().enumerate().map(instance).collect();
        store.begin_instances(&instances, &[]).await.unwrap();
        store
    }

    async fn on_sqlite() -> OnDatabase {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("director.db").display());
        OnDatabase { store: with_instances(&url).await, url, _folder: Some(folder) }
    }

    async fn records(store: &Store) -> Model {
        let orphan_disks = store.orphan_disks().await.unwrap();
        let mut snapshots: Vec<_> =
            store.snapshots(&DEPLOYMENT.into()).await.unwrap().into_iter().map(|found| found.snapshot).collect();
        for disk in &orphan_disks {
            snapshots.extend(store.snapshots_of_orphan(&disk.cid).await.unwrap());
        }
        let orphan = |disk: super::super::OrphanDisk| DiskRecord {
            cid: disk.cid,
            instance: disk.instance.strip_prefix("db/").unwrap().into(),
            name: DiskName::Managed,
            cpi: disk.cpi,
            size: disk.size,
            cloud_properties: disk.cloud_properties,
            active: false,
            vm: None,
            mounted: false,
            hint: None,
        };
        Model {
            stemcells: store.stemcells().await.unwrap().into_iter().map(without_id).collect(),
            vms: store.vms(&DEPLOYMENT.into()).await.unwrap(),
            orphaned_vms: store.orphaned_vms().await.unwrap().into_iter().map(|orphaned| orphaned.vm).collect(),
            disks: store.disks(None).await.unwrap(),
            orphan_disks: orphan_disks.into_iter().map(orphan).collect(),
            snapshots,
            instances: store
                .instances(&DEPLOYMENT.into())
                .await
                .unwrap()
                .into_iter()
                .map(|instance| instance.id)
                .collect(),
        }
    }

    fn without_id(stemcell: StemcellRecord) -> StemcellRecord {
        StemcellRecord { id: 0, ..stemcell }
    }

    #[async_trait]
    impl Subject for OnDatabase {
        fn ledger(&self) -> &dyn Ledger {
            &self.store
        }

        async fn records(&self) -> Model {
            records(&self.store).await
        }

        async fn reopened(self) -> Self {
            self.store.close().await;
            Self { store: Store::open(&self.url).await.unwrap(), ..self }
        }

        /// Orphans have no names: a disk gets its name from the instance that it belongs to. Nobody reads what orphaned VMs were made
        /// from.
        fn keeps(mut model: Model) -> Model {
            model.orphan_disks.iter_mut().for_each(|disk| disk.name = DiskName::Managed);
            model.orphaned_vms.iter_mut().for_each(|vm| (vm.cloud_properties, vm.wanted_env) = Default::default());
            model
        }

        /// A cid that is new and known already is a cloud's mistake, which must not be taken for a repetition: fact and end
        /// of the intent are one transaction here, so no fact is ever recorded again.
        fn takes_twice(fact: &Fact) -> bool {
            let (vm, disk) = (matches!(fact, Fact::VmCreated { .. }), matches!(fact, Fact::DiskCreated { .. }));
            !vm && !disk && !matches!(fact, Fact::DiskAdopted { .. } | Fact::SnapshotTaken { .. })
        }
    }

    windlass_operations::ledger_conformance!(on_sqlite);

    /// All in one: starting a server takes longer than the tests.
    #[tokio::test]
    async fn a_ledger_on_postgres_does_what_one_on_sqlite_does() {
        let server = PrivatePostgres::start().unwrap();
        let admin = Store::open(&server.url()).await.unwrap();
        for statement in ["CREATE DATABASE d0", "CREATE DATABASE d1", "CREATE DATABASE d2", "CREATE DATABASE d3"] {
            admin.tamper(statement).await;
        }
        let on_postgres = async |name: &str| {
            let url = server.url().replace("/postgres?", &format!("/{name}?"));
            OnDatabase { store: with_instances(&url).await, url, _folder: None }
        };
        conformance::an_intent_ends_exactly_once(on_postgres("d0").await).await;
        conformance::a_fact_comes_with_the_end_of_its_intent(on_postgres("d1").await).await;
        conformance::intents_are_listed_oldest_first(on_postgres("d2").await).await;
        // Spread over all that is possible, and the same in each run.
        let choices: Vec<u16> = (0_u16..80).map(|at| at.wrapping_mul(40_503).rotate_left(5)).collect();
        conformance::follows_the_model(on_postgres("d3").await, &choices).await;
    }
}
