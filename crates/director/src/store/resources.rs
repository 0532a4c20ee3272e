//! What the clouds hold: VMs, disks, orphaned disks. Written only through [facts](windlass_operations::ledger::Fact).

use futures_util::TryStreamExt;
use serde::Deserialize;
use windlass_contract::{AgentId, ApiVersion, DiskCid, MiB, Networks, Object, Secret, VmCid};
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::{CpiName, DeploymentName, InstanceId, InstanceName};
use windlass_planning::records::{AgentCertificate, DiskRecord, StemcellOfVm, VmRecord};

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

/// What is on record of a VM, without what only its cloud needs: that may be megabytes, and all VMs of all deployments are talked to.
#[derive(Deserialize)]
struct VmToTalkTo {
    cid: VmCid,
    agent_id: AgentId,
    instance: InstanceId,
    cpi: CpiName,
    stemcell: StemcellOfVm,
    networks: Networks,
    #[serde(default)]
    env_values: Option<String>,
    mbus_user: String,
    mbus_password: Secret,
    created_at: i64,
    #[serde(default)]
    disks: Option<Object>,
    #[serde(default)]
    certificate: Option<AgentCertificate>,
}

/// The same as [`vm`], of which only that is read.
pub(super) fn vm_to_talk_to(row: &AnyRow) -> Result<VmRecord, StoreError> {
    let record: String = row.try_get("record")?;
    let read: VmToTalkTo = from_json("vms.record", &record)?;
    Ok(to_talk_to(VmRecord {
        cid: read.cid,
        agent_id: read.agent_id,
        instance: read.instance,
        cpi: read.cpi,
        stemcell: read.stemcell,
        networks: read.networks,
        cloud_properties: Object::new(),
        wanted_env: Object::new(),
        env_values: read.env_values,
        mbus_user: read.mbus_user,
        mbus_password: read.mbus_password,
        created_at: read.created_at,
        ready: row.try_get::<i64, _>("ready")? != 0,
        spare: row.try_get::<i64, _>("spare")? != 0,
        disks: read.disks,
        certificate: read.certificate,
    }))
}

fn to_talk_to(mut record: VmRecord) -> VmRecord {
    (record.cloud_properties, record.wanted_env) = Default::default();
    record.networks.values_mut().for_each(|network| network.cloud_properties = Default::default());
    record
}

fn cid<T>(id: Result<T, windlass_contract::ids::InvalidId>) -> Result<T, StoreError> {
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

/// How many bytes of cloud properties a list of orphaned disks has: those of a thousand disks. Read, they may take sixty times as much.
const PROPERTIES_OF_ORPHANS: i64 = 256 << 10;

pub(super) const ORPHAN_DISK: &str = "SELECT * FROM orphan_disks WHERE cid = $1";
/// The inner query reads no properties, only how long they are.
const ORPHAN_DISKS: &str =
    "SELECT o.*, CASE WHEN o.length <= $1 THEN (SELECT p.cloud_properties FROM orphan_disks p WHERE p.cid = o.cid)
        ELSE '{}' END AS cloud_properties
     FROM (SELECT cid, cpi, size, az, deployment, instance, orphaned_at, stemcell_version,
        SUM(OCTET_LENGTH(cloud_properties)) OVER (ORDER BY orphaned_at, cid) AS length FROM orphan_disks) o
     ORDER BY o.orphaned_at, o.cid";
const VMS_OF_DEPLOYMENT: &str =
    "SELECT v.record, v.ready, v.spare FROM vms v JOIN instances i ON i.id = v.instance WHERE i.deployment = $1
     ORDER BY v.created_at, v.cid";
pub(super) const DISKS_OF_DEPLOYMENT: &str =
    "SELECT d.* FROM disks d JOIN instances i ON i.id = d.instance WHERE i.deployment = $1
     ORDER BY i.deployment, i.instance_group, i.position, d.created_at, d.cid";

impl Store {
    /// The VMs of a deployment.
    pub(crate) async fn vms(&self, deployment: &DeploymentName) -> Result<Vec<VmRecord>, StoreError> {
        let rows = sqlx::query(VMS_OF_DEPLOYMENT).bind(deployment.as_str()).fetch(self.database.pool());
        rows.map_err(StoreError::from).and_then(async |row| vm(&row)).try_collect().await
    }

    /// The same without what only their cloud needs.
    pub(crate) async fn vms_to_talk_to(&self, deployment: &DeploymentName) -> Result<Vec<VmRecord>, StoreError> {
        let rows = sqlx::query(VMS_OF_DEPLOYMENT).bind(deployment.as_str()).fetch(self.database.pool());
        rows.map_err(StoreError::from).and_then(async |row| vm_to_talk_to(&row)).try_collect().await
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

    /// VMs that belong to no instance, without what only their clouds need to make them.
    pub(crate) async fn orphaned_vms(&self) -> Result<Vec<OrphanedVm>, StoreError> {
        let rows = sqlx::query("SELECT * FROM orphaned_vms ORDER BY orphaned_at, cid").fetch(self.database.pool());
        let read = async |row: AnyRow| {
            let record: String = row.try_get("record")?;
            Ok(OrphanedVm {
                vm: to_talk_to(from_json("orphaned_vms.record", &record)?),
                az: row.try_get("az")?,
                deployment: row.try_get::<String, _>("deployment")?.into(),
                instance: row.try_get::<String, _>("instance")?.into(),
                orphaned_at: row.try_get("orphaned_at")?,
            })
        };
        rows.map_err(StoreError::from).and_then(read).try_collect().await
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

    /// Disks that belong to no instance. When those that were orphaned first have very many cloud properties, the later ones are told
    /// without, and theirs are not read: whoever makes and deletes deployments may leave any number of them.
    pub(crate) async fn orphan_disks(&self) -> Result<Vec<OrphanDisk>, StoreError> {
        let rows = sqlx::query(ORPHAN_DISKS).bind(PROPERTIES_OF_ORPHANS).fetch(self.database.pool());
        rows.map_err(StoreError::from).and_then(async |row| orphan_disk(&row)).try_collect().await
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

#[cfg(test)]
mod tests {
    use crate::testing::TestDirector;

    /// Who makes and deletes deployments leaves disks with 64 MiB of properties each time. Eight lists of all took 1.7 GiB.
    #[tokio::test]
    async fn a_list_of_orphaned_disks_has_few_properties_and_each_disk_has_its_own() {
        let test = TestDirector::new().await;
        let store = &test.director.store;
        store
            .tamper(
                "WITH RECURSIVE count (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < 4)
                 INSERT INTO orphan_disks (cid, cpi, size, cloud_properties, deployment, instance, orphaned_at)
                 SELECT 'disk-' || n, '', 1, '{\"x\": \"' || printf('%0100000d', n) || '\"}', 'd', 'g/1f', n FROM count",
            )
            .await;
        let listed = store.orphan_disks().await.unwrap();
        assert_eq!(listed.iter().map(|disk| disk.cloud_properties.len()).collect::<Vec<_>>(), [1, 1, 0, 0]);
        let last = store.orphan_disk(&listed[3].cid).await.unwrap().unwrap();
        assert_eq!(last.cloud_properties["x"].as_str().unwrap().len(), 100_000);
    }
}
