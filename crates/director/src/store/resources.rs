//! What the clouds hold: VMs, disks, orphaned disks. Written only through [facts](windlass_operations::ledger::Fact).

use futures_util::TryStreamExt;
use windlass_contract::{ApiVersion, DiskCid, MiB, Object, VmCid};
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::{CpiName, DeploymentName, InstanceId, InstanceName};
use windlass_planning::records::{AgentCertificate, DiskRecord, VmRecord};

use super::{Store, StoreError, from_json, optional_json, to_json};

/// A disk that belongs to no instance; its data is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrphanDisk {
    pub cid: DiskCid,
    /// The CPI that made it.
    pub cpi: CpiName,
    pub size: MiB,
    /// As sent.
    pub cloud_properties: Object,
    pub az: Option<String>,
    pub deployment: DeploymentName,
    pub instance: InstanceName,
    /// Unix seconds.
    pub orphaned_at: i64,
    /// Of the stemcell that it was used with.
    pub stemcell_version: Option<ApiVersion>,
}

/// A VM that belongs to no instance, because another one took its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrphanedVm {
    pub vm: VmRecord,
    pub az: Option<String>,
    pub deployment: DeploymentName,
    pub instance: InstanceName,
    /// Unix seconds.
    pub orphaned_at: i64,
}

/// From the columns `record`, `ready` and `spare`.
pub(super) fn vm(row: &AnyRow) -> Result<VmRecord, StoreError> {
    let record: String = row.try_get("record")?;
    let mut record: VmRecord = from_json("vms.record", &record)?;
    record.ready = row.try_get::<i64, _>("ready")? != 0;
    record.spare = row.try_get::<i64, _>("spare")? != 0;
    Ok(record)
}

/// The same without what only its cloud needs, which may be megabytes: all VMs of all deployments are talked to.
pub(super) fn vm_to_talk_to(row: &AnyRow) -> Result<VmRecord, StoreError> {
    let mut record = vm(row)?;
    (record.cloud_properties, record.wanted_env) = Default::default();
    record.networks.values_mut().for_each(|network| network.cloud_properties = Default::default());
    Ok(record)
}

fn cid<T>(id: Result<T, windlass_contract::ids::EmptyId>) -> Result<T, StoreError> {
    Ok(id.map_err(|error| sqlx::Error::Decode(error.into()))?)
}

fn disk(row: &AnyRow) -> Result<DiskRecord, StoreError> {
    let properties: String = row.try_get("cloud_properties")?;
    Ok(DiskRecord {
        cid: cid(DiskCid::new(row.try_get::<String, _>("cid")?))?,
        instance: row.try_get::<String, _>("instance")?.into(),
        name: row.try_get::<String, _>("name")?.into(),
        cpi: row.try_get::<String, _>("cpi")?.into(),
        size: MiB(row.try_get::<i64, _>("size")? as u64),
        cloud_properties: from_json("disks.cloud_properties", &properties)?,
        active: row.try_get::<i64, _>("active")? != 0,
        vm: row.try_get::<Option<String>, _>("vm")?.map(|vm| cid(VmCid::new(vm))).transpose()?,
        mounted: row.try_get::<i64, _>("mounted")? != 0,
        hint: optional_json(row, "hint")?,
    })
}

fn orphan_disk(row: &AnyRow) -> Result<OrphanDisk, StoreError> {
    let properties: String = row.try_get("cloud_properties")?;
    Ok(OrphanDisk {
        cid: cid(DiskCid::new(row.try_get::<String, _>("cid")?))?,
        cpi: row.try_get::<String, _>("cpi")?.into(),
        size: MiB(row.try_get::<i64, _>("size")? as u64),
        cloud_properties: from_json("orphan_disks.cloud_properties", &properties)?,
        az: row.try_get("az")?,
        deployment: row.try_get::<String, _>("deployment")?.into(),
        instance: row.try_get::<String, _>("instance")?.into(),
        orphaned_at: row.try_get("orphaned_at")?,
        stemcell_version: row.try_get::<Option<i64>, _>("stemcell_version")?.map(|version| ApiVersion(version as u32)),
    })
}

pub(super) const ORPHAN_DISK: &str = "SELECT * FROM orphan_disks WHERE cid = $1";
pub(super) const DISKS_OF_DEPLOYMENT: &str =
    "SELECT d.* FROM disks d JOIN instances i ON i.id = d.instance WHERE i.deployment = $1
     ORDER BY i.deployment, i.instance_group, i.position, d.created_at, d.cid";

impl Store {
    /// The VMs of a deployment.
    pub(crate) async fn vms(&self, deployment: &DeploymentName) -> Result<Vec<VmRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT v.record, v.ready, v.spare FROM vms v JOIN instances i ON i.id = v.instance WHERE i.deployment = $1
             ORDER BY v.created_at, v.cid",
        )
        .bind(deployment.as_str())
        .fetch(self.database.pool());
        rows.map_err(StoreError::from).and_then(async |row| vm(&row)).try_collect().await
    }

    /// The VMs of an instance.
    pub(crate) async fn vms_of(&self, instance: &InstanceId) -> Result<Vec<VmRecord>, StoreError> {
        let rows = sqlx::query("SELECT record, ready, spare FROM vms WHERE instance = $1 ORDER BY created_at, cid")
            .bind(instance.as_str())
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(vm).collect()
    }

    /// The disks of an instance.
    pub(crate) async fn disks_of(&self, instance: &InstanceId) -> Result<Vec<DiskRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM disks WHERE instance = $1 ORDER BY created_at, cid")
            .bind(instance.as_str())
            .fetch_all(self.database.pool())
            .await?;
        rows.iter().map(disk).collect()
    }

    /// VMs that belong to no instance.
    pub(crate) async fn orphaned_vms(&self) -> Result<Vec<OrphanedVm>, StoreError> {
        let rows =
            sqlx::query("SELECT * FROM orphaned_vms ORDER BY orphaned_at, cid").fetch_all(self.database.pool()).await?;
        rows.iter()
            .map(|row| {
                let record: String = row.try_get("record")?;
                Ok(OrphanedVm {
                    vm: from_json("orphaned_vms.record", &record)?,
                    az: row.try_get("az")?,
                    deployment: row.try_get::<String, _>("deployment")?.into(),
                    instance: row.try_get::<String, _>("instance")?.into(),
                    orphaned_at: row.try_get("orphaned_at")?,
                })
            })
            .collect()
    }

    /// A VM by its cid, with its deployment.
    pub(crate) async fn vm(&self, cid: &VmCid) -> Result<Option<(DeploymentName, VmRecord)>, StoreError> {
        let row = sqlx::query(
            "SELECT v.record, v.ready, v.spare, i.deployment FROM vms v JOIN instances i ON i.id = v.instance WHERE v.cid = $1",
        )
        .bind(cid.as_str())
        .fetch_optional(self.database.pool())
        .await?;
        row.map(|row| Ok((row.try_get::<String, _>("deployment")?.into(), vm(&row)?))).transpose()
    }

    /// A disk of an instance by its cid, with the instance's deployment.
    pub(crate) async fn disk(&self, cid: &DiskCid) -> Result<Option<(DeploymentName, DiskRecord)>, StoreError> {
        let row =
            sqlx::query("SELECT d.*, i.deployment FROM disks d JOIN instances i ON i.id = d.instance WHERE d.cid = $1")
                .bind(cid.as_str())
                .fetch_optional(self.database.pool())
                .await?;
        row.map(|row| Ok((row.try_get::<String, _>("deployment")?.into(), disk(&row)?))).transpose()
    }

    /// A disk that belongs to no instance.
    pub(crate) async fn orphan_disk(&self, cid: &DiskCid) -> Result<Option<OrphanDisk>, StoreError> {
        let row = sqlx::query(ORPHAN_DISK).bind(cid.as_str()).fetch_optional(self.database.pool()).await?;
        row.as_ref().map(orphan_disk).transpose()
    }

    /// The disks of a deployment, or of all.
    pub(crate) async fn disks(&self, deployment: Option<&DeploymentName>) -> Result<Vec<DiskRecord>, StoreError> {
        let query = match deployment {
            Some(deployment) => sqlx::query(DISKS_OF_DEPLOYMENT).bind(deployment.as_str()),
            None => sqlx::query(
                "SELECT d.* FROM disks d JOIN instances i ON i.id = d.instance
                 ORDER BY i.deployment, i.instance_group, i.position, d.created_at, d.cid",
            ),
        };
        query.fetch(self.database.pool()).map_err(StoreError::from).and_then(async |row| disk(&row)).try_collect().await
    }

    /// The disks of a deployment without what only their clouds need, which may be megabytes.
    pub(crate) async fn disks_in_outline(&self, deployment: &DeploymentName) -> Result<Vec<DiskRecord>, StoreError> {
        let rows = sqlx::query(DISKS_OF_DEPLOYMENT).bind(deployment.as_str()).fetch(self.database.pool());
        let in_outline = async |row| Ok(DiskRecord { cloud_properties: Object::new(), ..disk(&row)? });
        rows.map_err(StoreError::from).and_then(in_outline).try_collect().await
    }

    /// Disks that belong to no instance.
    pub(crate) async fn orphan_disks(&self) -> Result<Vec<OrphanDisk>, StoreError> {
        let rows =
            sqlx::query("SELECT * FROM orphan_disks ORDER BY orphaned_at, cid").fetch_all(self.database.pool()).await?;
        rows.iter().map(orphan_disk).collect()
    }

    /// Notes what the agent of a VM shows and trusts now.
    pub(crate) async fn set_agent_certificate(
        &self,
        vm: &VmCid,
        certificate: &AgentCertificate,
    ) -> Result<(), StoreError> {
        let mut transaction = self.database.begin().await?;
        let record: Option<String> = sqlx::query_scalar("SELECT record FROM vms WHERE cid = $1")
            .bind(vm.as_str())
            .fetch_optional(transaction.connection())
            .await?;
        let Some(record) = record else { return Ok(()) };
        let mut record: VmRecord = from_json("vms.record", &record)?;
        record.certificate = Some(certificate.clone());
        sqlx::query("UPDATE vms SET record = $1 WHERE cid = $2")
            .bind(to_json("vms.record", &record)?)
            .bind(vm.as_str())
            .execute(transaction.connection())
            .await?;
        Ok(transaction.commit().await?)
    }
}
