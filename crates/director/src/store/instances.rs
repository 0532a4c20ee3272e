//! Instances, and the addresses that belong to them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use serde::Deserialize;
use windlass_contract::Networks;
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, AssertSqlSafe, Row};
use windlass_planning::names::{DeploymentName, InstanceId, InstanceName};
use windlass_planning::plan::{InstanceSpec, reserved_addresses};
use windlass_planning::records::{InstanceRecord, InstanceState};
use windlass_planning::software::Software;

use super::{Store, StoreError, optional_json, to_json};
use crate::limits::{OF_A_MEMBER, OF_AN_OBJECT};

const GENERATION: &str = "generation";

fn read(row: &AnyRow) -> Result<InstanceRecord, StoreError> {
    let (spec, applied): (Option<String>, Option<String>) = (row.try_get("spec")?, row.try_get("applied")?);
    // Most instances are what they should be, and then both are the same text.
    let applied = if applied == spec { None } else { optional_json(row, "applied")? };
    Ok(InstanceRecord { spec: optional_json(row, "spec")?, applied, ..read_without_specs(row)? })
}

/// What it is brought to may be large.
pub(super) fn read_without_specs(row: &AnyRow) -> Result<InstanceRecord, StoreError> {
    let state: String = row.try_get("state")?;
    Ok(InstanceRecord {
        id: row.try_get::<String, _>("id")?.into(),
        deployment: row.try_get::<String, _>("deployment")?.into(),
        group: row.try_get("instance_group")?,
        index: row.try_get("position")?,
        az: row.try_get("az")?,
        bootstrap: row.try_get::<i64, _>("bootstrap")? != 0,
        state: super::from_json("state", &format!("\"{state}\""))?,
        spec: None,
        applied: None,
        converged: row.try_get::<i64, _>("converged")? != 0,
        ignored: row.try_get::<i64, _>("ignored")? != 0,
    })
}

fn holder(row: &AnyRow) -> Result<String, StoreError> {
    let (deployment, group, id): (String, String, String) =
        (row.try_get("deployment")?, row.try_get("instance_group")?, row.try_get("id")?);
    Ok(format!("{deployment}/{group}/{id}"))
}

/// Addresses of a VM that a director chose.
fn chosen_addresses(row: &AnyRow) -> Result<Vec<IpAddr>, StoreError> {
    #[derive(Deserialize)]
    struct Networked {
        networks: Networks,
    }
    let record: String = row.try_get("record")?;
    let Networked { networks } = super::from_json("vms.record", &record)?;
    Ok(reserved_addresses(&networks).map(|(_, address)| address).collect())
}

fn digest(instance: &InstanceRecord) -> Option<&str> {
    instance.spec.as_ref()?.software.as_ref().map(|software| software.digest.as_str())
}

/// Another deployment may have reserved the address since the plan was made.
fn taken(error: sqlx::Error, address: IpAddr) -> StoreError {
    match error.as_database_error().is_some_and(|error| error.is_unique_violation()) {
        true => StoreError::AddressTaken(address),
        false => error.into(),
    }
}

impl Store {
    /// The deployment and the instance that a VM belongs to.
    pub(crate) async fn owner_of_vm(&self, vm: &str) -> Result<Option<(DeploymentName, InstanceName)>, StoreError> {
        let row = sqlx::query(
            "SELECT i.deployment, i.instance_group, i.id FROM vms v JOIN instances i ON i.id = v.instance WHERE v.cid = $1",
        )
        .bind(vm)
        .fetch_optional(self.database.pool())
        .await?;
        let name = |row: AnyRow| -> Result<_, StoreError> {
            let (group, id): (String, String) = (row.try_get("instance_group")?, row.try_get("id")?);
            Ok((row.try_get::<String, _>("deployment")?.into(), InstanceName::of(&group, &id.into())))
        };
        row.map(name).transpose()
    }

    pub(crate) async fn instance(&self, id: &InstanceId) -> Result<Option<InstanceRecord>, StoreError> {
        let row = sqlx::query("SELECT * FROM instances WHERE id = $1")
            .bind(id.as_str())
            .fetch_optional(self.database.pool())
            .await?;
        row.as_ref().map(read).transpose()
    }

    /// The instances of a deployment, by group and index.
    pub(crate) async fn instances(&self, deployment: &DeploymentName) -> Result<Vec<InstanceRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM instances WHERE deployment = $1 ORDER BY instance_group, position")
            .bind(deployment.as_str())
            .fetch(self.database.pool());
        rows.map_err(StoreError::from).and_then(async |row| read(&row)).try_collect().await
    }

    /// How many bytes of memory a deployment's instances, VMs and disks take when they are read, roughly.
    pub(crate) async fn memory_of_records(&self, deployment: &DeploymentName) -> Result<u64, StoreError> {
        let of = |column: &str| {
            let length = |of: String| format!("CAST(OCTET_LENGTH({of}) AS BIGINT)");
            let without = |letter: char| length(format!("REPLACE({column}, '{letter}', '')"));
            let count = |letter: char| format!("({} - {})", length(column.to_owned()), without(letter));
            let (objects, commas) = (count('{'), count(','));
            format!("COALESCE(OCTET_LENGTH({column}) + {OF_AN_OBJECT} * {objects} + {OF_A_MEMBER} * {commas}, 0)")
        };
        let (spec, applied, record, properties) = (of("spec"), of("applied"), of("v.record"), of("d.cloud_properties"));
        let statement = format!(
            "SELECT CAST(
                (SELECT COALESCE(SUM({spec} + CASE WHEN applied = spec THEN 0 ELSE {applied} END), 0) FROM instances WHERE deployment = $1)
                + (SELECT COALESCE(SUM({record}), 0) FROM vms v JOIN instances i ON i.id = v.instance WHERE i.deployment = $1)
                + (SELECT COALESCE(SUM({properties}), 0) FROM disks d JOIN instances i ON i.id = d.instance WHERE i.deployment = $1)
             AS BIGINT)"
        );
        let size: i64 = sqlx::query_scalar(AssertSqlSafe(statement))
            .bind(deployment.as_str())
            .fetch_one(self.database.pool())
            .await?;
        Ok(size.unsigned_abs())
    }

    /// Every address in use, and the `deployment/group/uuid` or the orphaned VM that holds it. A VM holds its addresses until
    /// it is gone, whatever its instance is being brought to.
    pub(crate) async fn addresses(&self) -> Result<BTreeMap<IpAddr, String>, StoreError> {
        let mut holders = BTreeMap::new();
        let reserved = sqlx::query(
            "SELECT a.address, i.deployment, i.instance_group, i.id FROM addresses a JOIN instances i ON i.id = a.instance",
        )
        .fetch_all(self.database.pool())
        .await?;
        for row in &reserved {
            let address: String = row.try_get("address")?;
            let address = address.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            holders.insert(address, holder(row)?);
        }
        // One row after the other: of what is on record of all VMs, which may be large, only the addresses are kept.
        let mut held = sqlx::query(
            "SELECT v.record, i.deployment, i.instance_group, i.id FROM vms v JOIN instances i ON i.id = v.instance",
        )
        .fetch(self.database.pool());
        while let Some(row) = held.try_next().await? {
            let holder = holder(&row)?;
            for address in chosen_addresses(&row)? {
                holders.entry(address).or_insert_with(|| holder.clone());
            }
        }
        drop(held);
        let mut orphaned = sqlx::query("SELECT cid, record FROM orphaned_vms").fetch(self.database.pool());
        while let Some(row) = orphaned.try_next().await? {
            let cid: String = row.try_get("cid")?;
            for address in chosen_addresses(&row)? {
                holders.entry(address).or_insert_with(|| format!("the orphaned VM {cid}"));
            }
        }
        // Without converging, an instance that a deploy has not reached gets its next VM with the addresses that it has.
        drop(orphaned);
        let mut unreached = sqlx::query(
            "SELECT applied, deployment, instance_group, id FROM instances WHERE applied IS NOT NULL AND applied <> spec",
        )
        .fetch(self.database.pool());
        while let Some(row) = unreached.try_next().await? {
            let applied: Option<InstanceSpec> = optional_json(&row, "applied")?;
            for (_, address) in applied.iter().flat_map(InstanceSpec::reserved_addresses) {
                holders.entry(address).or_insert(holder(&row)?);
            }
        }
        Ok(holders)
    }

    /// How often instances were brought to something, in all deployments. The ids of new instances are made from it, so
    /// that the plan that was shown and the one that is carried out name the same instances.
    pub(crate) async fn generation(&self) -> Result<String, StoreError> {
        self.attribute(GENERATION, || "0".to_owned()).await
    }

    /// Notes what instances are being brought to, and reserves their addresses. All or nothing, so that two deployments
    /// never get the same address.
    pub(crate) async fn begin_instances(
        &self,
        instances: impl IntoIterator<Item: Borrow<InstanceRecord>>,
        software: &[Software],
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        super::software::keep(&mut transaction, software).await?;
        let mut reserved = Vec::new();
        for instance in instances {
            let instance: &InstanceRecord = instance.borrow();
            let addresses = instance.spec.iter().flat_map(InstanceSpec::reserved_addresses);
            let addresses = addresses.map(|(network, address)| (network.to_owned(), address));
            reserved.push((instance.id.clone(), addresses.collect::<Vec<_>>()));
            let spec = instance.spec.as_ref().map(|spec| to_json("spec", spec)).transpose()?;
            sqlx::query(
                "INSERT INTO instances (id, deployment, instance_group, position, az, bootstrap, state, spec, converged, software,
                 variable_set) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
                 ON CONFLICT (id) DO UPDATE SET instance_group = $3, position = $4, az = $5, bootstrap = $6, state = $7, spec = $8,
                 converged = $9, software = $10, variable_set = $11, applied = CASE WHEN $9 = 1 THEN $8 ELSE instances.applied END,
                 applied_software = CASE WHEN $9 = 1 THEN $10 ELSE instances.applied_software END",
            )
            .bind(instance.id.as_str())
            .bind(instance.deployment.as_str())
            .bind(instance.group.as_str())
            .bind(instance.index)
            .bind(instance.az.as_deref())
            .bind(i64::from(instance.bootstrap))
            .bind(instance.state.as_str())
            .bind(spec)
            .bind(i64::from(instance.converged))
            .bind(digest(instance))
            .bind(instance.spec.as_ref().and_then(|spec| spec.variables).map(|set| set.0))
            .execute(transaction.connection())
            .await?;
        }
        super::software::forget_unused(&mut transaction).await?;
        sqlx::query("UPDATE attributes SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name = $1")
            .bind(GENERATION)
            .execute(transaction.connection())
            .await?;
        // Two instances may swap addresses, so all are released before any is taken.
        for (id, _) in &reserved {
            sqlx::query("DELETE FROM addresses WHERE instance = $1")
                .bind(id.as_str())
                .execute(transaction.connection())
                .await?;
        }
        for (id, addresses) in &reserved {
            for (network, address) in addresses {
                sqlx::query("INSERT INTO addresses (address, instance, network) VALUES ($1, $2, $3)")
                    .bind(address.to_string())
                    .bind(id.as_str())
                    .bind(network.as_str())
                    .execute(transaction.connection())
                    .await
                    .map_err(|error| taken(error, *address))?;
            }
        }
        Ok(transaction.commit().await?)
    }

    /// Notes what the operator wants of an instance, which is to be brought there now.
    pub(crate) async fn begin_state(&self, id: &InstanceId, state: InstanceState) -> Result<(), StoreError> {
        let statement = sqlx::query("UPDATE instances SET state = $1, converged = 0 WHERE id = $2")
            .bind(state.as_str())
            .bind(id.as_str());
        self.database.execute(statement).await?;
        Ok(())
    }

    /// The templates of an instance's jobs gave something else than planned, because its VM has addresses that nobody planned.
    pub(crate) async fn note_configuration(&self, id: &InstanceId, hash: &str) -> Result<(), StoreError> {
        let Some(mut record) = self.instance(id).await? else { return Ok(()) };
        let Some(software) = record.spec.as_mut().and_then(|spec| spec.software.as_mut()) else { return Ok(()) };
        if software.configuration_hash == hash {
            return Ok(());
        }
        hash.clone_into(&mut software.configuration_hash);
        let statement = sqlx::query("UPDATE instances SET spec = $1, applied = $1 WHERE id = $2")
            .bind(to_json("spec", &record.spec)?)
            .bind(id.as_str());
        self.database.execute(statement).await?;
        Ok(())
    }

    /// From now on the instance is changed to its spec, and cannot be called what it was before. The call of a cloud that comes
    /// next is noted durably, and this with it.
    pub(crate) async fn note_applied(&self, id: &InstanceId) -> Result<(), StoreError> {
        self.update_instance("UPDATE instances SET applied = spec, applied_software = software WHERE id = $1", id).await
    }

    /// The instance got where it was being brought to.
    pub(crate) async fn finish_instance(&self, id: &InstanceId) -> Result<(), StoreError> {
        let statement = "UPDATE instances SET converged = 1, applied = spec, applied_software = software WHERE id = $1";
        // One that is forgotten to be there is brought there again, with nothing to do.
        self.update_instance(statement, id).await
    }

    /// The instance got its state without converging: one that a deploy has not reached waits for the next one.
    pub(crate) async fn finish_state(&self, id: &InstanceId) -> Result<(), StoreError> {
        let statement = "UPDATE instances SET converged = 1, applied = spec, applied_software = software \
            WHERE id = $1 AND (applied IS NULL OR applied = spec)";
        self.update_instance(statement, id).await
    }

    async fn update_instance(&self, statement: &'static str, id: &InstanceId) -> Result<(), StoreError> {
        let mut transaction = self.database.begin_unflushed().await?;
        sqlx::query(statement).bind(id.as_str()).execute(transaction.connection()).await?;
        Ok(transaction.commit().await?)
    }
}
