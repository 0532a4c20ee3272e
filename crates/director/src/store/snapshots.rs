//! Snapshots: by disk, so that they stay with it when it is orphaned or attached to somebody else.

use windlass_contract::{DiskCid, SnapshotCid};
use windlass_database::sqlx::any::AnyRow;
use windlass_database::sqlx::{self, Row};
use windlass_planning::names::{DeploymentName, InstanceId};
use windlass_planning::records::SnapshotRecord;

use super::{Store, StoreError};

/// A snapshot with the instance whose disk it was taken of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InstanceSnapshot {
    pub snapshot: SnapshotRecord,
    /// The instance's group.
    pub group: String,
    pub index: i64,
    pub instance: InstanceId,
}

fn read(row: &AnyRow) -> Result<SnapshotRecord, StoreError> {
    let decode = |error: windlass_contract::ids::InvalidId| sqlx::Error::Decode(error.into());
    Ok(SnapshotRecord {
        cid: SnapshotCid::new(row.try_get::<String, _>("cid")?).map_err(decode)?,
        disk: DiskCid::new(row.try_get::<String, _>("disk")?).map_err(decode)?,
        cpi: row.try_get::<String, _>("cpi")?.into(),
        clean: row.try_get::<i64, _>("clean")? != 0,
        created_at: row.try_get("created_at")?,
    })
}

pub(super) const OF_ORPHAN: &str = "SELECT s.*, o.cpi FROM snapshots s JOIN orphan_disks o ON o.cid = s.disk \
     WHERE s.disk = $1 ORDER BY s.created_at, s.cid";

impl Store {
    /// The snapshots of all disks of a deployment, by instance and age.
    pub(crate) async fn snapshots(&self, deployment: &DeploymentName) -> Result<Vec<InstanceSnapshot>, StoreError> {
        let rows = sqlx::query(
            "SELECT s.*, d.cpi, i.instance_group, i.position, i.id AS instance FROM snapshots s
             JOIN disks d ON d.cid = s.disk JOIN instances i ON i.id = d.instance WHERE i.deployment = $1
             ORDER BY i.instance_group, i.position, s.created_at, s.cid",
        )
        .bind(deployment.as_str())
        .fetch_all(self.database.pool())
        .await?;
        let with_instance = |row: &AnyRow| {
            Ok(InstanceSnapshot {
                snapshot: read(row)?,
                group: row.try_get("instance_group")?,
                index: row.try_get("position")?,
                instance: row.try_get::<String, _>("instance")?.into(),
            })
        };
        rows.iter().map(with_instance).collect()
    }

    /// The snapshots of an orphaned disk.
    pub(crate) async fn snapshots_of_orphan(&self, disk: &DiskCid) -> Result<Vec<SnapshotRecord>, StoreError> {
        let rows = sqlx::query(OF_ORPHAN).bind(disk.as_str()).fetch_all(self.database.pool()).await?;
        rows.iter().map(read).collect()
    }
}
